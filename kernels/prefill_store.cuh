/* SPDX-License-Identifier: Apache-2.0 */
/* Eight columns of a token to their places in its row, from which the first projection gathers. */
#ifndef LOADPLAN_PREFILL_STORE_CUH
#define LOADPLAN_PREFILL_STORE_CUH

#include "kernels/prefill_operand.cuh"
#include "kernels/prefill_ptx.cuh"

#include <cuda_fp16.h>

__device__ __forceinline__ bool prefill_takes_e4m3(int kind)
{
    return kind != LP_PREFILL_BF16 && kind != LP_PREFILL_NV;
}

/* Two E4M3 codes times a scale, in BF16. */
__device__ __forceinline__ uint32_t prefill_two_codes(uint32_t codes, float scale)
{
    uint32_t halves;
    const uint16_t two = static_cast<uint16_t>(codes);
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"(two));
    const float2 value = __half22float2(reinterpret_cast<const __half2 &>(halves));
    return prefill::bf16_pair(value.x * scale, value.y * scale);
}

/* Four E4M3 values written as BF16. */
__device__ __forceinline__ uint2 prefill_widened(uint32_t codes)
{
    uint32_t out[2];
    for (int i = 0; i < 2; i++) {
        uint32_t halves;
        const uint16_t two = static_cast<uint16_t>(codes >> (16 * i));
        asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"(two));
        const __half2 value = reinterpret_cast<const __half2 &>(halves);
        out[i] = prefill::bf16_pair(__low2float(value), __high2float(value));
    }
    return make_uint2(out[0], out[1]);
}

/* Place of column k of a row, in columns. */
__device__ __forceinline__ int64_t prefill_column(int kind, int64_t k)
{
    return k / 128 * 128 + prefill_place(kind, static_cast<int>(k % 128));
}

/* Columns k .. k + 7 of a row, k a multiple of 8, of BF16. */
__device__ __forceinline__ void prefill_store_bf16(int kind, char *row, int64_t k, uint4 x)
{
    if (kind != LP_PREFILL_NV && kind != LP_PREFILL_MX_WIDE) {
        *reinterpret_cast<uint4 *>(row + 2 * k) = x;
        return;
    }
    const uint32_t low[2] = {x.x, x.y}, high[2] = {x.z, x.w};
    for (int t = 0; t < 4; t++) /* columns t and t + 4 are neighbours */
        *reinterpret_cast<uint32_t *>(row + 2 * prefill_column(kind, k + t)) =
            __byte_perm(low[t / 2], high[t / 2], t % 2 ? 0x7632 : 0x5410);
}

/* The same of E4M3. */
__device__ __forceinline__ void prefill_store_codes(int kind, char *row, int64_t k, uint2 codes)
{
    if (kind == LP_PREFILL_FP8) {
        *reinterpret_cast<uint2 *>(row + k) = codes;
    } else if (kind == LP_PREFILL_MX) {
        *reinterpret_cast<uint32_t *>(row + prefill_column(kind, k)) = codes.x;
        *reinterpret_cast<uint32_t *>(row + prefill_column(kind, k + 4)) = codes.y;
    } else {
        const uint2 low = prefill_widened(codes.x), high = prefill_widened(codes.y);
        prefill_store_bf16(kind, row, k, make_uint4(low.x, low.y, high.x, high.y));
    }
}

#endif
