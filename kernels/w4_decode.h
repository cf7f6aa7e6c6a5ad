/* SPDX-License-Identifier: Apache-2.0 */
/* The path of 4-bit weights for few tokens an expert, between its host part and its kernel. */
#ifndef LOADPLAN_W4_DECODE_H
#define LOADPLAN_W4_DECODE_H

#include "kernels/megamoe_private.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    LP_W4_ALIGN = 16,       /* rows of an expert come in units of 8, or of 16 in chunks of MIDDLE rows */
    LP_W4_FEW_ROWS = 24,    /* of a chunk at most, where few routes an expert are expected */
    LP_W4_MIDDLE_ROWS = 64, /* where more are */
    LP_W4_MANY_ROWS = 128   /* where many are, if not lp_moe_wide_products */
};

typedef struct lp_w4_areas {
    lp_moe_routes routes;
    void *x, *h;              /* operands of the projections: E4M3 or BF16, in the order of w4_operand.cuh */
    float *x_scale, *h_scale; /* [chunk][K / 128][width], with E4M3 */
    void *zero;               /* one step of zeros for an odd number of steps */
    void *out;                /* BF16 [rows, H] */
} lp_w4_areas;

void lp_w4_take(lp_moe_space *space, const lp_megamoe_shape *shape, lp_w4_areas *areas);

lp_status lp_w4_decode_run(const lp_moe_call *call, lp_error *err);

/* Routing and projections in chunks of up to LP_W4_MANY_ROWS; for formats and shapes without lp_moe_wide_products. */
lp_status lp_w4_many_run(const lp_moe_call *call, const lp_w4_areas *areas, lp_error *err);

#ifdef __cplusplus
}
#endif

#endif
