/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Both projections of 4-bit experts for few tokens an expert, in one launch.
 *
 * Few tokens leave the weights as the cost: every byte of them is read once, as fast as memory gives it. Weights are
 * the first operand of the matrix unit, decoded from shared memory into registers, and tokens are its columns, 8 to 32
 * at a time. Blocks stay for the whole launch and draw tiles from one counter; the ring of each is filled with weights
 * before the kernel that routes has finished.
 */
#include "kernels/w4_feed.cuh"
#include "kernels/w4_finish.cuh"
#include "kernels/w4_multiply.cuh"

namespace
{

/* Tokens of a chunk where many routes an expert are expected: as registers and shared memory allow. */
constexpr int many_rows(int kind)
{
    return kind == W4_MX_FP8 ? 64 : 48;
}

__device__ void init_barriers(w4_header &h, int stages)
{
    for (int i = 0; i < stages; i++) {
        hopper::barrier_init(hopper::shared_address(&h.full[i]), 2);
        hopper::barrier_init(hopper::shared_address(&h.empty[i]), W4_MULTIPLIERS / 32);
    }
    for (int i = 0; i < W4_QUEUE; i++) {
        hopper::barrier_init(hopper::shared_address(&h.given[i]), 1);
        hopper::barrier_init(hopper::shared_address(&h.taken[i]), W4_MULTIPLIERS / 32 + W4_FINISHERS / 32 + 1);
    }
    hopper::barrier_init(hopper::shared_address(&h.summed), W4_MULTIPLIERS / 32);
    hopper::barrier_init(hopper::shared_address(&h.dumped), W4_FINISHERS / 32);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    hopper::proxy_fence();
}

template <int KIND, int MOST>
__global__ void __launch_bounds__(W4_THREADS, 1) decode(const __grid_constant__ w4_arguments p)
{
    using L = w4_layout<KIND, MOST>;
    extern __shared__ __align__(1024) char shared[];
    w4_header &h = *reinterpret_cast<w4_header *>(shared);
    char *const sums = shared + L::HEADER;
    const uint32_t ring = hopper::shared_address(shared) + L::RING;
    if (threadIdx.x == 0)
        init_barriers(h, p.stages);
    __syncthreads();
    moe_let_next_start();
    /* Registers move to the multipliers; together no more than at launch (768 x 80), or the kernel hangs. */
    if (threadIdx.x >= W4_WEIGHT_FEEDER) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 48;");
        if (threadIdx.x == W4_WEIGHT_FEEDER)
            w4_feed_weights<KIND, MOST>(p, h, ring);
        else if (threadIdx.x == W4_TOKEN_FEEDER)
            w4_feed_tokens<KIND, MOST>(p, h, ring);
    } else if (threadIdx.x >= W4_MULTIPLIERS) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 48;");
        w4_finish<KIND>(p, h, sums);
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 96;");
        w4_multiply<KIND, MOST>(p, h, ring, reinterpret_cast<float4 *>(sums));
    }
}

w4_projection projection_of(const lp_moe_call *call, int which, const lp_w4_areas &areas)
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

lp_status run_route(const lp_moe_call *call, const lp_w4_areas &areas, int most, lp_error *err)
{
    const lp_megamoe_shape &s = *call->shape;
    lp_moe_route_job job = {};
    job.routes = areas.routes;
    job.experts = s.experts, job.hidden = s.hidden, job.top_k = s.top_k, job.max_tokens = s.tokens_bound;
    job.first_expert = s.first_expert;
    job.align = w4_unit(most), job.chunk_rows = most;
    const int64_t routes = s.tokens_bound * s.top_k;
    job.sync_words = static_cast<int32_t>(1 + lp_moe_chunks_cap(routes, s.experts, most));
    job.x_dtype = s.x_dtype, job.id_dtype = s.id_dtype;
    job.gather = s.format == LP_NVFP4       ? LP_MOE_GATHER_W4_BF16
                 : lp_moe_wide_products(&s) ? LP_MOE_GATHER_W4_WIDE
                                            : LP_MOE_GATHER_W4_FP8;
    job.x = call->io->x, job.topk_ids = call->io->topk_ids;
    job.x_scale = call->io->x_scale, job.topk_weight = call->io->topk_weight;
    job.tokens = call->io->tokens, job.received = call->io->received;
    job.rows = areas.x, job.row_scale = areas.x_scale;
    job.early = call->sink != nullptr && call->sink->early;
    return lp_moe_route(&job, call->stream, err);
}

