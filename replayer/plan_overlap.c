/* SPDX-License-Identifier: Apache-2.0 */
/*
 * No byte has two writers. Recorded orders are free by now, so what still overlaps has none, and which write wins would
 * depend on the order of arrival: a trace from elsewhere may say so, `check` denies it (dest_overlap), and it is not
 * bound. Two writes of one name that put the same there, as through tied destinations, are as good as one. What derives
 * write comes behind everything else that writes there (plan_jobs.c).
 */
#include "replayer/plan.h"
#include "traces/cover.h"
#include "traces/map_parts.h"

#include <stdlib.h>

/* A step by its place in its storage. */
typedef struct placed {
    const lp_step *step;
    int64_t off; /* of the map in the storage */
    uint32_t storage;
} placed;

static int64_t lo_of(const placed *p)
{
    return p->off + p->step->map->dst_lo;
}

static int64_t hi_of(const placed *p)
{
    return p->off + p->step->map->dst_hi;
}

static int by_place(const void *a, const void *b)
{
    const placed *x = a, *y = b;
    if (x->storage != y->storage)
        return x->storage < y->storage ? -1 : 1;
    if (lo_of(x) != lo_of(y))
        return lo_of(x) < lo_of(y) ? -1 : 1;
    return x->step < y->step ? -1 : x->step > y->step;
}

static void add_step(const lp_plan *plan, const lp_step *step, placed *list, int64_t *count)
{
    if (step->dest != LP_NONE && step->map->nbox > 0)
        list[(*count)++] =
            (placed){step, plan->rows->dest[step->dest].offset + step->dst_off, plan->storage_of[step->dest]};
}

static lp_status do_the_same(const lp_plan *plan, const placed *a, const placed *b, bool *same, lp_error *err)
{
    const lp_step *x = a->step, *y = b->step;
    *same = false;
    if (x->name != y->name || x->src_dtype != y->src_dtype || x->dst_dtype != y->dst_dtype ||
        x->fill_bits != y->fill_bits || x->map->src_elem != y->map->src_elem || x->map->dst_elem != y->map->dst_elem)
        return LP_OK;
    return lp_maps_agree(same, &(lp_placed_map){x->map, x->src_off, a->off},
                         &(lp_placed_map){y->map, y->src_off, b->off}, plan->platform.alloc, err);
}

static lp_status refuse(const lp_plan *plan, const placed *a, const placed *b, int64_t lo, int64_t hi, lp_error *err)
{
    const lp_destination *dest = &plan->rows->dest[a->step->dest];
    lo -= dest->offset;
    hi -= dest->offset;
    if (a->step->name == LP_NAME_BEGIN)
        lp_fail_at(err, LP_E_UNSUPPORTED, dest->name, lo,
                   "two fills at the beginning write bytes [%lld, %lld) of '%s', and fills have no order",
                   (long long)lo, (long long)hi, dest->name);
    else
        lp_fail_at(err, LP_E_UNSUPPORTED, dest->name, lo,
                   "'%s' and '%s' both write bytes [%lld, %lld) of '%s', and the trace has no order for them",
                   lp_checkpoint_at(plan->catalogue, a->step->name)->name,
                   lp_checkpoint_at(plan->catalogue, b->step->name)->name, (long long)lo, (long long)hi, dest->name);
    lp_hint(err, "loadplan check lists all such writes (dest_overlap)");
    return LP_E_UNSUPPORTED;
}

/* Places are counted from the first one, so that layers that repeat each other are one problem for the memo. */
static lp_status check_cluster(const lp_plan *plan, const placed *list, int64_t count, lp_cover_item *item,
                               lp_cover_memo *memo, lp_error *err)
{
    lp_cover_report report;
    for (int64_t i = 0; i < count; i++)
        item[i] = (lp_cover_item){.map = list[i].step->map, .dst_off = list[i].off - list[0].off, .tag = (uint32_t)i};
    LP_TRY(lp_cover(&report, NULL, item, count, memo, plan->platform.alloc, err));
    lp_status status = LP_OK;
    for (int64_t i = 0; status == LP_OK && i < report.npair; i++) {
        const lp_cover_pair *pair = &report.pair[i];
        bool is_same;
        status = do_the_same(plan, &list[pair->a], &list[pair->b], &is_same, err);
        if (status == LP_OK && !is_same)
            status = refuse(plan, &list[pair->a], &list[pair->b], pair->byte_lo + list[0].off,
                            pair->byte_hi + list[0].off, err);
    }
    if (status == LP_OK && (report.undecided || report.pairs_truncated)) {
        const char *name = plan->rows->dest[list[0].step->dest].name;
        status = lp_fail_at(err, LP_E_UNSUPPORTED, name, -1,
                            "the pieces that write '%s' interleave too finely to be proven disjoint", name);
    }
    lp_cover_report_free(&report, plan->platform.alloc);
    return status;
}

/* Sorts the list. */
static lp_status check_list(const lp_plan *plan, placed *list, int64_t count, lp_error *err)
{
    const lp_alloc *alloc = plan->platform.alloc;
    lp_status status = LP_OK;
    lp_cover_memo *memo = NULL;
    lp_cover_item *item = NULL;
    if (count > 0)
        qsort(list, (size_t)count, sizeof *list, by_place);
    for (int64_t i = 0, end; status == LP_OK && i < count; i = end) {
        int64_t hi = hi_of(&list[i]);
        for (end = i + 1; end < count && list[end].storage == list[i].storage && lo_of(&list[end]) < hi; end++)
            hi = hi_of(&list[end]) > hi ? hi_of(&list[end]) : hi;
        if (end - i == 1)
            continue;
        if (memo == NULL) {
            item = lp_allocate(alloc, (size_t)count * sizeof *item);
            LP_TRY_GOTO(item == NULL ? lp_fail_memory(err) : lp_cover_memo_new(&memo, alloc, err), release);
        }
        status = check_cluster(plan, &list[i], end - i, item, memo, err);
    }
release:
    lp_cover_memo_free(memo);
    lp_release(alloc, item);
    return status;
}

lp_status lp_plan_check_overlaps(const lp_plan *plan, lp_error *err)
{
    const int64_t most = plan->step_count > plan->fill_count ? plan->step_count : plan->fill_count;
    placed *list = lp_allocate(plan->platform.alloc, ((size_t)most + 1) * sizeof *list);
    if (list == NULL)
        return lp_fail_memory(err);
    int64_t count = 0;
    for (uint32_t e = 0; e < plan->entry_count; e++)
        for (uint32_t i = 0; i < plan->entry[e].step_count; i++)
            add_step(plan, &plan->step[plan->entry[e].first_step + i], list, &count);
    lp_status status = check_list(plan, list, count, err);
    count = 0;
    for (int64_t i = 0; i < plan->fill_count; i++)
        add_step(plan, &plan->fill[i], list, &count);
    if (status == LP_OK) /* fills at the beginning come before all else, and are among themselves */
        status = check_list(plan, list, count, err);
    lp_release(plan->platform.alloc, list);
    return status;
}
