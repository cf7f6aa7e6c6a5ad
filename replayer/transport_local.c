/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks of one process: threads that copy from one another's memory under one lock. For tests, for worlds that no
 * machine here has, and for one rank alone. */
#include "replayer/transport_wire.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <time.h>

static const int64_t TIMEOUT_NS = 300LL * 1000000000;

typedef struct local_message {
    lp_transfer what;
    int32_t rank; /* whose message it is */
    int64_t ticket;
    struct local_message *next;
} local_message;

enum { IN_JOIN = -3 };

typedef struct local_rank {
    struct local_world *world;
    int32_t rank, waits_for; /* a rank, LP_WAITS_* or IN_JOIN */
    bool is_open, has_joined, has_block;
    uint32_t round; /* that it is in */
    int64_t next_ticket;
    local_message *posted; /* of this rank, not met yet; newest last */
    uint8_t *block;
    int64_t block_bytes;
    lp_block *seen; /* what gather returned */
    int64_t gather;
    char name[64];
} local_rank;

typedef struct local_world {
    const lp_alloc *alloc;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int32_t size, senders, open;
    int64_t timeout_ns, gather;
    uint32_t round;
    bool has_failed; /* of the round */
    char reason[LP_WIRE_TEXT];
    int64_t refusals; /* how often a round did not begin in time */
    char refusal[LP_WIRE_TEXT];
    local_rank *rank;
} local_world;

static void name_rank(const local_world *w, int32_t rank, char out[64])
{
    if (rank < w->senders)
        snprintf(out, 64, "sender %d", rank);
    else
        snprintf(out, 64, "receiver %d of 'server'", rank - w->senders);
}

static void fail_world(local_world *w, const char *reason)
{
    if (!w->has_failed)
        snprintf(w->reason, sizeof w->reason, "%s", reason);
    w->has_failed = true;
    pthread_cond_broadcast(&w->changed);
}

/* The rank that keeps `from` from going on. */
static int32_t find_culprit(const local_world *w, int32_t from)
{
    int32_t at = from;
    for (int32_t step = 0; step < w->size; step++) {
        int32_t next = w->rank[at].waits_for;
        if (next == LP_WAITS_NOT)
            return at;
        for (int32_t i = 0; i < w->size && next < 0; i++)
            if (next == LP_WAITS_GATHER ? !w->rank[i].has_block : !w->rank[i].has_joined)
                next = i;
        if (next < 0)
            return at;
        at = next;
    }
    return at;
}

/* Waits for a change; false when the time is over, which says nothing about what has changed. The lock is held. */
static bool wait_change(local_rank *r, int64_t since)
{
    local_world *w = r->world;
    const int64_t until = since + w->timeout_ns;
    const struct timespec at = {.tv_sec = until / 1000000000, .tv_nsec = until % 1000000000};
    return pthread_cond_timedwait(&w->changed, &w->lock, &at) != ETIMEDOUT;
}

static void name_culprit(const local_rank *r, char text[LP_WIRE_TEXT])
{
    const local_world *w = r->world;
    char name[64];
    name_rank(w, find_culprit(w, r->rank), name);
    snprintf(text, LP_WIRE_TEXT, "%s made no progress for %.3g s", name, (double)w->timeout_ns / 1e9);
}

static void blame(local_rank *r)
{
    char text[LP_WIRE_TEXT];
    name_culprit(r, text);
    fail_world(r->world, text);
}

/* A rank that is gone is not waited for. Called before each wait, with the lock held. */
static void notice_gone(const local_rank *r)
{
    local_world *w = r->world;
    char text[LP_WIRE_TEXT], name[64];
    const int32_t culprit = w->open == w->size ? r->rank : find_culprit(w, r->rank);
    if (w->rank[culprit].is_open)
        return;
    name_rank(w, culprit, name);
    snprintf(text, sizeof text, "%s is gone", name);
    fail_world(w, text);
}

static lp_status peer_error(const local_world *w, lp_error *err)
{
    return lp_fail(err, LP_E_PEER, "%s", w->reason);
}

static void drop_posted(local_rank *r)
{
    while (r->posted != NULL) {
        local_message *m = r->posted;
        r->posted = m->next;
        lp_release(r->world->alloc, m);
    }
}

/* ---- rounds ---- */

static void begin_round(local_world *w)
{
    for (int32_t i = 0; i < w->size; i++) {
        local_rank *r = &w->rank[i];
        drop_posted(r);
        lp_release(w->alloc, r->block);
        r->block = NULL;
        r->has_block = r->has_joined = false;
        r->waits_for = LP_WAITS_NOT;
    }
    w->has_failed = false;
    w->round++;
    w->gather = 0;
    pthread_cond_broadcast(&w->changed);
}

