/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The MegaMoE reference on cases that can be worked out by hand: weights of every format, quantisation, activations,
 * one token through both projections, masks, duplicates, alphas, and the judging of results.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "kernels/number_formats.h"
#include "tests/gpu/megamoe_problem.h"
#include "tests/gpu/megamoe_reference.h"

#include <math.h>
#include <stdlib.h>

enum { H = 128, I = 128 };

#define assert_near(a, b, relative) assert_true(fabs((a) - (b)) <= (relative)*fabs(b))

static void weights_of_each_format(void **state)
{
    (void)state;
    double out[128];
    uint8_t codes[2 * 128] = {0}, scales[2 * 8] = {0};
    /* Row 1: codes 2 (1.0) and 15 (-6) in the first byte, scale 2^3 for columns 0..31 and 2^-1 for 32..63. */
    codes[64] = 0xf2;
    codes[64 + 16] = 0x07;
    scales[4] = 130;
    scales[5] = 126;
    reference_row(LP_MXFP4, codes, scales, 2, 128, 0, 1, out);
    assert_true(out[0] == 8.0 && out[1] == -48.0 && out[2] == 0.0 && out[32] == 3.0 && out[33] == 0.0);
    /* UE4M3 0x38 is 1, 0x01 is 2^-9; one scale for 16 columns. */
    scales[8] = 0x38;
    scales[8 + 2] = 0x01;
    reference_row(LP_NVFP4, codes, scales, 2, 128, 0, 1, out);
    assert_true(out[0] == 1.0 && out[1] == -6.0 && out[32] == 6.0 * 0x1p-9);
    uint8_t bytes[128] = {0x38, 0xb8, [32] = 0x7e};
    const uint8_t exponents[4] = {128, 120, 127, 127};
    reference_row(LP_MXFP8, bytes, exponents, 1, 128, 0, 0, out);
    assert_true(out[0] == 2.0 && out[1] == -2.0 && out[32] == 448.0 * 0x1p-7);
    const float block = 0.375f;
    reference_row(LP_FP8_BLOCK128, bytes, &block, 128, 128, 0, 0, out);
    assert_true(out[0] == 0.375 && out[32] == 168.0);
    const uint16_t halves[128] = {0x3f80, 0xc000};
    reference_row(LP_MOE_BF16, halves, NULL, 1, 128, 0, 0, out);
    assert_true(out[0] == 1.0 && out[1] == -2.0 && out[2] == 0.0);
}

static void quantisation(void **state)
{
    (void)state;
    float in[256] = {448.0f, 17.0f, -17.0f, 0.3f, [128] = 0.0f};
    double out[256];
    reference_quantise_e4m3(in, 256, out);
    /* Scale 1: 17 is halfway between 16 and 18 and goes to the even code. The second block is zero. */
    assert_true(out[0] == 448.0 && out[1] == 16.0 && out[2] == -16.0 && out[3] == 0.3125);
    for (int i = 128; i < 256; i++)
        assert_true(out[i] == 0.0);
    in[0] = 896.0f; /* scale 2 */
    reference_quantise_e4m3(in, 128, out);
    assert_true(out[0] == 896.0 && out[1] == 17.0 - 1.0);
    /* Powers of two for 32 columns: 448 * 2 fits 2^1, a little more wants 2^2; nothing but 0 has the least of all. */
    in[32] = 897.0f, in[33] = 3.0f, in[64] = 0.0f;
    reference_quantise_mx(in, 128, 0.0f, out);
    assert_true(out[0] == 896.0 && out[1] == 16.0 && out[32] == 896.0 && out[33] == 3.0 && out[64] == 0.0);
    in[32] = 1e-6f, in[33] = 0.0f;
    reference_quantise_mx(in, 128, 1e-4f, out); /* 2^-22 is above 1e-4 / 448: 1e-6 is 4.19 of it */
    assert_true(out[32] == 0x1p-20);
}

static void activations(void **state)
{
    (void)state;
    lp_megamoe_shape s = {.activation = LP_MOE_SWIGLU};
    assert_near(reference_activation(&s, 1.0, 2.0), 2.0 * 0.7310585786300049, 1e-15);
    assert_near(reference_activation(&s, -1.0, 1.0), -0.2689414213699951, 1e-15);
    s.activation_limit = 1.0f;
    assert_near(reference_activation(&s, 5.0, -3.0), -0.7310585786300049, 1e-15);
    assert_near(reference_activation(&s, -5.0, 1.0), -5.0 / (1.0 + exp(5.0)), 1e-15); /* gate is not clamped below */
    s.activation_alpha = 2.0f;
    s.activation_beta = 1.0f;
    s.activation_limit = 0.0f;
    assert_near(reference_activation(&s, 0.5, 2.0), 0.5 * 0.7310585786300049 * 3.0, 1e-15);
    s.activation = LP_MOE_SITU;
    assert_near(reference_activation(&s, 1.0, 0.5), 2 * tanh(0.5) * 0.7310585786300049 * tanh(0.5), 1e-15);
    s = (lp_megamoe_shape){.activation = LP_MOE_SWIGLU_STEP, .activation_limit = 0.5f};
    assert_near(reference_activation(&s, 1.0, 0.25), 0.5 * 0.25, 1e-15);
    s.activation = LP_MOE_SWIGLU;
    assert_true(isnan(reference_activation(&s, (double)NAN, 1.0)) && isnan(reference_activation(&s, 1.0, (double)NAN)));
}

