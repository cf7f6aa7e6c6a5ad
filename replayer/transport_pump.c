/* SPDX-License-Identifier: Apache-2.0 */
/* The thread that moves bytes: what it polls, and control messages. Connections between ranks are in
 * transport_peers.c. */
#include "replayer/transport_tcp.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

enum { NAP_MS = 10 };

void lp_tcp_wake(lp_tcp *t)
{
    const char byte = 0;
    if (write(t->wake[1], &byte, 1) < 0)
        return; /* the pipe is full: it will wake */
}

void lp_tcp_fail(lp_tcp *t, const char *reason)
{
    if (!t->has_failed)
        snprintf(t->reason, sizeof t->reason, "%s", reason);
    t->has_failed = true;
    /* What was under way stops in the middle, so nothing on these connections can be read as a message again. */
    for (int32_t i = 0; t->peer != NULL && i < t->round.world; i++) {
        if (t->peer[i].fd >= 0)
            close(t->peer[i].fd);
        t->peer[i].fd = -1;
    }
    pthread_cond_broadcast(&t->changed);
}

static void free_queue(lp_tcp *t, lp_queue *q)
{
    while (q->first != NULL) {
        lp_message *m = q->first;
        q->first = m->next;
        lp_release(t->alloc, m);
    }
    q->last = NULL;
}

static void free_tickets(lp_tcp *t)
{
    while (t->ticket != NULL) {
        lp_ticket *ticket = t->ticket;
        t->ticket = ticket->next;
        lp_release(t->alloc, ticket);
    }
}

void lp_tcp_cancel(lp_tcp *t)
{
    for (int32_t i = 0; t->peer != NULL && i < t->round.world; i++) {
        lp_peer *p = &t->peer[i];
        t->has_cancelled = t->has_cancelled || p->in.first != NULL || p->out.first != NULL;
        free_queue(t, &p->in);
        free_queue(t, &p->out);
    }
    free_tickets(t);
}

void lp_tcp_end_round(lp_tcp *t)
{
    for (int32_t i = 0; t->peer != NULL && i < t->round.world; i++) {
        if (t->peer[i].fd >= 0)
            close(t->peer[i].fd);
        free_queue(t, &t->peer[i].in);
        free_queue(t, &t->peer[i].out);
    }
    free_tickets(t);
    lp_release(t->alloc, t->peer);
    lp_release(t->alloc, t->block);
    lp_release(t->alloc, t->gathered);
    t->peer = NULL;
    t->block = NULL;
    t->gathered = NULL;
    t->round.world = 0;
}

/* ---- control ---- */

static bool take_round(lp_tcp *t, const lp_wire_head *head, const uint8_t *body)
{
    const int32_t world = (int32_t)(head->bytes / LP_WIRE_MEMBER_BYTES);
    if (!t->is_joining || world < 1 || head->bytes % LP_WIRE_MEMBER_BYTES != 0 || head->argument < 0 ||
        head->argument >= world)
        return false;
    lp_tcp_end_round(t);
    t->peer = lp_allocate_zero(t->alloc, (size_t)world * sizeof *t->peer);
    t->block = lp_allocate_zero(t->alloc, (size_t)world * sizeof *t->block);
    if (t->peer == NULL || t->block == NULL)
        return false;
    for (int32_t i = 0; i < world; i++)
        t->peer[i].fd = -1;
    t->round = (lp_round){.rank = head->argument, .world = world, .number = head->round};
    for (int32_t i = 0; i < world; i++) {
        const uint8_t *row = body + (int64_t)i * LP_WIRE_MEMBER_BYTES;
        if (!lp_wire_get_hello(row, &t->peer[i].who.hello))
            return false;
        memcpy(t->peer[i].who.host, row + LP_WIRE_HELLO_BYTES, LP_WIRE_NAME);
        t->peer[i].who.host[LP_WIRE_NAME - 1] = '\0';
        t->round.senders += t->peer[i].who.hello.is_sender;
    }
    t->has_failed = t->has_cancelled = false;
    t->is_joining = false;
    return true;
}

/* Whether the sizes of all blocks add up to what came. */
static bool is_whole(const uint8_t *body, int64_t bytes, int32_t world)
{
    int64_t left = bytes - 8 * (int64_t)world;
    for (int32_t i = 0; i < world && left >= 0; i++) {
        const int64_t block = lp_wire_get_i64(body + 8 * i);
        if (block < 0 || block > left)
            return false;
        left -= block;
    }
    return left == 0;
}

/* `gathered` is set when everybody's blocks are there, and not before: the caller's thread believes it. */
static bool take_gathered(lp_tcp *t, const lp_wire_head *head, const uint8_t *body)
{
    int64_t off = 8 * (int64_t)t->round.world;
    if (t->gathered != NULL || t->waits_for != LP_WAITS_GATHER || !is_whole(body, head->bytes, t->round.world))
        return false;
    uint8_t *copy = lp_allocate(t->alloc, (size_t)head->bytes + 1);
    if (copy == NULL)
        return false;
    memcpy(copy, body, (size_t)head->bytes);
    for (int32_t i = 0; i < t->round.world; i++) {
        const int64_t bytes = lp_wire_get_i64(copy + 8 * i);
        t->block[i] = (lp_block){copy + off, bytes};
        off += bytes;
    }
    t->gathered = copy;
    return true;
}

static bool answer(lp_tcp *t)
{
    uint8_t progress[8];
    lp_wire_put_i64(progress, atomic_load(&t->progress));
    return lp_wire_put(&t->control,
                       &(lp_wire_head){.type = LP_WIRE_ANSWER, .round = t->round.number, .argument = t->waits_for},
                       progress, sizeof progress, NULL, 0);
}

