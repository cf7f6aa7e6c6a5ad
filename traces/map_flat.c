/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From any boxes to a flat list: nested, sorted by destination, address intervals disjoint. Boxes that interleave
 * usually share their outermost step (the even and the odd rows of one matrix); then one period says it all. What does
 * not is expanded into runs, up to the work bound.
 */
#include "traces/map_private.h"

#include <stdlib.h>

/* Boxes of one cluster times ranges of steps at which others of them take part; beyond, they are expanded. */
enum { PERIOD_WORK_MAX = 1 << 24 };

static int by_destination(const void *a, const void *b)
{
    const lp_seg *x = a, *y = b;
    return x->dst_off < y->dst_off ? -1 : x->dst_off > y->dst_off;
}

static int by_value(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

static lp_status written_twice(lp_error *err, int64_t at)
{
    return lp_fail(err, LP_E_ARGUMENT, "destination byte %lld is written twice", (long long)at);
}

static void sort_segs(lp_boxes *list)
{
    for (int64_t i = 1; i < list->count; i++) {
        if (list->seg[i].dst_off < list->seg[i - 1].dst_off) {
            qsort(list->seg, (size_t)list->count, sizeof *list->seg, by_destination);
            return;
        }
    }
}

/* ---- expansion ---- */

static lp_status push_runs(lp_boxes *out, const lp_boxes *in, const lp_seg *seg, lp_error *err)
{
    const lp_mode *mode = lp_seg_modes(in, seg);
    int64_t digit[LP_MAP_RANK] = {0};
    lp_seg run = {.src_off = seg->src_off, .dst_off = seg->dst_off, .run = seg->run};
    for (;;) {
        LP_TRY(lp_boxes_push(out, &run, NULL, err));
        int32_t m = seg->rank - 1;
        for (; m >= 0; m--) {
            run.src_off += mode[m].src_stride;
            run.dst_off += mode[m].dst_stride;
            if (++digit[m] < mode[m].extent)
                break;
            run.src_off -= mode[m].extent * mode[m].src_stride;
            run.dst_off -= mode[m].extent * mode[m].dst_stride;
            digit[m] = 0;
        }
        if (m < 0)
            return LP_OK;
    }
}

static lp_status push_all_runs(lp_boxes *out, const lp_boxes *in, int64_t first, int64_t end, lp_error *err)
{
    lp_boxes runs;
    lp_boxes_init(&runs, in->src_elem, in->dst_elem, in->alloc);
    lp_status status = LP_OK;
    int64_t total = 0;
    for (int64_t i = first; i < end; i++)
        if (!lp_add(total, lp_mode_product(lp_seg_modes(in, &in->seg[i]), in->seg[i].rank), &total))
            total = INT64_MAX;
    if (total > LP_MAP_RUNS_MAX)
        return lp_fail(err, LP_E_LIMIT, "boxes of a byte map interleave in %lld runs, more than %d", (long long)total,
                       LP_MAP_RUNS_MAX);
    if (!lp_grow(in->alloc, (void **)&runs.seg, &runs.capacity, total, sizeof *runs.seg))
        return lp_fail_memory(err);
    for (int64_t i = first; i < end; i++)
        LP_TRY_GOTO(push_runs(&runs, in, &in->seg[i], err), release_runs);
    sort_segs(&runs);
    for (int64_t i = 0; i < total; i++) {
        lp_seg run = runs.seg[i];
        /* Neighbours that continue become one run; that keeps what follows short. */
        for (; i + 1 < total; i++) {
            const lp_seg *next = &runs.seg[i + 1];
            const int64_t hi = run.dst_off + run.run * in->dst_elem;
            if (next->dst_off < hi) {
                status = written_twice(err, next->dst_off);
                goto release_runs;
            }
            if (next->dst_off != hi || next->src_off != run.src_off + run.run * in->src_elem)
                break;
            run.run += next->run;
        }
        LP_TRY_GOTO(lp_boxes_push(out, &run, NULL, err), release_runs);
    }
release_runs:
    lp_boxes_free(&runs);
    return status;
}

/* ---- periods ---- */

/* The part of a box inside its outermost step, and which steps it takes: [first, end) counted from the first address of
 * the cluster. */
typedef struct periodic {
    lp_seg inner;
    int64_t first, end;
} periodic;

/* Splits the boxes [first, end) of `in` into periods; false when they have none in common. */
static bool find_periods(const lp_boxes *in, int64_t first, int64_t end, periodic *part, int64_t *bound)
{
    const lp_mode step = in->mode[in->seg[first].mode];
    const int64_t base = in->seg[first].dst_off;
    for (int64_t i = first; i < end; i++) {
        const lp_seg *seg = &in->seg[i];
        periodic *p = &part[i - first];
        if (seg->tangled || seg->rank == 0)
            return false;
        const lp_mode own = in->mode[seg->mode];
        if (own.dst_stride != step.dst_stride || own.src_stride != step.src_stride)
            return false;
        p->first = (seg->dst_off - base) / step.dst_stride;
        p->end = p->first + own.extent;
        p->inner = *seg;
        p->inner.mode++;
        p->inner.rank--;
        p->inner.dst_off -= p->first * step.dst_stride;
        p->inner.src_off -= p->first * step.src_stride;
        if (lp_seg_dst_hi(in, &p->inner) > base + step.dst_stride)
            return false;
        bound[2 * (i - first)] = p->first;
        bound[2 * (i - first) + 1] = p->end;
    }
    return true;
}

/* Pushes `inner`, one canonical period, for each step of [from, to). */
static lp_status repeat_period(lp_boxes *out, const lp_boxes *inner, lp_mode step, int64_t from, int64_t to,
                               lp_error *err)
{
    step.extent = to - from;
    if (inner->count == 1) {
        lp_work w = {.rank = 0};
        const lp_seg *seg = &inner->seg[0];
        w.src_off = seg->src_off + from * step.src_stride;
        w.dst_off = seg->dst_off + from * step.dst_stride;
        w.run = seg->run;
        LP_TRY(lp_work_add(&w, step, err));
        for (int32_t m = 0; m < seg->rank; m++)
            LP_TRY(lp_work_add(&w, inner->mode[seg->mode + m], err));
        return lp_boxes_add(out, &w, err);
    }
    for (int64_t i = from; i < to; i++) {
        for (int64_t k = 0; k < inner->count; k++) {
            lp_seg seg = inner->seg[k];
            seg.src_off += i * step.src_stride;
            seg.dst_off += i * step.dst_stride;
            LP_TRY(lp_boxes_push(out, &seg, lp_seg_modes(inner, &seg), err));
        }
    }
    return LP_OK;
}

/* The steps at which the same boxes take part form a range; each range is one period, repeated. */
static lp_status push_ranges(lp_boxes *out, const lp_boxes *in, lp_mode step, const periodic *part, int64_t parts,
                             const int64_t *bound, lp_error *err)
{
    lp_status status = LP_OK;
    lp_boxes inner;
    lp_boxes_init(&inner, in->src_elem, in->dst_elem, in->alloc);
    for (int64_t b = 0; b + 1 < 2 * parts; b++) {
        if (bound[b] == bound[b + 1])
            continue;
        inner.count = inner.nmode = 0;
        for (int64_t i = 0; i < parts; i++)
            if (part[i].first <= bound[b] && part[i].end >= bound[b + 1])
                LP_TRY_GOTO(lp_boxes_push(&inner, &part[i].inner, lp_seg_modes(in, &part[i].inner), err),
                            release_inner);
        if (inner.count == 0)
            continue;
        LP_TRY_GOTO(lp_boxes_canon(&inner, err), release_inner);
        LP_TRY_GOTO(repeat_period(out, &inner, step, bound[b], bound[b + 1], err), release_inner);
    }
release_inner:
    lp_boxes_free(&inner);
    return status;
}

/* Sorts the bounds; how many ranges they make. */
static int64_t count_ranges(int64_t *bound, int64_t count)
{
    int64_t ranges = 0;
    qsort(bound, (size_t)count, sizeof *bound, by_value);
    for (int64_t b = 0; b + 1 < count; b++)
        ranges += bound[b] != bound[b + 1];
    return ranges;
}

/* *done = false when the cluster has no common period. */
static lp_status push_periods(lp_boxes *out, const lp_boxes *in, int64_t first, int64_t end, bool *done, lp_error *err)
{
    const int64_t parts = end - first;
    *done = false;
    if (parts > LP_MAP_BOXES_MAX || in->seg[first].rank == 0 || in->seg[first].tangled)
        return LP_OK;
    lp_status status = LP_OK;
    periodic *part = lp_allocate(in->alloc, (size_t)parts * sizeof *part);
    int64_t *bound = lp_allocate(in->alloc, (size_t)parts * 2 * sizeof *bound);
    if (part == NULL || bound == NULL) {
        status = lp_fail_memory(err);
        goto release;
    }
    if (find_periods(in, first, end, part, bound) && count_ranges(bound, 2 * parts) <= PERIOD_WORK_MAX / parts) {
        *done = true;
        status = push_ranges(out, in, in->mode[in->seg[first].mode], part, parts, bound, err);
    }
release:
    lp_release(in->alloc, part);
    lp_release(in->alloc, bound);
    return status;
}

/* ---- the list ---- */

/* Upper end of the destination of a box that need not be nested: strides are positive, so the sum is right anyway. */
static bool is_flat(const lp_boxes *list)
{
    for (int64_t i = 0; i < list->count; i++)
        if (list->seg[i].tangled ||
            (i + 1 < list->count && lp_seg_dst_hi(list, &list->seg[i]) > list->seg[i + 1].dst_off))
            return false;
    return true;
}

lp_status lp_boxes_flatten(lp_boxes *list, lp_error *err)
{
    sort_segs(list);
    if (is_flat(list))
        return LP_OK;
    lp_boxes flat;
    lp_boxes_init(&flat, list->src_elem, list->dst_elem, list->alloc);
    lp_status status = LP_OK;
    for (int64_t first = 0, end; first < list->count; first = end) {
        int64_t hi = lp_seg_dst_hi(list, &list->seg[first]);
        for (end = first + 1; end < list->count && list->seg[end].dst_off < hi; end++) {
            const int64_t next = lp_seg_dst_hi(list, &list->seg[end]);
            hi = next > hi ? next : hi;
        }
        bool done = false;
        if (end == first + 1 && !list->seg[first].tangled) {
            LP_TRY_GOTO(lp_boxes_push(&flat, &list->seg[first], lp_seg_modes(list, &list->seg[first]), err),
                        release_flat);
            continue;
        }
        if (end > first + 1)
            LP_TRY_GOTO(push_periods(&flat, list, first, end, &done, err), release_flat);
        if (!done)
            LP_TRY_GOTO(push_all_runs(&flat, list, first, end, err), release_flat);
    }
    lp_boxes_free(list);
    *list = flat;
    return LP_OK;
release_flat:
    lp_boxes_free(&flat);
    return status;
}
