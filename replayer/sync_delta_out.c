/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Changes of weights that lie on a device, against a shadow beside them. Windows are compared ahead of what is known of
 * those before, as long as whatever they find fits into the frame; the host hears where the records of each end.
 */
#include "replayer/sync_delta.h"
#include "replayer/sync_lane.h"
#include "replayer/sync_source.h"

#include <stdlib.h>

enum { FLIGHT = 16, BATCH = 7, LEAST = 3 }; /* windows under way; of a launch; of one while another is under way */
enum { STREAMS = 3, SHADOW_ALIGN = 16 };

struct lp_device_shadow {
    const lp_nccl_device *device;
    void *context;
    const lp_alloc *alloc;
    lp_delta_list list;
    uint64_t serial; /* of the packer whose addresses the list has */
    void *memory, *there, *end, *flags, *ticket;
    uint8_t *name_flags;   /* on the host */
    uint64_t *found;       /* pinned: what of `end` has come to the host */
    void *event[FLIGHT];   /* by batch under way */
    void *stream[STREAMS]; /* beside aside: batches are on them in turns, so that one begins while others end */

    /* What does not lie in one row on the device is put together first. */
    lp_pieces staged; /* a frame for each window that has some */
    lp_frame_out *frame;
    int64_t frames, frame_capacity;
    int32_t *frame_of; /* by window; -1: none */
    void *stage;
};

bool lp_delta_is_on_device(const lp_sync *s, const lp_sync_source *source)
{
    return s->uses_lane && source->packer != NULL && s->transport.lane->device->compare != NULL;
}

/* ---- memory ---- */

static lp_status check(const struct lp_device_shadow *d, int code, const char *verb, lp_error *err)
{
    if (code == 0)
        return LP_OK;
    return lp_fail(err, LP_E_DEVICE, "cannot %s: %s", verb, d->device->error_text(d->context, code));
}

static lp_status take(const struct lp_device_shadow *d, int64_t bytes, void **out, lp_error *err)
{
    return check(d, d->device->allocate(d->context, bytes + 1, out), "take device memory for a shadow", err);
}

static void drop_stage(struct lp_device_shadow *d)
{
    if (d->stage != NULL)
        d->device->release(d->context, d->stage);
    d->stage = NULL;
    lp_pieces_free(&d->staged);
    lp_pieces_init(&d->staged, d->alloc);
    d->frames = 0;
}

void lp_device_shadow_close(struct lp_device_shadow *d)
{
    if (d == NULL)
        return;
    drop_stage(d);
    void *const block[] = {d->memory, d->there, d->end, d->flags, d->ticket};
    for (size_t i = 0; i < sizeof block / sizeof *block; i++)
        if (block[i] != NULL)
            d->device->release(d->context, block[i]);
    for (int i = 0; i < FLIGHT; i++)
        if (d->event[i] != NULL)
            d->device->event_close(d->context, d->event[i]);
    for (int i = 0; i < STREAMS; i++)
        if (d->stream[i] != NULL)
            d->device->stream_close(d->context, d->stream[i]);
    if (d->found != NULL)
        d->device->give_pinned(d->context, d->found);
    lp_delta_list_free(&d->list);
    lp_release(d->alloc, d->name_flags);
    lp_release(d->alloc, d->frame);
    lp_release(d->alloc, d->frame_of);
    lp_release(d->alloc, d);
}

/* Places in the shadow: stretch after stretch. Returns the bytes of all. */
static int64_t lay_out(struct lp_device_shadow *d)
{
    int64_t at = 0;
    for (int64_t i = 0; i < d->list.count; i++) {
        lp_change_stretch *x = &d->list.stretch[i];
        x->shadow = (void *)(uintptr_t)at;
        at += ((int64_t)x->elements * x->elem + SHADOW_ALIGN - 1) / SHADOW_ALIGN * SHADOW_ALIGN;
    }
    return at;
}

