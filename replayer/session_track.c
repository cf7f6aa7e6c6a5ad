/* SPDX-License-Identifier: Apache-2.0 */
/* Which bytes of a tensor have arrived: sorted disjoint spans, and cells for elements that came in part. */
#include "replayer/session.h"

static const lp_span *spans(const lp_track *t)
{
    return t->span != NULL ? t->span : &t->one;
}

/* The first span that ends at or after x. */
static int64_t find_span(const lp_track *t, int64_t x)
{
    const lp_span *span = spans(t);
    int64_t low = 0, high = t->count;
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        if (span[middle].hi < x)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

bool lp_track_overlaps(const lp_track *t, int64_t lo, int64_t hi, int64_t *first)
{
    const lp_span *span = spans(t);
    for (int64_t i = find_span(t, lo); lo < hi && i < t->count && span[i].lo < hi; i++)
        if (span[i].hi > lo) {
            *first = span[i].lo > lo ? span[i].lo : lo;
            return true;
        }
    return false;
}

int64_t lp_track_end(const lp_track *t, int64_t x)
{
    const lp_span *span = spans(t);
    int64_t i = find_span(t, x);
    if (i < t->count && span[i].hi == x) /* it only touches */
        i++;
    return i < t->count && span[i].lo <= x ? span[i].hi : x;
}

lp_status lp_track_reserve(lp_track *t, const lp_alloc *alloc, lp_error *err)
{
    if (t->span == NULL && t->count == 0)
        return LP_OK;
    const bool is_first = t->span == NULL;
    void *items = t->span;
    if (t->count == t->capacity || is_first) {
        if (!lp_grow(alloc, &items, &t->capacity, t->count + 1, sizeof *t->span))
            return lp_fail_memory(err);
        t->span = items;
        if (is_first)
            t->span[0] = t->one;
    }
    return LP_OK;
}

void lp_track_add(lp_track *t, int64_t lo, int64_t hi)
{
    if (lo >= hi)
        return;
    if (t->count == 0) {
        *(t->span != NULL ? t->span : &t->one) = (lp_span){lo, hi};
        t->count = 1;
        return;
    }
    lp_span *span = t->span != NULL ? t->span : &t->one;
    const int64_t i = find_span(t, lo); /* ends at or after lo: it touches, or lies behind */
    const bool joins_left = i < t->count && span[i].hi == lo;
    const int64_t next = joins_left ? i + 1 : i;
    const bool joins_right = next < t->count && span[next].lo == hi;
    if (joins_left && joins_right) {
        span[i].hi = span[next].hi;
        memmove(&span[next], &span[next + 1], (size_t)(t->count - next - 1) * sizeof *span);
        t->count--;
    } else if (joins_left) {
        span[i].hi = hi;
    } else if (joins_right) {
        span[next].lo = lo;
    } else {
        memmove(&span[i + 1], &span[i], (size_t)(t->count - i) * sizeof *span);
        span[i] = (lp_span){lo, hi};
        t->count++;
    }
}

lp_status lp_track_reserve_cells(lp_track *t, const lp_alloc *alloc, lp_error *err)
{
    void *items = t->cell;
    if (t->cell_count + 2 <= t->cell_capacity)
        return LP_OK;
    if (!lp_grow(alloc, &items, &t->cell_capacity, t->cell_count + 2, sizeof *t->cell))
        return lp_fail_memory(err);
    t->cell = items;
    return LP_OK;
}

lp_cell *lp_track_cell(lp_track *t, int64_t index)
{
    int64_t low = 0, high = t->cell_count;
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        if (t->cell[middle].index < index)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == t->cell_count || t->cell[low].index != index) {
        memmove(&t->cell[low + 1], &t->cell[low], (size_t)(t->cell_count - low) * sizeof *t->cell);
        t->cell[low] = (lp_cell){.index = index};
        t->cell_count++;
    }
    return &t->cell[low];
}

void lp_track_drop_cell(lp_track *t, lp_cell *cell)
{
    const int64_t i = cell - t->cell;
    memmove(cell, cell + 1, (size_t)(t->cell_count - i - 1) * sizeof *cell);
    t->cell_count--;
}

void lp_track_free(lp_track *t, const lp_alloc *alloc)
{
    lp_release(alloc, t->span);
    lp_release(alloc, t->cell);
    if (t->need != NULL) {
        lp_ranges_free(t->need);
        lp_release(alloc, t->need);
    }
    *t = (lp_track){.count = 0};
}
