/* SPDX-License-Identifier: Apache-2.0 */
/* The call over several ranks: sizes, checks, and its launches around those of one rank. */
#include "kernels/exchange_private.h"

#include "traces/base.h"

#include <stdio.h>

enum { BUFFER_ALIGNMENT = 256, HEADER_BYTES = 2048 };
_Static_assert(sizeof(lp_moe_exchange_header) <= HEADER_BYTES, "x begins behind the header");
_Static_assert((int)LP_MOE_EXCHANGE_RANKS == (int)LP_MOE_MOST_RANKS, "a sink has a place for every rank");

static const int64_t TIMEOUT_NS = 300LL * 1000000000;

static bool travels_as_e4m3(const lp_megamoe_shape *shape)
{
    return shape->format != LP_NVFP4 && shape->format != LP_MOE_BF16;
}

lp_status lp_moe_exchange_inner(lp_megamoe_shape *inner, const lp_megamoe_shape *shape, int32_t rank, int32_t ranks,
                                lp_error *err)
{
    LP_TRY(lp_moe_check_shape(shape, err));
    if (ranks < 1 || ranks > LP_MOE_EXCHANGE_RANKS)
        return lp_fail(err, LP_E_ARGUMENT, "ranks is %d, not 1 to %d", (int)ranks, LP_MOE_EXCHANGE_RANKS);
    if (rank < 0 || rank >= ranks)
        return lp_fail(err, LP_E_ARGUMENT, "rank %d is not one of %d", (int)rank, (int)ranks);
    const int64_t bound = shape->tokens_bound > 0 ? shape->tokens_bound : shape->max_tokens;
    *inner = *shape;
    inner->max_tokens = shape->max_tokens * ranks;
    inner->tokens_bound = bound * ranks;
    inner->first_expert = shape->experts * rank;
    inner->x_dtype = travels_as_e4m3(shape) ? LP_F8_E4M3 : LP_BF16;
    inner->id_dtype = LP_I32;
    inner->shared_intermediate = 0; /* the owner of a token computes them */
    inner->shared_format = 0;
    lp_error why = {0};
    if (lp_moe_check_shape(inner, &why) != LP_OK)
        return lp_fail(err, why.code, "of %d ranks together: %s", (int)ranks, why.text);
    return LP_OK;
}

lp_moe_exchange_places lp_moe_exchange_layout(const lp_megamoe_shape *shape, int32_t ranks)
{
    const int64_t all = shape->max_tokens * ranks, row_bytes = shape->hidden * (travels_as_e4m3(shape) ? 1 : 2);
    lp_moe_space space = {NULL, 0};
    lp_moe_exchange_places p = {.row_bytes = row_bytes};
    (void)lp_moe_take(&space, 1, HEADER_BYTES);
    p.x = space.used;
    (void)lp_moe_take(&space, all, row_bytes);
    p.x_scale = space.used;
    if (travels_as_e4m3(shape))
        (void)lp_moe_take(&space, all, shape->hidden / 128 * (int64_t)sizeof(float));
    p.ids = space.used;
    (void)lp_moe_take(&space, all * shape->top_k, sizeof(int32_t));
    p.weights = space.used;
    (void)lp_moe_take(&space, all * shape->top_k, sizeof(float));
    p.slots = space.used;
    (void)lp_moe_take(&space, shape->max_tokens * shape->top_k, shape->hidden * 2);
    p.bytes = space.used;
    return p;
}

int64_t lp_moe_exchange_bytes(const lp_megamoe_shape *shape, int32_t ranks, lp_error *err)
{
    lp_megamoe_shape inner;
    return lp_moe_exchange_inner(&inner, shape, 0, ranks, err) == LP_OK ? lp_moe_exchange_layout(shape, ranks).bytes
                                                                        : 0;
}

static int64_t table_bytes(const lp_megamoe_shape *shape)
{
    lp_moe_space space = {NULL, 0};
    (void)lp_moe_take(&space, shape->max_tokens * shape->top_k, sizeof(int32_t));
    return space.used;
}

/* What lies in front of the workspace of the routed experts; -1 with *err. */
static int64_t own_bytes(const lp_megamoe_shape *shape, lp_error *err)
{
    const int64_t shared = lp_moe_shared_workspace(shape, err);
    return shared < 0 ? -1 : table_bytes(shape) + shared;
}

int64_t lp_moe_exchange_workspace(const lp_megamoe_shape *shape, int32_t ranks, lp_error *err)
{
    lp_megamoe_shape inner;
    if (lp_moe_exchange_inner(&inner, shape, 0, ranks, err) != LP_OK)
        return 0;
    const int64_t bytes = lp_megamoe_workspace(&inner, err), own = own_bytes(shape, err);
    return bytes > 0 && own >= 0 ? bytes + own : 0;
}

