/* SPDX-License-Identifier: Apache-2.0 */
/* The path of MXFP8 whose weights are decoded in registers: what it takes, and its workspace. */
#include "kernels/m8.h"

/* Routes an expert up to which chunks are small. */
enum { FEW_ROUTES = 20, SOME_ROUTES = 56 };

static bool takes(const lp_megamoe_shape *shape, lp_moe_family family)
{
    (void)family;
    return shape->format == LP_MXFP8 && shape->hidden % 256 == 0 && shape->intermediate % 128 == 0 &&
           shape->tokens_bound * shape->top_k <= LP_M8_MOST_ROUTES * shape->experts;
}

int lp_m8_chunk_rows(const lp_megamoe_shape *shape)
{
    const int64_t routes = shape->tokens_bound * shape->top_k;
    return routes <= FEW_ROUTES * shape->experts    ? LP_M8_FEW_ROWS
           : routes <= SOME_ROUTES * shape->experts ? LP_M8_SOME_ROWS
                                                    : LP_M8_MOST_ROWS;
}

/* Sized for the most tokens with which the path is taken, in the finest chunks and the coarsest units. */
void lp_m8_take(lp_moe_space *space, const lp_megamoe_shape *shape, lp_m8_areas *areas)
{
    const int64_t most = LP_M8_MOST_ROUTES * shape->experts, asked = shape->max_tokens * shape->top_k;
    const int64_t routes = asked < most ? asked : most;
    const int64_t rows = lp_moe_rows_cap(routes, shape->experts, LP_M8_UNIT);
    const int64_t chunks = lp_moe_chunks_cap(routes, shape->experts, LP_M8_FEW_ROWS);
    lp_moe_take_routes(space, &areas->routes, shape->experts, routes, LP_M8_UNIT, LP_M8_FEW_ROWS,
                       LP_MOE_START_WORDS + 1 + chunks);
    areas->x = lp_moe_take(space, rows * shape->hidden, 2);
    areas->h = lp_moe_take(space, rows * shape->intermediate, 2);
    areas->out = lp_moe_take(space, rows * shape->hidden, 2);
}

static int64_t workspace(const lp_megamoe_shape *shape)
{
    lp_moe_space space = {NULL, 0};
    lp_m8_areas areas;
    lp_m8_take(&space, shape, &areas);
    return space.used;
}

#ifdef LOADPLAN_HAVE_CUDA
#define RUN lp_m8_run
#else
#define RUN NULL
#endif

const lp_moe_path lp_moe_path_m8 = {"m8", takes, workspace, RUN};
