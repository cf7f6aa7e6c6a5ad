/* SPDX-License-Identifier: Apache-2.0 */
/* Whether a checkpoint is the one that a trace was recorded for, as far as names, dtypes and shapes go. */
#include "traces/trace_private.h"

#include <inttypes.h>
#include <stdio.h>

/* "BF16 [4096, 4096]"; long shapes end in "...". */
static void describe(char *out, size_t out_bytes, const lp_checkpoint_tensor *tensor)
{
    size_t used = (size_t)snprintf(out, out_bytes, "%s [", lp_dtype_name(tensor->dtype));
    for (int32_t d = 0; d < tensor->ndim; d++) {
        if (used + 32 > out_bytes) {
            snprintf(out + used, out_bytes - used, "...");
            return;
        }
        used += (size_t)snprintf(out + used, out_bytes - used, "%s%" PRId64, d > 0 ? ", " : "", tensor->shape[d]);
    }
    snprintf(out + used, out_bytes - used, "]");
}

static bool is_same_form(const lp_checkpoint_tensor *a, const lp_checkpoint_tensor *b)
{
    return a->dtype == b->dtype && a->ndim == b->ndim &&
           (a->ndim == 0 || memcmp(a->shape, b->shape, (size_t)a->ndim * sizeof *a->shape) == 0);
}

/* What one tensor was and is; NULL where it was not or is no more. */
static void tell(char *out, size_t out_bytes, const char *name, const lp_checkpoint_tensor *was,
                 const lp_checkpoint_tensor *is)
{
    char old_form[160] = "", new_form[160] = "";
    if (was != NULL)
        describe(old_form, sizeof old_form, was);
    if (is != NULL)
        describe(new_form, sizeof new_form, is);
    if (was == NULL)
        snprintf(out, out_bytes, "'%s' is %s, was not there", name, new_form);
    else if (is == NULL)
        snprintf(out, out_bytes, "'%s' is not there, was %s", name, old_form);
    else
        snprintf(out, out_bytes, "'%s' is %s, was %s", name, new_form, old_form);
}

lp_status lp_trace_match(const lp_trace *t, const lp_checkpoint *checkpoint, lp_error *err)
{
    const lp_checkpoint *recorded = t->checkpoint;
    const int64_t old_count = lp_checkpoint_count(recorded), new_count = lp_checkpoint_count(checkpoint);
    int64_t i = 0, j = 0, differences = 0;
    char first[448];
    const char *subject = "";
    while (i < old_count || j < new_count) {
        int order = i == old_count ? 1 : -1;
        if (i < old_count && j < new_count)
            order = strcmp(lp_checkpoint_at(recorded, i)->name, lp_checkpoint_at(checkpoint, j)->name);
        const lp_checkpoint_tensor *was = order <= 0 ? lp_checkpoint_at(recorded, i++) : NULL;
        const lp_checkpoint_tensor *is = order >= 0 ? lp_checkpoint_at(checkpoint, j++) : NULL;
        if (order == 0 && is_same_form(was, is))
            continue;
        if (differences++ == 0) {
            subject = order <= 0 ? was->name : is->name;
            tell(first, sizeof first, subject, was, is);
        }
    }
    if (differences == 0)
        return LP_OK;
    char more[64] = "", count[32];
    if (differences > 1)
        snprintf(more, sizeof more, " (and %s other difference%s)", lp_format_count(count, differences - 1),
                 differences > 2 ? "s" : "");
    const lp_status status = lp_fail_at(err, LP_E_STALE, subject, -1, "%s%s", first, more);
    lp_hint(err, "record again");
    return status;
}
