/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tokens as the second operand of products whose first one, the weights, is in shared memory too. A row of K values is
 * cut into pieces of 128 bytes; the pieces of a chunk of `width` tokens follow one another, each `width` rows of 128
 * bytes in the 128-byte swizzle of the matrix unit. Columns keep their order.
 */
#ifndef LOADPLAN_F8_OPERAND_CUH
#define LOADPLAN_F8_OPERAND_CUH

#include <stdint.h>

constexpr int F8_PIECE = 128; /* bytes of a row */

/* Byte `at` of the row of token n of a chunk, from the chunk's start. */
__host__ __device__ inline int64_t f8_operand_byte(int width, int n, int64_t at)
{
    const int in_piece = static_cast<int>(at % F8_PIECE);
    return at / F8_PIECE * F8_PIECE * width + n * F8_PIECE + ((in_piece / 16) ^ (n % 8)) * 16 + in_piece % 16;
}

#endif
