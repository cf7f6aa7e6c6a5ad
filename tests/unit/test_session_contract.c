/* SPDX-License-Identifier: Apache-2.0 */
/* What goes wrong in loaders elsewhere and must be impossible here; each test has the name of what it prevents. */
#include "replay_testing.h"

typedef struct bench {
    world w;
    payload a, b;
    image live, want;
    lp_plan *plan;
} bench;

static void open_bench(bench *x, void (*more)(world *w), const lp_bind_options *options)
{
    x->w.random = 11;
    build_world(&x->w, more);
    x->a = make_payload(&x->w);
    x->b = make_payload(&x->w);
    x->live = new_image(&x->w);
    x->want = new_image(&x->w);
    x->plan = bind_image(&x->w, &x->live, options);
}

static void close_bench(bench *x)
{
    lp_plan_close(x->plan);
    free_image(&x->w, &x->live);
    free_image(&x->w, &x->want);
    free_payload(&x->w, &x->a);
    free_payload(&x->w, &x->b);
    free_world(&x->w);
}

static lp_session *begin(bench *x, lp_load_mode mode)
{
    lp_session *s = NULL;
    assert_ok(&x->w, lp_begin(&s, x->plan, &(lp_session_options){.mode = mode}, &x->w.err));
    return s;
}

static void load(bench *x, const payload *p, lp_load_mode mode, lp_report *report)
{
    lp_session *s = begin(x, mode);
    push_all(&x->w, s, p);
    assert_ok(&x->w, lp_finish(s, report, &x->w.err));
    lp_session_close(s);
}

static const lp_load_mode live_modes[] = {LP_DIRECT, LP_LAYERWISE};

/* A composed loader's operation after the copy was dropped without a word: raw values were replayed. */
static void test_operation_after_the_copy_is_not_dropped(void **state)
{
    (void)state;
    bench x = {.plan = NULL};
    const int a_log = add_source(&x.w, "A_log", LP_F32, 2, 4);
    x.w.derive[x.w.nderive++] = (derive){DERIVE_NEG_EXP, add_dest(&x.w, "A", LP_F32, 2, 4, 0, "g"), -1, a_log};
    open_bench(&x, NULL, NULL);
    lp_report report;
    load(&x, &x.a, LP_COLD, &report);
    assert_int_equal(report.derives_run, 1);
    for (int m = 0; m < 2; m++) { /* and it is done again, from the new source, not twice on its own result */
        load(&x, &x.b, live_modes[m], &report);
        load(&x, &x.b, live_modes[m], &report);
        model_load(&x.w, &x.b, &x.want);
        assert_same_image(&x.w, &x.live, &x.want, "second reload");
    }
    close_bench(&x);
}

/* One name into two modules kept only the last of them. */
static void test_one_name_into_two_destinations_keeps_both(void **state)
{
    (void)state;
    bench x = {.plan = NULL};
    const int w = add_source(&x.w, "embed", LP_F32, 3, 4);
    add_copy(&x.w, w, add_dest(&x.w, "embed", LP_F32, 3, 4, 0, "root"), 0, 3, 0);
    add_copy(&x.w, w, add_dest(&x.w, "head", LP_F32, 3, 4, 8, "layers.9"), 0, 3, 0);
    open_bench(&x, NULL, NULL);
    lp_report report;
    load(&x, &x.a, LP_COLD, &report);
    load(&x, &x.b, LP_LAYERWISE, &report);
    assert_int_equal(report.groups_committed, 2);
    model_load(&x.w, &x.b, &x.want);
    assert_same_image(&x.w, &x.live, &x.want, "fan-out");
    close_bench(&x);
}

