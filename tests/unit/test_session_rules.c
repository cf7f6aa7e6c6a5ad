/* SPDX-License-Identifier: Apache-2.0 */
/* The rules of sessions: what is refused before a write, what is missing at the end, what poisons. */
#include "replay_testing.h"

typedef struct fixture {
    world w;
    payload a, b;
    image live, want;
    lp_plan *plan;
} fixture;

/* left and right fill the two halves of one destination; scale becomes a destination of its own. */
static void open_fixture(fixture *f, const lp_bind_options *options)
{
    memset(f, 0, sizeof *f);
    f->w.random = 7;
    const int left = add_source(&f->w, "left", LP_F32, 2, 4), right = add_source(&f->w, "right", LP_F32, 2, 4);
    const int scale = add_source(&f->w, "scale", LP_BF16, 1, 5);
    add_source(&f->w, "elsewhere", LP_F32, 1, 2); /* of another rank */
    const int whole = add_dest(&f->w, "layers.0.weight", LP_F32, 4, 4, 8, "layers.0");
    const int wide = add_dest(&f->w, "layers.1.scale", LP_F32, 1, 5, 0, "layers.1");
    add_copy(&f->w, left, whole, 0, 2, 0);
    add_copy(&f->w, right, whole, 2, 2, 0);
    add_copy(&f->w, scale, wide, 0, 1, 0);
    build_world(&f->w, NULL);
    f->a = make_payload(&f->w);
    f->b = make_payload(&f->w);
    f->live = new_image(&f->w);
    f->want = new_image(&f->w);
    model_load(&f->w, &f->a, &f->want);
    f->plan = bind_image(&f->w, &f->live, options);
}

static void close_fixture(fixture *f)
{
    lp_plan_close(f->plan);
    free_image(&f->w, &f->live);
    free_image(&f->w, &f->want);
    free_payload(&f->w, &f->a);
    free_payload(&f->w, &f->b);
    free_world(&f->w);
}

static lp_session *begin(fixture *f, lp_load_mode mode)
{
    lp_session *s = NULL;
    assert_ok(&f->w, lp_begin(&s, f->plan, &(lp_session_options){.mode = mode}, &f->w.err));
    return s;
}

static void test_cold_start(void **state)
{
    (void)state;
    fixture f;
    lp_report report;
    open_fixture(&f, NULL);
    lp_session *s = begin(&f, LP_COLD);
    push_all(&f.w, s, &f.a);
    assert_ok(&f.w, lp_finish(s, &report, &f.w.err));
    assert_int_equal(report.bytes_pushed, 32 + 32 + 10);
    assert_int_equal(report.bytes_written, 32 + 32 + 20);
    assert_int_equal(report.names_loaded, 3);
    assert_int_equal(report.names_ignored, 1);
    assert_int_equal(report.names_missing, 0);
    assert_int_equal(report.tensors, 2);
    assert_int_equal(report.tensors_changed, -1);
    lp_session_close(s);
    assert_same_image(&f.w, &f.live, &f.want, "cold start");
    close_fixture(&f);
}

/* vLLM counts elements per layer: left sent twice and right never counts as complete there. */
static void test_left_twice_right_never_is_incomplete(void **state)
{
    (void)state;
    fixture f;
    open_fixture(&f, NULL);
    lp_session *s = begin(&f, LP_COLD);
    push_whole(&f.w, s, &f.a, 0);
    const lp_buffer left = {.data = f.a.data[0], .dtype = LP_F32, .ndim = 2, .shape = f.w.source[0].shape};
    assert_int_equal(lp_push(s, "left", &left, &f.w.err), LP_E_DUPLICATE);
    assert_string_equal(f.w.err.text, "byte 0 of 'left' was pushed before");
    push_whole(&f.w, s, &f.a, 2);
    lp_report report;
    assert_int_equal(lp_finish(s, &report, &f.w.err), LP_E_INCOMPLETE);
    assert_string_equal(f.w.err.text, "1 name is missing: 'right'");
    assert_string_equal(f.w.err.subject, "right");
    assert_int_equal(report.names_missing, 1);
    int64_t cursor = 0;
    assert_string_equal(lp_session_missing(s, &cursor), "right");
    assert_null(lp_session_missing(s, &cursor));
    push_whole(&f.w, s, &f.a, 1); /* the session stays usable */
    assert_ok(&f.w, lp_finish(s, &report, &f.w.err));
    lp_session_close(s);
    assert_same_image(&f.w, &f.live, &f.want, "after the missing half");
    close_fixture(&f);
}

