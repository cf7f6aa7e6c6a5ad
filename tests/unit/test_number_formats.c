/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Number formats of the kernels: every code by the definition of its format; every rounding boundary with its
 * neighbours and the tie itself; saturation, NaN, -0; scales rounded up to powers of two. Narrowing is monotonic, so
 * that the boundaries decide every input.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "kernels/number_formats.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct format {
    const char *name;
    int mantissa, bias, sign_bit; /* sign_bit: position */
    uint32_t largest;             /* finite code */
    float (*value)(uint32_t);
    uint32_t (*code)(float);
} format;

static const format formats[] = {
    {"e2m1", 1, 1, 3, 0x7, lp_e2m1_value, lp_e2m1_code},
    {"e4m3", 3, 7, 7, 0x7e, lp_e4m3_value, lp_e4m3_code},
    {"e5m2", 2, 15, 7, 0x7b, lp_e5m2_value, lp_e5m2_code},
    {"bf16", 7, 127, 15, 0x7f7f, lp_bf16_value, lp_bf16_code},
};
enum { FORMATS = sizeof formats / sizeof formats[0] };

static double by_definition(const format *f, uint32_t code)
{
    const uint32_t magnitude = code & ((1u << f->sign_bit) - 1), field = magnitude >> f->mantissa;
    const double fraction = ldexp((double)(magnitude & ((1u << f->mantissa) - 1)), -f->mantissa);
    const double v = field ? ldexp(1 + fraction, (int)field - f->bias) : ldexp(fraction, 1 - f->bias);
    return code >> f->sign_bit & 1 ? -v : v;
}

static void every_code(void **state)
{
    (void)state;
    for (int i = 0; i < FORMATS; i++) {
        const format *f = &formats[i];
        for (uint32_t magnitude = 0; magnitude <= f->largest; magnitude++)
            for (uint32_t sign = 0; sign < 2; sign++) {
                const uint32_t code = magnitude | sign << f->sign_bit;
                const float v = f->value(code);
                assert_true((double)v == by_definition(f, code));
                assert_int_equal(signbit(v) != 0, sign);
                const uint32_t back = f->sign_bit == 3 && magnitude == 0 ? 0 : code; /* E2M1 gives +0 only */
                assert_int_equal(f->code(v), back);
            }
    }
    assert_true(isnan(lp_e4m3_value(0x7f)) && isnan(lp_e4m3_value(0xff)));
    assert_true(isinf(lp_e5m2_value(0x7c)) && isinf(lp_e5m2_value(0xfc)) && isnan(lp_e5m2_value(0x7d)));
    assert_true(isinf(lp_bf16_value(0xff80)) && isnan(lp_bf16_value(0x7fc0)));
    for (uint32_t code = 0; code < 255; code++) {
        assert_true((double)lp_ue8m0_value(code) == ldexp(1, (int)code - 127));
        assert_int_equal(lp_ue8m0_code_above(lp_ue8m0_value(code)), code);
    }
    assert_true(isnan(lp_ue8m0_value(255)));
}

static void every_boundary(void **state)
{
    (void)state;
    for (int i = 0; i < FORMATS; i++) {
        const format *f = &formats[i];
        for (uint32_t low = 0; low < f->largest; low++)
            for (uint32_t sign = 0; sign < 2; sign++) {
                const double a = by_definition(f, low), b = by_definition(f, low + 1), middle = a + (b - a) / 2;
                const float tie = (float)middle;
                assert_true((double)tie == middle);
                const uint32_t s = sign << f->sign_bit, even = low & 1 ? low + 1 : low;
                const float flip = sign ? -1.0f : 1.0f;
                const uint32_t below = low == 0 && f->sign_bit == 3 ? 0 : low | s;
                const uint32_t at_tie = even == 0 && f->sign_bit == 3 ? 0 : even | s;
                assert_int_equal(f->code(flip * tie), at_tie);
                assert_int_equal(f->code(flip * nextafterf(tie, 0)), below);
                assert_int_equal(f->code(flip * nextafterf(tie, INFINITY)), (low + 1) | s);
            }
    }
}

static void saturation_and_nan(void **state)
{
    (void)state;
    for (int i = 0; i < FORMATS; i++) {
        const format *f = &formats[i];
        const uint32_t sign = 1u << f->sign_bit;
        const int is_bf16 = f->sign_bit == 15;
        assert_int_equal(f->code(INFINITY), is_bf16 ? 0x7f80 : f->largest);
        assert_int_equal(f->code(-INFINITY), (is_bf16 ? 0x7f80 : f->largest) | sign);
        assert_int_equal(f->code(FLT_MAX), is_bf16 ? 0x7f80 : f->largest);
        if (!is_bf16)
            assert_int_equal(f->code(-1e6f), f->largest | sign);
        if (f->sign_bit > 3)
            assert_true(isnan(f->value(f->code(NAN))) && isnan(f->value(f->code(-NAN))));
        else
            assert_int_equal(f->code(NAN) & 7u, 7);
        assert_int_equal(f->code(0.0f), 0);
        assert_int_equal(f->code(-0.0f), f->sign_bit > 3 ? sign : 0);
        assert_int_equal(f->code(FLT_TRUE_MIN), 0);
    }
    assert_int_equal(lp_e4m3_code(448.0f), 0x7e);
    assert_int_equal(lp_e4m3_code(480.0f), 0x7e);
    assert_int_equal(lp_ue4m3_code(-1.0f), 0);
    assert_int_equal(lp_ue4m3_code(-0.0f), 0);
    assert_int_equal(lp_ue4m3_code(1.0f), 0x38);
    assert_int_equal(lp_ue4m3_code(1000.0f), 0x7e);
    assert_int_equal(lp_ue4m3_code(ldexpf(1, -9)), 1);
}