/* Equal element counts hid a hole: three parameters of one size, one counted twice, one never there. */
static void test_equal_counts_do_not_hide_a_hole(void **state)
{
    (void)state;
    bench x = {.plan = NULL};
    const char *names[3] = {"A", "dt_bias", "D"};
    for (int i = 0; i < 3; i++)
        add_copy(&x.w, add_source(&x.w, names[i], LP_F32, 1, 4), add_dest(&x.w, names[i], LP_F32, 1, 4, 0, "g"), 0, 1,
                 0);
    open_bench(&x, NULL, NULL);
    lp_report report;
    load(&x, &x.a, LP_COLD, &report);
    model_load(&x.w, &x.a, &x.want);
    for (int m = 0; m < 2; m++) {
        lp_session *s = begin(&x, live_modes[m]);
        push_whole(&x.w, s, &x.b, 0);
        const lp_buffer again = {.data = x.b.data[0], .dtype = LP_F32, .ndim = 2, .shape = x.w.source[0].shape};
        assert_int_equal(lp_push(s, "A", &again, &x.w.err), LP_E_DUPLICATE);
        push_whole(&x.w, s, &x.b, 1);
        assert_int_equal(lp_finish(s, &report, &x.w.err), LP_E_INCOMPLETE);
        assert_string_equal(x.w.err.text, "1 name is missing: 'D'");
        if (live_modes[m] == LP_LAYERWISE) /* the group did not become live in part */
            assert_same_image(&x.w, &x.live, &x.want, "unfinished group");
        lp_session_close(s);
        load(&x, &x.a, LP_DIRECT, &report);
    }
    close_bench(&x);
}

/* Tensors without elements shifted sender against receiver; here they are names like others. */
static void test_zero_size_tensor_shifts_nobody(void **state)
{
    (void)state;
    bench x = {.plan = NULL};
    add_source(&x.w, "empty", LP_F32, 0, 4);
    add_copy(&x.w, add_source(&x.w, "full", LP_F32, 2, 4), add_dest(&x.w, "full", LP_F32, 2, 4, 0, "g"), 0, 2, 0);
    add_dest(&x.w, "none", LP_F32, 0, 4, 0, "g");
    open_bench(&x, NULL, NULL);
    const lp_handle handle[2] = {lp_plan_handle(x.plan, "empty"), lp_plan_handle(x.plan, "full")};
    const void *data[2] = {NULL, x.a.data[1]};
    lp_session *s = begin(&x, LP_COLD);
    assert_ok(&x.w, lp_push_many(s, handle, data, 2, &x.w.err));
    assert_ok(&x.w, lp_finish(s, NULL, &x.w.err));
    lp_session_close(s);
    model_load(&x.w, &x.a, &x.want);
    assert_same_image(&x.w, &x.live, &x.want, "beside an empty tensor");
    close_bench(&x);
}

/* A partial load left uninitialised memory behind a success. */
static void test_partial_load_is_no_success(void **state)
{
    (void)state;
    bench x = {.plan = NULL};
    add_copy(&x.w, add_source(&x.w, "w", LP_F32, 4, 4), add_dest(&x.w, "w", LP_F32, 4, 4, 0, "g"), 0, 4, 0);
    open_bench(&x, NULL, NULL);
    memset(x.live.data[0], 0xff, 64); /* NaN, as fresh device memory may be */
    lp_session *s = begin(&x, LP_COLD);
    assert_ok(&x.w, lp_push_range(s, "w", 0, x.a.data[0], 60, &x.w.err));
    assert_int_equal(lp_finish(s, NULL, &x.w.err), LP_E_INCOMPLETE);
    assert_string_equal(x.w.err.text, "1 name is missing: 'w' (in part)");
    memcpy(x.want.data[0], x.a.data[0], 60); /* the rest is zero, not what was there */
    assert_same_image(&x.w, &x.live, &x.want, "partial");
    lp_session_close(s);
    close_bench(&x);
}

/* Buffers that nobody loads were overwritten when their layer loaded anything. */
static void test_buffers_nobody_loads_keep_their_bytes(void **state)
{
    (void)state;
    bench x = {.plan = NULL};
    add_copy(&x.w, add_source(&x.w, "w", LP_F32, 2, 4), add_dest(&x.w, "w", LP_F32, 2, 4, 0, "g"), 0, 2, 0);
    const int alpha = add_dest(&x.w, "_l2_alpha", LP_F32, 1, 8, 0, "g");
    x.w.dest[alpha].flags = LP_DEST_NO_LOADER | LP_DEST_BUFFER;
    open_bench(&x, NULL, NULL);
    lp_report report;
    load(&x, &x.a, LP_COLD, &report);
    for (int m = 0; m < 2; m++) {
        memset(x.live.data[alpha], 0x3c, 32);   /* what the last forward left there */
        load(&x, &x.b, live_modes[m], &report); /* and nothing waits for it */
        model_load(&x.w, &x.b, &x.want);
        memset(x.want.data[alpha], 0x3c, 32);
        assert_same_image(&x.w, &x.live, &x.want, "reload beside a scratch buffer");
    }
    close_bench(&x);
}

