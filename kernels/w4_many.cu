/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Both projections of 4-bit experts in chunks of up to 128 tokens: the roles of the kernel, and its launch.
 *
 * The codes of a tile are decoded once for a chunk of 128 tokens. Two warpgroups multiply, or four (w4_many_layout);
 * while one decodes or adds up, products of the others run.
 */
#include "kernels/w4_feed.cuh"
#include "kernels/w4_launch.cuh"
#include "kernels/w4_many_multiply.cuh"
#include "kernels/w4_many_store.cuh"

namespace
{

template <int KIND>
__global__ void __launch_bounds__(w4_many_layout<KIND>::THREADS, 1) decode_many(const __grid_constant__ w4_arguments p)
{
    using L = w4_many_layout<KIND>;
    extern __shared__ __align__(1024) char shared[];
    w4_many_header &h = *reinterpret_cast<w4_many_header *>(shared);
    char *const staging = shared + L::STAGED;
    const uint32_t ring = hopper::shared_address(shared) + L::RING;
    if (threadIdx.x == 0) {
        w4_init_queue(h, p.stages, L::WARPS, L::WARPS + 2);
        hopper::barrier_init(hopper::shared_address(&h.staged), L::WARPS);
        hopper::barrier_init(hopper::shared_address(&h.stored), 1);
        w4_init_done();
    }
    __syncthreads();
    moe_let_next_start();
    const int warp =
        __shfl_sync(~0u, static_cast<int>(threadIdx.x) / 32, 0); /* tells the compiler that warps do not diverge */
    if (warp >= L::WARPS) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(L::OTHER_REGISTERS));
        if (threadIdx.x == L::WEIGHT_FEEDER)
            w4_feed_weights<L>(p, h, ring, nullptr);
        else if (threadIdx.x == L::TOKEN_FEEDER)
            w4_feed_tokens<L>(p, h, ring);
        else if (warp == L::STORER / 32)
            w4_many_store<KIND>(p, h, staging);
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(L::REGISTERS));
        w4_many_multiply<KIND>(p, h, staging, ring);
    }
}

template <int KIND> lp_status launch(const lp_moe_call *call, const lp_w4_areas &areas, int even, lp_error *err)
{
    return w4_launch<w4_many_layout<KIND>>(call, areas, decode_many<KIND>, w4_many_layout<KIND>::THREADS, even, 0, err);
}

} // namespace

/* Beyond 112 tokens MXFP4 has room for the sums of some of them at a time only, which takes longer for each. */
extern "C" lp_status lp_w4_many_run(const lp_moe_call *call, const lp_w4_areas *areas, lp_error *err)
{
    constexpr int MX_EVEN = 112, NV_EVEN = LP_W4_MANY_ROWS; /* rows of a chunk where an expert has several */
    return call->shape->format == LP_NVFP4 ? launch<W4_NV>(call, *areas, NV_EVEN, err)
                                           : launch<W4_MX_FP8>(call, *areas, MX_EVEN, err);
}
