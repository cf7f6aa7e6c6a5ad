/* SPDX-License-Identifier: Apache-2.0 */
/* Between the search for parts in a recorded permutation and the chain that is written of them. */
#ifndef LOADPLAN_CHAIN_SPLIT_H
#define LOADPLAN_CHAIN_SPLIT_H

#include "layouts/layout_private.h"

/* An axis of a part: where it lies in the source (in indices of its dimension, of its part), in memory order. */
typedef struct lp_split_axis {
    int32_t dim;
    int64_t extent, below;
    bool backwards;
} lp_split_axis;

typedef struct lp_split_part {
    int32_t count, outer; /* the first `outer` of them count blocks */
    lp_split_axis axis[LP_CHAIN_AXES];
} lp_split_part;

typedef struct lp_split_search {
    const int64_t *place, *shape;
    int64_t count, stride, tries; /* stride: source elements from an index of dimension `dim` to the next one */
    int ndim, dim, parts;
    int64_t *where, *compact; /* the place of each index of `dim`, others 0; the permutation of one part */
    int64_t first[LP_CHAIN_PARTS + 1];
    lp_split_part part[LP_CHAIN_PARTS];
} lp_split_search;

/* The chain of parts that have been found, as text. Axes that count blocks stand outside the bars. */
void lp_split_text(lp_layout_writer *w, const lp_split_search *s);

#endif
