/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Delta epochs. Every sender keeps a copy of its share of the bytes of the last epoch, the shadow, compares and sends
 * what changed to the receivers that hold exactly that epoch. Receivers write the changes through the same maps as a
 * load, and run every derive again, so the result is that of a load of everything.
 */
#include "replayer/sync_delta.h"
#include "replayer/transport_wire.h"

void lp_shadow_free(struct lp_shadow *shadow, const lp_alloc *alloc)
{
    if (shadow == NULL)
        return;
    lp_pieces_free(&shadow->share);
    lp_device_shadow_close(shadow->on);
    lp_release(alloc, shadow->bytes);
    lp_release(alloc, shadow);
}

static lp_status new_shadow(lp_sync *s, const lp_sync_source *source, lp_pieces *share, lp_error *err)
{
    lp_shadow_free(s->shadow, s->alloc);
    s->shadow = lp_allocate_zero(s->alloc, sizeof *s->shadow);
    if (s->shadow == NULL) {
        lp_pieces_free(share);
        return lp_fail_memory(err);
    }
    s->shadow->share = *share;
    if (lp_delta_is_on_device(s, source))
        return lp_device_shadow_open(s, err);
    s->shadow->bytes = lp_allocate_zero(s->alloc, (size_t)share->bytes + 1);
    if (s->shadow->bytes == NULL)
        return lp_fail(err, LP_E_MEMORY, "no memory for a shadow of %lld bytes", (long long)share->bytes);
    return LP_OK;
}

void lp_shadow_release(lp_sync *s)
{
    if (s->shadow == NULL || s->shadow->on == NULL)
        return;
    lp_shadow_free(s->shadow, s->alloc);
    s->shadow = NULL;
}

/* The shadow of the share that this sender has now: the one that it had, or a new one that is empty. */
static lp_status take_shadow(lp_sync *s, const lp_sync_source *source, lp_error *err)
{
    lp_pieces share;
    lp_pieces_init(&share, s->alloc);
    const lp_status status = lp_delta_share(s, s->round.rank, &share, err);
    if (status == LP_OK && (s->shadow == NULL || !lp_delta_same_share(&s->shadow->share, &share) ||
                            (s->shadow->on != NULL) != lp_delta_is_on_device(s, source)))
        return new_shadow(s, source, &share, err);
    lp_pieces_free(&share);
    return status;
}

/* ---- senders ---- */

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

bool lp_delta_is_whole(const lp_sync *s, uint32_t name)
{
    for (int32_t i = s->round.senders; i < s->round.world; i++)
        if (s->is_delta[i] && lp_bit(s->fact[i].whole, name))
            return true;
    return false;
}

bool lp_delta_is_read(const lp_sync *s, uint32_t name)
{
    for (int32_t i = s->round.senders; i < s->round.world; i++)
        if (s->is_delta[i] && lp_bit(s->fact[i].used, name))
            return true;
    return false;
}

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

/* Layerwise sessions, and plans on a device that messages do not come to, never take changes: for them alone nothing is
 * kept. */
static bool is_shadow_of_use(const lp_sync *s)
{
    for (int32_t i = s->round.senders; i < s->round.world; i++)
        if (s->fact[i].takes_delta)
            return true;
    return false;
}

