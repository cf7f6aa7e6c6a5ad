/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Frames out of the memory of a device. The header of a frame needs its digest, so it is sent when the next frame has
 * been filled: then the digest has arrived, or nearly so, and reading and packing never stand still for it.
 */
#include "replayer/sync_lane.h"

#include "replayer/sync_source.h"

/* ---- one frame ---- */

lp_status lp_lane_out_open(lp_lane_out *f, lp_sync *s, lp_error *err)
{
    *f = (lp_lane_out){.s = s, .l = s->lane};
    f->transfer = lp_allocate(s->alloc, (size_t)s->round.world * sizeof *f->transfer);
    return f->transfer == NULL ? lp_fail_memory(err) : LP_OK;
}

lp_status lp_lane_out_free(lp_lane_out *f, int k, void *stream, lp_error *err)
{
    const lp_sync_lane *l = f->l;
    return f->slot[k].has_payload ? l->lane->follow(l->owner, f->slot[k].payload, stream, err) : LP_OK;
}

lp_status lp_lane_out_start(lp_lane_out *f, int k, const int32_t *peer, int32_t peers, int64_t bytes, lp_error *err)
{
    lp_sync *s = f->s;
    const lp_sync_lane *l = f->l;
    lp_lane_out_slot *slot = &f->slot[k];
    LP_TRY(lp_lane_check(l, l->device->event_set(l->context, l->bucket[k].packed, l->aside), "mark a stream", err));
    for (int32_t i = 0; i < peers; i++)
        f->transfer[i] = (lp_transfer){
            .peer = peer[i], .is_send = true, .is_behind = i > 0, .data = s->bucket_memory[k], .bytes = bytes};
    LP_TRY(l->lane->after(l->owner, l->bucket[k].packed, err));
    slot->before = slot->payload;
    slot->has_before = slot->has_payload;
    slot->has_payload = false;
    LP_TRY(s->transport.start(l->owner, f->transfer, peers, &slot->payload, err));
    slot->has_payload = true;
    s->report.bytes_moved += bytes * peers;
    return lp_lane_digest(l, k, s->bucket_memory[k], bytes, err);
}

static lp_status wait_for(lp_sync *s, bool *is_under_way, int64_t ticket, lp_error *err)
{
    if (!*is_under_way)
        return LP_OK;
    *is_under_way = false;
    return s->transport.wait(s->transport.context, ticket, err);
}

lp_status lp_lane_out_announce(lp_lane_out *f, int k, const int32_t *peer, int32_t peers, int64_t sequence,
                               int64_t bytes, int64_t next_bytes, lp_error *err)
{
    lp_sync *s = f->s;
    lp_lane_out_slot *slot = &f->slot[k];
    lp_frame frame = {.round = s->round.number,
                      .sender = s->round.rank,
                      .epoch = s->epoch,
                      .sequence = sequence,
                      .bytes = bytes,
                      .next_bytes = next_bytes,
                      .digest = LP_FRAME_VALUE};
    memcpy(frame.agreement, s->agreement, sizeof frame.agreement);
    if (frame.bytes > 0) {
        LP_TRY(f->l->lane->await(f->l->owner, f->l->bucket[k].filled, peer[0], err));
        lp_lane_found(f->l, k, frame.bytes, frame.payload);
    } else {
        lp_frame_digest(LP_FRAME_VALUE, NULL, 0, frame.payload);
    }
    /* Filling came behind the message before, so that one is done. */
    LP_TRY(wait_for(s, &slot->has_before, slot->before, err));
    LP_TRY(wait_for(s, &slot->has_header, slot->header, err));
    lp_frame_put(&frame, slot->bytes);
    for (int32_t i = 0; i < peers; i++)
        f->transfer[i] = (lp_transfer){
            .peer = peer[i], .is_send = true, .is_host = true, .data = slot->bytes, .bytes = LP_FRAME_BYTES};
    LP_TRY(s->transport.start(s->transport.context, f->transfer, peers, &slot->header, err));
    slot->has_header = true;
    s->report.frames++;
    return LP_OK;
}

