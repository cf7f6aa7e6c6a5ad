/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Delta epochs. Every sender keeps a copy of its share of the bytes of the last epoch, the shadow, compares and sends
 * what changed to the receivers that hold exactly that epoch. Receivers write the changes through the same maps as a
 * load, and run every derive again, so the result is that of a load of everything.
 */
#include "replayer/sync_private.h"

#include "replayer/sync_change.h"
#include "replayer/transport_wire.h"

struct lp_shadow {
    lp_pieces share;
    uint8_t *bytes; /* of the pieces, one after the other */
    bool is_filled; /* else there is nothing to compare with yet */
};

void lp_shadow_free(struct lp_shadow *shadow, const lp_alloc *alloc)
{
    if (shadow == NULL)
        return;
    lp_pieces_free(&shadow->share);
    lp_release(alloc, shadow->bytes);
    lp_release(alloc, shadow);
}

static bool same_share(const lp_pieces *a, const lp_pieces *b)
{
    if (a->count != b->count)
        return false;
    for (int64_t i = 0; i < a->count; i++)
        if (a->piece[i].name != b->piece[i].name || a->piece[i].lo != b->piece[i].lo ||
            a->piece[i].run != b->piece[i].run || a->piece[i].stride != b->piece[i].stride ||
            a->piece[i].count != b->piece[i].count)
            return false;
    return true;
}

static lp_status new_shadow(lp_sync *s, const lp_pieces *share, lp_error *err)
{
    lp_shadow_free(s->shadow, s->alloc);
    s->shadow = lp_allocate_zero(s->alloc, sizeof *s->shadow);
    if (s->shadow == NULL)
        return lp_fail_memory(err);
    lp_pieces_init(&s->shadow->share, s->alloc);
    s->shadow->bytes = lp_allocate_zero(s->alloc, (size_t)share->bytes + 1);
    if (s->shadow->bytes == NULL)
        return lp_fail(err, LP_E_MEMORY, "no memory for a shadow of %lld bytes", (long long)share->bytes);
    return LP_OK;
}

/* The shadow of the share that this sender has now: the one that it had, or a new one that is empty. */
static lp_status take_shadow(lp_sync *s, lp_error *err)
{
    lp_pieces share;
    lp_pieces_init(&share, s->alloc);
    lp_status status = s->share != NULL ? lp_sync_share_of(s, &share, s->round.rank, NULL, NULL, err)
                                        : lp_sync_share(s, &share, s->round.rank, s->round.senders, NULL, NULL, err);
    if (status == LP_OK && (s->shadow == NULL || !same_share(&s->shadow->share, &share))) {
        status = new_shadow(s, &share, err);
        if (status == LP_OK) {
            s->shadow->share = share;
            return LP_OK;
        }
    }
    lp_pieces_free(&share);
    return status;
}

/* ---- senders ---- */

typedef struct comparison {
    lp_sync *s;
    const lp_sync_source *source;
    int64_t piece, run, at; /* where in the share: run of a piece, byte of a run */
    int64_t base;           /* bytes of the shadow before that */
    int64_t stretch;        /* most bytes compared at a time */
    uint8_t *fresh;         /* as many */
    uint8_t *ahead;         /* the frame that is sent next */
} comparison;

static bool is_whole(const lp_sync *s, uint32_t name)
{
    for (int32_t i = s->round.senders; i < s->round.world; i++)
        if (s->is_delta[i] && lp_bit(s->fact[i].whole, name))
            return true;
    return false;
}

static bool is_read(const lp_sync *s, uint32_t name)
{
    for (int32_t i = s->round.senders; i < s->round.world; i++)
        if (s->is_delta[i] && lp_bit(s->fact[i].used, name))
            return true;
    return false;
}

/* Writes what changed of `bytes` bytes at `lo`, which are in c->fresh + `from`, and brings the shadow up to date. */
static int64_t compare_bytes(comparison *c, uint32_t name, int elem, int64_t lo, int64_t from, int64_t bytes,
                             uint8_t *out)
{
    lp_sync *s = c->s;
    uint8_t *was = s->shadow->bytes + c->base;
    const bool whole = !s->shadow->is_filled || is_whole(s, name);
    int64_t written = 0;
    if (is_read(s, name))
        written = lp_change_put(name, lo, elem, bytes / elem, was, c->fresh + from, whole, out);
    memcpy(was, c->fresh + from, (size_t)bytes);
    c->base += bytes;
    return written;
}

