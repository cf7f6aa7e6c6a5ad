/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The variant of the 4-bit kernel for chunks of up to 128 tokens: its shared memory, and which rows a thread has.
 *
 * Codes are decoded once for all tokens of a chunk. The multiplying warpgroups finish what they multiplied; of the last
 * one a thread feeds weights, one tokens, and a warp rounds and stores h.
 */
#ifndef LOADPLAN_W4_MANY_BLOCK_CUH
#define LOADPLAN_W4_MANY_BLOCK_CUH

#include "kernels/w4_block.cuh"

/* The start of shared memory. */
struct w4_many_header : w4_queue {
    uint64_t staged, stored;      /* a tile of h handed to the warp that stores it, and gone from shared memory */
    float scale[LP_W4_MANY_ROWS]; /* of the tokens of that tile */
};

/* A tile of h that is still to be rounded: FP32 [token][128 columns], rows so far apart that no two lanes of a warp
 * write to the same bank. */
constexpr int W4_MANY_PITCH = 132;
constexpr int W4_MANY_TURNED = 64; /* tokens of an output tile that a warp turns around at once: its rows, BF16 */

/*
 * A warpgroup of NVFP4 has 64 rows of a tile, so that four of them share the matrix unit: while one waits for its
 * products, others decode. With MXFP4 it has two parts of 64 rows, for products need sums of their own beside the
 * totals: registers for those of one part are all that there are.
 *
 * Behind the header lies a tile of h, and what it is rounded from; output tiles take the same place.
 */
template <int KIND> struct w4_many_layout : w4_stage<KIND, LP_W4_MANY_ROWS, 1> {
    static constexpr int UNIT = 8; /* of tokens */
    static constexpr bool ROUTES = false;
    static constexpr int PARTS = KIND == W4_NV ? 1 : 2, WARPS = 16 / PARTS;
    static constexpr int WEIGHT_FEEDER = 32 * WARPS, TOKEN_FEEDER = WEIGHT_FEEDER + 32, STORER = TOKEN_FEEDER + 32;
    static constexpr int THREADS = WEIGHT_FEEDER + 128;
    /* Registers of a multiplying thread and of the others; together no more than at launch, or the kernel hangs. */
    static constexpr int REGISTERS = PARTS == 1 ? 112 : 232, OTHER_REGISTERS = PARTS == 1 ? 32 : 40;
    static constexpr int AT_LAUNCH = 65536 / THREADS / 8 * 8;
    static_assert(32 * WARPS * REGISTERS + 128 * OTHER_REGISTERS <= THREADS * AT_LAUNCH, "registers");
    using S = w4_stage<KIND, LP_W4_MANY_ROWS, 1>;
    static constexpr int STAGED = (static_cast<int>(sizeof(w4_many_header)) + 1023) / 1024 * 1024;
    static constexpr int EXACT = STAGED + w4_block_bytes(S::ELEMENT, LP_W4_MANY_ROWS);
    static constexpr int RING = EXACT + (KIND == W4_NV ? 0 : LP_W4_MANY_ROWS * W4_MANY_PITCH * 4);
    static_assert(RING % 1024 == 0 && RING - STAGED >= W4_ROWS * W4_MANY_TURNED * 2, "alignment, and room");
};

/*
 * A warp has 16 rows of each part, neighbours, and lane 4g + q rows g and g + 8 of those: the first operand of a
 * product. In the first projection those are gate and up of a column of h.
 */
template <int KIND> __device__ __forceinline__ int w4_many_row(int part)
{
    return (static_cast<int>(threadIdx.x) / 32 * w4_many_layout<KIND>::PARTS + part) * 16 +
           static_cast<int>(threadIdx.x) % 32 / 4;
}

/* A thread's totals of a tile: of row g + 8r of its part and token 8j + 2q + c, [part][4j + 2r + c]; of narrow tiles
 * the first. In the same registers for all widths, so that the end of a tile is the same code for all of them: code
 * that a block has not run yet comes from memory. */
template <int KIND> using w4_many_totals = float[w4_many_layout<KIND>::PARTS][LP_W4_MANY_ROWS / 2];

#endif
