/* SPDX-License-Identifier: Apache-2.0 */
/* Which source bytes a map reads, as sorted disjoint ranges. */
#ifndef LOADPLAN_SOURCE_RANGES_H
#define LOADPLAN_SOURCE_RANGES_H

#include "traces/base.h"

/* More than this for one tensor is LP_E_LIMIT. */
enum { LP_RANGES_MAX = 1 << 24 };

typedef struct lp_range {
    int64_t lo, hi;
    int64_t before; /* bytes in earlier ranges, once normalised */
} lp_range;

typedef struct lp_ranges {
    const lp_alloc *alloc;
    lp_range *item;
    int64_t count, capacity;
    int64_t bytes; /* once normalised */
} lp_ranges;

void lp_ranges_init(lp_ranges *r, const lp_alloc *alloc);
lp_status lp_ranges_add(lp_ranges *r, int64_t lo, int64_t hi, lp_error *err);
lp_status lp_ranges_add_map(lp_ranges *r, const lp_map *map, int64_t src_off, lp_error *err);
void lp_ranges_normalise(lp_ranges *r); /* sorts, merges what overlaps or touches, fills `before` */
void lp_ranges_free(lp_ranges *r);

/* Bytes of a normalised set that lie in [lo, hi). */
int64_t lp_ranges_covered(const lp_ranges *r, int64_t lo, int64_t hi);
/* The same of `count` runs of `run` bytes, `stride` (at least run) apart. */
int64_t lp_ranges_covered_runs(const lp_ranges *r, int64_t lo, int64_t run, int64_t stride, int64_t count);

#endif
