/* SPDX-License-Identifier: Apache-2.0 */
/* The routes of shared experts: every token to the one expert there is, with weight 1. */
#include "kernels/megamoe_private.h"
#include "kernels/moe_launch.cuh"

namespace
{

constexpr int THREADS = 256;

__global__ void __launch_bounds__(THREADS) fill_routes(int32_t *ids, float *weights, int tokens)
{
    const int token = static_cast<int>(blockIdx.x) * THREADS + static_cast<int>(threadIdx.x);
    if (token >= tokens)
        return;
    ids[token] = 0;
    weights[token] = 1.0f;
}

} // namespace

extern "C" lp_status lp_moe_fill_shared_routes(int32_t *ids, float *weights, int64_t tokens, void *stream,
                                               lp_error *err)
{
    const moe_launch launch(static_cast<int>((tokens + THREADS - 1) / THREADS), THREADS, 0, stream, false);
    return moe_launched(cudaLaunchKernelEx(&launch.config, fill_routes, ids, weights, static_cast<int>(tokens)),
                        "the routing to shared experts", err);
}
