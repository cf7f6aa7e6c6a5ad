/* SPDX-License-Identifier: Apache-2.0 */
/* Changes of weights that the host reads, stretch by stretch, against a shadow in its memory. */
#include "replayer/sync_delta.h"

enum { AT_ONCE = 512 << 10 /* bytes that are read: sources are files, too */ };

typedef struct comparison {
    lp_sync *s;
    const lp_sync_source *source;
    lp_delta_rule rule;
    int64_t piece, run, at; /* where in the share: run of a piece, byte of a run */
    int64_t base;           /* bytes of the shadow before that */
    int64_t number;         /* stretches before that */
    int64_t left;           /* of the window */
    uint8_t *fresh;         /* AT_ONCE bytes */
    uint8_t *ahead;         /* the frame that is sent next */
    int64_t used;           /* bytes of records in it */
    lp_change_place *place; /* of the records of its stretches */
    int64_t first, places, place_capacity;
} comparison;

static lp_status end_stretch(comparison *c, int64_t begin, lp_error *err)
{
    void *items = c->place;
    if (!lp_grow(c->s->alloc, &items, &c->place_capacity, c->places + 1, sizeof *c->place))
        return lp_fail_memory(err);
    c->place = items;
    c->place[c->places++] = (lp_change_place){(uint32_t)begin, (uint32_t)(c->used - begin)};
    c->number++;
    return LP_OK;
}

/* Writes what changed of `bytes` bytes at `lo`, which are in c->fresh + `from`, and brings the shadow up to date. */
static lp_status compare_bytes(comparison *c, uint32_t name, int elem, int64_t lo, int64_t from, int64_t bytes,
                               lp_error *err)
{
    lp_sync *s = c->s;
    uint8_t *was = s->shadow->bytes + c->base;
    const bool whole = bytes == 0 || !s->shadow->is_filled || lp_delta_is_whole(s, name);
    const int64_t begin = c->used;
    if (lp_delta_is_read(s, name))
        c->used += lp_change_put(name, lo, elem, bytes / elem, was, c->fresh + from, whole, c->ahead + c->used);
    memcpy(was, c->fresh + from, (size_t)bytes);
    c->base += bytes;
    c->left -= lp_delta_room(bytes);
    return end_stretch(c, begin, err);
}

/* As many stretches of a long run as fit, read at once; the next one does. */
static lp_status compare_parts(comparison *c, const lp_piece *p, int elem, lp_error *err)
{
    const int64_t most = lp_delta_most(&c->rule, elem), in_window = c->left / lp_delta_room(most) * most;
    const int64_t fit = in_window < AT_ONCE / most * most ? in_window : AT_ONCE / most * most, left = p->run - c->at;
    const int64_t bytes = left < most || left < fit ? left : fit, lo = p->lo + c->run * p->stride + c->at;
    if (bytes > 0)
        LP_TRY(c->source->read(c->source->context, p->name, lo, bytes, 0, 1, c->fresh, err));
    for (int64_t at = 0; at < bytes || at == 0; at += most)
        LP_TRY(compare_bytes(c, p->name, elem, lo + at, at, bytes - at < most ? bytes - at : most, err));
    c->at += bytes;
    return LP_OK;
}

/* As many short runs as fit, read at once. */
static lp_status compare_runs(comparison *c, const lp_piece *p, int elem, lp_error *err)
{
    const int64_t in_window = c->left / lp_delta_room(p->run), at_once = AT_ONCE / p->run;
    const int64_t fit = in_window < at_once ? in_window : at_once, left = p->count - c->run;
    const int64_t runs = fit < left ? fit : left, lo = p->lo + c->run * p->stride;
    LP_TRY(c->source->read(c->source->context, p->name, lo, p->run, runs > 1 ? p->stride : 0, runs, c->fresh, err));
    for (int64_t k = 0; k < runs; k++)
        LP_TRY(compare_bytes(c, p->name, elem, lo + k * p->stride, k * p->run, p->run, err));
    c->run += runs;
    return LP_OK;
}

static bool has_short_runs(const comparison *c, const lp_piece *p, int elem)
{
    return p->count > 1 && p->run > 0 && p->run <= lp_delta_most(&c->rule, elem);
}

/* Compares the next stretch, or several of one window, and writes what changed behind the records. */
static lp_status compare_next(comparison *c, lp_error *err)
{
    const lp_piece *p = &c->s->shadow->share.piece[c->piece];
    const lp_checkpoint_tensor *t = lp_checkpoint_at(c->s->catalogue, p->name);
    const int elem = lp_change_elem(t->dtype);
    if (p->lo % elem != 0 || p->run % elem != 0 || p->stride % elem != 0)
        return lp_fail(err, LP_E_UNSUPPORTED, "senders hold parts of elements of '%s'", t->name);
    if (has_short_runs(c, p, elem)) {
        LP_TRY(compare_runs(c, p, elem, err));
    } else {
        LP_TRY(compare_parts(c, p, elem, err));
        if (c->at == p->run) {
            c->at = 0;
            c->run++;
        }
    }
    if (c->run == p->count) {
        c->run = 0;
        c->piece++;
    }
    return LP_OK;
}