static lp_status join(void *context, lp_round *round, lp_error *err)
{
    local_rank *r = context;
    local_world *w = r->world;
    lp_status status = LP_OK;
    bool all = true, in_time = true;
    pthread_mutex_lock(&w->lock);
    const uint32_t before = w->round;
    const int64_t refusals = w->refusals;
    const int64_t since = lp_clock_ns();
    r->has_joined = true;
    r->waits_for = IN_JOIN;
    for (int32_t i = 0; i < w->size; i++)
        all = all && w->rank[i].has_joined;
    if (all)
        begin_round(w);
    /* The failure of the last round is over for those who come back, whenever it is said. */
    while (w->round == before && w->open == w->size && w->refusals == refusals) {
        if (in_time) {
            in_time = wait_change(r, since);
            continue;
        }
        name_culprit(r, w->refusal);
        w->refusals++;
        pthread_cond_broadcast(&w->changed);
    }
    if (w->round == before) {
        r->has_joined = false;
        r->waits_for = LP_WAITS_NOT;
        status = lp_fail(err, LP_E_PEER, "%s", w->open < w->size ? "a rank is gone" : w->refusal);
    }
    r->round = w->round;
    r->gather = 0;
    *round = (lp_round){.rank = r->rank, .world = w->size, .senders = w->senders, .number = w->round};
    pthread_mutex_unlock(&w->lock);
    return status;
}

/* ---- gather ---- */

/* Everybody's blocks, copied for everybody: they may come to the next gather at different times. */
static bool hand_out(local_world *w)
{
    int64_t bytes = 0;
    bool ok = true;
    for (int32_t i = 0; i < w->size; i++)
        bytes += w->rank[i].block_bytes;
    for (int32_t i = 0; i < w->size && ok; i++) {
        local_rank *r = &w->rank[i];
        lp_release(w->alloc, r->seen);
        r->seen = lp_allocate(w->alloc, (size_t)w->size * sizeof *r->seen + (size_t)bytes);
        ok = r->seen != NULL;
        uint8_t *at = ok ? (uint8_t *)(r->seen + w->size) : NULL;
        for (int32_t k = 0; k < w->size && ok; k++) {
            if (w->rank[k].block_bytes > 0)
                memcpy(at, w->rank[k].block, (size_t)w->rank[k].block_bytes);
            r->seen[k] = (lp_block){at, w->rank[k].block_bytes};
            at += w->rank[k].block_bytes;
        }
    }
    for (int32_t i = 0; i < w->size; i++) {
        lp_release(w->alloc, w->rank[i].block);
        w->rank[i].block = NULL;
        w->rank[i].has_block = false;
    }
    return ok;
}

static lp_status gather(void *context, const void *mine, int64_t bytes, const lp_block **all, lp_error *err)
{
    local_rank *r = context;
    local_world *w = r->world;
    lp_status status = LP_OK;
    if (bytes > LP_GATHER_MAX)
        return lp_fail(err, LP_E_LIMIT, "a block of %lld bytes is more than ranks may exchange at a time",
                       (long long)bytes);
    pthread_mutex_lock(&w->lock);
    const int64_t since = lp_clock_ns();
    lp_release(w->alloc, r->block); /* of a gather that failed */
    r->block = lp_allocate(w->alloc, (size_t)bytes + 1);
    if (r->block == NULL)
        fail_world(w, "out of memory");
    else if (bytes > 0)
        memcpy(r->block, mine, (size_t)bytes);
    r->block_bytes = bytes;
    r->has_block = true;
    r->waits_for = LP_WAITS_GATHER;
    bool is_last = true;
    for (int32_t i = 0; i < w->size; i++)
        is_last = is_last && w->rank[i].has_block;
    if (is_last && !w->has_failed && hand_out(w)) {
        w->gather++;
        pthread_cond_broadcast(&w->changed);
    } else if (is_last && !w->has_failed) {
        fail_world(w, "out of memory");
    }
    for (bool in_time = true; w->gather == r->gather && !w->has_failed;) {
        notice_gone(r);
        if (w->has_failed)
            break;
        if (in_time)
            in_time = wait_change(r, since);
        else
            blame(r);
    }
    if (w->gather == r->gather)
        status = peer_error(w, err);
    else
        r->gather++;
    r->waits_for = LP_WAITS_NOT;
    *all = r->seen;
    pthread_mutex_unlock(&w->lock);
    return status;
}

/* ---- messages ---- */

static void unlink_message(local_rank *r, local_message *m)
{
    local_message **at = &r->posted;
    while (*at != m)
        at = &(*at)->next;
    *at = m->next;
    lp_release(r->world->alloc, m);
}

/* The oldest message of `r` that goes the other way. */
static local_message *find_match(local_rank *r, int32_t peer, bool is_send)
{
    for (local_message *m = r->posted; m != NULL; m = m->next)
        if (m->what.peer == peer && m->what.is_send == is_send)
            return m;
    return NULL;
}