void lp_moe_exchange_terms(const lp_megamoe_shape *shape, int32_t ranks, char *text, size_t text_bytes)
{
    (void)snprintf(text, text_bytes,
                   "%d ranks, format %d, %lld experts a rank from %lld, hidden %lld, intermediate %lld, top %lld, "
                   "at most %lld tokens, activation %d (%.9g, %.9g, %.9g)%s, shared %lld of format %d",
                   (int)ranks, (int)shape->format, (long long)shape->experts, (long long)shape->first_expert,
                   (long long)shape->hidden, (long long)shape->intermediate, (long long)shape->top_k,
                   (long long)shape->max_tokens, (int)shape->activation, (double)shape->activation_alpha,
                   (double)shape->activation_beta, (double)shape->activation_limit, shape->fast ? ", fast" : "",
                   (long long)shape->shared_intermediate, (int)shape->shared_format);
}

/* ---- checks ---- */

static lp_status check_buffers(const lp_megamoe_shape *shape, const lp_moe_exchange *exchange, lp_error *err)
{
    const lp_moe_exchange_places places = lp_moe_exchange_layout(shape, exchange->ranks);
    if (exchange->timeout_ns < 0)
        return lp_fail(err, LP_E_ARGUMENT, "the exchange's timeout is negative");
    if (exchange->buffer_bytes < places.bytes)
        return lp_fail(err, LP_E_ARGUMENT, "buffers have %lld bytes, %lld are needed",
                       (long long)exchange->buffer_bytes, (long long)places.bytes);
    for (int32_t r = 0; r < exchange->ranks; r++) {
        if (exchange->buffer[r] == NULL)
            return lp_fail(err, LP_E_ARGUMENT, "the buffer of rank %d is missing", (int)r);
        if ((uintptr_t)exchange->buffer[r] % BUFFER_ALIGNMENT != 0)
            return lp_fail(err, LP_E_ARGUMENT, "the buffer of rank %d is not aligned to %d bytes", (int)r,
                           BUFFER_ALIGNMENT);
        for (int32_t other = 0; other < r; other++)
            if (exchange->buffer[r] == exchange->buffer[other])
                return lp_fail(err, LP_E_ARGUMENT, "ranks %d and %d have one buffer", (int)other, (int)r);
    }
    return LP_OK;
}

/* What this rank computes on what has arrived. y is not written: rows go to the ranks of their tokens. */
static lp_megamoe_io inner_io(const lp_megamoe_io *io, const lp_moe_exchange *exchange,
                              const lp_moe_exchange_places *places)
{
    char *const own = exchange->buffer[exchange->rank];
    const bool has_scale = places->x_scale != places->ids;
    return (lp_megamoe_io){.size = sizeof(lp_megamoe_io),
                           .x = own + places->x,
                           .x_scale = has_scale ? own + places->x_scale : NULL,
                           .topk_ids = own + places->ids,
                           .topk_weight = (const float *)(void *)(own + places->weights),
                           .tokens = &((const lp_moe_exchange_header *)(void *)own)->tokens,
                           .y = own + places->slots,
                           .received = io->received};
}

lp_status lp_moe_exchange_check(const lp_megamoe_shape *shape, const lp_megamoe_weights *weights,
                                const lp_megamoe_io *io, const lp_moe_exchange *exchange, const void *workspace,
                                int64_t workspace_bytes, lp_error *err)
{
    if (exchange == NULL || exchange->size != sizeof *exchange)
        return lp_fail(err, LP_E_ARGUMENT, "the exchange's size field is not sizeof(lp_moe_exchange)");
    lp_megamoe_shape inner;
    LP_TRY(lp_moe_exchange_inner(&inner, shape, exchange->rank, exchange->ranks, err));
    LP_TRY(check_buffers(shape, exchange, err));
    LP_TRY(lp_megamoe_check(shape, weights, io, workspace, INT64_MAX, err)); /* the size is judged below */
    lp_megamoe_weights routed = *weights;
    routed.shared = NULL;
    const lp_moe_exchange_places places = lp_moe_exchange_layout(shape, exchange->ranks);
    const lp_megamoe_io own = inner_io(io, exchange, &places);
    return lp_megamoe_check(&inner, &routed, &own, workspace, workspace_bytes - own_bytes(shape, err), err);
}

/* ---- the call ---- */

static lp_moe_exchange with_timeout(const lp_moe_exchange *exchange)
{
    lp_moe_exchange e = *exchange;
    if (e.timeout_ns == 0)
        e.timeout_ns = TIMEOUT_NS;
    return e;
}

#ifdef LOADPLAN_HAVE_CUDA

static lp_moe_send_job send_job(const lp_megamoe_shape *shape, const lp_megamoe_io *io, const lp_moe_exchange *exchange,
                                const lp_moe_exchange_places *places, int32_t *route_row)
{
    const int64_t bound = shape->tokens_bound > 0 ? shape->tokens_bound : shape->max_tokens;
    return (lp_moe_send_job){.exchange = *exchange,
                             .places = *places,
                             .x_dtype = shape->x_dtype,
                             .id_dtype = shape->id_dtype,
                             .quantises = travels_as_e4m3(shape) && shape->x_dtype == LP_BF16,
                             .has_scales = travels_as_e4m3(shape),
                             .is_mx = shape->format == LP_MXFP8,
                             .bound = (int32_t)bound,
                             .choices = (int32_t)shape->top_k,
                             .experts = (int32_t)shape->experts,
                             .hidden = shape->hidden,
                             .first_expert = shape->first_expert,
                             .x = io->x,
                             .topk_ids = io->topk_ids,
                             .x_scale = io->x_scale,
                             .topk_weight = io->topk_weight,
                             .tokens = io->tokens,
                             .route_row = route_row};
}

