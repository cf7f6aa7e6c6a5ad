/* SPDX-License-Identifier: Apache-2.0 */
/* The path of whole-byte weights (FP8 blocks, BF16) for few tokens an expert, between its host part and its kernel. */
#ifndef LOADPLAN_F8_FEW_H
#define LOADPLAN_F8_FEW_H

#include "kernels/megamoe_private.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    LP_F8_FEW_ROWS = 24,     /* of a chunk at most, where few routes an expert are expected: units of 8 rows */
    LP_F8_MANY_ROWS = 64,    /* where more are: units of 16 */
    LP_F8_EXPECTED_FEW = 20, /* routes an expert up to which they are few */
    LP_F8_EXPECTED_MOST = 48 /* and up to which this path is faster than that of many tokens */
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

#ifdef __cplusplus
}
#endif

#endif
