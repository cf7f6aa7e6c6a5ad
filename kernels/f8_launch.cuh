/* SPDX-License-Identifier: Apache-2.0 */
/* The launches of a call on whole-byte weights, for either kernel of projections; and the barriers of its blocks. */
#ifndef LOADPLAN_F8_LAUNCH_CUH
#define LOADPLAN_F8_LAUNCH_CUH

#include "kernels/f8_block.cuh"
#include "kernels/moe_arguments.cuh"
#include "kernels/moe_route_job.cuh"
#include "kernels/moe_tensor_map.cuh"

/* By one thread, as is what follows. Arrivals that free a stage: of weights, of tokens. `more`: warps that take items
 * beside the multipliers and the tokens' feeder. */
template <typename Form>
__device__ __forceinline__ void f8_init_queue(f8_queue &h, int stages, int weight_arrivals, int token_arrivals,
                                              int more)
{
    using namespace hopper;
    for (int i = 0; i < stages; i++) {
        barrier_init(shared_address(&h.full[i]), 1);
        barrier_init(shared_address(&h.empty[i]), weight_arrivals);
    }
    for (int i = 0; i < Form::TOKEN_STAGES; i++) {
        barrier_init(shared_address(&h.tokens_full[i]), 1);
        barrier_init(shared_address(&h.tokens_empty[i]), token_arrivals);
    }
    for (int i = 0; i < F8_QUEUE; i++) {
        barrier_init(shared_address(&h.given[i]), 1);
        barrier_init(shared_address(&h.taken[i]), f8_threads<Form>::WARPS + 1 + more);
    }
    moe_init_start(h.start, f8_threads<Form>::WARPS);
}

__device__ __forceinline__ void f8_init_done()
{
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    hopper::proxy_fence();
}

/* ---- host ---- */

typedef void (*f8_kernel)(f8_arguments, CUtensorMap, CUtensorMap);

template <typename Form> f8_projection f8_projection_of(const lp_moe_call *call, int which, const lp_f8_areas &areas)
{
    const lp_megamoe_shape &s = *call->shape;
    const lp_megamoe_tensor *const tensor = call->weights->tensor + (which == 0 ? LP_MOE_L1_WEIGHT : LP_MOE_L2_WEIGHT);
    const int64_t element = s.format == LP_MOE_BF16 ? 2 : 1;
    f8_projection p = {};
    p.weight_scale = static_cast<const float *>(tensor[1].data);
    p.operand = static_cast<const char *>(which == 0 ? areas.x : areas.h);
    p.operand_scale = which == 0 ? areas.x_scale : areas.h_scale;
    p.parts = Form::parts(which);
    p.tiles = static_cast<int>((which == 0 ? 2 * s.intermediate : s.hidden) / (p.parts * Form::PART_ROWS));
    p.pieces = static_cast<int>((which == 0 ? s.hidden : s.intermediate) * element / F8_PIECE);
    return p;
}

inline lp_moe_route_job f8_route_job(const lp_moe_call *call, const lp_f8_areas &areas, const f8_arguments &p)
{
    const lp_megamoe_shape &s = *call->shape;
    lp_moe_route_job job = moe_route_job_of(call, areas.routes, p.unit, p.chunk_rows);
    const int64_t chunks = lp_moe_chunks_cap(s.tokens_bound * s.top_k, s.experts, p.chunk_rows);
    job.even_rows = p.even_rows;
    job.sync_words = static_cast<int32_t>(LP_MOE_START_WORDS + 1 + chunks);
    job.gather = s.format == LP_MOE_BF16 ? LP_MOE_GATHER_F8_BF16 : LP_MOE_GATHER_F8;
    job.rows = areas.x, job.row_scale = areas.x_scale;
    return job;
}

template <typename Form>
lp_status f8_projections(const lp_moe_call *call, f8_kernel kernel, const f8_arguments &p, int blocks, lp_error *err)
{
    CUtensorMap map[2];
    for (int i = 0; i < 2; i++) {
        const f8_projection &projection = p.projection[i];
        const void *const data = call->weights->tensor[i == 0 ? LP_MOE_L1_WEIGHT : LP_MOE_L2_WEIGHT].data;
        LP_TRY(moe_piece_map(map + i, data,
                             call->shape->experts * projection.tiles * projection.parts * Form::PART_ROWS,
                             static_cast<int64_t>(projection.pieces) * F8_PIECE, Form::PART_ROWS, Form::PIECES, err));
    }
    const int bytes = p.space.weights + p.stages * f8_stage_bytes<Form>;
    LP_TRY(moe_launched(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes),
                        "the projections", err));
    const moe_launch launch(blocks, f8_threads<Form>::ALL, static_cast<size_t>(bytes), call->stream, true);
    return moe_launched(cudaLaunchKernelEx(&launch.config, kernel, p, map[0], map[1]), "the projections", err);
}

/* All launches of a call. even_rows: as for moe_chunk_rows. */
template <typename Form>
lp_status f8_run(const lp_moe_call *call, f8_kernel kernel, const f8_space &space, int chunk_rows, int even_rows,
                 lp_error *err)
{
    const lp_megamoe_shape &s = *call->shape;
    lp_f8_areas areas;
    lp_moe_space memory = {call->workspace, 0};
    lp_f8_take(&memory, &s, &areas);
    int blocks;
    LP_TRY(moe_device_blocks(&blocks, err));
    f8_arguments p = {};
    p.projection[0] = f8_projection_of<Form>(call, 0, areas);
    p.projection[1] = f8_projection_of<Form>(call, 1, areas);
    p.space = space;
    moe_set_arguments(p, call, areas, blocks);
    p.h_scale = areas.h_scale;
    p.kind = s.format == LP_MOE_BF16 ? F8_BF16 : F8_BLOCKS;
    p.fast = s.fast;
    p.chunk_rows = chunk_rows, p.unit = chunk_rows == LP_F8_FEW_ROWS ? 8 : 16, p.even_rows = even_rows;
    p.stages = min((F8_MOST_BYTES - space.weights) / f8_stage_bytes<Form>, static_cast<int>(F8_MOST_STAGES));
    p.start = moe_start_of(f8_route_job(call, areas, p), Form::ROUTES ? space.weights - space.tokens : 0);
    LP_TRY(moe_begin(p.start, call->stream, err));
    LP_TRY(f8_projections<Form>(call, kernel, p, blocks, err));
    return lp_moe_finish(call, areas.routes.route_row, areas.out, err);
}

#endif