/* Post-load hooks ran at cold load only. The L2 activation scale is max(w2_input_scale), or 1 where that is 0. */
static void test_derives_rerun_on_every_reload(void **state)
{
    (void)state;
    bench x = {.plan = NULL};
    const int experts = add_dest(&x.w, "w2_input_scale", LP_F32, 4, 1, 0, "layers.0");
    char name[32];
    for (int e = 0; e < 4; e++) {
        snprintf(name, sizeof name, "experts.%d.input_scale", e);
        add_copy(&x.w, add_source(&x.w, name, LP_F32, 1, 1), experts, e, 1, 0);
    }
    x.w.derive[x.w.nderive++] =
        (derive){DERIVE_MAX, add_dest(&x.w, "l2_activation_scale", LP_F32, 1, 1, 0, "layers.0"), experts, -1};
    open_bench(&x, NULL, NULL);
    const float first[4] = {0.5f, 3.0f, 2.0f, 1.0f}, zero[4] = {0, 0, 0, 0};
    lp_report report;
    float have;
    for (int e = 0; e < 4; e++)
        memcpy(x.a.data[e], &first[e], 4);
    load(&x, &x.a, LP_COLD, &report);
    memcpy(&have, x.live.data[1], 4);
    assert_true(have == 3.0f);
    for (int m = 0; m < 2; m++) {
        for (int e = 0; e < 4; e++)
            memcpy(x.b.data[e], &zero[e], 4);
        load(&x, &x.b, live_modes[m], &report);
        memcpy(&have, x.live.data[1], 4);
        assert_true(have == 1.0f);
        assert_int_equal(report.derives_run, 1);
        /* a subset that changes one input reruns it over the live rest */
        const char *subset[1] = {"experts.2.input_scale"};
        lp_session *s;
        const float eight = 8.0f;
        assert_ok(&x.w, lp_begin(&s, x.plan,
                                 &(lp_session_options){.mode = live_modes[m], .subset = subset, .subset_count = 1},
                                 &x.w.err));
        assert_ok(&x.w, lp_push_range(s, subset[0], 0, &eight, 4, &x.w.err));
        assert_ok(&x.w, lp_finish(s, &report, &x.w.err));
        lp_session_close(s);
        memcpy(&have, x.live.data[1], 4);
        assert_true(have == 8.0f);
    }
    close_bench(&x);
}

/* w1 and w3 were compared when the second of them arrived, so the error depended on the order. */
static void test_failed_check_has_one_text_in_any_order(void **state)
{
    (void)state;
    char text[3][sizeof((lp_error *)0)->text];
    for (int order = 0; order < 3; order++) {
        bench x = {.plan = NULL};
        const int scale = add_dest(&x.w, "w13_weight_scale_2", LP_F32, 2, 3, 0, "layers.0");
        char name[32];
        for (int e = 0; e < 3; e++)
            for (int row = 0; row < 2; row++) {
                snprintf(name, sizeof name, "experts.%d.w%d", e, row == 0 ? 1 : 3);
                const int from = add_source(&x.w, name, LP_F32, 1, 1);
                x.w.call[x.w.ncall++] =
                    (call){.source = from, .trigger = from, .dest = scale, .dst_at = {row, e}, .size = {1, 1}};
            }
        x.w.derive[x.w.nderive++] = (derive){DERIVE_CLOSE, -1, scale, -1};
        open_bench(&x, NULL, NULL);
        const float value[6] = {1.0f, 1.0f, 2.0f, 2.5f, 4.0f, 3.0f};
        for (int i = 0; i < 6; i++)
            memcpy(x.a.data[i], &value[i], 4);
        lp_session *s = begin(&x, LP_COLD);
        for (int i = 0; i < 6; i++)
            push_whole(&x.w, s, &x.a, order == 0 ? i : order == 1 ? 5 - i : (i + 3) % 6);
        lp_report report;
        assert_int_equal(lp_finish(s, &report, &x.w.err), LP_E_VALUE);
        memcpy(text[order], x.w.err.text, sizeof text[order]);
        assert_int_equal(lp_push_range(s, "experts.0.w1", 0, &value[0], 4, &x.w.err), LP_E_POISONED);
        lp_session_close(s);
        close_bench(&x);
    }
    assert_string_equal(text[0], "w1 and w3 differ for expert 1: 2 and 2.5");
    assert_string_equal(text[0], text[1]);
    assert_string_equal(text[0], text[2]);
}

