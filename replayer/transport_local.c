/* SPDX-License-Identifier: Apache-2.0 */
/* The transport between ranks of one process: life, and what is short. */
#include "replayer/transport_local.h"

#include <stdio.h>

static const int64_t TIMEOUT_NS = 300LL * 1000000000;

static lp_status check(void *context, int32_t peer, int64_t since_ns, lp_error *err)
{
    lp_local_rank *r = context;
    lp_local_world *w = r->world;
    pthread_mutex_lock(&w->lock);
    r->waits_for = peer < 0 ? LP_WAITS_NOT : peer;
    lp_local_notice_gone(r);
    if (peer >= 0 && lp_clock_ns() - since_ns > w->timeout_ns)
        lp_local_blame(r);
    const lp_status status = w->has_failed ? lp_local_error(w, err) : LP_OK;
    pthread_mutex_unlock(&w->lock);
    return status;
}

static void alive(void *context)
{
    (void)context; /* one process: who waits for whom is known */
}

static void fail(void *context, const char *reason)
{
    lp_local_rank *r = context;
    char text[LP_WIRE_TEXT], name[64];
    pthread_mutex_lock(&r->world->lock);
    lp_local_name(r->world, r->rank, name);
    snprintf(text, sizeof text, "%s: %.300s", name, reason);
    lp_local_fail(r->world, text);
    pthread_mutex_unlock(&r->world->lock);
}

static const char *name_of(void *context, int32_t rank)
{
    lp_local_rank *r = context;
    lp_local_name(r->world, rank, r->name);
    return r->name;
}

static void *take(void *context, int64_t bytes)
{
    return lp_allocate(((lp_local_rank *)context)->world->alloc, (size_t)bytes);
}

static void give_back(void *context, void *memory)
{
    lp_release(((lp_local_rank *)context)->world->alloc, memory);
}

static void close_local(void *context)
{
    lp_local_rank *r = context;
    lp_local_world *w = r->world;
    pthread_mutex_lock(&w->lock);
    lp_local_drop(r);
    r->is_open = false;
    const bool is_last = --w->open == 0;
    for (int32_t i = 0; i < w->size; i++)
        if (w->rank[i].is_open && w->rank[i].waits_for != LP_WAITS_NOT)
            lp_local_notice_gone(&w->rank[i]);
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
    if (!is_last)
        return;
    for (int32_t i = 0; i < w->size; i++) {
        lp_release(w->alloc, w->rank[i].block);
        lp_release(w->alloc, w->rank[i].seen);
    }
    pthread_cond_destroy(&w->changed);
    pthread_mutex_destroy(&w->lock);
    lp_release(w->alloc, w->rank);
    lp_release(w->alloc, w);
}

lp_status lp_transport_local(lp_transport *transport, int32_t world, int32_t senders, int64_t timeout_ns,
                             const lp_platform *platform, lp_error *err)
{
    const lp_platform p = lp_platform_resolve(platform);
    pthread_condattr_t monotonic;
    if (world < 1 || senders < 0 || senders > world)
        return lp_fail(err, LP_E_ARGUMENT, "%d senders of %d ranks", senders, world);
    lp_local_world *w = lp_allocate_zero(p.alloc, sizeof *w);
    lp_local_rank *rank = lp_allocate_zero(p.alloc, (size_t)world * sizeof *rank);
    if (w == NULL || rank == NULL) {
        lp_release(p.alloc, w);
        lp_release(p.alloc, rank);
        return lp_fail_memory(err);
    }
    *w = (lp_local_world){.alloc = p.alloc,
                          .size = world,
                          .senders = senders,
                          .open = world,
                          .timeout_ns = timeout_ns > 0 ? timeout_ns : TIMEOUT_NS,
                          .rank = rank};
    pthread_mutex_init(&w->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&w->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    for (int32_t i = 0; i < world; i++) {
        rank[i] = (lp_local_rank){.world = w, .rank = i, .is_open = true, .waits_for = LP_WAITS_NOT};
        transport[i] = (lp_transport){.size = sizeof *transport,
                                      .context = &rank[i],
                                      .join = lp_local_join,
                                      .gather = lp_local_gather,
                                      .start = lp_local_start,
                                      .wait = lp_local_wait,
                                      .cancel = lp_local_cancel,
                                      .check = check,
                                      .fail = fail,
                                      .alive = alive,
                                      .name = name_of,
                                      .take = take,
                                      .give_back = give_back,
                                      .close = close_local};
    }
    return LP_OK;
}
