/* SPDX-License-Identifier: Apache-2.0 */
/* The recording API, verb by verb: which elements each view takes, and what each value operation comes to. */
#include "replayer/replayer.h"
#include "test_recorder_run.h"

#include <string.h>

/* ---- views ---- */

/* What a verb must make of "a", F32 [4, 6]: element [i, j, ...] is element first + i * stride[0] + j * stride[1] + ...
 */
typedef struct taken {
    const char *verb;
    lp_tensor view;
    int ndim;
    int64_t shape[3], stride[3], first;
} taken;

static void copy_to_its_own_place(lp_recorder *r, const taken *verb)
{
    assert_true(lp_is_valid(verb->view));
    assert_int_equal(lp_dim(verb->view), verb->ndim);
    for (int d = 0; d < verb->ndim; d++) {
        if (lp_size(verb->view, d) != verb->shape[d])
            fail_msg("%s: dimension %d has %lld elements", verb->verb, d, (long long)lp_size(verb->view, d));
    }
    lp_copy(lp_declare(r, verb->verb, LP_F32, verb->ndim, verb->shape), verb->view);
}

static void assert_taken(run *x, const taken *verb)
{
    int64_t index[3] = {0};
    const int64_t count =
        verb->shape[0] * (verb->ndim > 1 ? verb->shape[1] : 1) * (verb->ndim > 2 ? verb->shape[2] : 1);
    for (int64_t i = 0; i < count; i++) {
        int64_t rest = i, element = verb->first;
        for (int d = verb->ndim - 1; d >= 0; d--) {
            index[d] = rest % verb->shape[d];
            rest /= verb->shape[d];
            element += index[d] * verb->stride[d];
        }
        const uint8_t *have = element_of(x, verb->verb, index);
        for (int b = 0; b < 4; b++) {
            if (have[b] != source_byte("a", 4 * element + b))
                fail_msg("%s: element %lld is not element %lld of its source", verb->verb, (long long)i,
                         (long long)element);
        }
    }
}

static void views_take_what_torch_takes(void **state)
{
    (void)state;
    lp_checkpoint *c = small_checkpoint();
    lp_recorder *r = open_recorder(c);
    const lp_tensor a = lp_source(r, "a");
    const lp_tensor cube = lp_unflatten(a, -1, 2, (int64_t[]){2, 3}); /* [4, 2, 3] */
    const lp_tensor padded = lp_unsqueeze(lp_unsqueeze(a, 1), 0);     /* [1, 4, 1, 6] */
    const taken verbs[] = {
        {"narrow", lp_narrow(a, 1, 2, 3), 2, {4, 3}, {6, 1}, 2},
        {"select", lp_select(a, 0, -1), 1, {6}, {1}, 18},
        {"slice", lp_slice(a, 1, 1, 6, 2), 2, {4, 3}, {6, 2}, 1},
        {"split", lp_split(a, 1, 4, 1), 2, {4, 2}, {6, 1}, 4}, /* the rest, which is smaller */
        {"chunk", lp_chunk(a, 0, 3, 1), 2, {2, 6}, {6, 1}, 12},
        {"unbind", lp_unbind(a, 1, 2), 1, {4}, {6}, 2},
        {"reshape", lp_reshape(a, 3, (int64_t[]){2, -1, 3}), 3, {2, 4, 3}, {12, 3, 1}, 0},
        {"flatten", lp_flatten(cube, 1, 2), 2, {4, 6}, {6, 1}, 0},
        {"unflatten", cube, 3, {4, 2, 3}, {6, 3, 1}, 0},
        {"permute", lp_permute(cube, 3, (int[]){2, 0, 1}), 3, {3, 4, 2}, {1, 6, 3}, 0},
        {"transpose", lp_transpose(cube, 0, -1), 3, {3, 2, 4}, {1, 3, 6}, 0},
        {"t", lp_t(a), 2, {6, 4}, {1, 6}, 0},
        {"reverse_dims", lp_reverse_dims(cube), 3, {3, 2, 4}, {1, 3, 6}, 0},
        {"movedim", lp_movedim(cube, 0, 2), 3, {2, 3, 4}, {3, 1, 6}, 0},
        {"squeeze", lp_squeeze(lp_squeeze(padded, 2), 0), 2, {4, 6}, {6, 1}, 0},
        {"squeeze_all", lp_squeeze_all(padded), 2, {4, 6}, {6, 1}, 0},
        {"expand", lp_expand(lp_narrow(a, 0, 1, 1), 2, (int64_t[]){3, 6}), 2, {3, 6}, {0, 1}, 6},
        {"diagonal", lp_diagonal(a, 1, 0, 1), 1, {4}, {7}, 1},
        {"diagonal below", lp_diagonal(a, -2, 0, 1), 1, {2}, {7}, 12},
        {"as_strided", lp_as_strided(a, 2, (int64_t[]){3, 2}, (int64_t[]){7, 2}, 1), 2, {3, 2}, {7, 2}, 1},
    };
    for (size_t i = 0; i < sizeof verbs / sizeof *verbs; i++)
        copy_to_its_own_place(r, &verbs[i]);
    lp_trace *t = finish(r);
    run x = run_scope(t, 0);
    assert_int_equal(x.rows->nrefusal, 0);
    for (size_t i = 0; i < sizeof verbs / sizeof *verbs; i++)
        assert_taken(&x, &verbs[i]);
    assert_checked(t);
    free_run(&x);
    lp_trace_close(t);
    lp_checkpoint_close(c);
}

