/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the roles of the kernel of whole-byte weights share: its arguments, its shared memory, and the queue of work of
 * a block.
 *
 * A block runs alone on its multiprocessor. A piece of work, an item, is a tile of weight rows over all of K for the
 * tokens of one chunk; a tile is cut into parts of 64 rows, one for each warpgroup that takes part. Threads 0..511 are
 * four warpgroups that multiply and finish their parts, thread 512 feeds weights and 544 feeds tokens.
 */
#ifndef LOADPLAN_F8_BLOCK_CUH
#define LOADPLAN_F8_BLOCK_CUH

#include "kernels/f8_few.h"
#include "kernels/f8_operand.cuh"
#include "kernels/f8_ptx.cuh"
#include "kernels/moe_items.cuh"

constexpr int F8_GROUPS = 4, F8_PART_ROWS = 64, F8_MULTIPLIERS = F8_GROUPS * 128;
constexpr int F8_WEIGHT_FEEDER = F8_MULTIPLIERS, F8_TOKEN_FEEDER = F8_WEIGHT_FEEDER + 32;
constexpr int F8_THREADS = F8_MULTIPLIERS + 128;
constexpr int F8_QUEUE = 4, F8_MOST_STAGES = 8, F8_TOKEN_STAGES = 2;
constexpr int F8_PIECES = 4; /* of 128 bytes of K in a stage: 512 bytes of a row, which memory reads well */
constexpr int F8_PIECE_BYTES = F8_PART_ROWS * F8_PIECE, F8_STAGE = F8_PIECES * F8_PIECE_BYTES;

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
    int tiles, parts;           /* tiles of an expert; parts of a tile: 4 in the first projection, 2 in the second */
    int pieces;                 /* of 128 bytes of K */
};

struct f8_arguments {
    f8_projection projection[2];
    lp_moe_routes routes;
    char *h;
    float *h_scale;
    void *out; /* BF16 [rows, H] */
    lp_moe_sink sink;
    int kind; /* f8_kind */
    int hidden, intermediate;
    int chunk_rows, unit; /* most tokens of a chunk, and what their number is a multiple of */
    int stages;           /* of weights */
    int first_tiles;      /* tiles that blocks take before routing is known: experts' first chunks, in order */
    bool fast;            /* lp_megamoe_shape.fast */
    int activation;
    float alpha, beta, limit;
    int *ticket, *ready; /* counters that routing has set to 0: of items; of warps that finished their h of a chunk */
};

struct f8_item {
    int projection; /* -1: no more work */
    int expert, tile, chunk, row, width, valid;
    int stages;      /* of weights that were or will be filled for it */
    int first_group; /* the first warpgroup that takes part */
    int dropped;     /* its weights were fetched in vain: the expert has no tokens */
    int unused[2];
};

/* Scales of a tile's weights along K, of two blocks of rows in the first projection: gate (0) and up (1). */
__device__ __forceinline__ const float *f8_scale_row(const f8_arguments &p, const f8_item &item, int which)
{
    const int inner = p.intermediate / 128, rows = item.projection == 0 ? 2 * inner : p.hidden / 128;
    const f8_projection &projection = p.projection[item.projection];
    return projection.weight_scale +
           (static_cast<int64_t>(item.expert) * rows + which * inner + item.tile) * projection.pieces;
}

/* The start of shared memory. Barriers count the rounds of what they guard. */
struct f8_header {
    uint64_t full[F8_MOST_STAGES], empty[F8_MOST_STAGES];                 /* stages of weights */
    uint64_t tokens_full[F8_TOKEN_STAGES], tokens_empty[F8_TOKEN_STAGES]; /* of tokens */
    uint64_t given[F8_QUEUE], taken[F8_QUEUE];                            /* items */
    f8_item item[F8_QUEUE];
    int most[3][LP_F8_MANY_ROWS]; /* largest |h| of a token of a tile, as bits; of this tile, the next and the last */
};

/* Sizes and places in shared memory, by the most tokens of a chunk. */
struct f8_space {
    int token_stage, scales, ring; /* bytes of a stage of tokens; where its scales start; where weights start */
};

__host__ __device__ constexpr f8_space f8_space_of(int chunk_rows)
{
    constexpr int HEADER = 2048;
    f8_space s = {};
    s.scales = F8_PIECES * chunk_rows * F8_PIECE;
    s.token_stage = (s.scales + F8_PIECES * chunk_rows * 4 + 1023) / 1024 * 1024;
    s.ring = HEADER + F8_TOKEN_STAGES * s.token_stage;
    return s;
}
static_assert(sizeof(f8_header) <= 2048, "tokens start behind it");

using f8_turn = moe_turn;

#endif