static void test_refused_pushes_change_nothing(void **state)
{
    (void)state;
    fixture f;
    open_fixture(&f, NULL);
    image before = new_image(&f.w);
    for (int i = 0; i < f.w.ndest; i++) {
        memset(f.live.data[i], 0xa5, (size_t)f.w.dest[i].storage_bytes);
        memset(before.data[i], 0xa5, (size_t)f.w.dest[i].storage_bytes);
    }
    lp_session *s = begin(&f, LP_DIRECT);
    const int64_t shape[2] = {2, 4}, swapped[2] = {4, 2};
    lp_buffer b = {.data = f.b.data[0], .dtype = LP_F32, .ndim = 2, .shape = shape};
    assert_int_equal(lp_push(s, "nobody", &b, &f.w.err), LP_E_UNKNOWN_NAME);
    assert_string_equal(f.w.err.text, "the plan does not know 'nobody'");
    b.shape = swapped;
    assert_int_equal(lp_push(s, "left", &b, &f.w.err), LP_E_MISMATCH);
    assert_string_equal(f.w.err.text, "'left' is pushed as F32 [4, 2], the plan knows it as F32 [2, 4]");
    b = (lp_buffer){.data = f.b.data[0], .dtype = LP_I32, .ndim = 2, .shape = shape};
    assert_int_equal(lp_push(s, "left", &b, &f.w.err), LP_E_MISMATCH);
    b = (lp_buffer){.data = f.b.data[0], .dtype = LP_F32, .ndim = 2, .shape = shape, .bytes = 31};
    assert_int_equal(lp_push(s, "left", &b, &f.w.err), LP_E_MISMATCH);
    b = (lp_buffer){.data = NULL, .dtype = LP_F32, .ndim = 2, .shape = shape};
    assert_int_equal(lp_push(s, "left", &b, &f.w.err), LP_E_ARGUMENT);
    assert_int_equal(lp_push_range(s, "left", 30, f.b.data[0], 4, &f.w.err), LP_E_MISMATCH);
    assert_int_equal(lp_push_range(s, "left", -1, f.b.data[0], 4, &f.w.err), LP_E_MISMATCH);
    assert_int_equal(lp_push_range(s, "left", 4, f.b.data[0], -4, &f.w.err), LP_E_MISMATCH);
    assert_int_equal(lp_push_range(s, "left", 0, f.b.data[0], INT64_MAX, &f.w.err), LP_E_MISMATCH);
    assert_int_equal(lp_push_handle_range(s, 99, 0, f.b.data[0], 4, &f.w.err), LP_E_UNKNOWN_NAME);
    assert_int_equal(lp_mark_loaded(s, "left", &f.w.err), LP_E_ARGUMENT);
    assert_same_image(&f.w, &f.live, &before, "after refusals");
    free_image(&f.w, &before);
    push_all(&f.w, s, &f.a);
    assert_ok(&f.w, lp_finish(s, NULL, &f.w.err));
    assert_int_equal(lp_push(s, "left", &b, &f.w.err), LP_E_MISUSE);
    assert_int_equal(lp_finish(s, NULL, &f.w.err), LP_E_MISUSE);
    lp_session_close(s);
    close_fixture(&f);
}

