/* SPDX-License-Identifier: Apache-2.0 */
/* Eight columns of a token to their places in its row, from which the first projection gathers. */
#ifndef LOADPLAN_PREFILL_STORE_CUH
#define LOADPLAN_PREFILL_STORE_CUH

#include "kernels/prefill_operand.cuh"
#include "kernels/prefill_ptx.cuh"

__device__ __forceinline__ bool prefill_takes_e4m3(int kind)
{
    return kind != LP_PREFILL_BF16 && kind != LP_PREFILL_NV;
}

/* Place of column k of a row, in columns. */
__device__ __forceinline__ int64_t prefill_column(int kind, int64_t k)
{
    return k / 128 * 128 + prefill_place(kind, static_cast<int>(k % 128));
}

/* Columns k .. k + 7 of a row, k a multiple of 8, of BF16. */
__device__ __forceinline__ void prefill_store_bf16(int kind, char *row, int64_t k, uint4 x)
{
    if (kind == LP_PREFILL_CODES || kind == LP_PREFILL_FP8_WIDE) { /* every other column */
        uint2 *const to = reinterpret_cast<uint2 *>(row + 2 * prefill_column(kind, k));
        to[0] = e4m3_even(x), to[2] = e4m3_odd(x);
        return;
    }
    if (kind != LP_PREFILL_NV && kind != LP_PREFILL_MX_WIDE) {
        *reinterpret_cast<uint4 *>(row + 2 * k) = x;
        return;
    }
    const uint32_t low[2] = {x.x, x.y}, high[2] = {x.z, x.w};
    for (int t = 0; t < 4; t++) /* columns t and t + 4 are neighbours */
        *reinterpret_cast<uint32_t *>(row + 2 * prefill_column(kind, k + t)) =
            __byte_perm(low[t / 2], high[t / 2], t % 2 ? 0x7632 : 0x5410);
}

/* The same of E4M3, whose scales are kept apart. */
__device__ __forceinline__ void prefill_store_codes(int kind, char *row, int64_t k, uint2 codes)
{
    if (kind == LP_PREFILL_FP8) {
        *reinterpret_cast<uint2 *>(row + k) = codes;
    } else if (kind == LP_PREFILL_MX) {
        *reinterpret_cast<uint32_t *>(row + prefill_column(kind, k)) = codes.x;
        *reinterpret_cast<uint32_t *>(row + prefill_column(kind, k + 4)) = codes.y;
    } else {
        prefill_store_bf16(kind, row, k, e4m3_values(codes, 1.0f));
    }
}

#endif
