/* SPDX-License-Identifier: Apache-2.0 */
/* The path of many tokens an expert: what it takes, and its workspace. */
#include "kernels/prefill.h"

enum { ROWS = 128, EXPANDED_BYTES = 640 << 20 };

lp_prefill_kind lp_prefill_kind_of(lp_moe_format format)
{
    switch (format) {
    case LP_FP8_BLOCK128:
        return LP_PREFILL_FP8;
    case LP_MOE_BF16:
    case LP_NVFP4:
        return LP_PREFILL_BF16;
    case LP_MXFP4:
    case LP_MXFP8:
        break;
    }
    return LP_PREFILL_CODES;
}

int64_t lp_prefill_group(const lp_megamoe_shape *shape)
{
    if (shape->format == LP_FP8_BLOCK128 || shape->format == LP_MOE_BF16)
        return 0;
    const int64_t each = 3 * shape->hidden * shape->intermediate * 2, group = EXPANDED_BYTES / each;
    return group < 1 ? 1 : group < shape->experts ? group : shape->experts;
}

/* Sizes that the tiles of 256 rows of weights, in pairs, divide. */
static bool takes(const lp_megamoe_shape *shape, lp_moe_family family)
{
    (void)family;
    return shape->hidden % 256 == 0 && shape->intermediate % 128 == 0;
}

void lp_prefill_take(lp_moe_space *space, const lp_megamoe_shape *shape, lp_prefill_areas *areas)
{
    const int64_t routes = shape->max_tokens * shape->top_k;
    const int64_t rows = lp_moe_rows_cap(routes, shape->experts, ROWS);
    const int64_t chunks = lp_moe_chunks_cap(routes, shape->experts, ROWS);
    const int64_t hidden = shape->hidden, inner = shape->intermediate, group = lp_prefill_group(shape);
    const lp_prefill_kind kind = lp_prefill_kind_of(shape->format);
    const int64_t byte = kind == LP_PREFILL_FP8 ? 1 : 2;
    lp_moe_take_routes(space, &areas->routes, shape->experts, routes, ROWS, ROWS, chunks);
    areas->x = lp_moe_take(space, rows * hidden, byte);
    areas->h = lp_moe_take(space, rows * inner, byte);
    areas->x_scale = areas->h_scale = NULL;
    if (kind != LP_PREFILL_BF16) {
        areas->x_scale = lp_moe_take(space, rows * (hidden / 128), sizeof(float));
        areas->h_scale = lp_moe_take(space, rows * (inner / 128), sizeof(float));
    }
    areas->out = lp_moe_take(space, rows * hidden, 2);
    areas->l1 = areas->l2 = NULL;
    if (group > 0) {
        areas->l1 = lp_moe_take(space, group * 2 * inner * hidden, 2);
        areas->l2 = lp_moe_take(space, group * inner * hidden, 2);
    }
}

static int64_t workspace(const lp_megamoe_shape *shape)
{
    lp_moe_space space = {NULL, 0};
    lp_prefill_areas areas;
    lp_prefill_take(&space, shape, &areas);
    return space.used;
}

#ifdef LOADPLAN_HAVE_CUDA
const lp_moe_path lp_moe_path_prefill = {"prefill", takes, workspace, lp_prefill_run};
#else
const lp_moe_path lp_moe_path_prefill = {"prefill", takes, workspace, NULL};
#endif
