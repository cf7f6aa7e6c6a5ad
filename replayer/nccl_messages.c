/* SPDX-License-Identifier: Apache-2.0 */
/* Messages by NCCL, on one stream in the order in which they are started, and what waits for them. */
#include "replayer/nccl_private.h"
#include "replayer/transport_wire.h"

/* A message on the stream touches its memory until it is done, or until the communicator is aborted. What else is on
 * the stream waits for events of streams that go on without us. */
void lp_over_nccl_cancel(void *context)
{
    lp_over_nccl *t = context;
    for (int i = 0; i < LP_NCCL_TICKETS; i++) {
        if (t->ticket[i].has_stream)
            lp_over_nccl_drop(t);
        t->ticket[i] = (lp_nccl_ticket){.event = t->ticket[i].event};
    }
    if (t->device.stream_settle != NULL)
        (void)t->device.stream_settle(t->device.context, t->stream);
    t->sockets.cancel(t->sockets.context);
}

/* ---- messages ---- */

/* Messages that go on at the same time. */
static lp_status launch_group(lp_over_nccl *t, const lp_transfer *transfer, int64_t count, lp_error *err)
{
    int32_t peer = LP_WAITS_NOT; /* one of them */
    lp_status status = lp_nccl_check(&t->nccl, t->nccl.ncclGroupStart(), "begin messages", err);
    if (status != LP_OK)
        return status;
    for (int64_t i = 0; i < count && status == LP_OK; i++) {
        const lp_transfer *x = &transfer[i];
        if (x->is_host)
            continue;
        peer = x->peer;
        const int result =
            x->is_send ? t->nccl.ncclSend(x->data, (size_t)x->bytes, LP_NCCL_UINT8, x->peer, t->comm, t->stream)
                       : t->nccl.ncclRecv(x->data, (size_t)x->bytes, LP_NCCL_UINT8, x->peer, t->comm, t->stream);
        status = lp_nccl_check(&t->nccl, result, "start a message", err);
    }
    const int end = t->nccl.ncclGroupEnd(); /* also after a failure: a group must not stay open */
    return status != LP_OK ? status : lp_over_nccl_settle(t, end, peer, "start messages", err);
}

static lp_status launch(lp_over_nccl *t, const lp_transfer *transfer, int64_t count, int32_t peer, lp_error *err)
{
    LP_TRY(lp_over_nccl_connect(t, peer, err));
    for (int64_t first = 0, end; first < count; first = end) {
        bool has_message = false;
        for (end = first; end < count && (end == first || !transfer[end].is_behind); end++)
            has_message = has_message || !transfer[end].is_host;
        if (has_message)
            LP_TRY(launch_group(t, &transfer[first], end - first, err));
    }
    return LP_OK;
}

lp_status lp_over_nccl_start(void *context, const lp_transfer *transfer, int64_t count, int64_t *number, lp_error *err)
{
    lp_over_nccl *t = context;
    lp_nccl_ticket *ticket = NULL;
    lp_transfer *host = lp_allocate(t->alloc, ((size_t)count + 1) * sizeof *host);
    int64_t hosts = 0;
    for (int i = 0; i < LP_NCCL_TICKETS && ticket == NULL; i++)
        ticket = t->ticket[i].number == 0 ? &t->ticket[i] : NULL;
    lp_status status = LP_OK;
    if (host == NULL)
        status = lp_fail_memory(err);
    else if (ticket == NULL)
        status = lp_fail(err, LP_E_LIMIT, "too many messages are under way");
    else if (t->comm == NULL)
        status = lp_fail(err, LP_E_MISUSE, "messages of this round were cancelled");
    for (int64_t i = 0; i < count && status == LP_OK; i++) {
        if (transfer[i].is_host) {
            host[hosts++] = transfer[i];
        } else {
            ticket->has_stream = true;
            ticket->peer = transfer[i].peer;
        }
    }
    if (status == LP_OK && hosts > 0) {
        status = t->sockets.start(t->sockets.context, host, hosts, &ticket->sockets, err);
        ticket->has_sockets = true;
    }
    if (status == LP_OK)
        ticket->number = *number = ++t->last_ticket;
    if (status == LP_OK && ticket->has_stream) {
        status = launch(t, transfer, count, ticket->peer, err);
        if (status == LP_OK)
            status = lp_over_nccl_check(t, t->device.event_set(t->device.context, ticket->event, t->stream),
                                        "mark a stream", err);
    }
    lp_release(t->alloc, host);
    if (status != LP_OK)
        lp_over_nccl_cancel(t);
    return status;
}