static lp_status post(local_rank *r, const lp_transfer *x, lp_error *err)
{
    local_world *w = r->world;
    if (x->peer < 0 || x->peer >= w->size || x->peer == r->rank || x->bytes < 0)
        return lp_fail(err, LP_E_ARGUMENT, "a message of %lld bytes with rank %d of %d", (long long)x->bytes, x->peer,
                       w->size);
    local_message *m = find_match(&w->rank[x->peer], r->rank, !x->is_send);
    if (m != NULL && find_match(r, x->peer, x->is_send) == NULL) {
        if (m->what.bytes != x->bytes) {
            fail_world(w, "two ranks state different sizes of a message");
            return peer_error(w, err);
        }
        if (x->bytes > 0)
            memcpy(x->is_send ? m->what.data : x->data, x->is_send ? x->data : m->what.data, (size_t)x->bytes);
        unlink_message(&w->rank[x->peer], m);
        pthread_cond_broadcast(&w->changed);
        return LP_OK;
    }
    m = lp_allocate_zero(w->alloc, sizeof *m);
    if (m == NULL)
        return lp_fail_memory(err);
    *m = (local_message){.what = *x, .rank = r->rank, .ticket = r->next_ticket};
    local_message **end = &r->posted;
    while (*end != NULL)
        end = &(*end)->next;
    *end = m;
    return LP_OK;
}

static lp_status start(void *context, const lp_transfer *transfer, int64_t count, int64_t *ticket, lp_error *err)
{
    local_rank *r = context;
    local_world *w = r->world;
    pthread_mutex_lock(&w->lock);
    *ticket = ++r->next_ticket;
    lp_status status = w->has_failed ? peer_error(w, err) : LP_OK;
    for (int64_t i = 0; i < count && status == LP_OK; i++)
        status = post(r, &transfer[i], err);
    if (status != LP_OK)
        drop_posted(r);
    pthread_mutex_unlock(&w->lock);
    return status;
}

static lp_status wait_ticket(void *context, int64_t ticket, lp_error *err)
{
    local_rank *r = context;
    local_world *w = r->world;
    pthread_mutex_lock(&w->lock);
    const int64_t since = lp_clock_ns();
    for (bool in_time = true;;) {
        const local_message *m = r->posted;
        while (m != NULL && m->ticket != ticket)
            m = m->next;
        if (m == NULL || w->has_failed)
            break;
        r->waits_for = m->what.peer;
        notice_gone(r);
        if (w->has_failed)
            break;
        if (in_time)
            in_time = wait_change(r, since);
        else
            blame(r);
    }
    r->waits_for = LP_WAITS_NOT;
    const lp_status status = w->has_failed ? peer_error(w, err) : LP_OK;
    if (status != LP_OK)
        drop_posted(r);
    pthread_mutex_unlock(&w->lock);
    return status;
}

static void cancel(void *context)
{
    local_rank *r = context;
    pthread_mutex_lock(&r->world->lock);
    drop_posted(r);
    pthread_mutex_unlock(&r->world->lock);
}

static lp_status check(void *context, int32_t peer, int64_t since_ns, lp_error *err)
{
    local_rank *r = context;
    local_world *w = r->world;
    pthread_mutex_lock(&w->lock);
    r->waits_for = peer < 0 ? LP_WAITS_NOT : peer;
    notice_gone(r);
    if (peer >= 0 && lp_clock_ns() - since_ns > w->timeout_ns)
        blame(r);
    const lp_status status = w->has_failed ? peer_error(w, err) : LP_OK;
    pthread_mutex_unlock(&w->lock);
    return status;
}

static void alive(void *context)
{
    (void)context; /* one process: who waits for whom is known */
}

static void fail(void *context, const char *reason)
{
    local_rank *r = context;
    char text[LP_WIRE_TEXT], name[64];
    pthread_mutex_lock(&r->world->lock);
    name_rank(r->world, r->rank, name);
    snprintf(text, sizeof text, "%s: %.300s", name, reason);
    fail_world(r->world, text);
    pthread_mutex_unlock(&r->world->lock);
}

static const char *name_of(void *context, int32_t rank)
{
    local_rank *r = context;
    name_rank(r->world, rank, r->name);
    return r->name;
}

static void *take(void *context, int64_t bytes)
{
    return lp_allocate(((local_rank *)context)->world->alloc, (size_t)bytes);
}

static void give_back(void *context, void *memory)
{
    lp_release(((local_rank *)context)->world->alloc, memory);
}

static void close_local(void *context)
{
    local_rank *r = context;
    local_world *w = r->world;
    pthread_mutex_lock(&w->lock);
    drop_posted(r);
    r->is_open = false;
    const bool is_last = --w->open == 0;
    for (int32_t i = 0; i < w->size; i++)
        if (w->rank[i].is_open && w->rank[i].waits_for != LP_WAITS_NOT)
            notice_gone(&w->rank[i]);
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
    local_world *w = lp_allocate_zero(p.alloc, sizeof *w);
    local_rank *rank = lp_allocate_zero(p.alloc, (size_t)world * sizeof *rank);
    if (w == NULL || rank == NULL) {
        lp_release(p.alloc, w);
        lp_release(p.alloc, rank);
        return lp_fail_memory(err);
    }
    *w = (local_world){.alloc = p.alloc,
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
        rank[i] = (local_rank){.world = w, .rank = i, .is_open = true, .waits_for = LP_WAITS_NOT};
        transport[i] = (lp_transport){.size = sizeof *transport,
                                      .context = &rank[i],
                                      .join = join,
                                      .gather = gather,
                                      .start = start,
                                      .wait = wait_ticket,
                                      .cancel = cancel,
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