/* One expert whose only weights are gate[c][0], up[c][0] and down[r][c] for c = 5, r = 7. */
typedef struct sparse {
    uint16_t gate[I * H], up[I * H], down[H * I], x[2 * H];
    int64_t ids[4];
    float weight[4];
    double rounded[2 * H], exact[2 * H];
} sparse;

static void one_token(void **state)
{
    (void)state;
    sparse *const p = calloc(1, sizeof *p);
    assert_non_null(p);
    p->gate[5 * H] = 0x4000; /* 2 */
    p->up[5 * H] = 0x3fc0;   /* 1.5 */
    p->down[7 * I + 5] = 0x3f80;
    p->x[0] = 0x3f80;
    p->ids[0] = 3, p->ids[1] = -1; /* first_expert 3: local expert 0 */
    p->weight[0] = 0.5f, p->weight[1] = 100.0f;
    lp_megamoe_shape s = {.experts = 1,
                          .hidden = H,
                          .intermediate = I,
                          .top_k = 2,
                          .first_expert = 3,
                          .format = LP_MOE_BF16,
                          .x_dtype = LP_BF16};
    const reference_weights w = {.gate = p->gate, .up = p->up, .down = p->down};
    const reference_input in = {p->x, NULL, p->ids, p->weight, 2};
    const double h = 2.0 / (1.0 + exp(-2.0)) * 1.5 * 0.5; /* 1.3212.. */
    reference_token(&s, &w, &in, 0, p->rounded, p->exact);
    assert_near(p->exact[7], h, 1e-15);
    assert_true(p->rounded[7] == 169.0 / 128.0); /* eight bits: 1.3203125 */
    for (int r = 0; r < H; r++)
        assert_true(r == 7 || (p->rounded[r] == 0.0 && p->exact[r] == 0.0));

    p->ids[1] = 3; /* the same expert twice: both are added */
    p->weight[1] = 0.5f;
    reference_token(&s, &w, &in, 0, p->rounded, p->exact);
    assert_true(p->rounded[7] == 2 * 169.0 / 128.0);
    p->ids[0] = 2, p->ids[1] = 4; /* other ranks */
    reference_token(&s, &w, &in, 0, p->rounded, p->exact);
    assert_true(p->rounded[7] == 0.0 && p->exact[7] == 0.0);

    const int64_t both[2] = {0, 1};
    p->ids[0] = 3, p->ids[1] = -1;
    reference_tokens(&s, &w, &in, both, 2, 2, p->rounded, p->exact);
    assert_true(p->rounded[7] == 169.0 / 128.0 && p->rounded[H + 7] == 0.0);
    free(p);
}

/* FP8: x is quantised, h is quantised after the router weight. */
static void quantised_token(void **state)
{
    (void)state;
    uint8_t *const w = calloc(3, H * I);
    assert_non_null(w);
    w[1 * H] = 0x38;                 /* gate[1][0] = 1 */
    w[I * H + 1 * H] = 0x38;         /* up[1][0] = 1 */
    w[2 * I * H + 0 * I + 1] = 0x38; /* down[0][1] = 1 */
    const float scale[3] = {2.0f, 1.0f, 4.0f};
    uint16_t x[H] = {0x3f80, 0x3f71}; /* 1 and 0.94140625: 448 / 1 * 0.9414 = 421.75 goes to 416 */
    const int64_t id = 0;
    const float weight = 0.25f;
    const lp_megamoe_shape s = {
        .experts = 1, .hidden = H, .intermediate = I, .top_k = 1, .format = LP_FP8_BLOCK128, .x_dtype = LP_BF16};
    const reference_weights all = {w,    w + I * H, w + 2 * I * H, &scale[0], &scale[1], &scale[2],
                                   NULL, NULL,      NULL,          0,         NULL};
    const reference_input in = {x, NULL, &id, &weight, 1};
    double rounded[H], exact[H];
    reference_token(&s, &all, &in, 0, rounded, exact);
    const double h = 2.0 / (1.0 + exp(-2.0)) * 1.0 * 0.25; /* the block's largest: its code is 448, nothing is lost */
    assert_near(exact[0], 4 * h, 1e-12);
    assert_near(rounded[0], 4 * h, 0x1p-8);
    w[1 * H] = 0;
    w[1 * H + 1] = 0x38; /* gate reads the other column */
    reference_token(&s, &all, &in, 0, rounded, exact);
    const double g = 2.0 * 416.0 / 448.0;
    assert_near(rounded[0], 4 * g / (1.0 + exp(-g)) * 0.25, 0x1p-8);
    assert_near(exact[0], 4 * 1.8828125 / (1.0 + exp(-1.8828125)) * 0.25, 1e-9);
    free(w);
}

