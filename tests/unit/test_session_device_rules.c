/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rules of sessions on a device: what may be captured, failed checks, dummy and meta sessions, fallbacks, tensors of
 * DLPack.
 */
#include "device_bed.h"

/* ---- capture ---- */

static void test_what_may_be_captured(void **state)
{
    bed b;
    (void)state;
    open_bed(&b, layered_world, &(lp_bind_options){.staging = 1 << 16, .threads = 1});
    begin(&b, LP_DIRECT);
    b.f.is_captured = true;
    assert_int_equal(push(&b, 0, true), LP_E_MISUSE);
    assert_string_equal(b.w.err.hint, "set `captures` in the options of bind");
    b.f.is_captured = false;
    close_bed(&b);

    open_bed(&b, layered_world, &(lp_bind_options){.staging = 1 << 16, .threads = 1, .captures = true});
    begin(&b, LP_LAYERWISE);
    b.f.is_captured = true;
    assert_int_equal(push(&b, 0, true), LP_E_MISUSE);
    b.f.is_captured = false;
    begin(&b, LP_DIRECT);
    b.f.is_captured = true;
    assert_int_equal(push(&b, 0, false), LP_E_MISUSE);
    assert_int_equal(lp_push_range(b.s, "s0.a", 0, b.device.data[0], 8, &b.w.err), LP_E_MISUSE);
    assert_ok(&b.w, push(&b, 0, true));
    assert_int_equal(lp_finish(b.s, NULL, &b.w.err), LP_E_INCOMPLETE);
    for (int i = 1; i < 4; i++)
        assert_ok(&b.w, push(&b, i, true));
    assert_int_equal(lp_finish(b.s, NULL, &b.w.err), LP_E_MISUSE);
    b.f.is_captured = false;
    finish(&b, NULL);
    close_bed(&b);
}

/* ---- checks, dummy and meta ---- */

static void checked_world(world *w)
{
    memset(w, 0, sizeof *w);
    w->random = 8;
    const int a = add_source(w, "a.scale", LP_F32, 2, 24), scale = add_dest(w, "scale", LP_F32, 2, 24, 0, "layers.0");
    add_copy(w, a, scale, 0, 2, 0);
    w->derive[w->nderive++] = (derive){DERIVE_CLOSE, -1, scale, -1};
    build_world(w, NULL);
}

static void test_a_failed_check_names_its_tensor(void **state)
{
    static const lp_load_mode modes[] = {LP_COLD, LP_DIRECT, LP_LAYERWISE};
    bed b;
    (void)state;
    open_bed(&b, checked_world, &(lp_bind_options){.staging = 1 << 16, .threads = 1});
    float *scale = (float *)(void *)b.host.data[0];
    for (int i = 0; i < 24; i++)
        scale[i] = scale[24 + i] = 1.0f + (float)i;
    scale[3] = 9.5f;
    image host_live = new_image(&b.w);
    lp_plan *host_plan = bind_image(&b.w, &host_live, NULL);
    for (int m = 0; m < 6; m++) {
        lp_session *s;
        assert_ok(&b.w,
                  lp_begin(&s, m < 3 ? b.plan : host_plan, &(lp_session_options){.mode = modes[m % 3]}, &b.w.err));
        push_all(&b.w, s, &b.host);
        assert_int_equal(lp_finish(s, NULL, &b.w.err), LP_E_VALUE);
        assert_string_equal(b.w.err.text, "w1 and w3 differ for expert 3: 9.5 and 4");
        assert_string_equal(b.w.err.subject, "scale");
        if (m == 0) /* the outcome stays to be asked for */
            assert_int_equal(lp_plan_checks(b.plan, NULL, &b.w.err), LP_E_VALUE);
        lp_session_close(s);
    }
    assert_int_equal(lp_plan_checks(host_plan, NULL, &b.w.err), LP_E_UNSUPPORTED);
    lp_plan_close(host_plan);
    free_image(&b.w, &host_live);
    close_bed(&b);
}