/* A batch is judged as a whole: nothing is written when one of it is wrong. */
static void test_push_many_is_judged_first(void **state)
{
    (void)state;
    fixture f;
    open_fixture(&f, NULL);
    lp_session *s = begin(&f, LP_COLD);
    const lp_handle left = lp_plan_handle(f.plan, "left"), right = lp_plan_handle(f.plan, "right");
    const lp_handle scale = lp_plan_handle(f.plan, "scale"), other = lp_plan_handle(f.plan, "elsewhere");
    assert_int_equal(lp_plan_handle(f.plan, "nobody"), LP_NONE);
    assert_int_equal(lp_plan_use(f.plan, left), LP_USE_LOADED);
    assert_int_equal(lp_plan_use(f.plan, other), LP_USE_NONE);
    assert_string_equal(lp_plan_name(f.plan, right), "right");
    assert_null(lp_plan_name(f.plan, 99));
    image zero = new_image(&f.w);
    const lp_handle twice[3] = {left, right, left}, bad[2] = {left, 99};
    const void *data[4] = {f.a.data[0], f.a.data[1], f.a.data[2], f.a.data[3]};
    assert_int_equal(lp_push_many(s, twice, data, 3, &f.w.err), LP_E_DUPLICATE);
    assert_int_equal(lp_push_many(s, bad, data, 2, &f.w.err), LP_E_UNKNOWN_NAME);
    assert_same_image(&f.w, &f.live, &zero, "after refused batches");
    free_image(&f.w, &zero);
    const lp_handle good[4] = {left, right, scale, other};
    assert_ok(&f.w, lp_push_many(s, good, data, 4, &f.w.err));
    assert_ok(&f.w, lp_finish(s, NULL, &f.w.err));
    lp_session_close(s);
    assert_same_image(&f.w, &f.live, &f.want, "push_many");
    close_fixture(&f);
}

static void test_ranges_cut_elements(void **state)
{
    (void)state;
    fixture f;
    open_fixture(&f, NULL);
    lp_session *s = begin(&f, LP_COLD);
    push_whole(&f.w, s, &f.a, 1);
    for (int64_t i = 31; i >= 0; i -= 2) /* odd bytes, then even bytes */
        assert_ok(&f.w, lp_push_range(s, "left", i, f.a.data[0] + i, 1, &f.w.err));
    for (int64_t i = 0; i < 32; i += 2)
        assert_ok(&f.w, lp_push_range(s, "left", i, f.a.data[0] + i, 1, &f.w.err));
    assert_int_equal(lp_push_range(s, "left", 3, f.a.data[0], 1, &f.w.err), LP_E_DUPLICATE);
    const int64_t order[10] = {9, 0, 3, 1, 8, 2, 7, 4, 6, 5};
    for (int i = 0; i < 10; i++) { /* a cast, byte by byte */
        assert_int_equal(lp_finish(s, NULL, &f.w.err), LP_E_INCOMPLETE);
        if (i > 0)
            assert_string_equal(f.w.err.text, "1 name is missing: 'scale' (in part)");
        assert_ok(&f.w, lp_push_range(s, "scale", order[i], f.a.data[2] + order[i], 1, &f.w.err));
    }
    assert_ok(&f.w, lp_finish(s, NULL, &f.w.err));
    lp_session_close(s);
    assert_same_image(&f.w, &f.live, &f.want, "byte by byte");
    close_fixture(&f);
}

