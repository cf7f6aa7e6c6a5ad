/* SPDX-License-Identifier: Apache-2.0 */
/* Rounds of the ranks of one process, gathering, and who keeps the others waiting. */
#include "replayer/transport_local.h"

#include <errno.h>
#include <stdio.h>
#include <time.h>

void lp_local_name(const lp_local_world *w, int32_t rank, char out[64])
{
    if (rank < w->senders)
        snprintf(out, 64, "sender %d", rank);
    else
        snprintf(out, 64, "receiver %d of 'server'", rank - w->senders);
}

void lp_local_fail(lp_local_world *w, const char *reason)
{
    if (!w->has_failed)
        snprintf(w->reason, sizeof w->reason, "%s", reason);
    w->has_failed = true;
    pthread_cond_broadcast(&w->changed);
}

/* The rank that keeps `from` from going on. */
static int32_t find_culprit(const lp_local_world *w, int32_t from)
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

/* False when the time is over, which says nothing about what has changed. */
static bool wait_change(const lp_local_rank *r, int64_t since)
{
    lp_local_world *w = r->world;
    const int64_t until = since + w->timeout_ns;
    const struct timespec at = {.tv_sec = until / 1000000000, .tv_nsec = until % 1000000000};
    return pthread_cond_timedwait(&w->changed, &w->lock, &at) != ETIMEDOUT;
}

static void name_culprit(const lp_local_rank *r, char text[LP_WIRE_TEXT])
{
    const lp_local_world *w = r->world;
    char name[64];
    lp_local_name(w, find_culprit(w, r->rank), name);
    snprintf(text, LP_WIRE_TEXT, "%s made no progress for %.3g s", name, (double)w->timeout_ns / 1e9);
}

void lp_local_blame(lp_local_rank *r)
{
    char text[LP_WIRE_TEXT];
    name_culprit(r, text);
    lp_local_fail(r->world, text);
}

void lp_local_notice_gone(const lp_local_rank *r)
{
    lp_local_world *w = r->world;
    char text[LP_WIRE_TEXT], name[64];
    const int32_t culprit = w->open == w->size ? r->rank : find_culprit(w, r->rank);
    if (w->rank[culprit].is_open)
        return;
    lp_local_name(w, culprit, name);
    snprintf(text, sizeof text, "%s is gone", name);
    lp_local_fail(w, text);
}

void lp_local_go_on_waiting(lp_local_rank *r, int64_t since, bool *in_time)
{
    lp_local_notice_gone(r);
    if (r->world->has_failed)
        return;
    if (*in_time)
        *in_time = wait_change(r, since);
    else
        lp_local_blame(r);
}

lp_status lp_local_error(const lp_local_world *w, lp_error *err)
{
    return lp_fail(err, LP_E_PEER, "%s", w->reason);
}

/* ---- rounds ---- */

static void begin_round(lp_local_world *w)
{
    for (int32_t i = 0; i < w->size; i++) {
        lp_local_rank *r = &w->rank[i];
        lp_local_drop(r);
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

lp_status lp_local_join(void *context, lp_round *round, lp_error *err)
{
    lp_local_rank *r = context;
    lp_local_world *w = r->world;
    lp_status status = LP_OK;
    bool all = true, in_time = true;
    pthread_mutex_lock(&w->lock);
    const uint32_t before = w->round;
    const int64_t refusals = w->refusals;
    const int64_t since = lp_clock_ns();
    r->has_joined = true;
    r->waits_for = LP_WAITS_JOIN;
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
static bool hand_out(lp_local_world *w)
{
    int64_t bytes = 0;
    bool ok = true;
    for (int32_t i = 0; i < w->size; i++)
        bytes += w->rank[i].block_bytes;
    for (int32_t i = 0; i < w->size && ok; i++) {
        lp_local_rank *r = &w->rank[i];
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

lp_status lp_local_gather(void *context, const void *mine, int64_t bytes, const lp_block **all, lp_error *err)
{
    lp_local_rank *r = context;
    lp_local_world *w = r->world;
    lp_status status = LP_OK;
    if (bytes > LP_GATHER_MAX)
        return lp_fail(err, LP_E_LIMIT, "a block of %lld bytes is more than ranks may exchange at a time",
                       (long long)bytes);
    pthread_mutex_lock(&w->lock);
    const int64_t since = lp_clock_ns();
    lp_release(w->alloc, r->block); /* of a gather that failed */
    r->block = lp_allocate(w->alloc, (size_t)bytes + 1);
    if (r->block == NULL)
        lp_local_fail(w, "out of memory");
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
        lp_local_fail(w, "out of memory");
    }
    for (bool in_time = true; w->gather == r->gather && !w->has_failed;)
        lp_local_go_on_waiting(r, since, &in_time);
    if (w->gather == r->gather)
        status = lp_local_error(w, err);
    else
        r->gather++;
    r->waits_for = LP_WAITS_NOT;
    *all = r->seen;
    pthread_mutex_unlock(&w->lock);
    return status;
}
