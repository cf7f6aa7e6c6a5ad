/* SPDX-License-Identifier: Apache-2.0 */
/* The host's part of a call of 4-bit weights: the launches of routing and of a variant of the projections. */
#ifndef LOADPLAN_W4_LAUNCH_CUH
#define LOADPLAN_W4_LAUNCH_CUH

#include "kernels/moe_launch.cuh"
#include "kernels/moe_route_job.cuh"
#include "kernels/w4_block.cuh"

inline w4_projection w4_projection_of(const lp_moe_call *call, int which, const lp_w4_areas &areas)
{
    const lp_megamoe_shape &s = *call->shape;
    const lp_megamoe_tensor *const tensor = call->weights->tensor + (which == 0 ? LP_MOE_L1_WEIGHT : LP_MOE_L2_WEIGHT);
    w4_projection p = {};
    p.weight = static_cast<const char *>(tensor[0].data);
    p.scale = static_cast<const char *>(tensor[1].data);
    p.operand = static_cast<const char *>(which == 0 ? areas.x : areas.h);
    p.operand_scale = which == 0 ? areas.x_scale : areas.h_scale;
    p.tiles = static_cast<int>((which == 0 ? 2 * s.intermediate : s.hidden) / W4_ROWS);
    p.steps = static_cast<int>((which == 0 ? s.hidden : s.intermediate) / 128);
    return p;
}

inline lp_moe_route_job w4_route_job(const lp_moe_call *call, const lp_w4_areas &areas, int kind, int most, int unit,
                                     int even)
{
    const lp_megamoe_shape &s = *call->shape;
    lp_moe_route_job job = moe_route_job_of(call, areas.routes, unit, most);
    const int64_t chunks = lp_moe_chunks_cap(s.tokens_bound * s.top_k, s.experts, even > 0 ? even : most);
    job.even_rows = even;
    job.sync_words = static_cast<int32_t>(LP_MOE_START_WORDS + 1 + chunks);
    job.gather = w4_gather_of(kind);
    job.rows = areas.x, job.row_scale = areas.x_scale;
    return job;
}

typedef void (*w4_kernel)(w4_arguments);

/* even: lp_moe_route_job's even_rows. start_bytes: shared memory that is free while a block routes; 0: it does not. */
template <typename L>
lp_status w4_launch(const lp_moe_call *call, const lp_w4_areas &areas, w4_kernel kernel, int threads, int even,
                    int64_t start_bytes, lp_error *err)
{
    constexpr int MOST_BYTES = 232448; /* a block's most on this GPU */
    const lp_megamoe_shape &s = *call->shape;
    int blocks;
    LP_TRY(moe_device_blocks(&blocks, err));
    w4_arguments p = {};
    p.start = moe_start_of(w4_route_job(call, areas, L::KIND, L::MOST, L::UNIT, even), start_bytes);
    LP_TRY(moe_begin(p.start, call->stream, err));
    p.projection[0] = w4_projection_of(call, 0, areas);
    p.projection[1] = w4_projection_of(call, 1, areas);
    p.routes = areas.routes;
    p.h = static_cast<char *>(areas.h), p.h_scale = areas.h_scale;
    p.zero = static_cast<const char *>(areas.zero), p.out = areas.out;
    p.l1_alpha = call->weights->l1_alpha, p.l2_alpha = call->weights->l2_alpha;
    p.l2_activation_scale = call->weights->l2_activation_scale;
    p.l1_alpha_columns = call->weights->l1_alpha_columns;
    p.hidden = static_cast<int>(s.hidden), p.experts = static_cast<int>(s.experts);
    p.even_rows = even;
    p.stages = min((MOST_BYTES - L::RING) / L::STAGE, static_cast<int>(W4_MOST_STAGES));
    p.first_tiles = static_cast<int>(min(static_cast<int64_t>(blocks), s.experts * p.projection[0].tiles));
    p.activation = s.activation, p.alpha = s.activation_alpha, p.beta = s.activation_beta, p.limit = s.activation_limit;
    if (call->sink != nullptr)
        p.sink = *call->sink;
    p.ticket = areas.routes.sync + LP_MOE_START_WORDS, p.ready = p.ticket + 1;
    const int bytes = L::RING + p.stages * L::STAGE;
    cudaError_t code = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    if (code != cudaSuccess)
        return moe_launched(code, "the projections", err);
    const moe_launch launch(blocks, threads, static_cast<size_t>(bytes), call->stream, true);
    return moe_launched(cudaLaunchKernelEx(&launch.config, kernel, p), "the projections", err);
}

#endif
