/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which tile a block computes when, and what its shared memory holds.
 *
 * A tile is 128 tokens of one expert by 256 rows of weights. Two blocks of a cluster work on two tiles that share an
 * operand, which each fetches half of for both: the weights, with neighbouring token tiles; or, for the last token tile
 * of an odd number and wherever blocks decode, the tokens, with neighbouring weight tiles. All tasks of the first
 * projection come first, in the order of experts, then those of the second; a token tile of the second waits for the
 * tiles of the first that it reads. The order says nothing about results: each tile sums over K by itself, from the
 * first column to the last.
 */
#ifndef LOADPLAN_PREFILL_TILE_CUH
#define LOADPLAN_PREFILL_TILE_CUH

#include "kernels/prefill.h"
#include "kernels/prefill_operand.cuh"
#include "kernels/prefill_ptx.cuh"

constexpr int PREFILL_COLUMNS = 256, PREFILL_MOST_EXPERTS = 512, PREFILL_WARPS = 8; /* that multiply */
constexpr int PREFILL_WEIGHT_BYTES = PREFILL_COLUMNS * 128, PREFILL_SCALE_BYTES = PREFILL_ROWS * 4;

/* What a kind of product is made of. `decodes`: weights come as codes and seven warps decode them. */
__host__ __device__ constexpr bool prefill_decodes(int kind)
{
    return kind != LP_PREFILL_FP8 && kind != LP_PREFILL_BF16 && !prefill_is_ahead(kind);
}
__host__ __device__ constexpr bool prefill_is_fp4(int kind)
{
    return prefill_is_mx(kind) || prefill_is_nv(kind) || kind == LP_PREFILL_MX_WIDE;
}
__host__ __device__ constexpr bool prefill_has_blocks(int kind) /* FP32 scales of 128 x 128 weights */
{
    return kind == LP_PREFILL_FP8 || kind == LP_PREFILL_FP8_WIDE;
}
__host__ __device__ constexpr bool prefill_is_scaled(int kind)
{
    return kind != LP_PREFILL_BF16 && !prefill_is_nv(kind) && !prefill_is_codes(kind);
}
__host__ __device__ constexpr int prefill_row_bits(int kind) /* of a weight, as it is stored */
{
    return prefill_is_fp4(kind) ? 4 : kind == LP_PREFILL_BF16 ? 16 : 8;
}
__host__ __device__ constexpr int prefill_stages(int kind)
{
    return prefill_decodes(kind) ? 3 : 4;
}

/* Eight warps multiply. Beside them are two warps that feed and two that are idle; or one that feeds and three that
 * decode ahead; or seven that decode for the block and one that feeds. */
constexpr int PREFILL_MAKERS = 3; /* that decode ahead */
__host__ __device__ constexpr int prefill_threads(int kind)
{
    return prefill_decodes(kind) ? 512 : 384;
}
/* Registers of a thread that multiplies, and of another: together not more than a launch has. Decoding is as fast as
 * its loads are early, and so takes what the products leave; a spilled register there is worth a trip to the L2 cache,
 * for waiting on counters in memory empties the first level. */
__host__ __device__ constexpr int prefill_registers(int kind)
{
    const bool is_plain = prefill_is_nv(kind) || prefill_is_codes(kind); /* no sums but the totals */
    return prefill_decodes(kind) ? (is_plain ? 168 : 184) : is_plain ? 200 : 224;
}
__host__ __device__ constexpr int prefill_registers_beside(int kind)
{
    return prefill_decodes(kind) ? 256 - prefill_registers(kind) : 504 - 2 * prefill_registers(kind);
}

/* Whether a tile of few tokens is divided by weight rows: where products are what takes time. */
__host__ __device__ constexpr bool prefill_splits(int kind)
{
    return kind == LP_PREFILL_FP8;
}

