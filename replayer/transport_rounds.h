/* SPDX-License-Identifier: Apache-2.0 */
/* The rules of the meeting point, without sockets of their own: who is in, when a round begins, when it ends and who is
 * to blame. Private to the replayer. */
#ifndef LOADPLAN_TRANSPORT_ROUNDS_H
#define LOADPLAN_TRANSPORT_ROUNDS_H

#include "replayer/transport_hub.h"

/* One connected rank. */
typedef struct lp_meeting {
    lp_wire wire;
    lp_wire_member who;
    bool is_known; /* said hello */
    bool is_ready; /* waits for a round */
    bool is_in;    /* takes part in the current one */
    bool has_left; /* said goodbye */
    int32_t rank;  /* in the current round */
    bool has_block, has_answered;
    int32_t answer;
    int64_t progress, judged_progress; /* as answered; when it was last judged */
    uint8_t *block;                    /* of gather */
    int64_t block_bytes;
} lp_meeting;

typedef struct lp_rounds {
    const lp_alloc *alloc;
    int32_t servers;
    int64_t join_ns, stall_ns;
    lp_meeting **member;
    int64_t count, capacity;
    uint32_t number;   /* of the current or last round */
    int32_t world;     /* of the current round; 0: none */
    int64_t ready_ns;  /* when the first sender became ready; 0: none is */
    int64_t gather_ns; /* when the first block came; 0: none has */
    int64_t blame_ns;  /* when answers are judged; 0: nobody was asked */
    int32_t stalled;   /* the rank that a rank complained about, or LP_WAITS_GATHER */
} lp_rounds;

void lp_rounds_init(lp_rounds *r, const lp_hub_options *options);
void lp_rounds_free(lp_rounds *r);
bool lp_rounds_connect(lp_rounds *r, int fd); /* false when there is no memory, or too many do not say who they are */
void lp_rounds_message(lp_rounds *r, lp_meeting *m, const lp_wire_head *head, const uint8_t *body);
void lp_rounds_lost(lp_rounds *r, lp_meeting *m); /* its connection; closes it */
void lp_rounds_tick(lp_rounds *r, int64_t now);
void lp_rounds_forget(lp_rounds *r); /* members whose connections are closed */
void lp_rounds_end(lp_rounds *r);

/* ---- what the parts share ---- */

#define LP_ROUNDS_NO_MEMORY "no memory at the meeting point"

void lp_rounds_tell(lp_meeting *m, uint32_t round, const char *text); /* that a round is over, and why */
void lp_rounds_end_round(lp_rounds *r, const char *text);             /* the current one, with a reason */
void lp_rounds_drop_blocks(lp_rounds *r);                             /* of gather */
lp_meeting *lp_rounds_find(const lp_rounds *r, int32_t rank);         /* in the current round; or NULL */

/* ---- transport_joining.c ---- */

void lp_rounds_hello(lp_rounds *r, lp_meeting *m, const uint8_t *body, int64_t bytes);
void lp_rounds_ready(lp_rounds *r, lp_meeting *m);
/* NULL when a round can begin, else who is missing. Puts members in order of their places. */
const char *lp_rounds_missing(lp_rounds *r, char text[LP_WIRE_TEXT]);
void lp_rounds_begin(lp_rounds *r);
void lp_rounds_miss(lp_rounds *r, const char *who); /* too long: nobody waits on */

/* ---- transport_blame.c ---- */

/* Asks everybody what he waits for. stalled: the rank that somebody complains about, or LP_WAITS_GATHER. */
void lp_rounds_ask(lp_rounds *r, int32_t stalled);
void lp_rounds_judge(lp_rounds *r); /* the answers */

#endif
