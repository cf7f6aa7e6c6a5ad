/* SPDX-License-Identifier: Apache-2.0 */
/* The transport over sockets: messages, which the other thread moves, and waiting for them. */
#include "replayer/transport_tcp.h"

static void append(lp_queue *q, lp_message *m)
{
    if (q->last == NULL)
        q->first = m;
    else
        q->last->next = m;
    q->last = m;
}

static lp_status post(lp_tcp *t, const lp_transfer *transfer, int64_t count, lp_ticket *ticket, lp_error *err)
{
    for (int64_t i = 0; i < count; i++) {
        const lp_transfer *x = &transfer[i];
        if (x->peer < 0 || x->peer >= t->round.world || x->peer == t->round.rank || x->bytes < 0)
            return lp_fail(err, LP_E_ARGUMENT, "a message of %lld bytes with rank %d of %d", (long long)x->bytes,
                           x->peer, t->round.world);
        lp_message *m = lp_allocate_zero(t->alloc, sizeof *m);
        if (m == NULL)
            return lp_fail_memory(err);
        m->what = *x;
        m->ticket = ticket;
        ticket->left++;
        append(x->is_send ? &t->peer[x->peer].out : &t->peer[x->peer].in, m);
    }
    return LP_OK;
}

lp_status lp_tcp_start(void *context, const lp_transfer *transfer, int64_t count, int64_t *number, lp_error *err)
{
    lp_tcp *t = context;
    lp_ticket *ticket = lp_allocate_zero(t->alloc, sizeof *ticket);
    lp_status status = LP_OK;
    pthread_mutex_lock(&t->lock);
    *number = ++t->ticket_number;
    if (ticket == NULL) {
        status = lp_fail_memory(err);
    } else {
        ticket->number = *number;
        ticket->next = t->ticket;
        t->ticket = ticket;
        status = t->has_failed      ? lp_tcp_error(t, err)
                 : t->has_cancelled ? lp_fail(err, LP_E_MISUSE, "messages of this round were cancelled")
                                    : post(t, transfer, count, ticket, err);
    }
    if (status == LP_OK)
        lp_tcp_wake(t);
    else
        lp_tcp_cancel(t);
    pthread_mutex_unlock(&t->lock);
    return status;
}

/* The first rank that a message of the ticket goes to or comes from. */
static int32_t waits_for(const lp_tcp *t, const lp_ticket *ticket)
{
    for (int32_t i = 0; i < t->round.world; i++) {
        for (const lp_message *m = t->peer[i].in.first; m != NULL; m = m->next)
            if (m->ticket == ticket)
                return i;
        for (const lp_message *m = t->peer[i].out.first; m != NULL; m = m->next)
            if (m->ticket == ticket)
                return i;
    }
    return LP_WAITS_NOT;
}

static void wait_for(lp_tcp *t, lp_ticket *ticket)
{
    int64_t moved = ticket->moved, patience = t->patience, since = lp_clock_ns();
    bool has_complained = false;
    while (ticket->left > 0 && !t->has_failed) {
        t->waits_for = waits_for(t, ticket);
        const bool changed =
            lp_tcp_wait_until(t, since + t->stall_ns + (has_complained ? t->stall_ns / 4 + lp_tcp_grace_ns(t) : 0));
        if (ticket->left == 0)
            break;
        if (ticket->moved != moved || t->patience != patience) {
            moved = ticket->moved;
            patience = t->patience;
            since = lp_clock_ns();
            has_complained = false;
        } else if (!changed && has_complained) {
            lp_tcp_fail(t, "the meeting point does not answer");
        } else if (!changed) {
            has_complained = true;
            (void)lp_tcp_tell(t, LP_WIRE_STALL, t->waits_for, NULL, 0);
        }
    }
    t->waits_for = LP_WAITS_NOT;
}

lp_status lp_tcp_wait(void *context, int64_t number, lp_error *err)
{
    lp_tcp *t = context;
    lp_status status = LP_OK;
    pthread_mutex_lock(&t->lock);
    lp_ticket **at = &t->ticket;
    while (*at != NULL && (*at)->number != number)
        at = &(*at)->next;
    lp_ticket *ticket = *at;
    if (ticket == NULL) {
        status = t->has_failed ? lp_tcp_error(t, err) : lp_fail(err, LP_E_MISUSE, "there is no such ticket");
    } else {
        wait_for(t, ticket);
        if (ticket->left > 0) {
            status = lp_tcp_error(t, err);
            lp_tcp_cancel(t);
        } else {
            for (at = &t->ticket; *at != ticket;)
                at = &(*at)->next;
            *at = ticket->next;
            lp_release(t->alloc, ticket);
        }
    }
    pthread_mutex_unlock(&t->lock);
    return status;
}
