/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tokens as both operands of a product find them in shared memory without a swizzle: blocks of 128 rows; in a block the
 * pieces of 128 bytes of K one after the other, 16 KiB each; in a piece eight rows after eight rows, 1 KiB each; there
 * the eight 16-byte chunks of K, each for eight rows. A tile of `rows` rows is the beginning of a piece, so that one
 * copy brings it. Scales of a block of 128 columns lie likewise: [row / 128][column / 128][row % 128].
 */
#ifndef LOADPLAN_PREFILL_OPERAND_CUH
#define LOADPLAN_PREFILL_OPERAND_CUH

#include "kernels/e4m3_codes.cuh"
#include "kernels/prefill.h"
#include "kernels/w4_operand.cuh"

constexpr int PREFILL_ROWS = 128, PREFILL_PIECE = PREFILL_ROWS * 128;

/* Byte of byte `at` of a row that has `row_bytes` bytes. */
__host__ __device__ inline int64_t prefill_operand_byte(int64_t row, int64_t at, int64_t row_bytes)
{
    const int64_t in_block = row % PREFILL_ROWS;
    return row / PREFILL_ROWS * PREFILL_ROWS * row_bytes + at / 128 * PREFILL_PIECE + in_block / 8 * 1024 +
           at % 128 / 16 * 128 + in_block % 8 * 16 + at % 16;
}

/* The same where rows follow each other, prefill_swizzles. */
__host__ __device__ inline int64_t prefill_swizzled_byte(int64_t row, int64_t at, int64_t row_bytes)
{
    const int64_t in_block = row % PREFILL_ROWS;
    return row / PREFILL_ROWS * PREFILL_ROWS * row_bytes + at / 128 * PREFILL_PIECE + in_block * 128 +
           ((at % 128 / 16) ^ (in_block % 8)) * 16 + at % 16;
}

/* Added to an lp_prefill_kind in the kernels: weights are decoded ahead of the products, prefill_ahead.cuh. */
constexpr int PREFILL_AHEAD = 8;
__host__ __device__ constexpr bool prefill_is_ahead(int kind)
{
    return (kind & PREFILL_AHEAD) != 0;
}
__host__ __device__ constexpr bool prefill_is_mx(int kind) /* products of E4M3 tokens and E5M2 weights */
{
    return (kind & ~PREFILL_AHEAD) == LP_PREFILL_MX;
}
__host__ __device__ constexpr bool prefill_is_nv(int kind)
{
    return (kind & ~PREFILL_AHEAD) == LP_PREFILL_NV;
}
__host__ __device__ constexpr bool prefill_is_codes(int kind) /* of BF16 values that are codes times powers of two */
{
    return (kind & ~PREFILL_AHEAD) == LP_PREFILL_CODES;
}
__host__ __device__ constexpr bool prefill_is_fp8(int kind) /* products of E4M3 tokens */
{
    return kind == LP_PREFILL_FP8 || prefill_is_mx(kind);
}
/* Whether rows of a piece follow each other instead, 128 bytes each, where sixteen bytes are exchanged by the row's
 * number: then a row can be written by itself, line by line. */
__host__ __device__ constexpr bool prefill_swizzles(int kind)
{
    return kind == LP_PREFILL_FP8;
}
/* Whether the launch that rounds rows also hands them out to their routes. */
__host__ __device__ constexpr bool prefill_hands_out(int kind)
{
    return prefill_swizzles(kind);
}
/* Whether h is stored by warps of its own. */
__host__ __device__ constexpr bool prefill_hands_over(int kind)
{
    return prefill_swizzles(kind);
}
__host__ __device__ constexpr int prefill_element(int kind) /* bytes of a token's value */
{
    return prefill_is_fp8(kind) ? 1 : 2;
}

/*
 * Place of column k of a block of 128. Weights that are decoded keep the order of the path of few tokens, so that both
 * add the same products in the same order. Of a multiple of 8 and of what is below it, places add up.
 */
__host__ __device__ inline int prefill_place(int kind, int k)
{
    return prefill_is_mx(kind)                                     ? w4_place(1, k)
           : prefill_is_nv(kind) || kind == LP_PREFILL_MX_WIDE     ? w4_place(2, k)
           : prefill_is_codes(kind) || kind == LP_PREFILL_FP8_WIDE ? e4m3_place(k)
                                                                   : k;
}

/* Sums of a kind are in units of this: E2M1 weights decoded to BF16 are 2^-8 of their value. */
__host__ __device__ constexpr float prefill_unit(int kind)
{
    return prefill_is_nv(kind) || kind == LP_PREFILL_MX_WIDE ? 256.0f : 1.0f;
}

__host__ __device__ inline int64_t prefill_scale_index(int64_t row, int64_t block, int64_t blocks)
{
    return (row / PREFILL_ROWS * blocks + block) * PREFILL_ROWS + row % PREFILL_ROWS;
}

#endif
