/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where tokens and rows of an exchange go: plain arithmetic, which kernels and the tests on the host share.
 *
 * Nobody counts. Token t of rank s is token s * bound + t at every rank that it is sent to. A route is numbered there
 * by its token and choice, so its number says whose it is, and which row of the owner's slots it fills.
 */
#ifndef LOADPLAN_EXCHANGE_PLAN_H
#define LOADPLAN_EXCHANGE_PLAN_H

#include "traces/trace.h"

/* The expert of an id among `experts` of all ranks, -1: masked. */
LP_HOST_DEVICE static inline int32_t lp_moe_expert_of(int64_t id, int64_t first_expert, int64_t experts)
{
    return id >= 0 && id >= first_expert && id - first_expert < experts ? (int32_t)(id - first_expert) : -1;
}

/* Its rank; `each`: experts of one rank. */
LP_HOST_DEVICE static inline int32_t lp_moe_rank_of(int32_t expert, int32_t each)
{
    return expert < 0 ? -1 : expert / each;
}

/* The number that a rank's token has at all ranks. */
LP_HOST_DEVICE static inline int64_t lp_moe_sent_token(int32_t rank, int32_t bound, int64_t token)
{
    return (int64_t)rank * bound + token;
}

/* The slot of a route of all ranks at its owner; `routes`: numbers of one rank, bound * top_k. */
typedef struct lp_moe_slot_place {
    int32_t rank, slot;
} lp_moe_slot_place;

LP_HOST_DEVICE static inline lp_moe_slot_place lp_moe_slot_of(int32_t route, int32_t routes)
{
    lp_moe_slot_place place;
    place.rank = route / routes;
    place.slot = route - place.rank * routes;
    return place;
}

#endif
