/* SPDX-License-Identifier: Apache-2.0 */
/* Combination: the BF16 rows of a token's routes, added in FP32 in ascending order of choice, then that of the shared
 * experts, rounded to BF16. */
#include "kernels/megamoe_private.h"
#include "kernels/moe_launch.cuh"

#include <cuda_bf16.h>

namespace
{

/* Small blocks, which find room beside the blocks of the projections and wait there for their end. */
constexpr int THREADS = 64, COLUMNS = 8, WARP_COLUMNS = 32 * COLUMNS, MOST_BLOCKS = 132 * 16;
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

/* Where a token's rows are: lane j has choice j's row, -1 if it is masked, and its weight. */
struct Choices {
    int row;
    float weight;
    __device__ Choices() : row(-1), weight(0.0f) {}
    __device__ Choices(const lp_moe_combine_job &job, int token, bool is_token) : row(-1), weight(0.0f)
    {
        const int lane = static_cast<int>(threadIdx.x) % 32;
        if (!is_token || lane >= static_cast<int>(job.top_k))
            return;
        const int64_t route = static_cast<int64_t>(token) * job.top_k + lane;
        row = job.route_row[route];
        if (row >= 0) /* a masked one adds 0, whatever was given */
            weight = job.topk_weight != nullptr ? job.topk_weight[route] : 1.0f;
    }
};

/*
 * A warp does WARP_COLUMNS columns of one token at a time, and knows the rows of the next one when it starts.
 *
 * Before its inputs are there it walks through this once without any row: a kernel that runs once reads its code from
 * memory, and this way it reads most of it while it has to wait.
 */
__global__ void __launch_bounds__(THREADS, 16) combine(const lp_moe_combine_job job)
{
    const int choices = static_cast<int>(job.top_k), lane = static_cast<int>(threadIdx.x) % 32;
    const int pieces = static_cast<int>(job.hidden / WARP_COLUMNS); /* H is a multiple of 256 */
    const uint4 *const rows = static_cast<const uint4 *>(job.rows);
    const int64_t row_pieces = job.hidden / COLUMNS;
    const int tokens = max(0, min(*job.tokens, static_cast<int>(job.max_tokens))); /* given by the caller */
    const int warps = static_cast<int>(gridDim.x) * (THREADS / 32);
    int task = static_cast<int>(blockIdx.x) * (THREADS / 32) + static_cast<int>(threadIdx.x) / 32;
    int count = 0; /* tasks of all warps; 0 until the inputs are there */
    Choices mine;
#pragma unroll 1
    do {
        const int token = task / pieces, at = task % pieces * 32 + lane, next = task + warps;
        const Choices following(job, next / pieces, next < count);
        float sum[COLUMNS] = {};
#pragma unroll 1
        for (int j = 0; j < choices; j += AHEAD) {
            uint4 value[AHEAD];
#pragma unroll
            for (int i = 0; i < AHEAD; i++) {
                const int row = __shfl_sync(~0u, mine.row, j + i);
                value[i] = make_uint4(0, 0, 0, 0);
                if (j + i < choices && row >= 0)
                    value[i] = __ldcs(rows + row * row_pieces + at);
            }
#pragma unroll
            for (int i = 0; i < AHEAD; i++) {
                const float weight = __shfl_sync(~0u, mine.weight, j + i);
                if (j + i < choices)
                    add(sum, value[i], weight);
            }
        }
        if (job.shared_rows != nullptr && count > 0)
            add(sum, __ldcs(static_cast<const uint4 *>(job.shared_rows) + token * row_pieces + at), 1.0f);
        if (count == 0) {
            moe_wait_for_inputs();
            count = tokens * pieces;
            mine = Choices(job, token, task < count);
            continue;
        }
        __stcs(static_cast<uint4 *>(job.y) + token * row_pieces + at, rounded(sum));
        mine = following;
        task = next;
    } while (task < count);
}

} // namespace

extern "C" lp_status lp_moe_combine(const lp_moe_combine_job *job, bool early, void *stream, lp_error *err)
{
    const int64_t tasks = job->max_tokens * (job->hidden / WARP_COLUMNS), warps = THREADS / 32,
                  blocks = (tasks + warps - 1) / warps;
    const moe_launch launch(static_cast<int>(blocks < MOST_BLOCKS ? blocks : MOST_BLOCKS), THREADS, 0, stream, early);
    return moe_launched(cudaLaunchKernelEx(&launch.config, combine, *job), "the combination", err);
}

extern "C" lp_status lp_moe_finish(const lp_moe_call *call, const int32_t *route_row, const void *rows, lp_error *err)
{
    if (call->sink != nullptr)
        return LP_OK;
    const lp_megamoe_shape &s = *call->shape;
    lp_moe_combine_job job = {};
    job.hidden = s.hidden, job.top_k = s.top_k, job.max_tokens = s.tokens_bound;
    job.tokens = call->io->tokens, job.route_row = route_row;
    job.topk_weight = s.format == LP_NVFP4 ? call->io->topk_weight : nullptr;
    job.rows = rows, job.shared_rows = call->shared_rows, job.y = call->io->y;
    return lp_moe_combine(&job, true, call->stream, err);
}