static lp_status open_shadow(struct lp_device_shadow *d, lp_sync *s, lp_error *err)
{
    const int64_t names = lp_checkpoint_count(s->catalogue);
    void *found = NULL;
    LP_TRY(lp_delta_list_make(&d->list, s, &s->shadow->share, err));
    d->name_flags = lp_allocate(s->alloc, (size_t)names + 1);
    d->frame_of = lp_allocate(s->alloc, (size_t)d->list.windows * sizeof *d->frame_of);
    if (d->name_flags == NULL || d->frame_of == NULL)
        return lp_fail_memory(err);
    LP_TRY(take(d, lay_out(d), &d->memory, err));
    for (int64_t i = 0; i < d->list.count; i++)
        d->list.stretch[i].shadow = (uint8_t *)d->memory + (uintptr_t)d->list.stretch[i].shadow;
    LP_TRY(take(d, d->list.count * (int64_t)sizeof *d->list.stretch, &d->there, err));
    LP_TRY(take(d, d->list.count * (int64_t)sizeof(uint64_t), &d->end, err));
    LP_TRY(take(d, names, &d->flags, err));
    LP_TRY(take(d, sizeof(uint32_t), &d->ticket, err));
    LP_TRY(check(d, d->device->take_pinned(d->context, (d->list.count + 1) * (int64_t)sizeof *d->found, &found),
                 "pin memory", err));
    d->found = found;
    for (int i = 0; i < STREAMS; i++)
        LP_TRY(check(d, d->device->stream_open(d->context, false, &d->stream[i]), "open a stream", err));
    for (int i = 0; i < FLIGHT; i++)
        LP_TRY(check(d, d->device->event_open(d->context, &d->event[i]), "make an event", err));
    return LP_OK;
}

lp_status lp_device_shadow_open(lp_sync *s, lp_error *err)
{
    const lp_nccl_device *device = s->transport.lane->device;
    struct lp_device_shadow *d = lp_allocate_zero(s->alloc, sizeof *d);
    if (d == NULL)
        return lp_fail_memory(err);
    *d = (struct lp_device_shadow){.device = device, .context = device->context, .alloc = s->alloc};
    lp_pieces_init(&d->staged, s->alloc);
    s->shadow->on = d;
    return open_shadow(d, s, err);
}

/* ---- where the weights lie ---- */

/* Bytes of a piece, packed, that lie in one row on the device. */
typedef struct row {
    int64_t lo, hi;
    const uint8_t *data;
} row;

typedef struct row_list {
    const lp_alloc *alloc;
    row *item;
    int64_t count, capacity, most;
    bool is_over, has_failed; /* over: too many of them to be worth it */
} row_list;

static int add_row(void *context, int64_t off, const void *data, int64_t bytes)
{
    row_list *l = context;
    row *last = l->count > 0 ? &l->item[l->count - 1] : NULL;
    void *items = l->item;
    if (last != NULL && last->hi == off && last->data + (last->hi - last->lo) == (const uint8_t *)data) {
        last->hi += bytes;
        return 0;
    }
    l->is_over = l->count == l->most;
    l->has_failed = !l->is_over && !lp_grow(l->alloc, &items, &l->capacity, l->count + 1, sizeof *l->item);
    if (l->is_over || l->has_failed)
        return 1;
    l->item = items;
    l->item[l->count++] = (row){.lo = off, .hi = off + bytes, .data = data};
    return 0;
}

static int by_place(const void *a, const void *b)
{
    const row *x = a, *y = b;
    return (x->lo > y->lo) - (x->lo < y->lo);
}

static lp_status add_frame(struct lp_device_shadow *d, lp_error *err)
{
    void *spans = d->staged.frame, *frames = d->frame;
    if (!lp_grow(d->alloc, &spans, &d->staged.frame_capacity, d->staged.frame_count + 1, sizeof *d->staged.frame))
        return lp_fail_memory(err);
    d->staged.frame = spans;
    if (!lp_grow(d->alloc, &frames, &d->frame_capacity, d->frames + 1, sizeof *d->frame))
        return lp_fail_memory(err);
    d->frame = frames;
    d->staged.frame[d->staged.frame_count++] = (lp_frame_span){.first = d->staged.count};
    d->frame[d->frames] = (lp_frame_out){.pieces = &d->staged, .number = d->frames};
    d->frames++;
    return LP_OK;
}

