/* SPDX-License-Identifier: Apache-2.0 */
/* How ranks share the reading, being worked out: what they need of a name and which names they share
 * (sync_cold_choice.c), who reads and gets which bytes (sync_cold_deal.c), all of it (sync_cold_plan.c). */
#ifndef LOADPLAN_SYNC_COLD_MAKER_H
#define LOADPLAN_SYNC_COLD_MAKER_H

#include "replayer/sync_world.h"

typedef struct lp_cold_maker {
    const lp_world_bytes *needs;
    lp_cold_world *out;
    int64_t bucket;
    /* Of the name at hand: ranks with equal needs are one class, as replicas are. */
    int32_t *class_of; /* by rank; -1: it needs nothing */
    int64_t *members;  /* by class */
    int32_t classes;
    lp_ranges *range; /* by class */
    lp_pieces *part;  /* by class: what it needs of a stretch */
    int64_t *cursor;  /* by rank */
    int64_t position; /* in the stream of shared names */
    int64_t stream;   /* its bytes */
} lp_cold_maker;

/* ---- sync_cold_choice.c ---- */

/* What ranks need of a name, in classes: *all is the union, *total what they need together. Names come in rising order,
 * from the first one after lp_cold_needs_again on. */
lp_status lp_cold_needs_of(lp_cold_maker *m, uint32_t name, lp_ranges *all, int64_t *total, lp_error *err);
void lp_cold_needs_again(lp_cold_maker *m);
/* Which names are shared, and what that costs. */
lp_status lp_cold_choose(lp_cold_maker *m, const lp_cold_rates *rates, lp_error *err);

/* ---- sync_cold_deal.c ---- */

/* The lists of pieces of all shared names, with a frame in each for every chunk of its reader. */
lp_status lp_cold_deal_out(lp_cold_maker *m, lp_error *err);

#endif
