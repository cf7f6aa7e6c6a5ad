/* SPDX-License-Identifier: Apache-2.0 */
/* Packed epochs: whole tensors, dealt out over the senders, to every receiver. Frames come in turns, one of each
 * sender, so all receivers expect the same order. */
#include "replayer/sync_private.h"

/* ---- one frame ---- */

lp_status lp_sync_read_frame(lp_sync *s, const lp_sync_source *source, const lp_pieces *p, const lp_frame_span *frame,
                             uint8_t *bucket, lp_error *err)
{
    for (int64_t i = frame->first; i < frame->first + frame->count; i++) {
        const lp_piece *piece = &p->piece[i];
        if (piece->run > 0)
            LP_TRY(source->read(source->context, piece->name, piece->lo, piece->run, piece->stride, piece->count,
                                bucket, err));
        bucket += lp_piece_bytes(piece);
        lp_sync_alive(s);
    }
    return LP_OK;
}

lp_status lp_sync_push_frame(lp_sync *s, const lp_sync_sink *sink, const lp_pieces *p, const lp_frame_span *frame,
                             const uint8_t *bucket, lp_error *err)
{
    for (int64_t i = frame->first; i < frame->first + frame->count; i++) {
        const lp_piece *piece = &p->piece[i];
        for (int64_t k = 0; k < piece->count; k++) {
            LP_TRY(sink->push(sink->context, piece->name, piece->lo + k * piece->stride, bucket, piece->run, err));
            bucket += piece->run;
        }
        lp_sync_alive(s);
    }
    return LP_OK;
}

/* ---- what is sent ---- */

typedef struct used_by {
    const lp_sync *s;
    bool to_delta;
} used_by;

/* Whether some receiver of the pass reads the name. */
static bool is_used(void *context, uint32_t name)
{
    const used_by *u = context;
    const lp_sync *s = u->s;
    for (int32_t i = s->round.senders; i < s->round.world; i++)
        if (s->is_delta[i] == u->to_delta && lp_bit(s->fact[i].used, name))
            return true;
    return false;
}

static lp_status plan_frames(const lp_sync *s, bool to_delta, int32_t sender, lp_pieces *out, lp_error *err)
{
    used_by u = {.s = s, .to_delta = to_delta};
    lp_pieces_init(out, s->alloc);
    LP_TRY(lp_sync_share_of(s, out, sender, is_used, &u, err));
    return lp_pieces_cut(out, s->bucket, err);
}

/* ---- senders ---- */

static int32_t list_receivers(const lp_sync *s, bool to_delta, int32_t *peer)
{
    int32_t count = 0;
    for (int32_t i = s->round.senders; i < s->round.world; i++)
        if (s->is_delta[i] == to_delta)
            peer[count++] = i;
    return count;
}

lp_status lp_packed_send(lp_sync *s, const lp_sync_source *source, bool to_delta, lp_error *err)
{
    lp_pieces p;
    lp_outflow out;
    int32_t *peer = lp_allocate(s->alloc, (size_t)s->round.world * sizeof *peer);
    lp_pieces_init(&p, s->alloc);
    lp_out_init(&out, s);
    lp_status status = peer == NULL ? lp_fail_memory(err) : LP_OK;
    const int32_t peers = status == LP_OK ? list_receivers(s, to_delta, peer) : 0;
    if (status == LP_OK && peers > 0)
        status = plan_frames(s, to_delta, s->round.rank, &p, err);
    for (int64_t i = 0; i < p.frame_count && status == LP_OK; i++) {
        uint8_t *bucket = NULL;
        status = lp_out_bucket(&out, &bucket, err);
        if (status == LP_OK)
            status = lp_sync_read_frame(s, source, &p, &p.frame[i], bucket, err);
        if (status == LP_OK)
            status = lp_out_send(&out, peer, peers, i, p.frame[i].bytes,
                                 i + 1 < p.frame_count ? p.frame[i + 1].bytes : -1, err);
    }
    if (status == LP_OK)
        status = lp_out_drain(&out, err);
    lp_out_free(&out);
    lp_pieces_free(&p);
    lp_release(s->alloc, peer);
    return status;
}

