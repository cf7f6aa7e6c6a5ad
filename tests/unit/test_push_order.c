/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The order of pushes that explain prints: with the budgets that it states no push of it is refused, in host memory and
 * on a device; with less, one is. It never needs more than a random order.
 */
#include "device_testing.h"

/* Pushes all names in the order; the first status that is not LP_OK. */
static lp_status push_in_order(world *w, lp_session *s, const lp_push_order *o, const payload *p)
{
    for (int64_t i = 0; i < lp_push_order_count(o); i++) {
        const lp_push_step *step = lp_push_order_at(o, i);
        int at = 0;
        while (strcmp(w->source[at].name, step->name) != 0)
            at++;
        const lp_status status = lp_push_range(s, step->name, 0, p->data[at], w->source[at].bytes, &w->err);
        if (status != LP_OK)
            return status;
    }
    return LP_OK;
}

static lp_status load_on_host(world *w, const lp_push_order *o, const payload *p, int64_t staging, lp_report *report)
{
    lp_session *s = NULL;
    image live = new_image(w);
    lp_plan *plan = bind_image(w, &live, &(lp_bind_options){.staging = staging, .threads = 1});
    lp_status status = lp_begin(&s, plan, &(lp_session_options){.mode = LP_LAYERWISE}, &w->err);
    if (status == LP_OK)
        status = push_in_order(w, s, o, p);
    if (status == LP_OK)
        status = lp_finish(s, report, &w->err);
    lp_session_close(s);
    lp_plan_close(plan);
    free_image(w, &live);
    return status;
}

/* LP_E_LIMIT: the budget is too small, for bind, for begin or for a push. */
static lp_status load_on_device(world *w, const lp_push_order *o, const payload *p, int64_t staging, lp_report *report)
{
    fake_device f;
    lp_session *s = NULL;
    lp_plan *plan = NULL;
    lp_destination_memory memory[DESTS_MAX];
    const device_kit k = open_kit(&f);
    image live = device_image(&k, w);
    payload device = device_payload(&k, w, p, 0);
    for (int i = 0; i < w->ndest; i++)
        memory[i] = (lp_destination_memory){.name = w->dest[i].name,
                                            .dtype = w->dest[i].dtype,
                                            .ndim = 2,
                                            .shape = w->dest[i].shape,
                                            .stride = w->dest[i].stride,
                                            .data = live.data[i] + w->dest[i].offset,
                                            .storage = live.data[i],
                                            .storage_bytes = w->dest[i].storage_bytes};
    const lp_bind_options bind = {.staging = staging, .threads = 1};
    lp_status status = lp_bind_with(&plan, w->trace, NULL, memory, w->ndest, &bind, &f.calls_table, &w->err);
    f.is_bound = true;
    if (status == LP_OK)
        status = lp_begin(&s, plan, &(lp_session_options){.mode = LP_LAYERWISE}, &w->err);
    if (status == LP_OK)
        status = push_in_order(w, s, o, &device);
    if (status == LP_OK)
        status = lp_finish(s, report, &w->err);
    lp_session_close(s);
    lp_plan_close(plan);
    free_device_image(&k, w, &live);
    free_device_payload(&k, w, &device, 0);
    fake_end(&f);
    return status;
}

static void test_the_peaks_are_true(void **state)
{
    int on_host = 0, on_device = 0;
    (void)state;
    for (uint64_t seed = 1; seed <= 150; seed++) {
        world w;
        lp_push_order *o;
        lp_report report;
        int64_t host, device;
        random_world(&w, seed);
        failing_seed = seed;
        payload p = make_payload(&w);
        assert_ok(&w, lp_push_order_make(&o, w.trace, 0, &w.err));
        lp_push_order_peaks(o, &host, &device);
        assert_null(lp_push_order_at(o, lp_push_order_count(o)));
        if (host > 0) {
            assert_ok(&w, load_on_host(&w, o, &p, host, &report));
            assert_int_equal(report.staging_peak_bytes, host);
        }
        if (host > 1 && load_on_host(&w, o, &p, host - 1, &report) == LP_E_LIMIT)
            on_host++;
        if (device > 0) {
            assert_ok(&w, load_on_device(&w, o, &p, device, &report));
            assert_int_equal(report.device_staging_peak_bytes, device);
        }
        if (device > 256 && load_on_device(&w, o, &p, device - 256, &report) == LP_E_LIMIT)
            on_device++;
        lp_push_order_free(o);
        free_payload(&w, &p);
        free_world(&w);
    }
    print_message("with less: refused %d times on the host, %d times on the device\n", on_host, on_device);
    assert_true(on_host > 140 && on_device > 120);
}