/* `from` becomes the place in the stage, which is not there yet. */
static lp_status put_aside(struct lp_device_shadow *d, uint32_t number, int64_t window, lp_error *err)
{
    lp_change_stretch *x = &d->list.stretch[number];
    const lp_piece piece = {.name = x->name, .lo = x->off, .run = (int64_t)x->elements * x->elem, .count = 1};
    if (d->frame_of[window] < 0) {
        LP_TRY(add_frame(d, err));
        d->frame_of[window] = (int32_t)(d->frames - 1);
    }
    lp_frame_span *span = &d->staged.frame[d->frames - 1];
    LP_TRY(lp_pieces_add(&d->staged, &piece, err));
    x->from = (const void *)(uintptr_t)span->bytes;
    x->unused = 1; /* in the stage */
    span->bytes += piece.run;
    span->count++;
    return LP_OK;
}

/* Stretches [*number, ...) are those of the piece. */
static lp_status locate_piece(struct lp_device_shadow *d, const lp_sync_packer *packer, const lp_piece *p,
                              uint32_t *number, int64_t *window, lp_error *err)
{
    row_list rows = {.alloc = d->alloc, .most = 64 + 4 * (lp_piece_bytes(p) / 4096 + p->count)};
    lp_status status = p->run == 0 ? LP_OK : packer->rows(packer->context, p, add_row, &rows, err);
    if (status == LP_OK && rows.has_failed)
        status = lp_fail_memory(err);
    if (rows.is_over)
        rows.count = 0;
    if (rows.count > 1)
        qsort(rows.item, (size_t)rows.count, sizeof *rows.item, by_place);
    const int64_t all = lp_piece_bytes(p);
    for (int64_t at = 0, r = 0; status == LP_OK && (at < all || (all == 0 && at == 0)); (*number)++) {
        lp_change_stretch *x = &d->list.stretch[*number];
        const int64_t bytes = (int64_t)x->elements * x->elem;
        while (*number >= d->list.window[*window + 1])
            (*window)++;
        while (r < rows.count && rows.item[r].hi <= at)
            r++;
        x->unused = 0;
        x->from = NULL;
        if (bytes > 0 && r < rows.count && rows.item[r].lo <= at && at + bytes <= rows.item[r].hi)
            x->from = rows.item[r].data + (at - rows.item[r].lo);
        else if (bytes > 0)
            status = put_aside(d, *number, *window, err);
        at += bytes > 0 ? bytes : 1;
    }
    lp_release(d->alloc, rows.item);
    return status;
}

static lp_status open_stage(struct lp_device_shadow *d, lp_error *err)
{
    int64_t most = 0;
    for (int64_t i = 0; i < d->frames; i++)
        most = d->staged.frame[i].bytes > most ? d->staged.frame[i].bytes : most;
    if (most > 0)
        LP_TRY(take(d, most, &d->stage, err));
    for (int64_t i = 0; i < d->list.count; i++) {
        lp_change_stretch *x = &d->list.stretch[i];
        if (x->unused == 1)
            x->from = (const uint8_t *)d->stage + (uintptr_t)x->from;
        x->unused = 0;
    }
    return LP_OK;
}

/* A source is made out once. */
static lp_status locate(struct lp_device_shadow *d, lp_sync *s, const lp_sync_packer *packer, lp_error *err)
{
    uint32_t number = 0;
    int64_t window = 0;
    if (d->serial == packer->serial)
        return LP_OK;
    d->serial = 0;
    drop_stage(d);
    for (int64_t w = 0; w < d->list.windows; w++)
        d->frame_of[w] = -1;
    for (int64_t i = 0; i < s->shadow->share.count; i++)
        LP_TRY(locate_piece(d, packer, &s->shadow->share.piece[i], &number, &window, err));
    LP_TRY(open_stage(d, err));
    LP_TRY(check(
        d, d->device->store(d->context, d->there, d->list.stretch, d->list.count * (int64_t)sizeof *d->list.stretch),
        "copy to the device", err));
    d->serial = packer->serial;
    return LP_OK;
}

