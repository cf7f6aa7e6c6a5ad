/* SPDX-License-Identifier: Apache-2.0 */
/* The recording API: what a loader does that no plan can say refuses the names concerned, and no others. */
#include "test_recorder_run.h"

/* The running maximum of the guide: only the names that the host looked at fall back, with their place. */
static void host_read_refuses_that_name_only(void **state)
{
    (void)state;
    lp_checkpoint *c = small_checkpoint();
    lp_recorder *r = open_scope(c, (lp_scope){0});
    lp_tensor d = lp_declare(r, "d", LP_F32, 2, (int64_t[]){4, 6});
    lp_tensor s = lp_declare(r, "s", LP_F32, 0, NULL);
    lp_copy(d, lp_source(r, "a"));
    lp_copy(s, lp_source(r, "scale"));
    const int line = __LINE__ + 1;
    assert_true(lp_max_value(lp_reshape(lp_source(r, "scale"), 1, (int64_t[]){1})) == 0.0);
    lp_trace *t = finish(r);
    run x = run_scope(t, 0);
    assert_int_equal(records_of(&x, "a"), 1);
    assert_int_equal(records_of(&x, "scale"), 0);
    const lp_refusal *refusal = refusal_of(&x, "scale");
    assert_non_null(refusal);
    assert_null(refusal_of(&x, "a"));
    assert_string_equal(refusal->operation, "max");
    assert_string_equal(refusal->reason, "reads a value on the host");
    const lp_provenance *place = lp_trace_provenance(t, refusal->provenance);
    assert_int_equal(place->line, line);
    assert_non_null(strstr(place->file, "test_recorder_refusals.c"));
    assert_int_not_equal(place->file[0], '/');
    assert_checked(t); /* the scalar's destination counts as fallback, not as a hole */
    free_run(&x);
    lp_trace_close(t);
    lp_checkpoint_close(c);
}

static void refusal_of_a_destination_is_of_what_was_written_there(void **state)
{
    (void)state;
    lp_checkpoint *c = small_checkpoint();
    lp_recorder *r = open_scope(c, (lp_scope){0});
    lp_tensor d = lp_declare(r, "d", LP_F32, 3, (int64_t[]){2, 4, 6});
    lp_copy(lp_select(d, 0, 0), lp_source(r, "a"));
    lp_copy(lp_select(d, 0, 1), lp_source(r, "b"));
    lp_item(lp_select(lp_select(lp_select(d, 0, 1), 0, 0), 0, 0));
    lp_trace *t = finish(r);
    run x = run_scope(t, 0);
    assert_null(refusal_of(&x, "a"));
    assert_non_null(refusal_of(&x, "b"));
    assert_int_equal(x.rows->nrecord, 1);
    free_run(&x);
    lp_trace_close(t);
    lp_checkpoint_close(c);
}

static void write_to_a_source_is_refused(void **state)
{
    (void)state;
    lp_checkpoint *c = small_checkpoint();
    lp_recorder *r = open_scope(c, (lp_scope){0});
    lp_copy(lp_source(r, "a"), lp_source(r, "b"));
    lp_copy(lp_declare(r, "d", LP_F32, 2, (int64_t[]){4, 6}), lp_source(r, "a"));
    lp_trace *t = finish(r);
    run x = run_scope(t, 0);
    assert_non_null(refusal_of(&x, "a"));
    assert_int_equal(x.rows->nrecord, 0);
    assert_checked(t);
    free_run(&x);
    lp_trace_close(t);
    lp_checkpoint_close(c);
}

static void cast_that_does_not_exist_is_refused(void **state)
{
    (void)state;
    lp_checkpoint *c = new_checkpoint();
    add_tensor(c, "complex", LP_C64, SHAPE(4));
    seal_checkpoint(c);
    lp_recorder *r = open_scope(c, (lp_scope){0});
    lp_copy(lp_declare(r, "d", LP_F32, 1, (int64_t[]){4}), lp_to_f32(lp_source(r, "complex")));
    lp_trace *t = finish(r);
    run x = run_scope(t, 0);
    const lp_refusal *refusal = refusal_of(&x, "complex");
    assert_non_null(refusal);
    assert_int_equal(x.rows->nrecord, 0);
    assert_checked(t);
    free_run(&x);
    lp_trace_close(t);
    lp_checkpoint_close(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(host_read_refuses_that_name_only),
        cmocka_unit_test(refusal_of_a_destination_is_of_what_was_written_there),
        cmocka_unit_test(write_to_a_source_is_refused),
        cmocka_unit_test(cast_that_does_not_exist_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
