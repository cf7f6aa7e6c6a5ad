/* SPDX-License-Identifier: Apache-2.0 */
/* What a cold start keeps from load to load: pinned buffers, lanes, marks and slots. */
#ifndef LOADPLAN_DEVICE_COLD_RING_H
#define LOADPLAN_DEVICE_COLD_RING_H

#include "replayer/device_cold.h"

#include <pthread.h>

enum {
    LP_COLD_BUFFERS_MOST = 64,
    LP_COLD_SLOTS = 16,
    LP_COLD_LARGE_SLOTS = 2 /* where one tensor makes slots larger than was asked for */
};

/* Sizes that options mean, for a load that needs about so many bytes, directly read or not. */
typedef struct lp_cold_sizes {
    int64_t chunk, slot; /* bytes */
    int64_t buffers;     /* of a chunk each, at most */
} lp_cold_sizes;
lp_cold_sizes lp_cold_sizes_of(const lp_cold_options *options, int64_t needed, bool is_direct);

struct lp_cold_ring {
    const lp_cold_device *device;
    const lp_alloc *alloc;
    void *copy_lane, *push_lane;
    void *cleared;                                             /* marks: storages are zero */
    void *copied[LP_COLD_BUFFERS_MOST];                        /* what was in a buffer is in its slot */
    void *slot_full[LP_COLD_SLOTS], *slot_free[LP_COLD_SLOTS]; /* all copies into a slot, the push out of it */
    int64_t chunk, buffers;                                    /* of the load at hand, as are: */
    int32_t readers;
    int64_t slot, slots; /* bytes of one, and how many */
    uint8_t *slots_block;
    int64_t slots_bytes;        /* of the block */
    uint8_t *host_block, *host; /* as allocated; aligned and pinned */
    int64_t host_bytes;
    bool is_pinned;
    pthread_t starter;
    bool is_starting;    /* the starter is to be joined before anything above is looked at */
    int64_t starts_with; /* bytes of pinned memory */
};

/* Takes what a load of so many parts, chunks and batches needs and the ring does not have: device memory and lanes, and
 * starts to touch new host memory. lp_cold_ring_pin ends that and pins it. */
typedef struct lp_cold_touch lp_cold_touch;
lp_status lp_cold_ring_fit(lp_cold_ring *ring, const lp_cold_options *options, const lp_cold_sizes *sizes,
                           int64_t parts, int64_t chunks, int64_t batches, int64_t slot, lp_cold_touch **touch,
                           lp_error *err);
lp_status lp_cold_ring_pin(lp_cold_ring *ring, lp_cold_touch **touch, lp_error *err);
void lp_cold_touch_end(lp_cold_touch *touch); /* NULL is allowed */

/* Until nothing is under way on any lane. */
void lp_cold_ring_wait(lp_cold_ring *ring);

#endif