template <int KIND, int MOST>
lp_status run_projections(const lp_moe_call *call, const lp_w4_areas &areas, int blocks, lp_error *err)
{
    using L = w4_layout<KIND, MOST>;
    constexpr int MOST_BYTES = 232448; /* a block's most on this GPU */
    const lp_megamoe_shape &s = *call->shape;
    w4_arguments p = {};
    p.projection[0] = projection_of(call, 0, areas);
    p.projection[1] = projection_of(call, 1, areas);
    p.routes = areas.routes;
    p.h = static_cast<char *>(areas.h), p.h_scale = areas.h_scale;
    p.zero = static_cast<const char *>(areas.zero), p.out = areas.out;
    p.l1_alpha = call->weights->l1_alpha, p.l2_alpha = call->weights->l2_alpha;
    p.l2_activation_scale = call->weights->l2_activation_scale;
    p.l1_alpha_columns = call->weights->l1_alpha_columns;
    p.hidden = static_cast<int>(s.hidden), p.experts = static_cast<int>(s.experts);
    p.stages = min((MOST_BYTES - L::RING) / L::STAGE, static_cast<int>(W4_MOST_STAGES));
    p.first_tiles = static_cast<int>(min(static_cast<int64_t>(blocks), s.experts * p.projection[0].tiles));
    p.activation = s.activation, p.alpha = s.activation_alpha, p.beta = s.activation_beta, p.limit = s.activation_limit;
    if (call->sink != nullptr)
        p.sink = *call->sink;
    p.ticket = areas.routes.sync, p.ready = areas.routes.sync + 1;
    const int bytes = L::bytes(p.stages);
    cudaError_t code = cudaFuncSetAttribute(decode<KIND, MOST>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    if (code != cudaSuccess)
        return moe_launched(code, "the projections", err);
    const moe_launch launch(blocks, W4_THREADS, static_cast<size_t>(bytes), call->stream, true);
    return moe_launched(cudaLaunchKernelEx(&launch.config, decode<KIND, MOST>, p), "the projections", err);
}

/* Routing and projections, with chunks that suit the routes which an expert may expect. */
template <int KIND> lp_status run(const lp_moe_call *call, const lp_w4_areas &areas, int blocks, lp_error *err)
{
    constexpr int FEW = LP_W4_FEW_ROWS, MANY = many_rows(KIND), EXPECTED = 20;
    const bool is_many = call->shape->tokens_bound * call->shape->top_k > EXPECTED * call->shape->experts;
    LP_TRY(run_route(call, areas, is_many ? MANY : FEW, err));
    return is_many ? run_projections<KIND, MANY>(call, areas, blocks, err)
                   : run_projections<KIND, FEW>(call, areas, blocks, err);
}

} // namespace

extern "C" lp_status lp_w4_decode_run(const lp_moe_call *call, lp_error *err)
{
    const lp_megamoe_shape &s = *call->shape;
    lp_w4_areas areas;
    lp_moe_space space = {call->workspace, 0};
    lp_w4_take(&space, &s, &areas);
    int blocks;
    LP_TRY(moe_device_blocks(&blocks, err));
    const size_t zero_bytes = static_cast<size_t>(LP_W4_MOST_ROWS) * 128 * 2;
    if (s.intermediate % 256 != 0)
        LP_TRY(moe_launched(cudaMemsetAsync(areas.zero, 0, zero_bytes, static_cast<cudaStream_t>(call->stream)),
                            "a fill with zeros", err));
    if (s.format == LP_NVFP4)
        LP_TRY(run<W4_NV>(call, areas, blocks, err));
    else if (lp_moe_wide_products(&s))
        LP_TRY(run<W4_MX_WIDE>(call, areas, blocks, err));
    else
        LP_TRY(run<W4_MX_FP8>(call, areas, blocks, err));
    if (call->sink != nullptr)
        return LP_OK;
    lp_moe_combine_job job = {};
    job.hidden = s.hidden, job.top_k = s.top_k, job.max_tokens = s.tokens_bound;
    job.tokens = call->io->tokens, job.route_row = areas.routes.route_row;
    job.topk_weight = s.format == LP_NVFP4 ? call->io->topk_weight : nullptr;
    job.rows = areas.out, job.y = call->io->y;
    return lp_moe_combine(&job, true, call->stream, err);
}
