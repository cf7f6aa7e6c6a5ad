/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a MegaMoE call should give, in double precision over the same quantised values, rounded exactly where the format
 * rounds (kernels/megamoe.h states where): x is taken as given, or quantised where the format wants E4M3; gate and up
 * are FP32; h follows the rule of the format; rows of the second projection and y are BF16. Beside it the same sum with
 * no rounding at all. Weights are given in checkpoint order, so that a layout mistake cannot hide in both.
 */
#ifndef MEGAMOE_REFERENCE_H
#define MEGAMOE_REFERENCE_H

#include "kernels/megamoe.h"

/* Host memory in checkpoint order, experts stacked. Codes: two E2M1 a byte (low nibble first), E4M3 bytes, or BF16.
 * Scales: UE8M0 [rows, K/32], UE4M3 [rows, K/16], FP32 [rows/128, K/128], none with BF16. */
typedef struct reference_weights {
    const void *gate, *up, *down; /* [E, I, H], [E, I, H], [E, H, I] */
    const void *gate_scale, *up_scale, *down_scale;
    const float *l1_alpha, *l2_alpha, *l2_activation_scale; /* as in lp_megamoe_weights; LP_NVFP4 */
    int32_t l1_alpha_columns;
    const struct reference_weights *shared; /* of lp_megamoe_shared_shape, or NULL */
} reference_weights;

typedef struct reference_input {
    const void *x;       /* shape.x_dtype [T, H] */
    const void *x_scale; /* FP32 [T, H/128], of LP_MXFP8 UE8M0 [T, H/32], or NULL */
    const int64_t *ids;  /* [T, k] */
    const float *weight; /* [T, k] */
    int64_t tokens;
} reference_input;

/* One token: y as the format rounds it (BF16 values) and y without any rounding, both [H]. `masked` ids and those of
 * other ranks count for nothing. */
void reference_token(const lp_megamoe_shape *shape, const reference_weights *weights, const reference_input *input,
                     int64_t token, double *rounded, double *exact);

/* The same for `count` tokens on `threads` threads: rows of both results in the order of `token`. */
void reference_tokens(const lp_megamoe_shape *shape, const reference_weights *weights, const reference_input *input,
                      const int64_t *token, int64_t count, int threads, double *rounded, double *exact);

/* ---- parts, for tests of the reference itself ---- */

/* Weights of one row of a projection, [columns]. `stack` is [E, rows, columns] of the format. */
void reference_row(lp_moe_format format, const void *stack, const void *scales, int64_t rows, int64_t columns,
                   int64_t expert, int64_t row, double *out);

/* Values through E4M3 with one FP32 scale per 128: max(amax, 1e-10) / 448. */
void reference_quantise_e4m3(const float *in, int64_t count, double *out);

/* The same with an UE8M0 scale per 32: the least power of two that is not below max(amax, least) / 448. */
void reference_quantise_mx(const float *in, int64_t count, float least, double *out);

/* h of one column before the router weight, from gate and up after the alphas. */
double reference_activation(const lp_megamoe_shape *shape, double gate, double up);

/* ---- judging ---- */

typedef struct reference_error {
    double relative;  /* L2 norm of the difference over that of the reference, all rows */
    double worst_row; /* the same of the worst row */
    int64_t worst_token;
    int64_t wrong_nan; /* NaN in one of the two only, and infinities that differ */
} reference_error;

/* got: BF16 codes, row i being that of token[i] in [.., H]. */
reference_error reference_compare(const uint16_t *got, const double *want, const int64_t *token, int64_t count,
                                  int64_t hidden);

#endif
