/* SPDX-License-Identifier: Apache-2.0 */
/* Between the search for parts in a recorded permutation and the chain that is written of them. */
#ifndef LOADPLAN_CHAIN_SPLIT_H
#define LOADPLAN_CHAIN_SPLIT_H

#include "layouts/chain_digits.h"

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
    int64_t count, stride, looked; /* stride: source elements from an index of dimension `dim` to the next one;
                                    * looked: places looked at so far */
    int64_t ends_most;             /* size of a dimension up to which every index may end a part */
    int ndim, dim, parts;
    int64_t *index, *where, *compact; /* the index in `dim` of what lies at each place; the place of each such index,
                                       * others 0; the permutation of one part */
    int64_t first[LP_CHAIN_PARTS + 1];
    int order[LP_CHAIN_PARTS]; /* parts as they lie in the result */
    lp_split_part part[LP_CHAIN_PARTS];
} lp_split_search;

/* How many blocks there are in which the parts that were found follow each other, in the order that s->order becomes,
 * when no other elements are looked at; 0: they do not. */
int64_t lp_split_count_blocks(lp_split_search *s);

/* Whether the parts that were found make the permutation: then `out` is their chain. They are not touched. */
bool lp_split_join(const lp_split_search *found, lp_chain *out);

/* The chain of parts that have been found, as text. Axes that count blocks stand outside the bars. */
void lp_split_text(lp_layout_writer *w, const lp_split_search *s);

/* lp_chain_identify_parts, which says how many places it looked at in all its passes. */
lp_status lp_split_identify(lp_chain *out, const int64_t *place, int64_t count, int ndim, const int64_t *shape,
                            const lp_alloc *alloc, int64_t *looked, lp_error *err);

#endif
