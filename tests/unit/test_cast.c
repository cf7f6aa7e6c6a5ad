/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cast table: which pairs it has; every code of the narrow floats by the definition of the format; every rounding
 * boundary of every narrow float; the stated NaNs. docs/casts.md says the same in words. Integers are in
 * test_cast_integers.c.
 */
#include "cast_testing.h"

/* ---- the table ---- */

static void pairs(void **state)
{
    (void)state;
    static const lp_dtype outside[] = {LP_F4, LP_F6_E2M3, LP_F6_E3M2, LP_C64};
    for (int a = LP_BOOL; a < LP_DTYPE_COUNT; a++) {
        assert_int_equal(lp_cast_kind_of((lp_dtype)a, (lp_dtype)a), LP_CAST_BYTES);
        for (size_t i = 0; i < sizeof outside / sizeof outside[0]; i++)
            if ((lp_dtype)a != outside[i]) {
                uint64_t in = 0, out = 0;
                assert_int_equal(lp_cast_kind_of((lp_dtype)a, outside[i]), LP_CAST_UNSUPPORTED);
                assert_int_equal(lp_cast_kind_of(outside[i], (lp_dtype)a), LP_CAST_UNSUPPORTED);
                assert_int_equal(lp_cast_elements(outside[i], &in, (lp_dtype)a, &out, 1), LP_E_UNSUPPORTED);
            }
        assert_int_equal(lp_cast_kind_of((lp_dtype)a, LP_DTYPE_NONE), LP_CAST_UNSUPPORTED);
        assert_int_equal(lp_cast_kind_of(LP_DTYPE_COUNT, (lp_dtype)a), LP_CAST_UNSUPPORTED);
    }
    static const lp_dtype same_width[][2] = {{LP_U8, LP_I8}, {LP_U16, LP_I16}, {LP_U32, LP_I32}, {LP_U64, LP_I64}};
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(lp_cast_kind_of(same_width[i][0], same_width[i][1]), LP_CAST_BYTES);
        assert_int_equal(lp_cast_kind_of(same_width[i][1], same_width[i][0]), LP_CAST_BYTES);
    }
    assert_int_equal(lp_cast_kind_of(LP_U8, LP_I16), LP_CAST_VALUES);
    assert_int_equal(lp_cast_kind_of(LP_U8, LP_BOOL), LP_CAST_VALUES);
    assert_int_equal(lp_cast_kind_of(LP_BOOL, LP_U8), LP_CAST_VALUES);
    assert_int_equal(lp_cast_kind_of(LP_F16, LP_BF16), LP_CAST_VALUES);
    assert_int_equal(lp_cast_kind_of(LP_F8_E8M0, LP_F32), LP_CAST_VALUES);
    assert_int_equal(lp_cast_kind_of(LP_F8_E4M3, LP_U8), LP_CAST_VALUES);
}

static void arguments(void **state)
{
    (void)state;
    const uint8_t in[2] = {0x21, 0x43};
    uint8_t out[2] = {0xa5, 0xa5};
    assert_int_equal(lp_cast_elements(LP_F4, in, LP_F4, out, 3), LP_E_ARGUMENT); /* a byte and a half */
    assert_int_equal(out[0], 0xa5);
    assert_int_equal(lp_cast_elements(LP_F4, in, LP_F4, out, 4), LP_OK);
    assert_memory_equal(in, out, 2);
    assert_int_equal(lp_cast_elements(LP_U8, in, LP_F32, out, 0), LP_OK);
    assert_int_equal(lp_cast_elements(LP_U8, in, LP_F32, out, -1), LP_E_ARGUMENT);
    assert_int_equal(lp_cast_elements(LP_U8, in, LP_F64, out, INT64_MAX / 8), LP_E_ARGUMENT);
}

/* ---- narrow floats ---- */

/* The formats as their definitions state them. */
typedef struct format {
    lp_dtype dtype;
    int exponent_bits, mantissa_bits, bias;
    enum { IEEE, FN, FNUZ } specials;
    uint32_t largest; /* code */
} format;

