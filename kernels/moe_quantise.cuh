/* SPDX-License-Identifier: Apache-2.0 */
/* BF16 tokens to E4M3: a scale for each token and 128 columns, or a power of two for 32. Eight lanes hold 128 columns,
 * 16 each. */
#ifndef LOADPLAN_MOE_QUANTISE_CUH
#define LOADPLAN_MOE_QUANTISE_CUH

#include "kernels/e4m3_codes.cuh"
#include "kernels/prefill_ptx.cuh"

constexpr int MOE_QUANTISE_COLUMNS = 16; /* of a thread */

struct moe_values {
    float v[MOE_QUANTISE_COLUMNS];
};

__device__ __forceinline__ moe_values moe_load_bf16(const void *x, int64_t at)
{
    const uint4 *const from = reinterpret_cast<const uint4 *>(static_cast<const uint16_t *>(x) + at);
    const uint4 raw[2] = {__ldg(from), __ldg(from + 1)};
    const uint32_t word[8] = {raw[0].x, raw[0].y, raw[0].z, raw[0].w, raw[1].x, raw[1].y, raw[1].z, raw[1].w};
    moe_values out;
    for (int i = 0; i < 8; i++) {
        out.v[2 * i] = __uint_as_float(word[i] << 16);
        out.v[2 * i + 1] = __uint_as_float(word[i] & 0xffff0000u);
    }
    return out;
}

/* Codes of 128 columns that eight lanes hold, and their scale max(amax, 1e-10) / 448. */
__device__ __forceinline__ uint4 moe_quantise(const moe_values &x, float *scale)
{
    float most = 1e-10f;
    for (float v : x.v)
        most = fmaxf(most, fabsf(v));
    for (int d = 1; d < 8; d *= 2)
        most = fmaxf(most, __shfl_xor_sync(~0u, most, d));
    *scale = __fdiv_rn(most, 448.0f);
    uint32_t word[4];
    for (int i = 0; i < 4; i++) {
        const uint32_t low = prefill::e4m3_pair(__fdiv_rn(x.v[4 * i], *scale), __fdiv_rn(x.v[4 * i + 1], *scale));
        const uint32_t high = prefill::e4m3_pair(__fdiv_rn(x.v[4 * i + 2], *scale), __fdiv_rn(x.v[4 * i + 3], *scale));
        word[i] = low | high << 16;
    }
    return make_uint4(word[0], word[1], word[2], word[3]);
}

/* ---- MXFP8 ---- */

/* UE8M0 code for the 32 columns that two lanes hold. */
__device__ __forceinline__ uint32_t moe_mx_scale(const moe_values &x)
{
    float most = E4M3_LEAST_X;
    for (float v : x.v)
        most = fmaxf(most, fabsf(v));
    return e4m3_scale_above(fmaxf(most, __shfl_xor_sync(~0u, most, 1)));
}

/* Codes of 128 columns that eight lanes hold, and the word of their four UE8M0 codes, as bits of *scales. */
__device__ __forceinline__ uint4 moe_quantise_mx(const moe_values &x, float *scales)
{
    const uint32_t code = moe_mx_scale(x);
    uint32_t word[4], four = code << threadIdx.x % 8 / 2 * 8;
    for (int d = 2; d < 8; d *= 2)
        four |= __shfl_xor_sync(~0u, four, d);
    *scales = __uint_as_float(four);
    for (int i = 0; i < 4; i++)
        word[i] = e4m3_codes_of(x.v[4 * i], x.v[4 * i + 1], code) | e4m3_codes_of(x.v[4 * i + 2], x.v[4 * i + 3], code)
                                                                        << 16;
    return make_uint4(word[0], word[1], word[2], word[3]);
}

#endif
