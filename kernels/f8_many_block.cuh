/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernel of FP8 blocks for chunks of up to 112 tokens: what its shared memory holds.
 *
 * Of the ring of weights each of two warpgroups has every second stage, so it need not follow the other: a stage is
 * given back as soon as one warpgroup has multiplied its 128 columns. Threads 0..255 multiply and finish tiles; of the
 * last warpgroup one thread feeds weights, one tokens, one stores tiles of h and tells other blocks of them, and one
 * warp makes the factors of sums.
 */
#ifndef LOADPLAN_F8_MANY_BLOCK_CUH
#define LOADPLAN_F8_MANY_BLOCK_CUH

#include "kernels/f8_block.cuh"

/* Tokens of a tile of out that a warp turns around at once. */
constexpr int F8_MANY_TURNED = 56;
constexpr int F8_MANY_STAGES = 8, F8_MANY_TOKEN_STAGES = f8_many_form::TOKEN_STAGES;
/* First threads of the warps that make factors, and that store tiles of h. */
constexpr int F8_MANY_FACTORS = f8_threads<f8_many_form>::TOKEN_FEEDER + 32, F8_MANY_PUBLISHER = F8_MANY_FACTORS + 32;

/* A thread's totals of a tile: twice 64 rows of weights by the tokens, f8_many_multiply.cuh says which; of narrow tiles
 * the first ones. In the same registers for all widths, so that the end of a tile is the same code for all of them:
 * code that a block has not run yet comes from memory. */
using f8_many_totals = float[2][LP_F8_MANY_ROWS / 2];

/* Factors of the sums of two tokens: their scales times that of the first and of the second block of the tile's
 * weights, gate and up or the upper and the lower 128 rows. */
struct f8_many_factor {
    float2 first, second;
};

struct f8_many_shared {
    f8_queue queue;
    uint64_t factors_full[F8_MANY_TOKEN_STAGES];
    uint64_t stored, told;         /* a tile of h, by all warps that multiply; and it has left shared memory */
    float weight[LP_F8_MANY_ROWS]; /* router weights of the tokens of a tile of gate and up */
    /* Of the tokens of the tile of gate and up that ends: the largest |h| of each warp's columns, router weights and
     * what h is multiplied by, scales. */
    alignas(16) float most[8][LP_F8_MANY_ROWS];
    float2 times[LP_F8_MANY_ROWS];
    float h_scale[LP_F8_MANY_ROWS];
    alignas(128) float scales[F8_MANY_TOKEN_STAGES][LP_F8_MANY_ROWS];
    f8_many_factor factors[F8_MANY_TOKEN_STAGES][LP_F8_MANY_ROWS / 2];
    alignas(128) uint8_t staged[8 * F8_MANY_TURNED * 64]; /* a tile of h, or what is turned of one of out */
    alignas(1024) uint8_t tokens[F8_MANY_TOKEN_STAGES][LP_F8_MANY_ROWS * F8_PIECE];
    uint8_t weights[F8_MANY_STAGES][f8_stage_bytes<f8_many_form>];
};
static_assert(sizeof(f8_many_shared) <= F8_MOST_BYTES && F8_MANY_STAGES % f8_many_form::GROUPS == 0,
              "a block's most, and every second stage");

#endif
