/* SPDX-License-Identifier: Apache-2.0 */
/* The path of many tokens an expert: its kernel, and the launches of a call. */
#include "kernels/moe_launch.cuh"
#include "kernels/prefill_feed.cuh"
#include "kernels/prefill_finish.cuh"
#include "kernels/prefill_multiply.cuh"

namespace
{

/* Warpgroups 0 and 1 multiply, the third feeds them. */
template <int KIND>
__global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(PREFILL_THREADS, 1)
    products(const __grid_constant__ prefill_arguments p, const __grid_constant__ CUtensorMap map1,
             const __grid_constant__ CUtensorMap map2)
{
    using namespace prefill;
    extern __shared__ __align__(1024) uint8_t raw[];
    prefill_shared &sm = *reinterpret_cast<prefill_shared *>(raw);
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const uint32_t rank = cluster_rank();
    constexpr int ELEMENT = KIND == LP_PREFILL_FP8 ? 1 : 2;
    const int pieces1 = p.hidden * ELEMENT / 128, pieces2 = p.intermediate * ELEMENT / 128;
    if (threadIdx.x == 0) {
        for (int s = 0; s < PREFILL_STAGES; s++) {
            barrier_init(shared_address(&sm.full[s]), 2);
            barrier_init(shared_address(&sm.empty[s]), 16); /* warps that multiply, of both blocks */
        }
        barrier_init_done();
    }
    moe_wait_for_inputs();
    moe_let_next_start();
    if (warp == 1)
        prefill_count_tiles(p, sm);
    __syncthreads();
    cluster_sync();
    if (warp >= 8) {
        registers_less<40>();
        if (warp == 8 && lane == 0)
            prefill_feed_weights(p, sm, &map1, &map2, pieces1, pieces2, rank);
        if (warp == 9 && lane == 0)
            prefill_feed_tokens(p, sm, pieces1, pieces2, KIND != LP_PREFILL_BF16, ELEMENT, rank);
        __syncwarp();
    } else {
        registers_more<232>();
        prefill_ring ring;
        float sum[128];
#pragma unroll 1
        for (int which = 0; which < 2; which++) {
            prefill_walk walk(p, sm, which, static_cast<int>(rank));
            prefill_task task;
            while (walk.next(task)) {
                prefill_multiply<KIND>(p, sm, ring, task, which, which == 0 ? pieces1 : pieces2, sum);
                if (task.idle)
                    continue;
                const int group = threadIdx.x / 128;
                const bool some = group * 64 < task.rows;
                if (which == 1) {
                    if (some)
                        prefill_finish_out(p, task, sum);
                    continue;
                }
                if (some)
                    prefill_finish_h<KIND>(p, sm, task, sum);
                __threadfence();
                named_barrier_of(1 + group, 128);
                if (threadIdx.x % 128 == 0)
                    add_release(p.ready + sm.tiles[task.expert] + task.m, 1);
            }
        }
    }
    cluster_sync(); /* copies and arrivals of the other block may still be on their way here */
}

/* ---- host ---- */

typedef CUresult (*encode_function)(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *, const cuuint64_t *,
                                    const cuuint64_t *, const cuuint32_t *, const cuuint32_t *, CUtensorMapInterleave,
                                    CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

/* The driver's function, looked up once: every thread would find the same. */
lp_status find_encode(encode_function *encode, lp_error *err)
{
    static encode_function found;
    if (found != nullptr) {
        *encode = found;
        return LP_OK;
    }
    void *entry = nullptr;
    cudaDriverEntryPointQueryResult result;
    LP_TRY(moe_launched(
        cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &entry, 12000, cudaEnableDefault, &result),
        "the search for tensor maps", err));
    if (result != cudaDriverEntryPointSuccess || entry == nullptr)
        return lp_fail(err, LP_E_UNSUPPORTED, "the driver has no tensor maps");
    *encode = found = reinterpret_cast<encode_function>(entry);
    return LP_OK;
}

/* Rows of weights, read in boxes of 128 rows x 128 bytes. */
lp_status make_map(CUtensorMap *map, const void *data, int64_t rows, int64_t row_bytes, lp_error *err)
{
    encode_function encode;
    LP_TRY(find_encode(&encode, err));
    const cuuint64_t size[2] = {static_cast<cuuint64_t>(row_bytes), static_cast<cuuint64_t>(rows)};
    const cuuint64_t stride[1] = {static_cast<cuuint64_t>(row_bytes)};
    const cuuint32_t box[2] = {128, 128}, step[2] = {1, 1};
    const CUresult code = encode(map, CU_TENSOR_MAP_DATA_TYPE_UINT8, 2, const_cast<void *>(data), size, stride, box,
                                 step, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                                 CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (code != CUDA_SUCCESS)
        return lp_fail(err, LP_E_DEVICE, "the driver refused a tensor map of %lld rows of %lld bytes (code %d)",
                       static_cast<long long>(rows), static_cast<long long>(row_bytes), static_cast<int>(code));
    return LP_OK;
}

template <int KIND>
lp_status launch(const prefill_arguments &p, const void *l1, const void *l2, int blocks, void *stream, lp_error *err)
{
    constexpr int64_t ELEMENT = KIND == LP_PREFILL_FP8 ? 1 : 2;
    const int64_t experts = p.last - p.first;
    CUtensorMap map1, map2;
    LP_TRY(make_map(&map1, l1, experts * 2 * p.intermediate, p.hidden * ELEMENT, err));
    LP_TRY(make_map(&map2, l2, experts * p.hidden, p.intermediate * ELEMENT, err));
    const int bytes = static_cast<int>(sizeof(prefill_shared));
    LP_TRY(moe_launched(cudaFuncSetAttribute(products<KIND>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes),
                        "the projections", err));
    const moe_launch launch(blocks / 2 * 2, PREFILL_THREADS, static_cast<size_t>(bytes), stream, p.first == 0);
    return moe_launched(cudaLaunchKernelEx(&launch.config, products<KIND>, p, map1, map2), "the projections", err);
}

lp_status launch_kind(lp_prefill_kind kind, const prefill_arguments &p, const void *l1, const void *l2, int blocks,
                      void *stream, lp_error *err)
{
    switch (kind) {
    case LP_PREFILL_FP8:
        return launch<LP_PREFILL_FP8>(p, l1, l2, blocks, stream, err);
    case LP_PREFILL_BF16:
        return launch<LP_PREFILL_BF16>(p, l1, l2, blocks, stream, err);
    case LP_PREFILL_CODES:
        break;
    }
    return launch<LP_PREFILL_CODES>(p, l1, l2, blocks, stream, err);
}

lp_status run_route(const lp_moe_call *call, lp_prefill_kind kind, const lp_prefill_areas &areas, lp_error *err)
{
    const lp_megamoe_shape &s = *call->shape;
    lp_moe_route_job job = {};
    job.routes = areas.routes;
    job.experts = s.experts, job.hidden = s.hidden, job.top_k = s.top_k, job.max_tokens = s.tokens_bound;
    job.first_expert = s.first_expert;
    job.align = job.chunk_rows = PREFILL_ROWS;
    job.sync_words = static_cast<int32_t>(lp_moe_chunks_cap(s.tokens_bound * s.top_k, s.experts, PREFILL_ROWS));
    job.x_dtype = s.x_dtype, job.id_dtype = s.id_dtype;
    job.gather = LP_MOE_GATHER_NONE;
    job.x = call->io->x, job.topk_ids = call->io->topk_ids;
    job.x_scale = call->io->x_scale, job.topk_weight = call->io->topk_weight;
    job.tokens = call->io->tokens, job.received = call->io->received;
    LP_TRY(lp_moe_route(&job, call->stream, err));
    lp_prefill_gather_job gather = {};
    gather.kind = kind, gather.x_dtype = s.x_dtype;
    gather.hidden = s.hidden, gather.top_k = s.top_k, gather.experts = s.experts;
    gather.rows_cap = lp_moe_rows_cap(s.tokens_bound * s.top_k, s.experts, PREFILL_ROWS);
    gather.start = areas.routes.start, gather.row_route = areas.routes.row_route;
    gather.x = call->io->x, gather.x_scale = call->io->x_scale;
    gather.to = areas.x, gather.to_scale = areas.x_scale;
    return lp_prefill_gather(&gather, call->stream, err);
}

prefill_arguments arguments_of(const lp_moe_call *call, const lp_prefill_areas &areas)
{
    const lp_megamoe_shape &s = *call->shape;
    const lp_megamoe_weights &w = *call->weights;
    prefill_arguments p = {};
    p.tokens[0] = static_cast<const char *>(areas.x), p.tokens[1] = static_cast<const char *>(areas.h);
    p.token_scale[0] = areas.x_scale, p.token_scale[1] = areas.h_scale;
    p.weight_scale[0] = static_cast<const float *>(w.tensor[LP_MOE_L1_SCALE].data);
    p.weight_scale[1] = static_cast<const float *>(w.tensor[LP_MOE_L2_SCALE].data);
    p.h = static_cast<char *>(areas.h), p.h_scale = areas.h_scale;
    p.out = static_cast<uint16_t *>(areas.out);
    p.count = areas.routes.count, p.start = areas.routes.start;
    p.row_weight = areas.routes.row_weight, p.ready = areas.routes.sync;
    p.l1_alpha = w.l1_alpha, p.l2_alpha = w.l2_alpha, p.l2_activation_scale = w.l2_activation_scale;
    p.l1_alpha_columns = w.l1_alpha_columns;
    p.weight_in_h = s.format != LP_NVFP4;
    p.experts = static_cast<int>(s.experts);
    p.hidden = static_cast<int>(s.hidden), p.intermediate = static_cast<int>(s.intermediate);
    p.activation = s.activation, p.alpha = s.activation_alpha, p.beta = s.activation_beta, p.limit = s.activation_limit;
    return p;
}

/* Weights as they are, or a group of experts after the other: expanded, then multiplied. */
lp_status run_products(const lp_moe_call *call, lp_prefill_kind kind, const lp_prefill_areas &areas, int blocks,
                       lp_error *err)
{
    const lp_megamoe_shape &s = *call->shape;
    prefill_arguments p = arguments_of(call, areas);
    lp_prefill_expand_job job = {};
    job.format = s.format, job.family = call->family;
    job.hidden = s.hidden, job.intermediate = s.intermediate;
    for (int i = 0; i < 2; i++) {
        job.weight[i] = call->weights->tensor[i == 0 ? LP_MOE_L1_WEIGHT : LP_MOE_L2_WEIGHT].data;
        job.scale[i] = call->weights->tensor[i == 0 ? LP_MOE_L1_SCALE : LP_MOE_L2_SCALE].data;
    }
    job.to[0] = areas.l1, job.to[1] = areas.l2;
    const int64_t group = lp_prefill_group(&s);
    if (group == 0) {
        p.first = 0, p.last = p.experts;
        return launch_kind(kind, p, job.weight[0], job.weight[1], blocks, call->stream, err);
    }
    for (int64_t first = 0; first < s.experts; first += group) {
        job.first = first, job.experts = group < s.experts - first ? group : s.experts - first;
        LP_TRY(lp_prefill_expand(&job, call->stream, err));
        p.first = static_cast<int>(first), p.last = static_cast<int>(first + job.experts);
        LP_TRY(launch_kind(kind, p, areas.l1, areas.l2, blocks, call->stream, err));
    }
    return LP_OK;
}

} // namespace

extern "C" lp_status lp_prefill_run(const lp_moe_call *call, lp_error *err)
{
    const lp_megamoe_shape &s = *call->shape;
    const lp_prefill_kind kind = lp_prefill_kind_of(s.format);
    lp_prefill_areas areas;
    lp_moe_space space = {call->workspace, 0};
    lp_prefill_take(&space, &s, &areas);
    int blocks;
    LP_TRY(moe_device_blocks(&blocks, err));
    LP_TRY(run_route(call, kind, areas, err));
    LP_TRY(run_products(call, kind, areas, blocks, err));
    lp_moe_combine_job job = {};
    job.hidden = s.hidden, job.top_k = s.top_k, job.max_tokens = s.tokens_bound;
    job.tokens = call->io->tokens, job.route_row = areas.routes.route_row;
    job.topk_weight = s.format == LP_NVFP4 ? call->io->topk_weight : nullptr;
    job.rows = areas.out, job.y = call->io->y;
    return lp_moe_combine(&job, true, call->stream, err);
}
