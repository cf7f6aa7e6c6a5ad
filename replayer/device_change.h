/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Changes of weights in the memory of a device (sync_change.h), found and written there. Private to the replayer.
 *
 *   compare  weights against the shadow of the last epoch, stretch by stretch: what changed goes, as records one after
 *            the other, to where the frame is put together, and into the shadow
 *   table    the ends of the records of a frame, behind them
 *   apply    the records of a frame into live tensors
 *
 * Calls return 0 or a code of CUDA and only start work on a stream of the current device.
 */
#ifndef LOADPLAN_DEVICE_CHANGE_H
#define LOADPLAN_DEVICE_CHANGE_H

#include "replayer/sync_change.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What the ranks want of a name; a byte for each in memory of the device. */
enum { LP_CHANGE_READ = 1 /* somebody reads it */, LP_CHANGE_WHOLE = 2 /* changed or not, all of it */ };

/* Where the record of a stretch lies in its frame. */
typedef struct lp_change_place {
    uint32_t begin, bytes; /* 0 bytes: nothing changed */
} lp_change_place;

/* At most LP_CHANGE_STRETCH bytes. */
typedef struct lp_change_stretch {
    const void *from; /* senders: the weights */
    void *shadow;     /* senders: a multiple of 16, and so much is there; best of 32 */
    int64_t off;      /* in the tensor, bytes */
    uint32_t name, elements, elem;
    uint32_t first_target, targets; /* receivers */
    uint32_t unused;                /* by the device */
} lp_change_stretch;

/* Stretches [first, first + count) of the share, into a frame; other calls may be filling it at the same time. Records
 * come in any order. */
typedef struct lp_change_compare {
    const lp_change_stretch *stretch; /* of the whole share */
    const uint8_t *flags;             /* by name; NULL: the shadow alone is brought up to date */
    lp_change_place *place;           /* by stretch */
    uint32_t first, count;
    uint64_t *used; /* counts bytes of records; `base` is that of byte 0 of the frame */
    uint64_t base;
    uint8_t *out;      /* the frame */
    bool writes_whole; /* the shadow holds nothing yet */
} lp_change_compare;

/* The table of a frame that holds the records of stretches [first, first + count). */
typedef struct lp_change_table {
    const lp_change_place *place; /* of the whole share */
    uint32_t first, count;
    void *out; /* a multiple of 4 */
} lp_change_table;

/* Where bytes of a tensor go: `run` bytes at lo, and from there in steps. */
enum { LP_CHANGE_MODES = 4 };
typedef struct lp_change_target {
    uint8_t *to; /* of byte lo */
    int64_t lo, run;
    int64_t src_stride[LP_CHANGE_MODES], dst_stride[LP_CHANGE_MODES]; /* src_stride falls, each wider than what is
                                                                         inside */
    uint32_t extent[LP_CHANGE_MODES];
    uint32_t modes, unused;
} lp_change_target;

/* A frame at a receiver. */
typedef struct lp_change_apply {
    const uint8_t *frame; /* a multiple of 8 */
    int64_t bytes;
    uint32_t first, count;            /* stretches of the sender's share, as the frame says */
    const lp_change_stretch *stretch; /* of the whole share */
    const lp_change_target *target;
    const uint8_t *flags; /* by name: LP_CHANGE_READ; LP_CHANGE_WHOLE: not by this call */
    uint32_t *damage;     /* set to 1 where a record is not what it should be: nothing of it was written */
} lp_change_apply;

int lp_device_change_compare(const lp_change_compare *work, void *stream);
int lp_device_change_table(const lp_change_table *work, void *stream);
int lp_device_change_apply(const lp_change_apply *work, void *stream);

#ifdef __cplusplus
}
#endif

#endif
