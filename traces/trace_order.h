/* SPDX-License-Identifier: Apache-2.0 */
/* The writes of one storage while their order is settled; between trace_order.c and trace_overlap.c. */
#ifndef LOADPLAN_TRACE_ORDER_H
#define LOADPLAN_TRACE_ORDER_H

#include "traces/trace_build.h"

/* A write, by its place in the storage. */
typedef struct lp_unit {
    lp_write write;
    int64_t base;   /* of the destination in its storage */
    int64_t lo, hi; /* bytes of the storage between which it writes */
    bool is_split;  /* its calls have to be ordered one by one */
} lp_unit;

typedef struct lp_units {
    lp_unit *item;
    int64_t count, capacity;
} lp_units;

bool lp_units_add(const lp_alloc *alloc, lp_units *units, const lp_write *write, const lp_destination *dest);

/* The first of `writes` (sorted by destination and name) that is not before (dest, name). */
int64_t lp_writes_find(const lp_writes *writes, uint32_t dest, uint32_t name);

/* Gives the named units of one storage their seq. Units whose calls cannot be ordered as one are replaced by these
 * calls, which are taken from `pieces`; then *any_split is set. */
lp_status lp_units_order(lp_trace *t, lp_units *units, const lp_writes *pieces, bool *any_split, lp_error *err);

#endif
