/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows of x to the rows of their routes, in the order in which products read them (prefill_operand.cuh). What a row
 * holds was made before (prefill_round.cu): here bytes are moved.
 */
#include "kernels/moe_launch.cuh"
#include "kernels/prefill.h"
#include "kernels/prefill_operand.cuh"

namespace
{

constexpr int THREADS = 256, WARPS = THREADS / 32, PIECE = 128, AT_ONCE = 4; /* bytes of a row, pieces on their way */

/* A block moves eight rows that lie together, a warp AT_ONCE pieces of them at a time: lane l has row l % 8, and there
 * the chunks l / 8 and l / 8 + 4 of sixteen bytes of a piece, so that a warp writes whole lines. */
__global__ void __launch_bounds__(THREADS, 4) gather(const __grid_constant__ lp_prefill_gather_job job)
{
    const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
    const int row_bytes = static_cast<int>(job.row_bytes), pieces = row_bytes / PIECE;
    const int blocks = static_cast<int>(job.hidden / 128), choices = static_cast<int>(job.top_k);
    moe_wait_for_inputs();
    moe_let_next_start();
    const int groups = job.start[job.experts] / 8, step = static_cast<int>(gridDim.x);
    int group = static_cast<int>(blockIdx.x), next = group < groups ? job.row_route[group * 8 + lane % 8] : -1;
    for (; group < groups; group += step) {
        const int route = next, row = group * 8 + lane % 8;
        next = group + step < groups ? job.row_route[(group + step) * 8 + lane % 8] : -1;
        if (__all_sync(~0u, route < 0))
            continue;
        const int64_t token = max(route, 0) / choices; /* padding gets any row */
        const char *const from = static_cast<const char *>(job.x) + token * row_bytes + lane / 8 * 16;
        char *const to = static_cast<char *>(job.to) + prefill_operand_byte(row, lane / 8 * 16, row_bytes);
        if (job.x_scale != nullptr)
            for (int block = static_cast<int>(threadIdx.x) / 8; block < blocks; block += THREADS / 8)
                job.to_scale[prefill_scale_index(row, block, blocks)] = __ldg(job.x_scale + token * blocks + block);
        for (int first = warp * AT_ONCE; first < pieces; first += WARPS * AT_ONCE) {
            uint4 low[AT_ONCE], high[AT_ONCE];
#pragma unroll
            for (int p = 0; p < AT_ONCE; p++)
                if (first + p < pieces) {
                    low[p] = __ldg(reinterpret_cast<const uint4 *>(from + (first + p) * PIECE));
                    high[p] = __ldg(reinterpret_cast<const uint4 *>(from + (first + p) * PIECE + 64));
                }
#pragma unroll
            for (int p = 0; p < AT_ONCE; p++)
                if (first + p < pieces) {
                    *reinterpret_cast<uint4 *>(to + (first + p) * PREFILL_PIECE) = low[p];
                    *reinterpret_cast<uint4 *>(to + (first + p) * PREFILL_PIECE + 512) = high[p];
                }
        }
    }
}

} // namespace

extern "C" lp_status lp_prefill_gather(const lp_prefill_gather_job *job, void *stream, lp_error *err)
{
    const moe_launch launch(132 * 8, THREADS, 0, stream, true);
    return moe_launched(cudaLaunchKernelEx(&launch.config, gather, *job), "the gathering of tokens", err);
}
