/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks of one process: threads that copy from one another's memory under one lock. For tests, for worlds that no
 * machine here has, and for one rank alone. Private to the replayer.
 */
#ifndef LOADPLAN_TRANSPORT_LOCAL_H
#define LOADPLAN_TRANSPORT_LOCAL_H

#include "replayer/transport_wire.h"

#include <pthread.h>

typedef struct lp_local_message {
    lp_transfer what;
    int32_t rank; /* whose message it is */
    int64_t ticket;
    struct lp_local_message *next;
} lp_local_message;

enum { LP_WAITS_JOIN = -3 }; /* beside LP_WAITS_* */

typedef struct lp_local_rank {
    struct lp_local_world *world;
    int32_t rank, waits_for; /* a rank, LP_WAITS_* or LP_WAITS_JOIN */
    bool is_open, has_joined, has_block;
    uint32_t round; /* that it is in */
    int64_t next_ticket;
    lp_local_message *posted; /* of this rank, not met yet; newest last */
    uint8_t *block;
    int64_t block_bytes;
    lp_block *seen; /* what gather returned */
    int64_t gather;
    char name[64];
} lp_local_rank;

typedef struct lp_local_world {
    const lp_alloc *alloc;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int32_t size, senders, open;
    int64_t timeout_ns, gather;
    uint32_t round;
    bool has_failed; /* of the round */
    char reason[LP_WIRE_TEXT];
    int64_t refusals; /* how often a round did not begin in time */
    char refusal[LP_WIRE_TEXT];
    lp_local_rank *rank;
} lp_local_world;

/* ---- transport_local_rounds.c: rounds, gathering, and who keeps the others waiting; the lock is held ---- */

void lp_local_name(const lp_local_world *w, int32_t rank, char out[64]);
void lp_local_fail(lp_local_world *w, const char *reason);
lp_status lp_local_error(const lp_local_world *w, lp_error *err); /* LP_E_PEER, why the round is over */
void lp_local_blame(lp_local_rank *r);
/* A rank that is gone is not waited for. Called before each wait. */
void lp_local_notice_gone(const lp_local_rank *r);
/* Until something changes, unless a rank is gone; the one that keeps others is blamed where *in_time, true at first,
 * is no more. */
void lp_local_go_on_waiting(lp_local_rank *r, int64_t since, bool *in_time);

/* Calls of the transport. */
lp_status lp_local_join(void *context, lp_round *round, lp_error *err);
lp_status lp_local_gather(void *context, const void *mine, int64_t bytes, const lp_block **all, lp_error *err);

/* ---- transport_local_messages.c ---- */

void lp_local_drop(lp_local_rank *r); /* the messages that this rank has posted; the lock is held */

lp_status lp_local_start(void *context, const lp_transfer *transfer, int64_t count, int64_t *ticket, lp_error *err);
lp_status lp_local_wait(void *context, int64_t ticket, lp_error *err);
void lp_local_cancel(void *context);

#endif
