/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which tile a block computes when, and what its shared memory holds.
 *
 * A tile is 128 tokens of one expert by 256 rows of weights. Two blocks of a cluster work on two tiles that share an
 * operand, which each fetches half of for both: the weights, with neighbouring token tiles; or, for the last token tile
 * of an odd number, the tokens, with neighbouring weight tiles. All tasks of the first projection come first, in the
 * order of experts, then those of the second; a token tile of the second waits for the tiles of the first that it
 * reads. The order says nothing about results: each tile sums over K by itself, from the first column to the last.
 */
#ifndef LOADPLAN_PREFILL_TILE_CUH
#define LOADPLAN_PREFILL_TILE_CUH

#include "kernels/prefill.h"
#include "kernels/prefill_operand.cuh"
#include "kernels/prefill_ptx.cuh"

constexpr int PREFILL_STAGES = 4, PREFILL_COLUMNS = 256, PREFILL_MOST_EXPERTS = 512, PREFILL_THREADS = 384;
constexpr int PREFILL_WEIGHT_BYTES = PREFILL_COLUMNS * 128, PREFILL_SCALE_BYTES = PREFILL_ROWS * 4;

struct prefill_arguments {
    const char *tokens[2]; /* operands of both projections: x and h */
    const float *token_scale[2];
    const float *weight_scale[2]; /* LP_PREFILL_FP8 */
    char *h;
    float *h_scale;
    uint16_t *out;
    const int32_t *count, *start;
    const float *row_weight;
    int32_t *ready; /* tiles of the first projection that are done, for each tile of 128 tokens */
    const float *l1_alpha, *l2_alpha, *l2_activation_scale;
    int l1_alpha_columns;
    int weight_in_h;          /* the router weight multiplies h */
    int experts, first, last; /* all; those of this launch, whose weights start at the first */
    int hidden, intermediate;
    int activation;
    float alpha, beta, limit;
};

struct prefill_shared {
    uint8_t weight[PREFILL_STAGES][PREFILL_WEIGHT_BYTES];
    uint8_t tokens[PREFILL_STAGES][PREFILL_PIECE];
    uint8_t staging[2][8192]; /* of the two multiplying warpgroups */
    float scale[PREFILL_STAGES][PREFILL_ROWS];
    uint64_t full[PREFILL_STAGES], empty[PREFILL_STAGES];
    int tiles[PREFILL_MOST_EXPERTS + 1]; /* token tiles before an expert */
    int pairs[PREFILL_MOST_EXPERTS + 1]; /* pairs of them */
};

struct prefill_task {
    int expert, m, n;  /* tile of tokens, of weight rows */
    bool share_tokens; /* else the weights */
    bool idle;         /* no such tile: take part in the traffic only */
    int rows, row;     /* tokens in the tile, its first row */
};

/* Prefix sums over experts; by one warp. */
__device__ inline void prefill_count_tiles(const prefill_arguments &p, prefill_shared &sm)
{
    const int lane = threadIdx.x % 32;
    int tiles = 0, pairs = 0;
    for (int base = 0; base < p.experts; base += 32) {
        const int e = base + lane;
        int t = e < p.experts ? (p.count[e] + PREFILL_ROWS - 1) / PREFILL_ROWS : 0, c = t / 2;
        for (int d = 1; d < 32; d *= 2) {
            const int more_t = __shfl_up_sync(~0u, t, d), more_c = __shfl_up_sync(~0u, c, d);
            if (lane >= d)
                t += more_t, c += more_c;
        }
        if (e < p.experts)
            sm.tiles[e + 1] = tiles + t, sm.pairs[e + 1] = pairs + c;
        tiles += __shfl_sync(~0u, t, 31), pairs += __shfl_sync(~0u, c, 31);
    }
    if (lane == 0)
        sm.tiles[0] = sm.pairs[0] = 0;
}

/* Walks a cluster's tasks of one projection; every role of a block walks alike. */
struct prefill_walk {
    const prefill_arguments &p;
    const prefill_shared &sm;
    int which, columns, total, expert, at, step, rank;

    /* Tasks before an expert. */
    __device__ int before(int e) const
    {
        const int pairs = sm.pairs[e] - sm.pairs[p.first], tiles = sm.tiles[e] - sm.tiles[p.first];
        return pairs * columns + (tiles - 2 * pairs) * ((columns + 1) / 2);
    }
    __device__ static int columns_of(const prefill_arguments &p, int which)
    {
        return which == 0 ? p.intermediate / 128 : p.hidden / 256;
    }
    __device__ prefill_walk(const prefill_arguments &p, const prefill_shared &sm, int which, int rank)
        : p(p), sm(sm), which(which), columns(columns_of(p, which)), expert(p.first), rank(rank)
    {
        total = before(p.last);
        step = static_cast<int>(gridDim.x / 2);
        at = static_cast<int>(blockIdx.x / 2);
        if (which == 1) { /* go on where the first projection ended */
            columns = columns_of(p, 0);
            const int done = before(p.last);
            columns = columns_of(p, 1);
            at = (at + step - done % step) % step;
        }
    }
    __device__ bool next(prefill_task &task)
    {
        if (at >= total)
            return false;
        while (at >= before(expert + 1))
            expert++;
        const int tiles = sm.tiles[expert + 1] - sm.tiles[expert], pairs = tiles / 2, local = at - before(expert);
        task.expert = expert;
        task.share_tokens = local >= pairs * columns;
        if (task.share_tokens) {
            task.m = tiles - 1;
            task.n = 2 * (local - pairs * columns) + rank;
        } else {
            task.m = 2 * (local % pairs) + rank;
            task.n = local / pairs;
        }
        task.idle = task.n >= columns;
        task.rows = min(PREFILL_ROWS, p.count[expert] - task.m * PREFILL_ROWS);
        task.row = p.start[expert] + task.m * PREFILL_ROWS;
        at += step;
        return true;
    }
    /* Of this expert's weights in the tensor of the launch, in units of 256 rows. */
    __device__ int weight_tile(const prefill_task &task) const { return (task.expert - p.first) * columns + task.n; }
};

/* The ring of stages; every role steps through it alike. */
struct prefill_ring {
    int stage = 0;
    uint32_t phase = 0;
    __device__ void next()
    {
        if (++stage == PREFILL_STAGES) {
            stage = 0;
            phase ^= 1;
        }
    }
};

#endif
