/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Frames packed on a device: the maps from a trainer's memory to the buckets of a whole pass, compiled to one program
 * of the kind that sessions use, of which each frame is a push. Made before the first frame, so that nothing is taken
 * or compiled while messages are under way.
 */
#include "replayer/device_session.h"
#include "replayer/sync_private.h"
#include "replayer/sync_source.h"
#include "replayer/sync_sum.h"

#include <stdatomic.h>

typedef struct packing {
    const lp_plan *plan;
    const lp_alloc *alloc;

    /* what was prepared */
    lp_piece *piece;
    int64_t pieces, piece_capacity;
    int64_t *frame; /* frames + 1: first piece of each */
    int64_t *bytes; /* of each frame */
    int64_t frames;
    void *bucket[2], *own; /* own: the packer's one bucket; NULL: they are the caller's */
    bool is_ready;

    /* how it is done: a part is an item of the program */
    int64_t *piece_part; /* pieces + 1: first part of each */
    lp_gather_part *part;
    int64_t parts, part_capacity;
    lp_step *step;       /* by part */
    lp_device_side side; /* items and their steps only, which is what a program is made of */
    uint32_t *first;     /* frames + 1: first part of each frame */
    uint32_t *number;    /* by part: its number */
    const void **base;   /* by part: where its destination lies */
    void *program;
} packing;

static void forget(packing *p)
{
    const lp_device_calls *c = &p->plan->side->calls;
    int before = 0;
    const bool is_in = c->enter(c->context, &before) == 0;
    if (p->program != NULL)
        c->program_close(c->context, p->program);
    c->give(c->context, p->own);
    if (is_in)
        c->leave(c->context, before);
    for (int64_t i = 0; i < p->parts; i++)
        lp_map_free(p->part[i].map, p->alloc);
    void *const owned[] = {p->piece, p->frame,     p->bytes,     p->piece_part, p->part,        p->step,
                           p->first, p->side.item, p->side.step, p->number,     (void *)p->base};
    for (size_t i = 0; i < sizeof owned / sizeof *owned; i++)
        lp_release(p->alloc, owned[i]);
    *p = (packing){.plan = p->plan, .alloc = p->alloc};
}

/* ---- what is asked for ---- */

static lp_status list_pieces(packing *p, const lp_frame_out *frame, int64_t count, lp_error *err)
{
    p->frame = lp_allocate(p->alloc, ((size_t)count + 1) * sizeof *p->frame);
    p->bytes = lp_allocate(p->alloc, ((size_t)count + 1) * sizeof *p->bytes);
    if (p->frame == NULL || p->bytes == NULL)
        return lp_fail_memory(err);
    for (int64_t i = 0; i < count; i++) {
        const lp_frame_span *span = lp_pieces_frame(frame[i].pieces, frame[i].number);
        void *items = p->piece;
        if (!lp_grow(p->alloc, &items, &p->piece_capacity, p->pieces + span->count, sizeof *p->piece))
            return lp_fail_memory(err);
        p->piece = items;
        memcpy(&p->piece[p->pieces], &frame[i].pieces->piece[span->first], (size_t)span->count * sizeof *p->piece);
        p->frame[i] = p->pieces;
        p->bytes[i] = span->bytes;
        p->pieces += span->count;
    }
    p->frame[count] = p->pieces;
    p->frames = count;
    return LP_OK;
}

static bool same_piece(const lp_piece *a, const lp_piece *b)
{
    return a->name == b->name && a->lo == b->lo && a->run == b->run && a->stride == b->stride && a->count == b->count;
}

static bool is_prepared(const packing *p, const lp_frame_out *frame, int64_t count, void *const *bucket)
{
    int64_t at = 0;
    if (!p->is_ready || p->frames != count || (bucket == NULL) != (p->own != NULL) ||
        (bucket != NULL && (p->bucket[0] != bucket[0] || p->bucket[1] != bucket[1])))
        return false;
    for (int64_t i = 0; i < count; i++) {
        const lp_frame_span *span = lp_pieces_frame(frame[i].pieces, frame[i].number);
        if (p->frame[i] != at || p->frame[i + 1] - at != span->count)
            return false;
        for (int64_t k = 0; k < span->count; k++)
            if (!same_piece(&p->piece[at + k], &frame[i].pieces->piece[span->first + k]))
                return false;
        at += span->count;
    }
    return true;
}

/* ---- the program ---- */

static lp_status compile_pieces(packing *p, lp_error *err)
{
    p->piece_part = lp_allocate(p->alloc, ((size_t)p->pieces + 1) * sizeof *p->piece_part);
    if (p->piece_part == NULL)
        return lp_fail_memory(err);
    for (int64_t i = 0; i < p->pieces; i++) {
        const lp_piece *x = &p->piece[i];
        p->piece_part[i] = p->parts;
        if (x->run > 0)
            LP_TRY(lp_gather_compile(p->plan, x->name, x->lo, x->run, x->stride, x->count, p->alloc, &p->part,
                                     &p->parts, &p->part_capacity, err));
    }
    p->piece_part[p->pieces] = p->parts;
    return p->parts < UINT32_MAX ? LP_OK : lp_fail(err, LP_E_LIMIT, "weights lie in too many parts to be packed");
}

