/* SPDX-License-Identifier: Apache-2.0 */
/* The cast table: integers and booleans at their limits, and arrays of every pair against single elements. */
#include "cast_testing.h"

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
        cmocka_unit_test(reals_truncate_and_saturate),
        cmocka_unit_test(integers_wrap),
        cmocka_unit_test(integers_to_reals),
        cmocka_unit_test(booleans),
        cmocka_unit_test(arrays_equal_single_elements),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
