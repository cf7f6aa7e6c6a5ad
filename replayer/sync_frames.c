/* SPDX-License-Identifier: Apache-2.0 */
/* Lists of frames, gone through: each is read while the one before is on its way, and replayed while the next one is.
 */
#include "replayer/sync_lane.h"
#include "replayer/sync_source.h"

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

static lp_status push_frame(lp_sync *s, const lp_sync_sink *sink, const lp_pieces *p, const lp_frame_span *frame,
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

/* ---- out ---- */

static lp_status read_one(lp_sync *s, const lp_sync_source *source, const lp_frame_out *frame, int64_t number,
                          uint8_t *bucket, lp_error *err)
{
    const lp_frame_out *x = &frame[number];
    const lp_frame_span *span = lp_pieces_frame(x->pieces, x->number);
    if (source->packer == NULL)
        return lp_sync_read_frame(s, source, x->pieces, span, bucket, err);
    return span->bytes > 0 ? source->packer->fetch(source->packer->context, number, bucket, err) : LP_OK;
}

static lp_status send_all(lp_outflow *out, const lp_sync_source *source, const lp_frame_out *frame, int64_t count,
                          lp_error *err)
{
    const lp_sync_packer *packer = source->packer;
    if (packer != NULL)
        LP_TRY(packer->prepare(packer->context, frame, count, NULL, err));
    for (int64_t i = 0; i < count; i++) {
        const lp_frame_out *x = &frame[i];
        uint8_t *bucket = NULL;
        LP_TRY(lp_out_bucket(out, &bucket, err));
        LP_TRY(read_one(out->s, source, frame, i, bucket, err));
        LP_TRY(lp_out_send(out, x->peer, x->peers, x->number, lp_pieces_frame(x->pieces, x->number)->bytes,
                           lp_pieces_next_bytes(x->pieces, x->number), err));
    }
    return lp_out_drain(out, err);
}

lp_status lp_frames_send(lp_sync *s, const lp_sync_source *source, const lp_frame_out *frame, int64_t count,
                         lp_error *err)
{
    lp_outflow out;
    if (s->uses_lane)
        return lp_lane_send(s, source, frame, count, err);
    lp_out_init(&out, s);
    const lp_status status = send_all(&out, source, frame, count, err);
    lp_out_free(&out);
    return status;
}

/* ---- in ---- */

/* sum: by name, of what came; NULL: not compared. */
static void add_sums(lp_value_sum *sum, const lp_frame_in *x, const uint8_t *payload)
{
    const lp_frame_span *span = lp_pieces_frame(x->pieces, x->number);
    for (int64_t i = span->first; sum != NULL && i < span->first + span->count; i++) {
        const lp_piece *piece = &x->pieces->piece[i];
        lp_value_sum_add(&sum[piece->name], piece->lo, payload, piece->run);
        payload += piece->run;
    }
}

static lp_status verify_sums(const lp_sync *s, const lp_value_sum *sum, lp_error *err)
{
    const lp_fact *me = &s->fact[s->round.rank];
    for (uint32_t i = 0; sum != NULL && i < lp_checkpoint_count(s->catalogue); i++)
        if (lp_bit(me->used, i))
            LP_TRY(lp_sync_content_verify(s, i, &sum[i], err));
    return LP_OK;
}

static lp_status post(lp_inflow *in, const lp_frame_in *x, lp_error *err)
{
    return lp_in_post(in, x->sender, x->number, lp_pieces_frame(x->pieces, x->number)->bytes, err);
}

static lp_status receive_all(lp_inflow *in, const lp_frame_in *frame, int64_t count, const lp_sync_sink *sink,
                             lp_value_sum *sum, lp_error *err)
{
    lp_sync *s = in->s;
    if (count > 0)
        LP_TRY(post(in, &frame[0], err));
    for (int64_t i = 0; i < count; i++) {
        const lp_frame_in *x = &frame[i];
        lp_frame head;
        const uint8_t *payload = NULL;
        LP_TRY(lp_in_take(in, &head, &payload, err));
        if (i + 1 < count)
            LP_TRY(post(in, &frame[i + 1], err));
        LP_TRY(push_frame(s, sink, x->pieces, lp_pieces_frame(x->pieces, x->number), payload, err));
        add_sums(sum, x, payload);
    }
    return verify_sums(s, sum, err);
}

lp_status lp_frames_receive(lp_sync *s, const lp_frame_in *frame, int64_t count, const lp_sync_sink *sink,
                            bool is_whole, lp_error *err)
{
    lp_inflow in;
    lp_value_sum *sum = NULL;
    lp_status status = LP_OK;
    if (s->uses_lane)
        return lp_lane_receive(s, frame, count, sink, is_whole, err);
    lp_in_init(&in, s);
    if (is_whole && s->sum != NULL) {
        sum = lp_allocate_zero(s->alloc, ((size_t)lp_checkpoint_count(s->catalogue) + 1) * sizeof *sum);
        status = sum == NULL ? lp_fail_memory(err) : LP_OK;
    }
    if (status == LP_OK)
        status = receive_all(&in, frame, count, sink, sum, err);
    lp_in_free(&in);
    lp_release(s->alloc, sum);
    return status;
}