static const format formats[] = {
    {LP_F16, 5, 10, 15, IEEE, 0x7bff}, {LP_BF16, 8, 7, 127, IEEE, 0x7f7f},     {LP_F8_E5M2, 5, 2, 15, IEEE, 0x7b},
    {LP_F8_E4M3, 4, 3, 7, FN, 0x7e},   {LP_F8_E5M2FNUZ, 5, 2, 16, FNUZ, 0x7f}, {LP_F8_E4M3FNUZ, 4, 3, 8, FNUZ, 0x7f},
};
enum { FORMATS = sizeof formats / sizeof formats[0] };

static uint32_t sign_of(const format *f)
{
    return 1u << (f->exponent_bits + f->mantissa_bits);
}

/* Value of a positive finite code: one formula for normal and subnormal numbers. */
static double value_of(const format *f, uint32_t code)
{
    const int field = (int)(code >> f->mantissa_bits), mantissa = (int)(code & ((1u << f->mantissa_bits) - 1));
    const int whole = (field > 0 ? 1 << f->mantissa_bits : 0) + mantissa;
    return ldexp(whole, (field > 0 ? field : 1) - f->bias - f->mantissa_bits);
}

static bool is_nan_code(const format *f, uint32_t code)
{
    if (f->specials == FNUZ)
        return code == sign_of(f);
    const uint32_t magnitude = code & (sign_of(f) - 1);
    return f->specials == FN ? magnitude == 0x7f : magnitude > f->largest + 1;
}

static void every_code_has_its_value(void **state)
{
    (void)state;
    for (int n = 0; n < FORMATS; n++) {
        const format *const f = &formats[n];
        for (uint32_t code = 0; code < 2 * sign_of(f); code++) {
            const uint32_t bits = cast_to_f32_bits(f->dtype, code), magnitude = code & (sign_of(f) - 1);
            if (is_nan_code(f, code)) {
                assert_true(isnan(f32_of(bits)));
                continue;
            }
            const double value = magnitude > f->largest ? (double)INFINITY : value_of(f, magnitude);
            const float signed_value = (float)(code & sign_of(f) ? -value : value);
            if (bits != f32_bits(signed_value))
                fail_msg("%s code %#x is %#x as F32, not %#x", lp_dtype_name(f->dtype), code, bits,
                         f32_bits(signed_value));
            double wide;
            assert_int_equal(lp_cast_elements(f->dtype, &code, LP_F64, &wide, 1), LP_OK);
            assert_true(wide == (double)signed_value);
        }
    }
}

static void every_code_survives_a_round_trip(void **state)
{
    (void)state;
    for (int n = 0; n < FORMATS; n++) {
        const format *const f = &formats[n];
        for (uint32_t code = 0; code < 2 * sign_of(f); code++) {
            const uint32_t bits = cast_to_f32_bits(f->dtype, code), back = cast_from_f32(f->dtype, f32_of(bits));
            if (is_nan_code(f, code))
                assert_true(is_nan_code(f, back));
            else
                assert_int_equal(back, code);
        }
    }
}

/* What a value beyond the largest becomes. */
static uint32_t overflow_code(const format *f)
{
    return f->specials == IEEE ? f->largest + 1 : f->specials == FN ? 0x7f : sign_of(f);
}

static uint32_t with_sign(const format *f, uint32_t code)
{
    return f->specials == FNUZ && (code == 0 || code == sign_of(f)) ? code : code | sign_of(f);
}

