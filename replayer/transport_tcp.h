/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One rank's side of the sockets. A thread moves the bytes (transport_pump.c) while the caller works; the calls of the
 * transport (transport_tcp.c) leave work for it and wait. Private to the replayer.
 */
#ifndef LOADPLAN_TRANSPORT_TCP_H
#define LOADPLAN_TRANSPORT_TCP_H

#include "replayer/transport_hub.h"

#include <pthread.h>
#include <stdatomic.h>

/* Messages that were started together. */
typedef struct lp_ticket {
    int64_t number;
    int64_t left;  /* messages */
    int64_t moved; /* bytes so far: a stall is when this stands still */
    struct lp_ticket *next;
} lp_ticket;

typedef struct lp_message {
    lp_transfer what;
    int64_t done;
    lp_ticket *ticket;
    struct lp_message *next;
} lp_message;

typedef struct lp_queue {
    lp_message *first, *last;
} lp_queue;

enum { LP_PEER_HELLO = 12 }; /* magic, round, rank */

/* The connection to another rank of the round: the higher rank opens it when it first needs it. */
typedef struct lp_peer {
    lp_wire_member who;
    int fd;
    bool is_lost;       /* its connection ended in the middle of a message */
    int64_t hello_sent; /* of what we say first, where we opened it */
    lp_queue out, in;
} lp_peer;

/* A connection of which it is not known yet who it is. */
typedef struct lp_stranger {
    int fd;
    int64_t bytes;
    uint8_t hello[LP_PEER_HELLO];
} lp_stranger;

enum { LP_STRANGERS_MAX = 64 };
#define LP_TCP_ENDED "the senders have ended"

typedef struct lp_tcp {
    const lp_alloc *alloc;
    lp_hub *hub; /* where this rank has it */
    lp_wire_hello me;
    int64_t join_ns, stall_ns;
    char *hub_host; /* where the meeting point is, as this rank knows it */
    pthread_t thread;
    bool has_thread;
    int wake[2];         /* a pipe: a byte wakes the thread */
    int listener, given; /* given: where ranks meet, until the meeting point has taken it */
    struct pollfd *polled;
    int64_t poll_capacity;
    atomic_llong progress; /* grows when something gets done */

    /* Everything below is under the lock. */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    lp_wire control;
    bool is_closing, has_ended; /* ended: the meeting point has no more rounds */
    bool is_over;               /* likewise, and nothing had failed before */
    bool is_joining;
    bool has_failed;
    bool has_cancelled; /* a message may have stopped in its middle: no more of them in this round */
    char reason[LP_WIRE_TEXT];
    lp_round round;
    lp_peer *peer; /* by rank */
    lp_stranger stranger[LP_STRANGERS_MAX];
    int32_t stranger_count;
    lp_ticket *ticket;
    int64_t ticket_number;
    int32_t waits_for;     /* a rank, or LP_WAITS_* */
    int64_t complained_ns; /* about what goes another way */
    int64_t patience;      /* how often the meeting point found nobody to blame */
    uint8_t *gathered;     /* body of the last answer to gather; NULL until it comes */
    lp_block *block;       /* by rank */
    char name[128];
} lp_tcp;

/* transport_tcp.c; the lock is held. */
int64_t
lp_tcp_grace_ns(const lp_tcp *t); /* what the meeting point gets beyond the time after which it names somebody */
bool lp_tcp_wait_until(lp_tcp *t, int64_t until);       /* for a change; false when the clock shows `until` */
lp_status lp_tcp_error(const lp_tcp *t, lp_error *err); /* LP_E_PEER, why the round is over */
bool lp_tcp_tell(lp_tcp *t, lp_wire_type type, int32_t argument, const void *body,
                 int64_t bytes); /* the meeting point */

/* transport_tcp_messages.c: calls of the transport. */
lp_status lp_tcp_start(void *context, const lp_transfer *transfer, int64_t count, int64_t *number, lp_error *err);
lp_status lp_tcp_wait(void *context, int64_t number, lp_error *err);

/* transport_pump.c; the lock is held. */
void lp_tcp_fail(lp_tcp *t, const char *reason); /* of this round: the first reason stays */
void lp_tcp_wake(lp_tcp *t);
void lp_tcp_cancel(lp_tcp *t);    /* the messages that are under way */
void lp_tcp_end_round(lp_tcp *t); /* closes what belongs to it */
void *lp_tcp_run(void *tcp);

/* transport_peers.c; the lock is held. */
void lp_tcp_open_peer(lp_tcp *t, int32_t rank);
void lp_tcp_serve_peer(lp_tcp *t, int32_t rank, short events); /* what poll said of its connection */
void lp_tcp_accept(lp_tcp *t);
void lp_tcp_settle(lp_tcp *t); /* looks at connections of which it is not known yet who they are */
/* Connections of which it is not known yet who they are. They outlive a round: a peer may have heard of the next one
 * before this rank does. */
void lp_tcp_drop_strangers(lp_tcp *t);

#endif
