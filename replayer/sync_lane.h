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
    lp_value_sum *sum;   /* by bucket, on the device */
    lp_value_sum *found; /* the same in pinned memory */
} lp_sync_lane;

/* ---- sync_lane.c ---- */

/* Makes s->lane, unless it is there. The transport has a lane. */
lp_status lp_sync_lane_open(lp_sync *s, lp_error *err);
lp_status lp_sync_lane_new(const lp_sync *s, lp_sync_lane **out, lp_error *err); /* one more */
void lp_sync_lane_close(lp_sync_lane *l, const lp_alloc *alloc); /* NULL is allowed; no flow is under way */

lp_status lp_lane_check(const lp_sync_lane *l, int code, const char *verb, lp_error *err);
/* Adds the sums of bytes at `data`, in memory of the device, which begin at byte off of their tensor. */
lp_status lp_lane_sum(const lp_sync_lane *l, lp_value_sum *sum, int64_t off, const void *data, int64_t bytes,
                      void *stream, lp_error *err);
/* Takes the digest of a bucket on aside: from `filled` on it is in found. */
lp_status lp_lane_digest(const lp_sync_lane *l, int slot, const void *bucket, int64_t bytes, lp_error *err);
/* What was found, when `filled` is done. */
void lp_lane_found(const lp_sync_lane *l, int slot, int64_t bytes, uint8_t digest[16]);

/* ---- sync_lane_out.c ---- */

lp_status lp_lane_send(lp_sync *s, const lp_sync_source *source, const lp_frame_out *frame, int64_t count,
                       lp_error *err); /* lp_frames_send */

typedef struct lp_lane_out_slot {
    int64_t payload, before, header; /* tickets: of the message from this bucket, of the one before it, of the header */
    bool has_payload, has_before, has_header;
    uint8_t bytes[LP_FRAME_BYTES];
} lp_lane_out_slot;

/* Frames out, one after the other, of buckets in turns: free, (the caller fills it on aside,) start, announce. */
typedef struct lp_lane_out {
    lp_sync *s;
    const lp_sync_lane *l;
    lp_lane_out_slot slot[2];
    lp_transfer *transfer; /* room for all ranks */
} lp_lane_out;

lp_status lp_lane_out_open(lp_lane_out *f, lp_sync *s, lp_error *err);
/* What the stream (aside, or one besides) is given next comes behind the message that was last sent from the bucket. */
lp_status lp_lane_out_free(lp_lane_out *f, int k, void *stream, lp_error *err);
/* Sends bytes > 0 of the bucket behind what is on aside now, and takes their digest. */
lp_status lp_lane_out_start(lp_lane_out *f, int k, const int32_t *peer, int32_t peers, int64_t bytes, lp_error *err);
/* The header of a frame that was started, or of one without bytes. */
lp_status lp_lane_out_announce(lp_lane_out *f, int k, const int32_t *peer, int32_t peers, int64_t sequence,
                               int64_t bytes, int64_t next_bytes, lp_error *err);
lp_status lp_lane_out_drain(lp_lane_out *f, lp_error *err);
/* Nothing is under way afterwards. Returns status, or what waiting came to. */
lp_status lp_lane_out_close(lp_lane_out *f, lp_status status, lp_error *err);

/* ---- sync_lane_in.c ---- */

lp_status lp_lane_receive(lp_sync *s, const lp_frame_in *frame, int64_t count, const lp_sync_sink *sink, bool is_whole,
                          lp_error *err); /* lp_frames_receive */

typedef struct lp_lane_in_slot {
    int64_t payload, header; /* tickets */
    uint8_t bytes[LP_FRAME_BYTES];
} lp_lane_in_slot;

/* Frames in, one after the other, of buckets in turns: post, take, (the caller replays it on its stream,) done. */
typedef struct lp_lane_in {
    lp_sync *s;
    lp_sync_lane *l;
    void *stream;
    lp_lane_in_slot slot[2];
} lp_lane_in;

void lp_lane_in_open(lp_lane_in *f, lp_sync *s, void *stream);
/* Starts a frame: its message waits for the replay of what was in the bucket, its digest for the message. */
lp_status lp_lane_in_post(lp_lane_in *f, int k, int32_t sender, int64_t bytes, lp_error *err);
/* The header of a frame, which may come before its payload. */
lp_status lp_lane_in_head(lp_lane_in *f, int k, int32_t sender, int64_t sequence, int64_t bytes, lp_frame *frame,
                          lp_error *err);
/* Then its payload: nothing of a frame is replayed before it is known to be the right one, whole. */
lp_status lp_lane_in_take(lp_lane_in *f, int k, const lp_frame *frame, lp_error *err);
lp_status lp_lane_in_done(lp_lane_in *f, int k, lp_error *err);
/* Nothing is under way afterwards, on the caller's stream either. Returns status, or what waiting came to. */
lp_status lp_lane_in_close(lp_lane_in *f, lp_status status, lp_error *err);

#endif
