/* SPDX-License-Identifier: Apache-2.0 */
/* Tokens of MXFP8, as BF16 values, as the second operand of products whose first one, the weights, is in registers: the
 * order of f8_operand.cuh, with the columns of each 16 in that of e4m3_place. */
#ifndef LOADPLAN_M8_OPERAND_CUH
#define LOADPLAN_M8_OPERAND_CUH

#include "kernels/e4m3_codes.cuh"
#include "kernels/f8_operand.cuh"

/* Eight columns of a token that a lane has, the next lane the eight behind them: the even ones of both for the lane
 * with an even number, the odd ones for the other, as they lie in the chunk that m8_operand_byte finds for the first.
 */
__device__ __forceinline__ uint4 m8_turn_values(uint4 v)
{
    const bool is_odd = threadIdx.x % 2 != 0;
    const uint2 even = e4m3_even(v), odd = e4m3_odd(v), own = is_odd ? odd : even, give = is_odd ? even : odd;
    const uint32_t x = __shfl_xor_sync(~0u, give.x, 1), y = __shfl_xor_sync(~0u, give.y, 1);
    return is_odd ? make_uint4(x, y, own.x, own.y) : make_uint4(own.x, own.y, x, y);
}

/* Byte of column k of token n of a chunk, from the chunk's start. */
__host__ __device__ inline int64_t m8_operand_byte(int width, int n, int64_t k)
{
    return f8_operand_byte(width, n, 2 * (k / 128 * 128 + e4m3_place(static_cast<int>(k % 128))));
}

#endif
