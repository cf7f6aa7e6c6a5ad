/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Order, made free once: where records of different names overlap, the last write wins, so every byte belongs to the
 * record with the highest seq that writes it. Cutting that from all lower ones leaves disjoint records, and the result
 * no longer depends on the order in which their names arrive.
 */
#include "replayer/plan.h"

#include <stdlib.h>

/* Cuts of one scope; a trace that needs more is refused. */
enum { CUTS_MAX = 1 << 20, PAIRS_MAX = 1 << 30 };

typedef struct ordered {
    int64_t step;
    uint32_t dest, seq;
} ordered;

static int by_dest_then_late(const void *a, const void *b)
{
    const ordered *x = a, *y = b;
    if (x->dest != y->dest)
        return x->dest < y->dest ? -1 : 1;
    if (x->seq != y->seq)
        return x->seq > y->seq ? -1 : 1;
    return x->step < y->step ? -1 : x->step > y->step;
}

/* Takes from `low` what `high` writes. */
static lp_status cut(lp_plan *plan, const lp_rows *rows, lp_step *low, const lp_step *high, lp_error *err)
{
    const lp_map *rest;
    const int64_t shift = high->dst_off - low->dst_off;
    const lp_status status = lp_map_subtract(&rest, low->map, high->map, shift, plan->platform.alloc, err);
    if (status == LP_E_UNSUPPORTED || status == LP_E_LIMIT || status == LP_E_ARGUMENT) {
        const char *name = rows->dest[low->dest].name;
        return lp_fail_at(err, LP_E_UNSUPPORTED, name, -1,
                          "records of '%s' that must be applied in order cannot be separated", name);
    }
    LP_TRY(status);
    LP_TRY(lp_plan_keep_map(plan, rest, err));
    low->map = rest;
    return LP_OK;
}

static bool may_overlap(const lp_step *a, const lp_step *b)
{
    return a->map->nbox > 0 && b->map->nbox > 0 && a->dst_off + a->map->dst_lo < b->dst_off + b->map->dst_hi &&
           b->dst_off + b->map->dst_lo < a->dst_off + a->map->dst_hi;
}

lp_status lp_plan_free_order(lp_plan *plan, const lp_rows *rows, lp_step *step, const uint32_t *seq, lp_error *err)
{
    lp_status status = LP_OK;
    const int64_t count = rows->nrecord;
    int64_t used = 0, cuts = 0, pairs = 0;
    for (int64_t i = 0; i < count; i++)
        used += seq[i] != 0;
    if (used == 0)
        return LP_OK;
    ordered *list = lp_allocate(plan->platform.alloc, (size_t)used * sizeof *list);
    if (list == NULL)
        return lp_fail_memory(err);
    used = 0;
    for (int64_t i = 0; i < count; i++)
        if (seq[i] != 0)
            list[used++] = (ordered){i, step[i].dest, seq[i]};
    qsort(list, (size_t)used, sizeof *list, by_dest_then_late);
    for (int64_t low = 1, first = 0; low < used; low++) {
        if (list[low].dest != list[low - 1].dest)
            first = low;
        for (int64_t high = first; high < low; high++) { /* the latest takes the most */
            lp_step *late = &step[list[high].step], *early = &step[list[low].step];
            if (early->map->nbox == 0)
                break;
            if (++pairs > PAIRS_MAX) {
                const char *name = rows->dest[early->dest].name;
                status =
                    lp_fail_at(err, LP_E_LIMIT, name, -1, "too many records of '%s' must be applied in order", name);
                goto free_list;
            }
            if (list[high].seq == list[low].seq || !may_overlap(early, late))
                continue;
            if (++cuts > CUTS_MAX) {
                status = lp_fail(err, LP_E_LIMIT, "more than %d overlapping records", CUTS_MAX);
                goto free_list;
            }
            LP_TRY_GOTO(cut(plan, rows, early, late, err), free_list);
        }
    }
free_list:
    lp_release(plan->platform.alloc, list);
    return status;
}