static lp_status prepare(struct lp_device_shadow *d, lp_sync *s, const lp_sync_source *source, lp_error *err)
{
    const lp_sync_packer *packer = source->packer;
    const int64_t names = lp_checkpoint_count(s->catalogue);
    LP_TRY(locate(d, s, packer, err));
    /* Also where nothing is staged: it looks whether the weights are on the device of the messages. */
    void *const at = d->frames > 0 ? d->stage : s->bucket_memory[0], *const bucket[2] = {at, at};
    LP_TRY(packer->beside->prepare(packer->beside->context, d->frame, d->frames, bucket, err));
    for (int64_t i = 0; i < names; i++)
        d->name_flags[i] = (uint8_t)((lp_delta_is_read(s, (uint32_t)i) ? LP_CHANGE_READ : 0) |
                                     (lp_delta_is_whole(s, (uint32_t)i) ? LP_CHANGE_WHOLE : 0));
    LP_TRY(check(d, d->device->store(d->context, d->flags, d->name_flags, names), "copy to the device", err));
    LP_TRY(check(d, d->device->clear(d->context, d->end, d->list.count * (int64_t)sizeof(uint64_t), s->lane->aside),
                 "clear device memory", err));
    LP_TRY(check(d, d->device->clear(d->context, d->ticket, sizeof(uint32_t), s->lane->aside), "clear device memory",
                 err));
    return check(d, d->device->stream_settle(d->context, s->lane->aside), "clear device memory", err);
}

/* ---- frames ---- */

/* Windows are compared in batches, of a launch each: together, as many as surely fit into the frame. */
typedef struct filling {
    lp_sync *s;
    struct lp_device_shadow *d;
    const lp_sync_packer *packer;
    lp_lane_out out;
    lp_delta_rule rule;
    int64_t window, done;      /* windows that were started, and those whose end is known */
    int64_t batch, batch_done; /* the same of batches */
    int64_t batch_end[FLIGHT]; /* window behind each that is under way */
    uint64_t known;            /* end of the records of these */
} filling;

/* `out`: where byte 0 of the stream of all records would be; 0: nothing is written. */
static lp_status compare_windows(filling *f, int64_t count, uintptr_t out, void *stream, lp_error *err)
{
    struct lp_device_shadow *d = f->d;
    const int64_t w = f->window;
    const int32_t frame = d->frame_of[w];
    const lp_change_compare c = {.stretch = d->there,
                                 .flags = out == 0 ? NULL : d->flags,
                                 .end = d->end,
                                 .ticket = d->ticket,
                                 .count = d->list.window[w + count] - d->list.window[w],
                                 .out = (uint8_t *)out,
                                 .writes_whole = !f->s->shadow->is_filled};
    f->window += count;
    if (frame >= 0)
        LP_TRY(f->packer->beside->pack(f->packer->beside->context, frame, stream, err));
    return check(d, d->device->compare(d->context, &c, stream), "compare weights", err);
}

static lp_status start_batch(filling *f, int64_t count, uintptr_t out, lp_error *err)
{
    struct lp_device_shadow *d = f->d;
    const int64_t slot = f->batch++ % FLIGHT;
    /* What is put together first has one place. */
    const int64_t turn = d->frames > 0 ? 0 : f->batch % (STREAMS + 1);
    void *stream = turn == 0 ? f->s->lane->aside : d->stream[turn - 1];
    const uint32_t first = d->list.window[f->window];
    LP_TRY(compare_windows(f, count, out, stream, err));
    const int64_t bytes = (int64_t)(d->list.window[f->window] - first) * (int64_t)sizeof *d->found;
    f->batch_end[slot] = f->window;
    memset(&d->found[first], 0, (size_t)bytes);
    if (bytes > 0)
        LP_TRY(check(d, d->device->copy(d->context, &d->found[first], (const uint64_t *)d->end + first, bytes, stream),
                     "copy from the device", err));
    return check(d, d->device->event_set(d->context, d->event[slot], stream), "mark a stream", err);
}

/* The streams beside aside. */
static lp_status settle(const struct lp_device_shadow *d, lp_error *err)
{
    lp_status status = LP_OK;
    for (int i = 0; i < STREAMS; i++) {
        const int code = d->device->stream_settle(d->context, d->stream[i]);
        if (status == LP_OK)
            status = check(d, code, "compare weights", err);
    }
    return status;
}

/* Its last stretch may have been left to another window that is under way. */
static lp_status find_end(const filling *f, uint64_t *end, lp_error *err)
{
    const struct lp_device_shadow *d = f->d;
    const uint64_t *at = (const uint64_t *)d->end + d->list.window[f->done] - 1;
    LP_TRY(check(d, d->device->stream_settle(d->context, f->s->lane->aside), "compare weights", err));
    LP_TRY(settle(d, err));
    return check(d, d->device->fetch(d->context, end, at, sizeof *end), "copy from the device", err);
}

