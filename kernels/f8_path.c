/* SPDX-License-Identifier: Apache-2.0 */
/* The path of whole-byte weights for few tokens an expert: what it takes, and its workspace. */
#include "kernels/f8_few.h"

#include "kernels/prefill.h"

/* Routes of an expert up to which the path is taken. */
static int64_t most_expected(const lp_megamoe_shape *shape)
{
    return shape->format == LP_MOE_BF16 ? LP_F8_EXPECTED_SOME : LP_F8_EXPECTED_MOST;
}

/* Where the path of many tokens multiplies the bytes as they are; there its bits are these. FP8 products of few columns
 * of h it multiplies as BF16 values: a rule of the shape, so that bits do not depend on the number of tokens. */
static bool takes(const lp_megamoe_shape *shape, lp_moe_family family)
{
    (void)family;
    const lp_prefill_kind kind = lp_prefill_kind_of(shape);
    return (kind == LP_PREFILL_FP8 || kind == LP_PREFILL_BF16) && shape->hidden % 256 == 0 &&
           shape->intermediate % 128 == 0 &&
           shape->tokens_bound * shape->top_k <= most_expected(shape) * shape->experts;
}

int lp_f8_chunk_rows(const lp_megamoe_shape *shape)
{
    const int64_t routes = shape->tokens_bound * shape->top_k;
    return routes <= LP_F8_EXPECTED_FEW * shape->experts    ? LP_F8_FEW_ROWS
           : routes <= LP_F8_EXPECTED_SOME * shape->experts ? LP_F8_SOME_ROWS
                                                            : LP_F8_MANY_ROWS;
}

/* Sized for the most tokens with which the path is taken, in the finer chunks and the coarser units. */
void lp_f8_take(lp_moe_space *space, const lp_megamoe_shape *shape, lp_f8_areas *areas)
{
    enum { ALIGN = 16 };
    const int64_t most = most_expected(shape) * shape->experts, asked = shape->max_tokens * shape->top_k;
    const int64_t routes = asked < most ? asked : most;
    const int64_t rows = lp_moe_rows_cap(routes, shape->experts, ALIGN);
    const int64_t chunks = lp_moe_chunks_cap(routes, shape->experts, LP_F8_FEW_ROWS);
    const bool scaled = shape->format != LP_MOE_BF16;
    const int64_t byte = scaled ? 1 : 2; /* of a token's value */
    lp_moe_take_routes(space, &areas->routes, shape->experts, routes, ALIGN, LP_F8_FEW_ROWS,
                       LP_MOE_START_WORDS + 1 + chunks);
    areas->x = lp_moe_take(space, rows * shape->hidden, byte);
    areas->h = lp_moe_take(space, rows * shape->intermediate, byte);
    areas->x_scale = areas->h_scale = NULL;
    if (scaled) {
        areas->x_scale = lp_moe_take(space, rows * (shape->hidden / 128), sizeof(float));
        areas->h_scale = lp_moe_take(space, rows * (shape->intermediate / 128), sizeof(float));
    }
    areas->out = lp_moe_take(space, rows * shape->hidden, 2);
}

static int64_t workspace(const lp_megamoe_shape *shape)
{
    lp_moe_space space = {NULL, 0};
    lp_f8_areas areas;
    lp_f8_take(&space, shape, &areas);
    return space.used;
}

#ifdef LOADPLAN_HAVE_CUDA
#define RUN lp_f8_few_run
#else
#define RUN NULL
#endif

const lp_moe_path lp_moe_path_f8_few = {"f8_few", takes, workspace, RUN};
