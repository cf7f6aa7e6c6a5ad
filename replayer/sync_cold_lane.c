/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A cold start of several ranks on devices. Chunks are read into pinned memory and uploaded one behind the other; while
 * one is on its way, the one before is sent from the device to those that need some of it, and replayed:
 *
 *   up        uploads, each behind the replay of what was in its place before
 *   out, in   lanes of their own (sync_lane.h): parts packed and digested; what came digested
 *   session   the caller's: replay
 */
#include "replayer/sync_cold_lane.h"

#include "replayer/session.h"
#include "replayer/sync_cold_step.h"

lp_status lp_cold_lane_check(const lp_cold_lane *x, int code, const char *verb, lp_error *err)
{
    if (code == 0)
        return LP_OK;
    return lp_fail(err, LP_E_DEVICE, "cannot %s: %s", verb, x->d->error_text(x->context, code));
}

lp_status lp_cold_lane_is_there(lp_sync *s, const lp_plan *plan, bool *yes, lp_error *err)
{
    const lp_transport *t = &s->transport;
    *yes = false;
    if (t->lane == NULL || plan->side == NULL)
        return LP_OK;
    const lp_device_calls *c = &plan->side->calls;
    void *own = t->take(t->context, LP_SYNC_BUCKET_LEAST);
    const int code = own == NULL ? 0 : c->is_ours(c->context, own, yes);
    if (own != NULL)
        t->give_back(t->context, own);
    return lp_device_check(c, code, "ask where messages lie", err);
}

/* ---- life ---- */

static lp_status take(const lp_cold_lane *x, void **out, lp_error *err)
{
    return lp_cold_lane_check(x, x->d->allocate(x->context, x->s->bucket, out), "take device memory for a chunk", err);
}

static bool needs_packing(const lp_cold_lane *x, int32_t to)
{
    for (int64_t c = 0; c < x->w->chunks[x->w->rank]; c++)
        if (x->w->out[to].frame[c].bytes > 0 && !lp_cold_is_direct(x, to, c))
            return true;
    return false;
}

typedef struct own_list {
    lp_pieces *to;
    uint32_t name;
    lp_status status;
    lp_error *err;
} own_list;

static int add_own(void *context, int64_t lo, int64_t hi)
{
    own_list *l = context;
    l->status = lp_pieces_add_range(l->to, l->name, lo, hi, l->err);
    return l->status != LP_OK;
}

static lp_status list_own(lp_cold_lane *x, lp_error *err)
{
    const lp_plan *plan = x->session->plan;
    own_list l = {.to = &x->own, .status = LP_OK, .err = err};
    for (uint32_t i = 0; i < lp_checkpoint_count(x->s->catalogue); i++) {
        if (x->w->is_shared[i] || lp_plan_use(plan, i) != LP_USE_LOADED)
            continue;
        l.name = i;
        LP_TRY(lp_plan_reads(plan, i, add_own, &l, err));
        LP_TRY(l.status);
    }
    return lp_pieces_cut(&x->own, x->s->bucket, err);
}

static lp_status open_device(lp_cold_lane *x, lp_error *err)
{
    const lp_cold_world *w = x->w;
    bool packs = false;
    LP_TRY(lp_sync_lane_new(x->s, &x->out, err));
    LP_TRY(lp_sync_lane_new(x->s, &x->in, err));
    LP_TRY(lp_cold_lane_check(x, x->d->stream_open(x->context, false, &x->up), "open a stream", err));
    for (int32_t i = 0; i < w->ranks; i++)
        packs = packs || (i != w->rank && needs_packing(x, i));
    for (int i = 0; i < 2; i++) {
        LP_TRY(lp_cold_lane_check(x, x->d->event_open(x->context, &x->uploaded[i]), "make an event", err));
        LP_TRY(lp_cold_lane_check(x, x->d->event_open(x->context, &x->used[i]), "make an event", err));
        LP_TRY(take(x, &x->chunk[i], err));
        LP_TRY(take(x, &x->got[i], err));
        if (packs)
            LP_TRY(take(x, &x->packed[i], err));
    }
    if (needs_packing(x, w->rank))
        LP_TRY(take(x, &x->packed_here, err));
    for (int i = 0; i < LP_COLD_AHEAD && !x->is_lent; i++) {
        void *memory = NULL;
        LP_TRY(lp_cold_lane_check(x, x->d->take_pinned(x->context, x->s->bucket, &memory), "pin memory", err));
        x->pinned[i] = memory;
    }
    return LP_OK;
}

static void close_device(lp_cold_lane *x)
{
    void *const block[] = {x->chunk[0], x->chunk[1], x->got[0], x->got[1], x->packed[0], x->packed[1], x->packed_here};
    for (size_t i = 0; i < sizeof block / sizeof *block; i++)
        if (block[i] != NULL)
            x->d->release(x->context, block[i]);
    void *const event[] = {x->uploaded[0], x->uploaded[1], x->used[0], x->used[1]};
    for (size_t i = 0; i < sizeof event / sizeof *event; i++)
        if (event[i] != NULL)
            x->d->event_close(x->context, event[i]);
    for (int i = 0; i < LP_COLD_AHEAD && !x->is_lent; i++)
        if (x->pinned[i] != NULL)
            x->d->give_pinned(x->context, x->pinned[i]);
    if (x->up != NULL)
        x->d->stream_close(x->context, x->up);
    lp_sync_lane_close(x->out, x->s->alloc);
    lp_sync_lane_close(x->in, x->s->alloc);
}

/* ---- chunks ---- */

