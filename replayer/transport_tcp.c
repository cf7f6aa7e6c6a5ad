/* SPDX-License-Identifier: Apache-2.0 */
/* The transport over sockets: what the caller's thread does. */
#include "replayer/quiet_thread.h"
#include "replayer/transport_tcp.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { NAP_MOST_MS = 50 };

static const int64_t JOIN_NS = 300LL * 1000000000, STALL_NS = 60LL * 1000000000;

int64_t lp_tcp_grace_ns(const lp_tcp *t)
{
    return t->stall_ns < 3000000000 ? t->stall_ns : 3000000000;
}

bool lp_tcp_wait_until(lp_tcp *t, int64_t until)
{
    const struct timespec at = {.tv_sec = until / 1000000000, .tv_nsec = until % 1000000000};
    return pthread_cond_timedwait(&t->changed, &t->lock, &at) != ETIMEDOUT;
}

lp_status lp_tcp_error(const lp_tcp *t, lp_error *err)
{
    return lp_fail(err, LP_E_PEER, "%s", t->reason);
}

/* is_end: there are no more rounds, and that is all that is wrong. */
static lp_status join_error(const lp_tcp *t, bool is_end, lp_error *err)
{
    return lp_fail(err, is_end ? LP_E_INCOMPLETE : LP_E_PEER, "%s", is_end ? LP_TCP_ENDED : t->reason);
}

/* At once where it goes at once: waking the other thread takes longer. */
bool lp_tcp_tell(lp_tcp *t, lp_wire_type type, int32_t argument, const void *body, int64_t bytes)
{
    const lp_wire_head head = {.type = type, .round = t->round.number, .argument = argument};
    const bool ok = lp_wire_put(&t->control, &head, body, bytes, NULL, 0);
    if (!lp_wire_flush(&t->control) || t->control.out_sent < t->control.out_bytes)
        lp_tcp_wake(t);
    return ok;
}

/* ---- join ---- */

static lp_status join(void *context, lp_round *round, lp_error *err)
{
    lp_tcp *t = context;
    pthread_mutex_lock(&t->lock);
    lp_status status = LP_OK;
    *round = (lp_round){.rank = 0};
    if (t->control.fd < 0) {
        status = join_error(t, t->has_ended, err);
    } else {
        lp_tcp_end_round(t);
        t->has_failed = false;
        t->is_joining = true;
        t->waits_for = LP_WAITS_NOT;
        if (!lp_tcp_tell(t, LP_WIRE_READY, 0, NULL, 0))
            status = lp_fail_memory(err);
        while (status == LP_OK && t->is_joining)
            pthread_cond_wait(&t->changed, &t->lock);
        if (status == LP_OK && t->has_failed)
            status = join_error(t, t->is_over, err);
    }
    *round = t->round;
    pthread_mutex_unlock(&t->lock);
    return status;
}

/* ---- gather ---- */

static lp_status gather(void *context, const void *mine, int64_t bytes, const lp_block **all, lp_error *err)
{
    lp_tcp *t = context;
    if (bytes > LP_GATHER_MAX)
        return lp_fail(err, LP_E_LIMIT, "a block of %lld bytes is more than ranks may exchange at a time",
                       (long long)bytes);
    pthread_mutex_lock(&t->lock);
    lp_release(t->alloc, t->gathered);
    t->gathered = NULL;
    t->waits_for = LP_WAITS_GATHER;
    lp_status status = LP_OK;
    if (!t->has_failed && !lp_tcp_tell(t, LP_WIRE_GATHER, 0, mine, bytes))
        status = lp_fail_memory(err);
    /* The meeting point names the rank that does not come; this clock is for the case that it stands still itself. */
    int64_t patience = t->patience, until = lp_clock_ns() + 2 * t->stall_ns + lp_tcp_grace_ns(t);
    while (status == LP_OK && !t->has_failed && t->gathered == NULL) {
        const bool changed = lp_tcp_wait_until(t, until);
        if (t->patience != patience)
            until = lp_clock_ns() + 2 * t->stall_ns + lp_tcp_grace_ns(t);
        else if (!changed && t->gathered == NULL)
            lp_tcp_fail(t, "the meeting point does not answer");
        patience = t->patience;
    }
    /* What everybody has counts, whatever happened after it: the senders may have ended by now. */
    if (status == LP_OK && t->gathered == NULL)
        status = lp_tcp_error(t, err);
    t->waits_for = LP_WAITS_NOT;
    *all = t->block;
    pthread_mutex_unlock(&t->lock);
    return status;
}

