/* SPDX-License-Identifier: Apache-2.0 */
/* Frames into the memory of a device, and from there into a session on it. */
#include "replayer/sync_lane.h"

/* ---- one frame ---- */

void lp_lane_in_open(lp_lane_in *f, lp_sync *s, void *stream)
{
    *f = (lp_lane_in){.s = s, .l = s->lane, .stream = stream};
}

lp_status lp_lane_in_post(lp_lane_in *f, int k, int32_t sender, int64_t bytes, lp_error *err)
{
    const lp_sync *s = f->s;
    const lp_sync_lane *l = f->l;
    const lp_transport *t = &s->transport;
    const lp_transfer header = {.peer = sender, .is_host = true, .data = f->slot[k].bytes, .bytes = LP_FRAME_BYTES};
    const lp_transfer payload = {.peer = sender, .data = s->bucket_memory[k], .bytes = bytes};
    LP_TRY(t->start(t->context, &header, 1, &f->slot[k].header, err));
    if (bytes == 0)
        return LP_OK;
    if (l->bucket[k].was_replayed)
        LP_TRY(l->lane->after(l->owner, l->bucket[k].freed, err));
    LP_TRY(t->start(t->context, &payload, 1, &f->slot[k].payload, err));
    LP_TRY(l->lane->follow(l->owner, f->slot[k].payload, l->aside, err));
    return lp_lane_digest(l, k, s->bucket_memory[k], bytes, err);
}

lp_status lp_lane_in_head(lp_lane_in *f, int k, int32_t sender, int64_t sequence, int64_t bytes, lp_frame *frame,
                          lp_error *err)
{
    lp_sync *s = f->s;
    lp_frame want = {
        .round = s->round.number, .sender = sender, .epoch = s->epoch, .sequence = sequence, .bytes = bytes};
    memcpy(want.agreement, s->agreement, sizeof want.agreement);
    LP_TRY(s->transport.wait(s->transport.context, f->slot[k].header, err));
    LP_TRY(lp_frame_get(f->slot[k].bytes, frame, err));
    LP_TRY(lp_frame_expect(frame, &want, err));
    s->report.frames++;
    return LP_OK;
}

lp_status lp_lane_in_take(lp_lane_in *f, int k, const lp_frame *frame, lp_error *err)
{
    lp_sync *s = f->s;
    const lp_sync_lane *l = f->l;
    uint8_t digest[16];
    if (frame->bytes == 0)
        return lp_frame_verify(frame, NULL, err);
    if (frame->digest != LP_FRAME_VALUE)
        return lp_fail(err, LP_E_VERSION, "a frame with a digest of kind %u came for a device", frame->digest);
    LP_TRY(l->lane->await(l->owner, l->bucket[k].filled, frame->sender, err));
    LP_TRY(s->transport.wait(s->transport.context, f->slot[k].payload, err));
    lp_lane_found(l, k, frame->bytes, digest);
    LP_TRY(lp_frame_compare(frame, digest, err));
    s->report.bytes_moved += frame->bytes;
    return LP_OK;
}

lp_status lp_lane_in_done(lp_lane_in *f, int k, lp_error *err)
{
    lp_sync_lane *l = f->l;
    LP_TRY(lp_lane_check(l, l->device->event_set(l->context, l->bucket[k].freed, f->stream), "mark a stream", err));
    l->bucket[k].was_replayed = true;
    return LP_OK;
}

lp_status lp_lane_in_close(lp_lane_in *f, lp_status status, lp_error *err)
{
    lp_sync *s = f->s;
    const lp_nccl_device *d = f->l->device;
    lp_error later;
    if (status != LP_OK)
        s->transport.cancel(s->transport.context); /* what aside may be waiting for */
    lp_status settled = lp_lane_check(f->l, d->stream_settle(f->l->context, f->l->aside), "receive frames", &later);
    const int replayed = d->stream_settle(f->l->context, f->stream);
    if (settled == LP_OK)
        settled = lp_lane_check(f->l, replayed, "replay frames", &later);
    if (status != LP_OK || settled == LP_OK)
        return status;
    *err = later;
    return settled;
}

/* ---- lists of them ---- */

typedef struct lane_in {
    lp_lane_in in;
    lp_sync *s;
    lp_sync_lane *l;
    const lp_frame_in *frame;
    const lp_sync_sink *sink;
    lp_value_sum *content; /* by name, on the device: what came of each; NULL: not compared */
} lane_in;

static int64_t bytes_of(const lp_frame_in *x)
{
    return lp_pieces_frame(x->pieces, x->number)->bytes;
}

