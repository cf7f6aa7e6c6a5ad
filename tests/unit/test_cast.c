/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cast table: which pairs it has; every code of the narrow floats by the definition of the format; every rounding
 * boundary of every narrow float; integers at their limits; the stated NaNs. docs/casts.md says the same in words.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "traces/trace.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static uint32_t f32_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static float f32_of(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static uint32_t cast_to_f32_bits(lp_dtype from, uint32_t code)
{
    uint32_t out = 0xa5a5a5a5u;
    assert_int_equal(lp_cast_elements(from, &code, LP_F32, &out, 1), LP_OK);
    return out;
}

static uint32_t cast_from_f32(lp_dtype to, float value)
{
    uint32_t out = 0;
    assert_int_equal(lp_cast_elements(LP_F32, &value, to, &out, 1), LP_OK);
    return out;
}

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

/* ---- integers ---- */

static int64_t as_i64(lp_dtype to, const void *data)
{
    int64_t out = 0;
    if (to == LP_I64 || to == LP_U64)
        memcpy(&out, data, sizeof out);
    else
        assert_int_equal(lp_cast_elements(to, data, LP_I64, &out, 1), LP_OK);
    return out;
}

static void reals_truncate_and_saturate(void **state)
{
    (void)state;
    static const struct {
        double value;
        lp_dtype to;
        int64_t result;
    } cases[] = {
        {1.9, LP_I8, 1},
        {-1.9, LP_I8, -1},
        {127.5, LP_I8, 127},
        {128, LP_I8, 127},
        {-128.9, LP_I8, -128},
        {-1000, LP_I8, -128},
        {-0.9, LP_U8, 0},
        {-3, LP_U8, 0},
        {255.9, LP_U8, 255},
        {256, LP_U8, 255},
        {1e9, LP_I16, 32767},
        {65535.5, LP_U16, 65535},
        {1e12, LP_U16, 65535},
        {2147483647.0, LP_I32, 2147483647},
        {2147483648.0, LP_I32, 2147483647},
        {-2147483648.0, LP_I32, INT32_MIN},
        {-2147483649.0, LP_I32, INT32_MIN},
        {4294967296.0, LP_U32, 4294967295},
        {9223372036854774784.0, LP_I64, INT64_C(9223372036854774784)},
        {9223372036854775808.0, LP_I64, INT64_MAX},
        {-9223372036854775808.0, LP_I64, INT64_MIN},
        {-1e300, LP_I64, INT64_MIN},
        {(double)INFINITY, LP_I32, INT32_MAX},
        {-(double)INFINITY, LP_U32, 0},
        {18446744073709549568.0, LP_U64, -2048},
        {18446744073709551616.0, LP_U64, -1},
        {(double)NAN, LP_I32, 0},
        {(double)NAN, LP_U64, 0},
        {-0.0, LP_I64, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint64_t out = 0;
        assert_int_equal(lp_cast_elements(LP_F64, &cases[i].value, cases[i].to, &out, 1), LP_OK);
        if (as_i64(cases[i].to, &out) != cases[i].result)
            fail_msg("%a to %s is %lld, not %lld", cases[i].value, lp_dtype_name(cases[i].to),
                     (long long)as_i64(cases[i].to, &out), (long long)cases[i].result);
    }
    for (uint32_t code = 0; code < 0x80; code++) { /* narrow floats go the same way */
        float value;
        int16_t integer;
        assert_int_equal(lp_cast_elements(LP_F8_E4M3, &code, LP_F32, &value, 1), LP_OK);
        assert_int_equal(lp_cast_elements(LP_F8_E4M3, &code, LP_I16, &integer, 1), LP_OK);
        assert_int_equal(integer, isnan(value) ? 0 : (int)value);
    }
}

static void integers_wrap(void **state)
{
    (void)state;
    static const lp_dtype integers[] = {LP_U8, LP_I8, LP_U16, LP_I16, LP_U32, LP_I32, LP_U64, LP_I64};
    static const int64_t values[] = {
        0,          1,          -1,         127,        128,       255,       256,
        -128,       -129,       32767,      32768,      65535,     65536,     -32768,
        2147483647, 2147483648, 4294967295, 4294967296, INT64_MAX, INT64_MIN, 0x0123456789abcdef};
    for (size_t v = 0; v < sizeof values / sizeof values[0]; v++)
        for (size_t a = 0; a < 8; a++)
            for (size_t b = 0; b < 8; b++) {
                const int from_bits = lp_dtype_bits(integers[a]), to_bits = lp_dtype_bits(integers[b]);
                const bool from_signed =
                    integers[a] == LP_I8 || integers[a] == LP_I16 || integers[a] == LP_I32 || integers[a] == LP_I64;
                uint64_t low = (uint64_t)values[v], out = 0; /* little endian: the low bytes are the element */
                assert_int_equal(lp_cast_elements(integers[a], &low, integers[b], &out, 1), LP_OK);
                if (from_bits < 64) {
                    low &= (UINT64_C(1) << from_bits) - 1;
                    if (from_signed && low >> (from_bits - 1))
                        low |= UINT64_MAX << from_bits;
                }
                if (to_bits < 64)
                    low &= (UINT64_C(1) << to_bits) - 1;
                assert_true(out == low);
            }
}

static void integers_to_reals(void **state)
{
    (void)state;
    const int64_t odd = (INT64_C(1) << 53) + 1;
    const uint64_t top = UINT64_MAX;
    double wide;
    float narrow;
    uint16_t half;
    assert_int_equal(lp_cast_elements(LP_I64, &odd, LP_F64, &wide, 1), LP_OK);
    assert_true(wide == 9007199254740992.0); /* a tie, to even */
    assert_int_equal(lp_cast_elements(LP_U64, &top, LP_F64, &wide, 1), LP_OK);
    assert_true(wide == 18446744073709551616.0);
    assert_int_equal(lp_cast_elements(LP_U64, &top, LP_F32, &narrow, 1), LP_OK);
    assert_true(narrow == 18446744073709551616.0f);
    const int32_t tie = 16777219; /* between 16777218 and 16777220 */
    assert_int_equal(lp_cast_elements(LP_I32, &tie, LP_F32, &narrow, 1), LP_OK);
    assert_true(narrow == 16777220.0f);
    const int32_t large = 65520;
    assert_int_equal(lp_cast_elements(LP_I32, &large, LP_F16, &half, 1), LP_OK);
    assert_int_equal(half, 0x7c00);
    const int8_t minus = -3;
    uint8_t scale;
    assert_int_equal(lp_cast_elements(LP_I8, &minus, LP_F16, &half, 1), LP_OK);
    assert_int_equal(half, 0xc200);
    assert_int_equal(lp_cast_elements(LP_I8, &minus, LP_F8_E8M0, &scale, 1), LP_OK);
    assert_int_equal(scale, 129); /* |-3| is a tie between 2 and 4 */
    for (int i = -128; i < 128; i++) {
        const int8_t value = (int8_t)i;
        assert_int_equal(lp_cast_elements(LP_I8, &value, LP_F32, &narrow, 1), LP_OK);
        assert_true(narrow == (float)i);
    }
}

static void booleans(void **state)
{
    (void)state;
    for (int a = LP_BOOL; a < LP_DTYPE_COUNT; a++) {
        if (lp_cast_kind_of((lp_dtype)a, LP_BOOL) != LP_CAST_VALUES)
            continue;
        const uint64_t zero = 0;
        uint8_t truth = 0xa5;
        assert_int_equal(lp_cast_elements((lp_dtype)a, &zero, LP_BOOL, &truth, 1), LP_OK);
        assert_int_equal(truth, a == LP_F8_E8M0); /* which has no zero */
        for (uint8_t byte = 0; byte < 3; byte++) {
            uint64_t number = 0;
            float value;
            assert_int_equal(lp_cast_elements(LP_BOOL, &byte, (lp_dtype)a, &number, 1), LP_OK);
            assert_int_equal(lp_cast_elements((lp_dtype)a, &number, LP_F32, &value, 1), LP_OK);
            if (a != LP_F8_E8M0)
                assert_true(value == (byte != 0));
            assert_int_equal(lp_cast_elements((lp_dtype)a, &number, LP_BOOL, &truth, 1), LP_OK);
            assert_int_equal(truth, a == LP_F8_E8M0 || byte != 0);
        }
    }
    const float nan = NAN, minus_zero = -0.0f, tiny = f32_of(1);
    uint8_t truth;
    assert_int_equal(lp_cast_elements(LP_F32, &nan, LP_BOOL, &truth, 1), LP_OK);
    assert_int_equal(truth, 1);
    assert_int_equal(lp_cast_elements(LP_F32, &minus_zero, LP_BOOL, &truth, 1), LP_OK);
    assert_int_equal(truth, 0);
    assert_int_equal(lp_cast_elements(LP_F32, &tiny, LP_BOOL, &truth, 1), LP_OK);
    assert_int_equal(truth, 1);
}

/* ---- arrays ---- */

/* Every pair, on unaligned arrays longer than a block: element by element the same as one at a time. */
static void arrays_equal_single_elements(void **state)
{
    (void)state;
    enum { COUNT = 700 };
    static unsigned char in[COUNT * 8 + 1], out[COUNT * 8 + 2];
    uint32_t seed = 20260731;
    for (size_t i = 0; i < sizeof in; i++) {
        seed = seed * 1664525u + 1013904223u;
        in[i] = (unsigned char)(seed >> 24);
    }
    int tested = 0;
    for (int a = LP_BOOL; a < LP_DTYPE_COUNT; a++)
        for (int b = LP_BOOL; b < LP_DTYPE_COUNT; b++) {
            if (lp_cast_kind_of((lp_dtype)a, (lp_dtype)b) == LP_CAST_UNSUPPORTED || lp_dtype_bits((lp_dtype)a) < 8)
                continue;
            const size_t from = (size_t)lp_dtype_bits((lp_dtype)a) / 8, to = (size_t)lp_dtype_bits((lp_dtype)b) / 8;
            memset(out, 0xa5, sizeof out);
            assert_int_equal(lp_cast_elements((lp_dtype)a, in + 1, (lp_dtype)b, out + 1, COUNT), LP_OK);
            assert_int_equal(out[0], 0xa5);
            assert_int_equal(out[1 + COUNT * to], 0xa5);
            for (size_t i = 0; i < COUNT; i++) {
                unsigned char one[8];
                assert_int_equal(lp_cast_elements((lp_dtype)a, in + 1 + i * from, (lp_dtype)b, one, 1), LP_OK);
                if (memcmp(one, out + 1 + i * to, to) != 0)
                    fail_msg("%s to %s, element %zu", lp_dtype_name((lp_dtype)a), lp_dtype_name((lp_dtype)b), i);
            }
            tested++;
        }
    assert_int_equal(tested, 18 * 18 + 1);
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
        cmocka_unit_test(reals_truncate_and_saturate),
        cmocka_unit_test(integers_wrap),
        cmocka_unit_test(integers_to_reals),
        cmocka_unit_test(booleans),
        cmocka_unit_test(arrays_equal_single_elements),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