/* ---- what is short ---- */

static void cancel(void *context)
{
    lp_tcp *t = context;
    pthread_mutex_lock(&t->lock);
    lp_tcp_cancel(t);
    pthread_mutex_unlock(&t->lock);
}

static void fail(void *context, const char *reason)
{
    lp_tcp *t = context;
    pthread_mutex_lock(&t->lock);
    const size_t bytes = strlen(reason);
    (void)lp_tcp_tell(t, LP_WIRE_FAIL, 0, reason, (int64_t)(bytes < LP_WIRE_TEXT ? bytes : LP_WIRE_TEXT - 1));
    lp_tcp_fail(t, reason);
    pthread_mutex_unlock(&t->lock);
}

static lp_status check(void *context, int32_t peer, int64_t since_ns, lp_error *err)
{
    lp_tcp *t = context;
    pthread_mutex_lock(&t->lock);
    t->waits_for = peer;
    const int64_t now = lp_clock_ns();
    const lp_status status = t->has_failed ? lp_tcp_error(t, err) : LP_OK;
    if (status == LP_OK && peer >= 0 && now - since_ns > t->stall_ns && now - t->complained_ns > t->stall_ns) {
        t->complained_ns = now;
        (void)lp_tcp_tell(t, LP_WIRE_STALL, peer, NULL, 0);
    }
    pthread_mutex_unlock(&t->lock);
    return status;
}

static void alive(void *context)
{
    atomic_fetch_add(&((lp_tcp *)context)->progress, 1);
}

static const char *name_of(void *context, int32_t rank)
{
    lp_tcp *t = context;
    pthread_mutex_lock(&t->lock);
    if (rank >= 0 && rank < t->round.world)
        lp_wire_member_name(&t->peer[rank].who.hello, t->name);
    else
        snprintf(t->name, sizeof t->name, "rank %d", rank);
    pthread_mutex_unlock(&t->lock);
    return t->name;
}

static void *take(void *context, int64_t bytes)
{
    return lp_allocate(((lp_tcp *)context)->alloc, (size_t)bytes);
}

static void give_back(void *context, void *memory)
{
    lp_release(((lp_tcp *)context)->alloc, memory);
}

/* ---- open and close ---- */

static void close_tcp(void *context)
{
    lp_tcp *t = context;
    if (t->has_thread) {
        pthread_mutex_lock(&t->lock);
        (void)lp_tcp_tell(t, LP_WIRE_BYE, 0, NULL, 0);
        t->is_closing = true;
        lp_tcp_wake(t);
        pthread_mutex_unlock(&t->lock);
        pthread_join(t->thread, NULL);
    }
    lp_tcp_end_round(t);
    lp_tcp_drop_strangers(t);
    lp_wire_close(&t->control);
    lp_hub_close(t->hub);
    if (t->listener >= 0)
        close(t->listener);
    if (t->given >= 0)
        close(t->given);
    for (int i = 0; i < 2; i++)
        if (t->wake[i] >= 0)
            close(t->wake[i]);
    lp_release(t->alloc, t->polled);
    lp_release(t->alloc, t->hub_host);
    pthread_cond_destroy(&t->changed);
    pthread_mutex_destroy(&t->lock);
    lp_release(t->alloc, t);
}

static lp_status open_hub(lp_tcp *t, const lp_tcp_options *o, int32_t *port, lp_error *err)
{
    int fd = t->given;
    t->given = -1;
    *port = o->port;
    if (fd < 0)
        fd = lp_socket_listen(o->host, o->port, port, err);
    if (fd < 0) /* the name may be that of an address which is not on this host's own list */
        fd = lp_socket_listen(NULL, o->port, port, err);
    if (fd < 0)
        return LP_E_IO;
    if (!lp_socket_prepare(fd)) { /* one that was taken over may block */
        close(fd);
        return lp_fail(err, LP_E_IO, "cannot prepare the listening socket: %s", strerror(errno));
    }
    const lp_hub_options hub = {.listener = fd,
                                .servers = o->servers > 0 ? o->servers : 1,
                                .join_ns = t->join_ns,
                                .stall_ns = t->stall_ns,
                                .alloc = t->alloc};
    return lp_hub_open(&t->hub, &hub, err);
}

