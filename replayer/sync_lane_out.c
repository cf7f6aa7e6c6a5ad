/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Frames out of the memory of a device. The header of a frame needs its digest, so it is sent when the next frame has
 * been filled: then the digest has arrived, or nearly so, and reading and packing never stand still for it.
 */
#include "replayer/sync_lane.h"

#include "replayer/sync_source.h"

typedef struct out_slot {
    int64_t payload, before, header; /* tickets: of the message from this bucket, of the one before it, of the header */
    bool has_payload, has_before, has_header;
    uint8_t bytes[LP_FRAME_BYTES];
} out_slot;

typedef struct lane_out {
    lp_sync *s;
    const lp_sync_lane *l;
    const lp_sync_source *source;
    const lp_frame_out *frame;
    out_slot slot[2];
    lp_transfer *transfer; /* room for all ranks */
} lane_out;

/* Behind the message that the bucket was last sent by. */
static lp_status fill(lane_out *f, int64_t number, lp_error *err)
{
    const int k = (int)(number % 2);
    const lp_sync *s = f->s;
    const lp_sync_lane *l = f->l;
    const lp_frame_out *x = &f->frame[number];
    const int64_t bytes = lp_pieces_frame(x->pieces, x->number)->bytes;
    if (bytes == 0)
        return LP_OK;
    if (f->slot[k].has_payload)
        LP_TRY(l->lane->follow(l->owner, f->slot[k].payload, l->aside, err));
    if (f->source->packer != NULL) {
        LP_TRY(f->source->packer->pack(f->source->packer->context, number, l->aside, err));
    } else {
        /* The digest of the frame before the last one has arrived, so its upload is done. */
        LP_TRY(lp_sync_read_frame(f->s, f->source, x->pieces, lp_pieces_frame(x->pieces, x->number), s->host[k], err));
        LP_TRY(lp_lane_check(l, l->device->copy(l->context, s->bucket_memory[k], s->host[k], bytes, l->aside),
                             "copy to the device", err));
    }
    return lp_lane_check(l, l->device->event_set(l->context, l->bucket[k].packed, l->aside), "mark a stream", err);
}

static lp_status start(lane_out *f, int64_t number, lp_error *err)
{
    const int k = (int)(number % 2);
    lp_sync *s = f->s;
    const lp_sync_lane *l = f->l;
    const lp_frame_out *x = &f->frame[number];
    const int64_t bytes = lp_pieces_frame(x->pieces, x->number)->bytes;
    out_slot *slot = &f->slot[k];
    if (bytes == 0)
        return LP_OK;
    for (int32_t i = 0; i < x->peers; i++)
        f->transfer[i] =
            (lp_transfer){.peer = x->peer[i], .is_send = true, .data = s->bucket_memory[k], .bytes = bytes};
    LP_TRY(l->lane->after(l->owner, l->bucket[k].packed, err));
    slot->before = slot->payload;
    slot->has_before = slot->has_payload;
    slot->has_payload = false;
    LP_TRY(s->transport.start(l->owner, f->transfer, x->peers, &slot->payload, err));
    slot->has_payload = true;
    s->report.bytes_moved += bytes * x->peers;
    return lp_lane_digest(l, k, s->bucket_memory[k], bytes, err);
}

static lp_status wait_for(lp_sync *s, bool *is_under_way, int64_t ticket, lp_error *err)
{
    if (!*is_under_way)
        return LP_OK;
    *is_under_way = false;
    return s->transport.wait(s->transport.context, ticket, err);
}

/* The header of a frame whose payload was started. */
static lp_status announce(lane_out *f, int64_t number, lp_error *err)
{
    const int k = (int)(number % 2);
    lp_sync *s = f->s;
    const lp_frame_out *x = &f->frame[number];
    out_slot *slot = &f->slot[k];
    lp_frame frame = {.round = s->round.number,
                      .sender = s->round.rank,
                      .epoch = s->epoch,
                      .sequence = x->number,
                      .bytes = lp_pieces_frame(x->pieces, x->number)->bytes,
                      .next_bytes = lp_pieces_next_bytes(x->pieces, x->number),
                      .digest = LP_FRAME_VALUE};
    memcpy(frame.agreement, s->agreement, sizeof frame.agreement);
    if (frame.bytes > 0) {
        LP_TRY(f->l->lane->await(f->l->owner, f->l->bucket[k].filled, x->peer[0], err));
        lp_lane_found(f->l, k, frame.bytes, frame.payload);
    } else {
        lp_frame_digest(LP_FRAME_VALUE, NULL, 0, frame.payload);
    }
    /* Filling came behind the message before, so that one is done. */
    LP_TRY(wait_for(s, &slot->has_before, slot->before, err));
    LP_TRY(wait_for(s, &slot->has_header, slot->header, err));
    lp_frame_put(&frame, slot->bytes);
    for (int32_t i = 0; i < x->peers; i++)
        f->transfer[i] = (lp_transfer){
            .peer = x->peer[i], .is_send = true, .is_host = true, .data = slot->bytes, .bytes = LP_FRAME_BYTES};
    LP_TRY(s->transport.start(s->transport.context, f->transfer, x->peers, &slot->header, err));
    slot->has_header = true;
    s->report.frames++;
    return LP_OK;
}

static lp_status drain(lane_out *f, lp_error *err)
{
    for (int k = 0; k < 2; k++) {
        LP_TRY(wait_for(f->s, &f->slot[k].has_payload, f->slot[k].payload, err));
        LP_TRY(wait_for(f->s, &f->slot[k].has_header, f->slot[k].header, err));
    }
    return LP_OK;
}

static lp_status send_all(lane_out *f, int64_t count, lp_error *err)
{
    const lp_sync_packer *packer = f->source->packer;
    if (packer != NULL)
        LP_TRY(packer->prepare(packer->context, f->frame, count, f->s->bucket_memory, err));
    for (int64_t i = 0; i < count; i++) {
        LP_TRY(fill(f, i, err));
        /* Two ranks connect with their first message, and starting that waits until the other one has come so far. Who
         * waits for the header of an earlier frame never does: so it goes first. */
        if (i > 0)
            LP_TRY(announce(f, i - 1, err));
        LP_TRY(start(f, i, err));
        lp_sync_alive(f->s);
    }
    if (count > 0)
        LP_TRY(announce(f, count - 1, err));
    return drain(f, err);
}

lp_status lp_lane_send(lp_sync *s, const lp_sync_source *source, const lp_frame_out *frame, int64_t count,
                       lp_error *err)
{
    lane_out f = {.s = s, .l = s->lane, .source = source, .frame = frame};
    lp_error later;
    f.transfer = lp_allocate(s->alloc, (size_t)s->round.world * sizeof *f.transfer);
    lp_status status = f.transfer == NULL ? lp_fail_memory(err) : send_all(&f, count, err);
    if (status != LP_OK)
        s->transport.cancel(s->transport.context); /* what aside may be waiting for */
    const lp_status settled =
        lp_lane_check(f.l, f.l->device->stream_settle(f.l->context, f.l->aside), "send frames", &later);
    lp_release(s->alloc, f.transfer);
    if (status == LP_OK && settled != LP_OK) {
        status = settled;
        *err = later;
    }
    return status;
}