static lp_status wait_event(lp_over_nccl *t, void *event, int32_t peer, lp_error *err)
{
    const int64_t since = lp_clock_ns();
    for (;;) {
        bool done = false;
        int result = LP_NCCL_SUCCESS;
        LP_TRY(lp_over_nccl_check(t, t->device.event_done(t->device.context, event, &done), "ask a stream", err));
        if (done)
            return LP_OK;
        LP_TRY(lp_nccl_check(&t->nccl, t->nccl.ncclCommGetAsyncError(t->comm, &result), "exchange messages", err));
        LP_TRY(lp_over_nccl_result(t, result, peer, "exchange messages", err));
        LP_TRY(t->sockets.check(t->sockets.context, peer, since, err));
        lp_over_nccl_rest(since);
    }
}

static lp_status find_ticket(lp_over_nccl *t, int64_t number, lp_nccl_ticket **out, lp_error *err)
{
    for (int i = 0; i < LP_NCCL_TICKETS; i++)
        if (t->ticket[i].number == number && number > 0) {
            *out = &t->ticket[i];
            return LP_OK;
        }
    return lp_fail(err, LP_E_MISUSE, "there is no such ticket");
}

lp_status lp_over_nccl_wait(void *context, int64_t number, lp_error *err)
{
    lp_over_nccl *t = context;
    lp_nccl_ticket *ticket = NULL;
    LP_TRY(find_ticket(t, number, &ticket, err));
    lp_status status = LP_OK;
    if (ticket->has_sockets)
        status = t->sockets.wait(t->sockets.context, ticket->sockets, err);
    if (status == LP_OK && ticket->has_stream)
        status = wait_event(t, ticket->event, ticket->peer, err);
    if (status != LP_OK) {
        lp_over_nccl_cancel(t);
        return status;
    }
    t->sockets.alive(t->sockets.context);
    *ticket = (lp_nccl_ticket){.event = ticket->event};
    return LP_OK;
}

static lp_status take_greeting(lp_over_nccl *t, lp_error *err)
{
    const int64_t bytes = t->round.world;
    if (t->greeting_bytes >= bytes)
        return LP_OK;
    if (t->greeting != NULL)
        t->device.release(t->device.context, t->greeting);
    t->greeting = NULL;
    t->greeting_bytes = 0;
    LP_TRY(
        lp_over_nccl_check(t, t->device.allocate(t->device.context, bytes, &t->greeting), "take device memory", err));
    t->greeting_bytes = bytes;
    return LP_OK;
}

/* A message of a byte to or from each, all of them at once. */
static lp_status greet(lp_over_nccl *t, lp_transfer *transfer, int32_t count, lp_error *err)
{
    int64_t ticket = 0;
    LP_TRY(take_greeting(t, err));
    for (int32_t i = 0; i < count; i++)
        transfer[i].data = (uint8_t *)t->greeting + i;
    LP_TRY(lp_over_nccl_start(t, transfer, count, &ticket, err));
    LP_TRY(lp_over_nccl_wait(t, ticket, err));
    for (int32_t i = 0; i < count; i++)
        t->has_met[transfer[i].peer] = true;
    return LP_OK;
}

lp_status lp_over_nccl_meet(void *context, const int32_t *peer, int32_t peers, bool is_send, lp_error *err)
{
    lp_over_nccl *t = context;
    int32_t count = 0;
    lp_transfer *transfer = lp_allocate(t->alloc, ((size_t)peers + 1) * sizeof *transfer);
    if (transfer == NULL)
        return lp_fail_memory(err);
    for (int32_t i = 0; i < peers; i++)
        if (t->has_met != NULL && !t->has_met[peer[i]])
            transfer[count++] = (lp_transfer){.peer = peer[i], .is_send = is_send, .bytes = 1};
    const lp_status status = count > 0 ? greet(t, transfer, count, err) : LP_OK;
    lp_release(t->alloc, transfer);
    return status;
}

/* ---- the order of streams ---- */

lp_status lp_over_nccl_after(void *context, void *event, lp_error *err)
{
    lp_over_nccl *t = context;
    return lp_over_nccl_check(t, t->device.stream_wait(t->device.context, t->stream, event), "order a message", err);
}

lp_status lp_over_nccl_follow(void *context, int64_t number, void *stream, lp_error *err)
{
    lp_over_nccl *t = context;
    lp_nccl_ticket *ticket = NULL;
    LP_TRY(find_ticket(t, number, &ticket, err));
    return lp_over_nccl_check(t, t->device.stream_wait(t->device.context, stream, ticket->event), "order a stream",
                              err);
}

lp_status lp_over_nccl_await(void *context, void *event, int32_t peer, lp_error *err)
{
    lp_over_nccl *t = context;
    const lp_status status = wait_event(t, event, peer, err);
    if (status != LP_OK)
        lp_over_nccl_cancel(t);
    return status;
}