static void make_item(packing *p, uint32_t number, uint8_t *to)
{
    const lp_gather_part *part = &p->part[number];
    p->step[number] = (lp_step){.map = part->map, .dest = part->dest, .stage = LP_NONE, .kind = LP_KIND_COPY};
    p->side.step[number] = (lp_item_step){.step = &p->step[number], .to = to};
    p->side.item[number] = (lp_device_item){
        .entry = LP_NONE, .unit = LP_NONE, .first_step = number, .step_count = 1, .bytes = part->map->dst_bytes};
    p->number[number] = number;
    p->base[number] = p->plan->address[part->dest];
}

static lp_status make_items(packing *p, lp_error *err)
{
    const size_t room = (size_t)p->parts + 1;
    p->first = lp_allocate(p->alloc, ((size_t)p->frames + 1) * sizeof *p->first);
    p->step = lp_allocate(p->alloc, room * sizeof *p->step);
    p->side.step = lp_allocate(p->alloc, room * sizeof *p->side.step);
    p->side.item = lp_allocate(p->alloc, room * sizeof *p->side.item);
    p->number = lp_allocate(p->alloc, room * sizeof *p->number);
    p->base = lp_allocate(p->alloc, room * sizeof *p->base);
    if (p->first == NULL || p->step == NULL || p->side.step == NULL || p->side.item == NULL || p->number == NULL ||
        p->base == NULL)
        return lp_fail_memory(err);
    p->side.alloc = p->alloc;
    p->side.item_count = (uint32_t)p->parts;
    for (int64_t f = 0; f < p->frames; f++) {
        uint8_t *to = p->bucket[f % 2];
        p->first[f] = (uint32_t)p->piece_part[p->frame[f]];
        for (int64_t i = p->frame[f]; i < p->frame[f + 1]; i++) {
            for (int64_t k = p->piece_part[i]; k < p->piece_part[i + 1]; k++)
                make_item(p, (uint32_t)k, to);
            to += lp_piece_bytes(&p->piece[i]);
        }
    }
    p->first[p->frames] = (uint32_t)p->parts;
    return LP_OK;
}

/* One bucket of the packer's own, since a frame is fetched before the next one is packed. */
static lp_status take_bucket(packing *p, lp_error *err)
{
    const lp_device_calls *c = &p->plan->side->calls;
    int64_t most = 1;
    for (int64_t i = 0; i < p->frames; i++)
        most = p->bytes[i] > most ? p->bytes[i] : most;
    LP_TRY(lp_device_check(c, c->take(c->context, most, &p->own), "take device memory for a bucket", err));
    p->bucket[0] = p->bucket[1] = p->own;
    return LP_OK;
}

static lp_status check_bucket(const packing *p, const void *bucket, lp_error *err)
{
    const lp_device_calls *c = &p->plan->side->calls;
    bool is_ours = false;
    LP_TRY(lp_device_check(c, c->is_ours(c->context, bucket, &is_ours), "ask where buckets lie", err));
    if (is_ours)
        return LP_OK;
    lp_fail(err, LP_E_UNSUPPORTED, "messages go through another device than '%s', where the weights lie",
            p->plan->side->name);
    lp_hint(err, "name the device of the weights for the transport");
    return LP_E_UNSUPPORTED;
}

static lp_status prepare_inside(packing *p, void *const *bucket, lp_error *err)
{
    const lp_device_calls *c = &p->plan->side->calls;
    if (bucket == NULL) {
        LP_TRY(take_bucket(p, err));
    } else {
        LP_TRY(check_bucket(p, bucket[0], err));
        memcpy(p->bucket, bucket, sizeof p->bucket);
    }
    LP_TRY(compile_pieces(p, err));
    LP_TRY(make_items(p, err));
    if (p->parts > 0)
        LP_TRY(c->program_open(c->context, &p->program, &p->side, err));
    if (p->program != NULL && p->own == NULL && c->program_leave != NULL)
        c->program_leave(c->context, p->program, LP_LANE_LEFT);
    p->is_ready = true;
    return LP_OK;
}

static lp_status prepare(void *context, const lp_frame_out *frame, int64_t count, void *const *bucket, lp_error *err)
{
    packing *p = context;
    const lp_device_calls *c = &p->plan->side->calls;
    int before;
    if (is_prepared(p, frame, count, bucket))
        return LP_OK;
    forget(p);
    lp_status status = list_pieces(p, frame, count, err);
    if (status == LP_OK)
        status = lp_device_check(c, c->enter(c->context, &before), "use the device", err);
    if (status == LP_OK) {
        status = prepare_inside(p, bucket, err);
        c->leave(c->context, before);
    }
    if (status != LP_OK)
        forget(p);
    return status;
}