/* Between each pair of neighbours: just below the middle, the middle (to the even code), just above it. */
static void every_boundary_rounds_to_nearest_even(void **state)
{
    (void)state;
    for (int n = 0; n < FORMATS; n++) {
        const format *const f = &formats[n];
        for (uint32_t code = 0; code <= f->largest; code++) {
            const double low = value_of(f, code);
            const double step = code < f->largest ? value_of(f, code + 1) - low : low - value_of(f, code - 1);
            const uint32_t next = code < f->largest ? code + 1 : overflow_code(f);
            const float middle = (float)(low + step / 2);
            assert_true((double)middle == low + step / 2);
            /* the code above the largest would be even when the largest is odd */
            const uint32_t even = code % 2 == 0 ? code : next;
            const struct {
                float value;
                uint32_t code;
            } tests[] = {{(float)low, code},
                         {nextafterf(middle, 0), code},
                         {middle, even},
                         {nextafterf(middle, INFINITY), next}};
            for (size_t i = 0; i < 4; i++) {
                const uint32_t up = cast_from_f32(f->dtype, tests[i].value);
                const uint32_t down = cast_from_f32(f->dtype, -tests[i].value);
                if (up != tests[i].code || down != with_sign(f, tests[i].code))
                    fail_msg("%s: %a becomes %#x, not %#x (negative: %#x, not %#x)", lp_dtype_name(f->dtype),
                             (double)tests[i].value, up, tests[i].code, down, with_sign(f, tests[i].code));
            }
        }
    }
}

