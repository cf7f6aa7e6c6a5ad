/* SPDX-License-Identifier: Apache-2.0 */
/* Combination: the BF16 rows of a token's routes, added in FP32 in ascending order of choice, rounded to BF16. */
#include "kernels/megamoe_private.h"
#include "kernels/moe_launch.cuh"

#include <cuda_bf16.h>

namespace
{

/* Small blocks, which find room beside the blocks of the projections and wait there for their end. */
constexpr int THREADS = 64, COLUMNS = 8, MOST_CHOICES = 32, MOST_BLOCKS = 132 * 16;
constexpr int AHEAD = 6; /* rows that are fetched at once */

__device__ void add(float (&sum)[COLUMNS], uint4 row, float weight)
{
    const uint32_t pair[4] = {row.x, row.y, row.z, row.w};
    for (int i = 0; i < 4; i++) {
        sum[2 * i] = __fadd_rn(sum[2 * i], __fmul_rn(weight, __uint_as_float(pair[i] << 16)));
        sum[2 * i + 1] = __fadd_rn(sum[2 * i + 1], __fmul_rn(weight, __uint_as_float(pair[i] & 0xffff0000u)));
    }
}

__device__ uint4 rounded(const float (&sum)[COLUMNS])
{
    uint32_t pair[4];
    for (int i = 0; i < 4; i++) {
        const __nv_bfloat162 two = __floats2bfloat162_rn(sum[2 * i], sum[2 * i + 1]);
        pair[i] = reinterpret_cast<const uint32_t &>(two);
    }
    return make_uint4(pair[0], pair[1], pair[2], pair[3]);
}

/* A block does THREADS * COLUMNS columns of one token at a time. */
__global__ void __launch_bounds__(THREADS, 16) combine(const lp_moe_combine_job job)
{
    __shared__ int row[MOST_CHOICES];
    __shared__ float weight[MOST_CHOICES];
    const int choices = static_cast<int>(job.top_k);
    const int pieces = static_cast<int>((job.hidden + THREADS * COLUMNS - 1) / (THREADS * COLUMNS));
    const uint4 *const rows = static_cast<const uint4 *>(job.rows);
    const int64_t row_pieces = job.hidden / COLUMNS;
    const int tokens = max(0, min(*job.tokens, static_cast<int>(job.max_tokens))); /* given by the caller */
    moe_wait_for_inputs();
    for (int task = blockIdx.x; task < tokens * pieces; task += gridDim.x) {
        const int token = task / pieces, at = task % pieces * THREADS + static_cast<int>(threadIdx.x);
        __syncthreads();
        if (static_cast<int>(threadIdx.x) < choices) {
            const int64_t route = static_cast<int64_t>(token) * choices + threadIdx.x;
            row[threadIdx.x] = job.route_row[route];
            weight[threadIdx.x] = job.topk_weight != nullptr ? job.topk_weight[route] : 1.0f;
            if (row[threadIdx.x] < 0)
                weight[threadIdx.x] = 0.0f; /* adds 0, whatever was given */
        }
        __syncthreads();
        if (at >= row_pieces)
            continue;
        float sum[COLUMNS] = {};
        for (int j = 0; j < choices; j += AHEAD) {
            uint4 value[AHEAD];
#pragma unroll
            for (int i = 0; i < AHEAD; i++) {
                value[i] = make_uint4(0, 0, 0, 0);
                if (j + i < choices && row[j + i] >= 0)
                    value[i] = rows[row[j + i] * row_pieces + at];
            }
#pragma unroll
            for (int i = 0; i < AHEAD; i++)
                if (j + i < choices)
                    add(sum, value[i], weight[j + i]);
        }
        static_cast<uint4 *>(job.y)[token * row_pieces + at] = rounded(sum);
    }
}

} // namespace

extern "C" lp_status lp_moe_combine(const lp_moe_combine_job *job, bool early, void *stream, lp_error *err)
{
    const int64_t pieces = (job->hidden + THREADS * COLUMNS - 1) / (THREADS * COLUMNS),
                  tasks = job->max_tokens * pieces;
    const moe_launch launch(static_cast<int>(tasks < MOST_BLOCKS ? tasks : MOST_BLOCKS), THREADS, 0, stream, early);
    return moe_launched(cudaLaunchKernelEx(&launch.config, combine, *job), "the combination", err);
}
