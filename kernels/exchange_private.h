/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the exchange's buffers hold, and its launches.
 *
 * Places are fixed (exchange_plan.h). Ids of all tokens go to all ranks, rows of x only to those that hold an expert of
 * the token; tokens past a rank's last one get ids of -1.
 *
 *   header | x [R * cap, H] | x_scale [R * cap, H / 128] | ids [R * cap, k] | weights [R * cap, k] | slots [cap * k, H]
 *
 * One set of all this is enough. A rank writes x of the next call after its own combination, for which it has waited
 * until the peers' projections were done, and those read x; a peer writes rows of the next call after it has got the
 * tokens of that call, which are sent after the combination.
 */
#ifndef LOADPLAN_EXCHANGE_PRIVATE_H
#define LOADPLAN_EXCHANGE_PRIVATE_H

#include "kernels/exchange.h"
#include "kernels/exchange_plan.h"
#include "kernels/megamoe_private.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { LP_MOE_TOKENS_HERE = 0, LP_MOE_ROWS_HERE = 1, LP_MOE_MEETINGS = 2 };

/* The start of a buffer. */
typedef struct lp_moe_exchange_header {
    uint64_t failure; /* lp_moe_pack_failure; 0: none */
    uint32_t call;    /* that was completed last */
    uint32_t blocks;  /* of the sending launch that are done */
    int32_t tokens;   /* that this rank computes: 0 after a failure */
    uint32_t unused[11];
    uint64_t arrived[LP_MOE_MEETINGS]
                    [LP_MOE_EXCHANGE_RANKS]; /* by rank: its bound in the upper half, number of the call */
} lp_moe_exchange_header;

/* Offsets in a buffer. */
typedef struct lp_moe_exchange_places {
    int64_t x, x_scale, ids, weights, slots, bytes;
    int64_t row_bytes; /* of x */
} lp_moe_exchange_places;

LP_HOST_DEVICE static inline uint64_t lp_moe_pack_failure(lp_moe_failure_kind kind, int32_t rank, int32_t by,
                                                          uint32_t call)
{
    return (uint64_t)kind << 56 | (uint64_t)(rank & 0xff) << 40 | (uint64_t)(by & 0xff) << 32 | call;
}

static inline lp_moe_failure lp_moe_unpack_failure(uint64_t word)
{
    const lp_moe_failure f = {(lp_moe_failure_kind)(word >> 56), (int32_t)(word >> 40 & 0xff),
                              (int32_t)(word >> 32 & 0xff), (uint32_t)word};
    return f;
}

/* The shape that one rank computes: tokens of all ranks, its own experts, tokens as they travel. */
lp_status lp_moe_exchange_inner(lp_megamoe_shape *inner, const lp_megamoe_shape *shape, int32_t rank, int32_t ranks,
                                lp_error *err);

/* -1 in `bytes`: more than 2^63. */
lp_moe_exchange_places lp_moe_exchange_layout(const lp_megamoe_shape *shape, int32_t ranks);

typedef struct lp_moe_send_job {
    lp_moe_exchange exchange;
    lp_moe_exchange_places places;
    lp_dtype x_dtype, id_dtype;      /* as the caller has them */
    bool quantises, has_scales;      /* x travels as E4M3: made here; at all */
    bool is_mx;                      /* with powers of two for 32 columns, four of them a word */
    int32_t bound, choices, experts; /* of a rank */
    int64_t hidden, first_expert;
    const void *x, *topk_ids;
    const float *x_scale, *topk_weight;
    const int32_t *tokens;
    int32_t *route_row; /* [cap * k] the slot of each own route, -1: masked */
} lp_moe_send_job;

/* Tokens to the ranks of their experts; ends when those of all ranks are here. */
lp_status lp_moe_send(const lp_moe_send_job *job, void *stream, lp_error *err);

/* Tells peers that this rank's rows are in their slots; ends when those of all ranks are here. */
lp_status lp_moe_meet(const lp_moe_exchange *exchange, int32_t bound, void *stream, lp_error *err);

lp_status lp_moe_read_failure(const lp_moe_exchange *exchange, void *stream, uint64_t *failure, lp_error *err);
lp_status lp_moe_fill_header(void *buffer, void *stream, lp_error *err);

#ifdef __cplusplus
}
#endif

#endif
