/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Both projections of experts with MXFP8 weights, in one launch. Codes times scales are BF16 values, which a
 * multiplying thread makes in registers on the way to the matrix unit, for all tokens of a chunk: with few of them
 * reading the weights is the cost, with many the products are, under which decoding finds room.
 *
 * Blocks stay for the whole launch and draw tiles from one counter; the ring of each is filled with weights before the
 * kernel that routes has finished. The multipliers finish their own tiles.
 */
#include "kernels/m8_feed.cuh"
#include "kernels/m8_finish.cuh"
#include "kernels/m8_multiply.cuh"
#include "kernels/moe_arguments.cuh"
#include "kernels/moe_route_job.cuh"
#include "kernels/moe_tensor_map.cuh"

namespace
{

__device__ void init_barriers(m8_header &h, int stages, int token_stages)
{
    using namespace hopper;
    constexpr int WARPS = M8_MULTIPLIERS / 32;
    for (int i = 0; i < stages; i++) {
        barrier_init(shared_address(&h.full[i]), 1);
        barrier_init(shared_address(&h.empty[i]), WARPS);
    }
    for (int i = 0; i < token_stages; i++) {
        barrier_init(shared_address(&h.tokens_full[i]), 1);
        barrier_init(shared_address(&h.tokens_empty[i]), WARPS);
    }
    for (int i = 0; i < M8_QUEUE; i++) {
        barrier_init(shared_address(&h.given[i]), 1);
        barrier_init(shared_address(&h.taken[i]), WARPS + 1);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    proxy_fence();
}

template <int N>
__device__ __forceinline__ void do_part(const m8_arguments &p, m8_header &h, m8_rings &rings, const m8_item &item,
                                        int number)
{
    float total[N / 2];
    m8_multiply<N>(h, rings, __shfl_sync(~0u, item.stages, 0), total);
    if (__shfl_sync(~0u, item.projection, 0) == 0)
        m8_finish_h<N>(p, h.most, item, number, total);
    else
        m8_finish_out<N>(p, item, total);
}

__device__ __forceinline__ void do_width(const m8_arguments &p, m8_header &h, m8_rings &rings, const m8_item &item,
                                         int number)
{
    switch (__shfl_sync(~0u, item.width, 0)) {
    case 8:
        return do_part<8>(p, h, rings, item, number);
    case 16:
        return do_part<16>(p, h, rings, item, number);
    case 24:
        return do_part<24>(p, h, rings, item, number);
    case 32:
        return do_part<32>(p, h, rings, item, number);
    case 48:
        return do_part<48>(p, h, rings, item, number);
    case 64:
        return do_part<64>(p, h, rings, item, number);
    case 80:
        return do_part<80>(p, h, rings, item, number);
    case 96:
        return do_part<96>(p, h, rings, item, number);
    case 112:
        return do_part<112>(p, h, rings, item, number);
    default:
        return do_part<LP_M8_MOST_ROWS>(p, h, rings, item, number);
    }
}

__device__ void work(const m8_arguments &p, m8_header &h, m8_rings &rings)
{
    m8_turn slot = {0, M8_QUEUE, 0};
    for (int number = 0;; slot.next()) {
        hopper::barrier_wait(hopper::shared_address(&h.given[slot.at]), slot.phase);
        const m8_item &item = h.item[slot.at];                       /* stays there until it is done */
        const int projection = __shfl_sync(~0u, item.projection, 0); /* tells the compiler that warps do not diverge */
        if (projection < 0)
            return;
        if (__shfl_sync(~0u, item.dropped, 0)) {
            m8_pass(h, rings, __shfl_sync(~0u, item.stages, 0));
        } else {
            do_width(p, h, rings, item, number);
            number += projection == 0;
        }
        m8_release(&h.taken[slot.at]);
    }
}

__global__ void __launch_bounds__(M8_THREADS, 1)
    products_mx(const __grid_constant__ m8_arguments p, const __grid_constant__ CUtensorMap map1,
                const __grid_constant__ CUtensorMap map2)
{
    extern __shared__ __align__(1024) char shared[];
    m8_header &h = *reinterpret_cast<m8_header *>(shared);
    const m8_space space = m8_space_of(p.chunk_rows);
    const uint32_t base = hopper::shared_address(shared);
    m8_rings rings = {};
    rings.tokens = base + space.tokens, rings.weights = base + space.weights, rings.scales = base + space.scales;
    rings.token_stage = space.token_stage;
    rings.turn = {0, p.stages, 0};
    rings.token_turn = {0, p.token_stages, 0};
    if (threadIdx.x == 0)
        init_barriers(h, p.stages, p.token_stages);
    __syncthreads();
    moe_let_next_start();
    /* Registers move to the multipliers; together no more than at launch (640 x 96), or the kernel hangs. */
    if (threadIdx.x >= M8_MULTIPLIERS) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 32;");
        if (threadIdx.x == M8_WEIGHT_FEEDER)
            m8_feed_weights(p, h, rings.weights, rings.scales, &map1, &map2);
        else if (threadIdx.x == M8_TOKEN_FEEDER)
            m8_feed_tokens(p, h, rings.tokens, rings.token_stage);
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 112;");
        moe_wait_for_inputs();
        work(p, h, rings);
    }
}

/* ---- host ---- */

m8_projection projection_of(const lp_moe_call *call, int which, const lp_m8_areas &areas)
{
    const lp_megamoe_shape &s = *call->shape;
    const lp_megamoe_tensor *const tensor = call->weights->tensor + (which == 0 ? LP_MOE_L1_WEIGHT : LP_MOE_L2_WEIGHT);
    m8_projection p = {};
    p.scale = static_cast<const uint32_t *>(tensor[1].data);
    p.operand = static_cast<const char *>(which == 0 ? areas.x : areas.h);
    p.tiles = static_cast<int>((which == 0 ? 2 * s.intermediate : s.hidden) / M8_ROWS);
    p.stages = static_cast<int>((which == 0 ? s.hidden : s.intermediate) / M8_COLUMNS);
    return p;
}

lp_status run_route(const lp_moe_call *call, const lp_m8_areas &areas, int chunk_rows, int unit, lp_error *err)
{
    const lp_megamoe_shape &s = *call->shape;
    lp_moe_route_job job = moe_route_job_of(call, areas.routes, unit, chunk_rows);
    job.sync_words = static_cast<int32_t>(LP_MOE_START_WORDS + 1 +
                                          lp_moe_chunks_cap(s.tokens_bound * s.top_k, s.experts, chunk_rows));
    job.gather = LP_MOE_GATHER_M8;
    job.rows = areas.x;
    return lp_moe_route(&job, call->stream, err);
}

lp_status run_projections(const lp_moe_call *call, const lp_m8_areas &areas, int chunk_rows, int unit, int blocks,
                          lp_error *err)
{
    const lp_megamoe_shape &s = *call->shape;
    const m8_space space = m8_space_of(chunk_rows);
    m8_arguments p = {};
    p.projection[0] = projection_of(call, 0, areas);
    p.projection[1] = projection_of(call, 1, areas);
    moe_set_arguments(p, call, areas, blocks);
    p.chunk_rows = chunk_rows, p.unit = unit;
    p.stages = space.stages, p.token_stages = space.token_stages;
    CUtensorMap map[2];
    for (int i = 0; i < 2; i++) {
        const m8_projection &projection = p.projection[i];
        const void *const data = call->weights->tensor[i == 0 ? LP_MOE_L1_WEIGHT : LP_MOE_L2_WEIGHT].data;
        LP_TRY(moe_piece_map(map + i, data, s.experts * projection.tiles * M8_ROWS,
                             static_cast<int64_t>(projection.stages) * M8_COLUMNS, M8_ROWS, 1, err));
    }
    LP_TRY(moe_launched(cudaFuncSetAttribute(products_mx, cudaFuncAttributeMaxDynamicSharedMemorySize, space.bytes),
                        "the projections", err));
    const moe_launch launch(blocks, M8_THREADS, static_cast<size_t>(space.bytes), call->stream, true);
    return moe_launched(cudaLaunchKernelEx(&launch.config, products_mx, p, map[0], map[1]), "the projections", err);
}

} // namespace

extern "C" lp_status lp_m8_run(const lp_moe_call *call, lp_error *err)
{
    const lp_megamoe_shape &s = *call->shape;
    const int chunk_rows = lp_m8_chunk_rows(&s), unit = chunk_rows == LP_M8_FEW_ROWS ? LP_M8_FEW_UNIT : LP_M8_UNIT;
    lp_m8_areas areas;
    lp_moe_space space = {call->workspace, 0};
    lp_m8_take(&space, &s, &areas);
    int blocks;
    LP_TRY(moe_device_blocks(&blocks, err));
    LP_TRY(run_route(call, areas, chunk_rows, unit, err));
    LP_TRY(run_projections(call, areas, chunk_rows, unit, blocks, err));
    return lp_moe_finish(call, areas.routes.route_row, areas.out, err);
}