static void test_strided_buffers(void **state)
{
    (void)state;
    fixture f;
    open_fixture(&f, NULL);
    lp_session *s = begin(&f, LP_COLD);
    float wide[2 * 10];
    memset(wide, 0xee, sizeof wide);
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < 4; j++)
            memcpy(&wide[10 * (1 - i) + 2 * (3 - j)], f.a.data[0] + 4 * (4 * i + j), 4);
    const int64_t stride[2] = {-40, -8};
    const lp_buffer b = {
        .data = &wide[10 + 6], .dtype = LP_F32, .ndim = 2, .shape = f.w.source[0].shape, .stride = stride};
    assert_ok(&f.w, lp_push(s, "left", &b, &f.w.err));
    push_whole(&f.w, s, &f.a, 1);
    uint16_t spread[15];
    for (int j = 0; j < 5; j++)
        memcpy(&spread[3 * j], f.a.data[2] + 2 * j, 2);
    const int64_t thirds[2] = {0, 6};
    const lp_buffer c = {.data = spread, .dtype = LP_BF16, .ndim = 2, .shape = f.w.source[2].shape, .stride = thirds};
    assert_ok(&f.w, lp_push(s, "scale", &c, &f.w.err));
    assert_ok(&f.w, lp_finish(s, NULL, &f.w.err));
    lp_session_close(s);
    assert_same_image(&f.w, &f.live, &f.want, "strided");
    close_fixture(&f);
}

static void test_subset_keeps_the_rest(void **state)
{
    (void)state;
    fixture f;
    open_fixture(&f, NULL);
    lp_session *s = begin(&f, LP_COLD);
    push_all(&f.w, s, &f.a);
    assert_ok(&f.w, lp_finish(s, NULL, &f.w.err));
    lp_session_close(s);
    const char *subset[1] = {"right"}, *wrong[1] = {"elsewhere"};
    assert_int_equal(
        lp_begin(&s, f.plan, &(lp_session_options){.mode = LP_DIRECT, .subset = wrong, .subset_count = 1}, &f.w.err),
        LP_E_UNKNOWN_NAME);
    assert_int_equal(
        lp_begin(&s, f.plan, &(lp_session_options){.mode = LP_COLD, .subset = subset, .subset_count = 1}, &f.w.err),
        LP_E_ARGUMENT);
    assert_ok(&f.w,
              lp_begin(&s, f.plan,
                       &(lp_session_options){.mode = LP_DIRECT, .subset = subset, .subset_count = 1, .digests = true},
                       &f.w.err));
    const lp_buffer left = {.data = f.b.data[0], .dtype = LP_F32, .ndim = 2, .shape = f.w.source[0].shape};
    assert_int_equal(lp_push(s, "left", &left, &f.w.err), LP_E_UNKNOWN_NAME);
    assert_string_equal(f.w.err.text, "'left' is not in the subset of this session");
    push_whole(&f.w, s, &f.b, 1);
    lp_report report;
    assert_ok(&f.w, lp_finish(s, &report, &f.w.err));
    assert_int_equal(report.tensors_changed, 1);
    assert_int_equal(report.tensors_unchanged, 1);
    lp_session_close(s);
    payload mixed = f.a;
    mixed.data[1] = f.b.data[1];
    model_load(&f.w, &mixed, &f.want);
    assert_same_image(&f.w, &f.live, &f.want, "subset");
    close_fixture(&f);
}

