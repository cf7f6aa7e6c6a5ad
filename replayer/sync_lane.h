/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Frames whose payloads stay in the memory of a device. Private to the replayer.
 *
 * Three streams take part, and events order them, so that the host waits for headers and digests only:
 *
 *   messages   the transport's: payloads out and in
 *   aside      the lane's: packing, uploads, digests
 *   session    the caller's: replay of what came
 *
 * Who may touch a bucket, and what the next one waits for:
 *
 *   sender     aside fills it, behind the message that it was last sent by; the message goes behind `packed`; the
 *              digest is taken beside the message, and its arrival at the host, `filled`, sets the header off
 *   receiver   a message fills it, behind `freed`, the replay of what was in it before; aside takes the digest behind
 *              the message; when it has arrived, `filled`, and is that of the header, the session replays, and `freed`
 *              is set behind that
 *
 * When something fails the transport is told to cancel first, which ends its messages. Then, as when all is well, aside
 * and the session's stream are waited for, so nothing is under way in buckets when a flow returns.
 */
#ifndef LOADPLAN_SYNC_LANE_H
#define LOADPLAN_SYNC_LANE_H

#include "replayer/sync_private.h"
#include "replayer/sync_sum.h"
#include "replayer/transport_lane.h"

typedef struct lp_lane_bucket {
    void *packed, *filled, *freed; /* events */
    bool was_replayed;             /* freed was set */
} lp_lane_bucket;

/* What a sync has on the device beside its buckets. */
typedef struct lp_sync_lane {
    const lp_lane *lane;
    const lp_nccl_device *device;
    void *context, *owner; /* of the device; of the transport */
    void *aside;
    lp_lane_bucket bucket[2];
    lp_sum_pair *sum;   /* by bucket, on the device */
    lp_sum_pair *found; /* the same in pinned memory */
} lp_sync_lane;

/* ---- sync_lane.c ---- */

/* Makes s->lane, unless it is there. The transport has a lane. */
lp_status lp_sync_lane_open(lp_sync *s, lp_error *err);
void lp_sync_lane_close(lp_sync_lane *l, const lp_alloc *alloc); /* NULL is allowed; no flow is under way */

lp_status lp_lane_check(const lp_sync_lane *l, int code, const char *verb, lp_error *err);
/* Adds the sums of bytes at `data`, in memory of the device, which begin at byte off of their tensor. */
lp_status lp_lane_sum(const lp_sync_lane *l, lp_sum_pair *sum, int64_t off, const void *data, int64_t bytes,
                      void *stream, lp_error *err);
/* Takes the digest of a bucket on aside: from `filled` on it is in found. */
lp_status lp_lane_digest(const lp_sync_lane *l, int slot, const void *bucket, int64_t bytes, lp_error *err);
/* What was found, when `filled` is done. */
void lp_lane_found(const lp_sync_lane *l, int slot, int64_t bytes, uint8_t digest[16]);

/* ---- sync_lane_out.c, sync_lane_in.c: lp_frames_send and lp_frames_receive ---- */

lp_status lp_lane_send(lp_sync *s, const lp_sync_source *source, const lp_frame_out *frame, int64_t count,
                       lp_error *err);
lp_status lp_lane_receive(lp_sync *s, const lp_frame_in *frame, int64_t count, const lp_sync_sink *sink, bool is_whole,
                          lp_error *err);

#endif
