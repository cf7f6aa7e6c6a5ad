/* SPDX-License-Identifier: Apache-2.0 */
/* The arithmetic of derives: each operation, the reduction tree, NaN and zeros, and the ulps of exp and log. */
#include "derive_programs.h"

#include "replayer/own_math.h"

#include <math.h>

#define LP_DERIVE_BARRIER()            ((void)0)
#define LP_DERIVE_CAST(bits, from, to) (bits)
#include "replayer/device_derive_run.h"

enum { NODES_MAX = 16 };

typedef struct program {
    lp_derive derive;
    lp_derive_input input[3];
    lp_node node[NODES_MAX];
    const void *data[3];
} program;

static void add_input(program *p, const float *data, int64_t count)
{
    const uint32_t n = p->derive.ninput++;
    p->input[n] = (lp_derive_input){.dtype = LP_F32, .count = count};
    p->data[n] = data;
    p->node[p->derive.nnode++] = (lp_node){.op = LP_OP_INPUT, .dtype = LP_F32, .arg = {n}, .count = count};
}

static void add_node(program *p, lp_op op, uint32_t a, uint32_t b, uint32_t c, uint64_t bits, int64_t count)
{
    p->node[p->derive.nnode++] =
        (lp_node){.op = (uint16_t)op, .dtype = LP_F32, .arg = {a, b, c}, .bits = bits, .count = count};
}

static float *run(program *p, lp_derive_check *check)
{
    lp_error err;
    void *result;
    p->derive.node = p->node;
    p->derive.input = p->input;
    assert_int_equal(lp_derive_evaluate(&p->derive, p->data, NULL, &result, check, &err), LP_OK);
    return result;
}

/* One operation on single values. */
static uint32_t once(lp_op op, float a, float b, float c)
{
    program p = {.derive = {.dest = 0, .error_text = ""}};
    lp_derive_check check;
    const int arity = lp_op_arity(op);
    add_input(&p, &a, 1);
    add_input(&p, &b, 1);
    add_input(&p, &c, 1);
    add_node(&p, op, 0, arity > 1 ? 1 : 0, arity > 2 ? 2 : 0, 0, 1);
    float *result = run(&p, &check);
    const uint32_t bits = lp_f32_bits(*result);
    lp_release(NULL, result);
    return bits;
}

#define assert_op(op, a, b, c, want) assert_int_equal(once(op, a, b, c), lp_f32_bits(want))

static void test_elementwise(void **state)
{
    (void)state;
    const float nan = lp_f32_of_bits(0xffc12345), inf = LP_F32_INFINITY, tiny = lp_f32_of_bits(1);
    assert_op(LP_OP_ADD, 1.5f, 2.25f, 0, 3.75f);
    assert_op(LP_OP_ADD, 16777216.0f, 1.0f, 0, 16777216.0f); /* ties to even */
    assert_op(LP_OP_SUB, 1.0f, 3.0f, 0, -2.0f);
    assert_op(LP_OP_MUL, tiny, 0.5f, 0, 0.0f);
    assert_op(LP_OP_MUL, tiny, 3.0f, 0, lp_f32_of_bits(3)); /* subnormals are kept */
    assert_op(LP_OP_DIV, 1.0f, 3.0f, 0, 0.333333343f);
    assert_op(LP_OP_DIV, 1.0f, 0.0f, 0, inf);
    assert_op(LP_OP_NEG, 0.0f, 0, 0, -0.0f);
    assert_op(LP_OP_RECIPROCAL, 4.0f, 0, 0, 0.25f);
    assert_op(LP_OP_SQRT, 2.0f, 0, 0, 1.41421354f);
    assert_op(LP_OP_ABS, -3.0f, 0, 0, 3.0f);
    assert_op(LP_OP_MAXIMUM, -0.0f, 0.0f, 0, 0.0f);
    assert_op(LP_OP_MAXIMUM, 0.0f, -0.0f, 0, 0.0f);
    assert_op(LP_OP_MINIMUM, 0.0f, -0.0f, 0, -0.0f);
    assert_op(LP_OP_MAXIMUM, 2.0f, -3.0f, 0, 2.0f);
    assert_op(LP_OP_MINIMUM, 2.0f, -3.0f, 0, -3.0f);
    assert_op(LP_OP_WHERE, -0.0f, 1.0f, 2.0f, 2.0f);
    assert_op(LP_OP_WHERE, 0.5f, 1.0f, 2.0f, 1.0f);
    assert_op(LP_OP_OR_IF_ZERO, -0.0f, 7.0f, 0, 7.0f);
    assert_op(LP_OP_OR_IF_ZERO, 3.0f, 7.0f, 0, 3.0f);
    assert_op(LP_OP_GREATER, 2.0f, 1.0f, 0, 1.0f);
    assert_op(LP_OP_GREATER, 1.0f, 1.0f, 0, 0.0f);
    assert_op(LP_OP_EQUAL, 0.0f, -0.0f, 0, 1.0f);
    assert_op(LP_OP_EQUAL, nan, nan, 0, 0.0f);
    /* one NaN for all, whatever the processor makes */
    const lp_op makes_nan[] = {LP_OP_ADD, LP_OP_SUB, LP_OP_MUL, LP_OP_DIV, LP_OP_MAXIMUM, LP_OP_MINIMUM};
    for (size_t i = 0; i < sizeof makes_nan / sizeof *makes_nan; i++) {
        assert_int_equal(once(makes_nan[i], nan, 1.0f, 0), 0x7fc00000);
        assert_int_equal(once(makes_nan[i], 1.0f, nan, 0), 0x7fc00000);
    }
    assert_int_equal(once(LP_OP_SUB, inf, inf, 0), 0x7fc00000);
    assert_int_equal(once(LP_OP_SQRT, -1.0f, 0, 0), 0x7fc00000);
    assert_int_equal(once(LP_OP_DIV, 0.0f, 0.0f, 0), 0x7fc00000);
    assert_int_equal(once(LP_OP_EXP, nan, 0, 0), 0x7fc00000);
    assert_int_equal(once(LP_OP_LOG, -1.0f, 0, 0), 0x7fc00000);
    assert_op(LP_OP_LOG, 0.0f, 0, 0, -inf);
    assert_op(LP_OP_LOG, 1.0f, 0, 0, 0.0f);
    assert_op(LP_OP_EXP, 0.0f, 0, 0, 1.0f);
    assert_op(LP_OP_EXP, -inf, 0, 0, 0.0f);
    assert_op(LP_OP_EXP, inf, 0, 0, inf);
    /* what passes values on keeps their bits */
    assert_int_equal(once(LP_OP_WHERE, 1.0f, nan, 0.0f), 0xffc12345);
    assert_int_equal(once(LP_OP_NEG, nan, 0, 0), 0x7fc12345);
}

