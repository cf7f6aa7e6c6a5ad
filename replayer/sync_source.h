/* SPDX-License-Identifier: Apache-2.0 */
/* What the two kinds of sources share. Private to the replayer. */
#ifndef LOADPLAN_SYNC_SOURCE_H
#define LOADPLAN_SYNC_SOURCE_H

#include "replayer/plan.h"
#include "replayer/sync.h"

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