/* The meeting point may come later than this rank. */
static lp_status reach_hub(lp_tcp *t, const lp_tcp_options *o, int32_t port, lp_error *err)
{
    const int64_t until = lp_clock_ns() + t->join_ns;
    int fd, nap = 1;
    while ((fd = lp_socket_connect(o->host, port, err)) < 0) {
        if (lp_clock_ns() >= until)
            return LP_E_PEER;
        lp_sleep_ms(nap); /* ranks of one launch come within milliseconds, others much later */
        nap = nap < NAP_MOST_MS ? 2 * nap : NAP_MOST_MS;
    }
    t->control.fd = fd;
    return LP_OK;
}

static lp_status open_tcp(lp_tcp *t, const lp_tcp_options *o, lp_error *err)
{
    uint8_t hello[LP_WIRE_HELLO_BYTES];
    int32_t port = o->port;
    t->hub_host = lp_allocate(t->alloc, strlen(o->host) + 1);
    if (t->hub_host == NULL)
        return lp_fail_memory(err);
    memcpy(t->hub_host, o->host, strlen(o->host) + 1);
    t->listener = lp_socket_listen(NULL, 0, &t->me.port, err);
    if (t->listener < 0)
        return LP_E_IO;
    if (pipe(t->wake) != 0 || !lp_socket_prepare(t->wake[0]) || !lp_socket_prepare(t->wake[1]))
        return lp_fail_errno(err, errno, "open", "a pipe");
    if (t->me.is_sender && t->me.rank == 0)
        LP_TRY(open_hub(t, o, &port, err));
    LP_TRY(reach_hub(t, o, port, err));
    lp_wire_put_hello(hello, &t->me);
    if (!lp_wire_put(&t->control, &(lp_wire_head){.type = LP_WIRE_HELLO}, hello, sizeof hello, NULL, 0))
        return lp_fail_memory(err);
    const int code = lp_quiet_thread(&t->thread, lp_tcp_run, t);
    if (code != 0)
        return lp_fail(err, LP_E_IO, "cannot start a thread: %s", strerror(code));
    t->has_thread = true;
    return LP_OK;
}

lp_status lp_transport_tcp(lp_transport *transport, const lp_tcp_options *o, lp_error *err)
{
    const lp_platform p = lp_platform_resolve(o->platform);
    pthread_condattr_t monotonic;
    const char *group = o->group == NULL ? "server" : o->group;
    const int given = o->listener > 0 ? o->listener : -1;
    *transport = (lp_transport){.size = 0};
    const bool is_bad = o->host == NULL || o->rank < 0 || o->rank >= o->size || strlen(group) >= LP_WIRE_NAME;
    lp_tcp *t = is_bad ? NULL : lp_allocate_zero(p.alloc, sizeof *t);
    if (t == NULL && given >= 0)
        close(given);
    if (is_bad)
        return lp_fail(err, LP_E_ARGUMENT, "rank %d of %d at '%s' in a group '%s'", o->rank, o->size,
                       o->host == NULL ? "" : o->host, group);
    if (t == NULL)
        return lp_fail_memory(err);
    t->alloc = p.alloc;
    t->me = (lp_wire_hello){
        .is_sender = o->is_sender || o->is_alone, .is_alone = o->is_alone, .rank = o->rank, .size = o->size};
    if (!t->me.is_sender)
        snprintf(t->me.group, sizeof t->me.group, "%s", group);
    t->join_ns = o->join_ns > 0 ? o->join_ns : JOIN_NS;
    t->stall_ns = o->stall_ns > 0 ? o->stall_ns : STALL_NS;
    t->listener = t->wake[0] = t->wake[1] = -1;
    t->given = given;
    t->waits_for = LP_WAITS_NOT;
    lp_wire_init(&t->control, -1, (int64_t)LP_GATHER_MAX * 4096, p.alloc);
    pthread_mutex_init(&t->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&t->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    const lp_status status = open_tcp(t, o, err);
    if (status != LP_OK) {
        close_tcp(t);
        return status;
    }
    *transport = (lp_transport){.size = sizeof *transport,
                                .context = t,
                                .join = join,
                                .gather = gather,
                                .start = lp_tcp_start,
                                .wait = lp_tcp_wait,
                                .cancel = cancel,
                                .check = check,
                                .fail = fail,
                                .alive = alive,
                                .name = name_of,
                                .take = take,
                                .give_back = give_back,
                                .close = close_tcp};
    return LP_OK;
}

void lp_transport_close(lp_transport *transport)
{
    if (transport == NULL || transport->close == NULL)
        return;
    transport->close(transport->context);
    *transport = (lp_transport){.size = 0};
}