struct prefill_arguments {
    const char *tokens[2]; /* operands of both projections: x and h */
    const float *token_scale[2];
    const float *weight_scale[2];         /* LP_PREFILL_FP8 */
    const char *codes[2], *code_scale[2]; /* of kinds that decode */
    int packed;                           /* they are in the layouts packed by tiles */
    int in_block;                         /* blocks decode them for themselves: they share tokens only */
    char *made;                           /* decoded ahead: places for tiles of decoded weights, prefill_ring.cuh */
    int64_t place_bytes;                  /* of one of them */
    int places;
    int32_t *made_groups, *used; /* by tile: groups of rows that are decoded, tiles of tokens that are multiplied */
    uint8_t *reference;          /* MXFP4 decoded ahead: by tile, for each row, what prefill_rare_rows.cuh says */
    char *h;
    float *h_scale;
    uint16_t *out;
    lp_moe_sink sink;
    const int32_t *count, *start, *row_route;
    const float *row_weight;
    int32_t *ready; /* tiles of the first projection that are done, for each tile of 128 tokens */
    const float *l1_alpha, *l2_alpha, *l2_activation_scale;
    int l1_alpha_columns;
    int weight_in_h; /* the router weight multiplies h */
    bool fast;       /* lp_megamoe_shape.fast */
    int experts;
    int hidden, intermediate;
    int activation;
    float alpha, beta, limit;
};

struct prefill_tables {
    int tiles[PREFILL_MOST_EXPERTS + 1]; /* token tiles before an expert */
    int pairs[PREFILL_MOST_EXPERTS + 1]; /* pairs of them */
    int hits[PREFILL_MOST_EXPERTS + 1];  /* experts that have tokens */
};

/* Codes and scales of 256 rows x 64 bytes, on their way to be decoded. */
template <int KIND> struct prefill_raw {
    static constexpr int RING = 3, CODES = PREFILL_COLUMNS * 64,
                         SCALES = PREFILL_COLUMNS * (KIND == LP_PREFILL_NV ? 8 : 4);
    static constexpr bool SCALED = KIND != LP_PREFILL_FP8_WIDE;
    uint8_t codes[RING][CODES], scales[RING][SCALES];
    uint64_t full[RING], empty[RING];
    uint8_t reference[4][PREFILL_COLUMNS]; /* LP_PREFILL_MX, for the last tasks, as prefill_rare_rows.cuh has them */
};
template <int KIND, bool DECODES> struct prefill_raw_or_none {
    prefill_raw<KIND> raw;
};
template <int KIND> struct prefill_raw_or_none<KIND, false> {
};

/* 128 columns of eight rows on their way from memory: codes row after row, and all scales of a row after each other. */
template <int KIND> struct prefill_unit_of_codes {
    static constexpr int ROW = prefill_is_fp4(KIND) ? 64 : 128, SCALES = prefill_is_nv(KIND) ? 2 : 1; /* bytes, words */
    alignas(16) uint8_t codes[8][ROW];
    uint32_t scales[8][SCALES];
};

/* Those of the warps that decode ahead, each with a ring of its own. */
template <int KIND, bool IS_AHEAD> struct prefill_making {
    static constexpr int DEPTH = prefill_is_fp4(KIND) ? 4 : 3;
    prefill_unit_of_codes<KIND> unit[PREFILL_MAKERS][DEPTH];
    /* MXFP4, for the last tasks, as prefill_rare_rows.cuh has them; copies are ahead by as many tasks as stages. */
    alignas(16) uint8_t reference[2 * prefill_stages(KIND)][prefill_is_mx(KIND) ? PREFILL_COLUMNS : 1];
};
template <int KIND> struct prefill_making<KIND, false> {
};

template <int KIND> struct prefill_shared : prefill_raw_or_none<KIND, prefill_decodes(KIND)> {
    static constexpr int STAGES = prefill_stages(KIND);
    alignas(1024) uint8_t weight[STAGES][PREFILL_WEIGHT_BYTES];
    uint8_t tokens[STAGES][PREFILL_PIECE];
    uint8_t staging[2][8192]; /* of the two multiplying warpgroups */
    float scale[STAGES][PREFILL_ROWS];
    float most[2][2][64]; /* of |h|, of the two halves of a tile that is divided; for every other such tile */
    uint64_t full[STAGES], empty[STAGES];
    prefill_tables tables;
    prefill_making<KIND, prefill_is_ahead(KIND)> making;
};
static_assert(sizeof(prefill_shared<LP_PREFILL_CODES | PREFILL_AHEAD>) <= 232448 &&
                  sizeof(prefill_shared<LP_PREFILL_NV | PREFILL_AHEAD>) <= 232448,
              "a block's most on this GPU");
static_assert(sizeof(prefill_shared<LP_PREFILL_NV>) <= 232448 && sizeof(prefill_shared<LP_PREFILL_FP8>) <= 232448,
              "a block's most on this GPU");

struct prefill_task {
    int expert, m, n;  /* tile of tokens, of weight rows */
    bool share_tokens; /* else the weights */
    bool idle;         /* no such tile: take part in the traffic only */
    int rows, row;     /* tokens in the tile, its first row */
};

