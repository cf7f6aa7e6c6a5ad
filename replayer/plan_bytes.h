/* SPDX-License-Identifier: Apache-2.0 */
/* Steps of one scope while their order is made free, and records whose elements are taken apart into bytes. */
#ifndef LOADPLAN_PLAN_BYTES_H
#define LOADPLAN_PLAN_BYTES_H

#include "replayer/plan.h"

/* What is left of one record: a step, or several once its elements were taken apart. */
typedef struct lp_pieces {
    lp_step piece[8]; /* a fill: one for each byte of its pattern; a cast: one, from its results */
    int count;
    bool is_whole;         /* elements are whole */
    const lp_map *results; /* of a cast that is taken apart: gathers its source elements in the order of the results */
    int64_t result_count;
} lp_pieces;

/* Takes the one piece, a fill or a cast whose elements are wider than a byte, apart. The plan keeps the maps. */
lp_status lp_pieces_by_bytes(lp_plan *plan, lp_pieces *pieces, lp_error *err);

/* Puts the pieces in the place of step number `at`, further ones behind the others. A cast that is taken apart becomes
 * a derive, and the step has no map. */
lp_status lp_pieces_keep(lp_plan *plan, const lp_pieces *pieces, lp_scope_steps *steps, int64_t at, lp_error *err);

#endif
