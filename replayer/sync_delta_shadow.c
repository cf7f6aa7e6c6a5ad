/* SPDX-License-Identifier: Apache-2.0 */
/* The shadow of a sender on a device. */
#include "replayer/sync_delta_shadow.h"

#include <stdlib.h>

enum { SHADOW_ALIGN = 32 /* a sector of memory: so much is written at a time */ };

/* ---- memory ---- */

lp_status lp_shadow_check(const struct lp_device_shadow *d, int code, const char *verb, lp_error *err)
{
    if (code == 0)
        return LP_OK;
    return lp_fail(err, LP_E_DEVICE, "cannot %s: %s", verb, d->device->error_text(d->context, code));
}

static lp_status take(const struct lp_device_shadow *d, int64_t bytes, void **out, lp_error *err)
{
    return lp_shadow_check(d, d->device->allocate(d->context, bytes + 1, out), "take device memory for a shadow", err);
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
    void *const block[] = {d->memory, d->there, d->place, d->flags, d->used};
    for (size_t i = 0; i < sizeof block / sizeof *block; i++)
        if (block[i] != NULL)
            d->device->release(d->context, block[i]);
    for (int i = 0; i < LP_SHADOW_FLIGHT; i++)
        if (d->event[i] != NULL)
            d->device->event_close(d->context, d->event[i]);
    for (int i = 0; i < LP_SHADOW_STREAMS; i++)
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
    void *found = NULL, *used = NULL;
    LP_TRY(lp_delta_list_make(&d->list, s, &s->shadow->share, err));
    d->name_flags = lp_allocate(s->alloc, (size_t)names + 1);
    d->frame_of = lp_allocate(s->alloc, (size_t)d->list.windows * sizeof *d->frame_of);
    if (d->name_flags == NULL || d->frame_of == NULL)
        return lp_fail_memory(err);
    LP_TRY(take(d, lay_out(d), &d->memory, err));
    for (int64_t i = 0; i < d->list.count; i++)
        d->list.stretch[i].shadow = (uint8_t *)d->memory + (uintptr_t)d->list.stretch[i].shadow;
    LP_TRY(take(d, d->list.count * (int64_t)sizeof *d->list.stretch, &d->there, err));
    LP_TRY(take(d, d->list.count * (int64_t)sizeof(lp_change_place), &d->place, err));
    LP_TRY(take(d, names, &d->flags, err));
    LP_TRY(take(d, 2 * (int64_t)sizeof *d->used, &used, err));
    d->used = used;
    LP_TRY(lp_shadow_check(d, d->device->take_pinned(d->context, LP_SHADOW_FLIGHT * (int64_t)sizeof *d->found, &found),
                           "pin memory", err));
    d->found = found;
    for (int i = 0; i < LP_SHADOW_STREAMS; i++)
        LP_TRY(lp_shadow_check(d, d->device->stream_open(d->context, false, &d->stream[i]), "open a stream", err));
    for (int i = 0; i < LP_SHADOW_FLIGHT; i++)
        LP_TRY(lp_shadow_check(d, d->device->event_open(d->context, &d->event[i]), "make an event", err));
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
    LP_TRY(lp_shadow_check(
        d, d->device->store(d->context, d->there, d->list.stretch, d->list.count * (int64_t)sizeof *d->list.stretch),
        "copy to the device", err));
    d->serial = packer->serial;
    return LP_OK;
}

lp_status lp_device_shadow_prepare(lp_sync *s, const lp_sync_source *source, lp_error *err)
{
    struct lp_device_shadow *d = s->shadow->on;
    const lp_sync_packer *packer = source->packer;
    const int64_t names = lp_checkpoint_count(s->catalogue);
    LP_TRY(locate(d, s, packer, err));
    /* Also where nothing is staged: it looks whether the weights are on the device of the messages. */
    void *const at = d->frames > 0 ? d->stage : s->bucket_memory[0], *const bucket[2] = {at, at};
    LP_TRY(packer->beside->prepare(packer->beside->context, d->frame, d->frames, bucket, err));
    for (int64_t i = 0; i < names; i++)
        d->name_flags[i] = (uint8_t)((lp_delta_is_read(s, (uint32_t)i) ? LP_CHANGE_READ : 0) |
                                     (lp_delta_is_whole(s, (uint32_t)i) ? LP_CHANGE_WHOLE : 0));
    LP_TRY(lp_shadow_check(d, d->device->store(d->context, d->flags, d->name_flags, names), "copy to the device", err));
    LP_TRY(lp_shadow_check(d, d->device->clear(d->context, d->used, 2 * (int64_t)sizeof *d->used, s->lane->aside),
                           "clear device memory", err));
    return lp_shadow_check(d, d->device->stream_settle(d->context, s->lane->aside), "clear device memory", err);
}
