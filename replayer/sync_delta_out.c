/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Changes of weights that lie on a device, against a shadow beside them. Windows are compared ahead of what is known of
 * those before, as long as whatever they find fits into the frame; when a frame takes no more, the next one is begun in
 * the other bucket, so that the device goes on while the host ends the one and sends it.
 */
#include "replayer/sync_delta_shadow.h"

enum { BATCH = 7, LEAST = 3 }; /* windows of a launch; of one while another is under way */
enum { PART = 3 };             /* a frame takes no more when its records fill that part of a bucket */

bool lp_delta_is_on_device(const lp_sync *s, const lp_sync_source *source)
{
    return s->uses_lane && source->packer != NULL && s->transport.lane->device->compare != NULL;
}

/* A frame that is filled. Its windows are done in the order in which they were started. */
typedef struct filled_frame {
    uint64_t base;          /* of the bucket's counter */
    int64_t known;          /* bytes of records of windows that are done, and of what others have found by then */
    int64_t window, done;   /* behind the last one that was started; that was done */
    uint32_t first;         /* stretch */
    bool is_open, is_ready; /* ready: what is in the bucket has been started on its way */
} filled_frame;

/* Windows are compared in batches, of a launch each. */
typedef struct batch {
    int64_t end; /* window */
    int bucket;
} batch;

typedef struct filling {
    lp_sync *s;
    struct lp_device_shadow *d;
    const lp_sync_packer *packer;
    lp_lane_out out;
    lp_delta_rule rule;
    filled_frame frame[2];         /* by bucket */
    int bucket;                    /* that takes windows */
    int64_t window;                /* the next one */
    int64_t batches, batches_done; /* that were started, that were waited for */
    batch batch[LP_SHADOW_FLIGHT];
} filling;

/* ---- batches ---- */

/* bucket -1: the shadow alone is brought up to date. */
static lp_status compare_windows(filling *f, int64_t count, int bucket, void *stream, lp_error *err)
{
    struct lp_device_shadow *d = f->d;
    const int64_t w = f->window;
    const int32_t frame = d->frame_of[w];
    const bool writes = bucket >= 0;
    const lp_change_compare c = {.stretch = d->there,
                                 .flags = writes ? d->flags : NULL,
                                 .place = d->place,
                                 .first = d->list.window[w],
                                 .count = d->list.window[w + count] - d->list.window[w],
                                 .used = writes ? &d->used[bucket] : NULL,
                                 .base = writes ? f->frame[bucket].base : 0,
                                 .out = writes ? f->s->bucket_memory[bucket] : NULL,
                                 .writes_whole = !f->s->shadow->is_filled};
    f->window += count;
    if (frame >= 0)
        LP_TRY(f->packer->beside->pack(f->packer->beside->context, frame, stream, err));
    return lp_shadow_check(d, d->device->compare(d->context, &c, stream), "compare weights", err);
}

static lp_status start_batch(filling *f, int64_t count, lp_error *err)
{
    struct lp_device_shadow *d = f->d;
    const int slot = (int)(f->batches++ % LP_SHADOW_FLIGHT);
    /* What is put together first has one place. Nothing is on aside, which the message of the frame before waits for.
     */
    void *stream = d->stream[d->frames > 0 ? 0 : f->batches % LP_SHADOW_STREAMS];
    LP_TRY(compare_windows(f, count, f->bucket, stream, err));
    f->frame[f->bucket].window = f->window;
    f->batch[slot] = (batch){.end = f->window, .bucket = f->bucket};
    LP_TRY(lp_shadow_check(d,
                           d->device->copy(d->context, &d->found[slot], &d->used[f->bucket], sizeof *d->found, stream),
                           "copy from the device", err));
    return lp_shadow_check(d, d->device->event_set(d->context, d->event[slot], stream), "mark a stream", err);
}

/* Waits for a batch. What did not change before a frame is not in it. */
static lp_status end_batch(filling *f, lp_error *err)
{
    const lp_sync_lane *l = f->s->lane;
    const int slot = (int)(f->batches_done++ % LP_SHADOW_FLIGHT);
    filled_frame *x = &f->frame[f->batch[slot].bucket];
    LP_TRY(l->lane->await(l->owner, f->d->event[slot], -1, err));
    const int64_t found = (int64_t)(f->d->found[slot] - x->base);
    x->done = f->batch[slot].end;
    x->known = found > x->known ? found : x->known; /* batches may end in another order */
    if (x->known == 0)
        x->first = f->d->list.window[x->done];
    lp_sync_alive(f->s);
    return LP_OK;
}

/* How many windows fit, whatever changed in them and in those under way; what is put together first comes alone. */
static int64_t room_for(const filling *f)
{
    const struct lp_device_shadow *d = f->d;
    const filled_frame *x = &f->frame[f->bucket];
    const int64_t flying = x->window - x->done;
    int64_t room = 0;
    if (f->batches - f->batches_done == LP_SHADOW_FLIGHT || x->known > f->rule.bucket / PART)
        return 0;
    while (f->window + room < d->list.windows && room < BATCH &&
           !lp_delta_is_full(&f->rule, x->known + (flying + room) * f->rule.window,
                             (int64_t)d->list.window[f->window + room] - x->first) &&
           (room == 0 || (d->frame_of[f->window] < 0 && d->frame_of[f->window + room] < 0)))
        room++;
    return room;
}