/* The last write of the loader wins, whatever arrives last. */
static void test_overlaps_keep_the_loaders_order(void **state)
{
    (void)state;
    bench x = {.plan = NULL};
    const int early = add_source(&x.w, "z.early", LP_F32, 4, 4), late = add_source(&x.w, "a.late", LP_F32, 2, 4);
    const int to = add_dest(&x.w, "w", LP_F32, 4, 4, 0, "g");
    add_copy(&x.w, early, to, 0, 4, 0);
    add_copy(&x.w, late, to, 1, 2, 0);
    open_bench(&x, NULL, NULL);
    model_load(&x.w, &x.a, &x.want);
    for (int order = 0; order < 2; order++) {
        lp_session *s = begin(&x, LP_COLD);
        push_whole(&x.w, s, &x.a, order == 0 ? early : late);
        push_whole(&x.w, s, &x.a, order == 0 ? late : early);
        assert_ok(&x.w, lp_finish(s, NULL, &x.w.err));
        lp_session_close(s);
        assert_same_image(&x.w, &x.live, &x.want, order == 0 ? "in order" : "against order");
    }
    close_bench(&x);
}

/* ---- fallbacks ---- */

/* dest 0 is loaded by the engine, dest 1 by the plan, dest 2 is derived from dest 0. */
static void open_fallback(bench *x)
{
    add_source(&x->w, "scale", LP_F32, 1, 4);
    add_dest(&x->w, "scale", LP_F32, 1, 4, 0, "layers.0");
    add_copy(&x->w, add_source(&x->w, "weight", LP_F32, 2, 4), add_dest(&x->w, "weight", LP_F32, 2, 4, 0, "layers.0"),
             0, 2, 0);
    x->w.derive[x->w.nderive++] = (derive){DERIVE_MAX, add_dest(&x->w, "max", LP_F32, 1, 1, 0, "layers.0"), 0, -1};
    open_bench(x, refuse_scale, NULL);
}

static void test_fallbacks_are_missing_until_marked(void **state)
{
    (void)state;
    for (int m = 0; m < 2; m++) {
        bench x = {.plan = NULL};
        lp_report report;
        open_fallback(&x);
        assert_int_equal(lp_plan_use(x.plan, lp_plan_handle(x.plan, "scale")), LP_USE_FALLBACK);
        lp_session *s = begin(&x, live_modes[m]);
        const lp_buffer scale = {.data = x.a.data[0], .dtype = LP_F32, .ndim = 2, .shape = x.w.source[0].shape};
        assert_int_equal(lp_push(s, "scale", &scale, &x.w.err), LP_E_REFUSED);
        push_whole(&x.w, s, &x.a, 1);
        assert_int_equal(lp_finish(s, &report, &x.w.err), LP_E_INCOMPLETE);
        assert_string_equal(x.w.err.text, "1 name is missing: 'scale' (a fallback)");
        assert_int_equal(report.fallbacks, 1);
        const float value[4] = {1, 6, 2, 3};
        memcpy(x.live.data[0], value, sizeof value); /* the engine's own loader */
        assert_ok(&x.w, lp_mark_loaded(s, "scale", &x.w.err));
        assert_int_equal(lp_mark_loaded(s, "scale", &x.w.err), LP_E_DUPLICATE);
        assert_ok(&x.w, lp_finish(s, &report, &x.w.err));
        assert_int_equal(report.derives_run, 1);
        lp_session_close(s);
        float max;
        memcpy(&max, x.live.data[2], 4);
        assert_true(max == 6.0f);
        assert_memory_equal(x.live.data[0], value, sizeof value);
        assert_memory_equal(x.live.data[1], x.a.data[1], 32);
        close_bench(&x);
    }
}

