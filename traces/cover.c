/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Coverage of one destination: boxes are sorted by address and fall into clusters whose extents do not meet; a cluster
 * of one box needs no more than its end points, every other one is swept on its own grid.
 */
#include "traces/cover_private.h"

#include <stdlib.h>

/* ---- boxes ---- */

static lp_status add_box(lp_cover_memo *m, int64_t *count, const lp_map *map, const lp_box *box, lp_cover_box placed,
                         int64_t shift, lp_error *err)
{
    bool fits = lp_add(box->dst_off, shift, &placed.lo) && lp_mul(box->run, map->dst_elem, &placed.run) &&
                lp_add(placed.lo, placed.run, &placed.hi);
    placed.bytes = placed.run;
    placed.rank = box->rank;
    placed.mode = box->mode;
    for (int32_t k = 0; fits && k < box->rank; k++) {
        int64_t reach;
        fits = lp_mul(box->mode[k].extent - 1, box->mode[k].dst_stride, &reach) &&
               lp_add(placed.hi, reach, &placed.hi) && lp_mul(placed.bytes, box->mode[k].extent, &placed.bytes);
    }
    int64_t length;
    if (!fits || !lp_sub(placed.hi, placed.lo, &length))
        return lp_fail(err, LP_E_ARGUMENT, "destination offsets overflow 64 bits");
    if (placed.bytes == 0)
        return LP_OK;
    if (!lp_grow(m->alloc, (void **)&m->box, &m->box_capacity, *count + 1, sizeof(*m->box)))
        return lp_fail_memory(err);
    m->box[(*count)++] = placed;
    return LP_OK;
}

static lp_status collect_boxes(lp_cover_memo *m, const lp_map *target, bool target_in_boxes, int64_t items,
                               int64_t *count, lp_error *err)
{
    for (int64_t i = 0; i < items; i++) {
        const lp_cover_item *it = &m->item[i];
        const lp_cover_box placed = {
            .item = (uint32_t)i, .tag = it->tag, .class = it->loose ? LP_COVER_LOOSE : LP_COVER_STRICT};
        for (int32_t b = 0; b < it->map->nbox; b++)
            LP_TRY(add_box(m, count, it->map, &it->map->box[b], placed, it->dst_off, err));
    }
    const lp_cover_box wanted = {.item = UINT32_MAX, .class = LP_COVER_WANTED};
    for (int32_t b = 0; target_in_boxes && b < target->nbox; b++)
        LP_TRY(add_box(m, count, target, &target->box[b], wanted, 0, err));
    return LP_OK;
}

static int by_lo(const void *pa, const void *pb)
{
    const lp_cover_box *a = pa, *b = pb;
    if (a->lo != b->lo)
        return a->lo < b->lo ? -1 : 1;
    if (a->item != b->item)
        return a->item < b->item ? -1 : 1;
    return (a->hi > b->hi) - (a->hi < b->hi);
}

/* ---- clusters ---- */

typedef struct cluster_run {
    lp_cover_memo *memo;
    lp_cover_sweep sweep;
    lp_cover_report *report;
    bool has_target, one_run; /* the target is the bytes [lo, hi), kept out of the boxes */
    int64_t lo, hi;
} cluster_run;

static void note_outside(lp_cover_report *r, const lp_cover_box *b, int64_t lo, int64_t hi)
{
    if (r->outside)
        return;
    r->outside = true;
    r->outside_lo = lo;
    r->outside_hi = hi;
    r->outside_tag = b->tag;
}

/* A cluster of one box: true when its end points settle it. */
static bool settle_alone(cluster_run *c, const lp_cover_box *b)
{
    if (!c->has_target)
        return true;
    if (!c->one_run || b->bytes != b->hi - b->lo)
        return false;
    const int64_t lo = b->lo > c->lo ? b->lo : c->lo, hi = b->hi < c->hi ? b->hi : c->hi;
    if (b->class == LP_COVER_STRICT) {
        if (lo >= hi)
            note_outside(c->report, b, b->lo, b->hi);
        else if (b->lo < lo)
            note_outside(c->report, b, b->lo, lo);
        else if (b->hi > hi)
            note_outside(c->report, b, hi, b->hi);
    }
    return true;
}

/* `box` has room for one more at its end: the part of a one-run target that the cluster spans. */
static lp_status sweep_cluster(cluster_run *c, lp_cover_box *box, int64_t count, int64_t lo, int64_t hi, lp_error *err)
{
    if (c->sweep.work_left < 0) {
        c->report->undecided = true;
        return LP_OK;
    }
    const lp_cover_box saved = box[count];
    int64_t n = count;
    if (c->one_run) {
        const int64_t from = lo > c->lo ? lo : c->lo, to = hi < c->hi ? hi : c->hi;
        if (from < to)
            box[n++] = (lp_cover_box){.lo = from,
                                      .hi = to,
                                      .bytes = to - from,
                                      .run = to - from,
                                      .item = UINT32_MAX,
                                      .class = LP_COVER_WANTED};
    }
    bool fits = false;
    const lp_status status = lp_cover_grid_build(&c->memo->grid, box, n, lo, &fits, err);
    box[count] = saved;
    if (status != LP_OK)
        return status;
    c->sweep.work_left -= c->memo->grid.npiece;
    if (!fits || c->sweep.work_left < 0) {
        c->report->undecided = true;
        return LP_OK;
    }
    return lp_cover_sweep_grid(&c->sweep, err);
}

