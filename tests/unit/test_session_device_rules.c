/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rules of sessions on a device: budgets and what they refuse, when groups commit, what may be captured, failed checks,
 * dummy and meta sessions, tensors of DLPack.
 */
#include "device_testing.h"

#include "replayer/own_math.h"

float model_neg_exp(float x)
{
    return -lp_own_exp(x);
}

typedef struct bed {
    world w;
    fake_device f;
    device_kit k;
    payload host, device;
    image live, want;
    lp_plan *plan;
    lp_session *s;
} bed;

/* Two layers of two tensors of 2 KiB each, and one that feeds both. */
static void layered_world(world *w)
{
    memset(w, 0, sizeof *w);
    w->random = 12;
    for (int layer = 0; layer < 2; layer++) {
        char name[32], group[32];
        snprintf(group, sizeof group, "layers.%d", layer);
        for (int i = 0; i < 2; i++) {
            snprintf(name, sizeof name, "s%d.%c", layer, 'a' + i);
            const int from = add_source(w, name, LP_F32, 16, 32);
            snprintf(name, sizeof name, "layers.%d.%c", layer, 'a' + i);
            add_copy(w, from, add_dest(w, name, LP_F32, 16, 32, 0, group), 0, 16, 0);
        }
    }
    build_world(w, NULL);
}

static void open_bed(bed *b, void (*make)(world *w), const lp_bind_options *options)
{
    make(&b->w);
    b->k = open_kit(&b->f);
    b->host = make_payload(&b->w);
    b->device = device_payload(&b->k, &b->w, &b->host, 0);
    b->live = device_image(&b->k, &b->w);
    b->want = new_image(&b->w);
    put_image(&b->k, &b->w, &b->live, &b->want);
    model_load(&b->w, &b->host, &b->want);
    b->plan = bind_device(&b->k, &b->w, &b->live, options);
    b->s = NULL;
}

static void begin(bed *b, lp_load_mode mode)
{
    lp_session_close(b->s);
    assert_ok(&b->w, lp_begin(&b->s, b->plan, &(lp_session_options){.mode = mode}, &b->w.err));
}

static lp_status push(bed *b, int which, bool on_device)
{
    const payload *p = on_device ? &b->device : &b->host;
    return lp_push_range(b->s, b->w.source[which].name, 0, p->data[which], b->w.source[which].bytes, &b->w.err);
}

static void finish(bed *b, lp_report *report)
{
    assert_ok(&b->w, lp_finish(b->s, report, &b->w.err));
    assert_device_image(&b->k, &b->w, &b->live, &b->want, "after finish");
}

static void close_bed(bed *b)
{
    lp_session_close(b->s);
    lp_plan_close(b->plan);
    free_device_payload(&b->k, &b->w, &b->device, 0);
    free_device_image(&b->k, &b->w, &b->live);
    assert_int_equal(b->f.blocks, 0);
    fake_end(&b->f);
    free_payload(&b->w, &b->host);
    free_image(&b->w, &b->want);
    free_world(&b->w);
}

/* ---- budgets ---- */

/* One name under way fits; a second is refused, and taken when the first is complete. */
static void test_direct_within_its_budget(void **state)
{
    bed b;
    lp_report report;
    (void)state;
    open_bed(&b, layered_world, &(lp_bind_options){.staging = 2048, .threads = 1});
    begin(&b, LP_DIRECT);
    const uint8_t *first = b.host.data[0], *second = b.host.data[1];
    assert_ok(&b.w, lp_push_range(b.s, "s0.a", 0, first, 1000, &b.w.err));
    assert_int_equal(lp_push_range(b.s, "s0.b", 0, second, 1000, &b.w.err), LP_E_LIMIT);
    assert_string_equal(b.w.err.text, "'s0.b' needs 2048 bytes of device staging, 2048 of 2048 are in use");
    assert_string_equal(b.w.err.hint, "push 's0.a' first");
    assert_ok(&b.w, push(&b, 2, true)); /* whole and on the device: no staging */
    assert_ok(&b.w, lp_push_range(b.s, "s0.a", 1000, first + 1000, 1048, &b.w.err));
    assert_ok(&b.w, lp_push_range(b.s, "s0.b", 0, second, 1000, &b.w.err));
    assert_ok(&b.w, lp_push_range(b.s, "s0.b", 1000, second + 1000, 1048, &b.w.err));
    assert_ok(&b.w, push(&b, 3, false));
    finish(&b, &report);
    assert_int_equal(report.device_staging_peak_bytes, 2048);
    assert_int_equal(report.staging_peak_bytes, 0);
    close_bed(&b);
}

