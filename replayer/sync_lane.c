/* SPDX-License-Identifier: Apache-2.0 */
/* What both sides of a lane need: streams, events, digests. */
#include "replayer/sync_lane.h"

lp_status lp_lane_check(const lp_sync_lane *l, int code, const char *verb, lp_error *err)
{
    if (code == 0)
        return LP_OK;
    return lp_fail(err, LP_E_DEVICE, "cannot %s: %s", verb, l->device->error_text(l->context, code));
}

/* ---- life ---- */

static lp_status open_lane(lp_sync_lane *l, lp_error *err)
{
    const lp_nccl_device *d = l->device;
    void *sum = NULL, *found = NULL;
    LP_TRY(lp_lane_check(l, d->enter(l->context), "use the device", err));
    LP_TRY(lp_lane_check(l, d->stream_open(l->context, false, &l->aside), "open a stream", err));
    for (int i = 0; i < 2; i++) {
        LP_TRY(lp_lane_check(l, d->event_open(l->context, &l->bucket[i].packed), "make an event", err));
        LP_TRY(lp_lane_check(l, d->event_open(l->context, &l->bucket[i].filled), "make an event", err));
        LP_TRY(lp_lane_check(l, d->event_open(l->context, &l->bucket[i].freed), "make an event", err));
    }
    LP_TRY(lp_lane_check(l, d->allocate(l->context, 2 * (int64_t)sizeof *l->sum, &sum), "take device memory", err));
    l->sum = sum;
    LP_TRY(lp_lane_check(l, d->take_pinned(l->context, 2 * (int64_t)sizeof *l->found, &found), "pin memory", err));
    l->found = found;
    return LP_OK;
}

lp_status lp_sync_lane_open(lp_sync *s, lp_error *err)
{
    return s->lane != NULL ? LP_OK : lp_sync_lane_new(s, &s->lane, err);
}

lp_status lp_sync_lane_new(const lp_sync *s, lp_sync_lane **out, lp_error *err)
{
    const lp_lane *lane = s->transport.lane;
    lp_sync_lane *l = lp_allocate_zero(s->alloc, sizeof *l);
    if (l == NULL)
        return lp_fail_memory(err);
    *l = (lp_sync_lane){
        .lane = lane, .device = lane->device, .context = lane->device->context, .owner = s->transport.context};
    const lp_status status = open_lane(l, err);
    if (status == LP_OK)
        *out = l;
    else
        lp_sync_lane_close(l, s->alloc);
    return status;
}

void lp_sync_lane_close(lp_sync_lane *l, const lp_alloc *alloc)
{
    if (l == NULL)
        return;
    const lp_nccl_device *d = l->device;
    for (int i = 0; i < 2; i++) {
        void *const event[3] = {l->bucket[i].packed, l->bucket[i].filled, l->bucket[i].freed};
        for (int k = 0; k < 3; k++)
            if (event[k] != NULL)
                d->event_close(l->context, event[k]);
    }
    if (l->aside != NULL)
        d->stream_close(l->context, l->aside);
    if (l->sum != NULL)
        d->release(l->context, l->sum);
    if (l->found != NULL)
        d->give_pinned(l->context, l->found);
    lp_release(alloc, l);
}

/* ---- digests ---- */

lp_status lp_lane_sum(const lp_sync_lane *l, lp_value_sum *sum, int64_t off, const void *data, int64_t bytes,
                      void *stream, lp_error *err)
{
    lp_sum_part part[LP_SUM_PARTS];
    int count;
    LP_TRY(lp_sum_parts(part, &count, off, (uintptr_t)data, bytes, err));
    for (int i = 0; i < count; i++) {
        LP_TRY(lp_lane_check(l,
                             l->device->sum(l->context, &part[i].job, (const uint8_t *)data + part[i].at, sum, stream),
                             "digest a frame", err));
    }
    return LP_OK;
}

lp_status lp_lane_digest(const lp_sync_lane *l, int slot, const void *bucket, int64_t bytes, lp_error *err)
{
    const lp_nccl_device *d = l->device;
    lp_value_sum *sum = &l->sum[slot];
    LP_TRY(lp_lane_check(l, d->clear(l->context, sum, sizeof *sum, l->aside), "digest a frame", err));
    LP_TRY(lp_lane_sum(l, sum, 0, bucket, bytes, l->aside, err));
    LP_TRY(lp_lane_check(l, d->copy(l->context, &l->found[slot], sum, sizeof *sum, l->aside), "digest a frame", err));
    return lp_lane_check(l, d->event_set(l->context, l->bucket[slot].filled, l->aside), "mark a stream", err);
}

void lp_lane_found(const lp_sync_lane *l, int slot, int64_t bytes, uint8_t digest[16])
{
    lp_value_sum_end(&l->found[slot], bytes, digest);
}
