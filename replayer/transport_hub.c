/* SPDX-License-Identifier: Apache-2.0 */
/* The meeting point: connections in, messages to the rules (transport_rounds.c), messages out. One thread, no locks
 * but the one word that ends it. */
#include "replayer/quiet_thread.h"
#include "replayer/transport_rounds.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <unistd.h>

enum { TICK_MS = 50, LINGER_MS = 1000 };

struct lp_hub {
    lp_rounds rounds;
    int listener;
    pthread_t thread;
    atomic_bool is_ending;
    struct pollfd *polled;
    int64_t poll_capacity;
};

static void accept_all(lp_hub *hub)
{
    for (;;) {
        const int fd = accept(hub->listener, NULL, NULL);
        if (fd < 0)
            return;
        if (!lp_socket_prepare(fd) || !lp_rounds_connect(&hub->rounds, fd))
            close(fd);
    }
}

static void serve(lp_hub *hub, lp_meeting *m, short events)
{
    lp_wire_head head;
    bool is_open = true, is_broken = false;
    if (events & (POLLIN | POLLHUP | POLLERR))
        is_open = lp_wire_fill(&m->wire);
    while (m->wire.fd >= 0 && lp_wire_next(&m->wire, &head, &is_broken)) {
        lp_rounds_message(&hub->rounds, m, &head, m->wire.in + LP_WIRE_HEADER);
        if (m->wire.fd >= 0)
            lp_wire_drop(&m->wire, &head);
    }
    if (m->wire.fd >= 0 && (!is_open || is_broken || !lp_wire_flush(&m->wire)))
        lp_rounds_lost(&hub->rounds, m);
}

/* One turn: waits for at most TICK_MS. False when there is no memory to go on. */
static bool turn(lp_hub *hub)
{
    lp_rounds *r = &hub->rounds;
    void *items = hub->polled;
    if (!lp_grow(r->alloc, &items, &hub->poll_capacity, r->count + 1, sizeof *hub->polled))
        return false;
    hub->polled = items;
    hub->polled[0] = (struct pollfd){.fd = hub->listener, .events = POLLIN};
    const int64_t count = r->count;
    for (int64_t i = 0; i < count; i++) {
        const lp_wire *w = &r->member[i]->wire;
        hub->polled[i + 1] =
            (struct pollfd){.fd = w->fd, .events = (short)(POLLIN | (w->out_sent < w->out_bytes ? POLLOUT : 0))};
    }
    if (poll(hub->polled, (nfds_t)count + 1, TICK_MS) < 0 && errno != EINTR)
        return false;
    for (int64_t i = 0; i < count; i++)
        if (hub->polled[i + 1].fd >= 0 && hub->polled[i + 1].revents != 0)
            serve(hub, r->member[i], hub->polled[i + 1].revents);
    if (hub->polled[0].revents != 0)
        accept_all(hub);
    lp_rounds_tick(r, lp_clock_ns());
    for (int64_t i = 0; i < r->count; i++)
        if (r->member[i]->wire.fd >= 0 && !lp_wire_flush(&r->member[i]->wire))
            lp_rounds_lost(r, r->member[i]);
    lp_rounds_forget(r);
    return true;
}

static void stop_listening(lp_hub *hub)
{
    if (hub->listener >= 0)
        close(hub->listener);
    hub->listener = -1;
}

static void *run(void *context)
{
    lp_hub *hub = context;
    while (!atomic_load(&hub->is_ending))
        if (!turn(hub)) {
            stop_listening(hub);
            lp_rounds_free(&hub->rounds); /* connections end, and every rank sees that */
            return NULL;
        }
    /* Whoever comes from now on, such as servers that look for the next senders, must not meet the old ones. */
    stop_listening(hub);
    lp_rounds_end(&hub->rounds);
    /* Ranks close their ends when they have read the last message; a rank that never does is not waited for. */
    const int64_t until = lp_clock_ns() + (int64_t)LINGER_MS * 1000000;
    while (hub->rounds.count > 0 && lp_clock_ns() < until && turn(hub))
        ;
    return NULL;
}

lp_status lp_hub_open(lp_hub **out, const lp_hub_options *options, lp_error *err)
{
    lp_hub *hub = lp_allocate_zero(options->alloc, sizeof *hub);
    if (hub == NULL) {
        close(options->listener);
        return lp_fail_memory(err);
    }
    hub->listener = options->listener;
    lp_rounds_init(&hub->rounds, options);
    const int code = lp_quiet_thread(&hub->thread, run, hub);
    if (code != 0) {
        close(hub->listener);
        lp_release(options->alloc, hub);
        return lp_fail(err, LP_E_IO, "cannot start a thread: %s", strerror(code));
    }
    *out = hub;
    return LP_OK;
}

void lp_hub_close(lp_hub *hub)
{
    if (hub == NULL)
        return;
    atomic_store(&hub->is_ending, true);
    pthread_join(hub->thread, NULL);
    const lp_alloc *alloc = hub->rounds.alloc;
    stop_listening(hub);
    lp_rounds_free(&hub->rounds);
    lp_release(alloc, hub->polled);
    lp_release(alloc, hub);
}
