/* SPDX-License-Identifier: Apache-2.0 */
/* Random MegaMoE problems. Magnitudes are such that gate, up and y come out near 1. */
#include "megamoe_problem.h"

#include "kernels/number_formats.h"
#include "tests/random_numbers.h"
#include "traces/base.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static double uniform(uint64_t *state)
{
    return (double)(random_next(state) >> 11) * 0x1p-53;
}

/* Nearly normal, variance 1: one of 4,096 such numbers. */
static double normal(uint64_t *state)
{
    enum { VALUES = 4096 };
    static double table[VALUES];
    if (table[0] == 0) {
        uint64_t own_state = 1;
        for (int i = 0; i < VALUES; i++) {
            table[i] = -6;
            for (int k = 0; k < 12; k++)
                table[i] += uniform(&own_state);
        }
    }
    return table[random_next(state) % VALUES];
}

static void *own(moe_problem *p, int64_t bytes)
{
    void *const memory = calloc(bytes > 0 ? (size_t)bytes : 1, 1);
    if (memory == NULL)
        abort();
    p->owned[p->owned_count++] = memory;
    return memory;
}

int64_t problem_code_bytes(lp_moe_format format, int64_t count)
{
    return format == LP_MOE_BF16 ? 2 * count : format == LP_MXFP4 || format == LP_NVFP4 ? count / 2 : count;
}

int64_t problem_scale_bytes(lp_moe_format format, int64_t rows, int64_t columns)
{
    switch (format) {
    case LP_MXFP4:
    case LP_MXFP8:
        return rows * (columns / 32);
    case LP_NVFP4:
        return rows * (columns / 16);
    case LP_FP8_BLOCK128:
        return rows / 128 * (columns / 128) * 4;
    case LP_MOE_BF16:
        break;
    }
    return 0;
}

/* ---- weights ---- */

static uint32_t e4m3_random(uint64_t *state)
{
    return lp_e4m3_code((float)normal(state));
}

static void fill_codes(lp_moe_format format, void *to, int64_t count, int64_t columns, uint64_t *state)
{
    uint8_t *const bytes = to;
    uint16_t *const halves = to;
    for (int64_t i = 0; i < count; i++)
        switch (format) {
        case LP_MXFP4:
        case LP_NVFP4:
            if (i % 2 == 0)
                bytes[i / 2] = (uint8_t)random_next(state);
            break;
        case LP_MXFP8:
        case LP_FP8_BLOCK128:
            bytes[i] = (uint8_t)e4m3_random(state);
            break;
        case LP_MOE_BF16:
            halves[i] = (uint16_t)lp_bf16_code((float)(normal(state) / sqrt((double)columns)));
            break;
        }
}

/* A scale that brings a sum over `columns` products of about `size` near 1. */
static double usual_scale(int64_t columns, double size)
{
    return 1.0 / (sqrt((double)columns) * size);
}

static void fill_scales(lp_moe_format format, problem_scales kind, void *to, int64_t bytes, int64_t columns,
                        uint64_t *state)
{
    uint8_t *const codes = to;
    float *const values = to;
    const int middle = (int)lp_ue8m0_code_above((float)usual_scale(columns, format == LP_MXFP4 ? 2.7 : 1.0));
    switch (format) {
    case LP_MXFP4:
    case LP_MXFP8:
        for (int64_t i = 0; i < bytes; i++) {
            const uint64_t r = random_next(state);
            const int spread = kind == SCALES_WIDE ? (int)(r % 24) - 20 : (int)(r % 3) - 1;
            codes[i] = (uint8_t)(middle + spread);
        }
        break;
    case LP_NVFP4:
        for (int64_t i = 0; i < bytes; i++)
            codes[i] = (uint8_t)(kind == SCALES_WIDE ? random_next(state) % 0x48 : 0x30 + random_next(state) % 0x18);
        break;
    case LP_FP8_BLOCK128:
        for (int64_t i = 0; i < bytes / 4; i++)
            values[i] = (float)(usual_scale(columns, 1.0) * (0.25 + 1.5 * uniform(state)));
        break;
    case LP_MOE_BF16:
        break;
    }
}

/* Edge bytes in every 37th scale; the codes below the largest become zero, so that nothing overflows. */
static void put_edges(lp_moe_format format, uint8_t *codes, void *scales, int64_t scale_bytes, uint64_t *state)
{
    uint8_t *const bytes = scales;
    float *const values = scales;
    if (format == LP_FP8_BLOCK128) {
        for (int64_t i = 0; i < scale_bytes / 4; i += 5)
            values[i] = i % 2 == 0 ? 0.0f : ldexpf(1.0f, -140);
        return;
    }
    const int64_t per = format == LP_NVFP4 ? 16 : 32, width = problem_code_bytes(format, per);
    const uint8_t largest = format == LP_NVFP4 ? 0x7e : 254;
    for (int64_t i = (int64_t)(random_next(state) % 37); i < scale_bytes; i += 37) {
        const uint8_t edge[3] = {0, 1, largest};
        bytes[i] = edge[i % 3];
        if (bytes[i] == largest && format != LP_NVFP4)
            memset(codes + i * width, 0, (size_t)width);
        if (format == LP_MXFP8 && i / 37 % 4 == 1)
            bytes[i] = 137; /* with codes: more than one factor of BF16 can bring from where decoding begins */
    }
}

