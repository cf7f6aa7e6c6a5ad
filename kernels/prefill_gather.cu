/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tokens into the rows of their routes, as the operand of the first projection. Eight lanes hold 128 columns of a row,
 * a warp four rows, two warps the eight rows that lie together, so that whole lines are written. A token that several
 * experts take is quantised for each of them anew: the values are the same, and it costs less than another pass.
 */
#include "kernels/moe_launch.cuh"
#include "kernels/moe_quantise.cuh"
#include "kernels/prefill.h"
#include "kernels/prefill_store.cuh"

namespace
{

constexpr int THREADS = 256, COLUMNS = MOE_QUANTISE_COLUMNS, BLOCK = 128; /* columns of a thread, of a scale */

/* A warp does 512 columns of a token at a time. */
__global__ void __launch_bounds__(THREADS) quantise_tokens(const void *x, const int32_t *tokens, int64_t max_tokens,
                                                           int64_t hidden, uint4 *codes, float *scales)
{
    const int64_t count = *tokens < max_tokens ? *tokens : max_tokens, pieces = hidden / COLUMNS, all = count * pieces;
    for (int64_t i = blockIdx.x * static_cast<int64_t>(THREADS) + threadIdx.x; i < (all + 31) / 32 * 32;
         i += static_cast<int64_t>(gridDim.x) * THREADS) {
        const int64_t at = (i < all ? i : 0) * COLUMNS; /* eight lanes are all in or all out */
        float scale;
        const uint4 code = moe_quantise(moe_load_bf16(x, at), &scale);
        if (i >= all)
            continue;
        codes[i] = code;
        if (i % 8 == 0)
            scales[at / BLOCK] = scale;
    }
}

/* 16 columns of a row from column k on. */
template <int KIND> __device__ void move(const lp_prefill_gather_job &job, int64_t row, int64_t token, int64_t k)
{
    const int64_t at = token * job.hidden + k;
    char *const to = static_cast<char *>(job.to);
    if constexpr (KIND == LP_PREFILL_BF16 || KIND == LP_PREFILL_NV) {
        const uint4 *const from = reinterpret_cast<const uint4 *>(static_cast<const uint16_t *>(job.x) + at);
        for (int i = 0; i < 2; i++)
            prefill_store_bf16(KIND, to, row, k + 8 * i, job.hidden, __ldg(from + i));
        return;
    }
    uint4 codes;
    float scale;
    if (job.x_dtype == LP_BF16) {
        codes = moe_quantise(moe_load_bf16(job.x, at), &scale);
    } else {
        codes = __ldg(reinterpret_cast<const uint4 *>(static_cast<const char *>(job.x) + at));
        scale = __ldg(job.x_scale + at / BLOCK);
    }
    if (k % BLOCK == 0)
        job.to_scale[prefill_scale_index(row, k / BLOCK, job.hidden / BLOCK)] = scale;
    if constexpr (KIND == LP_PREFILL_FP8) {
        *reinterpret_cast<uint4 *>(to + prefill_operand_byte(row, k, job.hidden)) = codes;
        return;
    }
    prefill_store_codes(KIND, to, row, k, job.hidden, make_uint2(codes.x, codes.y));
    prefill_store_codes(KIND, to, row, k + 8, job.hidden, make_uint2(codes.z, codes.w));
}

/* A block does four blocks of 128 columns of eight rows at a time. */
template <int KIND> __global__ void __launch_bounds__(THREADS) gather(const __grid_constant__ lp_prefill_gather_job job)
{
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int in_group = warp % 2 * 4 + lane / 8;
    moe_wait_for_inputs();
    moe_let_next_start();
    const int64_t groups = job.start[job.experts] / 8, blocks = job.hidden / BLOCK;
    for (int64_t group = blockIdx.x; group < groups; group += gridDim.x) {
        const int64_t row = group * 8 + in_group;
        const int64_t route = job.row_route[row], token = route / job.top_k;
        if (__all_sync(~0u, route < 0))
            continue;
        for (int64_t block = warp / 2; block < blocks; block += 4)
            move<KIND>(job, row, route < 0 ? 0 : token, block * BLOCK + lane % 8 * COLUMNS);
    }
}

template <int KIND> lp_status launch(const lp_prefill_gather_job &job, void *stream, lp_error *err)
{
    constexpr int64_t MOST = 132 * 8;
    const int64_t groups = job.rows_cap / 8;
    const moe_launch launch(static_cast<int>(groups < MOST ? groups : MOST), THREADS, 0, stream, true);
    return moe_launched(cudaLaunchKernelEx(&launch.config, gather<KIND>, job), "the gathering of tokens", err);
}

} // namespace

extern "C" lp_status lp_prefill_quantise(const void *x, const int32_t *tokens, int64_t max_tokens, int64_t hidden,
                                         void *codes, float *scale, void *stream, lp_error *err)
{
    const moe_launch launch(132 * 8, THREADS, 0, stream, false);
    return moe_launched(cudaLaunchKernelEx(&launch.config, quantise_tokens, x, tokens, max_tokens, hidden,
                                           static_cast<uint4 *>(codes), scale),
                        "the rounding of tokens", err);
}

extern "C" lp_status lp_prefill_gather(const lp_prefill_gather_job *job, void *stream, lp_error *err)
{
    switch (job->kind) {
    case LP_PREFILL_FP8:
        return launch<LP_PREFILL_FP8>(*job, stream, err);
    case LP_PREFILL_BF16:
        return launch<LP_PREFILL_BF16>(*job, stream, err);
    case LP_PREFILL_MX:
        return launch<LP_PREFILL_MX>(*job, stream, err);
    case LP_PREFILL_NV:
        return launch<LP_PREFILL_NV>(*job, stream, err);
    case LP_PREFILL_MX_WIDE:
        return launch<LP_PREFILL_MX_WIDE>(*job, stream, err);
    case LP_PREFILL_FP8_WIDE: /* the same operand */
    case LP_PREFILL_CODES:
        break;
    }
    return launch<LP_PREFILL_CODES>(*job, stream, err);
}