static void test_dummy_and_meta(void **state)
{
    bed b;
    lp_report report, host_report_;
    (void)state;
    open_bed(&b, rich_world, &(lp_bind_options){.staging = 1 << 16, .threads = 1});
    image host_live = new_image(&b.w);
    lp_plan *host_plan = bind_image(&b.w, &host_live, NULL);
    begin(&b, LP_DUMMY);
    assert_int_equal(push(&b, 0, true), LP_E_MISUSE);
    assert_ok(&b.w, lp_finish(b.s, &report, &b.w.err));
    lp_session *s;
    assert_ok(&b.w, lp_begin(&s, host_plan, &(lp_session_options){.mode = LP_DUMMY}, &b.w.err));
    assert_ok(&b.w, lp_finish(s, &host_report_, &b.w.err));
    lp_session_close(s);
    assert_int_equal(report.derives_run, host_report_.derives_run);
    assert_device_image(&b.k, &b.w, &b.live, &host_live, "dummy values");
    for (uint32_t d = 0; d < lp_plan_rows(b.plan)->ndest; d++) {
        uint8_t mine[LP_VALUE_DIGEST_BYTES], theirs[LP_VALUE_DIGEST_BYTES];
        assert_ok(&b.w, lp_plan_value_digest(b.plan, d, mine, &b.w.err));
        assert_ok(&b.w, lp_plan_value_digest(host_plan, d, theirs, &b.w.err));
        assert_memory_equal(mine, theirs, sizeof mine);
    }
    /* a meta session on real memory follows the protocol and touches nothing */
    const int calls = b.f.pushes + b.f.waves;
    begin(&b, LP_META);
    for (int i = 0; i < b.w.nsource; i++)
        assert_ok(&b.w, lp_push_range(b.s, b.w.source[i].name, 0, NULL, b.w.source[i].bytes, &b.w.err));
    assert_ok(&b.w, lp_finish(b.s, &report, &b.w.err));
    assert_int_equal(b.f.pushes + b.f.waves, calls);
    assert_int_equal(report.names_loaded, b.w.nsource);
    lp_plan_close(host_plan);
    free_image(&b.w, &host_live);
    close_bed(&b);
}

/* ---- fallbacks ---- */

/* A derive of a fallback's tensor runs when the caller has loaded it, and is skipped when nobody does. */
static void fallback_world(world *w)
{
    memset(w, 0, sizeof *w);
    w->random = 21;
    add_source(w, "scale", LP_F32, 1, 4);
    const int plain = add_source(w, "plain", LP_F32, 2, 4);
    const int scale = add_dest(w, "scales", LP_F32, 1, 4, 0, "layers.0");
    add_copy(w, plain, add_dest(w, "copy", LP_F32, 2, 4, 0, "layers.0"), 0, 2, 0);
    w->derive[w->nderive++] = (derive){DERIVE_MAX, add_dest(w, "most", LP_F32, 1, 1, 0, "layers.0"), scale, -1};
    build_world(w, refuse_scale);
}

static void test_fallbacks(void **state)
{
    static const lp_load_mode modes[] = {LP_DIRECT, LP_LAYERWISE};
    static const float values[4] = {3.5f, 8.0f, -1.0f, 2.0f};
    bed b;
    lp_report report;
    float most;
    (void)state;
    open_bed(&b, fallback_world, &(lp_bind_options){.staging = 1 << 16, .threads = 1});
    for (int m = 0; m < 2; m++) {
        fake_do_all(&b.f);
        memset(b.live.data[2], 0, 4);
        memcpy(b.live.data[0], values, sizeof values); /* the caller's own code */
        begin(&b, modes[m]);
        assert_int_equal(push(&b, 0, true), LP_E_REFUSED);
        assert_ok(&b.w, push(&b, 1, true));
        assert_int_equal(lp_finish(b.s, NULL, &b.w.err), LP_E_INCOMPLETE);
        assert_ok(&b.w, lp_mark_loaded(b.s, "scale", &b.w.err));
        assert_ok(&b.w, lp_finish(b.s, &report, &b.w.err));
        assert_int_equal(report.derives_run, 1);
        memcpy(&most, b.live.data[2], sizeof most);
        assert_true(most == 8.0f);

        memset(b.live.data[2], 0, 4);
        memset(b.live.data[1], 0, 32);
        lp_session_close(b.s);
        assert_ok(&b.w,
                  lp_begin(&b.s, b.plan, &(lp_session_options){.mode = modes[m], .allow_fallbacks = true}, &b.w.err));
        assert_ok(&b.w, push(&b, 1, false));
        assert_ok(&b.w, lp_finish(b.s, &report, &b.w.err));
        assert_int_equal(report.derives_skipped, 1);
        assert_memory_equal(b.live.data[1], b.want.data[1], 32);
        memcpy(&most, b.live.data[2], sizeof most);
        assert_true(most == 0.0f);
    }
    close_bed(&b);
}

