/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The path of many tokens an expert, between its host part and its kernels: 128 tokens are the first operand of a
 * product, 256 rows of weights the second. FP8 blocks and BF16 are read as they are; formats whose scales belong to
 * single rows are first expanded to BF16, a group of experts at a time, which is exact.
 */
#ifndef LOADPLAN_PREFILL_H
#define LOADPLAN_PREFILL_H

#include "kernels/megamoe_private.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What the products multiply. */
typedef enum lp_prefill_kind {
    LP_PREFILL_FP8 = 0,  /* E4M3 tokens with a scale per 128, E4M3 weights with a scale per 128 x 128 */
    LP_PREFILL_BF16 = 1, /* BF16 tokens and weights, no scales */
    LP_PREFILL_CODES = 2 /* E4M3 tokens as BF16 values with a scale per 128, BF16 weights */
} lp_prefill_kind;

typedef struct lp_prefill_areas {
    lp_moe_routes routes;
    void *x, *h;              /* [rows, H], [rows, I] in the order of prefill_operand.cuh */
    float *x_scale, *h_scale; /* unless LP_PREFILL_BF16 */
    void *out;                /* BF16 [rows, H] */
    void *l1, *l2;            /* expanded weights of a group of experts: BF16 [group, 2I, H], [group, H, I] */
} lp_prefill_areas;

lp_prefill_kind lp_prefill_kind_of(lp_moe_format format);

/* Experts whose weights are expanded at a time; 0: weights are read as they are. */
int64_t lp_prefill_group(const lp_megamoe_shape *shape);

void lp_prefill_take(lp_moe_space *space, const lp_megamoe_shape *shape, lp_prefill_areas *areas);

lp_status lp_prefill_run(const lp_moe_call *call, lp_error *err);

/* Copies tokens to the rows of their routes, in the order of prefill_operand.cuh, quantised unless LP_PREFILL_BF16. */
typedef struct lp_prefill_gather_job {
    lp_prefill_kind kind;
    lp_dtype x_dtype;
    int64_t hidden, top_k, experts, rows_cap;
    const int32_t *start, *row_route;
    const void *x;
    const float *x_scale;
    void *to;
    float *to_scale;
} lp_prefill_gather_job;

lp_status lp_prefill_gather(const lp_prefill_gather_job *job, void *stream, lp_error *err);

/* Expands the weights of `experts` experts from `first` on to BF16, gate and up rows interleaved by 8. */
typedef struct lp_prefill_expand_job {
    lp_moe_format format;
    lp_moe_family family;
    int64_t hidden, intermediate, first, experts;
    const void *weight[2], *scale[2]; /* of both projections, all experts */
    void *to[2];
} lp_prefill_expand_job;

lp_status lp_prefill_expand(const lp_prefill_expand_job *job, void *stream, lp_error *err);

#ifdef __cplusplus
}
#endif

#endif
