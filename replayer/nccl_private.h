/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The transport by NCCL, in parts: rounds and communicators (nccl_rounds.c), messages and their order on streams
 * (nccl_messages.c), memory and life (nccl_transport.c). Private to the replayer.
 *
 * Sockets form the rounds, carry what is small, and know who failed; NCCL never waits for anybody: its communicator
 * does not block, and a stream is asked whether it is done while the sockets are asked whether the round still stands.
 * When it does not, the communicator is aborted, which ends what waits on the device.
 */
#ifndef LOADPLAN_NCCL_PRIVATE_H
#define LOADPLAN_NCCL_PRIVATE_H

#include "replayer/nccl_transport.h"
#include "replayer/transport_lane.h"

enum { LP_NCCL_TICKETS = 8 };

typedef struct lp_nccl_ticket {
    int64_t number; /* 0: free */
    int64_t sockets;
    bool has_sockets, has_stream;
    int32_t peer; /* one that the stream exchanges with */
    void *event;
} lp_nccl_ticket;

typedef struct lp_over_nccl {
    const lp_alloc *alloc;
    lp_transport sockets;
    lp_nccl_device device;
    lp_lane lane;
    lp_nccl nccl;
    void *comm, *stream;
    uint64_t key;   /* of the ranks that comm is made of; 0: none */
    bool *has_met;  /* by rank of comm */
    void *greeting; /* a byte for each rank that is met, kept: giving device memory back waits for the device */
    int64_t greeting_bytes;
    bool is_connecting; /* comm: its ranks are, while this one goes on */
    lp_nccl_ticket ticket[LP_NCCL_TICKETS];
    int64_t last_ticket;
    lp_round round;
} lp_over_nccl;

lp_status lp_over_nccl_check(const lp_over_nccl *t, int code, const char *verb, lp_error *err);

/* ---- nccl_rounds.c ---- */

lp_status lp_over_nccl_join(void *context, lp_round *round, lp_error *err);
/* What the library says of its messages: LP_E_PEER with the sockets' words where a rank of the round has failed. peer:
 * a rank that is waited for, or LP_WAITS_NOT. */
lp_status lp_over_nccl_result(lp_over_nccl *t, int result, int32_t peer, const char *verb, lp_error *err);
/* Waits until the library has done what it was told, looking after the round. peer: a rank that takes part in it. */
lp_status lp_over_nccl_settle(lp_over_nccl *t, int result, int32_t peer, const char *verb, lp_error *err);
/* Waits until the ranks of the communicator are connected: before the first message, to or from peer. */
lp_status lp_over_nccl_connect(lp_over_nccl *t, int32_t peer, lp_error *err);
void lp_over_nccl_drop(lp_over_nccl *t); /* the communicator */
/* Between two questions that have been asked since then. */
void lp_over_nccl_rest(int64_t since);

/* ---- nccl_messages.c: calls of the transport and of its lane ---- */

lp_status lp_over_nccl_start(void *context, const lp_transfer *transfer, int64_t count, int64_t *number, lp_error *err);
lp_status lp_over_nccl_wait(void *context, int64_t number, lp_error *err);
void lp_over_nccl_cancel(void *context);
lp_status lp_over_nccl_meet(void *context, const int32_t *peer, int32_t peers, bool is_send, lp_error *err);
lp_status lp_over_nccl_after(void *context, void *event, lp_error *err);
lp_status lp_over_nccl_follow(void *context, int64_t number, void *stream, lp_error *err);
lp_status lp_over_nccl_await(void *context, void *event, int32_t peer, lp_error *err);

#endif
