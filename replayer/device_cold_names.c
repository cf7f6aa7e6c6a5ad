/* SPDX-License-Identifier: Apache-2.0 */
/* What a cold start loads: the names of the plan, in the order in which they lie in the files. */
#include "replayer/device_cold_batches.h"

#include <stdlib.h>

static int by_place(const void *a, const void *b)
{
    const lp_cold_name *x = a, *y = b;
    if (x->tensor->file != y->tensor->file)
        return x->tensor->file < y->tensor->file ? -1 : 1;
    if (x->tensor->file_off != y->tensor->file_off)
        return x->tensor->file_off < y->tensor->file_off ? -1 : 1;
    return x->entry < y->entry ? -1 : 1;
}

static lp_status find_tensor(const lp_plan *plan, const lp_checkpoint *checkpoint, uint32_t entry, lp_cold_name *out,
                             lp_error *err)
{
    const lp_checkpoint_tensor *want = lp_checkpoint_at(plan->catalogue, plan->entry[entry].name);
    const int64_t index = lp_checkpoint_find(checkpoint, want->name);
    const lp_checkpoint_tensor *have = index < 0 ? NULL : lp_checkpoint_at(checkpoint, index);
    LP_TRY(lp_same_tensor(want, have, err));
    if (plan->entry[entry].reads && (have->file < 0 || have->file_off < 0))
        return lp_fail_at(err, LP_E_ARGUMENT, want->name, -1, "'%s' has no file: the checkpoint is a catalogue only",
                          want->name);
    *out = (lp_cold_name){.entry = entry, .tensor = have};
    return LP_OK;
}

static void note_file(lp_cold_batches *b, const lp_entry *e, const lp_checkpoint_tensor *tensor)
{
    if (!e->reads || tensor->file < 0)
        return;
    int64_t *needed = &b->file_needed[tensor->file];
    *needed = (*needed < 0 ? 0 : *needed) + (e->need_hi - e->need_lo);
}

lp_status lp_cold_names_list(lp_cold_batches *b, const lp_plan *plan, const lp_checkpoint *checkpoint, lp_error *err)
{
    const int32_t files = lp_checkpoint_file_count(checkpoint);
    b->file_needed = lp_allocate(b->alloc, ((size_t)files + 1) * sizeof *b->file_needed);
    b->name = lp_allocate(b->alloc, ((size_t)plan->entry_count + 1) * sizeof *b->name);
    if (b->file_needed == NULL || b->name == NULL)
        return lp_fail_memory(err);
    for (int32_t i = 0; i < files; i++)
        b->file_needed[i] = -1;
    for (uint32_t e = 0; e < plan->entry_count; e++) {
        if (plan->entry[e].use != LP_USE_LOADED)
            continue;
        LP_TRY(find_tensor(plan, checkpoint, e, &b->name[b->names], err));
        note_file(b, &plan->entry[e], b->name[b->names++].tensor);
    }
    if (b->names > 0)
        qsort(b->name, (size_t)b->names, sizeof *b->name, by_place);
    return LP_OK;
}
