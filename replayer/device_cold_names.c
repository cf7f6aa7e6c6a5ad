/* SPDX-License-Identifier: Apache-2.0 */
/* What a cold start loads: the names of the plan, in the order in which they lie in the files. */
#include "replayer/device_cold_batches.h"

lp_status lp_cold_names_list(lp_cold_batches *b, const lp_plan *plan, const lp_checkpoint *checkpoint, lp_error *err)
{
    const int32_t files = lp_checkpoint_file_count(checkpoint);
    b->file_needed = lp_allocate(b->alloc, ((size_t)files + 1) * sizeof *b->file_needed);
    b->name = lp_allocate(b->alloc, ((size_t)plan->entry_count + 1) * sizeof *b->name);
    if (b->file_needed == NULL || b->name == NULL)
        return lp_fail_memory(err);
    return lp_read_names(plan, NULL, checkpoint, b->name, &b->names, b->file_needed, err);
}
