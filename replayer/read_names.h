/* SPDX-License-Identifier: Apache-2.0 */
/* What there is to read of a checkpoint: names of a plan, in the order in which they lie in the files. */
#ifndef LOADPLAN_READ_NAMES_H
#define LOADPLAN_READ_NAMES_H

#include "replayer/session.h"

typedef struct lp_read_name {
    uint32_t entry;
    int32_t file; /* as the tensor has it, and file_off: they are sorted by these */
    int64_t file_off;
    const lp_checkpoint_tensor *tensor; /* in the checkpoint at hand */
} lp_read_name;

/* The tensor of `checkpoint` that the trace was recorded from, by name, dtype and shape. LP_E_STALE names it. */
lp_status lp_find_recorded(const lp_plan *plan, const lp_checkpoint *checkpoint, lp_handle name,
                           const lp_checkpoint_tensor **out, lp_error *err);

/* The names that the plan loads; with a session those of them that it expects and has not whole. `list` has room for
 * all entries of the plan. Adds to needed[], by file, the bytes that are needed of it at most: -1 stays where no name
 * needs any. */
lp_status lp_read_names(const lp_plan *plan, const lp_session *s, const lp_checkpoint *checkpoint, lp_read_name *list,
                        int64_t *count, int64_t *needed, lp_error *err);

/* The next bytes of [*lo, hi) that have not arrived yet: moves *lo to the first and *end behind the last; false where
 * there are none. */
bool lp_read_absent(const lp_track *track, int64_t *lo, int64_t hi, int64_t *end);

#endif
