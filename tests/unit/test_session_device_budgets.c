/* SPDX-License-Identifier: Apache-2.0 */
/* Staging of sessions on a device: what a budget lets in and refuses, and when groups leave it. */
#include "device_bed.h"

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
        cmocka_unit_test(test_direct_within_its_budget),    cmocka_unit_test(test_push_many_from_the_host),
        cmocka_unit_test(test_bind_says_what_does_not_fit), cmocka_unit_test(test_layers_cross),
        cmocka_unit_test(test_a_group_in_one_call),         cmocka_unit_test(test_parts_never_overlap),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
