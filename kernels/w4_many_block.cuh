/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The variant of the 4-bit kernel for chunks of up to 128 tokens: its shared memory, and which rows a thread has.
 *
 * Codes are decoded once for all tokens of a chunk, so the sums of 256 rows by 128 tokens stay in registers and leave
 * room for two multiplying warpgroups only. Threads 0..255 multiply and finish what they multiplied; of the last
 * warpgroup one thread feeds weights, one tokens, and one warp rounds and stores h.
 */
#ifndef LOADPLAN_W4_MANY_BLOCK_CUH
#define LOADPLAN_W4_MANY_BLOCK_CUH

#include "kernels/w4_block.cuh"

constexpr int W4_MANY_GROUPS = 2, W4_MANY_MULTIPLIERS = W4_MANY_GROUPS * 128, W4_MANY_WARPS = W4_MANY_MULTIPLIERS / 32;
constexpr int W4_MANY_WEIGHT_FEEDER = W4_MANY_MULTIPLIERS, W4_MANY_TOKEN_FEEDER = W4_MANY_WEIGHT_FEEDER + 32;
constexpr int W4_MANY_STORER = W4_MANY_TOKEN_FEEDER + 32, W4_MANY_THREADS = W4_MANY_WEIGHT_FEEDER + 128;

/* The start of shared memory. */
struct w4_many_header : w4_queue {
    uint64_t staged, stored;      /* a tile of h handed to the warp that stores it, and gone from shared memory */
    float scale[LP_W4_MANY_ROWS]; /* of the tokens of that tile */
};

/* A tile of h that is still to be rounded: FP32 [token][128 columns], rows so far apart that no two lanes of a warp
 * write to the same bank. */
constexpr int W4_MANY_PITCH = 132;
constexpr int W4_MANY_TURNED = 64; /* tokens of an output tile that a warp turns around at once: 32 rows, BF16 */

/* Behind the header a tile of h, and what it is rounded from; output tiles take the same place. */
template <int KIND> struct w4_many_layout : w4_stage<KIND, LP_W4_MANY_ROWS, 1> {
    static constexpr int UNIT = 8; /* of tokens */
    using S = w4_stage<KIND, LP_W4_MANY_ROWS, 1>;
    static constexpr int STAGED = (static_cast<int>(sizeof(w4_many_header)) + 1023) / 1024 * 1024;
    static constexpr int EXACT = STAGED + w4_block_bytes(S::ELEMENT, LP_W4_MANY_ROWS);
    static constexpr int RING = EXACT + (KIND == W4_NV ? 0 : LP_W4_MANY_ROWS * W4_MANY_PITCH * 4);
    static_assert(RING % 1024 == 0 && RING - STAGED >= W4_MANY_WARPS * W4_MANY_TURNED * 64, "alignment, and room");
};

/*
 * A warp has 32 rows of a tile in two parts of 16, the first operands of two products; lane 4g + q rows g and g + 8 of
 * each. In the first projection those are gate and up of column 16 * warp + 8 * part + g of h.
 */
__device__ __forceinline__ int w4_many_row(int part)
{
    return static_cast<int>(threadIdx.x) / 32 * 32 + 16 * part + static_cast<int>(threadIdx.x) % 32 / 4;
}

#endif