/* A part of a long run. */
static lp_status compare_part(comparison *c, const lp_piece *p, int elem, uint8_t *out, int64_t *written, lp_error *err)
{
    const int64_t most =
        c->stretch / elem < LP_CHANGE_ELEMENTS ? c->stretch / elem * elem : (int64_t)LP_CHANGE_ELEMENTS * elem;
    const int64_t bytes = p->run - c->at < most ? p->run - c->at : most, lo = p->lo + c->run * p->stride + c->at;
    if (bytes > 0)
        LP_TRY(c->source->read(c->source->context, p->name, lo, bytes, 0, 1, c->fresh, err));
    if (bytes > 0)
        *written = compare_bytes(c, p->name, elem, lo, 0, bytes, out);
    else if (is_read(c->s, p->name))
        *written = lp_change_put(p->name, lo, elem, 0, c->fresh, c->fresh, true, out); /* a tensor without bytes */
    c->at += bytes;
    return LP_OK;
}

/* As many short runs as fit, read at once. */
static lp_status compare_runs(comparison *c, const lp_piece *p, int elem, uint8_t *out, int64_t *written, lp_error *err)
{
    const int64_t fit = (c->stretch + LP_CHANGE_HEAD) / (p->run + LP_CHANGE_HEAD), left = p->count - c->run;
    const int64_t runs = fit < left ? fit : left, lo = p->lo + c->run * p->stride;
    LP_TRY(c->source->read(c->source->context, p->name, lo, p->run, runs > 1 ? p->stride : 0, runs, c->fresh, err));
    for (int64_t k = 0; k < runs; k++)
        *written += compare_bytes(c, p->name, elem, lo + k * p->stride, k * p->run, p->run, out + *written);
    c->run += runs;
    return LP_OK;
}

