/* SPDX-License-Identifier: Apache-2.0 */
/* What the two kinds of sources share. Private to the replayer. */
#ifndef LOADPLAN_SYNC_SOURCE_H
#define LOADPLAN_SYNC_SOURCE_H

#include "replayer/plan.h"
#include "replayer/sync.h"
#include "replayer/sync_piece.h"

struct lp_frame_out;

/* What a source in the memory of a device does besides: whole frames at a time, by a program that is made before the
 * first one. `context` is the packer's own. */
typedef struct lp_sync_packer {
    void *context;
    /* Makes all frames of a pass ready; frame i goes to bucket[i % 2], memory of the device. bucket NULL: to memory of
     * the packer's own, from where `fetch` takes it. What was prepared is kept while frames and buckets are the same.
     * LP_E_UNSUPPORTED: the buckets lie elsewhere, or some byte is held nowhere. */
    lp_status (*prepare)(void *context, const struct lp_frame_out *frame, int64_t count, void *const *bucket,
                         lp_error *err);
    /* Fills a bucket in the order of the stream. */
    lp_status (*pack)(void *context, int64_t number, void *stream, lp_error *err);
    /* Fills host memory, and waits. */
    lp_status (*fetch)(void *context, int64_t number, void *out, lp_error *err);
    /* Calls `row` for the bytes of a piece by where they lie: byte `off` of it and on, packed, are the `bytes` at
     * `data`. Ends early when it returns other than 0. */
    lp_status (*rows)(void *context, const lp_piece *piece,
                      int (*row)(void *to, int64_t off, const void *data, int64_t bytes), void *to, lp_error *err);
    uint64_t serial;               /* no other one of this process has it */
    struct lp_sync_packer *beside; /* one more, of the same plan and for as long; NULL: this is it */
} lp_sync_packer;

/* sync_pack.c: of a plan that is bound to a device, and outlives it. No pass is under way when it is closed. */
lp_status lp_packer_open(lp_sync_packer **out, const lp_plan *plan, lp_error *err);
void lp_packer_close(lp_sync_packer *packer); /* NULL is allowed */

/* A part of a tensor as a map from one destination's memory to a dense buffer. */
typedef struct lp_gather_part {
    const lp_map *map;
    uint32_t dest;
} lp_gather_part;

/* The bytes of a strided piece, from wherever the plan's destinations hold them: exactly, each at least once.
 * LP_E_UNSUPPORTED: some byte is held nowhere. The maps are added to *part (grown with `alloc`, like the maps). */
lp_status lp_gather_compile(const lp_plan *plan, uint32_t name, int64_t lo, int64_t run, int64_t stride, int64_t count,
                            const lp_alloc *alloc, lp_gather_part **part, int64_t *parts, int64_t *capacity,
                            lp_error *err);

/* Whether a step's destination still holds the checkpoint's bytes after a load: a copy that no derive writes over. */
bool lp_gather_holds(const lp_plan *plan, const lp_step *step);

#endif
