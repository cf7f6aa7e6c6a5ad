/* SPDX-License-Identifier: Apache-2.0 */
/* Messages between ranks of one process: the half that comes second copies. */
#include "replayer/transport_local.h"

void lp_local_drop(lp_local_rank *r)
{
    while (r->posted != NULL) {
        lp_local_message *m = r->posted;
        r->posted = m->next;
        lp_release(r->world->alloc, m);
    }
}

static void unlink_message(lp_local_rank *r, lp_local_message *m)
{
    lp_local_message **at = &r->posted;
    while (*at != m)
        at = &(*at)->next;
    *at = m->next;
    lp_release(r->world->alloc, m);
}

/* The oldest message of `r` that goes the other way. */
static lp_local_message *find_match(lp_local_rank *r, int32_t peer, bool is_send)
{
    for (lp_local_message *m = r->posted; m != NULL; m = m->next)
        if (m->what.peer == peer && m->what.is_send == is_send)
            return m;
    return NULL;
}

static lp_status post(lp_local_rank *r, const lp_transfer *x, lp_error *err)
{
    lp_local_world *w = r->world;
    if (x->peer < 0 || x->peer >= w->size || x->peer == r->rank || x->bytes < 0)
        return lp_fail(err, LP_E_ARGUMENT, "a message of %lld bytes with rank %d of %d", (long long)x->bytes, x->peer,
                       w->size);
    lp_local_message *m = find_match(&w->rank[x->peer], r->rank, !x->is_send);
    if (m != NULL && find_match(r, x->peer, x->is_send) == NULL) {
        if (m->what.bytes != x->bytes) {
            lp_local_fail(w, "two ranks state different sizes of a message");
            return lp_local_error(w, err);
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
    *m = (lp_local_message){.what = *x, .rank = r->rank, .ticket = r->next_ticket};
    lp_local_message **end = &r->posted;
    while (*end != NULL)
        end = &(*end)->next;
    *end = m;
    return LP_OK;
}

lp_status lp_local_start(void *context, const lp_transfer *transfer, int64_t count, int64_t *ticket, lp_error *err)
{
    lp_local_rank *r = context;
    lp_local_world *w = r->world;
    pthread_mutex_lock(&w->lock);
    *ticket = ++r->next_ticket;
    lp_status status = w->has_failed ? lp_local_error(w, err) : LP_OK;
    for (int64_t i = 0; i < count && status == LP_OK; i++)
        status = post(r, &transfer[i], err);
    if (status != LP_OK)
        lp_local_drop(r);
    pthread_mutex_unlock(&w->lock);
    return status;
}

lp_status lp_local_wait(void *context, int64_t ticket, lp_error *err)
{
    lp_local_rank *r = context;
    lp_local_world *w = r->world;
    pthread_mutex_lock(&w->lock);
    const int64_t since = lp_clock_ns();
    for (bool in_time = true;;) {
        const lp_local_message *m = r->posted;
        while (m != NULL && m->ticket != ticket)
            m = m->next;
        if (m == NULL || w->has_failed)
            break;
        r->waits_for = m->what.peer;
        lp_local_go_on_waiting(r, since, &in_time);
    }
    r->waits_for = LP_WAITS_NOT;
    const lp_status status = w->has_failed ? lp_local_error(w, err) : LP_OK;
    if (status != LP_OK)
        lp_local_drop(r);
    pthread_mutex_unlock(&w->lock);
    return status;
}

void lp_local_cancel(void *context)
{
    lp_local_rank *r = context;
    pthread_mutex_lock(&r->world->lock);
    lp_local_drop(r);
    pthread_mutex_unlock(&r->world->lock);
}
