/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the roles of the kernel of MXFP8 share: its arguments, its shared memory, and the queue of work of a block.
 *
 * A block runs alone on its multiprocessor. A piece of work, an item, is a tile of 256 rows of weights over all of K
 * for the tokens of one chunk. Threads 0..511 are four warpgroups that multiply and finish 64 rows each, thread 512
 * feeds weights and 544 feeds tokens. A stage is 128 columns: of the tile's codes and scales, or of the chunk's tokens.
 */
#ifndef LOADPLAN_M8_BLOCK_CUH
#define LOADPLAN_M8_BLOCK_CUH

#include "kernels/m8.h"
#include "kernels/m8_operand.cuh"
#include "kernels/moe_items.cuh"

constexpr int M8_GROUPS = 4, M8_PART_ROWS = 64, M8_ROWS = M8_GROUPS * M8_PART_ROWS, M8_MULTIPLIERS = M8_GROUPS * 128;
constexpr int M8_WEIGHT_FEEDER = M8_MULTIPLIERS, M8_TOKEN_FEEDER = M8_WEIGHT_FEEDER + 32;
constexpr int M8_THREADS = M8_MULTIPLIERS + 128;
constexpr int M8_QUEUE = 4, M8_MOST_STAGES = 6, M8_MOST_TOKEN_STAGES = 4;
constexpr int M8_COLUMNS = 128, M8_STAGE = M8_ROWS * M8_COLUMNS; /* bytes of codes */
constexpr int M8_SCALE_BYTES = M8_ROWS * 4;

struct m8_projection {
    const uint32_t *scale; /* words of four UE8M0 codes, [E][K / 128][rows], rows in slots */
    const char *operand;   /* its tokens */
    int tiles, stages;     /* of an expert; of a tile: K / 128 */
};

struct m8_arguments {
    m8_projection projection[2];
    lp_moe_routes routes;
    char *h;
    void *out; /* BF16 [rows, H] */
    lp_moe_sink sink;
    int hidden, intermediate;
    int chunk_rows, unit; /* most tokens of a chunk, and what their number is a multiple of */
    int stages, token_stages;
    int first_tiles; /* tiles that blocks take before routing is known: experts' first chunks, in order */
    int activation;
    float alpha, beta, limit;
    int *ticket, *ready; /* counters that routing has set to 0: of items; of warps that finished their h of a chunk */
};

struct m8_item {
    int projection; /* -1: no more work */
    int expert, tile, chunk, row, width, valid;
    int stages;  /* of weights that were or will be filled for it */
    int dropped; /* its weights were fetched in vain: the expert has no tokens */
    int unused[3];
};

/* UE8M0 codes of the largest |h| of the tokens of a part, by warp; for every other tile. */
struct m8_most {
    uint8_t of[2][M8_GROUPS][4][LP_M8_MOST_ROWS];
};

/* The start of shared memory. Barriers count the rounds of what they guard. */
struct m8_header {
    uint64_t full[M8_MOST_STAGES], empty[M8_MOST_STAGES];                           /* stages of weights */
    uint64_t tokens_full[M8_MOST_TOKEN_STAGES], tokens_empty[M8_MOST_TOKEN_STAGES]; /* of tokens */
    uint64_t given[M8_QUEUE], taken[M8_QUEUE];                                      /* items */
    m8_item item[M8_QUEUE];
    m8_most most;
};

/* Places in shared memory, by the most tokens of a chunk; and how many stages there are. */
struct m8_space {
    int tokens, token_stage, scales, weights, bytes;
    int token_stages, stages;
};

__host__ __device__ constexpr m8_space m8_space_of(int chunk_rows)
{
    constexpr int MOST = 232448, HEADER = 5120; /* a block's most on this GPU */
    m8_space s = {};
    s.token_stage = chunk_rows * M8_COLUMNS * 2;
    s.token_stages = chunk_rows == LP_M8_FEW_ROWS ? 4 : 3;
    s.tokens = HEADER;
    s.weights = s.tokens + s.token_stages * s.token_stage;
    s.stages = (MOST - s.weights) / (M8_STAGE + M8_SCALE_BYTES);
    s.scales = s.weights + s.stages * M8_STAGE;
    s.bytes = s.scales + s.stages * M8_SCALE_BYTES;
    return s;
}
static_assert(sizeof(m8_header) <= 5120, "tokens start behind it");
static_assert(m8_space_of(LP_M8_FEW_ROWS).stages <= M8_MOST_STAGES && m8_space_of(LP_M8_MOST_ROWS).stages >= 3,
              "stages of weights");

using m8_turn = moe_turn;

/* threadIdx.x. What is made of it is made where it is used: made before the loop over tiles, for all their widths, it
 * would take registers from sums. */
__device__ __forceinline__ int m8_thread()
{
    int thread = static_cast<int>(threadIdx.x);
    asm volatile("" : "+r"(thread));
    return thread;
}

#endif
