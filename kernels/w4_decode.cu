/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Both projections of 4-bit experts for few tokens an expert, in one launch.
 *
 * Few tokens leave the weights as the cost: every byte of them is read once, as fast as memory gives it. Weights are
 * the first operand of the matrix unit, decoded from shared memory into registers, and tokens are its columns, 8 to 32
 * at a time. Blocks stay for the whole launch and draw tiles from one counter; the ring of each fills with weights
 * while routes are counted and rows of x gathered, by a launch in front or by its own threads (moe_start.cuh).
 */
#include "kernels/w4_feed.cuh"
#include "kernels/w4_finish.cuh"
#include "kernels/w4_launch.cuh"
#include "kernels/w4_multiply.cuh"

namespace
{

constexpr int ROUTING = 2; /* a named barrier of the threads that multiply; 1 is of those that finish */

template <int KIND, int MOST>
__global__ void __launch_bounds__(W4_THREADS, 1) decode(const __grid_constant__ w4_arguments p)
{
    using L = w4_layout<KIND, MOST>;
    extern __shared__ __align__(1024) char shared[];
    w4_header &h = *reinterpret_cast<w4_header *>(shared);
    char *const sums = shared + L::HEADER;
    const uint32_t ring = hopper::shared_address(shared) + L::RING;
    if (threadIdx.x == 0) {
        w4_init_queue(h, p.stages, W4_MULTIPLIERS / 32, W4_MULTIPLIERS / 32 + W4_FINISHERS / 32 + 1);
        hopper::barrier_init(hopper::shared_address(&h.summed), W4_MULTIPLIERS / 32);
        hopper::barrier_init(hopper::shared_address(&h.dumped), W4_FINISHERS / 32);
        w4_init_done();
    }
    __syncthreads();
    moe_let_next_start();
    /* Registers move to the multipliers; together no more than at launch (768 x 80), or the kernel hangs. */
    if (threadIdx.x >= W4_WEIGHT_FEEDER) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 48;");
        if (threadIdx.x == W4_WEIGHT_FEEDER)
            w4_feed_weights<L>(p, h, ring, sums);
        else if (threadIdx.x == W4_TOKEN_FEEDER)
            w4_feed_tokens<L>(p, h, ring);
    } else if (threadIdx.x >= W4_MULTIPLIERS) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 48;");
        w4_finish<KIND>(p, h, sums);
    } else {
        if (L::ROUTES && p.start.inside)
            moe_route_inside<w4_gather_of(KIND), KIND == W4_NV ? MOE_X_AS_GIVEN : MOE_X_E4M3, W4_MULTIPLIERS, ROUTING>(
                p.start, h.start, sums);
        asm volatile("setmaxnreg.inc.sync.aligned.u32 96;"); /* behind routing, which makes do without */
        w4_multiply<KIND, MOST>(p, h, ring, reinterpret_cast<float4 *>(sums));
    }
}

template <int KIND, int MOST> lp_status launch(const lp_moe_call *call, const lp_w4_areas &areas, lp_error *err)
{
    using L = w4_layout<KIND, MOST>;
    return w4_launch<L>(call, areas, decode<KIND, MOST>, W4_THREADS, 0, L::ROUTES ? L::SUMS : 0, err);
}

/* Routing and projections, with chunks that suit the routes which an expert may expect. */
template <int KIND> lp_status run(const lp_moe_call *call, const lp_w4_areas &areas, lp_error *err)
{
    constexpr int FEW = 20, MIDDLE = 45;
    const lp_megamoe_shape &s = *call->shape;
    const int64_t routes = s.tokens_bound * s.top_k;
    if constexpr (KIND == W4_MX_WIDE) {
        return launch<KIND, 48>(call, areas, err); /* as shared memory allows; models of such shapes are small */
    } else {
        if (routes <= FEW * s.experts)
            return launch<KIND, LP_W4_FEW_ROWS>(call, areas, err);
        if constexpr (KIND == W4_MX_FP8)
            if (routes <= MIDDLE * s.experts)
                return launch<KIND, LP_W4_MIDDLE_ROWS>(call, areas, err);
        return lp_w4_many_run(call, &areas, err);
    }
}

} // namespace

extern "C" lp_status lp_w4_decode_run(const lp_moe_call *call, lp_error *err)
{
    const lp_megamoe_shape &s = *call->shape;
    lp_w4_areas areas;
    lp_moe_space space = {call->workspace, 0};
    lp_w4_take(&space, &s, &areas);
    const size_t zero_bytes = static_cast<size_t>(LP_W4_MIDDLE_ROWS) * 128 * 2;
    if (s.intermediate % 256 != 0)
        LP_TRY(moe_launched(cudaMemsetAsync(areas.zero, 0, zero_bytes, static_cast<cudaStream_t>(call->stream)),
                            "a fill with zeros", err));
    if (s.format == LP_NVFP4)
        LP_TRY(run<W4_NV>(call, areas, err));
    else if (lp_moe_wide_products(&s))
        LP_TRY(run<W4_MX_WIDE>(call, areas, err));
    else
        LP_TRY(run<W4_MX_FP8>(call, areas, err));
    return lp_moe_finish(call, areas.routes.route_row, areas.out, err);
}