/* Whether a frame takes no more windows, whatever those under way find. */
static bool is_closed(const filling *f, const filled_frame *x)
{
    const int64_t count = (int64_t)f->d->list.window[x->window] - x->first;
    return x->known > 0 && (x->known > f->rule.bucket / PART || count >= f->rule.reach);
}

/* ---- frames ---- */

/* Into bucket k: behind the message and the digest of what is in it. */
static lp_status begin_frame(filling *f, int k, lp_error *err)
{
    struct lp_device_shadow *d = f->d;
    filled_frame *x = &f->frame[k];
    *x = (filled_frame){.base = x->base + (uint64_t)x->known,
                        .window = f->window,
                        .done = f->window,
                        .first = d->list.window[f->window],
                        .is_open = true};
    f->bucket = k;
    for (int i = 0; i < LP_SHADOW_STREAMS; i++) {
        LP_TRY(lp_lane_out_free(&f->out, k, d->stream[i], err));
        LP_TRY(lp_shadow_check(d, d->device->stream_wait(d->context, d->stream[i], f->s->lane->bucket[k].filled),
                               "order a stream", err));
    }
    return LP_OK;
}

/* Starts what fits, a few windows at a time. */
static lp_status start_batches(filling *f, lp_error *err)
{
    for (;;) {
        const filled_frame *x = &f->frame[f->bucket];
        const int64_t room = room_for(f);
        if (room >= LEAST || (room > 0 && x->window == x->done))
            LP_TRY(start_batch(f, room, err));
        else if (is_closed(f, x) && f->window < f->d->list.windows && f->frame[1 - f->bucket].is_ready)
            LP_TRY(begin_frame(f, 1 - f->bucket, err));
        else
            return LP_OK;
    }
}

/* *bytes -1: there was nothing left. */
static lp_status end_frame(filling *f, int k, int64_t *bytes, lp_error *err)
{
    struct lp_device_shadow *d = f->d;
    filled_frame *x = &f->frame[k];
    *bytes = -1;
    if (!x->is_open && f->window == d->list.windows)
        return LP_OK;
    if (!x->is_open)
        LP_TRY(begin_frame(f, k, err));
    LP_TRY(start_batches(f, err));
    while (x->window > x->done) {
        LP_TRY(end_batch(f, err));
        LP_TRY(start_batches(f, err));
    }
    x->is_open = false;
    if (x->known == 0)
        return LP_OK;
    const lp_change_table table = {.place = d->place,
                                   .first = x->first,
                                   .count = d->list.window[x->done] - x->first,
                                   .out = (uint8_t *)f->s->bucket_memory[k] + x->known};
    *bytes = lp_delta_frame_bytes(x->known, table.count);
    return lp_shadow_check(d, d->device->table(d->context, &table, f->s->lane->aside), "write the places of records",
                           err);
}

/* The first frame, which is empty, says how long the second one is. */
static lp_status send_frames(filling *f, const int32_t *peer, int32_t peers, lp_error *err)
{
    int64_t bytes = 0;
    f->frame[0].is_ready = true;
    for (int64_t sequence = 0; bytes >= 0; sequence++) {
        const int k = (int)(sequence % 2);
        int64_t next = -1;
        if (bytes > 0) {
            LP_TRY(lp_lane_out_start(&f->out, k, peer, peers, bytes, err));
            f->frame[k].is_ready = true;
        }
        LP_TRY(end_frame(f, 1 - k, &next, err));
        LP_TRY(lp_lane_out_announce(&f->out, k, peer, peers, sequence, bytes, next, err));
        bytes = next;
    }
    return lp_lane_out_drain(&f->out, err);
}

/* Sends nothing. */
static lp_status fill_shadow(filling *f, lp_error *err)
{
    while (f->window < f->d->list.windows)
        LP_TRY(compare_windows(f, 1, -1, f->s->lane->aside, err));
    return LP_OK;
}

static lp_status settle(const struct lp_device_shadow *d, lp_error *err)
{
    lp_status status = LP_OK;
    for (int i = 0; i < LP_SHADOW_STREAMS; i++) {
        const int code = d->device->stream_settle(d->context, d->stream[i]);
        if (status == LP_OK)
            status = lp_shadow_check(d, code, "compare weights", err);
    }
    return status;
}

lp_status lp_device_shadow_send(lp_sync *s, const lp_sync_source *source, const int32_t *peer, int32_t peers,
                                lp_error *err)
{
    filling f = {.s = s,
                 .d = s->shadow->on,
                 .packer = source->packer,
                 .rule = lp_delta_rule_of(s->bucket, s->shadow->share.bytes)};
    lp_status status = lp_lane_out_open(&f.out, s, err);
    if (status == LP_OK)
        status = lp_device_shadow_prepare(s, source, err);
    if (status == LP_OK)
        status = peers == 0 ? fill_shadow(&f, err) : send_frames(&f, peer, peers, err);
    status = lp_lane_out_close(&f.out, status, err);
    lp_error later;
    const lp_status settled = settle(f.d, &later);
    if (status != LP_OK || settled == LP_OK)
        return status;
    *err = later;
    return settled;
}