static bool take_control(lp_tcp *t, const lp_wire_head *head, const uint8_t *body)
{
    char text[LP_WIRE_TEXT];
    const bool is_current = head->round == t->round.number && t->round.world > 0;
    switch (head->type) {
    case LP_WIRE_ROUND:
        return take_round(t, head, body);
    case LP_WIRE_GATHERED:
        return !is_current || t->has_failed || take_gathered(t, head, body);
    case LP_WIRE_ABORT:
        if (!is_current && head->round != 0)
            return true; /* about a round that is over here */
        lp_sanitise(text, sizeof text, (const char *)body, (size_t)head->bytes);
        lp_tcp_fail(t, text);
        if (head->round == 0 && !t->is_joining)
            return false; /* this rank is not let in: no later message says so */
        t->is_joining = false;
        return true;
    case LP_WIRE_ASK:
        return !is_current || answer(t);
    case LP_WIRE_PATIENCE:
        t->patience += is_current;
        return true;
    case LP_WIRE_END:
        t->has_ended = true;
        return false;
    default:
        return false;
    }
}

static void lose_control(lp_tcp *t)
{
    const bool was_open = t->control.fd >= 0;
    t->is_over = t->has_ended && (t->is_over || !t->has_failed);
    lp_wire_close(&t->control);
    t->is_joining = false;
    if (was_open)
        lp_tcp_fail(t, t->has_ended ? LP_TCP_ENDED : "the meeting point is gone: its connection ended");
}

static void serve_control(lp_tcp *t, short events)
{
    lp_wire_head head;
    bool is_open = true, is_broken = false;
    if (events & (POLLIN | POLLHUP | POLLERR))
        is_open = lp_wire_fill(&t->control);
    while (t->control.fd >= 0 && lp_wire_next(&t->control, &head, &is_broken)) {
        if (!take_control(t, &head, t->control.in + LP_WIRE_HEADER)) {
            lose_control(t);
            return;
        }
        lp_wire_drop(&t->control, &head);
    }
    if (!is_open || is_broken || !lp_wire_flush(&t->control))
        lose_control(t);
    pthread_cond_broadcast(&t->changed);
}

/* ---- the loop ---- */

static bool needs(const lp_peer *p)
{
    return p->in.first != NULL || p->out.first != NULL;
}

/* What to poll, in the order control, wake, listener, strangers, peers. Peers without a connection are left out. */
static int64_t list_polled(lp_tcp *t)
{
    void *items = t->polled;
    int64_t n = 0;
    if (!lp_grow(t->alloc, &items, &t->poll_capacity, 3 + LP_STRANGERS_MAX + t->round.world, sizeof *t->polled))
        return -1;
    t->polled = items;
    const bool has_out = t->control.out_sent < t->control.out_bytes;
    t->polled[n++] = (struct pollfd){.fd = t->control.fd, .events = (short)(POLLIN | (has_out ? POLLOUT : 0))};
    t->polled[n++] = (struct pollfd){.fd = t->wake[0], .events = POLLIN};
    t->polled[n++] = (struct pollfd){.fd = t->listener, .events = POLLIN};
    for (int32_t i = 0; i < t->stranger_count; i++) /* one that is ahead of us is looked at again later */
        t->polled[n++] =
            (struct pollfd){.fd = t->stranger[i].bytes < LP_PEER_HELLO ? t->stranger[i].fd : -1, .events = POLLIN};
    for (int32_t i = 0; i < t->round.world; i++) {
        const lp_peer *p = &t->peer[i];
        const short out = p->out.first != NULL || p->hello_sent < LP_PEER_HELLO ? POLLOUT : 0;
        t->polled[n++] =
            (struct pollfd){.fd = needs(p) ? p->fd : -1, .events = (short)(out | (p->in.first != NULL ? POLLIN : 0))};
    }
    return n;
}

static void turn(lp_tcp *t)
{
    char drain[64];
    for (int32_t i = 0; i < t->round.world && !t->has_failed; i++)
        if (i < t->round.rank && t->peer[i].fd < 0 && !t->peer[i].is_lost && needs(&t->peer[i]))
            lp_tcp_open_peer(t, i);
    const int64_t count = list_polled(t);
    const uint32_t number = t->round.number;
    const int32_t strangers = t->stranger_count;
    if (count < 0) {
        t->is_joining = false;
        lp_tcp_fail(t, "no memory for the connections");
    }
    pthread_mutex_unlock(&t->lock);
    if (count < 0)
        lp_sleep_ms(NAP_MS);
    const int ready = count < 0 ? 0 : poll(t->polled, (nfds_t)count, 1000);
    pthread_mutex_lock(&t->lock);
    if (ready <= 0)
        return;
    if (t->polled[1].revents != 0 && read(t->wake[0], drain, sizeof drain) < 0)
        return;
    if (t->control.fd >= 0)
        serve_control(t, t->polled[0].revents);
    if (t->polled[2].revents != 0)
        lp_tcp_accept(t);
    if (t->stranger_count > 0)
        lp_tcp_settle(t);
    if (t->round.number != number || t->has_failed)
        return;
    for (int32_t i = 0; i < t->round.world && !t->has_failed; i++) {
        const struct pollfd *p = &t->polled[3 + strangers + i];
        if (p->fd >= 0 && p->revents != 0 && t->peer[i].fd == p->fd)
            lp_tcp_serve_peer(t, i, p->revents);
    }
}

void *lp_tcp_run(void *tcp)
{
    lp_tcp *t = tcp;
    pthread_mutex_lock(&t->lock);
    while (!t->is_closing)
        turn(t);
    /* The last words, if they go at once. */
    (void)lp_wire_flush(&t->control);
    pthread_mutex_unlock(&t->lock);
    return NULL;
}
