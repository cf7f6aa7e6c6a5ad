/* SPDX-License-Identifier: Apache-2.0 */
/* Source ranges of maps. A word-transposed map reads millions of four-byte runs that together are one range: the modes
 * of a box are put in order of their source strides and folded while they leave no gap, so that only real gaps are
 * counted one by one. */
#include "replayer/source_ranges.h"

#include <stdlib.h>

enum { MODES_MAX = 65 };

void lp_ranges_init(lp_ranges *r, const lp_alloc *alloc)
{
    *r = (lp_ranges){.alloc = alloc};
}

void lp_ranges_free(lp_ranges *r)
{
    lp_release(r->alloc, r->item);
    *r = (lp_ranges){.alloc = r->alloc};
}

lp_status lp_ranges_add(lp_ranges *r, int64_t lo, int64_t hi, lp_error *err)
{
    if (lo >= hi)
        return LP_OK;
    if (r->count > 0 && r->item[r->count - 1].hi == lo) {
        r->item[r->count - 1].hi = hi;
        return LP_OK;
    }
    if (r->count >= LP_RANGES_MAX)
        return lp_fail(err, LP_E_LIMIT, "more than %d ranges of one tensor are read", LP_RANGES_MAX);
    if (r->count == r->capacity) {
        void *items = r->item;
        if (!lp_grow(r->alloc, &items, &r->capacity, r->count + 1, sizeof *r->item))
            return lp_fail_memory(err);
        r->item = items;
    }
    r->item[r->count++] = (lp_range){.lo = lo, .hi = hi};
    return LP_OK;
}

static int by_stride(const void *a, const void *b)
{
    const lp_mode *x = a, *y = b;
    return x->src_stride < y->src_stride ? -1 : x->src_stride > y->src_stride;
}

/* Every combination of the outer modes, largest stride first, so that ranges come in rising order when they nest. */
static lp_status add_outer(lp_ranges *r, const lp_mode *mode, int count, int64_t off, int64_t block, lp_error *err)
{
    if (count == 0)
        return lp_ranges_add(r, off, off + block, err);
    const lp_mode *m = &mode[count - 1];
    for (int64_t i = 0; i < m->extent; i++)
        LP_TRY(add_outer(r, mode, count - 1, off + i * m->src_stride, block, err));
    return LP_OK;
}

static lp_status add_box(lp_ranges *r, const lp_box *box, int32_t elem, int64_t off, lp_error *err)
{
    lp_mode mode[MODES_MAX];
    int count = 0;
    if (box->rank >= MODES_MAX)
        return lp_fail(err, LP_E_LIMIT, "a map of rank %d", box->rank);
    for (int32_t i = 0; i < box->rank; i++) {
        lp_mode m = box->mode[i];
        if (m.src_stride == 0)
            continue;
        if (m.src_stride < 0) {
            off += (m.extent - 1) * m.src_stride;
            m.src_stride = -m.src_stride;
        }
        mode[count++] = m;
    }
    if (count > 0)
        qsort(mode, (size_t)count, sizeof *mode, by_stride);
    int64_t block = box->run * elem;
    int folded = 0;
    while (folded < count && mode[folded].src_stride <= block) {
        block += (mode[folded].extent - 1) * mode[folded].src_stride;
        folded++;
    }
    /* Not folded because of a gap, but later modes may fill it: an inner run of 4 bytes every 8 and a second of two
     * steps of 4. Sorting by stride puts those first, so what is left here has real gaps or overlaps, which
     * normalising resolves. */
    return add_outer(r, mode + folded, count - folded, off, block, err);
}

lp_status lp_ranges_add_map(lp_ranges *r, const lp_map *map, int64_t src_off, lp_error *err)
{
    if (map->src_elem == 0)
        return LP_OK;
    for (int32_t i = 0; i < map->nbox; i++)
        LP_TRY(add_box(r, &map->box[i], map->src_elem, src_off + map->box[i].src_off, err));
    return LP_OK;
}

static int by_start(const void *a, const void *b)
{
    const lp_range *x = a, *y = b;
    return x->lo < y->lo ? -1 : x->lo > y->lo;
}

void lp_ranges_normalise(lp_ranges *r)
{
    bool is_sorted = true;
    for (int64_t i = 1; i < r->count && is_sorted; i++)
        is_sorted = r->item[i - 1].lo <= r->item[i].lo;
    if (!is_sorted)
        qsort(r->item, (size_t)r->count, sizeof *r->item, by_start);
    int64_t kept = 0;
    for (int64_t i = 0; i < r->count; i++) {
        if (kept > 0 && r->item[i].lo <= r->item[kept - 1].hi) {
            if (r->item[i].hi > r->item[kept - 1].hi)
                r->item[kept - 1].hi = r->item[i].hi;
        } else {
            r->item[kept++] = r->item[i];
        }
    }
    r->count = kept;
    r->bytes = 0;
    for (int64_t i = 0; i < kept; i++) {
        r->item[i].before = r->bytes;
        r->bytes += r->item[i].hi - r->item[i].lo;
    }
}

/* Bytes of the set below x. */
static int64_t bytes_below(const lp_ranges *r, int64_t x)
{
    int64_t low = 0, high = r->count; /* first range with lo >= x */
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        if (r->item[middle].lo < x)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == 0)
        return 0;
    const lp_range *last = &r->item[low - 1];
    return last->before + (x < last->hi ? x : last->hi) - last->lo;
}

int64_t lp_ranges_covered(const lp_ranges *r, int64_t lo, int64_t hi)
{
    return lo < hi ? bytes_below(r, hi) - bytes_below(r, lo) : 0;
}

int64_t lp_ranges_covered_runs(const lp_ranges *r, int64_t lo, int64_t run, int64_t stride, int64_t count)
{
    int64_t covered = 0, at = 0, k = 0;
    /* The first range that ends behind the first run's beginning; from there both lists are gone through once. */
    for (int64_t high = r->count; at < high;) {
        const int64_t middle = at + (high - at) / 2;
        if (r->item[middle].hi <= lo)
            at = middle + 1;
        else
            high = middle;
    }
    while (k < count && at < r->count) {
        const int64_t from = lo + k * stride, to = from + run;
        const int64_t a = r->item[at].lo > from ? r->item[at].lo : from, b = r->item[at].hi < to ? r->item[at].hi : to;
        covered += b > a ? b - a : 0;
        if (r->item[at].hi < to)
            at++;
        else
            k++;
    }
    return covered;
}
