/* SPDX-License-Identifier: Apache-2.0 */
/* The shadow of a sender on a device: its memory, where the weights lie, and what compares them. Private to what sends
 * changes. */
#ifndef LOADPLAN_SYNC_DELTA_SHADOW_H
#define LOADPLAN_SYNC_DELTA_SHADOW_H

#include "replayer/sync_delta.h"
#include "replayer/sync_lane.h"
#include "replayer/sync_source.h"

enum { LP_SHADOW_FLIGHT = 16 /* batches under way */, LP_SHADOW_STREAMS = 3 };

struct lp_device_shadow {
    const lp_nccl_device *device;
    void *context;
    const lp_alloc *alloc;
    lp_delta_list list;
    uint64_t serial; /* of the packer whose addresses the list has */
    void *memory, *there, *place, *flags;
    uint64_t *used;                  /* by bucket, on the device: bytes of records that went into it */
    uint8_t *name_flags;             /* on the host */
    uint64_t *found;                 /* pinned, by batch under way: the counter when it was done */
    void *event[LP_SHADOW_FLIGHT];   /* by batch under way */
    void *stream[LP_SHADOW_STREAMS]; /* batches are on them in turns, so that one begins while others end */

    /* What does not lie in one row on the device is put together first. */
    lp_pieces staged; /* a frame for each window that has some */
    lp_frame_out *frame;
    int64_t frames, frame_capacity;
    int32_t *frame_of; /* by window; -1: none */
    void *stage;
};

/* Finds out where the weights lie, once for each source, and says on the device what is to be compared. Nothing is
 * under way. */
lp_status lp_device_shadow_prepare(lp_sync *s, const lp_sync_source *source, lp_error *err);
lp_status lp_shadow_check(const struct lp_device_shadow *d, int code, const char *verb, lp_error *err);

#endif
