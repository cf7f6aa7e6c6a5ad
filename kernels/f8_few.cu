/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Both projections of experts with whole-byte weights for few tokens an expert, in one launch.
 *
 * Few tokens leave the weights as the cost: every byte of them is read once, as fast as memory gives it. Weights are
 * the first operand of the matrix unit, straight from shared memory, and tokens are its columns, 8 to 64 at a time.
 * Blocks stay for the whole launch and draw tiles from one counter; the ring of each is filled with weights before the
 * kernel that routes has finished. The multipliers finish their own tiles: the ring is deep enough meanwhile.
 */
#include "kernels/f8_feed.cuh"
#include "kernels/f8_finish.cuh"
#include "kernels/f8_multiply.cuh"
#include "kernels/moe_route_job.cuh"
#include "kernels/moe_tensor_map.cuh"

namespace
{

__device__ void init_barriers(f8_header &h, int stages)
{
    using namespace hopper;
    constexpr int WARPS = F8_MULTIPLIERS / 32;
    for (int i = 0; i < stages; i++) {
        barrier_init(shared_address(&h.full[i]), 1);
        barrier_init(shared_address(&h.empty[i]), WARPS);
    }
    for (int i = 0; i < F8_TOKEN_STAGES; i++) {
        barrier_init(shared_address(&h.tokens_full[i]), 1);
        barrier_init(shared_address(&h.tokens_empty[i]), F8_MULTIPLIERS); /* threads load scales themselves */
    }
    for (int i = 0; i < F8_QUEUE; i++) {
        barrier_init(shared_address(&h.given[i]), 1);
        barrier_init(shared_address(&h.taken[i]), WARPS + 1);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    proxy_fence();
}

/* A warpgroup's part of an item. */
template <int KIND, int N>
__device__ __forceinline__ void do_part(const f8_arguments &p, f8_header &h, f8_rings &rings, const f8_item &item,
                                        int part, int number)
{
    float total[N / 2];
    const bool is_first = __shfl_sync(~0u, item.projection, 0) == 0;
    if (KIND == F8_BLOCKS && is_first && !p.fast)
        f8_multiply<KIND, N, LP_MOE_SUM_COLUMNS>(p, h, rings, item, part, total);
    else
        f8_multiply<KIND, N, LP_MOE_LONG_SUM_COLUMNS>(p, h, rings, item, part, total);
    if (is_first)
        f8_finish_h<KIND, N>(p, h, item, part, number, total);
    else
        f8_finish_out<N>(p, item, part, total);
}

template <int KIND>
__device__ __forceinline__ void do_width(const f8_arguments &p, f8_header &h, f8_rings &rings, const f8_item &item,
                                         int part, int number)
{
    const int width = __shfl_sync(~0u, item.width, 0);
    if (width == 8)
        do_part<KIND, 8>(p, h, rings, item, part, number);
    else if (width == 16)
        do_part<KIND, 16>(p, h, rings, item, part, number);
    else if (width == 24)
        do_part<KIND, 24>(p, h, rings, item, part, number);
    else if (width == 32)
        do_part<KIND, 32>(p, h, rings, item, part, number);
    else if (width == 48)
        do_part<KIND, 48>(p, h, rings, item, part, number);
    else
        do_part<KIND, 64>(p, h, rings, item, part, number);
}

template <int KIND> __device__ void work(const f8_arguments &p, f8_header &h, f8_rings &rings)
{
    const int group = __shfl_sync(~0u, static_cast<int>(threadIdx.x / 128), 0);
    f8_turn slot = {0, F8_QUEUE, 0};
    for (int number = 0;; slot.next()) {
        hopper::barrier_wait(hopper::shared_address(&h.given[slot.at]), slot.phase);
        const f8_item &item = h.item[slot.at];                       /* stays there until it is done */
        const int projection = __shfl_sync(~0u, item.projection, 0); /* tells the compiler that warps do not diverge */
        if (projection < 0)
            return;
        const int parts = p.projection[projection].parts, part = group - __shfl_sync(~0u, item.first_group, 0);
        const int stages = __shfl_sync(~0u, item.stages, 0);
        if (__shfl_sync(~0u, item.dropped, 0)) {
            f8_pass(h, rings, stages);
        } else if (part >= 0 && part < parts) {
            do_width<KIND>(p, h, rings, item, part, number);
            number += projection == 0;
        } else {
            f8_pass_item(h, rings, stages, parts);
        }
        f8_release(&h.taken[slot.at]);
    }
}

template <int KIND>
__device__ void feed(const f8_arguments &p, f8_header &h, const f8_rings &rings, const CUtensorMap *map1,
                     const CUtensorMap *map2)
{
    if (threadIdx.x == F8_WEIGHT_FEEDER)
        f8_feed_weights(p, h, rings.weights, map1, map2);
    else if (threadIdx.x == F8_TOKEN_FEEDER)
        f8_feed_tokens<KIND>(p, h, rings.tokens);
}

/* One kernel for both kinds: either is a part of its code. */
__global__ void __launch_bounds__(F8_THREADS, 1)
    products_of_few(const __grid_constant__ f8_arguments p, const __grid_constant__ CUtensorMap map1,
                    const __grid_constant__ CUtensorMap map2)
{
    extern __shared__ __align__(1024) char shared[];
    f8_header &h = *reinterpret_cast<f8_header *>(shared);
    f8_rings rings = {};
    rings.space = f8_space_of(p.chunk_rows);
    rings.tokens = hopper::shared_address(shared) + 2048;
    rings.weights = hopper::shared_address(shared) + rings.space.ring;
    rings.turn = {0, p.stages, 0};
    rings.token_turn = {0, F8_TOKEN_STAGES, 0};
    if (threadIdx.x == 0)
        init_barriers(h, p.stages);
    if (threadIdx.x < LP_F8_MANY_ROWS)
        h.most[0][threadIdx.x] = 0;
    __syncthreads();
    moe_let_next_start();
    /* Registers move to the multipliers; together no more than at launch (640 x 96), or the kernel hangs. */
    if (threadIdx.x >= F8_MULTIPLIERS) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 56;");
        if (p.kind == F8_BF16)
            feed<F8_BF16>(p, h, rings, &map1, &map2);
        else
            feed<F8_BLOCKS>(p, h, rings, &map1, &map2);
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 104;");
        moe_wait_for_inputs();
        if (p.kind == F8_BF16)
            work<F8_BF16>(p, h, rings);
        else
            work<F8_BLOCKS>(p, h, rings);
    }
}

/* ---- host ---- */

f8_projection projection_of(const lp_moe_call *call, int which, const lp_f8_areas &areas)
{
    const lp_megamoe_shape &s = *call->shape;
    const lp_megamoe_tensor *const tensor = call->weights->tensor + (which == 0 ? LP_MOE_L1_WEIGHT : LP_MOE_L2_WEIGHT);
    const int64_t element = s.format == LP_MOE_BF16 ? 2 : 1;
    f8_projection p = {};
    p.weight_scale = static_cast<const float *>(tensor[1].data);
    p.operand = static_cast<const char *>(which == 0 ? areas.x : areas.h);
    p.operand_scale = which == 0 ? areas.x_scale : areas.h_scale;
    p.parts = which == 0 ? 4 : 2; /* 128 columns of h, and one block of scales */
    p.tiles = static_cast<int>((which == 0 ? 2 * s.intermediate : s.hidden) / (p.parts * F8_PART_ROWS));
    p.pieces = static_cast<int>((which == 0 ? s.hidden : s.intermediate) * element / F8_PIECE);
    return p;
}

lp_status run_route(const lp_moe_call *call, const lp_f8_areas &areas, int chunk_rows, int unit, lp_error *err)
{
    const lp_megamoe_shape &s = *call->shape;
    lp_moe_route_job job = moe_route_job_of(call, areas.routes, unit, chunk_rows);
    job.sync_words = static_cast<int32_t>(1 + lp_moe_chunks_cap(s.tokens_bound * s.top_k, s.experts, chunk_rows));
    job.gather = s.format == LP_MOE_BF16 ? LP_MOE_GATHER_F8_BF16 : LP_MOE_GATHER_F8;
    job.rows = areas.x, job.row_scale = areas.x_scale;
    return lp_moe_route(&job, call->stream, err);
}

lp_status run_projections(const lp_moe_call *call, const lp_f8_areas &areas, int chunk_rows, int unit, int blocks,
                          lp_error *err)
{
    constexpr int MOST_BYTES = 232448; /* a block's most on this GPU */
    const lp_megamoe_shape &s = *call->shape;
    const f8_space space = f8_space_of(chunk_rows);
    f8_arguments p = {};
    p.projection[0] = projection_of(call, 0, areas);
    p.projection[1] = projection_of(call, 1, areas);
    p.routes = areas.routes;
    p.h = static_cast<char *>(areas.h), p.h_scale = areas.h_scale;
    p.out = areas.out;
    if (call->sink != nullptr)
        p.sink = *call->sink;
    p.hidden = static_cast<int>(s.hidden), p.intermediate = static_cast<int>(s.intermediate);
    p.kind = s.format == LP_MOE_BF16 ? F8_BF16 : F8_BLOCKS;
    p.fast = s.fast;
    p.chunk_rows = chunk_rows, p.unit = unit;
    p.stages = min((MOST_BYTES - space.ring) / F8_STAGE, static_cast<int>(F8_MOST_STAGES));
    p.first_tiles = static_cast<int>(min(static_cast<int64_t>(blocks), s.experts * p.projection[0].tiles));
    p.activation = s.activation, p.alpha = s.activation_alpha, p.beta = s.activation_beta, p.limit = s.activation_limit;
    p.ticket = areas.routes.sync, p.ready = areas.routes.sync + 1;
    CUtensorMap map[2];
    for (int i = 0; i < 2; i++) {
        const f8_projection &projection = p.projection[i];
        const void *const data = call->weights->tensor[i == 0 ? LP_MOE_L1_WEIGHT : LP_MOE_L2_WEIGHT].data;
        LP_TRY(moe_piece_map(map + i, data, s.experts * projection.tiles * projection.parts * F8_PART_ROWS,
                             static_cast<int64_t>(projection.pieces) * F8_PIECE, F8_PART_ROWS, F8_PIECES, err));
    }
    const int bytes = space.ring + p.stages * F8_STAGE;
    LP_TRY(moe_launched(cudaFuncSetAttribute(products_of_few, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes),
                        "the projections", err));
    const moe_launch launch(blocks, F8_THREADS, static_cast<size_t>(bytes), call->stream, true);
    return moe_launched(cudaLaunchKernelEx(&launch.config, products_of_few, p, map[0], map[1]), "the projections", err);
}

} // namespace

extern "C" lp_status lp_f8_few_run(const lp_moe_call *call, lp_error *err)
{
    const lp_megamoe_shape &s = *call->shape;
    const int chunk_rows = lp_f8_chunk_rows(&s), unit = chunk_rows == LP_F8_FEW_ROWS ? 8 : 16;
    lp_f8_areas areas;
    lp_moe_space space = {call->workspace, 0};
    lp_f8_take(&space, &s, &areas);
    int blocks;
    LP_TRY(moe_device_blocks(&blocks, err));
    LP_TRY(run_route(call, areas, chunk_rows, unit, err));
    LP_TRY(run_projections(call, areas, chunk_rows, unit, blocks, err));
    return lp_moe_finish(call, areas.routes.route_row, areas.out, err);
}
