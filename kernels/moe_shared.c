/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared experts: every token has them, in a format and of a width that may differ from those of the routed experts.
 * They are computed as a call of one expert to which all tokens are routed with weight 1. Its rows, one a token, go to
 * a place of their own by the same way as rows that travel to another rank, and the combination adds them.
 */
#include "kernels/megamoe_private.h"

#include "traces/base.h"

/* Their part of the workspace. */
typedef struct areas {
    int32_t *ids;   /* [cap] 0 */
    float *weights; /* [cap] 1 */
    void *rows;     /* BF16 [cap, H] */
    char *inner;    /* workspace of the call */
} areas;

lp_megamoe_shape lp_megamoe_shared_shape(const lp_megamoe_shape *shape)
{
    lp_megamoe_shape s = *shape;
    s.experts = 1;
    s.first_expert = 0;
    s.top_k = 1;
    s.intermediate = shape->shared_intermediate;
    if (shape->shared_format != 0)
        s.format = shape->shared_format;
    s.id_dtype = LP_I32;
    s.shared_intermediate = 0;
    s.shared_format = 0;
    return s;
}

static int64_t take(lp_moe_space *space, const lp_megamoe_shape *shape, int64_t inner_bytes, areas *a)
{
    a->ids = lp_moe_take(space, shape->max_tokens, sizeof(int32_t));
    a->weights = lp_moe_take(space, shape->max_tokens, sizeof(float));
    a->rows = lp_moe_take(space, shape->max_tokens, shape->hidden * 2);
    a->inner = lp_moe_take(space, inner_bytes, 1);
    return space->used;
}

int64_t lp_moe_shared_workspace(const lp_megamoe_shape *shape, lp_error *err)
{
    if (shape->shared_intermediate == 0)
        return 0;
    const lp_megamoe_shape shared = lp_megamoe_shared_shape(shape);
    const int64_t inner = lp_megamoe_workspace(&shared, err);
    areas a;
    lp_moe_space space = {NULL, 0};
    if (inner == 0)
        return -1;
    if (take(&space, shape, inner, &a) < 0)
        (void)lp_fail(err, LP_E_LIMIT, "the workspace of the shared experts has more than 2^63 bytes");
    return space.used;
}

#ifdef LOADPLAN_HAVE_CUDA

lp_status lp_moe_shared_enqueue(const lp_megamoe_shape *shape, const lp_megamoe_weights *weights,
                                const lp_megamoe_io *io, void *workspace, void *stream, const void **rows,
                                lp_error *err)
{
    *rows = NULL;
    if (shape->shared_intermediate == 0)
        return LP_OK;
    const lp_megamoe_shape shared = lp_megamoe_shared_shape(shape);
    const int64_t bound = shape->tokens_bound > 0 ? shape->tokens_bound : shape->max_tokens;
    areas a;
    lp_moe_space space = {workspace, 0};
    (void)take(&space, shape, 0, &a); /* the last area: its size moves nothing */
    lp_megamoe_io own = *io;
    own.topk_ids = a.ids;
    own.topk_weight = a.weights;
    own.received = NULL;
    const lp_moe_sink sink = {.routes = (int32_t)bound, .slots = {a.rows}};
    LP_TRY(lp_moe_fill_shared_routes(a.ids, a.weights, bound, stream, err));
    LP_TRY(lp_moe_enqueue(&shared, weights->shared, &own, a.inner, stream, &sink, NULL, err));
    *rows = a.rows;
    return LP_OK;
}

#else

lp_status lp_moe_shared_enqueue(const lp_megamoe_shape *shape, const lp_megamoe_weights *weights,
                                const lp_megamoe_io *io, void *workspace, void *stream, const void **rows,
                                lp_error *err)
{
    (void)weights, (void)io, (void)workspace, (void)stream;
    *rows = NULL;
    return shape->shared_intermediate == 0 ? LP_OK
                                           : lp_fail(err, LP_E_UNSUPPORTED, "this library was built without CUDA");
}

#endif