/* Many tensors of the host at once: as many pushes as the staging asks for, none refused. */
static void test_push_many_from_the_host(void **state)
{
    bed b;
    lp_handle handle[4];
    const void *data[4];
    (void)state;
    open_bed(&b, layered_world, &(lp_bind_options){.staging = 4096, .threads = 1});
    for (int i = 0; i < 4; i++) {
        handle[i] = lp_plan_handle(b.plan, b.w.source[i].name);
        data[i] = b.host.data[i];
    }
    begin(&b, LP_DIRECT);
    assert_ok(&b.w, lp_push_many(b.s, handle, data, 4, &b.w.err));
    finish(&b, NULL);
    assert_int_equal(b.f.pushes, 2);
    for (int i = 0; i < 4; i++)
        data[i] = b.device.data[i];
    begin(&b, LP_DIRECT);
    assert_ok(&b.w, lp_push_many(b.s, handle, data, 4, &b.w.err));
    finish(&b, NULL);
    assert_int_equal(b.f.pushes, 3); /* all of it by one */
    close_bed(&b);
}

static void test_bind_says_what_does_not_fit(void **state)
{
    bed b;
    lp_destination_memory memory[DESTS_MAX];
    lp_plan *plan = NULL;
    (void)state;
    open_bed(&b, rich_world, &(lp_bind_options){.threads = 1});
    assert_true(lp_plan_device_bytes(b.plan) >= 2 * 64);
    b.f.is_bound = false;
    for (int i = 0; i < b.w.ndest; i++)
        memory[i] = (lp_destination_memory){.name = b.w.dest[i].name,
                                            .dtype = b.w.dest[i].dtype,
                                            .ndim = 2,
                                            .shape = b.w.dest[i].shape,
                                            .stride = b.w.dest[i].stride,
                                            .data = b.live.data[i]};
    assert_int_equal(lp_bind_with(&plan, b.w.trace, NULL, memory, b.w.ndest, &(lp_bind_options){.staging = 8},
                                  &b.f.calls_table, &b.w.err),
                     LP_E_LIMIT);
    assert_non_null(strstr(b.w.err.text, "derives stage"));
    assert_int_equal(lp_bind_with(&plan, b.w.trace, NULL, memory, b.w.ndest, &(lp_bind_options){.spill = -1},
                                  &b.f.calls_table, &b.w.err),
                     LP_E_ARGUMENT);
    memory[1].data = b.want.data[1];
    assert_int_equal(lp_bind_with(&plan, b.w.trace, NULL, memory, b.w.ndest, NULL, &b.f.calls_table, &b.w.err),
                     LP_E_MISMATCH);
    assert_non_null(strstr(b.w.err.text, "does not lie in the memory of"));
#ifndef LOADPLAN_HAVE_CUDA
    memory[1].data = b.live.data[1];
    assert_int_equal(
        lp_bind(&plan, b.w.trace, NULL, memory, b.w.ndest, &(lp_bind_options){.device = "cuda:0"}, &b.w.err),
        LP_E_DEVICE);
    assert_string_equal(b.w.err.text, "cannot use device 'cuda:0': this build has only cpu");
#endif
    close_bed(&b);
}

/* ---- layerwise ---- */

static bool is_live(bed *b, int which)
{
    fake_do_all(&b->f);
    return memcmp(b->live.data[which], b->want.data[which], (size_t)b->w.dest[which].storage_bytes) == 0;
}

/* An order that crosses layers: what waits goes to staging, then to the spill, then is refused; the name that completes
 * a group is always taken. */
static void test_layers_cross(void **state)
{
    bed b;
    lp_report report;
    (void)state;
    open_bed(&b, layered_world, &(lp_bind_options){.staging = 4096, .spill = 2048, .threads = 1});
    for (int round = 0; round < 2; round++) { /* from the host, then from the device */
        const bool on_device = round == 1;
        const image empty = new_image(&b.w);
        put_image(&b.k, &b.w, &b.live, &empty);
        begin(&b, LP_LAYERWISE);
        assert_ok(&b.w, push(&b, 0, on_device)); /* staging, beside the room that is kept aside */
        assert_ok(&b.w, push(&b, 2, on_device)); /* spill */
        assert_false(is_live(&b, 0));
        assert_ok(&b.w, push(&b, 1, on_device)); /* completes layer 0 without any */
        assert_true(is_live(&b, 0) && is_live(&b, 1));
        assert_false(is_live(&b, 2));
        assert_ok(&b.w, push(&b, 3, on_device));
        assert_true(is_live(&b, 2) && is_live(&b, 3));
        finish(&b, &report);
        assert_int_equal(report.groups_committed, 2);
        assert_int_equal(report.device_staging_peak_bytes, 4096);
        assert_int_equal(report.staging_peak_bytes, 2048);
        for (int i = 0; i < b.w.ndest; i++)
            free(empty.data[i]);
    }
    close_bed(&b);

    open_bed(&b, layered_world, &(lp_bind_options){.staging = 4096, .threads = 1});
    begin(&b, LP_LAYERWISE);
    assert_ok(&b.w, push(&b, 0, true));
    assert_int_equal(push(&b, 2, true), LP_E_LIMIT);
    assert_string_equal(b.w.err.hint, "push 's0.b' first");
    assert_ok(&b.w, push(&b, 1, false));
    assert_ok(&b.w, push(&b, 2, true)); /* the session is as it was before the refusal */
    assert_ok(&b.w, push(&b, 3, true));
    finish(&b, NULL);
    close_bed(&b);
}

