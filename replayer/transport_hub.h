/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The meeting point of ranks that talk over sockets: a thread beside sender 0 (or rank 0 of a single group) that forms
 * rounds, collects the blocks of gather, and finds out who is to blame when nothing moves. Private to the replayer.
 */
#ifndef LOADPLAN_TRANSPORT_HUB_H
#define LOADPLAN_TRANSPORT_HUB_H

#include "replayer/transport_wire.h"

typedef struct lp_hub lp_hub;

typedef struct lp_hub_options {
    int listener;     /* a listening socket, owned from now on (also on failure) */
    int32_t servers;  /* groups of receivers that a round needs */
    int64_t join_ns;  /* from the first sender that is ready to a full round */
    int64_t stall_ns; /* without a block from some rank, while another waits in gather */
    const lp_alloc *alloc;
} lp_hub_options;

lp_status lp_hub_open(lp_hub **out, const lp_hub_options *options, lp_error *err);
/* Tells every rank that there are no more rounds, and waits a little until they have heard it. */
void lp_hub_close(lp_hub *hub);

#endif