/*
 * What a multiplying warpgroup has of a tile: 64 of its tokens and all weight rows; or, where the tile has no more than
 * 64 tokens, those and the warpgroup's half of the weight rows.
 */
struct prefill_share {
    int first_token;
    bool is_half, idle;
    int half; /* of the weight rows, where is_half, else 0 */
    __device__ prefill_share(int kind, const prefill_task &task)
    {
        const int group = __shfl_sync(~0u, static_cast<int>(threadIdx.x) / 128, 0); /* one for a warp */
        is_half = prefill_splits(kind) && task.rows <= 64;
        first_token = is_half ? 0 : 64 * group;
        half = is_half ? group : 0;
        idle = task.idle || first_token >= task.rows;
    }
};

/* Prefix sums over experts; by one warp. */
__device__ inline void prefill_count_tiles(const prefill_arguments &p, prefill_tables &sm)
{
    const int lane = threadIdx.x % 32;
    int tiles = 0, pairs = 0, hits = 0;
    for (int base = 0; base < p.experts; base += 32) {
        const int e = base + lane;
        int t = e < p.experts ? (p.count[e] + PREFILL_ROWS - 1) / PREFILL_ROWS : 0, c = t / 2;
        const uint32_t hit = __ballot_sync(~0u, t > 0);
        for (int d = 1; d < 32; d *= 2) {
            const int more_t = __shfl_up_sync(~0u, t, d), more_c = __shfl_up_sync(~0u, c, d);
            if (lane >= d)
                t += more_t, c += more_c;
        }
        if (e < p.experts) {
            sm.tiles[e + 1] = tiles + t, sm.pairs[e + 1] = pairs + c;
            sm.hits[e + 1] = hits + __popc(hit & ~0u >> (31 - lane));
        }
        tiles += __shfl_sync(~0u, t, 31), pairs += __shfl_sync(~0u, c, 31), hits += __popc(hit);
    }
    if (lane == 0)
        sm.tiles[0] = sm.pairs[0] = sm.hits[0] = 0;
}

/* No expert has two tiles of tokens: then the blocks of a cluster share nothing, and neither waits for the other. */
__device__ __forceinline__ bool prefill_is_solo(const prefill_arguments &p, const prefill_tables &tables)
{
    return tables.pairs[p.experts] == 0;
}

/* Walks a cluster's tasks of one projection; every role of a block walks alike. */
struct prefill_walk {
    const prefill_arguments &p;
    const prefill_tables &sm;
    int which, columns, total, expert, at, step, rank;

    /* Tasks before an expert. */
    __device__ int before(int e) const
    {
        const int tiles = sm.tiles[e];
        const int pairs = p.in_block ? 0 : sm.pairs[e];
        return pairs * columns + (tiles - 2 * pairs) * ((columns + 1) / 2);
    }
    __device__ static int columns_of(const prefill_arguments &p, int which)
    {
        return which == 0 ? p.intermediate / 128 : p.hidden / 256;
    }
    __device__ prefill_walk(const prefill_arguments &p, const prefill_tables &sm, int which, int rank)
        : p(p), sm(sm), rank(rank)
    {
        start(which);
    }
    __device__ void start(int projection)
    {
        which = projection;
        columns = columns_of(p, which);
        expert = 0;
        total = before(p.experts);
        step = static_cast<int>(gridDim.x / 2);
        at = static_cast<int>(blockIdx.x / 2);
        if (which == 1) { /* go on where the first projection ended */
            columns = columns_of(p, 0);
            const int done = before(p.experts);
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
        const int tiles = sm.tiles[expert + 1] - sm.tiles[expert], local = at - before(expert);
        const int pairs = p.in_block ? 0 : tiles / 2;
        task.expert = expert;
        task.share_tokens = local >= pairs * columns;
        if (task.share_tokens) {
            const int single = tiles - 2 * pairs, in_single = local - pairs * columns;
            task.m = 2 * pairs + in_single % single;
            task.n = 2 * (in_single / single) + rank;
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
    /* Of all experts' weights, in units of 256 rows. */
    __device__ int weight_tile(const prefill_task &task) const { return task.expert * columns + task.n; }
};

/* A ring of stages; every role steps through it alike. */
template <int COUNT> struct prefill_ring {
    int stage = 0;
    uint32_t phase = 0;
    __device__ void next()
    {
        if (++stage == COUNT) {
            stage = 0;
            phase ^= 1;
        }
    }
};

#endif
