/* SPDX-License-Identifier: Apache-2.0 */
/* The kind of a record: what its map and its dtypes say, never the operations that were called. */
#include "traces/map_private.h"

#include <stdlib.h>

/* Runs that are looked at one by one. */
enum { RUNS_MAX = 1 << 16 };

/* Whether a box reads a byte twice, told by its modes alone where they are nested on the source side too. */
typedef enum reading { READS_ONCE, READS_TWICE, READS_UNCLEAR } reading;

static reading read_box(const lp_box *box)
{
    int64_t extent[LP_MAP_RANK], stride[LP_MAP_RANK];
    for (int32_t m = 0; m < box->rank; m++) {
        const int64_t s = box->mode[m].src_stride < 0 ? -box->mode[m].src_stride : box->mode[m].src_stride;
        if (s == 0)
            return READS_TWICE;
        int32_t at = m;
        for (; at > 0 && stride[at - 1] > s; at--) {
            stride[at] = stride[at - 1];
            extent[at] = extent[at - 1];
        }
        stride[at] = s;
        extent[at] = box->mode[m].extent;
    }
    int64_t span = box->run;
    for (int32_t m = 0; m < box->rank; m++) {
        if (stride[m] < span)
            return READS_UNCLEAR;
        span += (extent[m] - 1) * stride[m];
    }
    return READS_ONCE;
}

static int by_low_end(const void *a, const void *b)
{
    const lp_span *x = a, *y = b;
    return x->lo < y->lo ? -1 : x->lo > y->lo;
}

static bool any_overlap(lp_span *span, int64_t count)
{
    qsort(span, (size_t)count, sizeof *span, by_low_end);
    for (int64_t i = 1; i < count; i++)
        if (span[i].lo < span[i - 1].hi)
            return true;
    return false;
}

/* The source intervals of all runs. */
typedef struct spans {
    lp_span *span;
    int64_t count;
} spans;

static int add_run(void *context, int64_t dst_off, int64_t src_off, int64_t count)
{
    spans *s = context;
    (void)dst_off;
    s->span[s->count++] = (lp_span){src_off, src_off + count};
    return 0;
}

/* Looks at every run; up to RUNS_MAX of them. */
static bool runs_overlap(const lp_map *map, lp_span *span)
{
    spans all = {span, 0};
    lp_map_walk(map, add_run, &all);
    return any_overlap(all.span, all.count);
}

/* Whether a byte map reads some byte more than once. Beyond RUNS_MAX runs modes decide: a box whose sources are not
 * nested counts as reading twice, boxes whose sources interleave do not. */
static bool reads_twice(const lp_map *map)
{
    bool once = true;
    int64_t runs = 0;
    for (int32_t b = 0; b < map->nbox; b++) {
        const reading r = read_box(&map->box[b]);
        if (r == READS_TWICE)
            return true;
        once = once && r == READS_ONCE;
        if (!lp_add(runs, lp_mode_product(map->box[b].mode, map->box[b].rank), &runs))
            runs = INT64_MAX;
    }
    if (once && map->nbox <= 1)
        return false;
    if (runs > RUNS_MAX)
        return !once;
    lp_span *span = lp_allocate(NULL, (size_t)runs * sizeof *span);
    const bool twice = span != NULL && runs_overlap(map, span);
    lp_release(NULL, span);
    return twice;
}

lp_kind lp_record_kind(const lp_map *map, lp_dtype src_dtype, lp_dtype dst_dtype)
{
    if (map->src_elem == 0)
        return LP_KIND_FILL;
    if (map->src_elem != 1 || map->dst_elem != 1)
        return LP_KIND_CAST;
    if (src_dtype != LP_DTYPE_NONE && dst_dtype != LP_DTYPE_NONE && src_dtype != dst_dtype &&
        lp_cast_kind_of(src_dtype, dst_dtype) == LP_CAST_VALUES)
        return LP_KIND_CAST;
    return reads_twice(map) ? LP_KIND_REPLICATE : LP_KIND_COPY;
}

const char *lp_kind_name(lp_kind kind)
{
    switch (kind) {
    case LP_KIND_COPY:
        return "copy";
    case LP_KIND_CAST:
        return "cast";
    case LP_KIND_REPLICATE:
        return "replicate";
    case LP_KIND_FILL:
        return "fill";
    }
    return "?";
}
