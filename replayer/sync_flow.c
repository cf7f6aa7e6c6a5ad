/* SPDX-License-Identifier: Apache-2.0 */
/* Frames out and in. Two buckets a side: one is under way while the caller works on the other. */
#include "replayer/sync_lane.h"

static void release_buckets(lp_sync *s)
{
    for (int i = 0; i < s->bucket_count; i++) {
        if (s->host[i] != s->bucket_memory[i] && s->host_is_pinned[i])
            s->lane->device->give_pinned(s->lane->context, s->host[i]);
        else if (s->host[i] != s->bucket_memory[i])
            lp_release(s->alloc, s->host[i]);
        if (s->bucket_memory[i] != NULL)
            s->transport.give_back(s->transport.context, s->bucket_memory[i]);
        s->host[i] = NULL;
        s->bucket_memory[i] = NULL;
    }
    s->bucket_bytes = 0;
    s->bucket_count = 0;
}

/* What the host sees of a bucket: pinned where a lane copies it while the host goes on. */
static lp_status take_seen(lp_sync *s, int i, lp_error *err)
{
    const lp_transport *t = &s->transport;
    void *memory = NULL;
    if (t->download == NULL)
        memory = s->bucket_memory[i];
    else if (s->lane == NULL)
        memory = lp_allocate(s->alloc, (size_t)s->bucket);
    else if (s->lane->device->take_pinned(s->lane->context, s->bucket, &memory) != 0)
        memory = NULL;
    s->host[i] = memory;
    s->host_is_pinned[i] = t->download != NULL && s->lane != NULL;
    if (memory == NULL)
        return lp_fail(err, LP_E_MEMORY, "no memory for a bucket of %lld bytes", (long long)s->bucket);
    return LP_OK;
}

lp_status lp_flow_buckets(lp_sync *s, bool both_ways, bool is_seen, lp_error *err)
{
    const lp_transport *t = &s->transport;
    const int count = both_ways ? 4 : 2;
    if (s->uses_lane)
        LP_TRY(lp_sync_lane_open(s, err));
    if (s->bucket_bytes < s->bucket || s->bucket_count < count) {
        release_buckets(s);
        s->bucket_count = count;
        for (int i = 0; i < count; i++) {
            s->bucket_memory[i] = t->take(t->context, s->bucket);
            if (s->bucket_memory[i] == NULL)
                return lp_fail(err, LP_E_MEMORY, "no memory for a bucket of %lld bytes", (long long)s->bucket);
        }
        s->bucket_bytes = s->bucket;
    }
    for (int i = 0; i < count && (is_seen || t->download == NULL); i++)
        if (s->host[i] == NULL)
            LP_TRY(take_seen(s, i, err));
    s->first_in = both_ways ? 2 : 0;
    s->report.buffer_bytes = 0;
    for (int i = 0; i < s->bucket_count; i++) {
        const bool is_twice = s->host[i] != NULL && s->host[i] != s->bucket_memory[i];
        s->report.buffer_bytes += (is_twice ? 2 : 1) * s->bucket_bytes;
    }
    return LP_OK;
}

void lp_flow_release(lp_sync *s)
{
    release_buckets(s);
    lp_shadow_release(s);
    lp_applier_close(s->applier);
    s->applier = NULL;
    lp_sync_lane_close(s->lane, s->alloc);
    s->lane = NULL;
}

/* ---- out ---- */

void lp_out_init(lp_outflow *f, lp_sync *s)
{
    *f = (lp_outflow){.s = s};
}

void lp_out_free(lp_outflow *f)
{
    if (f->is_under_way[0] || f->is_under_way[1])
        f->s->transport.cancel(f->s->transport.context);
    lp_release(f->s->alloc, f->transfer);
    f->transfer = NULL;
}

static lp_status wait_slot(lp_outflow *f, int slot, lp_error *err)
{
    const lp_transport *t = &f->s->transport;
    if (!f->is_under_way[slot])
        return LP_OK;
    f->is_under_way[slot] = false;
    return t->wait(t->context, f->ticket[slot], err);
}

lp_status lp_out_bucket(lp_outflow *f, uint8_t **bucket, lp_error *err)
{
    LP_TRY(wait_slot(f, f->slot, err));
    *bucket = f->s->host[f->slot];
    return LP_OK;
}