static void test_files_need_host_memory(void **state)
{
    bed b;
    (void)state;
    open_bed(&b, layered_world, &(lp_bind_options){.staging = 1 << 16, .threads = 1});
    assert_int_equal(lp_rank_file_write(b.plan, "x.safetensors", true, NULL, NULL, NULL, &b.w.err), LP_E_UNSUPPORTED);
    image host_live = new_image(&b.w);
    lp_plan *host_plan = bind_image(&b.w, &host_live, NULL);
    begin(&b, LP_COLD);
    for (int i = 0; i < 4; i++)
        assert_ok(&b.w, push(&b, i, i % 2 == 0));
    finish(&b, NULL);
    assert_ok(&b.w, lp_device_fetch(b.plan, host_plan, &b.w.err));
    assert_same_image(&b.w, &host_live, &b.want, "copied back");
    lp_plan_close(host_plan);
    free_image(&b.w, &host_live);
    close_bed(&b);
}

/* ---- DLPack ---- */

static void test_dlpack(void **state)
{
    (void)state;
    float data[24];
    int64_t stride[LP_DL_DIMS];
    const int64_t shape[2] = {4, 6}, turned[2] = {1, 4};
    lp_dl_tensor t = {.data = data,
                      .device = {2, 0},
                      .ndim = 2,
                      .dtype = {2, 32, 1},
                      .shape = shape,
                      .strides = turned,
                      .byte_offset = 8};
    lp_destination_memory m;
    lp_buffer buffer;
    lp_error err;
    assert_int_equal(lp_destination_of_dlpack(&m, stride, &t, "x", &err), LP_OK);
    assert_string_equal(m.name, "x");
    assert_int_equal(m.dtype, LP_F32);
    assert_int_equal(m.ndim, 2);
    assert_ptr_equal(m.data, data + 2);
    assert_int_equal(m.stride[0], 4);
    assert_int_equal(m.stride[1], 16);
    assert_int_equal(lp_buffer_of_dlpack(&buffer, stride, &t, &err), LP_OK);
    assert_int_equal(buffer.memory, LP_SOURCE_DEVICE);
    assert_int_equal(buffer.shape[1], 6);
    t.device.type = 3;
    t.strides = (const int64_t[]){6, 1};
    assert_int_equal(lp_buffer_of_dlpack(&buffer, stride, &t, &err), LP_OK);
    assert_int_equal(buffer.memory, LP_SOURCE_HOST);
    assert_null(buffer.stride); /* row-major without gaps */
    static const struct {
        uint8_t code, bits;
        lp_dtype dtype;
    } types[] = {{4, 16, LP_BF16}, {10, 8, LP_F8_E4M3}, {12, 8, LP_F8_E5M2}, {14, 8, LP_F8_E8M0},
                 {17, 4, LP_F4},   {6, 8, LP_BOOL},     {5, 64, LP_C64},     {2, 16, LP_F16},
                 {0, 64, LP_I64},  {1, 8, LP_U8},       {15, 6, LP_F6_E2M3}, {11, 8, LP_F8_E4M3FNUZ}};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        t.dtype.code = types[i].code;
        t.dtype.bits = types[i].bits;
        assert_int_equal(lp_destination_of_dlpack(&m, stride, &t, "x", &err), LP_OK);
        assert_int_equal(m.dtype, types[i].dtype);
    }
    t.dtype.code = 9; /* e4m3b11fnuz */
    assert_int_equal(lp_destination_of_dlpack(&m, stride, &t, "x", &err), LP_E_UNSUPPORTED);
    t.dtype.code = 2;
    t.dtype.bits = 32;
    t.dtype.lanes = 4;
    assert_int_equal(lp_destination_of_dlpack(&m, stride, &t, "x", &err), LP_E_UNSUPPORTED);
    t.dtype.lanes = 1;
    t.device.type = 10; /* ROCm */
    assert_int_equal(lp_destination_of_dlpack(&m, stride, &t, "x", &err), LP_E_UNSUPPORTED);
    t.device.type = 1;
    t.strides = (const int64_t[]){INT64_MAX / 2, 1};
    assert_int_equal(lp_destination_of_dlpack(&m, stride, &t, "x", &err), LP_E_LIMIT);
    t.dtype.code = 17;
    t.dtype.bits = 4;
    t.strides = turned;
    assert_int_equal(lp_destination_of_dlpack(&m, stride, &t, "x", &err), LP_E_UNSUPPORTED);
    t.ndim = 17;
    assert_int_equal(lp_destination_of_dlpack(&m, stride, &t, "x", &err), LP_E_LIMIT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_may_be_captured),   cmocka_unit_test(test_a_failed_check_names_its_tensor),
        cmocka_unit_test(test_dummy_and_meta),         cmocka_unit_test(test_fallbacks),
        cmocka_unit_test(test_files_need_host_memory), cmocka_unit_test(test_dlpack),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