lp_status lp_lane_out_drain(lp_lane_out *f, lp_error *err)
{
    for (int k = 0; k < 2; k++) {
        LP_TRY(wait_for(f->s, &f->slot[k].has_payload, f->slot[k].payload, err));
        LP_TRY(wait_for(f->s, &f->slot[k].has_header, f->slot[k].header, err));
    }
    return LP_OK;
}

lp_status lp_lane_out_close(lp_lane_out *f, lp_status status, lp_error *err)
{
    lp_sync *s = f->s;
    lp_error later;
    if (status != LP_OK)
        s->transport.cancel(s->transport.context); /* what aside may be waiting for */
    const lp_status settled =
        lp_lane_check(f->l, f->l->device->stream_settle(f->l->context, f->l->aside), "send frames", &later);
    lp_release(s->alloc, f->transfer);
    f->transfer = NULL;
    if (status != LP_OK || settled == LP_OK)
        return status;
    *err = later;
    return settled;
}

/* ---- lists of them ---- */

static int64_t bytes_of(const lp_frame_out *x)
{
    return lp_pieces_frame(x->pieces, x->number)->bytes;
}

static lp_status fill(lp_lane_out *f, const lp_sync_source *source, const lp_frame_out *x, int64_t number,
                      lp_error *err)
{
    const int k = (int)(number % 2);
    lp_sync *s = f->s;
    const lp_sync_lane *l = f->l;
    LP_TRY(lp_lane_out_free(f, k, l->aside, err));
    if (source->packer != NULL)
        return source->packer->pack(source->packer->context, number, l->aside, err);
    /* The digest of the frame before the last one has arrived, so its upload is done. */
    LP_TRY(lp_sync_read_frame(s, source, x->pieces, lp_pieces_frame(x->pieces, x->number), s->host[k], err));
    return lp_lane_check(l, l->device->copy(l->context, s->bucket_memory[k], s->host[k], bytes_of(x), l->aside),
                         "copy to the device", err);
}

static lp_status announce(lp_lane_out *f, const lp_frame_out *x, int64_t number, lp_error *err)
{
    return lp_lane_out_announce(f, (int)(number % 2), x->peer, x->peers, x->number, bytes_of(x),
                                lp_pieces_next_bytes(x->pieces, x->number), err);
}

static lp_status send_all(lp_lane_out *f, const lp_sync_source *source, const lp_frame_out *frame, int64_t count,
                          lp_error *err)
{
    const lp_sync_packer *packer = source->packer;
    if (packer != NULL)
        LP_TRY(packer->prepare(packer->context, frame, count, f->s->bucket_memory, err));
    for (int64_t i = 0; i < count; i++) {
        if (bytes_of(&frame[i]) > 0)
            LP_TRY(fill(f, source, &frame[i], i, err));
        /* Two ranks connect with their first message, and starting that waits until the other one has come so far. Who
         * waits for the header of an earlier frame never does: so it goes first. */
        if (i > 0)
            LP_TRY(announce(f, &frame[i - 1], i - 1, err));
        if (bytes_of(&frame[i]) > 0)
            LP_TRY(lp_lane_out_start(f, (int)(i % 2), frame[i].peer, frame[i].peers, bytes_of(&frame[i]), err));
        lp_sync_alive(f->s);
    }
    if (count > 0)
        LP_TRY(announce(f, &frame[count - 1], count - 1, err));
    return lp_lane_out_drain(f, err);
}

lp_status lp_lane_send(lp_sync *s, const lp_sync_source *source, const lp_frame_out *frame, int64_t count,
                       lp_error *err)
{
    lp_lane_out f;
    lp_status status = lp_lane_out_open(&f, s, err);
    if (status == LP_OK)
        status = send_all(&f, source, frame, count, err);
    return lp_lane_out_close(&f, status, err);
}