/* (((a + b) + (c + d)) + e): neighbours first, the odd one last. */
static void test_reduction_tree(void **state)
{
    (void)state;
    const float x[5] = {1e8f, 1.0f, -1e8f, 1.0f, 0.5f};
    program p = {.derive = {.dest = 0, .error_text = ""}};
    lp_derive_check check;
    add_input(&p, x, 5);
    add_node(&p, LP_OP_SUM, 0, 0, 0, 0, 1);
    float *result = run(&p, &check);
    const volatile float left = x[0] + x[1], right = x[2] + x[3];
    const volatile float sum = left + right;
    const volatile float want = sum + x[4];
    assert_int_equal(lp_f32_bits(*result), lp_f32_bits(want));
    assert_int_not_equal(lp_f32_bits(*result), lp_f32_bits(2.5f)); /* the exact sum */
    lp_release(NULL, result);
}

static void test_reduction_groups(void **state)
{
    (void)state;
    const float x[6] = {3, 9, -1, 4, lp_f32_of_bits(0x7f800001), 5};
    program p = {.derive = {.dest = 0, .error_text = ""}};
    lp_derive_check check;
    add_input(&p, x, 6);
    add_node(&p, LP_OP_MAX, 0, 0, 0, 3, 2);
    float *result = run(&p, &check);
    assert_int_equal(lp_f32_bits(result[0]), lp_f32_bits(9));
    assert_int_equal(lp_f32_bits(result[1]), 0x7fc00000); /* NaN wins, as in torch.amax */
    lp_release(NULL, result);
    p = (program){.derive = {.dest = 0, .error_text = ""}};
    add_input(&p, x, 4);
    add_node(&p, LP_OP_MIN, 0, 0, 0, 2, 2);
    result = run(&p, &check);
    assert_true(result[0] == 3 && result[1] == -1);
    lp_release(NULL, result);
}

static void test_broadcast_const_and_cast(void **state)
{
    (void)state;
    const uint16_t half[3] = {0x3f80, 0x4000, 0xc040}; /* BF16 1, 2, -3 */
    program p = {.derive = {.dest = 0, .error_text = "", .ninput = 1}};
    lp_derive_check check;
    p.input[0] = (lp_derive_input){.dtype = LP_BF16, .count = 3};
    p.data[0] = half;
    p.node[0] = (lp_node){.op = LP_OP_INPUT, .dtype = LP_BF16, .count = 3};
    p.node[1] = (lp_node){.op = LP_OP_CAST, .dtype = LP_F32, .arg = {0}, .count = 3};
    p.node[2] = (lp_node){.op = LP_OP_CONST, .dtype = LP_F32, .bits = 0x3f000000, .count = 1};
    p.node[3] = (lp_node){.op = LP_OP_MUL, .dtype = LP_F32, .arg = {1, 2}, .count = 3};
    p.node[4] = (lp_node){.op = LP_OP_CAST, .dtype = LP_BF16, .arg = {3}, .count = 3};
    p.derive.nnode = 5;
    uint16_t *result = (uint16_t *)(void *)run(&p, &check);
    assert_int_equal(result[0], 0x3f00);
    assert_int_equal(result[1], 0x3f80);
    assert_int_equal(result[2], 0xbfc0);
    lp_release(NULL, result);
}