/* ---- value operations ---- */

/* What an operation on x and y must come to on every load: exact numbers, as IEEE single has them. */
typedef struct computed {
    const char *verb;
    lp_tensor value;
    int ndim;
    int64_t shape[2];
    float wanted[6];
} computed;

static const float x_values[6] = {4, -1, 0.25f, 9, 2, -8}, y_values[6] = {2, -1, 4, -3, 2, 0.5f};

/* Loads x and y by a plan of the trace into fresh memory. */
static void load_both(const lp_trace *t, const lp_destinations *memory, lp_plan **plan)
{
    static const int64_t shape[] = {2, 3};
    lp_error err;
    lp_session *s = NULL;
    int64_t count;
    const lp_destination_memory *list = lp_destinations_list(memory, &count);
    assert_int_equal(lp_bind(plan, t, &(lp_scope){0}, list, count, NULL, &err), LP_OK);
    assert_int_equal(lp_begin(&s, *plan, NULL, &err), LP_OK);
    assert_int_equal(lp_push(s, "x", &(lp_buffer){.data = x_values, .dtype = LP_F32, .ndim = 2, .shape = shape}, &err),
                     LP_OK);
    assert_int_equal(lp_push(s, "y", &(lp_buffer){.data = y_values, .dtype = LP_F32, .ndim = 2, .shape = shape}, &err),
                     LP_OK);
    assert_int_equal(lp_finish(s, &(lp_report){0}, &err), LP_OK);
    lp_session_close(s);
}

static void assert_computed(const lp_plan *plan, const computed *verb)
{
    const lp_rows *rows = lp_plan_rows(plan);
    uint32_t dest = 0;
    while (dest < rows->ndest && strcmp(rows->dest[dest].name, verb->verb) != 0)
        dest++;
    assert_true(dest < rows->ndest);
    float have[6];
    const int64_t count = (verb->ndim > 0 ? verb->shape[0] : 1) * (verb->ndim > 1 ? verb->shape[1] : 1);
    memcpy(have, lp_plan_address(plan, dest), (size_t)count * sizeof *have);
    for (int64_t i = 0; i < count; i++) {
        if (have[i] != verb->wanted[i])
            fail_msg("%s: element %lld is %g, wanted %g", verb->verb, (long long)i, (double)have[i],
                     (double)verb->wanted[i]);
    }
}