/* The boundaries that FP4 quantisers write out: 0.25, 1.25, 2.5 and 5 go down on a tie, 0.75, 1.75 and 3.5 up. */
static void e2m1_ties(void **state)
{
    (void)state;
    static const struct {
        float value;
        uint32_t code;
    } tie[] = {{0.25f, 0}, {0.75f, 2}, {1.25f, 2}, {1.75f, 4}, {2.5f, 4}, {3.5f, 6}, {5.0f, 6}, {7.0f, 7}};
    for (size_t i = 0; i < sizeof tie / sizeof tie[0]; i++)
        assert_int_equal(lp_e2m1_code(tie[i].value), tie[i].code);
}

static void scales_rounded_up(void **state)
{
    (void)state;
    for (int e = -126; e < 127; e++) {
        const float p = ldexpf(1, e);
        assert_int_equal(lp_ue8m0_code_above(p), e + 127);
        assert_int_equal(lp_ue8m0_code_above(nextafterf(p, INFINITY)), e + 128);
        assert_int_equal(lp_ue8m0_code_above(nextafterf(p, 0)), e + 127);
    }
    assert_int_equal(lp_ue8m0_code_above(0.0f), 0);
    assert_int_equal(lp_ue8m0_code_above(-0.0f), 0);
    assert_int_equal(lp_ue8m0_code_above(-3.0f), 0);
    assert_int_equal(lp_ue8m0_code_above(-INFINITY), 0);
    assert_int_equal(lp_ue8m0_code_above(FLT_TRUE_MIN), 0);
    assert_int_equal(lp_ue8m0_code_above(ldexpf(1, -127)), 0);
    assert_int_equal(lp_ue8m0_code_above(nextafterf(ldexpf(1, -127), 1)), 1);
    assert_int_equal(lp_ue8m0_code_above(ldexpf(1, 127)), 254);
    assert_int_equal(lp_ue8m0_code_above(FLT_MAX), 255);
    assert_int_equal(lp_ue8m0_code_above(INFINITY), 255);
    assert_int_equal(lp_ue8m0_code_above(NAN), 255);
}

/* LOADPLAN_FORMAT_STEP=1 takes all 2^32 floats (some minutes); the default a share of them. */
static uint32_t step_between_inputs(void)
{
    const char *const text = getenv("LOADPLAN_FORMAT_STEP");
    const long step = text == NULL ? 2003 : strtol(text, NULL, 10);
    return step > 0 && step < 1 << 24 ? (uint32_t)step : 1;
}

static float positive(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

/* From 0 up to infinity, with the nearest code going along: nothing is computed from the input's bits. */
static void every_input(void **state)
{
    (void)state;
    const uint32_t step = step_between_inputs(), infinity = 0x7f800000u;
    for (int i = 0; i < FORMATS; i++) {
        const format *f = &formats[i];
        const uint32_t sign = 1u << f->sign_bit, top = f->largest, beyond = f->sign_bit == 15 ? 0x7f80 : top;
        const double overflow = by_definition(f, top) + (by_definition(f, top) - by_definition(f, top - 1)) / 2;
        uint32_t code = 0;
        double middle = by_definition(f, 1) / 2;
        for (uint32_t bits = 0; bits < infinity; bits += step) {
            const float value = positive(bits);
            while (code < top && ((double)value > middle || ((double)value == middle && code % 2 == 1))) {
                code++;
                middle = by_definition(f, code) + (by_definition(f, code + 1) - by_definition(f, code)) / 2;
            }
            const uint32_t wanted = code == top && (double)value >= overflow ? beyond : code;
            if (f->code(value) != wanted)
                fail_msg("%s: %a gives %02x, not %02x", f->name, (double)value, f->code(value), wanted);
            if (f->code(-value) != (wanted == 0 && f->sign_bit == 3 ? 0 : wanted | sign))
                fail_msg("%s: %a gives %02x", f->name, (double)-value, f->code(-value));
        }
        for (uint32_t bits = infinity + 1; bits < 0x80000000u; bits += step)
            if (f->sign_bit > 3 ? !isnan(f->value(f->code(positive(bits)))) : f->code(positive(bits)) % 8 != 7)
                fail_msg("%s: NaN of bits %08x gives %02x", f->name, bits, f->code(positive(bits)));
    }
    uint32_t code = 0; /* the least power of two that is not below */
    for (uint32_t bits = 0; bits < infinity; bits += step) {
        const float value = positive(bits);
        while (code < 255 && (double)value > ldexp(1, (int)code - 127))
            code++;
        if (lp_ue8m0_code_above(value) != code)
            fail_msg("ue8m0: %a gives %02x, not %02x", (double)value, lp_ue8m0_code_above(value), code);
    }
}

/* UE4M3 is E4M3 of what is positive, and 0 of what is not. */
static void every_unsigned_input(void **state)
{
    (void)state;
    const uint32_t step = step_between_inputs();
    for (uint32_t bits = 0; bits < 0x7f800000u; bits += step) {
        assert_int_equal(lp_ue4m3_code(positive(bits)), lp_e4m3_code(positive(bits)));
        assert_int_equal(lp_ue4m3_code(-positive(bits)), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_code),           cmocka_unit_test(every_boundary),
        cmocka_unit_test(saturation_and_nan),   cmocka_unit_test(e2m1_ties),
        cmocka_unit_test(scales_rounded_up),    cmocka_unit_test(every_input),
        cmocka_unit_test(every_unsigned_input),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
