/* SPDX-License-Identifier: Apache-2.0 */
/* The MegaMoE reference: plain sums in double, one token after the other. */
#include "megamoe_reference.h"

#include "kernels/number_formats.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK = 128 };

/* ---- weights ---- */

void reference_row(lp_moe_format format, const void *stack, const void *scales, int64_t rows, int64_t columns,
                   int64_t expert, int64_t row, double *out)
{
    const int64_t at = expert * rows + row;
    const uint8_t *const bytes = stack, *const scale_bytes = scales;
    const float *const blocks = scales;
    for (int64_t k = 0; k < columns; k++) {
        const int64_t element = at * columns + k;
        switch (format) {
        case LP_MXFP4:
        case LP_NVFP4: {
            const uint32_t code = bytes[element / 2] >> (element % 2 * 4) & 15u;
            const double scale = format == LP_MXFP4 ? (double)lp_ue8m0_value(scale_bytes[element / 32])
                                                    : (double)lp_e4m3_value(scale_bytes[element / 16]);
            out[k] = (double)lp_e2m1_value(code) * scale;
            break;
        }
        case LP_MXFP8:
            out[k] = (double)lp_e4m3_value(bytes[element]) * (double)lp_ue8m0_value(scale_bytes[element / 32]);
            break;
        case LP_FP8_BLOCK128: {
            const int64_t block = (expert * (rows / BLOCK) + row / BLOCK) * (columns / BLOCK) + k / BLOCK;
            out[k] = (double)lp_e4m3_value(bytes[element]) * (double)blocks[block];
            break;
        }
        case LP_MOE_BF16: {
            uint16_t code;
            memcpy(&code, bytes + 2 * element, sizeof code);
            out[k] = (double)lp_bf16_value(code);
            break;
        }
        }
    }
}

static double dot(const double *a, const double *b, int64_t count)
{
    double sum = 0;
    for (int64_t i = 0; i < count; i++)
        sum += a[i] * b[i];
    return sum;
}

/* ---- activations ---- */

void reference_quantise_e4m3(const float *in, int64_t count, double *out)
{
    for (int64_t at = 0; at < count; at += BLOCK) {
        float amax = 1e-10f;
        for (int64_t i = at; i < at + BLOCK; i++)
            amax = fmaxf(amax, fabsf(in[i]));
        const float scale = amax / 448.0f;
        for (int64_t i = at; i < at + BLOCK; i++)
            out[i] = (double)lp_e4m3_value(lp_e4m3_code(in[i] / scale)) * (double)scale;
    }
}

void reference_quantise_mx(const float *in, int64_t count, float least, double *out)
{
    enum { COLUMNS = 32 };
    for (int64_t at = 0; at < count; at += COLUMNS) {
        float amax = least;
        for (int64_t i = at; i < at + COLUMNS; i++)
            amax = fmaxf(amax, fabsf(in[i]));
        const uint32_t code = lp_ue8m0_code_above(amax / 448.0f);
        const float scale = lp_ue8m0_value(code > 0 ? code : 1);
        for (int64_t i = at; i < at + COLUMNS; i++)
            out[i] = (double)lp_e4m3_value(lp_e4m3_code(in[i] / scale)) * (double)scale;
    }
}

static double sigmoid(double v)
{
    return 1.0 / (1.0 + exp(-v));
}

/* Comparisons that are false for NaN, so that NaN stays. */
static double at_most(double v, double limit)
{
    return v > limit ? limit : v;
}

static double at_least(double v, double limit)
{
    return v < limit ? limit : v;
}

double reference_activation(const lp_megamoe_shape *shape, double gate, double up)
{
    const double limit = shape->activation_limit > 0 ? (double)shape->activation_limit : INFINITY;
    const double alpha = shape->activation_alpha != 0 ? (double)shape->activation_alpha : 1.0;
    const double beta = (double)shape->activation_beta;
    switch (shape->activation) {
    case LP_MOE_SITU:
        gate = at_most(gate, limit);
        up = at_least(at_most(up, limit), -limit);
        return alpha * tanh(gate / alpha) * sigmoid(gate) * (beta > 0 ? beta * tanh(up / beta) : up);
    case LP_MOE_SWIGLU_STEP:
        up = at_least(at_most(up, limit), -limit);
        return at_most(gate * sigmoid(alpha * gate), limit) * up;
    case LP_MOE_SWIGLU:
        break;
    }
    gate = at_most(gate, limit);
    up = at_least(at_most(up, limit), -limit);
    return gate * sigmoid(alpha * gate) * (up + beta);
}