static int named(const world *w, const char *name, size_t length)
{
    int at = 0;
    while (strlen(w->source[at].name) != length || memcmp(w->source[at].name, name, length) != 0)
        at++;
    return at;
}

/* Names of several groups, derives across groups, a random order and the least budget: whoever follows the hints of
 * refusals gets through. */
static void test_hints_lead_on(void **state)
{
    int refused = 0;
    (void)state;
    for (uint64_t seed = 1; seed <= 250; seed++) {
        world w;
        fake_device f;
        lp_push_order *o;
        lp_session *s;
        int64_t host, least;
        random_world(&w, seed);
        failing_seed = seed;
        assert_ok(&w, lp_push_order_make(&o, w.trace, 0, &w.err));
        lp_push_order_peaks(o, &host, &least);
        lp_push_order_free(o);
        payload p = make_payload(&w);
        const device_kit k = open_kit(&f);
        payload device = device_payload(&k, &w, &p, 0);
        image live = device_image(&k, &w), want = new_image(&w);
        put_image(&k, &w, &live, &want);
        model_load(&w, &p, &want);
        lp_plan *plan = bind_device(&k, &w, &live, &(lp_bind_options){.staging = least, .threads = 1});
        assert_ok(&w, lp_begin(&s, plan, &(lp_session_options){.mode = LP_LAYERWISE}, &w.err));
        bool is_in[SOURCES_MAX] = {false};
        for (int left = w.nsource; left > 0; left--) {
            int i = (int)pick(&w, w.nsource);
            while (is_in[i])
                i = (i + 1) % w.nsource;
            lp_status status;
            for (int tries = 0; tries <= SOURCES_MAX; tries++) {
                status = lp_push_range(s, w.source[i].name, 0, device.data[i], w.source[i].bytes, &w.err);
                if (status != LP_E_LIMIT)
                    break;
                refused++;
                assert_true(strncmp(w.err.hint, "push '", 6) == 0);
                i = named(&w, w.err.hint + 6, strcspn(w.err.hint + 6, "'"));
                assert_false(is_in[i]);
            }
            assert_ok(&w, status);
            is_in[i] = true;
        }
        assert_ok(&w, lp_finish(s, NULL, &w.err));
        assert_device_image(&k, &w, &live, &want, "with the least budget");
        lp_session_close(s);
        lp_plan_close(plan);
        free_device_image(&k, &w, &live);
        free_device_payload(&k, &w, &device, 0);
        fake_end(&f);
        free_image(&w, &want);
        free_payload(&w, &p);
        free_world(&w);
    }
    print_message("%d pushes refused\n", refused);
    assert_true(refused > 20);
}

/* Groups one after the other, the largest name of each last. */
static void test_groups_follow_one_another(void **state)
{
    world w;
    lp_push_order *o;
    int64_t host, device;
    (void)state;
    memset(&w, 0, sizeof w);
    static const char *const names[] = {"a0", "b0", "a1", "b1"};
    for (int i = 0; i < 4; i++) {
        const int from = add_source(&w, names[i], LP_F32, i % 2 == 0 ? 64 : 16, 16);
        char name[32], group[32];
        snprintf(group, sizeof group, "layers.%d", i / 2);
        snprintf(name, sizeof name, "layers.%d.%s", i / 2, names[i]);
        add_copy(&w, from, add_dest(&w, name, LP_F32, i % 2 == 0 ? 64 : 16, 16, 0, group), 0, i % 2 == 0 ? 64 : 16, 0);
    }
    build_world(&w, NULL);
    assert_ok(&w, lp_push_order_make(&o, w.trace, 0, &w.err));
    static const char *const want[] = {"b0", "a0", "b1", "a1"};
    assert_int_equal(lp_push_order_count(o), 4);
    for (int i = 0; i < 4; i++)
        assert_string_equal(lp_push_order_at(o, i)->name, want[i]);
    assert_string_equal(lp_push_order_at(o, 3)->group, "layers.1");
    assert_int_equal(lp_push_order_at(o, 0)->host_staging, 5120);
    assert_int_equal(lp_push_order_at(o, 0)->device_staging, 1024);
    assert_int_equal(lp_push_order_at(o, 1)->device_staging, 0);
    lp_push_order_peaks(o, &host, &device);
    assert_int_equal(host, 5120);
    assert_int_equal(device, 4096 + 1024); /* room for the largest name, and what waits */
    lp_push_order_free(o);
    free_world(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_groups_follow_one_another),
        cmocka_unit_test(test_the_peaks_are_true),
        cmocka_unit_test(test_hints_lead_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