lp_status lp_moe_exchange_run(const lp_megamoe_shape *shape, const lp_megamoe_weights *weights, const lp_megamoe_io *io,
                              const lp_moe_exchange *exchange, void *workspace, int64_t workspace_bytes, void *stream,
                              lp_error *err)
{
    LP_TRY(lp_moe_exchange_check(shape, weights, io, exchange, workspace, workspace_bytes, err));
    const lp_moe_exchange e = with_timeout(exchange);
    const lp_moe_exchange_places places = lp_moe_exchange_layout(shape, e.ranks);
    lp_megamoe_shape inner;
    LP_TRY(lp_moe_exchange_inner(&inner, shape, e.rank, e.ranks, err));
    int32_t *const route_row = workspace;
    char *const shared_space = (char *)workspace + table_bytes(shape), *const rest =
                                                                           (char *)workspace + own_bytes(shape, err);
    const lp_moe_send_job send = send_job(shape, io, &e, &places, route_row);
    lp_moe_sink sink = {.routes = send.bound * send.choices, .early = !e.shares_gpu};
    for (int32_t r = 0; r < e.ranks; r++)
        sink.slots[r] = (char *)e.buffer[r] + places.slots;
    const lp_megamoe_io received = inner_io(io, &e, &places);
    const void *shared_rows;
    LP_TRY(lp_moe_send(&send, stream, err));
    LP_TRY(lp_moe_shared_enqueue(shape, weights, io, shared_space, stream, &shared_rows, err));
    LP_TRY(lp_moe_enqueue(&inner, weights, &received, rest, stream, &sink, NULL, err));
    LP_TRY(lp_moe_meet(&e, send.bound, stream, err));
    const lp_moe_combine_job combine = {.hidden = shape->hidden,
                                        .top_k = shape->top_k,
                                        .max_tokens = send.bound,
                                        .tokens = io->tokens,
                                        .route_row = route_row,
                                        .topk_weight = shape->format == LP_NVFP4 ? io->topk_weight : NULL,
                                        .rows = sink.slots[e.rank],
                                        .shared_rows = shared_rows,
                                        .y = io->y};
    return lp_moe_combine(&combine, !e.shares_gpu, stream, err);
}

lp_status lp_moe_exchange_clear(void *buffer, int64_t buffer_bytes, void *stream, lp_error *err)
{
    if (buffer == NULL || (uintptr_t)buffer % BUFFER_ALIGNMENT != 0 || buffer_bytes < HEADER_BYTES)
        return lp_fail(err, LP_E_ARGUMENT, "the exchange's buffer is missing, too small or not aligned to %d bytes",
                       BUFFER_ALIGNMENT);
    return lp_moe_fill_header(buffer, stream, err);
}

lp_status lp_moe_exchange_failure(const lp_moe_exchange *exchange, void *stream, lp_moe_failure *failure, lp_error *err)
{
    static const char *const what[] = {"", "sent no tokens", "sent no rows back", "called with another tokens_bound"};
    uint64_t word = 0;
    LP_TRY(lp_moe_read_failure(exchange, stream, &word, err));
    *failure = lp_moe_unpack_failure(word);
    if (word == 0)
        return LP_OK;
    const char *const text = failure->kind <= LP_MOE_OTHER_BOUND ? what[failure->kind] : "failed";
    return lp_fail(err, LP_E_PEER, "rank %d %s in call %u, says rank %d", (int)failure->rank, text,
                   (unsigned)failure->call, (int)failure->by);
}

#else

static lp_status no_cuda(lp_error *err)
{
    return lp_fail(err, LP_E_UNSUPPORTED, "this library was built without CUDA");
}

lp_status lp_moe_exchange_run(const lp_megamoe_shape *shape, const lp_megamoe_weights *weights, const lp_megamoe_io *io,
                              const lp_moe_exchange *exchange, void *workspace, int64_t workspace_bytes, void *stream,
                              lp_error *err)
{
    (void)stream;
    (void)with_timeout;
    LP_TRY(lp_moe_exchange_check(shape, weights, io, exchange, workspace, workspace_bytes, err));
    return no_cuda(err);
}

lp_status lp_moe_exchange_clear(void *buffer, int64_t buffer_bytes, void *stream, lp_error *err)
{
    (void)buffer, (void)buffer_bytes, (void)stream;
    return no_cuda(err);
}

lp_status lp_moe_exchange_failure(const lp_moe_exchange *exchange, void *stream, lp_moe_failure *failure, lp_error *err)
{
    (void)exchange, (void)stream, (void)failure;
    return no_cuda(err);
}

#endif