/* Whether the next stretch does not fit into the window. */
static bool is_window_over(const comparison *c)
{
    const lp_piece *p = &c->s->shadow->share.piece[c->piece];
    const int64_t most = lp_delta_most(&c->rule, lp_change_elem(lp_checkpoint_at(c->s->catalogue, p->name)->dtype));
    const int64_t left = p->run - c->at;
    return lp_delta_room(left < most ? left : most) > c->left;
}

/* Fills c->ahead; *bytes -1: there is nothing left. */
static lp_status next_frame(comparison *c, int64_t *bytes, lp_error *err)
{
    c->used = c->places = 0;
    while (c->piece < c->s->shadow->share.count) {
        if (is_window_over(c)) {
            if (c->used == 0) { /* what did not change before a frame is not in it */
                c->first = c->number;
                c->places = 0;
            }
            if (lp_delta_is_full(&c->rule, c->used, c->places))
                break;
            c->left = c->rule.window;
        }
        LP_TRY(compare_next(c, err));
        lp_sync_alive(c->s);
    }
    *bytes = -1;
    if (c->used == 0)
        return LP_OK;
    if (c->number > UINT32_MAX / 2)
        return lp_fail(err, LP_E_LIMIT, "the weights of a sender lie in too many parts to be compared");
    lp_delta_put_table(c->ahead + c->used, c->place, (uint32_t)c->first, (uint32_t)c->places);
    *bytes = lp_delta_frame_bytes(c->used, c->places);
    return LP_OK;
}

static lp_status send_changes(comparison *c, const int32_t *peer, int32_t peers, lp_error *err)
{
    lp_sync *s = c->s;
    int64_t bytes = 0, sequence = 0; /* the first frame says how long the second one is */
    lp_outflow out;
    lp_out_init(&out, s);
    lp_status status = LP_OK;
    while (status == LP_OK && bytes >= 0) {
        uint8_t *bucket = NULL;
        int64_t next_bytes = -1;
        status = lp_out_bucket(&out, &bucket, err);
        if (status != LP_OK)
            break;
        if (bytes > 0)
            memcpy(bucket, c->ahead, (size_t)bytes);
        status = next_frame(c, &next_bytes, err);
        if (status == LP_OK)
            status = lp_out_send(&out, peer, peers, sequence++, bytes, next_bytes, err);
        bytes = next_bytes;
    }
    if (status == LP_OK)
        status = lp_out_drain(&out, err);
    lp_out_free(&out);
    return status;
}

/* Brings the shadow to what the source holds, sending nothing. */
static lp_status fill_shadow(lp_sync *s, const lp_sync_source *source, lp_error *err)
{
    int64_t at = 0;
    for (int64_t i = 0; i < s->shadow->share.count; i++) {
        const lp_piece *p = &s->shadow->share.piece[i];
        const int64_t step = 16 << 20;
        if (p->count > 1)
            LP_TRY(
                source->read(source->context, p->name, p->lo, p->run, p->stride, p->count, s->shadow->bytes + at, err));
        for (int64_t off = 0; off < p->run && p->count == 1; off += step) {
            const int64_t bytes = p->run - off < step ? p->run - off : step;
            LP_TRY(source->read(source->context, p->name, p->lo + off, bytes, 0, 1, s->shadow->bytes + at + off, err));
            lp_sync_alive(s);
        }
        at += lp_piece_bytes(p);
    }
    return LP_OK;
}

lp_status lp_delta_send_from_host(lp_sync *s, const lp_sync_source *source, const int32_t *peer, int32_t peers,
                                  lp_error *err)
{
    comparison c = {.s = s, .source = source, .rule = lp_delta_rule_of(s->bucket, s->shadow->share.bytes)};
    if (peers == 0)
        return fill_shadow(s, source, err);
    c.fresh = lp_allocate(s->alloc, AT_ONCE);
    c.ahead = lp_allocate(s->alloc, (size_t)s->bucket);
    const lp_status status =
        c.fresh == NULL || c.ahead == NULL ? lp_fail_memory(err) : send_changes(&c, peer, peers, err);
    lp_release(s->alloc, c.fresh);
    lp_release(s->alloc, c.ahead);
    lp_release(s->alloc, c.place);
    return status;
}