static lp_status lay_out(moe_problem *p, lp_moe_slot slot, int32_t n, const void *gate_or_down, const void *up,
                         lp_error *err)
{
    const char *const id = lp_megamoe_layout(p->shape.format, slot, n);
    if (id == NULL)
        return p->shape.format == LP_MOE_BF16 ? LP_OK : LP_E_ARGUMENT;
    const lp_layout *const layout = lp_layout_find(id);
    const lp_layout_sizes sizes = {p->shape.experts, p->shape.hidden, p->shape.intermediate};
    lp_layout_shape form;
    LP_TRY(lp_layout_describe(layout, &sizes, &form, err));
    p->layout[slot] = id;
    p->packed_bytes[slot] = form.bytes;
    p->packed[slot] = own(p, form.bytes);
    const bool is_down = slot == LP_MOE_L2_WEIGHT || slot == LP_MOE_L2_SCALE;
    LP_TRY(lp_layout_apply(layout, &sizes, is_down ? LP_SHARD_DOWN : LP_SHARD_GATE, -1, gate_or_down, p->packed[slot],
                           NULL, err));
    if (!is_down)
        LP_TRY(lp_layout_apply(layout, &sizes, LP_SHARD_UP, -1, up, p->packed[slot], NULL, err));
    return LP_OK;
}

lp_status problem_make(moe_problem *p, const lp_megamoe_shape *shape, int32_t n, problem_scales kind, uint64_t seed,
                       lp_error *err)
{
    *p = (moe_problem){.shape = *shape, .seed = seed};
    const lp_moe_format format = shape->format;
    const int64_t experts = shape->experts, hidden = shape->hidden, inner = shape->intermediate;
    if (lp_megamoe_layout(format, LP_MOE_L1_WEIGHT, n) == NULL)
        return LP_E_ARGUMENT;
    uint64_t state = seed;
    void *code[3], *scale[3];
    for (int i = 0; i < 3; i++) { /* gate, up, down */
        const int64_t rows = i < 2 ? inner : hidden, columns = i < 2 ? hidden : inner;
        const int64_t scale_bytes = experts * problem_scale_bytes(format, rows, columns);
        code[i] = own(p, problem_code_bytes(format, experts * rows * columns));
        scale[i] = scale_bytes > 0 ? own(p, scale_bytes) : NULL;
        fill_codes(format, code[i], experts * rows * columns, columns, &state);
        fill_scales(format, kind, scale[i], scale_bytes, columns, &state);
        if (kind == SCALES_EDGE || kind == SCALES_NAN)
            put_edges(format, code[i], scale[i], scale_bytes, &state);
        if (kind == SCALES_NAN && i > 0 && scale_bytes > 0) {
            const float nan = lp_f32_of_bits(0x7fc00000u);
            uint8_t *const last = (uint8_t *)scale[i] + scale_bytes - 4;
            if (format == LP_FP8_BLOCK128)
                memcpy(last, &nan, sizeof nan);
            else
                *last = format == LP_NVFP4 ? 0x7f : 0xff;
        }
        if (kind == SCALES_NAN && i == 2 && format == LP_MXFP8) /* a code, too */
            *(uint8_t *)code[i] = 0xff;
    }
    if (format == LP_NVFP4) {
        float *const l1 = own(p, experts * 8), *const l2 = own(p, experts * 4), *const activation = own(p, 4);
        *activation = 0.375f;
        for (int64_t e = 0; e < experts; e++) {
            for (int half = 0; half < 2; half++)
                l1[2 * e + half] = (float)(usual_scale(hidden, 4.0) * (0.5 + uniform(&state)));
            l2[e] = (float)(usual_scale(inner, 2.0) * (0.5 + uniform(&state))) * *activation;
        }
        p->weights.l1_alpha = l1, p->weights.l1_alpha_columns = 2;
        p->weights.l2_alpha = l2, p->weights.l2_activation_scale = activation;
    }
    p->weights.gate = code[0], p->weights.up = code[1], p->weights.down = code[2];
    p->weights.gate_scale = scale[0], p->weights.up_scale = scale[1], p->weights.down_scale = scale[2];
    LP_TRY(lay_out(p, LP_MOE_L1_WEIGHT, n, code[0], code[1], err));
    LP_TRY(lay_out(p, LP_MOE_L1_SCALE, n, scale[0], scale[1], err));
    LP_TRY(lay_out(p, LP_MOE_L2_WEIGHT, n, code[2], NULL, err));
    LP_TRY(lay_out(p, LP_MOE_L2_SCALE, n, scale[2], NULL, err));
    if (shape->shared_intermediate == 0)
        return LP_OK;
    const lp_megamoe_shape shared = lp_megamoe_shared_shape(shape);
    p->shared = own(p, sizeof *p->shared);
    LP_TRY(problem_make(p->shared, &shared, 0, SCALES_USUAL, seed + 1, err));
    p->weights.shared = &p->shared->weights;
    return LP_OK;
}

