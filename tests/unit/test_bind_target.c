/* SPDX-License-Identifier: Apache-2.0 */
/* A trace that was recorded for one target is not bound on another one, unless nobody says what the target is. */
#include "replayer/replayer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static lp_status bind(const char *recorded, const char *here, lp_error *err)
{
    lp_checkpoint *c;
    lp_trace *t;
    const int64_t shape[] = {4};
    assert_int_equal(lp_checkpoint_new(&c, NULL, err), LP_OK);
    assert_int_equal(
        lp_checkpoint_add(
            c, &(lp_checkpoint_tensor){.name = "w", .dtype = LP_F32, .ndim = 1, .shape = shape, .file = -1}, err),
        LP_OK);
    assert_int_equal(lp_checkpoint_seal(c, err), LP_OK);
    const lp_trace_header header = {
        .loader = "t", .loader_version = "1", .configuration = "", .target = recorded, .layout = {.tp = 1}};
    assert_int_equal(lp_trace_new(&t, c, &header, NULL, err), LP_OK);
    assert_int_equal(lp_trace_begin_scope(t, &(lp_scope){.tp = 1}, err), LP_OK);
    assert_int_equal(lp_trace_seal(t, err), LP_OK);
    lp_plan *plan = NULL;
    const lp_status status = lp_bind(&plan, t, &(lp_scope){.tp = 1}, NULL, 0, &(lp_bind_options){.target = here}, err);
    lp_plan_close(plan);
    lp_trace_close(t);
    lp_checkpoint_close(c);
    return status;
}

static void another_target_is_stale(void **state)
{
    lp_error err;
    (void)state;
    assert_int_equal(bind("sm90", "sm100", &err), LP_E_STALE);
    assert_string_equal(err.text, "stale trace: it was recorded for target 'sm90', this is 'sm100'");
    assert_string_equal(err.hint, "record again with --target sm100");
}

static void the_same_or_no_target_is_fine(void **state)
{
    lp_error err;
    (void)state;
    assert_int_equal(bind("sm90", "sm90", &err), LP_OK);
    assert_int_equal(bind("sm90", NULL, &err), LP_OK);
    assert_int_equal(bind("", "sm90", &err), LP_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(another_target_is_stale),
        cmocka_unit_test(the_same_or_no_target_is_fine),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
