/* SPDX-License-Identifier: Apache-2.0 */
/* Parts of a chunk, packed and sent to those that need them, and what comes of others. Every step sends to one rank and
 * receives from another, in one group of messages; the next one is started before the last one is looked at. */
#include "replayer/sync_cold_step.h"

#include "replayer/device_session_pieces.h"

/* ---- parts of a chunk ---- */

/* The stretch of the chunk that a byte is in, and where it is. */
static const lp_piece *find_stretch(const lp_cold_lane *x, int64_t chunk, const lp_piece *p, int64_t lo, int64_t *at)
{
    const lp_pieces *share = &x->w->read;
    const lp_frame_span *frame = &share->frame[chunk];
    const lp_piece *found = &share->piece[frame->first];
    int64_t before = 0;
    *at = 0;
    for (int64_t i = 0; i < frame->count; i++) {
        const lp_piece *stretch = &share->piece[frame->first + i];
        if (stretch->name > p->name || (stretch->name == p->name && stretch->lo > lo))
            break;
        found = stretch;
        *at = before;
        before += lp_piece_bytes(stretch);
    }
    const int64_t run = found->count > 1 ? (lo - found->lo) / found->stride : 0;
    *at += run * found->run + (lo - found->lo - run * found->stride);
    return found;
}

static lp_status pack_piece(const lp_cold_lane *x, int64_t chunk, const lp_piece *p, uint8_t *to, void *stream,
                            lp_error *err)
{
    const uint8_t *from = x->chunk[lp_cold_slot_of(chunk)];
    int64_t first, last;
    const lp_piece *stretch = find_stretch(x, chunk, p, p->lo, &first);
    const bool is_one = p->count > 1 &&
                        stretch == find_stretch(x, chunk, p, p->lo + (p->count - 1) * p->stride, &last) &&
                        (stretch->count == 1 || stretch->stride == p->stride) && p->stride <= INT32_MAX;
    if (is_one)
        return lp_cold_lane_check(x,
                                  x->calls->copy_rows(x->calls->context, to, p->run, from + first,
                                                      stretch->count == 1 ? p->stride : stretch->run, p->run, p->count,
                                                      stream),
                                  "pack a part", err);
    for (int64_t k = 0; k < p->count; k++) {
        (void)find_stretch(x, chunk, p, p->lo + k * p->stride, &first);
        LP_TRY(lp_cold_lane_check(x, x->calls->copy(x->calls->context, to + k * p->run, from + first, p->run, stream),
                                  "pack a part", err));
    }
    return LP_OK;
}

/* What a rank needs of a chunk that is up, packed in the order of the stream, or where it is. */
static lp_status pack(const lp_cold_lane *x, int64_t chunk, int32_t to, void *room, void *stream, void **data,
                      lp_error *err)
{
    const lp_frame_span *want = &x->w->out[to].frame[chunk];
    LP_TRY(lp_cold_lane_check(x, x->d->stream_wait(x->context, stream, x->uploaded[lp_cold_slot_of(chunk)]),
                              "order a part", err));
    *data = lp_cold_is_direct(x, to, chunk) ? x->chunk[lp_cold_slot_of(chunk)] : room;
    uint8_t *at = *data;
    for (int64_t i = want->first; i < want->first + want->count && *data == room; i++) {
        LP_TRY(pack_piece(x, chunk, &x->w->out[to].piece[i], at, stream, err));
        at += lp_piece_bytes(&x->w->out[to].piece[i]);
    }
    return LP_OK;
}

lp_status lp_cold_lane_push(const lp_cold_lane *x, const lp_pieces *p, const lp_frame_span *f, const void *data,
                            lp_error *err)
{
    return lp_device_push_pieces(x->session, &p->piece[f->first], f->count, data, err);
}

lp_status lp_cold_lane_used(lp_cold_lane *x, int64_t number, lp_error *err)
{
    x->was_used[lp_cold_slot_of(number)] = true;
    return lp_cold_lane_check(x, x->d->event_set(x->context, x->used[lp_cold_slot_of(number)], x->stream),
                              "mark a stream", err);
}

lp_status lp_cold_step_here(lp_cold_lane *x, int64_t chunk, lp_error *err)
{
    const int32_t me = x->w->rank;
    void *data = NULL;
    if (x->w->out[me].frame[chunk].bytes == 0)
        return LP_OK;
    LP_TRY(pack(x, chunk, me, x->packed_here, x->stream, &data, err));
    LP_TRY(lp_cold_lane_push(x, &x->w->out[me], &x->w->out[me].frame[chunk], data, err));
    return lp_cold_lane_used(x, chunk, err);
}

/* ---- steps ---- */

