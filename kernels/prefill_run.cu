/* SPDX-License-Identifier: Apache-2.0 */
/* The path of many tokens an expert: the launches of a call. */
#include "kernels/moe_route_job.cuh"
#include "kernels/moe_tensor_map.cuh"
#include "kernels/prefill_kernel.cuh"

namespace
{

constexpr int MANY_TOKENS = 1024; /* from here on x is rounded by a launch of its own */

/* Rows of weights, read in boxes of 128 rows x 128 bytes, or of 256 rows x 64 bytes of codes. */
lp_status make_map(CUtensorMap *map, const void *data, int64_t rows, int64_t row_bytes, bool codes, lp_error *err)
{
    moe_encode_function encode = nullptr;
    LP_TRY(moe_find_encode(&encode, err));
    const cuuint64_t size[2] = {static_cast<cuuint64_t>(row_bytes), static_cast<cuuint64_t>(rows)};
    const cuuint64_t stride[1] = {static_cast<cuuint64_t>(row_bytes)};
    const cuuint32_t box[2] = {codes ? 64u : 128u, codes ? 256u : 128u}, step[2] = {1, 1};
    const CUresult code =
        encode(map, CU_TENSOR_MAP_DATA_TYPE_UINT8, 2, const_cast<void *>(data), size, stride, box, step,
               CU_TENSOR_MAP_INTERLEAVE_NONE, codes ? CU_TENSOR_MAP_SWIZZLE_NONE : CU_TENSOR_MAP_SWIZZLE_128B,
               CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (code != CUDA_SUCCESS)
        return lp_fail(err, LP_E_DEVICE, "the driver refused a tensor map of %lld rows of %lld bytes (code %d)",
                       static_cast<long long>(rows), static_cast<long long>(row_bytes), static_cast<int>(code));
    return LP_OK;
}

template <int KIND>
lp_status launch(const prefill_arguments &p, const void *l1, const void *l2, int blocks, void *stream, lp_error *err)
{
    constexpr bool CODES = prefill_decodes(KIND);
    constexpr int64_t BITS = prefill_row_bits(KIND);
    const int64_t experts = p.experts;
    CUtensorMap map1 = {}, map2 = {};
    if (!p.packed && !prefill_is_ahead(KIND)) {
        LP_TRY(make_map(&map1, l1, experts * 2 * p.intermediate, p.hidden * BITS / 8, CODES, err));
        LP_TRY(make_map(&map2, l2, experts * p.hidden, p.intermediate * BITS / 8, CODES, err));
    }
    const int bytes = static_cast<int>(sizeof(prefill_shared<KIND>));
    LP_TRY(moe_launched(cudaFuncSetAttribute(products<KIND>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes),
                        "the projections", err));
    const moe_launch launch(blocks / 2 * 2, prefill_threads(KIND), static_cast<size_t>(bytes), stream, true);
    return moe_launched(cudaLaunchKernelEx(&launch.config, products<KIND>, p, map1, map2), "the projections", err);
}

lp_status launch_kind(int kind, const prefill_arguments &p, const void *l1, const void *l2, int blocks, void *stream,
                      lp_error *err)
{
    switch (kind) {
    case LP_PREFILL_FP8:
        return launch<LP_PREFILL_FP8>(p, l1, l2, blocks, stream, err);
    case LP_PREFILL_BF16:
        return launch<LP_PREFILL_BF16>(p, l1, l2, blocks, stream, err);
    case LP_PREFILL_MX:
        return launch<LP_PREFILL_MX>(p, l1, l2, blocks, stream, err);
    case LP_PREFILL_NV:
        return launch<LP_PREFILL_NV>(p, l1, l2, blocks, stream, err);
    case LP_PREFILL_FP8_WIDE:
        return launch<LP_PREFILL_FP8_WIDE>(p, l1, l2, blocks, stream, err);
    case LP_PREFILL_MX_WIDE:
        return launch<LP_PREFILL_MX_WIDE>(p, l1, l2, blocks, stream, err);
    case LP_PREFILL_MX | PREFILL_AHEAD:
        return launch<LP_PREFILL_MX | PREFILL_AHEAD>(p, l1, l2, blocks, stream, err);
    case LP_PREFILL_NV | PREFILL_AHEAD:
        return launch<LP_PREFILL_NV | PREFILL_AHEAD>(p, l1, l2, blocks, stream, err);
    default:
        return launch<LP_PREFILL_CODES | PREFILL_AHEAD>(p, l1, l2, blocks, stream, err);
    }
}

/* At most, with the tokens that are bound to come. */
int64_t token_tiles(const lp_megamoe_shape &s)
{
    return lp_moe_chunks_cap(s.tokens_bound * s.top_k, s.experts, PREFILL_ROWS);
}

lp_prefill_round_job round_job_of(const lp_moe_call *call, lp_prefill_kind kind, const lp_prefill_areas &areas)
{
    const lp_megamoe_shape &s = *call->shape;
    lp_prefill_round_job job = {};
    job.kind = kind, job.x_dtype = s.x_dtype;
    job.hidden = s.hidden, job.max_tokens = s.tokens_bound, job.tokens = call->io->tokens;
    job.x = call->io->x, job.x_scale = static_cast<const float *>(call->io->x_scale);
    job.to = areas.x, job.to_scale = areas.x_scale;
    return job;
}

/* Rows of x are rounded and go to the rows of their routes in one launch, which begins under the one that routes. */
lp_status run_route_and_hand_out(const lp_moe_call *call, lp_prefill_kind kind, const lp_moe_route_job &route,
                                 const lp_prefill_areas &areas, lp_error *err)
{
    LP_TRY(lp_moe_route(&route, call->stream, err));
    lp_prefill_round_job round = round_job_of(call, kind, areas);
    round.to = areas.rows, round.to_scale = areas.rows_scale;
    round.route_row = areas.routes.route_row, round.top_k = call->shape->top_k, round.late = route.early;
    return lp_prefill_round(&round, call->stream, err);
}

lp_status run_route(const lp_moe_call *call, lp_prefill_kind kind, const lp_prefill_areas &areas, lp_error *err)
{
    const lp_megamoe_shape &s = *call->shape;
    lp_moe_route_job job = moe_route_job_of(call, areas.routes, PREFILL_ROWS, PREFILL_ROWS);
    job.sync_words = static_cast<int32_t>(2 * areas.tiles + token_tiles(s) + 1);
    if (prefill_hands_out(kind))
        return run_route_and_hand_out(call, kind, job, areas, err);
    if (areas.x != nullptr && s.tokens_bound < MANY_TOKENS) { /* in one launch */
        job.gather = LP_MOE_GATHER_PREFILL, job.prefill_kind = kind;
        job.rows = areas.x, job.row_scale = areas.x_scale;
    } else if (areas.x != nullptr) {
        const lp_prefill_round_job round = round_job_of(call, kind, areas);
        LP_TRY(lp_prefill_round(&round, call->stream, err));
    }
    LP_TRY(lp_moe_route(&job, call->stream, err));
    lp_prefill_gather_job gather = {};
    gather.hidden = s.hidden, gather.top_k = s.top_k, gather.experts = s.experts;
    gather.row_bytes = s.hidden * prefill_element(kind);
    gather.start = areas.routes.start, gather.row_route = areas.routes.row_route;
    gather.x = areas.x != nullptr ? areas.x : call->io->x;
    gather.to = areas.rows, gather.to_scale = areas.rows_scale;
    if (areas.rows_scale != nullptr)
        gather.x_scale = areas.x_scale != nullptr ? areas.x_scale : static_cast<const float *>(call->io->x_scale);
    return lp_prefill_gather(&gather, call->stream, err);
}

prefill_arguments arguments_of(const lp_moe_call *call, lp_prefill_kind kind, bool is_ahead,
                               const lp_prefill_areas &areas)
{
    const lp_megamoe_shape &s = *call->shape;
    const lp_megamoe_weights &w = *call->weights;
    prefill_arguments p = {};
    p.tokens[0] = static_cast<const char *>(areas.rows), p.tokens[1] = static_cast<const char *>(areas.h);
    p.token_scale[0] = areas.rows_scale, p.token_scale[1] = areas.h_scale;
    const void *const scale[2] = {w.tensor[LP_MOE_L1_SCALE].data, w.tensor[LP_MOE_L2_SCALE].data};
    for (int i = 0; i < 2; i++) {
        p.weight_scale[i] = static_cast<const float *>(scale[i]);
        if (!prefill_decodes(kind))
            continue;
        p.codes[i] = static_cast<const char *>(w.tensor[i == 0 ? LP_MOE_L1_WEIGHT : LP_MOE_L2_WEIGHT].data);
        p.code_scale[i] = static_cast<const char *>(scale[i]);
        p.packed = call->family == LP_MOE_PACKED;
    }
    p.in_block = prefill_decodes(kind) && !is_ahead;
    p.made = static_cast<char *>(areas.made), p.reference = areas.reference;
    p.place_bytes = areas.place_bytes, p.places = static_cast<int>(areas.places);
    p.made_groups = areas.routes.sync, p.used = p.made_groups + areas.tiles, p.ready = p.used + areas.tiles;
    p.taken = p.ready + token_tiles(s);
    p.h = static_cast<char *>(areas.h), p.h_scale = areas.h_scale;
    p.out = static_cast<uint16_t *>(areas.out);
    if (call->sink != nullptr)
        p.sink = *call->sink;
    p.count = areas.routes.count, p.start = areas.routes.start, p.row_route = areas.routes.row_route;
    p.row_weight = areas.routes.row_weight;
    p.l1_alpha = w.l1_alpha, p.l2_alpha = w.l2_alpha, p.l2_activation_scale = w.l2_activation_scale;
    p.l1_alpha_columns = w.l1_alpha_columns;
    p.weight_in_h = s.format != LP_NVFP4, p.fast = s.fast;
    p.experts = static_cast<int>(s.experts);
    p.hidden = static_cast<int>(s.hidden), p.intermediate = static_cast<int>(s.intermediate);
    p.activation = s.activation, p.alpha = s.activation_alpha, p.beta = s.activation_beta, p.limit = s.activation_limit;
    return p;
}

} // namespace

extern "C" lp_status lp_prefill_run(const lp_moe_call *call, lp_error *err)
{
    const lp_megamoe_shape &s = *call->shape;
    const lp_prefill_kind kind = lp_prefill_kind_of(&s);
    lp_prefill_areas areas;
    lp_moe_space space = {call->workspace, 0};
    lp_prefill_take(&space, &s, &areas);
    int blocks;
    LP_TRY(moe_device_blocks(&blocks, err));
    const bool is_ahead = lp_prefill_decodes_ahead(&s);
    LP_TRY(run_route(call, kind, areas, err));
    const lp_megamoe_tensor *const tensor = call->weights->tensor;
    LP_TRY(launch_kind(kind | (is_ahead ? PREFILL_AHEAD : 0), arguments_of(call, kind, is_ahead, areas),
                       tensor[LP_MOE_L1_WEIGHT].data, tensor[LP_MOE_L2_WEIGHT].data, blocks, call->stream, err));
    return lp_moe_finish(call, areas.routes.route_row, areas.out, err);
}
