/* SPDX-License-Identifier: Apache-2.0 */
/* The path of 4-bit weights for few tokens an expert: what it takes, and its workspace. */
#include "kernels/w4_decode.h"

static bool takes(const lp_megamoe_shape *shape, lp_moe_family family)
{
    return (shape->format == LP_MXFP4 || shape->format == LP_NVFP4) && family == LP_MOE_PACKED;
}

void lp_w4_take(lp_moe_space *space, const lp_megamoe_shape *shape, lp_w4_areas *areas)
{
    const int64_t routes = shape->max_tokens * shape->top_k;
    const int64_t rows = lp_moe_rows_cap(routes, shape->experts, LP_W4_ALIGN);
    const int64_t chunks = lp_moe_chunks_cap(routes, shape->experts, LP_W4_FEW_ROWS);
    const int64_t byte = shape->format == LP_MXFP4 && !lp_moe_wide_products(shape) ? 1 : 2; /* of a token's value */
    lp_moe_take_routes(space, &areas->routes, shape->experts, routes, LP_W4_ALIGN, LP_W4_FEW_ROWS,
                       LP_MOE_START_WORDS + 1 + chunks);
    areas->x = lp_moe_take(space, rows * shape->hidden, byte);
    areas->x_scale = lp_moe_take(space, rows * (shape->hidden / 128), sizeof(float));
    areas->h = lp_moe_take(space, rows * shape->intermediate, byte);
    areas->h_scale = lp_moe_take(space, rows * (shape->intermediate / 128), sizeof(float));
    areas->zero = lp_moe_take(space, LP_W4_MIDDLE_ROWS * 128, 2);
    areas->out = lp_moe_take(space, rows * shape->hidden, 2);
}

static int64_t workspace(const lp_megamoe_shape *shape)
{
    lp_moe_space space = {NULL, 0};
    lp_w4_areas areas;
    lp_w4_take(&space, shape, &areas);
    return space.used;
}

#ifdef LOADPLAN_HAVE_CUDA
#define RUN lp_w4_decode_run
#else
#define RUN NULL
#endif

const lp_moe_path lp_moe_path_w4_decode = {"w4_decode", takes, workspace, RUN};
