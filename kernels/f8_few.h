/* SPDX-License-Identifier: Apache-2.0 */
/* The path of whole-byte weights (FP8 blocks, BF16) for few tokens an expert, between its host part and its kernels. */
#ifndef LOADPLAN_F8_FEW_H
#define LOADPLAN_F8_FEW_H

#include "kernels/megamoe_private.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Rows of a chunk at most, by the routes of an expert that are expected. */
enum {
    LP_F8_FEW_ROWS = 24,      /* units of 8 rows */
    LP_F8_SOME_ROWS = 64,     /* units of 16 */
    LP_F8_MANY_ROWS = 112,    /* units of 16, by a kernel of their own */
    LP_F8_EXPECTED_FEW = 20,  /* routes an expert up to which they are few */
    LP_F8_EXPECTED_SOME = 48, /* and up to which they are some; more than those are for FP8 blocks only */
    LP_F8_EXPECTED_MOST = 100 /* and up to which this path is faster than that of many tokens */
};

typedef struct lp_f8_areas {
    lp_moe_routes routes;
    void *x, *h;              /* operands of the projections, in the order of f8_operand.cuh: E4M3 or BF16 */
    float *x_scale, *h_scale; /* [chunk][K / 128][width], with E4M3 */
    void *out;                /* BF16 [rows, H] */
} lp_f8_areas;

/* Rows of a chunk for calls of this shape. */
int lp_f8_chunk_rows(const lp_megamoe_shape *shape);

void lp_f8_take(lp_moe_space *space, const lp_megamoe_shape *shape, lp_f8_areas *areas);

lp_status lp_f8_few_run(const lp_moe_call *call, lp_error *err);

/* Chunks of LP_F8_MANY_ROWS: the same launches but for the projections. */
lp_status lp_f8_many_run(const lp_moe_call *call, lp_error *err);

#ifdef __cplusplus
}
#endif

#endif