/* ---- receivers ---- */

typedef struct reception {
    lp_sync *s;
    lp_pieces *list;   /* by sender */
    int64_t turn;      /* frame number of the turn */
    int32_t sender;    /* next one in it */
    lp_value_sum *sum; /* by name, of what came; NULL: not compared */
} reception;

/* The next frame in order; false at the end. */
static bool next_frame(reception *r, int32_t *sender, int64_t *number)
{
    for (bool any = true; any;) {
        any = false;
        for (; r->sender < r->s->round.senders; r->sender++)
            if (r->turn < r->list[r->sender].frame_count) {
                *sender = r->sender++;
                *number = r->turn;
                return true;
            }
        r->turn++;
        r->sender = 0;
        for (int32_t i = 0; i < r->s->round.senders; i++)
            any = any || r->turn < r->list[i].frame_count;
    }
    return false;
}

static void add_sums(reception *r, const lp_pieces *p, const lp_frame_span *frame, const uint8_t *payload)
{
    for (int64_t i = frame->first; r->sum != NULL && i < frame->first + frame->count; i++) {
        const lp_piece *piece = &p->piece[i];
        lp_value_sum_add(&r->sum[piece->name], piece->lo, payload, piece->run);
        payload += piece->run;
    }
}

static lp_status verify_sums(const reception *r, lp_error *err)
{
    const lp_fact *me = &r->s->fact[r->s->round.rank];
    for (uint32_t i = 0; r->sum != NULL && i < lp_checkpoint_count(r->s->catalogue); i++)
        if (lp_bit(me->used, i))
            LP_TRY(lp_sync_content_verify(r->s, i, &r->sum[i], err));
    return LP_OK;
}

static lp_status receive_all(reception *r, lp_inflow *in, const lp_sync_sink *sink, lp_error *err)
{
    lp_sync *s = r->s;
    int32_t sender = 0, next_sender = 0;
    int64_t number = 0, next_number = 0;
    bool has_frame = next_frame(r, &sender, &number);
    if (has_frame)
        LP_TRY(lp_in_post(in, sender, number, r->list[sender].frame[number].bytes, err));
    while (has_frame) {
        lp_frame frame;
        const uint8_t *payload = NULL;
        LP_TRY(lp_in_take(in, &frame, &payload, err));
        const bool has_next = next_frame(r, &next_sender, &next_number);
        if (has_next)
            LP_TRY(lp_in_post(in, next_sender, next_number, r->list[next_sender].frame[next_number].bytes, err));
        const lp_pieces *p = &r->list[sender];
        LP_TRY(lp_sync_push_frame(s, sink, p, &p->frame[number], payload, err));
        add_sums(r, p, &p->frame[number], payload);
        has_frame = has_next;
        sender = next_sender;
        number = next_number;
    }
    return verify_sums(r, err);
}

lp_status lp_packed_receive(lp_sync *s, const lp_sync_sink *sink, lp_error *err)
{
    reception r = {.s = s};
    lp_inflow in;
    lp_status status = LP_OK;
    lp_in_init(&in, s);
    r.list = lp_allocate_zero(s->alloc, (size_t)s->round.senders * sizeof *r.list);
    if (s->sum != NULL)
        r.sum = lp_allocate_zero(s->alloc, ((size_t)lp_checkpoint_count(s->catalogue) + 1) * sizeof *r.sum);
    if (r.list == NULL || (s->sum != NULL && r.sum == NULL))
        status = lp_fail_memory(err);
    for (int32_t i = 0; i < s->round.senders && status == LP_OK; i++)
        status = plan_frames(s, false, i, &r.list[i], err);
    if (status == LP_OK)
        status = receive_all(&r, &in, sink, err);
    lp_in_free(&in);
    for (int32_t i = 0; r.list != NULL && i < s->round.senders; i++)
        lp_pieces_free(&r.list[i]);
    lp_release(s->alloc, r.list);
    lp_release(s->alloc, r.sum);
    return status;
}