lp_status lp_out_send(lp_outflow *f, const int32_t *peer, int32_t peers, int64_t sequence, int64_t bytes,
                      int64_t next_bytes, lp_error *err)
{
    lp_sync *s = f->s;
    const lp_transport *t = &s->transport;
    lp_frame frame = {.round = s->round.number,
                      .sender = s->round.rank,
                      .epoch = s->epoch,
                      .sequence = sequence,
                      .bytes = bytes,
                      .next_bytes = next_bytes,
                      .digest = t->download == NULL ? LP_FRAME_XXH3 : LP_FRAME_VALUE};
    void *items = f->transfer;
    const int slot = f->slot;
    memcpy(frame.agreement, s->agreement, sizeof frame.agreement);
    lp_frame_digest((lp_frame_digest_kind)frame.digest, s->host[slot], bytes, frame.payload);
    lp_frame_put(&frame, f->header[slot]);
    if (t->upload != NULL && bytes > 0)
        LP_TRY(t->upload(t->context, s->bucket_memory[slot], s->host[slot], bytes, err));
    if (!lp_grow(s->alloc, &items, &f->transfer_capacity, 2 * (int64_t)peers, sizeof *f->transfer))
        return lp_fail_memory(err);
    f->transfer = items;
    int64_t count = 0;
    for (int32_t i = 0; i < peers; i++) {
        f->transfer[count++] = (lp_transfer){
            .peer = peer[i], .is_send = true, .is_host = true, .data = f->header[slot], .bytes = LP_FRAME_BYTES};
        if (bytes > 0)
            f->transfer[count++] = (lp_transfer){
                .peer = peer[i], .is_send = true, .is_behind = i > 0, .data = s->bucket_memory[slot], .bytes = bytes};
        s->report.bytes_moved += bytes;
    }
    LP_TRY(t->start(t->context, f->transfer, count, &f->ticket[slot], err));
    f->is_under_way[slot] = true;
    f->slot = 1 - slot;
    s->report.frames++;
    return LP_OK;
}

lp_status lp_out_drain(lp_outflow *f, lp_error *err)
{
    LP_TRY(wait_slot(f, f->slot, err));
    return wait_slot(f, 1 - f->slot, err);
}

/* ---- in ---- */

void lp_in_init(lp_inflow *f, lp_sync *s)
{
    *f = (lp_inflow){.s = s};
}

void lp_in_free(lp_inflow *f)
{
    if (f->posted > 0)
        f->s->transport.cancel(f->s->transport.context);
    f->posted = 0;
}

lp_status lp_in_post(lp_inflow *f, int32_t sender, int64_t sequence, int64_t bytes, lp_error *err)
{
    lp_sync *s = f->s;
    const lp_transport *t = &s->transport;
    const int slot = (f->first + f->posted) % 2;
    if (f->posted == 2 || bytes < 0 || bytes > s->bucket)
        return lp_fail(err, LP_E_CORRUPT, "sender %d announces a frame of %lld bytes for buckets of %lld", sender,
                       (long long)bytes, (long long)s->bucket);
    const lp_transfer in[2] = {
        {.peer = sender, .is_host = true, .data = f->header[slot], .bytes = LP_FRAME_BYTES},
        {.peer = sender, .data = s->bucket_memory[s->first_in + slot], .bytes = bytes},
    };
    f->want[slot] =
        (lp_frame){.round = s->round.number, .sender = sender, .epoch = s->epoch, .sequence = sequence, .bytes = bytes};
    memcpy(f->want[slot].agreement, s->agreement, sizeof s->agreement);
    f->posted++;
    return t->start(t->context, in, bytes > 0 ? 2 : 1, &f->ticket[slot], err);
}

lp_status lp_in_take(lp_inflow *f, lp_frame *frame, const uint8_t **payload, lp_error *err)
{
    lp_sync *s = f->s;
    const lp_transport *t = &s->transport;
    const int slot = f->first;
    LP_TRY(t->wait(t->context, f->ticket[slot], err));
    f->first = 1 - slot;
    f->posted--;
    LP_TRY(lp_frame_get(f->header[slot], frame, err));
    LP_TRY(lp_frame_expect(frame, &f->want[slot], err));
    if (t->download != NULL && frame->bytes > 0)
        LP_TRY(t->download(t->context, s->host[s->first_in + slot], s->bucket_memory[s->first_in + slot], frame->bytes,
                           err));
    LP_TRY(lp_frame_verify(frame, s->host[s->first_in + slot], err));
    s->report.bytes_moved += frame->bytes;
    s->report.frames++;
    *payload = s->host[s->first_in + slot];
    return LP_OK;
}
