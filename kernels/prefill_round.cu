/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tokens as the first projection gathers them: each row once, rounded to E4M3 where the format says so, in the order of
 * K that the weights have. Eight lanes hold 128 columns. A token that several experts take is read by each of them.
 */
#include "kernels/moe_launch.cuh"
#include "kernels/moe_quantise.cuh"
#include "kernels/prefill.h"
#include "kernels/prefill_store.cuh"

namespace
{

constexpr int THREADS = 256, COLUMNS = MOE_QUANTISE_COLUMNS, BLOCK = 128; /* columns of a thread, of a scale */

/* Sixteen columns of MXFP8 tokens, in BF16: codes times powers of two for 32 columns, which two lanes hold. */
struct round_pieces {
    uint4 half[2];
};

__device__ __forceinline__ round_pieces rounded_mx(const lp_prefill_round_job &job, int64_t at)
{
    round_pieces out;
    if (job.x_dtype != LP_BF16) {
        const uint4 codes = __ldcs(reinterpret_cast<const uint4 *>(static_cast<const char *>(job.x) + at));
        const float scale = lp_ue8m0_value(__ldg(reinterpret_cast<const uint8_t *>(job.x_scale) + at / 32));
        out.half[0] = e4m3_values(make_uint2(codes.x, codes.y), scale);
        out.half[1] = e4m3_values(make_uint2(codes.z, codes.w), scale);
        return out;
    }
    const moe_values x = moe_load_bf16(job.x, at);
    const uint32_t code = moe_mx_scale(x);
    uint32_t pair[8];
    for (int i = 0; i < 8; i++)
        pair[i] = e4m3_rounded(x.v[2 * i], x.v[2 * i + 1], code);
    out.half[0] = make_uint4(pair[0], pair[1], pair[2], pair[3]);
    out.half[1] = make_uint4(pair[4], pair[5], pair[6], pair[7]);
    return out;
}

/* Sixteen columns of a token, from k on, and their scale to all of its routes. */
__device__ __forceinline__ void hand_out(const lp_prefill_round_job &job, int64_t token, int64_t k, uint4 codes,
                                         float scale)
{
    const int32_t *const rows = job.route_row + token * job.top_k;
#pragma unroll 4
    for (int j = 0; j < static_cast<int>(job.top_k); j++) {
        const int32_t row = rows[j];
        if (row < 0)
            continue;
        *reinterpret_cast<uint4 *>(static_cast<char *>(job.to) + prefill_swizzled_byte(row, k, job.hidden)) = codes;
        if (k % BLOCK == 0)
            job.to_scale[prefill_scale_index(row, k / BLOCK, job.hidden / BLOCK)] = scale;
    }
}

/* A warp does 512 columns of a token at a time: H is a multiple of 256, and eight lanes are all in or all out. */
__global__ void __launch_bounds__(THREADS) round_tokens(const __grid_constant__ lp_prefill_round_job job)
{
    const int kind = job.kind;
    bool waits = job.route_row != nullptr && !job.late;
    if (job.late)
        moe_wait_for_inputs();
    const int64_t tokens = *job.tokens < job.max_tokens ? *job.tokens : job.max_tokens;
    const int64_t pieces = job.hidden / COLUMNS, all = tokens * pieces;
    moe_let_next_start();
    for (int64_t i = blockIdx.x * static_cast<int64_t>(THREADS) + threadIdx.x; i < (all + 31) / 32 * 32;
         i += static_cast<int64_t>(gridDim.x) * THREADS) {
        const int64_t at = (i < all ? i : 0) * COLUMNS, k = at % job.hidden;
        char *const row = static_cast<char *>(job.to) + at / job.hidden * job.hidden * prefill_element(kind);
        if (kind == LP_PREFILL_NV) {
            const uint4 *const from = reinterpret_cast<const uint4 *>(static_cast<const uint16_t *>(job.x) + at);
            if (i < all)
                for (int half = 0; half < 2; half++)
                    prefill_store_bf16(kind, row, k + 8 * half, __ldg(from + half));
            continue;
        }
        if (kind == LP_PREFILL_CODES) {
            const round_pieces of = rounded_mx(job, at);
            if (i < all)
                for (int half = 0; half < 2; half++)
                    prefill_store_bf16(kind, row, k + 8 * half, of.half[half]);
            continue;
        }
        uint4 codes;
        float scale;
        if (job.x_dtype == LP_BF16) {
            codes = moe_quantise(moe_load_bf16(job.x, at), &scale);
        } else {
            codes = __ldcs(reinterpret_cast<const uint4 *>(static_cast<const char *>(job.x) + at));
            scale = __ldg(job.x_scale + at / BLOCK);
        }
        if (waits) {
            moe_wait_for_inputs();
            waits = false;
        }
        if (i >= all)
            continue;
        if (job.route_row != nullptr) {
            hand_out(job, at / job.hidden, k, codes, scale);
            continue;
        }
        if (at % BLOCK == 0)
            job.to_scale[at / BLOCK] = scale;
        prefill_store_codes(kind, row, k, make_uint2(codes.x, codes.y));
        prefill_store_codes(kind, row, k + 8, make_uint2(codes.z, codes.w));
    }
    if (waits) /* the end of this launch tells the next one that routing has ended too */
        moe_wait_for_inputs();
}

} // namespace

extern "C" lp_status lp_prefill_round(const lp_prefill_round_job *job, void *stream, lp_error *err)
{
    const moe_launch launch(132 * 8, THREADS, 0, stream, job->route_row != nullptr);
    return moe_launched(cudaLaunchKernelEx(&launch.config, round_tokens, *job), "the rounding of tokens", err);
}