/* Of the next window, which has been compared. */
static lp_status end_window(filling *f, lp_error *err)
{
    const struct lp_device_shadow *d = f->d;
    const uint32_t stretches = d->list.window[++f->done];
    uint64_t end = stretches > 0 ? d->found[stretches - 1] : 0;
    if ((end & 3) != LP_CHANGE_END_KNOWN && stretches > 0)
        LP_TRY(find_end(f, &end, err));
    f->known = end >> 2;
    return LP_OK;
}

/* Waits for a batch. What did not change before a frame, whose records begin at `base`, is not in it. */
static lp_status end_batch(filling *f, uint64_t base, uint32_t *first, lp_error *err)
{
    const lp_sync_lane *l = f->s->lane;
    const int64_t slot = f->batch_done++ % FLIGHT;
    LP_TRY(l->lane->await(l->owner, f->d->event[slot], -1, err));
    while (f->done < f->batch_end[slot]) {
        LP_TRY(end_window(f, err));
        if (f->known == base)
            *first = f->d->list.window[f->done];
    }
    lp_sync_alive(f->s);
    return LP_OK;
}

/* How many windows fit, into a frame that began with stretch `first`, whatever changed in them and in those under way;
 * what is put together first comes alone. */
static int64_t room_for(const filling *f, int64_t records, uint32_t first)
{
    const struct lp_device_shadow *d = f->d;
    const int64_t flying = f->window - f->done;
    int64_t room = 0;
    while (f->window + room < d->list.windows && flying + room < FLIGHT && room < BATCH &&
           !lp_delta_is_full(&f->rule, records + (flying + room) * f->rule.window,
                             (int64_t)d->list.window[f->window + room] - first) &&
           (room == 0 || (d->frame_of[f->window] < 0 && d->frame_of[f->window + room] < 0)))
        room++;
    return room;
}

/* Fills bucket k with the next frame; *bytes -1: there is nothing left. */
static lp_status fill(filling *f, int k, int64_t *bytes, lp_error *err)
{
    struct lp_device_shadow *d = f->d;
    uint8_t *bucket = f->s->bucket_memory[k];
    const uint64_t base = f->known;
    uint32_t first = d->list.window[f->done];
    for (int i = 0; i < STREAMS; i++)
        LP_TRY(lp_lane_out_free(&f->out, k, d->stream[i], err));
    LP_TRY(lp_lane_out_free(&f->out, k, f->s->lane->aside, err));
    for (;;) {
        const int64_t flying = f->window - f->done;
        const int64_t room = room_for(f, (int64_t)(f->known - base), first);
        if (room >= LEAST || (room > 0 && flying == 0))
            LP_TRY(start_batch(f, room, (uintptr_t)bucket - (uintptr_t)base, err));
        else if (flying > 0)
            LP_TRY(end_batch(f, base, &first, err));
        else
            break;
    }
    const int64_t records = (int64_t)(f->known - base);
    const lp_change_table table = {
        .end = d->end, .first = first, .count = d->list.window[f->done] - first, .base = base, .out = bucket + records};
    *bytes = records > 0 ? lp_delta_frame_bytes(records, table.count) : -1;
    return records == 0
               ? LP_OK
               : check(d, d->device->table(d->context, &table, f->s->lane->aside), "write the ends of records", err);
}

static lp_status send_frames(filling *f, const int32_t *peer, int32_t peers, lp_error *err)
{
    int64_t bytes = 0; /* of the first frame, which says how long the second one is */
    for (int64_t sequence = 0; bytes >= 0; sequence++) {
        const int k = (int)(sequence % 2);
        int64_t next = -1;
        if (bytes > 0)
            LP_TRY(lp_lane_out_start(&f->out, k, peer, peers, bytes, err));
        LP_TRY(fill(f, 1 - k, &next, err));
        LP_TRY(lp_lane_out_announce(&f->out, k, peer, peers, sequence, bytes, next, err));
        bytes = next;
    }
    return lp_lane_out_drain(&f->out, err);
}

/* Sends nothing. */
static lp_status fill_shadow(filling *f, lp_error *err)
{
    while (f->window < f->d->list.windows)
        LP_TRY(compare_windows(f, 1, 0, f->s->lane->aside, err));
    return LP_OK;
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
        status = prepare(f.d, s, source, err);
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
