/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows of x to the operand of w4_operand.cuh. There 16 bytes hold columns of all four quarters of a block of 128, so
 * four lanes exchange what they have and each writes whole 16 bytes.
 *
 * Sixteen lanes hold a block, lane 4q + w of them columns 32q + 8w .. + 7; lanes with the same w exchange.
 */
#ifndef LOADPLAN_W4_GATHER_CUH
#define LOADPLAN_W4_GATHER_CUH

#include "kernels/w4_operand.cuh"

/* Two words of this lane's, and the same two of the lane that differs from it by `bit` of its number, in the order of
 * lanes. `is_upper`: this lane is the later one. */
__device__ __forceinline__ uint4 w4_join(uint2 own, int bit, bool is_upper, uint2 give)
{
    const uint32_t x = __shfl_xor_sync(~0u, give.x, bit), y = __shfl_xor_sync(~0u, give.y, bit);
    return is_upper ? make_uint4(x, y, own.x, own.y) : make_uint4(own.x, own.y, x, y);
}

/* E4M3: 8 codes of a lane -> 16 of one half (columns 0..3 or 4..7 of each lane's 8). Lanes q and q + 2 get the same. */
__device__ __forceinline__ uint4 w4_turn_codes(uint2 code)
{
    const int q = threadIdx.x % 16 / 4;
    const bool is_odd = q % 2 != 0;
    const uint32_t own = is_odd ? code.y : code.x, got = __shfl_xor_sync(~0u, is_odd ? code.x : code.y, 4);
    const uint2 pair = is_odd ? make_uint2(got, own) : make_uint2(own, got);
    return w4_join(pair, 8, q >= 2, pair);
}

/* Where those go: a byte of the block, for row n. */
__device__ __forceinline__ int w4_turned_code_byte(int n)
{
    const int lane = threadIdx.x % 16, chunk = lane % 4 * 2 + lane / 4 % 2;
    return n * 128 + (chunk ^ n % 8) * 16;
}

/* BF16: 8 values of a lane -> columns q and q + 4 of the 8 of each lane. */
__device__ __forceinline__ uint4 w4_turn_values(uint4 v)
{
    const int q = threadIdx.x % 16 / 4;
    const bool is_odd = q % 2 != 0, is_upper = q >= 2;
    uint32_t p[4]; /* column r, and r + 4 above it */
    p[0] = __byte_perm(v.x, v.z, 0x5410), p[1] = __byte_perm(v.x, v.z, 0x7632);
    p[2] = __byte_perm(v.y, v.w, 0x5410), p[3] = __byte_perm(v.y, v.w, 0x7632);
    /* First pairs of lanes: each keeps the columns r that have its own lowest bit, then pairs of pairs. */
    uint32_t own[2], got[2];
#pragma unroll
    for (int i = 0; i < 2; i++) {
        own[i] = is_odd ? p[2 * i + 1] : p[2 * i];
        got[i] = __shfl_xor_sync(~0u, is_odd ? p[2 * i] : p[2 * i + 1], 4);
    }
    uint2 pair[2];
#pragma unroll
    for (int i = 0; i < 2; i++)
        pair[i] = is_odd ? make_uint2(got[i], own[i]) : make_uint2(own[i], got[i]);
    return w4_join(is_upper ? pair[1] : pair[0], 8, is_upper, is_upper ? pair[0] : pair[1]);
}

__device__ __forceinline__ int w4_turned_value_byte(int width, int n)
{
    const int lane = threadIdx.x % 16, w = lane % 4, q = lane / 4;
    return w / 2 * width * 128 + n * 128 + ((w % 2 * 4 + q) ^ n % 8) * 16;
}

#endif