/* Names that one call completes a group with need no staging at all. */
static void test_a_group_in_one_call(void **state)
{
    bed b;
    lp_report report;
    lp_handle handle[4];
    const void *data[4];
    (void)state;
    open_bed(&b, layered_world, &(lp_bind_options){.staging = 2048, .threads = 1});
    for (int i = 0; i < 4; i++) {
        handle[i] = lp_plan_handle(b.plan, b.w.source[i].name);
        data[i] = b.device.data[i];
    }
    begin(&b, LP_LAYERWISE);
    assert_int_equal(lp_push_many(b.s, handle, data, 3, &b.w.err), LP_E_LIMIT); /* the third waits, and finds no room */
    int64_t cursor = 0;
    assert_string_equal(lp_session_missing(b.s, &cursor), "s0.a"); /* nothing of the call is in */
    assert_ok(&b.w, lp_push_many(b.s, handle, data, 2, &b.w.err));
    assert_true(is_live(&b, 0) && is_live(&b, 1));
    assert_ok(&b.w, lp_push_many(b.s, handle + 2, data + 2, 2, &b.w.err));
    finish(&b, &report);
    assert_int_equal(report.device_staging_peak_bytes, 2048); /* what is kept aside */
    close_bed(&b);

    open_bed(&b, layered_world, &(lp_bind_options){.staging = 1024, .threads = 1});
    assert_int_equal(lp_begin(&b.s, b.plan, &(lp_session_options){.mode = LP_LAYERWISE}, &b.w.err), LP_E_LIMIT);
    assert_non_null(strstr(b.w.err.text, "layerwise needs room for the largest name, 2048 bytes"));
    close_bed(&b);
}

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

/* ---- parts of a block ---- */

static void test_parts_never_overlap(void **state)
{
    enum { PARTS = 64, BYTES = 4096 };
    lp_arena_map m;
    lp_error err;
    uint8_t owner[BYTES];
    int64_t off[PARTS], bytes[PARTS];
    world w = {.random = 3};
    (void)state;
    memset(owner, 0, sizeof owner);
    memset(bytes, 0, sizeof bytes);
    assert_int_equal(lp_arena_map_init(&m, BYTES, lp_alloc_default(), &err), LP_OK);
    for (int n = 0; n < 20000; n++) {
        const int i = (int)pick(&w, PARTS);
        if (bytes[i] > 0) {
            for (int64_t b = 0; b < bytes[i]; b++)
                assert_int_equal(owner[off[i] + b], i + 1);
            memset(owner + off[i], 0, (size_t)bytes[i]);
            lp_arena_map_give(&m, off[i], bytes[i]);
            bytes[i] = 0;
            continue;
        }
        const int64_t want = 1 + pick(&w, 300);
        const bool fits = lp_arena_map_fits(&m, want);
        assert_int_equal(lp_arena_map_take(&m, want, &off[i], &err), LP_OK);
        assert_int_equal(fits, off[i] >= 0);
        if (off[i] < 0)
            continue;
        bytes[i] = want;
        for (int64_t b = 0; b < want; b++)
            assert_int_equal(owner[off[i] + b], 0);
        memset(owner + off[i], i + 1, (size_t)want);
    }
    for (int i = 0; i < PARTS; i++)
        if (bytes[i] > 0)
            lp_arena_map_give(&m, off[i], bytes[i]);
    assert_int_equal(m.used, 0);
    assert_int_equal(m.count, 1);
    assert_true(lp_arena_map_fits(&m, BYTES));
    lp_arena_map_free(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_direct_within_its_budget),
        cmocka_unit_test(test_push_many_from_the_host),
        cmocka_unit_test(test_bind_says_what_does_not_fit),
        cmocka_unit_test(test_layers_cross),
        cmocka_unit_test(test_a_group_in_one_call),
        cmocka_unit_test(test_what_may_be_captured),
        cmocka_unit_test(test_a_failed_check_names_its_tensor),
        cmocka_unit_test(test_dummy_and_meta),
        cmocka_unit_test(test_fallbacks),
        cmocka_unit_test(test_files_need_host_memory),
        cmocka_unit_test(test_dlpack),
        cmocka_unit_test(test_parts_never_overlap),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
