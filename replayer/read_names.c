/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the names of a plan in a checkpoint, and puts them in file order. */
#include "replayer/read_names.h"

#include <stdlib.h>

static bool is_same(const lp_checkpoint_tensor *a, const lp_checkpoint_tensor *b)
{
    return a->dtype == b->dtype && a->ndim == b->ndim &&
           (a->ndim == 0 || memcmp(a->shape, b->shape, (size_t)a->ndim * sizeof *a->shape) == 0);
}

lp_status lp_find_recorded(const lp_plan *plan, const lp_checkpoint *checkpoint, lp_handle name,
                           const lp_checkpoint_tensor **out, lp_error *err)
{
    const lp_checkpoint_tensor *want = lp_checkpoint_at(plan->catalogue, name);
    const bool is_alike = name < lp_checkpoint_count(checkpoint) && /* both in the order of names: often the same */
                          strcmp(lp_checkpoint_at(checkpoint, name)->name, want->name) == 0;
    const int64_t index = is_alike ? name : lp_checkpoint_find(checkpoint, want->name);
    if (index >= 0 && is_same(want, lp_checkpoint_at(checkpoint, index))) {
        *out = lp_checkpoint_at(checkpoint, index);
        return LP_OK;
    }
    lp_fail_at(err, LP_E_STALE, want->name, -1,
               index < 0 ? "stale trace: the checkpoint has no '%s'"
                         : "stale trace: '%s' has another dtype or shape than when it was recorded",
               want->name);
    lp_hint(err, "record again");
    return LP_E_STALE;
}

static int by_place(const void *a, const void *b)
{
    const lp_read_name *x = a, *y = b;
    if (x->file != y->file)
        return x->file < y->file ? -1 : 1;
    if (x->file_off != y->file_off)
        return x->file_off < y->file_off ? -1 : 1;
    return x->entry < y->entry ? -1 : 1;
}

lp_status lp_read_names(const lp_plan *plan, const lp_session *s, const lp_checkpoint *checkpoint, lp_read_name *list,
                        int64_t *count, int64_t *needed, lp_error *err)
{
    int64_t n = 0;
    for (int32_t file = 0; file < lp_checkpoint_file_count(checkpoint); file++)
        needed[file] = -1;
    for (uint32_t i = 0; i < plan->entry_count; i++) {
        const lp_entry *e = &plan->entry[i];
        if (e->use != LP_USE_LOADED || (s != NULL && (!s->track[i].is_expected || s->track[i].is_complete)))
            continue;
        const lp_checkpoint_tensor *t;
        LP_TRY(lp_find_recorded(plan, checkpoint, e->name, &t, err));
        list[n++] = (lp_read_name){i, t->file, t->file_off, t};
        if (!e->reads)
            continue;
        if (t->file < 0 || t->file_off < 0) {
            lp_fail_at(err, LP_E_ARGUMENT, t->name, -1, "'%s' has no file: the checkpoint is a catalogue only",
                       t->name);
            lp_hint(err, "traces and header bundles have no weights: give the checkpoint's folder");
            return LP_E_ARGUMENT;
        }
        needed[t->file] = (needed[t->file] < 0 ? 0 : needed[t->file]) + (e->need_hi - e->need_lo);
    }
    if (n > 0)
        qsort(list, (size_t)n, sizeof *list, by_place);
    *count = n;
    return LP_OK;
}

bool lp_read_absent(const lp_track *track, int64_t *lo, int64_t hi, int64_t *end)
{
    while (*lo < hi) {
        int64_t first;
        *end = lp_track_overlaps(track, *lo, hi, &first) ? first : hi;
        if (*lo < *end)
            return true;
        *lo = lp_track_end(track, first);
    }
    return false;
}
