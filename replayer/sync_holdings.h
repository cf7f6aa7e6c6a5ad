/* SPDX-License-Identifier: Apache-2.0 */
/* What senders hold, as a schedule is made of it. Private to sync_holdings.c and sync_schedule.c. */
#ifndef LOADPLAN_SYNC_HOLDINGS_H
#define LOADPLAN_SYNC_HOLDINGS_H

#include "replayer/sync_schedule.h"

/* Senders with equal pieces of a name. */
typedef struct lp_holder_class {
    lp_piece *piece;
    int64_t pieces;
    lp_ranges ranges; /* the same, run by run; made when it is needed */
    uint64_t hash;
    int32_t *member;
    int64_t members, capacity;
    int64_t next; /* class of the same name, or -1 */
} lp_holder_class;

struct lp_holdings {
    const lp_alloc *alloc;
    const lp_checkpoint *catalogue;
    int32_t senders;
    lp_holder_class *class_;
    int64_t classes, capacity;
    int64_t *first; /* class by name, or -1 */
};

#endif