/* Bytes [from, to) of a one-run target lie between clusters. */
static void gap_between(cluster_run *c, int64_t from, int64_t to)
{
    from = from > c->lo ? from : c->lo;
    to = to < c->hi ? to : c->hi;
    if (!c->one_run || from >= to)
        return;
    c->report->uncovered_bytes += to - from;
    lp_cover_note_gap(c->report, from, to);
}

static lp_status run_clusters(cluster_run *c, int64_t count, lp_error *err)
{
    lp_cover_box *box = c->memo->box;
    int64_t end = c->lo;
    for (int64_t first = 0; first < count;) {
        int64_t next = first + 1, hi = box[first].hi;
        for (; next < count && box[next].lo < hi; next++)
            hi = box[next].hi > hi ? box[next].hi : hi;
        gap_between(c, end, box[first].lo);
        if (next - first > 1 || !settle_alone(c, &box[first]))
            LP_TRY(sweep_cluster(c, &box[first], next - first, box[first].lo, hi, err));
        end = hi;
        first = next;
    }
    gap_between(c, end, c->hi);
    return LP_OK;
}

static int by_tags(const void *pa, const void *pb)
{
    const lp_cover_pair *a = pa, *b = pb;
    if (a->a != b->a)
        return a->a < b->a ? -1 : 1;
    return (a->b > b->b) - (a->b < b->b);
}

static lp_status solve(lp_cover_memo *m, lp_cover_report *out, const lp_map *target, int64_t items, bool *clean,
                       lp_error *err)
{
    cluster_run c = {.memo = m, .report = out, .has_target = target != NULL};
    c.one_run = target && (target->nbox == 0 || (target->nbox == 1 && target->box[0].rank == 0));
    if (c.one_run && target->nbox == 1) {
        c.lo = target->box[0].dst_off;
        int64_t bytes;
        if (!lp_mul(target->box[0].run, target->dst_elem, &bytes) || !lp_add(c.lo, bytes, &c.hi))
            return lp_fail(err, LP_E_ARGUMENT, "destination offsets overflow 64 bits");
    }
    int64_t count = 0;
    LP_TRY(collect_boxes(m, target, target && !c.one_run, items, &count, err));
    if (!lp_grow(m->alloc, (void **)&m->box, &m->box_capacity, count + 1, sizeof(*m->box)))
        return lp_fail_memory(err);
    memset(&m->box[count], 0, sizeof(*m->box));
    bool sorted = true;
    for (int64_t i = 1; sorted && i < count; i++)
        sorted = by_lo(&m->box[i - 1], &m->box[i]) <= 0;
    if (!sorted)
        qsort(m->box, (size_t)count, sizeof(*m->box), by_lo);

    const int64_t work = m->work_left < LP_COVER_CALL_WORK_MAX ? m->work_left : LP_COVER_CALL_WORK_MAX;
    c.sweep = (lp_cover_sweep){.alloc = m->alloc,
                               .grid = &m->grid,
                               .has_target = target != NULL,
                               .work_left = work,
                               .report = out,
                               .entry = m->entry,
                               .active = m->active,
                               .entry_capacity = m->entry_capacity,
                               .active_capacity = m->active_capacity};
    const lp_status status = run_clusters(&c, count, err);
    m->entry = c.sweep.entry;
    m->active = c.sweep.active;
    m->entry_capacity = c.sweep.entry_capacity;
    m->active_capacity = c.sweep.active_capacity;
    m->work_left -= work - (c.sweep.work_left > 0 ? c.sweep.work_left : 0);
    lp_release(m->alloc, c.sweep.pair_table);
    if (out->npair > 1)
        qsort(out->pair, (size_t)out->npair, sizeof(*out->pair), by_tags);
    *clean =
        !out->undecided && out->npair == 0 && out->uncovered_bytes == 0 && !out->outside && !c.sweep.same_tag_overlap;
    return status;
}

lp_status lp_cover(lp_cover_report *out, const lp_map *target, const lp_cover_item *item, int64_t count,
                   lp_cover_memo *memo, const lp_alloc *alloc, lp_error *err)
{
    *out = (lp_cover_report){.gap_lo = -1, .gap_hi = -1, .outside_lo = -1, .outside_hi = -1};
    if (count == 0 && !target)
        return LP_OK;
    lp_cover_memo *own = NULL;
    bool clean = false, remember = memo != NULL; /* what nobody asks again is not worth keeping */
    if (!memo) {
        LP_TRY(lp_cover_memo_new(&own, alloc, err));
        memo = own;
    }
    lp_status status = LP_OK;
    lp_cover_key key = {0};
    if (!lp_grow(memo->alloc, (void **)&memo->item, &memo->item_capacity, count, sizeof(*memo->item))) {
        status = lp_fail_memory(err);
        goto done;
    }
    if (count > 0)
        memcpy(memo->item, item, (size_t)count * sizeof(*item));
    lp_cover_sort_items(memo->item, count);
    LP_TRY_GOTO(lp_cover_build_key(memo, &key, target, count, err), done);
    for (int64_t i = 0; i < count; i++)
        remember = remember && !item[i].brief;
    if (remember && lp_cover_memo_has(memo, &key))
        goto done;
    LP_TRY_GOTO(solve(memo, out, target, count, &clean, err), failed);
    if (remember && clean)
        LP_TRY_GOTO(lp_cover_memo_add(memo, &key, err), failed);
    goto done;
failed:
    lp_cover_report_free(out, memo->alloc);
done:
    lp_cover_memo_free(own);
    return status;
}

void lp_cover_report_free(lp_cover_report *report, const lp_alloc *alloc)
{
    lp_release(alloc, report->pair);
    *report = (lp_cover_report){.gap_lo = -1, .gap_hi = -1, .outside_lo = -1, .outside_hi = -1};
}
