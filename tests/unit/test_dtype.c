/* SPDX-License-Identifier: Apache-2.0 */
/* Dtypes and scopes: names, widths, coordinates. */
#include "traces/trace.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

static void dtypes_have_the_names_and_widths_of_safetensors(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int value, bits;
    } expected[] = {
        {"BOOL", 1, 8},         {"F4", 2, 4},      {"F6_E2M3", 3, 6}, {"F6_E3M2", 4, 6}, {"U8", 5, 8},
        {"I8", 6, 8},           {"F8_E5M2", 7, 8}, {"F8_E4M3", 8, 8}, {"F8_E8M0", 9, 8}, {"F8_E4M3FNUZ", 10, 8},
        {"F8_E5M2FNUZ", 11, 8}, {"I16", 12, 16},   {"U16", 13, 16},   {"F16", 14, 16},   {"BF16", 15, 16},
        {"I32", 16, 32},        {"U32", 17, 32},   {"F32", 18, 32},   {"C64", 19, 64},   {"F64", 20, 64},
        {"I64", 21, 64},        {"U64", 22, 64},
    };
    const int count = sizeof expected / sizeof expected[0];
    assert_int_equal(count, LP_DTYPE_COUNT - 1);
    for (int i = 0; i < count; i++) {
        const lp_dtype d = lp_dtype_parse(expected[i].name, strlen(expected[i].name));
        assert_int_equal(d, expected[i].value);
        assert_string_equal(lp_dtype_name(d), expected[i].name);
        assert_int_equal(lp_dtype_bits(d), expected[i].bits);
    }
}

static void unknown_dtypes_are_none(void **state)
{
    (void)state;
    static const char *const wrong[] = {"", "f32", "F32 ", "F3", "C128", "F8_E4M3FN", "?", "NONE"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        assert_int_equal(lp_dtype_parse(wrong[i], strlen(wrong[i])), LP_DTYPE_NONE);
    assert_int_equal(lp_dtype_parse("F32", 2), LP_DTYPE_NONE);
    assert_int_equal(lp_dtype_parse("F32x", 3), LP_F32); /* the length counts, not a NUL */
    static const int outside[] = {-1, 0, 23, 1000};
    for (size_t i = 0; i < 4; i++) {
        assert_string_equal(lp_dtype_name((lp_dtype)outside[i]), "?");
        assert_int_equal(lp_dtype_bits((lp_dtype)outside[i]), 0);
    }
}

static void scopes_number_their_ranks(void **state)
{
    (void)state;
    lp_scope zero = {0};
    lp_error err;
    assert_int_equal(lp_scope_normalise(&zero, &err), LP_OK);
    assert_true(zero.pp == 1 && zero.dp == 1 && zero.tp == 1);
    assert_int_equal(lp_scope_rank(&zero), 0);
    assert_int_equal(lp_scope_world(&zero), 1);

    int32_t next = 0;
    for (int32_t pp = 0; pp < 2; pp++)
        for (int32_t dp = 0; dp < 3; dp++)
            for (int32_t tp = 0; tp < 4; tp++) {
                lp_scope s = {.pp = 2, .pp_rank = pp, .dp = 3, .dp_rank = dp, .tp = 4, .tp_rank = tp};
                assert_int_equal(lp_scope_normalise(&s, &err), LP_OK);
                assert_int_equal(lp_scope_rank(&s), next++);
                assert_int_equal(lp_scope_world(&s), 24);
                assert_int_equal(lp_scope_experts_size(&s), 1);
                assert_int_equal(lp_scope_experts_rank(&s), 0);
                s.expert_parallel = true;
                assert_int_equal(lp_scope_experts_size(&s), 12);
                assert_int_equal(lp_scope_experts_rank(&s), dp * 4 + tp);
            }
}

static void impossible_scopes_are_refused_and_left_alone(void **state)
{
    (void)state;
    static const lp_scope wrong[] = {
        {.tp = -1},
        {.tp = 2, .tp_rank = 2},
        {.tp = 2, .tp_rank = -1},
        {.dp_rank = 1},
        {.pp = 3, .pp_rank = 3},
        {.pp = 65536, .dp = 65536},
        {.pp = 2048, .dp = 2048, .tp = 2048},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        lp_scope s = wrong[i];
        lp_error err = {0};
        assert_int_equal(lp_scope_normalise(&s, &err), LP_E_ARGUMENT);
        assert_int_equal(err.code, LP_E_ARGUMENT);
        assert_memory_equal(&s, &wrong[i], sizeof s);
    }
    lp_scope s = {.tp = 2, .tp_rank = 5};
    lp_error err = {0};
    assert_int_equal(lp_scope_normalise(&s, &err), LP_E_ARGUMENT);
    assert_string_equal(err.text, "tp rank 5 is not below the tp size 2");
    assert_int_equal(lp_scope_normalise(&s, NULL), LP_E_ARGUMENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dtypes_have_the_names_and_widths_of_safetensors),
        cmocka_unit_test(unknown_dtypes_are_none),
        cmocka_unit_test(scopes_number_their_ranks),
        cmocka_unit_test(impossible_scopes_are_refused_and_left_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
