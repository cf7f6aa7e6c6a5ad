/* SPDX-License-Identifier: Apache-2.0 */
/* The path of many tokens an expert: what it takes, and its workspace. */
#include "kernels/m8.h"
#include "kernels/prefill.h"

enum { ROWS = 128, COLUMNS = 256 };

/* The matrix unit keeps about 14 bits while it adds FP8 products. Over many columns of h that evens out; over few of
 * them a single code that flips shows, so they are multiplied as BF16 values. */
lp_prefill_kind lp_prefill_kind_of(const lp_megamoe_shape *shape)
{
    switch (shape->format) {
    case LP_FP8_BLOCK128:
        return shape->intermediate < 2048 ? LP_PREFILL_FP8_WIDE : LP_PREFILL_FP8;
    case LP_MOE_BF16:
        return LP_PREFILL_BF16;
    case LP_NVFP4:
        return LP_PREFILL_NV;
    case LP_MXFP4:
        return lp_moe_wide_products(shape) ? LP_PREFILL_MX_WIDE : LP_PREFILL_MX;
    case LP_MXFP8:
        break;
    }
    return LP_PREFILL_CODES;
}

/* Routes of an expert above which weights are decoded ahead. Below it that takes longer than the products, and blocks
 * are faster that decode for themselves. The most of an integer: never. */
static int64_t ahead_routes(lp_prefill_kind kind)
{
    switch (kind) {
    case LP_PREFILL_MX:
        return 512;
    case LP_PREFILL_NV:
        return 384;
    case LP_PREFILL_CODES:
        return LP_M8_MOST_ROUTES; /* always: with fewer it is not taken */
    case LP_PREFILL_FP8:
    case LP_PREFILL_BF16:
    case LP_PREFILL_FP8_WIDE:
    case LP_PREFILL_MX_WIDE:
        break;
    }
    return INT32_MAX;
}

static bool is_ahead(const lp_megamoe_shape *shape, int64_t tokens)
{
    return tokens * shape->top_k > ahead_routes(lp_prefill_kind_of(shape)) * shape->experts;
}

bool lp_prefill_decodes_ahead(const lp_megamoe_shape *shape)
{
    return is_ahead(shape, shape->tokens_bound);
}

static bool takes(const lp_megamoe_shape *shape, lp_moe_family family)
{
    (void)family;
    const bool is_few =
        shape->format == LP_MXFP8 && shape->tokens_bound * shape->top_k <= LP_M8_MOST_ROUTES * shape->experts;
    return shape->hidden % 256 == 0 && shape->intermediate % 128 == 0 && !is_few;
}

/* 4-bit weights packed by tiles have a path of their own, which decodes them once for 128 tokens at most. With so many
 * routes of an expert this one, which decodes them ahead, once a call, is faster for MXFP4; never for NVFP4, whose
 * products cover the decoding better there. */
static bool takes_packed(const lp_megamoe_shape *shape, lp_moe_family family)
{
    const int64_t most = 672;
    return shape->format == LP_MXFP4 && family == LP_MOE_PACKED && takes(shape, family) &&
           !lp_moe_wide_products(shape) && shape->tokens_bound * shape->top_k > most * shape->experts;
}

void lp_prefill_take(lp_moe_space *space, const lp_megamoe_shape *shape, lp_prefill_areas *areas)
{
    const int64_t routes = shape->max_tokens * shape->top_k;
    const int64_t rows = lp_moe_rows_cap(routes, shape->experts, ROWS);
    const int64_t chunks = lp_moe_chunks_cap(routes, shape->experts, ROWS);
    const int64_t hidden = shape->hidden, inner = shape->intermediate;
    const lp_prefill_kind kind = lp_prefill_kind_of(shape);
    const bool scaled = kind != LP_PREFILL_BF16 && kind != LP_PREFILL_NV && kind != LP_PREFILL_CODES;
    const int64_t byte = kind == LP_PREFILL_FP8 || kind == LP_PREFILL_MX ? 1 : 2;
    const bool as_given = kind == LP_PREFILL_BF16 || kind == LP_PREFILL_FP8; /* no rounded x beside its rows */
    areas->tiles = is_ahead(shape, shape->max_tokens) ? shape->experts * (inner / 128 + hidden / COLUMNS) : 0;
    areas->places = areas->tiles < LP_PREFILL_PLACES ? areas->tiles : LP_PREFILL_PLACES;
    areas->place_bytes = COLUMNS * (hidden > inner ? hidden : inner) * byte;
    lp_moe_take_routes(space, &areas->routes, shape->experts, routes, ROWS, ROWS, 2 * areas->tiles + chunks + 1);
    areas->x = NULL;
    areas->x_scale = areas->h_scale = NULL;
    if (!as_given)
        areas->x = lp_moe_take(space, shape->max_tokens * hidden, byte);
    if (!as_given && scaled)
        areas->x_scale = lp_moe_take(space, shape->max_tokens * (hidden / 128), sizeof(float));
    areas->rows_scale = NULL;
    areas->rows = lp_moe_take(space, rows * hidden, byte);
    if (scaled)
        areas->rows_scale = lp_moe_take(space, rows * (hidden / 128), sizeof(float));
    areas->h = lp_moe_take(space, rows * inner, byte);
    if (scaled)
        areas->h_scale = lp_moe_take(space, rows * (inner / 128), sizeof(float));
    areas->out = lp_moe_take(space, rows * hidden, 2);
    areas->made = lp_moe_take(space, areas->places, areas->place_bytes);
    areas->reference = lp_moe_take(space, areas->tiles, COLUMNS);
}

static int64_t workspace(const lp_megamoe_shape *shape)
{
    lp_moe_space space = {NULL, 0};
    lp_prefill_areas areas;
    lp_prefill_take(&space, shape, &areas);
    return space.used;
}

#ifdef LOADPLAN_HAVE_CUDA
#define RUN lp_prefill_run
#else
#define RUN NULL
#endif

const lp_moe_path lp_moe_path_prefill = {"prefill", takes, workspace, RUN};
const lp_moe_path lp_moe_path_prefill_w4 = {"prefill_w4", takes_packed, workspace, RUN};