/* A retry after an abort must not mix versions: what the broken round touched has to come again. */
static void test_abort_then_subset_is_refused(void **state)
{
    (void)state;
    fixture f;
    open_fixture(&f, NULL);
    lp_session *s = begin(&f, LP_COLD), *other = NULL;
    assert_int_equal(lp_begin(&other, f.plan, NULL, &f.w.err), LP_E_MISUSE);
    push_all(&f.w, s, &f.a);
    assert_ok(&f.w, lp_finish(s, NULL, &f.w.err));
    lp_session_close(s);
    s = begin(&f, LP_DIRECT);
    push_whole(&f.w, s, &f.b, 0);
    lp_abort(s, "the trainer went away");
    const lp_buffer right = {.data = f.b.data[1], .dtype = LP_F32, .ndim = 2, .shape = f.w.source[1].shape};
    assert_int_equal(lp_push(s, "right", &right, &f.w.err), LP_E_POISONED);
    assert_string_equal(f.w.err.text, "the session is poisoned: the trainer went away");
    assert_int_equal(lp_finish(s, NULL, &f.w.err), LP_E_POISONED);
    lp_session_close(s);
    const char *right_only[1] = {"right"}, *both[2] = {"left", "right"};
    assert_int_equal(lp_begin(&s, f.plan,
                              &(lp_session_options){.mode = LP_DIRECT, .subset = right_only, .subset_count = 1},
                              &f.w.err),
                     LP_E_POISONED);
    assert_string_equal(f.w.err.text, "'left' holds bytes of a load that did not finish");
    assert_ok(&f.w, lp_begin(&s, f.plan, &(lp_session_options){.mode = LP_DIRECT, .subset = both, .subset_count = 2},
                             &f.w.err));
    push_whole(&f.w, s, &f.a, 0);
    push_whole(&f.w, s, &f.a, 1);
    assert_ok(&f.w, lp_finish(s, NULL, &f.w.err));
    lp_session_close(s);
    assert_same_image(&f.w, &f.live, &f.want, "after the retry");
    assert_ok(&f.w,
              lp_begin(&s, f.plan, &(lp_session_options){.mode = LP_DIRECT, .subset = right_only, .subset_count = 1},
                       &f.w.err));
    lp_session_close(s);
    close_fixture(&f);
}

/* A cold start that stops half-way leaves nothing behind that a subset could call complete. */
static void test_unfinished_cold_start_is_no_base_for_a_subset(void **state)
{
    (void)state;
    fixture f;
    open_fixture(&f, NULL);
    lp_session *s = begin(&f, LP_COLD);
    lp_session_close(s);
    const char *subset[1] = {"right"};
    assert_int_equal(
        lp_begin(&s, f.plan, &(lp_session_options){.mode = LP_DIRECT, .subset = subset, .subset_count = 1}, &f.w.err),
        LP_E_POISONED);
    close_fixture(&f);
}

static void test_meta_tensors(void **state)
{
    (void)state;
    fixture f;
    open_fixture(&f, NULL);
    lp_destinations *d;
    lp_plan *plan;
    lp_session *s;
    int64_t count;
    assert_ok(&f.w, lp_destinations_allocate(&d, f.w.trace, NULL, true, NULL, &f.w.err));
    const lp_destination_memory *memory = lp_destinations_list(d, &count);
    assert_int_equal(count, 2);
    assert_null(memory[0].data);
    assert_ok(&f.w, lp_bind(&plan, f.w.trace, NULL, memory, count, NULL, &f.w.err));
    assert_int_equal(lp_begin(&s, plan, NULL, &f.w.err), LP_E_MISUSE);
    assert_ok(&f.w, lp_begin(&s, plan, &(lp_session_options){.mode = LP_META}, &f.w.err));
    const payload none = {{NULL}};
    for (int i = 0; i < 2; i++)
        push_whole(&f.w, s, &none, i);
    assert_int_equal(lp_finish(s, NULL, &f.w.err), LP_E_INCOMPLETE);
    push_whole(&f.w, s, &none, 2);
    assert_ok(&f.w, lp_finish(s, NULL, &f.w.err));
    lp_session_close(s);
    uint8_t digest[LP_VALUE_DIGEST_BYTES];
    assert_int_equal(lp_plan_value_digest(plan, 0, digest, &f.w.err), LP_E_MISUSE);
    lp_plan_close(plan);
    lp_destinations_free(d);
    close_fixture(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cold_start),
        cmocka_unit_test(test_left_twice_right_never_is_incomplete),
        cmocka_unit_test(test_refused_pushes_change_nothing),
        cmocka_unit_test(test_push_many_is_judged_first),
        cmocka_unit_test(test_ranges_cut_elements),
        cmocka_unit_test(test_strided_buffers),
        cmocka_unit_test(test_subset_keeps_the_rest),
        cmocka_unit_test(test_abort_then_subset_is_refused),
        cmocka_unit_test(test_unfinished_cold_start_is_no_base_for_a_subset),
        cmocka_unit_test(test_meta_tensors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