static void values_come_to_what_ieee_says(void **state)
{
    (void)state;
    lp_checkpoint *c = new_checkpoint();
    add_tensor(c, "x", LP_F32, SHAPE(2, 3));
    add_tensor(c, "y", LP_F32, SHAPE(2, 3));
    seal_checkpoint(c);
    lp_recorder *r = open_recorder(c);
    const lp_tensor x = lp_source(r, "x"), y = lp_source(r, "y");
    const computed verbs[] = {
        {"max", lp_max(x), 0, {0}, {9}},
        {"min", lp_min(x), 0, {0}, {-8}},
        {"sum", lp_sum(x), 0, {0}, {6.25f}},
        {"max_over", lp_max_over(x, 1), 1, {2}, {4, 9}},
        {"min_over", lp_min_over(x, -1), 1, {2}, {-1, -8}},
        {"sum_over", lp_sum_over(x, 0), 1, {3}, {13, 1, -7.75f}},
        {"neg", lp_neg(x), 2, {2, 3}, {-4, 1, -0.25f, -9, -2, 8}},
        {"reciprocal", lp_reciprocal(y), 2, {2, 3}, {0.5f, -1, 0.25f, -1.0f / 3, 0.5f, 2}},
        {"sqrt", lp_sqrt(lp_times(x, x)), 2, {2, 3}, {4, 1, 0.25f, 9, 2, 8}},
        {"abs", lp_abs(x), 2, {2, 3}, {4, 1, 0.25f, 9, 2, 8}},
        {"exp", lp_exp(lp_minus(x, x)), 2, {2, 3}, {1, 1, 1, 1, 1, 1}},
        {"log_of", lp_log_of(lp_divide(x, x)), 2, {2, 3}, {0, 0, 0, 0, 0, 0}},
        {"plus", lp_plus(x, y), 2, {2, 3}, {6, -2, 4.25f, 6, 4, -7.5f}},
        {"minus", lp_minus(x, y), 2, {2, 3}, {2, 0, -3.75f, 12, 0, -8.5f}},
        {"times", lp_times(x, y), 2, {2, 3}, {8, 1, 1, -27, 4, -4}},
        {"divide", lp_divide(x, y), 2, {2, 3}, {2, 1, 0.0625f, -3, 1, -16}},
        {"maximum", lp_maximum(x, y), 2, {2, 3}, {4, -1, 4, 9, 2, 0.5f}},
        {"minimum", lp_minimum(x, y), 2, {2, 3}, {2, -1, 0.25f, -3, 2, -8}},
        {"where greater", lp_where(lp_greater(x, y), x, lp_neg(y)), 2, {2, 3}, {4, 1, -4, 9, -2, -0.5f}},
        {"where equal", lp_where(lp_equal(x, y), x, lp_constant(r, 5)), 2, {2, 3}, {5, -1, 5, 5, 2, 5}},
        {"or_if_zero", lp_or_if_zero(lp_minus(x, y), 7), 2, {2, 3}, {2, 7, -3.75f, 12, 7, -8.5f}},
        {"constant", lp_plus(lp_constant(r, 1), x), 2, {2, 3}, {5, 0, 1.25f, 10, 3, -7}},
    };
    for (size_t i = 0; i < sizeof verbs / sizeof *verbs; i++)
        lp_derive(r, lp_declare(r, verbs[i].verb, LP_F32, verbs[i].ndim, verbs[i].shape), verbs[i].value);
    lp_trace *t = finish(r);
    assert_checked(t);
    lp_destinations *memory = NULL;
    lp_plan *plan = NULL;
    lp_error err;
    assert_int_equal(lp_destinations_allocate(&memory, t, &(lp_scope){0}, false, NULL, &err), LP_OK);
    load_both(t, memory, &plan);
    for (size_t i = 0; i < sizeof verbs / sizeof *verbs; i++)
        assert_computed(plan, &verbs[i]);
    lp_plan_close(plan);
    lp_destinations_free(memory);
    lp_trace_close(t);
    lp_checkpoint_close(c);
}

/* ---- what a loader says of itself ---- */

/* Each value that the host would read refuses its name, and says which value. */
static void every_host_read_is_a_refusal(void **state)
{
    (void)state;
    lp_checkpoint *c = small_checkpoint();
    lp_recorder *r = open_recorder(c);
    assert_true(lp_min_value(lp_source(r, "a")) == 0.0);
    assert_true(lp_sum_value(lp_source(r, "b")) == 0.0);
    lp_refuse(lp_source(r, "half"), "sort", "orders its rows by value");
    lp_trace *t = finish(r);
    run x = run_scope(t, 0);
    assert_string_equal(refusal_of(&x, "a")->operation, "min");
    assert_string_equal(refusal_of(&x, "b")->operation, "sum");
    assert_string_equal(refusal_of(&x, "half")->operation, "sort");
    assert_string_equal(refusal_of(&x, "half")->reason, "orders its rows by value");
    assert_int_equal(x.rows->nrefusal, 3);
    free_run(&x);
    lp_trace_close(t);
    lp_checkpoint_close(c);
}

static void a_complaint_of_the_loader_is_the_first_misuse(void **state)
{
    (void)state;
    lp_checkpoint *c = small_checkpoint();
    lp_recorder *r = open_recorder(c);
    assert_false(lp_has_dest(r, "d"));
    lp_declare(r, "d", LP_F32, 1, (int64_t[]){2});
    assert_true(lp_has_dest(r, "d"));
    const int line = __LINE__ + 1;
    lp_complain(r, LP_E_UNSUPPORTED, "%d heads do not divide by %d ranks", 5, 2);
    lp_source(r, "no such tensor");
    lp_error err;
    assert_int_equal(lp_recorder_status(r, &err), LP_E_UNSUPPORTED);
    char wanted[96];
    snprintf(wanted, sizeof wanted, "test_recorder_verbs.c:%d: 5 heads do not divide by 2 ranks", line);
    if (strstr(err.text, wanted) == NULL)
        fail_msg("'%s' does not say '%s'", err.text, wanted);
    lp_recorder_close(r);
    lp_checkpoint_close(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(views_take_what_torch_takes),
        cmocka_unit_test(values_come_to_what_ieee_says),
        cmocka_unit_test(every_host_read_is_a_refusal),
        cmocka_unit_test(a_complaint_of_the_loader_is_the_first_misuse),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