/* The pinned memory of chunks is the reader's again when they are up. */
static lp_status release(lp_cold_lane *x, int64_t until, lp_error *err)
{
    for (; x->released < until; x->released++) {
        LP_TRY(x->lane->await(x->owner, x->uploaded[lp_cold_slot_of(x->released)], -1, err));
        lp_cold_reader_give(x->reader);
    }
    return LP_OK;
}

static int64_t bytes_of_upload(const lp_cold_lane *x, int64_t number)
{
    const int64_t shared = x->w->chunks[x->w->rank];
    return number < shared ? x->w->read.frame[number].bytes : x->own.frame[number - shared].bytes;
}

/* Starts uploads up to chunk `last`; one may be under way while the next is. */
static lp_status upload(lp_cold_lane *x, int64_t last, int64_t *bytes_read, lp_error *err)
{
    for (; x->uploads <= last && x->uploads < x->all; x->uploads++) {
        const int k = lp_cold_slot_of(x->uploads);
        const int64_t bytes = bytes_of_upload(x, x->uploads);
        const uint8_t *data = NULL;
        LP_TRY(lp_cold_reader_take(x->reader, &data, err));
        LP_TRY(release(x, x->uploads - 1, err)); /* its event is used again */
        if (x->was_used[k])
            LP_TRY(lp_cold_lane_check(x, x->d->stream_wait(x->context, x->up, x->used[k]), "order an upload", err));
        if (bytes > 0)
            LP_TRY(lp_cold_lane_check(x, x->d->copy(x->context, x->chunk[k], data, bytes, x->up), "copy to the device",
                                      err));
        LP_TRY(lp_cold_lane_check(x, x->d->event_set(x->context, x->uploaded[k], x->up), "mark a stream", err));
        *bytes_read += bytes;
        LP_TRY(release(x, x->uploads, err));
        lp_sync_alive(x->s);
    }
    return LP_OK;
}

static lp_status load_all(lp_cold_lane *x, int64_t *bytes_read, lp_error *err)
{
    const int64_t mine = x->w->chunks[x->w->rank];
    int64_t chunks = 0;
    for (int32_t i = 0; i < x->w->ranks; i++)
        chunks = x->w->chunks[i] > chunks ? x->w->chunks[i] : chunks;
    LP_TRY(upload(x, 0, bytes_read, err));
    for (int64_t c = 0; c < chunks; c++) {
        if (c < mine) {
            LP_TRY(upload(x, c + 1, bytes_read, err));
            LP_TRY(lp_cold_step_here(x, c, err));
        }
        LP_TRY(lp_cold_step_all(x, c, err));
    }
    for (int64_t o = 0; o < x->own.frame_count; o++) {
        LP_TRY(upload(x, mine + o + 1, bytes_read, err));
        LP_TRY(lp_cold_lane_check(x, x->d->stream_wait(x->context, x->stream, x->uploaded[lp_cold_slot_of(mine + o)]),
                                  "order a push", err));
        LP_TRY(lp_cold_lane_push(x, &x->own, &x->own.frame[o], x->chunk[lp_cold_slot_of(mine + o)], err));
        LP_TRY(lp_cold_lane_used(x, mine + o, err));
    }
    return release(x, x->uploads, err);
}

/* Whatever is under way is waited for, when what it may wait for was ended. */
static lp_status settle(lp_cold_lane *x, lp_status status, lp_error *err)
{
    lp_error later = {.code = LP_OK};
    lp_status settled = LP_OK;
    if (status != LP_OK)
        x->s->transport.cancel(x->s->transport.context);
    void *const stream[] = {x->up, x->out == NULL ? NULL : x->out->aside, x->in == NULL ? NULL : x->in->aside,
                            x->stream};
    for (size_t i = 0; i < sizeof stream / sizeof *stream; i++) {
        if (stream[i] == NULL && i < 3)
            continue;
        const int code = x->d->stream_settle(x->context, stream[i]);
        if (settled == LP_OK)
            settled = lp_cold_lane_check(x, code, "load", &later);
    }
    if (status != LP_OK || settled == LP_OK)
        return status;
    *err = later;
    return settled;
}

lp_status lp_cold_lane_load(lp_sync *s, const lp_cold_world *world, lp_session *session, void *stream,
                            const lp_sync_source *source, uint8_t *memory, int threads, lp_cold_world_report *report,
                            lp_error *err)
{
    const lp_lane *lane = s->transport.lane;
    lp_cold_lane x = {.s = s,
                      .w = world,
                      .session = session,
                      .stream = stream,
                      .d = lane->device,
                      .context = lane->device->context,
                      .calls = &session->plan->side->calls,
                      .lane = lane,
                      .owner = s->transport.context};
    const lp_pieces *const list[2] = {&world->read, &x.own};
    x.is_lent = memory != NULL;
    for (int i = 0; i < LP_COLD_AHEAD && x.is_lent; i++)
        x.pinned[i] = memory + i * s->bucket;
    lp_pieces_init(&x.own, s->alloc);
    lp_status status = list_own(&x, err);
    if (status == LP_OK)
        status = open_device(&x, err);
    if (status == LP_OK)
        status = lp_cold_reader_open(&x.reader, s, source, list, 2, x.pinned, threads, err);
    report->setup_nanoseconds = lp_clock_ns() - s->begin_ns;
    x.all = world->chunks[world->rank] + x.own.frame_count;
    if (status == LP_OK)
        status = load_all(&x, &report->bytes_read, err);
    lp_cold_reader_close(x.reader);
    status = settle(&x, status, err);
    close_device(&x);
    lp_pieces_free(&x.own);
    return status;
}