static lp_status send_from_host(lp_sync *s, const lp_sync_source *source, const int32_t *peer, int32_t peers,
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

lp_status lp_delta_send(lp_sync *s, const lp_sync_source *source, lp_error *err)
{
    int32_t peers = 0;
    if (!is_shadow_of_use(s)) {
        lp_shadow_free(s->shadow, s->alloc);
        s->shadow = NULL;
        return LP_OK;
    }
    LP_TRY(take_shadow(s, source, err));
    s->report.shadow_bytes = s->shadow->share.bytes;
    int32_t *peer = lp_allocate(s->alloc, (size_t)s->round.world * sizeof *peer);
    if (peer == NULL)
        return lp_fail_memory(err);
    lp_status status = lp_sync_partners(s, true, peer, &peers, err);
    if (status == LP_OK)
        status = s->shadow->on != NULL ? lp_device_shadow_send(s, source, peer, peers, err)
                                       : send_from_host(s, source, peer, peers, err);
    s->shadow->is_filled = status == LP_OK;
    lp_release(s->alloc, peer);
    return status;
}

/* ---- receivers ---- */

typedef struct application {
    lp_sync *s;
    const lp_sync_sink *sink;
} application;

static lp_status apply(void *context, uint32_t name, int64_t off, const uint8_t *data, int64_t bytes,
                       lp_change_form form, lp_error *err)
{
    const application *a = context;
    const lp_fact *me = &a->s->fact[a->s->round.rank];
    lp_sync_alive(a->s);
    if (!lp_bit(me->used, name))
        return LP_OK;
    if (!lp_bit(me->whole, name))
        return a->sink->patch(a->sink->context, name, off, data, bytes, err);
    if (form != LP_CHANGE_ALL)
        return lp_fail(err, LP_E_CORRUPT, "changes came where the whole of '%s' was due",
                       lp_checkpoint_at(a->s->catalogue, name)->name);
    return a->sink->push(a->sink->context, name, off, data, bytes, err);
}

lp_status lp_delta_turns_open(lp_delta_turns *t, lp_sync *s, lp_error *err)
{
    const size_t count = (size_t)s->round.world;
    *t = (lp_delta_turns){.alloc = s->alloc, .at = -1};
    t->sender = lp_allocate(s->alloc, count * sizeof *t->sender);
    t->next = lp_allocate_zero(s->alloc, count * sizeof *t->next);
    t->sequence = lp_allocate_zero(s->alloc, count * sizeof *t->sequence);
    if (t->sender == NULL || t->next == NULL || t->sequence == NULL)
        return lp_fail_memory(err);
    return lp_sync_partners(s, true, t->sender, &t->senders, err);
}

void lp_delta_turns_close(lp_delta_turns *t)
{
    lp_release(t->alloc, t->sender);
    lp_release(t->alloc, t->next);
    lp_release(t->alloc, t->sequence);
}

int32_t lp_delta_turn(lp_delta_turns *t)
{
    for (int32_t i = 0; i < t->senders; i++) {
        t->at = (t->at + 1) % t->senders;
        if (t->next[t->sender[t->at]] >= 0)
            return t->sender[t->at];
    }
    return -1;
}

static lp_status receive_changes(application *a, lp_inflow *in, lp_delta_turns *t, lp_error *err)
{
    lp_sync *s = a->s;
    int32_t sender = lp_delta_turn(t);
    if (sender >= 0)
        LP_TRY(lp_in_post(in, sender, t->sequence[sender]++, t->next[sender], err));
    while (sender >= 0) {
        lp_frame frame;
        const uint8_t *payload = NULL;
        LP_TRY(lp_in_take(in, &frame, &payload, err));
        t->next[sender] = frame.next_bytes;
        const int32_t other = lp_delta_turn(t);
        if (other >= 0)
            LP_TRY(lp_in_post(in, other, t->sequence[other]++, t->next[other], err));
        if (frame.bytes > 0)
            LP_TRY(lp_delta_get_frame(payload, frame.bytes, s->catalogue, apply, a, err));
        sender = other;
    }
    return LP_OK;
}

/* What did not change is as it was: names are complete without it. */
static lp_status keep_rest(lp_sync *s, const lp_sync_sink *sink, lp_error *err)
{
    const lp_fact *me = &s->fact[s->round.rank];
    for (uint32_t i = 0; i < lp_checkpoint_count(s->catalogue); i++)
        if (lp_bit(me->used, i) && !lp_bit(me->whole, i))
            LP_TRY(sink->keep(sink->context, i, err));
    return LP_OK;
}

static lp_status receive_on_host(lp_sync *s, const lp_sync_sink *sink, lp_error *err)
{
    application a = {.s = s, .sink = sink};
    lp_delta_turns turns;
    lp_inflow in;
    lp_in_init(&in, s);
    lp_status status = lp_delta_turns_open(&turns, s, err);
    if (status == LP_OK)
        status = receive_changes(&a, &in, &turns, err);
    lp_in_free(&in);
    lp_delta_turns_close(&turns);
    return status;
}

lp_status lp_delta_receive(lp_sync *s, const lp_plan *plan, const lp_sync_sink *sink, lp_error *err)
{
    LP_TRY(s->uses_lane ? lp_delta_apply(s, plan, sink, err) : receive_on_host(s, sink, err));
    return keep_rest(s, sink, err);
}