static void test_all_close(void **state)
{
    (void)state;
    float a[4] = {1.0f, 2.0f, 0.0f, LP_F32_INFINITY}, b[4] = {1.000009f, 2.0f, 0.0f, LP_F32_INFINITY};
    char text[200];
    program p = {.derive = {.dest = LP_NONE, .error_text = "w1 and w3 differ for expert {index}, slot {index}"}};
    lp_derive_check check;
    add_input(&p, a, 4);
    add_input(&p, b, 4);
    add_node(&p, LP_OP_ALL_CLOSE, 0, 1, 0, 0x3727c5ac /* 1e-5 */, 0);
    assert_null(run(&p, &check));
    assert_false(check.failed);
    b[1] = 2.5f;
    b[2] = 1.0f;
    assert_null(run(&p, &check));
    assert_true(check.failed);
    assert_int_equal(check.index, 1);
    lp_derive_check_text(&p.derive, &check, text, sizeof text);
    assert_string_equal(text, "w1 and w3 differ for expert 1, slot 1: 2 and 2.5");
    lp_derive_check_text(&p.derive, &check, text, 20); /* cut, never beyond */
    assert_string_equal(text, "w1 and w3 differ fo");
    b[1] = a[1] = LP_F32_NAN;
    b[2] = 0.0f;
    assert_null(run(&p, &check));
    assert_true(check.failed);
    assert_int_equal(check.index, 1);
}

/* Distance in ulps of single between the result and the true value. */
static double ulps(float have, long double want)
{
    if (isinf(have) || want == 0)
        return fabsl(want) > 3.4028235677973366e38L || have == 0 ? 0 : 1e9;
    int exponent;
    (void)frexpl(want, &exponent);
    const long double ulp = ldexpl(1.0L, exponent < -125 ? -149 : exponent - 24);
    return (double)(fabsl((long double)have - want) / ulp);
}

static void test_exp_and_log_ulps(void **state)
{
    (void)state;
    double worst_exp = 0, worst_log = 0;
    for (uint64_t n = 0; n < 600000; n++) {
        const float x = lp_f32_of_bits((uint32_t)(n * 7919 * 2654435761u >> 3)); /* all exponents, both signs */
        if (x != x)
            continue;
        if (x < 88.73f && x > -103.9f) {
            const double e = ulps(lp_own_exp(x), expl((long double)x));
            worst_exp = e > worst_exp ? e : worst_exp;
        }
        if (x > 0 && x < LP_F32_INFINITY) {
            const double e = ulps(lp_own_log(x), logl((long double)x));
            worst_log = e > worst_log ? e : worst_log;
        }
    }
    for (int n = -200000; n <= 200000; n++) { /* where exp is neither 0 nor infinite, and around log's zero */
        const float x = (float)n * (104.0f / 200000.0f), y = 1.0f + (float)n * 1e-6f;
        double e = x < 88.72f ? ulps(lp_own_exp(x), expl((long double)x)) : 0;
        worst_exp = e > worst_exp ? e : worst_exp;
        e = y > 0 ? ulps(lp_own_log(y), logl((long double)y)) : 0;
        worst_log = e > worst_log ? e : worst_log;
    }
    print_message("worst error: exp %.6f ulp, log %.6f ulp\n", worst_exp, worst_log);
    assert_true(worst_exp < 0.50001);
    assert_true(worst_log < 0.50001);
}

/* ---- operations that are added ---- */

/* What a new operation of traces/derive_ops.c may lack: its arity where devices look it up, its arithmetic, and a place
 * among the programs that random tests draw. */
static void test_no_operation_is_left_out(void **state)
{
    enum { OPERATIONS = 1 << 10 };
    bool is_drawn[OPERATIONS] = {false};
    (void)state;
    for (uint64_t seed = 1; seed <= 200; seed++) {
        derive_program p;
        uint64_t random = seed;
        make_program(&p, &random);
        for (uint32_t n = 0; n < p.derive.nnode; n++)
            is_drawn[p.node[n].op] = true;
        free_program(&p);
    }
    for (int op = 0; op < OPERATIONS; op++) {
        if (lp_op_arity((lp_op)op) < 0)
            continue;
        const char *const name = lp_op_name((lp_op)op);
        if (!is_drawn[op])
            fail_msg("make_program never draws '%s'", name);
        if (op < LP_OP_ADD || op == LP_OP_ALL_CLOSE)
            continue;
        if (lp_derive_arity((unsigned)op) != lp_op_arity((lp_op)op))
            fail_msg("lp_derive_arity does not know '%s'", name);
        if (isnan(lp_f32_of_bits(once((lp_op)op, 2, 1, 1))))
            fail_msg("lp_op_compute does not know '%s'", name);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_elementwise),
        cmocka_unit_test(test_reduction_tree),
        cmocka_unit_test(test_reduction_groups),
        cmocka_unit_test(test_broadcast_const_and_cast),
        cmocka_unit_test(test_all_close),
        cmocka_unit_test(test_exp_and_log_ulps),
        cmocka_unit_test(test_no_operation_is_left_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