/* Compares the next stretch and writes what changed to `out`. */
static lp_status compare_next(comparison *c, uint8_t *out, int64_t *written, lp_error *err)
{
    const lp_piece *p = &c->s->shadow->share.piece[c->piece];
    const lp_checkpoint_tensor *t = lp_checkpoint_at(c->s->catalogue, p->name);
    const int elem = lp_change_elem(t->dtype);
    *written = 0;
    if (p->lo % elem != 0 || p->run % elem != 0 || p->stride % elem != 0)
        return lp_fail(err, LP_E_UNSUPPORTED, "senders hold parts of elements of '%s'", t->name);
    if (p->count > 1 && p->run <= c->stretch / 2 && p->run / elem <= LP_CHANGE_ELEMENTS) {
        LP_TRY(compare_runs(c, p, elem, out, written, err));
    } else {
        LP_TRY(compare_part(c, p, elem, out, written, err));
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

/* Fills c->ahead; *bytes -1: there is nothing left. */
static lp_status next_frame(comparison *c, int64_t *bytes, lp_error *err)
{
    int64_t used = 0;
    while (c->piece < c->s->shadow->share.count && used + LP_CHANGE_HEAD + c->stretch <= c->s->bucket) {
        int64_t written;
        LP_TRY(compare_next(c, c->ahead + used, &written, err));
        used += written;
        lp_sync_alive(c->s);
    }
    *bytes = used > 0 ? used : -1;
    return LP_OK;
}

static lp_status announce(lp_sync *s, int64_t bytes, const lp_block **all, lp_error *err)
{
    uint8_t first[8];
    lp_wire_put_i64(first, bytes);
    return s->transport.gather(s->transport.context, first, sizeof first, all, err);
}

static lp_status send_changes(comparison *c, const int32_t *peer, int32_t peers, lp_error *err)
{
    lp_sync *s = c->s;
    const lp_block *all = NULL;
    int64_t bytes = -1, sequence = 0;
    lp_outflow out;
    lp_out_init(&out, s);
    lp_status status = next_frame(c, &bytes, err);
    if (status == LP_OK)
        status = announce(s, bytes, &all, err);
    while (status == LP_OK && bytes >= 0) {
        uint8_t *bucket = NULL;
        int64_t next_bytes = -1;
        status = lp_out_bucket(&out, &bucket, err);
        if (status != LP_OK)
            break;
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

/* Plans on a device, and layerwise sessions, never take changes: for them alone nothing is kept. */
static bool is_shadow_of_use(const lp_sync *s)
{
    for (int32_t i = s->round.senders; i < s->round.world; i++)
        if (s->fact[i].takes_delta)
            return true;
    return false;
}

lp_status lp_delta_send(lp_sync *s, const lp_sync_source *source, lp_error *err)
{
    int32_t peers = 0;
    if (!is_shadow_of_use(s)) {
        lp_shadow_free(s->shadow, s->alloc);
        s->shadow = NULL;
        return LP_OK;
    }
    LP_TRY(take_shadow(s, err));
    s->report.shadow_bytes = s->shadow->share.bytes;
    int32_t *peer = lp_allocate(s->alloc, (size_t)s->round.world * sizeof *peer);
    if (peer == NULL)
        return lp_fail_memory(err);
    for (int32_t i = s->round.senders; i < s->round.world; i++)
        if (s->is_delta[i])
            peer[peers++] = i;
    comparison c = {.s = s, .source = source};
    lp_status status = LP_OK;
    if (peers == 0) {
        status = fill_shadow(s, source, err);
    } else {
        const int64_t most = (int64_t)LP_CHANGE_ELEMENTS * 8;
        c.stretch = (s->bucket - LP_CHANGE_HEAD < most ? s->bucket - LP_CHANGE_HEAD : most) / 64 * 64;
        c.fresh = lp_allocate(s->alloc, (size_t)c.stretch);
        c.ahead = lp_allocate(s->alloc, (size_t)s->bucket);
        if (c.fresh == NULL || c.ahead == NULL)
            status = lp_fail_memory(err);
        if (status == LP_OK)
            status = send_changes(&c, peer, peers, err);
    }
    s->shadow->is_filled = status == LP_OK;
    lp_release(s->alloc, c.fresh);
    lp_release(s->alloc, c.ahead);
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
    if (!lp_bit(me->used, name))
        return LP_OK;
    if (!lp_bit(me->whole, name))
        return a->sink->patch(a->sink->context, name, off, data, bytes, err);
    if (form != LP_CHANGE_ALL)
        return lp_fail(err, LP_E_CORRUPT, "changes came where the whole of '%s' was due",
                       lp_checkpoint_at(a->s->catalogue, name)->name);
    return a->sink->push(a->sink->context, name, off, data, bytes, err);
}

static lp_status apply_frame(application *a, const uint8_t *payload, int64_t bytes, lp_error *err)
{
    while (bytes > 0) {
        int64_t used = 0;
        LP_TRY(lp_change_get(payload, bytes, a->s->catalogue, apply, a, &used, err));
        payload += used;
        bytes -= used;
        lp_sync_alive(a->s);
    }
    return LP_OK;
}

/* The sender of the next frame, in turns; -1: none has one. next: payload bytes by sender, -1 where there is none. */
static int32_t whose_turn(const int64_t *next, int32_t senders, int32_t last)
{
    for (int32_t i = 1; i <= senders; i++)
        if (next[(last + i) % senders] >= 0)
            return (last + i) % senders;
    return -1;
}

static lp_status receive_changes(application *a, lp_inflow *in, int64_t *next, int64_t *sequence, lp_error *err)
{
    lp_sync *s = a->s;
    int32_t sender = whose_turn(next, s->round.senders, s->round.senders - 1);
    if (sender >= 0)
        LP_TRY(lp_in_post(in, sender, sequence[sender]++, next[sender], err));
    while (sender >= 0) {
        lp_frame frame;
        const uint8_t *payload = NULL;
        LP_TRY(lp_in_take(in, &frame, &payload, err));
        next[sender] = frame.next_bytes;
        const int32_t other = whose_turn(next, s->round.senders, sender);
        if (other >= 0)
            LP_TRY(lp_in_post(in, other, sequence[other]++, next[other], err));
        LP_TRY(apply_frame(a, payload, frame.bytes, err));
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

lp_status lp_delta_watch(lp_sync *s, lp_error *err)
{
    const lp_block *all = NULL;
    for (int32_t i = s->round.senders; i < s->round.world; i++)
        if (s->is_delta[i])
            return announce(s, -1, &all, err);
    return LP_OK;
}

lp_status lp_delta_receive(lp_sync *s, const lp_sync_sink *sink, lp_error *err)
{
    const int32_t senders = s->round.senders;
    application a = {.s = s, .sink = sink};
    const lp_block *all = NULL;
    lp_inflow in;
    lp_in_init(&in, s);
    int64_t *next = lp_allocate(s->alloc, 2 * (size_t)senders * sizeof *next);
    if (next == NULL)
        return lp_fail_memory(err);
    memset(next, 0, 2 * (size_t)senders * sizeof *next);
    lp_status status = announce(s, -1, &all, err);
    for (int32_t i = 0; i < senders && status == LP_OK; i++) {
        next[i] = all[i].bytes == 8 ? lp_wire_get_i64(all[i].data) : -2;
        if (next[i] < -1)
            status = lp_fail(err, LP_E_CORRUPT, "sender %d does not say what it sends", i);
    }
    if (status == LP_OK)
        status = receive_changes(&a, &in, next, next + senders, err);
    lp_in_free(&in);
    if (status == LP_OK)
        status = keep_rest(s, sink, err);
    lp_release(s->alloc, next);
    return status;
}
