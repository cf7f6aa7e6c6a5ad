/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The path of many tokens an expert, between its host part and its kernels: 128 tokens are the first operand of a
 * product, 256 rows of weights the second. FP8 blocks and BF16 are read as they are; weights whose scales belong to
 * single rows are decoded, which is exact: by each block for its tile of tokens, or once in a call, beside the
 * products.
 */
#ifndef LOADPLAN_PREFILL_H
#define LOADPLAN_PREFILL_H

#include "kernels/megamoe_private.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What the products multiply. */
typedef enum lp_prefill_kind {
    LP_PREFILL_FP8 = 0,   /* E4M3 tokens with a scale per 128, E4M3 weights with a scale per 128 x 128 */
    LP_PREFILL_BF16 = 1,  /* BF16 tokens and weights, no scales */
    LP_PREFILL_CODES = 2, /* MXFP8, tokens and weights, as BF16 values: their powers of two are in them */
    LP_PREFILL_MX = 3,    /* E4M3 tokens with a scale per 128, MXFP4 weights, decoded to E5M2 */
    LP_PREFILL_NV = 4,    /* BF16 tokens, NVFP4 weights, decoded to BF16 */
    /* As LP_PREFILL_FP8 and LP_PREFILL_MX, but multiplied as BF16 values, which keeps sums exact to FP32. */
    LP_PREFILL_FP8_WIDE = 5,
    LP_PREFILL_MX_WIDE = 6
} lp_prefill_kind;

/* Places for decoded tiles of weights: two for each of 132 blocks, one that it multiplies and one that is made. */
enum { LP_PREFILL_PLACES = 264 };

typedef struct lp_prefill_areas {
    lp_moe_routes routes;
    void *x;        /* [cap, H], rounded and in the order of K of the products; NULL: x is read as it was given */
    float *x_scale; /* [cap, H/128] of E4M3, or NULL */
    void *rows;     /* [rows, H] and its scales, as h */
    float *rows_scale;
    void *h;        /* [rows, I] in the order of prefill_operand.cuh */
    float *h_scale; /* of E4M3, or NULL */
    void *out;      /* BF16 [rows, H] */
    /* Tiles of 256 rows of weights, and places for decoded ones; 0 where nothing is ever decoded ahead. */
    int64_t tiles, places, place_bytes;
    void *made;         /* [places, place_bytes] */
    uint8_t *reference; /* [tiles, 256] */
} lp_prefill_areas;

lp_prefill_kind lp_prefill_kind_of(const lp_megamoe_shape *shape);

/* Whether weights are decoded once a call into the workspace, and no longer by each block for its tile of tokens; for
 * many tokens an expert, by tokens_bound. Changes no bit. */
bool lp_prefill_decodes_ahead(const lp_megamoe_shape *shape);

void lp_prefill_take(lp_moe_space *space, const lp_megamoe_shape *shape, lp_prefill_areas *areas);

lp_status lp_prefill_run(const lp_moe_call *call, lp_error *err);

/* Rows of x as the products want them, for lp_prefill_areas.x; of a kind that has one. */
typedef struct lp_prefill_round_job {
    lp_prefill_kind kind;
    lp_dtype x_dtype;
    int64_t hidden, max_tokens;
    const int32_t *tokens;
    const void *x;
    const float *x_scale; /* [cap, H/128]; of LP_PREFILL_CODES words of four UE8M0 codes */
    void *to;
    float *to_scale;
    /* Or NULL: rows go to `to` as tokens are numbered. Else to the rows of their routes, in the order of
     * prefill_operand.cuh; the launch then begins under the one that routes, and waits for it before it reads
     * route_row, or with `late` before it reads anything. */
    const int32_t *route_row;
    int64_t top_k;
    bool late;
} lp_prefill_round_job;

/* Copies rows of x to the rows of their routes, in the order of prefill_operand.cuh. */
typedef struct lp_prefill_gather_job {
    int64_t hidden, row_bytes, top_k, experts;
    const int32_t *start, *row_route;
    const void *x;
    const float *x_scale; /* or NULL */
    void *to;
    float *to_scale;
} lp_prefill_gather_job;

lp_status lp_prefill_gather(const lp_prefill_gather_job *job, void *stream, lp_error *err);

lp_status lp_prefill_round(const lp_prefill_round_job *job, void *stream, lp_error *err);

#ifdef __cplusplus
}
#endif

#endif