static void specials_of_narrow_floats(void **state)
{
    (void)state;
    static const struct {
        lp_dtype dtype;
        uint32_t infinity, minus_infinity, huge, nan, minus_nan, minus_zero, tiny, minus_tiny;
    } rows[] = {
        {LP_F16, 0x7c00, 0xfc00, 0x7c00, 0x7e00, 0xfe00, 0x8000, 0, 0x8000},
        {LP_BF16, 0x7f80, 0xff80, 0x7f80, 0x7fc0, 0xffc0, 0x8000, 0, 0x8000},
        {LP_F8_E5M2, 0x7c, 0xfc, 0x7c, 0x7f, 0xff, 0x80, 0, 0x80},
        {LP_F8_E4M3, 0x7f, 0xff, 0x7f, 0x7f, 0xff, 0x80, 0, 0x80},
        {LP_F8_E5M2FNUZ, 0x80, 0x80, 0x80, 0x80, 0x80, 0, 0, 0},
        {LP_F8_E4M3FNUZ, 0x80, 0x80, 0x80, 0x80, 0x80, 0, 0, 0},
        {LP_F8_E8M0, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0, 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const lp_dtype d = rows[i].dtype;
        assert_int_equal(cast_from_f32(d, INFINITY), rows[i].infinity);
        assert_int_equal(cast_from_f32(d, -INFINITY), rows[i].minus_infinity);
        assert_int_equal(cast_from_f32(d, FLT_MAX), rows[i].huge);
        assert_int_equal(cast_from_f32(d, f32_of(0x7fc00000u)), rows[i].nan);
        assert_int_equal(cast_from_f32(d, f32_of(0xffc12345u)), rows[i].minus_nan);
        assert_int_equal(cast_from_f32(d, f32_of(0x7f800001u)), rows[i].nan);
        assert_int_equal(cast_from_f32(d, -0.0f), rows[i].minus_zero);
        assert_int_equal(cast_from_f32(d, f32_of(1)), rows[i].tiny);
        assert_int_equal(cast_from_f32(d, -f32_of(1)), rows[i].minus_tiny);
    }
}

static void nans_become_quiet_and_keep_sign_and_payload(void **state)
{
    (void)state;
    assert_int_equal(cast_to_f32_bits(LP_F16, 0x7e00), 0x7fc00000u);
    assert_int_equal(cast_to_f32_bits(LP_F16, 0xfd55), 0xffeaa000u);
    assert_int_equal(cast_to_f32_bits(LP_BF16, 0x7f81), 0x7f810000u); /* 16 zero bits, nothing else */
    assert_int_equal(cast_to_f32_bits(LP_BF16, 0xffc1), 0xffc10000u);
    assert_int_equal(cast_to_f32_bits(LP_F8_E5M2, 0x7d), 0x7fe00000u);
    assert_int_equal(cast_to_f32_bits(LP_F8_E5M2, 0xfe), 0xffc00000u);
    assert_int_equal(cast_to_f32_bits(LP_F8_E4M3, 0x7f), 0x7ff00000u);
    assert_int_equal(cast_to_f32_bits(LP_F8_E4M3, 0xff), 0xfff00000u);
    assert_int_equal(cast_to_f32_bits(LP_F8_E4M3FNUZ, 0x80), 0x7fc00000u);
    assert_int_equal(cast_to_f32_bits(LP_F8_E5M2FNUZ, 0x80), 0x7fc00000u);
    assert_int_equal(cast_to_f32_bits(LP_F8_E8M0, 0xff), 0x7fc00000u);
    const uint64_t wide = UINT64_C(0xfff0000020000001);
    uint32_t narrow;
    assert_int_equal(lp_cast_elements(LP_F64, &wide, LP_F32, &narrow, 1), LP_OK);
    assert_int_equal(narrow, 0xffc00001u);
    const uint32_t signalling = 0x7f800001u;
    uint64_t quiet;
    assert_int_equal(lp_cast_elements(LP_F32, &signalling, LP_F64, &quiet, 1), LP_OK);
    assert_true(quiet == UINT64_C(0x7ff8000020000000));
}

static void e8m0(void **state)
{
    (void)state;
    for (uint32_t code = 0; code < 255; code++) {
        const float value = ldexpf(1, (int)code - 127);
        assert_int_equal(cast_to_f32_bits(LP_F8_E8M0, code), f32_bits(value));
        assert_int_equal(cast_from_f32(LP_F8_E8M0, value), code);
        assert_int_equal(cast_from_f32(LP_F8_E8M0, -value), code); /* the sign is ignored */
        if (code > 0) {
            assert_int_equal(cast_from_f32(LP_F8_E8M0, 1.5f * value), code + 1); /* ties go up */
            assert_int_equal(cast_from_f32(LP_F8_E8M0, nextafterf(1.5f * value, 0)), code);
        }
    }
    assert_int_equal(cast_from_f32(LP_F8_E8M0, nextafterf(ldexpf(1, -127), 1)), 1);
    assert_int_equal(cast_from_f32(LP_F8_E8M0, 0), 0);
    assert_int_equal(cast_from_f32(LP_F8_E8M0, ldexpf(1, -149)), 0);
}

/* F64 goes through F32: the first value would round up in one step, and rounds to even in two. */
static void f64_rounds_twice(void **state)
{
    (void)state;
    const double value = 1 + ldexp(1, -8) + ldexp(1, -40);
    uint16_t code;
    assert_int_equal(lp_cast_elements(LP_F64, &value, LP_BF16, &code, 1), LP_OK);
    assert_int_equal(code, 0x3f80);
    const double huge = 1e300, third = 1.0 / 3;
    float narrow;
    assert_int_equal(lp_cast_elements(LP_F64, &huge, LP_F32, &narrow, 1), LP_OK);
    assert_int_equal(f32_bits(narrow), 0x7f800000u);
    assert_int_equal(lp_cast_elements(LP_F64, &third, LP_F32, &narrow, 1), LP_OK);
    assert_int_equal(f32_bits(narrow), 0x3eaaaaabu);
    const int64_t big = (INT64_C(1) << 40) + (INT64_C(1) << 32) + 1; /* the same, from an integer */
    assert_int_equal(lp_cast_elements(LP_I64, &big, LP_BF16, &code, 1), LP_OK);
    assert_int_equal(code, 0x5380);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pairs),
        cmocka_unit_test(arguments),
        cmocka_unit_test(every_code_has_its_value),
        cmocka_unit_test(every_code_survives_a_round_trip),
        cmocka_unit_test(every_boundary_rounds_to_nearest_even),
        cmocka_unit_test(specials_of_narrow_floats),
        cmocka_unit_test(nans_become_quiet_and_keep_sign_and_payload),
        cmocka_unit_test(e8m0),
        cmocka_unit_test(f64_rounds_twice),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
