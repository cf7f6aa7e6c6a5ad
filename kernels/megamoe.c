/* SPDX-License-Identifier: Apache-2.0 */
/* The call: checks, defaults, the choice of a path, and the sharing out of a workspace. */
#include "kernels/megamoe_private.h"

#include "traces/base.h"

/* In order of preference. */
static const lp_moe_path *const paths[] = {&lp_moe_path_prefill_w4, &lp_moe_path_w4_decode, &lp_moe_path_f8_few,
                                           &lp_moe_path_m8, &lp_moe_path_prefill};
/* Those of them that obey a sink. */
static const lp_moe_path *const sending_paths[] = {&lp_moe_path_prefill_w4, &lp_moe_path_w4_decode, &lp_moe_path_f8_few,
                                                   &lp_moe_path_m8, &lp_moe_path_prefill};
enum { PATHS = sizeof paths / sizeof paths[0], SENDING = sizeof sending_paths / sizeof sending_paths[0], PIECE = 256 };

bool lp_moe_wide_products(const lp_megamoe_shape *shape)
{
    enum { MANY_COLUMNS = 2048 };
    return shape->format == LP_MXFP4 && shape->intermediate < MANY_COLUMNS;
}

/* ---- workspace ---- */

void *lp_moe_take(lp_moe_space *space, int64_t count, int64_t element_bytes)
{
    int64_t bytes, end;
    if (space->used < 0 || !lp_mul(count, element_bytes, &bytes) || !lp_add(bytes, PIECE - 1, &bytes) ||
        !lp_add(space->used, bytes / PIECE * PIECE, &end)) {
        space->used = -1;
        return NULL;
    }
    char *const piece = space->base != NULL ? space->base + space->used : NULL;
    space->used = end;
    return piece;
}

int64_t lp_moe_rows_cap(int64_t routes, int64_t experts, int64_t align)
{
    const int64_t hit = routes < experts ? routes : experts;
    return (routes + hit * (align - 1)) / align * align;
}

int64_t lp_moe_chunks_cap(int64_t routes, int64_t experts, int64_t chunk_rows)
{
    return routes / chunk_rows + (routes < experts ? routes : experts);
}

void lp_moe_take_routes(lp_moe_space *space, lp_moe_routes *routes, int64_t experts, int64_t routes_cap, int64_t align,
                        int64_t chunk_rows, int64_t sync_words)
{
    const int64_t rows = lp_moe_rows_cap(routes_cap, experts, align);
    routes->count = lp_moe_take(space, experts, sizeof(int32_t));
    routes->start = lp_moe_take(space, experts + 1, sizeof(int32_t));
    routes->first_chunk = lp_moe_take(space, experts, sizeof(int32_t));
    routes->row_route = lp_moe_take(space, rows, sizeof(int32_t));
    routes->row_weight = lp_moe_take(space, rows, sizeof(float));
    routes->route_row = lp_moe_take(space, routes_cap, sizeof(int32_t));
    routes->chunk = lp_moe_take(space, lp_moe_chunks_cap(routes_cap, experts, chunk_rows), sizeof(lp_moe_chunk));
    routes->chunks = lp_moe_take(space, 1, sizeof(int32_t));
    routes->block_count = lp_moe_take(space, LP_MOE_ROUTE_BLOCKS * experts, sizeof(int32_t));
    routes->sync = lp_moe_take(space, sync_words, sizeof(int32_t));
}

static lp_megamoe_shape with_defaults(const lp_megamoe_shape *shape)
{
    lp_megamoe_shape s = *shape;
    if (s.tokens_bound == 0)
        s.tokens_bound = s.max_tokens;
    if (s.activation_alpha == 0.0f)
        s.activation_alpha = 1.0f;
    return s;
}

/* Without shared experts: the largest that any path needs which a later tokens_bound or another family of weights
 * might choose. */
static int64_t routed_workspace(const lp_megamoe_shape *shape, lp_error *err)
{
    lp_megamoe_shape s = with_defaults(shape), few = s;
    s.tokens_bound = s.max_tokens;
    few.tokens_bound = 1;
    int64_t most = 0;
    for (int i = 0; i < PATHS; i++) {
        const lp_moe_path *const path = paths[i];
        if (!path->takes(&s, LP_MOE_PACKED) && !path->takes(&s, LP_MOE_CONTRACT) && !path->takes(&few, LP_MOE_PACKED) &&
            !path->takes(&few, LP_MOE_CONTRACT))
            continue;
        const int64_t bytes = path->workspace(&s);
        if (bytes < 0) {
            (void)lp_fail(err, LP_E_LIMIT, "the workspace of this shape has more than 2^63 bytes");
            return 0;
        }
        if (bytes > most)
            most = bytes;
    }
    if (most == 0)
        (void)lp_fail(err, LP_E_UNSUPPORTED, "no kernel computes this weight format yet");
    return most;
}

int64_t lp_megamoe_workspace(const lp_megamoe_shape *shape, lp_error *err)
{
    if (lp_moe_check_shape(shape, err) != LP_OK)
        return 0;
    const int64_t routed = routed_workspace(shape, err), shared = lp_moe_shared_workspace(shape, err);
    int64_t all;
    if (routed == 0 || shared < 0)
        return 0;
    if (lp_add(routed, shared, &all))
        return all;
    (void)lp_fail(err, LP_E_LIMIT, "the workspace of this shape has more than 2^63 bytes");
    return 0;
}

/* ---- the call ---- */

lp_status lp_moe_enqueue(const lp_megamoe_shape *shape, const lp_megamoe_weights *weights, const lp_megamoe_io *io,
                         void *workspace, void *stream, const lp_moe_sink *sink, const void *shared_rows, lp_error *err)
{
    const lp_megamoe_shape s = with_defaults(shape);
    const lp_moe_call call = {&s, weights, io, lp_moe_family_of(weights), workspace, stream, sink, shared_rows};
    const lp_moe_path *const *const from = sink == NULL ? paths : sending_paths;
    for (int i = 0; i < (sink == NULL ? PATHS : SENDING); i++)
        if (from[i]->takes(&s, call.family))
            return from[i]->run != NULL ? from[i]->run(&call, err)
                                        : lp_fail(err, LP_E_UNSUPPORTED, "this library was built without CUDA");
    return lp_fail(err, LP_E_UNSUPPORTED, "no kernel reads layout '%s' yet", weights->tensor[0].layout);
}

lp_status lp_megamoe(const lp_megamoe_shape *shape, const lp_megamoe_weights *weights, const lp_megamoe_io *io,
                     void *workspace, int64_t workspace_bytes, void *stream, lp_error *err)
{
    LP_TRY(lp_megamoe_check(shape, weights, io, workspace, workspace_bytes, err));
    const int64_t shared_bytes = lp_moe_shared_workspace(shape, err);
    const void *shared_rows;
    LP_TRY(lp_moe_shared_enqueue(shape, weights, io, workspace, stream, &shared_rows, err));
    return lp_moe_enqueue(shape, weights, io, (char *)workspace + shared_bytes, stream, NULL, shared_rows, err);
}