/* ---- one token ---- */

static bool wants_e4m3(lp_moe_format format)
{
    return format != LP_NVFP4 && format != LP_MOE_BF16;
}

/* x of a token as the format sees it, and as it was given. */
static void token_row(const lp_megamoe_shape *shape, const reference_input *input, int64_t token, double *rounded,
                      double *exact)
{
    const int64_t width = shape->hidden;
    float *const given = malloc((size_t)width * sizeof *given);
    for (int64_t k = 0; k < width; k++) {
        const int64_t at = token * width + k;
        if (shape->x_dtype == LP_BF16) {
            given[k] = lp_bf16_value(((const uint16_t *)input->x)[at]);
            exact[k] = rounded[k] = (double)given[k];
        } else {
            const float scale = shape->format == LP_MXFP8 ? lp_ue8m0_value(((const uint8_t *)input->x_scale)[at / 32])
                                                          : ((const float *)input->x_scale)[at / BLOCK];
            exact[k] = rounded[k] = (double)lp_e4m3_value(((const uint8_t *)input->x)[at]) * (double)scale;
        }
    }
    if (shape->x_dtype == LP_BF16 && shape->format == LP_MXFP8)
        reference_quantise_mx(given, width, 1e-4f, rounded);
    else if (shape->x_dtype == LP_BF16 && wants_e4m3(shape->format))
        reference_quantise_e4m3(given, width, rounded);
    free(given);
}

static float bf16_rounded(double v)
{
    return lp_bf16_value(lp_bf16_code((float)v));
}

/* Adds an expert's row, times the weight of the route, to the sum of rounded rows and to that without rounding. */
static void add_expert(const lp_megamoe_shape *shape, const reference_weights *w, int64_t e, double route,
                       const double *x, const double *x_exact, float *sum, double *exact)
{
    const int64_t hidden = shape->hidden, inner = shape->intermediate, most = hidden > inner ? hidden : inner;
    double *const h = malloc((size_t)inner * sizeof *h), *const h_exact = malloc((size_t)inner * sizeof *h);
    float *const h_f32 = malloc((size_t)inner * sizeof *h_f32);
    double *const row = malloc((size_t)most * sizeof *row);
    const bool weight_in_h = shape->format != LP_NVFP4;
    double alpha[2] = {1, 1}, down_alpha = 1;
    if (w->l1_alpha != NULL)
        for (int half = 0; half < 2; half++)
            alpha[half] = (double)w->l1_alpha[w->l1_alpha_columns == 2 ? 2 * e + half : e];
    if (w->l2_alpha != NULL)
        down_alpha = (double)w->l2_alpha[e];
    if (w->l2_activation_scale != NULL)
        down_alpha /= (double)w->l2_activation_scale[0];

    for (int64_t c = 0; c < inner; c++) {
        reference_row(shape->format, w->gate, w->gate_scale, inner, hidden, e, c, row);
        const double gate = dot(x, row, hidden) * alpha[0], gate_exact = dot(x_exact, row, hidden) * alpha[0];
        reference_row(shape->format, w->up, w->up_scale, inner, hidden, e, c, row);
        const double up = dot(x, row, hidden) * alpha[1], up_exact = dot(x_exact, row, hidden) * alpha[1];
        const double factor = weight_in_h ? route : 1.0;
        h_f32[c] = (float)(reference_activation(shape, (double)(float)gate, (double)(float)up) * factor);
        h_exact[c] = reference_activation(shape, gate_exact, up_exact) * factor;
    }
    if (shape->format == LP_MXFP8)
        reference_quantise_mx(h_f32, inner, 0.0f, h);
    else if (wants_e4m3(shape->format))
        reference_quantise_e4m3(h_f32, inner, h);
    else
        for (int64_t c = 0; c < inner; c++)
            h[c] = (double)bf16_rounded((double)h_f32[c]);

    for (int64_t r = 0; r < hidden; r++) {
        reference_row(shape->format, w->down, w->down_scale, hidden, inner, e, r, row);
        const float slot = bf16_rounded(dot(h, row, inner) * down_alpha);
        sum[r] += weight_in_h ? slot : (float)(route * (double)slot);
        exact[r] += dot(h_exact, row, inner) * down_alpha * (weight_in_h ? 1.0 : route);
    }
    free(h);
    free(h_exact);
    free(h_f32);
    free(row);
}

