/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tokens as the second operand of products whose first one, the weights, stays in registers.
 *
 * A thread of a warp decodes 16 bytes of a weight row at once: 32 codes of K, those 32 * (lane % 4) .. of a block of
 * 128. So K is permuted inside each block: the matrix unit meets the codes in the order in which threads hold them, and
 * tokens are stored in that order. Blocks of a chunk of `width` tokens follow one another; a block is `width` rows of
 * 128 bytes (E4M3) or two such halves (BF16), with the 128-byte swizzle of the matrix unit.
 */
#ifndef LOADPLAN_W4_OPERAND_CUH
#define LOADPLAN_W4_OPERAND_CUH

#include <stdint.h>

/* Bytes of one block of 128 columns. `element` is 1 (E4M3) or 2 (BF16), here and below. */
__host__ __device__ constexpr int w4_block_bytes(int element, int width)
{
    return element * width * 128;
}

/* Place of column k (0..127) in the order of the matrix unit. */
__host__ __device__ inline int w4_place(int element, int k)
{
    const int q = k / 32, word = k % 32 / 8, t = k % 8;
    return element == 1 ? 32 * word + 16 * (t / 4) + 4 * q + t % 4
                        : 16 * (2 * word + t % 4 / 2) + 8 * (t % 2) + 2 * q + t / 4;
}

/* Byte of (token n, column k) in a block. */
__host__ __device__ inline int w4_operand_byte(int element, int width, int n, int k)
{
    const int byte = w4_place(element, k) * element, half = byte / 128, in_row = byte % 128;
    return half * width * 128 + n * 128 + ((in_row / 16) ^ (n % 8)) * 16 + in_row % 16;
}

#endif