/* Without fallbacks allowed to be absent, a derive over them would compute from nothing. */
static void test_allowed_fallbacks_skip_their_derives(void **state)
{
    (void)state;
    for (int m = 0; m < 2; m++) {
        bench x = {.plan = NULL};
        lp_report report;
        open_fallback(&x);
        lp_session *s;
        assert_ok(&x.w, lp_begin(&s, x.plan, &(lp_session_options){.mode = live_modes[m], .allow_fallbacks = true},
                                 &x.w.err));
        push_whole(&x.w, s, &x.a, 1);
        assert_ok(&x.w, lp_finish(s, &report, &x.w.err));
        assert_int_equal(report.derives_run, 0);
        assert_int_equal(report.derives_skipped, 1);
        lp_session_close(s);
        assert_memory_equal(x.live.data[1], x.a.data[1], 32);
        const uint8_t zero[4] = {0};
        assert_memory_equal(x.live.data[2], zero, 4);
        close_bench(&x);
    }
}

/* ---- dummy loads ---- */

static void test_dummy_values(void **state)
{
    (void)state;
    bench x = {.plan = NULL};
    lp_report report;
    const int scales = add_dest(&x.w, "w13_weight_scale_2", LP_F32, 2, 3, 4, "g");
    add_fill(&x.w, -1, add_dest(&x.w, "padding", LP_I32, 1, 4, 0, "g"), 0, 1, 0x01020304);
    x.w.derive[x.w.nderive++] = (derive){DERIVE_CLOSE, -1, scales, -1};
    x.w.derive[x.w.nderive++] = (derive){DERIVE_MAX, add_dest(&x.w, "max", LP_F32, 1, 1, 0, "g"), scales, -1};
    const int free_value = add_dest(&x.w, "weight", LP_BF16, 3, 5, 0, "g"),
              codes = add_dest(&x.w, "codes", LP_U8, 2, 2, 0, "g");
    add_source(&x.w, "needed", LP_F32, 1, 1);
    add_copy(&x.w, 0, add_dest(&x.w, "one", LP_F32, 1, 1, 0, "g"), 0, 1, 0);
    x.w.dest[scales].flags = LP_DEST_HAS_DUMMY;
    x.w.dest[scales].dummy = 0x3a83126f; /* 1e-3 */
    open_bench(&x, NULL, NULL);
    lp_session *s = begin(&x, LP_DUMMY);
    assert_int_equal(lp_push_range(s, "needed", 0, x.a.data[0], 4, &x.w.err), LP_E_MISUSE);
    assert_ok(&x.w, lp_finish(s, &report, &x.w.err)); /* w1 and w3 match */
    lp_session_close(s);
    assert_int_equal(report.derives_run, 2);
    const uint32_t thousandth[3] = {0x3a83126f, 0x3a83126f, 0x3a83126f};
    assert_memory_equal(x.live.data[scales], thousandth, 12);
    assert_memory_equal(x.live.data[scales] + 16, thousandth, 12);
    assert_memory_equal(x.live.data[2], thousandth, 4); /* the derived maximum */
    const uint32_t padding[4] = {0x01020304, 0x01020304, 0x01020304, 0x01020304};
    assert_memory_equal(x.live.data[1], padding, 16);
    int different = 0;
    for (int i = 0; i < 15; i++) {
        uint16_t bits;
        memcpy(&bits, x.live.data[free_value] + 2 * i, 2);
        const float value = lp_f32_of_bits((uint32_t)bits << 16);
        assert_true(value >= -1.0f / 1024 && value <= 1.0f / 1024);
        different += i > 0 && memcmp(x.live.data[free_value], &bits, 2) != 0;
    }
    assert_true(different > 10);
    const uint8_t zero[4] = {0};
    assert_memory_equal(x.live.data[codes], zero, 4);
    close_bench(&x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_operation_after_the_copy_is_not_dropped),
        cmocka_unit_test(test_one_name_into_two_destinations_keeps_both),
        cmocka_unit_test(test_equal_counts_do_not_hide_a_hole),
        cmocka_unit_test(test_zero_size_tensor_shifts_nobody),
        cmocka_unit_test(test_partial_load_is_no_success),
        cmocka_unit_test(test_buffers_nobody_loads_keep_their_bytes),
        cmocka_unit_test(test_derives_rerun_on_every_reload),
        cmocka_unit_test(test_failed_check_has_one_text_in_any_order),
        cmocka_unit_test(test_overlaps_keep_the_loaders_order),
        cmocka_unit_test(test_fallbacks_are_missing_until_marked),
        cmocka_unit_test(test_allowed_fallbacks_skip_their_derives),
        cmocka_unit_test(test_dummy_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