/* ---- tokens ---- */

static int64_t pick(int64_t experts, int64_t half, problem_routing routing, uint64_t *state)
{
    const uint64_t r = random_next(state);
    if (half == 0 || (routing != ROUTE_HALF_EMPTY && routing != ROUTE_UNEVEN))
        return (int64_t)(r % (uint64_t)experts);
    const bool is_low = routing == ROUTE_HALF_EMPTY || random_next(state) % 4 != 0;
    return is_low ? (int64_t)(r % (uint64_t)half) : half + (int64_t)(r % (uint64_t)(experts - half));
}

static int64_t choose(const lp_megamoe_shape *shape, problem_routing routing, int64_t token, int64_t j,
                      const int64_t *earlier, uint64_t *state)
{
    const int64_t experts = shape->experts, first = shape->first_expert;
    switch (routing) {
    case ROUTE_HOT:
        return j == 0 ? first : -1;
    case ROUTE_DUPLICATES:
        return first + (j == 0      ? (int64_t)(random_next(state) % (uint64_t)experts)
                        : token % 2 ? earlier[0] - first
                                    : token % experts);
    case ROUTE_ALL_MASKED:
        return -1;
    case ROUTE_OTHER_RANKS: {
        static const int64_t far[] = {-7, INT32_MAX, -1};
        const uint64_t r = random_next(state) % 8;
        return r < 3 ? far[r] : first + (int64_t)(random_next(state) % (uint64_t)(2 * experts)) - experts / 2;
    }
    case ROUTE_MASKED:
        if (random_next(state) % 3 == 0)
            return -1;
        break;
    case ROUTE_UNIFORM:
    case ROUTE_HALF_EMPTY:
    case ROUTE_UNEVEN:
        break;
    }
    for (int64_t attempt = 0;; attempt++) { /* different ones as long as there are some */
        const int64_t id = first + pick(experts, experts / 2, routing, state);
        bool fresh = true;
        for (int64_t i = 0; i < j; i++)
            fresh &= earlier[i] != id;
        if (fresh || attempt > 64)
            return id;
    }
}

void problem_route(moe_problem *p, int64_t tokens, problem_routing routing, int64_t zero_every, uint64_t seed)
{
    const lp_megamoe_shape *const shape = &p->shape;
    const int64_t hidden = shape->hidden, choices = shape->top_k;
    const bool is_bf16 = shape->x_dtype == LP_BF16;
    uint64_t state = seed;
    uint8_t *const x = own(p, tokens * hidden * (is_bf16 ? 2 : 1));
    float *const x_scale = is_bf16 ? NULL : own(p, tokens * (hidden / 128) * 4);
    uint8_t *const x_exponent = (uint8_t *)x_scale; /* of MXFP8, for 32 columns */
    int64_t *const ids = own(p, tokens * choices * 8);
    float *const weight = own(p, tokens * choices * 4);
    for (int64_t t = 0; t < tokens; t++) {
        const bool zero = zero_every > 0 && t % zero_every == 0;
        for (int64_t k = 0; k < hidden; k++) {
            const float v = zero ? 0.0f : (float)normal(&state);
            if (is_bf16)
                ((uint16_t *)(void *)x)[t * hidden + k] = (uint16_t)lp_bf16_code(v);
            else
                x[t * hidden + k] = (uint8_t)lp_e4m3_code(v * 64.0f);
        }
        for (int64_t b = 0; !is_bf16 && shape->format == LP_MXFP8 && b < hidden / 32; b++)
            x_exponent[t * (hidden / 32) + b] = (uint8_t)(120 + random_next(&state) % 3); /* 2^-7 .. 2^-5 */
        for (int64_t b = 0; !is_bf16 && shape->format != LP_MXFP8 && b < hidden / 128; b++)
            x_scale[t * (hidden / 128) + b] = (float)(0.5 + uniform(&state)) / 64.0f;
        for (int64_t j = 0; j < choices; j++) {
            ids[t * choices + j] = choose(shape, routing, t, j, ids + t * choices, &state);
            weight[t * choices + j] = (float)(0.05 + uniform(&state));
        }
    }
    p->input = (reference_input){x, x_scale, ids, weight, tokens};
}

void problem_free(moe_problem *p)
{
    if (p->shared != NULL)
        problem_free(p->shared);
    p->shared = NULL;
    for (int i = 0; i < p->owned_count; i++)
        free(p->owned[i]);
    p->owned_count = 0;
}
