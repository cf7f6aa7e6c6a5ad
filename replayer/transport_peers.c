/* SPDX-License-Identifier: Apache-2.0 */
/* Connections between ranks, for the thread that moves bytes: made when they are first needed, and the messages on
 * them. */
#include "replayer/transport_tcp.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { PEER_MAGIC = 0x3150504c /* "LPP1" */, STEP = 1 << 20 };

/* ---- who is at the other end ---- */

static void lp_tcp_lose_peer(lp_tcp *t, int32_t rank)
{
    close(t->peer[rank].fd);
    t->peer[rank].fd = -1;
    if (t->peer[rank].in.first == NULL && t->peer[rank].out.first == NULL)
        return; /* it has nothing more to say */
    /* The meeting point sees who is gone, or asks. */
    t->peer[rank].is_lost = true;
    (void)lp_wire_put(&t->control, &(lp_wire_head){.type = LP_WIRE_STALL, .round = t->round.number, .argument = rank},
                      NULL, 0, NULL, 0);
}

static void introduce(uint8_t out[LP_PEER_HELLO], const lp_round *round)
{
    lp_wire_put_u32(out, PEER_MAGIC);
    lp_wire_put_u32(out + 4, round->number);
    lp_wire_put_u32(out + 8, (uint32_t)round->rank);
}

/* A rank that the meeting point saw at a loopback address is on its host, which others know by another name. */
static const char *host_of(const lp_tcp *t, const lp_peer *p)
{
    const bool is_loopback = strncmp(p->who.host, "127.", 4) == 0 || strcmp(p->who.host, "::1") == 0;
    return is_loopback ? t->hub_host : p->who.host;
}

void lp_tcp_open_peer(lp_tcp *t, int32_t rank)
{
    lp_peer *p = &t->peer[rank];
    lp_error err;
    p->fd = lp_socket_connect(host_of(t, p), p->who.hello.port, &err);
    p->hello_sent = 0;
    if (p->fd >= 0)
        return;
    (void)lp_wire_put(&t->control, &(lp_wire_head){.type = LP_WIRE_FAIL, .round = t->round.number}, err.text,
                      (int64_t)strlen(err.text), NULL, 0);
    lp_tcp_fail(t, err.text);
}

void lp_tcp_accept(lp_tcp *t)
{
    for (;;) {
        const int fd = accept(t->listener, NULL, NULL);
        if (fd < 0)
            return;
        if (t->stranger_count == LP_STRANGERS_MAX || !lp_socket_prepare(fd))
            close(fd);
        else
            t->stranger[t->stranger_count++] = (lp_stranger){.fd = fd};
    }
}

/* True when the stranger is settled: it is a peer now, or closed. */
static bool settle(lp_tcp *t, lp_stranger *s)
{
    ssize_t n = 1;
    if (s->bytes < LP_PEER_HELLO)
        n = recv(s->fd, s->hello + s->bytes, (size_t)(LP_PEER_HELLO - s->bytes), 0);
    else
        s->bytes = LP_PEER_HELLO - 1; /* it was ahead of us: look at it again */
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
        return false;
    s->bytes += n > 0 ? n : 0;
    if (n > 0 && s->bytes < LP_PEER_HELLO)
        return false;
    const uint32_t rank = lp_wire_get_u32(s->hello + 8);
    if (n > 0 && lp_wire_get_u32(s->hello) == PEER_MAGIC && t->round.world > 0 && !t->has_failed &&
        lp_wire_get_u32(s->hello + 4) == t->round.number && rank > (uint32_t)t->round.rank &&
        rank < (uint32_t)t->round.world && t->peer[rank].fd < 0 && !t->peer[rank].is_lost) {
        t->peer[rank].fd = s->fd;
        t->peer[rank].hello_sent = LP_PEER_HELLO;
        return true;
    }
    /* It may be ahead of us: a round that we have not heard of yet. */
    if (n > 0 && lp_wire_get_u32(s->hello) == PEER_MAGIC && lp_wire_get_u32(s->hello + 4) > t->round.number)
        return false;
    close(s->fd);
    return true;
}

void lp_tcp_settle(lp_tcp *t)
{
    int32_t kept = 0;
    for (int32_t i = 0; i < t->stranger_count; i++)
        if (!settle(t, &t->stranger[i]))
            t->stranger[kept++] = t->stranger[i];
    t->stranger_count = kept;
}

/* ---- messages ---- */

static void finish(lp_tcp *t, lp_queue *q)
{
    lp_message *m = q->first;
    q->first = m->next;
    if (q->first == NULL)
        q->last = NULL;
    m->ticket->left--;
    lp_release(t->alloc, m);
    pthread_cond_broadcast(&t->changed);
}

/* Moves what goes without waiting. False when the connection is lost. */
static bool move(lp_tcp *t, int fd, lp_queue *q)
{
    int64_t budget = (int64_t)STEP * 4; /* then somebody else's turn */
    while (q->first != NULL && budget > 0) {
        lp_message *m = q->first;
        const int64_t left = m->what.bytes - m->done;
        const size_t step = (size_t)(left < STEP ? left : STEP);
        uint8_t *at = (uint8_t *)m->what.data + m->done;
        if (left > 0) {
            const ssize_t n = m->what.is_send ? send(fd, at, step, MSG_NOSIGNAL) : recv(fd, at, step, 0);
            if (n < 0 && errno == EINTR)
                continue;
            if (n < 0)
                return errno == EAGAIN || errno == EWOULDBLOCK;
            if (n == 0)
                return false;
            m->done += n;
            m->ticket->moved += n;
            atomic_fetch_add(&t->progress, n);
            budget -= n;
        }
        if (m->done == m->what.bytes)
            finish(t, q);
    }
    return true;
}

static bool say_hello(lp_tcp *t, lp_peer *p)
{
    uint8_t hello[LP_PEER_HELLO];
    if (p->hello_sent == LP_PEER_HELLO)
        return true;
    introduce(hello, &t->round);
    const ssize_t n = send(p->fd, hello + p->hello_sent, (size_t)(LP_PEER_HELLO - p->hello_sent), MSG_NOSIGNAL);
    if (n < 0)
        return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
    p->hello_sent += n;
    return true;
}

void lp_tcp_serve_peer(lp_tcp *t, int32_t rank, short events)
{
    lp_peer *p = &t->peer[rank];
    char byte;
    bool is_open = say_hello(t, p);
    if (is_open && p->hello_sent == LP_PEER_HELLO && p->out.first != NULL)
        is_open = move(t, p->fd, &p->out);
    if (is_open && p->in.first != NULL)
        is_open = move(t, p->fd, &p->in);
    else if (is_open && (events & (POLLHUP | POLLERR)))
        is_open = recv(p->fd, &byte, 1, MSG_PEEK) > 0;
    if (!is_open)
        lp_tcp_lose_peer(t, rank);
}

void lp_tcp_drop_strangers(lp_tcp *t)
{
    for (int32_t i = 0; i < t->stranger_count; i++)
        close(t->stranger[i].fd);
    t->stranger_count = 0;
}