/* ---- frames ---- */

static lp_status pack_inside(packing *p, int64_t number, void *stream, lp_error *err)
{
    const lp_device_calls *c = &p->plan->side->calls;
    const uint32_t first = p->first[number], count = p->first[number + 1] - first;
    if (count == 0)
        return LP_OK;
    return c->program_push(c->context, p->program, &p->number[first], &p->base[first], count, stream, err);
}

static lp_status pack(void *context, int64_t number, void *stream, lp_error *err)
{
    packing *p = context;
    const lp_device_calls *c = &p->plan->side->calls;
    int before;
    LP_TRY(lp_device_check(c, c->enter(c->context, &before), "use the device", err));
    const lp_status status = pack_inside(p, number, stream, err);
    c->leave(c->context, before);
    return status;
}

static lp_status fetch_inside(packing *p, int64_t number, void *out, lp_error *err)
{
    const lp_device_calls *c = &p->plan->side->calls;
    LP_TRY(pack_inside(p, number, NULL, err));
    int code = c->copy(c->context, out, p->own, p->bytes[number], NULL);
    if (code == 0)
        code = c->wait(c->context, NULL);
    return lp_device_check(c, code, "copy a bucket to the host", err);
}

static lp_status fetch(void *context, int64_t number, void *out, lp_error *err)
{
    packing *p = context;
    const lp_device_calls *c = &p->plan->side->calls;
    int before;
    LP_TRY(lp_device_check(c, c->enter(c->context, &before), "use the device", err));
    const lp_status status = fetch_inside(p, number, out, err);
    if (status != LP_OK)
        (void)c->wait(c->context, NULL); /* it may be writing to what is the caller's */
    c->leave(c->context, before);
    return status;
}

/* ---- rows ---- */

typedef struct row_walk {
    int (*row)(void *to, int64_t off, const void *data, int64_t bytes);
    void *to;
    const uint8_t *base;
} row_walk;

static int walk_row(void *context, int64_t dst_off, int64_t src_off, int64_t count)
{
    const row_walk *w = context;
    return w->row(w->to, dst_off, w->base + src_off, count);
}

static lp_status rows(void *context, const lp_piece *piece,
                      int (*row)(void *to, int64_t off, const void *data, int64_t bytes), void *to, lp_error *err)
{
    const packing *p = context;
    lp_gather_part *part = NULL;
    int64_t parts = 0, capacity = 0;
    bool is_over = false;
    const lp_status status = lp_gather_compile(p->plan, piece->name, piece->lo, piece->run, piece->stride, piece->count,
                                               p->alloc, &part, &parts, &capacity, err);
    for (int64_t i = 0; i < parts; i++) {
        row_walk w = {.row = row, .to = to, .base = p->plan->address[part[i].dest]};
        if (status == LP_OK && !is_over)
            is_over = lp_map_walk(part[i].map, walk_row, &w) != 0;
        lp_map_free(part[i].map, p->alloc);
    }
    lp_release(p->alloc, part);
    return status;
}

/* ---- life ---- */

static lp_status open_one(lp_sync_packer **out, const lp_plan *plan, lp_error *err)
{
    static atomic_uint_fast64_t last;
    const lp_alloc *alloc = plan->platform.alloc;
    lp_sync_packer *packer = lp_allocate_zero(alloc, sizeof *packer);
    packing *p = lp_allocate_zero(alloc, sizeof *p);
    if (packer == NULL || p == NULL) {
        lp_release(alloc, packer);
        lp_release(alloc, p);
        return lp_fail_memory(err);
    }
    *p = (packing){.plan = plan, .alloc = alloc};
    *packer = (lp_sync_packer){.context = p,
                               .prepare = prepare,
                               .pack = pack,
                               .fetch = fetch,
                               .rows = rows,
                               .serial = atomic_fetch_add(&last, 1) + 1};
    *out = packer;
    return LP_OK;
}

lp_status lp_packer_open(lp_sync_packer **out, const lp_plan *plan, lp_error *err)
{
    lp_sync_packer *packer = NULL;
    LP_TRY(open_one(&packer, plan, err));
    const lp_status status = open_one(&packer->beside, plan, err);
    if (status == LP_OK)
        *out = packer;
    else
        lp_packer_close(packer);
    return status;
}

void lp_packer_close(lp_sync_packer *packer)
{
    if (packer == NULL)
        return;
    lp_packer_close(packer->beside);
    packing *p = packer->context;
    const lp_alloc *alloc = p->alloc;
    forget(p);
    lp_release(alloc, p);
    lp_release(alloc, packer);
}
