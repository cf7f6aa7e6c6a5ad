/* SPDX-License-Identifier: Apache-2.0 */
/* The path of MXFP8 whose weights are decoded in registers, between its host part and its kernel. */
#ifndef LOADPLAN_M8_H
#define LOADPLAN_M8_H

#include "kernels/megamoe_private.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Routes of an expert up to which this path is faster than decoding once a call, which prefill does above. */
enum { LP_M8_MOST_ROUTES = 640 };

/* Rows of a chunk at most, and what their number is a multiple of, by the routes that an expert is expected to have. */
enum { LP_M8_FEW_ROWS = 24, LP_M8_FEW_UNIT = 8, LP_M8_SOME_ROWS = 64, LP_M8_MOST_ROWS = 128, LP_M8_UNIT = 16 };

typedef struct lp_m8_areas {
    lp_moe_routes routes;
    void *x, *h; /* BF16 values in the order of m8_operand.cuh */
    void *out;   /* BF16 [rows, H] */
} lp_m8_areas;

/* For calls of this shape. */
int lp_m8_chunk_rows(const lp_megamoe_shape *shape);

void lp_m8_take(lp_moe_space *space, const lp_megamoe_shape *shape, lp_m8_areas *areas);

lp_status lp_m8_run(const lp_moe_call *call, lp_error *err);

#ifdef __cplusplus
}
#endif

#endif