static void alphas(void **state)
{
    (void)state;
    uint8_t *const codes = calloc(3, H * I / 2), *const scales = calloc(3, H * I / 16);
    assert_non_null(codes);
    assert_non_null(scales);
    codes[0] = codes[I * H / 2] = codes[2 * I * H / 2] = 0x02; /* 1 at row 0, column 0 of all three */
    scales[0] = scales[I * H / 16] = scales[2 * I * H / 16] = 0x38;
    const uint16_t x[H] = {0x3f80};
    const int64_t id = 0;
    const float weight = 3.0f, l1[2] = {2.0f, 0.5f}, l2 = 8.0f, activation = 2.0f;
    const lp_megamoe_shape s = {
        .experts = 1, .hidden = H, .intermediate = I, .top_k = 1, .format = LP_NVFP4, .x_dtype = LP_BF16};
    const reference_weights all = {codes,
                                   codes + I * H / 2,
                                   codes + I * H,
                                   scales,
                                   scales + I * H / 16,
                                   scales + I * H / 8,
                                   l1,
                                   &l2,
                                   &activation,
                                   2,
                                   NULL};
    const reference_input in = {x, NULL, &id, &weight, 1};
    double rounded[H], exact[H];
    reference_token(&s, &all, &in, 0, rounded, exact);
    const double h = 2.0 / (1.0 + exp(-2.0)) * 0.5;
    assert_near(exact[0], h * 4.0 * 3.0, 1e-14);
    const double stored = (double)lp_bf16_value(lp_bf16_code((float)h));
    assert_true(rounded[0] == (double)lp_bf16_value(lp_bf16_code(3.0f * (float)(stored * 4.0))));
    free(codes);
    free(scales);
}

static void judging(void **state)
{
    (void)state;
    const uint16_t got[4] = {0x3f80, 0x7fc0, 0x4000, 0x0000};
    const int64_t token[2] = {0, 1};
    const double same[4] = {1, (double)NAN, 2, 0}, other[4] = {1, 2, 2, 0}, off[4] = {1, (double)NAN, 2, 0.2};
    reference_error e = reference_compare(got, same, token, 2, 2);
    assert_true(e.relative == 0 && e.worst_row == 0 && e.wrong_nan == 0);
    e = reference_compare(got, other, token, 2, 2);
    assert_int_equal(e.wrong_nan, 1);
    e = reference_compare(got, off, token, 2, 2);
    assert_near(e.worst_row, 0.2 / sqrt(4.04), 1e-12);
    assert_near(e.relative, 0.2 / sqrt(5.04), 1e-12);
    assert_int_equal(e.worst_token, 1);
}

/* The problems that the GPU tests run: every layout can be made, and undone to what it was made of. */
static void problems(void **state)
{
    (void)state;
    lp_error err;
    for (int format = LP_MXFP4; format <= LP_MOE_BF16; format++)
        for (int32_t n = 0; lp_megamoe_layout((lp_moe_format)format, LP_MOE_L1_WEIGHT, n) != NULL; n++) {
            const lp_megamoe_shape s = {.size = sizeof s,
                                        .experts = 2,
                                        .hidden = 512,
                                        .intermediate = 256,
                                        .top_k = 2,
                                        .max_tokens = 4,
                                        .format = (lp_moe_format)format,
                                        .x_dtype = LP_BF16,
                                        .id_dtype = LP_I64};
            const lp_layout_sizes sizes = {2, 512, 256};
            moe_problem p;
            assert_int_equal(problem_make(&p, &s, n, SCALES_EDGE, 1, &err), LP_OK);
            const int64_t bytes = problem_code_bytes(s.format, 256 * 512);
            uint8_t *const back = malloc((size_t)bytes);
            assert_non_null(back);
            assert_int_equal(lp_layout_undo(lp_layout_find(p.layout[LP_MOE_L1_WEIGHT]), &sizes, LP_SHARD_UP, 1,
                                            p.packed[LP_MOE_L1_WEIGHT], back, NULL, &err),
                             LP_OK);
            assert_memory_equal(back, (const uint8_t *)p.weights.up + bytes, (size_t)bytes);
            free(back);
            problem_route(&p, 3, ROUTE_OTHER_RANKS, 2, 5);
            assert_int_equal(p.input.tokens, 3);
            problem_free(&p);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(weights_of_each_format),
        cmocka_unit_test(quantisation),
        cmocka_unit_test(activations),
        cmocka_unit_test(one_token),
        cmocka_unit_test(quantised_token),
        cmocka_unit_test(alphas),
        cmocka_unit_test(judging),
        cmocka_unit_test(problems),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
