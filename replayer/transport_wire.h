/* SPDX-License-Identifier: Apache-2.0 */
/* Sockets and the messages of the control connections, shared by the ranks' side and the meeting point. Private to the
 * replayer. */
#ifndef LOADPLAN_TRANSPORT_WIRE_H
#define LOADPLAN_TRANSPORT_WIRE_H

#include "replayer/sync.h"
#include "traces/base.h"

enum { LP_WIRE_HEADER = 24, LP_WIRE_TEXT = 400, LP_WIRE_NAME = 64, LP_WIRE_SMALL = 1024 };

typedef enum lp_wire_type {
    /* from a rank */
    LP_WIRE_HELLO = 1,  /* lp_wire_hello; once, first */
    LP_WIRE_READY = 2,  /* for the next round */
    LP_WIRE_GATHER = 3, /* a block */
    LP_WIRE_FAIL = 4,   /* a text; ends the round */
    LP_WIRE_STALL = 5,  /* argument: a rank from which nothing came for too long, or LP_WAITS_GATHER */
    LP_WIRE_ANSWER = 6, /* argument: the rank waited for, or LP_WAITS_*; a number that grows with what gets done */
    LP_WIRE_BYE = 7,
    /* to a rank */
    LP_WIRE_ROUND = 16,    /* argument: own rank; lp_wire_member of each rank */
    LP_WIRE_GATHERED = 17, /* size of each rank's block, then the blocks */
    LP_WIRE_ABORT = 18,    /* a text */
    LP_WIRE_ASK = 19,      /* what do you wait for */
    LP_WIRE_END = 20,      /* no rounds any more */
    LP_WIRE_PATIENCE = 21  /* nobody is to blame yet */
} lp_wire_type;

enum { LP_WAITS_NOT = -1, LP_WAITS_GATHER = -2 };

/* Fixed width on the wire, little endian, no padding. */
typedef struct lp_wire_hello {
    bool is_sender, is_alone;
    int32_t rank, size, port; /* port: where it listens for peers */
    char group[LP_WIRE_NAME];
} lp_wire_hello;
enum { LP_WIRE_HELLO_BYTES = 16 + LP_WIRE_NAME };

typedef struct lp_wire_member {
    lp_wire_hello hello;
    char host[LP_WIRE_NAME]; /* numeric */
} lp_wire_member;
enum { LP_WIRE_MEMBER_BYTES = LP_WIRE_HELLO_BYTES + LP_WIRE_NAME };

typedef struct lp_wire_head {
    uint32_t type, round;
    int32_t argument;
    int64_t bytes; /* of what follows */
} lp_wire_head;

void lp_wire_put_head(uint8_t out[LP_WIRE_HEADER], const lp_wire_head *head);
/* False when it is no header of ours. */
bool lp_wire_get_head(const uint8_t in[LP_WIRE_HEADER], lp_wire_head *head);
void lp_wire_put_hello(uint8_t out[LP_WIRE_HELLO_BYTES], const lp_wire_hello *hello);
bool lp_wire_get_hello(const uint8_t in[LP_WIRE_HELLO_BYTES], lp_wire_hello *hello);
void lp_wire_put_u32(uint8_t *out, uint32_t value);
uint32_t lp_wire_get_u32(const uint8_t *in);
void lp_wire_put_i64(uint8_t *out, int64_t value);
int64_t lp_wire_get_i64(const uint8_t *in);

/* "sender 2", "receiver 3 of 'engine'", "rank 3" */
void lp_wire_member_name(const lp_wire_hello *hello, char out[128]);

/* ---- a connection of messages, not blocking ---- */

typedef struct lp_wire {
    const lp_alloc *alloc;
    int fd;        /* -1: closed */
    int64_t limit; /* largest body that is taken */
    uint8_t *in, *out;
    int64_t in_bytes, in_capacity, out_bytes, out_sent, out_capacity;
} lp_wire;

void lp_wire_init(lp_wire *w, int fd, int64_t limit, const lp_alloc *alloc);
void lp_wire_close(lp_wire *w);
/* Queues a message of two parts (each may be empty). False when there is no memory. */
bool lp_wire_put(lp_wire *w, const lp_wire_head *head, const void *a, int64_t a_bytes, const void *b, int64_t b_bytes);
bool lp_wire_flush(lp_wire *w); /* what goes without waiting; false when the connection is lost */
bool lp_wire_fill(lp_wire *w);  /* the same for what has come */
/* The next whole message: true, and its body in w->in + LP_WIRE_HEADER; then lp_wire_drop it. *broken: not ours. */
bool lp_wire_next(lp_wire *w, lp_wire_head *head, bool *broken);
void lp_wire_drop(lp_wire *w, const lp_wire_head *head);

/* ---- sockets ---- */

int64_t lp_clock_ns(void); /* monotonic */
void lp_sleep_ms(int ms);
bool lp_socket_prepare(int fd); /* not blocking, closed by exec, no delay */
/* A listening socket; port 0: any. host NULL: all addresses. *bound gets the port. Returns the socket or -1. */
int lp_socket_listen(const char *host, int32_t port, int32_t *bound, lp_error *err);
/* One attempt, blocking for at most a few seconds. Returns the socket or -1. */
int lp_socket_connect(const char *host, int32_t port, lp_error *err);
bool lp_socket_peer_host(int fd, char out[LP_WIRE_NAME]);

#endif
