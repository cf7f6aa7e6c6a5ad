/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tokens into the rows of their routes, as the operand of the first projection. Eight lanes hold 128 columns of a row,
 * a warp four rows, two warps the eight rows that lie together, so that whole lines are written. A token that several
 * experts take is quantised for each of them anew: the values are the same, and it costs less than another pass.
 */
#include "kernels/moe_launch.cuh"
#include "kernels/prefill.h"
#include "kernels/prefill_operand.cuh"
#include "kernels/prefill_ptx.cuh"

#include <cuda_fp16.h>

namespace
{

constexpr int THREADS = 256, COLUMNS = 16, BLOCK = 128; /* columns of a thread, of a scale */

struct Values {
    float v[COLUMNS];
};

__device__ Values load_bf16(const void *x, int64_t at)
{
    const uint4 *const from = reinterpret_cast<const uint4 *>(static_cast<const uint16_t *>(x) + at);
    const uint4 raw[2] = {__ldg(from), __ldg(from + 1)};
    const uint32_t word[8] = {raw[0].x, raw[0].y, raw[0].z, raw[0].w, raw[1].x, raw[1].y, raw[1].z, raw[1].w};
    Values out;
    for (int i = 0; i < 8; i++) {
        out.v[2 * i] = __uint_as_float(word[i] << 16);
        out.v[2 * i + 1] = __uint_as_float(word[i] & 0xffff0000u);
    }
    return out;
}

/* Codes of 128 columns that eight lanes hold, and their scale max(amax, 1e-10) / 448. */
__device__ uint4 quantise(const Values &x, float *scale)
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

/* Four E4M3 values written as BF16. */
__device__ uint2 widened(uint32_t codes)
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

/* 16 columns of a row from column k on. */
template <int KIND> __device__ void move(const lp_prefill_gather_job &job, int64_t row, int64_t token, int64_t k)
{
    const int64_t at = token * job.hidden + k;
    char *const to = static_cast<char *>(job.to);
    if constexpr (KIND == LP_PREFILL_BF16) {
        const uint4 *const from = reinterpret_cast<const uint4 *>(static_cast<const uint16_t *>(job.x) + at);
        for (int i = 0; i < 2; i++)
            *reinterpret_cast<uint4 *>(to + prefill_operand_byte(row, 2 * k + 16 * i, 2 * job.hidden)) =
                __ldg(from + i);
        return;
    }
    uint4 codes;
    float scale;
    if (job.x_dtype == LP_BF16)
        codes = quantise(load_bf16(job.x, at), &scale);
    else {
        codes = __ldg(reinterpret_cast<const uint4 *>(static_cast<const char *>(job.x) + at));
        scale = __ldg(job.x_scale + at / BLOCK);
    }
    if (k % BLOCK == 0)
        job.to_scale[prefill_scale_index(row, k / BLOCK, job.hidden / BLOCK)] = scale;
    if constexpr (KIND == LP_PREFILL_FP8) {
        *reinterpret_cast<uint4 *>(to + prefill_operand_byte(row, k, job.hidden)) = codes;
    } else {
        const uint2 a = widened(codes.x), b = widened(codes.y), c = widened(codes.z), d = widened(codes.w);
        *reinterpret_cast<uint4 *>(to + prefill_operand_byte(row, 2 * k, 2 * job.hidden)) =
            make_uint4(a.x, a.y, b.x, b.y);
        *reinterpret_cast<uint4 *>(to + prefill_operand_byte(row, 2 * k + 16, 2 * job.hidden)) =
            make_uint4(c.x, c.y, d.x, d.y);
    }
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

extern "C" lp_status lp_prefill_gather(const lp_prefill_gather_job *job, void *stream, lp_error *err)
{
    switch (job->kind) {
    case LP_PREFILL_FP8:
        return launch<LP_PREFILL_FP8>(*job, stream, err);
    case LP_PREFILL_BF16:
        return launch<LP_PREFILL_BF16>(*job, stream, err);
    case LP_PREFILL_CODES:
        break;
    }
    return launch<LP_PREFILL_CODES>(*job, stream, err);
}