static lp_status post(lane_in *f, int64_t number, lp_error *err)
{
    const lp_frame_in *x = &f->frame[number];
    return lp_lane_in_post(&f->in, (int)(number % 2), x->sender, bytes_of(x), err);
}

static lp_status take(lane_in *f, int64_t number, lp_error *err)
{
    const lp_frame_in *x = &f->frame[number];
    const int k = (int)(number % 2);
    lp_frame frame;
    LP_TRY(lp_lane_in_head(&f->in, k, x->sender, x->number, bytes_of(x), &frame, err));
    return lp_lane_in_take(&f->in, k, &frame, err);
}

/* What is in the bucket adds to the sums of its tensors. */
static lp_status add_content(lane_in *f, const lp_frame_in *x, const uint8_t *bucket, lp_error *err)
{
    const lp_frame_span *span = lp_pieces_frame(x->pieces, x->number);
    for (int64_t i = span->first; i < span->first + span->count; i++) {
        const lp_piece *piece = &x->pieces->piece[i];
        LP_TRY(lp_lane_sum(f->l, &f->content[piece->name], piece->lo, bucket, piece->run, f->sink->stream, err));
        bucket += lp_piece_bytes(piece);
    }
    return LP_OK;
}

static lp_status replay(lane_in *f, int64_t number, lp_error *err)
{
    const int k = (int)(number % 2);
    const lp_sync *s = f->s;
    const lp_frame_in *x = &f->frame[number];
    const lp_frame_span *span = lp_pieces_frame(x->pieces, x->number);
    const lp_sync_sink *sink = f->sink;
    LP_TRY(sink->pieces(sink->context, &x->pieces->piece[span->first], span->count, s->bucket_memory[k], err));
    if (f->content != NULL)
        LP_TRY(add_content(f, x, s->bucket_memory[k], err));
    return lp_lane_in_done(&f->in, k, err);
}

/* The message after the next is started as soon as the streams know when its bucket is free, so that messages come one
 * behind the other. A rank that is connected to waits for nobody who is behind it in the order of frames. */
static lp_status receive_all(lane_in *f, int64_t count, lp_error *err)
{
    for (int64_t i = 0; i < count && i < 2; i++)
        LP_TRY(post(f, i, err));
    for (int64_t i = 0; i < count; i++) {
        LP_TRY(take(f, i, err));
        LP_TRY(replay(f, i, err));
        if (i + 2 < count)
            LP_TRY(post(f, i + 2, err));
        lp_sync_alive(f->s);
    }
    return LP_OK;
}

/* ---- content ---- */

static int64_t content_bytes(const lp_sync *s)
{
    return (lp_checkpoint_count(s->catalogue) + 1) * (int64_t)sizeof(lp_value_sum);
}

static lp_status open_content(lane_in *f, lp_error *err)
{
    const lp_sync_lane *l = f->l;
    void *content = NULL;
    LP_TRY(lp_lane_check(l, l->device->allocate(l->context, content_bytes(f->s), &content), "take device memory", err));
    f->content = content;
    return lp_lane_check(l, l->device->clear(l->context, content, content_bytes(f->s), f->sink->stream),
                         "clear device memory", err);
}

static lp_status verify_content(const lane_in *f, lp_error *err)
{
    const lp_sync *s = f->s;
    const lp_sync_lane *l = f->l;
    const lp_fact *me = &s->fact[s->round.rank];
    if (f->content == NULL)
        return LP_OK;
    lp_value_sum *found = lp_allocate(s->alloc, (size_t)content_bytes(s));
    lp_status status = found == NULL ? lp_fail_memory(err) : LP_OK;
    if (status == LP_OK)
        status = lp_lane_check(l, l->device->fetch(l->context, found, f->content, content_bytes(s)),
                               "copy from the device", err);
    for (uint32_t i = 0; status == LP_OK && i < lp_checkpoint_count(s->catalogue); i++)
        if (lp_bit(me->used, i))
            status = lp_sync_content_verify(s, i, &found[i], err);
    lp_release(s->alloc, found);
    return status;
}

lp_status lp_lane_receive(lp_sync *s, const lp_frame_in *frame, int64_t count, const lp_sync_sink *sink, bool is_whole,
                          lp_error *err)
{
    lane_in f = {.s = s, .l = s->lane, .frame = frame, .sink = sink};
    lp_lane_in_open(&f.in, s, sink->stream);
    lp_status status = is_whole && s->sum != NULL ? open_content(&f, err) : LP_OK;
    if (status == LP_OK)
        status = receive_all(&f, count, err);
    status = lp_lane_in_close(&f.in, status, err);
    if (status == LP_OK)
        status = verify_content(&f, err);
    if (f.content != NULL)
        f.l->device->release(f.l->context, f.content);
    return status;
}