static lp_status start_step(lp_cold_lane *x, int64_t chunk, int32_t number, lp_error *err)
{
    const lp_cold_world *w = x->w;
    const lp_transport *t = &x->s->transport;
    const int k = lp_cold_slot_of(x->steps);
    lp_cold_step *e = &x->step[k];
    lp_transfer transfer[2];
    int64_t count = 0;
    void *data = NULL;
    *e = (lp_cold_step){
        .to = (w->rank + number) % w->ranks, .from = (w->rank - number + w->ranks) % w->ranks, .chunk = chunk};
    e->out_bytes = chunk < w->chunks[w->rank] ? w->out[e->to].frame[chunk].bytes : 0;
    e->in_bytes = chunk < w->chunks[e->from] ? w->in[e->from].frame[chunk].bytes : 0;
    e->sends = e->out_bytes > 0;
    e->gets = e->in_bytes > 0;
    if (!e->sends && !e->gets)
        return LP_OK;
    x->steps++;
    if (e->sends) {
        LP_TRY(pack(x, chunk, e->to, x->packed[k], x->out->aside, &data, err));
        LP_TRY(lp_cold_lane_check(x, x->d->event_set(x->context, x->out->bucket[k].packed, x->out->aside),
                                  "mark a stream", err));
        LP_TRY(x->lane->after(x->owner, x->out->bucket[k].packed, err));
        transfer[count++] = (lp_transfer){.peer = e->to, .is_send = true, .data = data, .bytes = e->out_bytes};
    }
    if (e->gets) {
        const lp_transfer header = {.peer = e->from, .is_host = true, .data = e->theirs, .bytes = LP_FRAME_BYTES};
        LP_TRY(t->start(t->context, &header, 1, &e->header_in, err));
        if (x->in->bucket[k].was_replayed)
            LP_TRY(x->lane->after(x->owner, x->in->bucket[k].freed, err));
        transfer[count++] = (lp_transfer){.peer = e->from, .data = x->got[k], .bytes = e->in_bytes};
    }
    LP_TRY(t->start(t->context, transfer, count, &e->payload, err));
    e->is_open = true;
    if (e->sends)
        LP_TRY(lp_lane_digest(x->out, k, data, e->out_bytes, err));
    if (!e->gets)
        return LP_OK;
    LP_TRY(x->lane->follow(x->owner, e->payload, x->in->aside, err));
    return lp_lane_digest(x->in, k, x->got[k], e->in_bytes, err);
}

static lp_frame frame_of(const lp_cold_lane *x, int32_t sender, int64_t chunk, int64_t bytes)
{
    lp_frame f = {.round = x->s->round.number,
                  .sender = sender,
                  .epoch = x->s->epoch,
                  .sequence = chunk,
                  .bytes = bytes,
                  .digest = LP_FRAME_VALUE};
    memcpy(f.agreement, x->s->agreement, sizeof f.agreement);
    return f;
}

static lp_status send_header(lp_cold_lane *x, int k, lp_error *err)
{
    const lp_transport *t = &x->s->transport;
    lp_cold_step *e = &x->step[k];
    lp_frame f = frame_of(x, x->w->rank, e->chunk, e->out_bytes);
    const lp_transfer header = {
        .peer = e->to, .is_send = true, .is_host = true, .data = e->mine, .bytes = LP_FRAME_BYTES};
    LP_TRY(x->lane->await(x->owner, x->out->bucket[k].filled, -1, err));
    lp_lane_found(x->out, k, e->out_bytes, f.payload);
    lp_frame_put(&f, e->mine);
    return t->start(t->context, &header, 1, &e->header_out, err);
}

static lp_status replay(lp_cold_lane *x, int k, lp_error *err)
{
    const lp_cold_step *e = &x->step[k];
    const lp_frame want = frame_of(x, e->from, e->chunk, e->in_bytes);
    uint8_t digest[16];
    lp_frame have;
    LP_TRY(lp_frame_get(e->theirs, &have, err));
    LP_TRY(lp_frame_expect(&have, &want, err));
    if (have.digest != LP_FRAME_VALUE)
        return lp_fail(err, LP_E_VERSION, "a frame with a digest of kind %u came for a device", have.digest);
    lp_lane_found(x->in, k, e->in_bytes, digest);
    LP_TRY(lp_frame_compare(&have, digest, err));
    LP_TRY(lp_cold_lane_push(x, &x->w->in[e->from], &x->w->in[e->from].frame[e->chunk], x->got[k], err));
    LP_TRY(lp_cold_lane_check(x, x->d->event_set(x->context, x->in->bucket[k].freed, x->stream), "mark a stream", err));
    x->in->bucket[k].was_replayed = true;
    return LP_OK;
}

static lp_status finish_step(lp_cold_lane *x, int k, lp_error *err)
{
    const lp_transport *t = &x->s->transport;
    lp_cold_step *e = &x->step[k];
    if (!e->is_open)
        return LP_OK;
    e->is_open = false;
    if (e->sends)
        LP_TRY(send_header(x, k, err));
    if (e->gets) {
        LP_TRY(t->wait(t->context, e->header_in, err));
        LP_TRY(x->lane->await(x->owner, x->in->bucket[k].filled, e->from, err));
    }
    LP_TRY(t->wait(t->context, e->payload, err));
    if (e->gets)
        LP_TRY(replay(x, k, err));
    x->s->report.bytes_moved += e->in_bytes + e->out_bytes;
    x->s->report.frames += e->gets + e->sends;
    lp_sync_alive(x->s);
    return e->sends ? t->wait(t->context, e->header_out, err) : LP_OK;
}

lp_status lp_cold_step_all(lp_cold_lane *x, int64_t chunk, lp_error *err)
{
    for (int32_t number = 1; number < x->w->ranks; number++) {
        LP_TRY(start_step(x, chunk, number, err));
        LP_TRY(finish_step(x, lp_cold_slot_of(x->steps), err)); /* the one before */
    }
    LP_TRY(finish_step(x, 0, err));
    return finish_step(x, 1, err);
}
