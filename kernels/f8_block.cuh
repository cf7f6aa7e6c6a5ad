/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the roles of the kernels of whole-byte weights share: their arguments, their shared memory, and the queue of
 * work of a block.
 *
 * A block runs alone on its multiprocessor. A piece of work, an item, is a tile of weight rows over all of K for the
 * tokens of one chunk; a tile is cut into parts, one for each warpgroup that takes part. The first threads are
 * warpgroups that multiply and finish their parts; of the one behind them one thread feeds weights and one tokens.
 */
#ifndef LOADPLAN_F8_BLOCK_CUH
#define LOADPLAN_F8_BLOCK_CUH

#include "kernels/f8_few.h"
#include "kernels/f8_operand.cuh"
#include "kernels/f8_ptx.cuh"
#include "kernels/moe_items.cuh"
#include "kernels/moe_start.cuh"

constexpr int F8_QUEUE = 4, F8_MOST_STAGES = 8, F8_MOST_TOKEN_STAGES = 3;
constexpr int F8_MOST_BYTES = 232448; /* of a block's shared memory on this GPU */

/*
 * The two kernels. Few tokens: four warpgroups multiply 64 rows each, and a stage is 512 bytes of a row, which memory
 * reads well. Many: two multiply 128 rows each and have registers for 128 tokens; each needs every second stage.
 */
struct f8_few_form {
    static constexpr int GROUPS = 4, PART_ROWS = 64, TOKEN_STAGES = 2;
    static constexpr bool ROUTES = true; /* moe_start.cuh */
    static constexpr int PIECES = 4;     /* of 128 bytes of K in a stage, of weights and of tokens */
    __host__ __device__ static constexpr int parts(int projection) { return projection == 0 ? 4 : 2; } /* of a tile */
};
struct f8_many_form {
    static constexpr int GROUPS = 2, PART_ROWS = 128, TOKEN_STAGES = 3, PIECES = 1;
    static constexpr bool ROUTES = false;
    __host__ __device__ static constexpr int parts(int) { return 2; }
};
template <typename Form> struct f8_threads {
    static constexpr int MULTIPLIERS = Form::GROUPS * 128, WARPS = MULTIPLIERS / 32; /* that multiply */
    static constexpr int WEIGHT_FEEDER = MULTIPLIERS, TOKEN_FEEDER = WEIGHT_FEEDER + 32, ALL = MULTIPLIERS + 128;
};
template <typename Form> constexpr int f8_piece_bytes = Form::PART_ROWS *F8_PIECE;
template <typename Form> constexpr int f8_stage_bytes = Form::PIECES *f8_piece_bytes<Form>;

/* What is multiplied. */
enum f8_kind {
    F8_BLOCKS = 0, /* E4M3 tokens with a scale per 128, E4M3 weights with a scale per 128 x 128 */
    F8_BF16 = 1    /* BF16 both, no scales */
};

__host__ __device__ constexpr int f8_element_bytes(int kind)
{
    return kind == F8_BLOCKS ? 1 : 2;
}

struct f8_projection {
    const float *weight_scale;  /* [E, rows / 128, K / 128] */
    const char *operand;        /* its tokens */
    const float *operand_scale; /* [chunk][K / 128][width] */
    int tiles, parts;           /* tiles of an expert; parts of a tile */
    int pieces;                 /* of 128 bytes of K */
};

/* Places in shared memory, bytes from its start: stages of tokens, their scales, stages of weights. */
struct f8_space {
    int tokens, token_stage, scales, scale_stage, weights;
};

struct f8_arguments {
    f8_projection projection[2];
    f8_space space;
    lp_moe_routes routes;
    char *h;
    float *h_scale;
    void *out; /* BF16 [rows, H] */
    lp_moe_sink sink;
    int kind; /* f8_kind */
    int hidden, intermediate;
    int chunk_rows, unit; /* most tokens of a chunk, and what their number is a multiple of */
    int even_rows;        /* as for moe_chunk_rows */
    int stages;           /* of weights */
    int first_tiles;      /* tiles that blocks take before routing is known: experts' first chunks, in order */
    bool fast;            /* lp_megamoe_shape.fast */
    int activation;
    float alpha, beta, limit;
    moe_start start;
    int *ticket, *ready; /* counters that are 0 before: of items; of warps that finished their h of a chunk */
};

struct f8_item {
    int projection; /* -1: no more work */
    int expert, tile, chunk, row, width, valid;
    int stages;      /* of weights that were or will be filled for it */
    int first_group; /* the first warpgroup that takes part */
    int dropped;     /* its weights were fetched in vain: the expert has no tokens */
    int unused[2];
};

/* Scales along K of block `row` of 128 rows of the item's weights. */
__device__ __forceinline__ const float *f8_scale_row(const f8_arguments &p, const f8_item &item, int row)
{
    const int rows = (item.projection == 0 ? 2 * p.intermediate : p.hidden) / 128;
    const f8_projection &projection = p.projection[item.projection];
    return projection.weight_scale + (static_cast<int64_t>(item.expert) * rows + row) * projection.pieces;
}

/* The start of shared memory. Barriers count the rounds of what they guard. */
struct f8_queue {
    uint64_t full[F8_MOST_STAGES], empty[F8_MOST_STAGES];                           /* stages of weights */
    uint64_t tokens_full[F8_MOST_TOKEN_STAGES], tokens_empty[F8_MOST_TOKEN_STAGES]; /* of tokens */
    uint64_t given[F8_QUEUE], taken[F8_QUEUE];                                      /* items */
    f8_item item[F8_QUEUE];
    moe_start_header start;
};

using f8_turn = moe_turn;

/* By each warp of those that a barrier waits for. */
__device__ __forceinline__ void f8_release(uint64_t *barrier)
{
    __syncwarp();
    if (threadIdx.x % 32 == 0)
        hopper::barrier_arrive(hopper::shared_address(barrier));
}

#endif
