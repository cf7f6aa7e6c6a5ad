/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The schedule of a sliced epoch: who gives which bytes to whom. A receiver makes its own part of it from what the
 * senders hold and what it needs, and no byte is in it twice. Private to the replayer.
 */
#ifndef LOADPLAN_SYNC_SCHEDULE_H
#define LOADPLAN_SYNC_SCHEDULE_H

#include "replayer/sync_piece.h"

/* What the senders hold, by name. Senders that hold the same of a name are one class. */
typedef struct lp_holdings lp_holdings;

lp_status lp_holdings_new(lp_holdings **out, const lp_checkpoint *catalogue, int32_t senders, const lp_alloc *alloc,
                          lp_error *err);
void lp_holdings_free(lp_holdings *h);
/* A sender's pieces of one name, as lp_pieces_add_range makes them of rising ranges; copied. Names in any order, each
 * once for a sender. */
lp_status lp_holdings_add(lp_holdings *h, int32_t sender, uint32_t name, const lp_piece *piece, int64_t count,
                          lp_error *err);
lp_status lp_holdings_add_all(lp_holdings *h, int32_t sender, lp_error *err); /* it holds every tensor whole */

/* What one receiver asks of each sender. */
typedef struct lp_requests {
    const lp_alloc *alloc;
    int32_t receiver, senders;
    lp_pieces *list; /* by sender */
    int64_t *chosen; /* scratch, by class: the sender in use, and what it may still give in a row */
    int64_t *allowed;
    int64_t *cursor;
    int64_t class_capacity;
} lp_requests;

lp_status lp_requests_init(lp_requests *r, int32_t receiver, int32_t senders, const lp_alloc *alloc, lp_error *err);
void lp_requests_free(lp_requests *r);
/* Adds what is needed of a name, pieces of the same kind. A tensor without bytes is asked of sender 0.
 * LP_E_UNSUPPORTED: some byte is held by no sender. */
lp_status lp_requests_add(lp_requests *r, lp_holdings *h, uint32_t name, const lp_piece *piece, int64_t count,
                          lp_error *err);

/* Step `step` of a turn, of max(senders, receivers) in all: one partner at most for each rank, or -1. Receivers are
 * numbered from 0 here. Every rank goes through the steps in the same order, so nobody waits in a circle. */
int32_t lp_steps(int32_t senders, int32_t receivers);
int32_t lp_step_receiver(int32_t sender, int32_t step, int32_t senders, int32_t receivers);
int32_t lp_step_sender(int32_t receiver, int32_t step, int32_t senders, int32_t receivers);

#endif