void reference_token(const lp_megamoe_shape *shape, const reference_weights *w, const reference_input *input,
                     int64_t token, double *rounded, double *exact)
{
    const int64_t hidden = shape->hidden;
    double *const x = malloc((size_t)hidden * sizeof *x), *const x_exact = malloc((size_t)hidden * sizeof *x);
    float *const sum = calloc((size_t)hidden, sizeof *sum);
    token_row(shape, input, token, x, x_exact);
    memset(exact, 0, (size_t)hidden * sizeof *exact);
    for (int64_t j = 0; j < shape->top_k; j++) {
        const int64_t id = input->ids[token * shape->top_k + j], e = id - shape->first_expert;
        if (id >= 0 && e >= 0 && e < shape->experts)
            add_expert(shape, w, e, (double)input->weight[token * shape->top_k + j], x, x_exact, sum, exact);
    }
    if (w->shared != NULL) {
        const lp_megamoe_shape shared = lp_megamoe_shared_shape(shape);
        token_row(&shared, input, token, x, x_exact);
        add_expert(&shared, w->shared, 0, 1.0, x, x_exact, sum, exact);
    }
    for (int64_t r = 0; r < hidden; r++)
        rounded[r] = (double)bf16_rounded((double)sum[r]);
    free(x);
    free(x_exact);
    free(sum);
}

/* ---- many tokens ---- */

typedef struct reference_work {
    const lp_megamoe_shape *shape;
    const reference_weights *weights;
    const reference_input *input;
    const int64_t *token;
    int64_t from, to, step;
    double *rounded, *exact;
} reference_work;

static void *work_tokens(void *context)
{
    const reference_work *w = context;
    const int64_t hidden = w->shape->hidden;
    for (int64_t i = w->from; i < w->to; i += w->step)
        reference_token(w->shape, w->weights, w->input, w->token[i], w->rounded + i * hidden, w->exact + i * hidden);
    return NULL;
}

void reference_tokens(const lp_megamoe_shape *shape, const reference_weights *weights, const reference_input *input,
                      const int64_t *token, int64_t count, int threads, double *rounded, double *exact)
{
    enum { MOST = 64 };
    pthread_t thread[MOST];
    reference_work work[MOST];
    bool started[MOST] = {false};
    if (threads > MOST)
        threads = MOST;
    for (int i = 0; i < threads; i++) {
        work[i] = (reference_work){shape, weights, input, token, i, count, threads, rounded, exact};
        started[i] = i > 0 && pthread_create(&thread[i], NULL, work_tokens, &work[i]) == 0;
    }
    for (int i = 0; i < threads; i++)
        if (!started[i])
            (void)work_tokens(&work[i]);
    for (int i = 0; i < threads; i++)
        if (started[i])
            (void)pthread_join(thread[i], NULL);
}

/* ---- judging ---- */

reference_error reference_compare(const uint16_t *got, const double *want, const int64_t *token, int64_t count,
                                  int64_t hidden)
{
    reference_error e = {0, 0, -1, 0};
    double all_difference = 0, all_size = 0;
    for (int64_t i = 0; i < count; i++) {
        double difference = 0, size = 0;
        for (int64_t c = 0; c < hidden; c++) {
            const double g = (double)lp_bf16_value(got[token[i] * hidden + c]), w = want[i * hidden + c];
            if (!isfinite(g) || !isfinite(w)) {
                e.wrong_nan += isnan(g) != isnan(w) || (!isnan(g) && g != w);
                continue;
            }
            difference += (g - w) * (g - w);
            size += w * w;
        }
        all_difference += difference;
        all_size += size;
        const double row = size > 0 ? sqrt(difference / size) : difference > 0 ? INFINITY : 0;
        if (row > e.worst_row || e.worst_token < 0) {
            e.worst_row = row;
            e.worst_token = token[i];
        }
    }
    e.relative = all_size > 0 ? sqrt(all_difference / all_size) : all_difference > 0 ? INFINITY : 0;
    return e;
}
