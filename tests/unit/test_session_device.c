/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sessions on a device, with a device in host memory: the oracle in every mode, order and split, and every call and
 * every allocation failing once. What a GPU makes of the same calls is the affair of tests/gpu/test_device_session.c.
 */
#include "device_testing.h"
#include "tied_worlds.h"

#include <time.h>

enum { WORLDS = 150 };

static void check_worlds(void (*make)(world *w, uint64_t seed))
{
    static const lp_bind_options options[] = {{.threads = 1, .staging = 1 << 20},
                                              {.threads = 1, .staging = 1 << 16, .spill = 1 << 20},
                                              {.threads = 1, .staging = 8192, .spill = 1 << 16}};
    const uint64_t first = random_first_seed((uint64_t)time(NULL) * 1000);
    print_message("seed %llu\n", (unsigned long long)first);
    for (uint64_t n = 0; n < random_cases(WORLDS); n++) {
        fake_device f;
        const device_kit k = open_kit(&f);
        check_world(&k, make, first + n, &options[n % 3]);
        assert_int_equal(f.blocks, 0);
        fake_end(&f);
    }
}

static void test_every_mode_gives_the_model(void **state)
{
    (void)state;
    check_worlds(random_world);
}

/* Casts and fills of which later writes take parts of elements. */
static void test_the_last_write_wins_by_every_byte(void **state)
{
    (void)state;
    check_worlds(random_storage);
}

/* A subset leaves everything else as it is; derives read live values where their inputs are not in it. */
static void test_random_subsets(void **state)
{
    int refused = 0, done = 0;
    (void)state;
    for (uint64_t seed = 1000; seed < 1150; seed++) {
        world w;
        fake_device f;
        lp_report report;
        lp_session *s = NULL;
        random_world(&w, seed);
        failing_seed = seed;
        const device_kit k = open_kit(&f);
        payload a = make_payload(&w), b = make_payload(&w), mixed = a;
        payload device_a = device_payload(&k, &w, &a, 0), device_b = device_payload(&k, &w, &b, 0);
        image live = device_image(&k, &w), want = new_image(&w);
        put_image(&k, &w, &live, &want);
        lp_plan *plan = bind_device(&k, &w, &live, &(lp_bind_options){.staging = 1 << 16, .threads = 1});
        device_load(&k, &w, plan, &a, &device_a, LP_COLD, 2, &report);
        const char *subset[SOURCES_MAX];
        int count = 0;
        for (int i = 0; i < w.nsource; i++)
            if (pick(&w, 2) == 0 && lp_plan_use(plan, lp_plan_handle(plan, w.source[i].name)) == LP_USE_LOADED) {
                subset[count++] = w.source[i].name;
                mixed.data[i] = b.data[i];
            }
        const lp_session_options o = {
            .mode = seed % 2 == 0 ? LP_DIRECT : LP_LAYERWISE, .subset = subset, .subset_count = count};
        const lp_status status = lp_begin(&s, plan, &o, &w.err);
        if (status == LP_OK) {
            for (int i = 0; i < w.nsource; i++)
                if (mixed.data[i] != a.data[i])
                    assert_ok(&w, lp_push_range(s, w.source[i].name, 0, (i % 2 == 0 ? b : device_b).data[i],
                                                w.source[i].bytes, &w.err));
            assert_ok(&w, lp_finish(s, NULL, &w.err));
            model_load(&w, &mixed, &want);
            assert_device_image(&k, &w, &live, &want, "subset");
            done++;
        } else {
            assert_int_equal(status, LP_E_ARGUMENT); /* a staged input is left out */
            refused++;
        }
        lp_session_close(s);
        lp_plan_close(plan);
        free_device_image(&k, &w, &live);
        free_device_payload(&k, &w, &device_a, 0);
        free_device_payload(&k, &w, &device_b, 0);
        fake_end(&f);
        free_image(&w, &want);
        free_payload(&w, &a);
        free_payload(&w, &b);
        free_world(&w);
    }
    print_message("%d subsets loaded, %d refused\n", done, refused);
    assert_true(done > 70 && refused > 5);
}

/* ---- tight budgets ---- */

static int source_of(const world *w, const char *name, size_t length)
{
    for (int i = 0; i < w->nsource; i++)
        if (strlen(w->source[i].name) == length && memcmp(w->source[i].name, name, length) == 0)
            return i;
    return -1;
}

static lp_status push_any(world *w, lp_session *s, const payload *host, const payload *device, int i)
{
    const payload *from = pick(w, 2) == 0 ? host : device;
    return lp_push_range(s, w->source[i].name, 0, from->data[i], w->source[i].bytes, &w->err);
}

/* With the least budget that any order can do with, in a random order: a refusal names a tensor that is taken, and so
 * the load ends. Sizes are far apart, and each name belongs to one of three groups. */
static void test_refusals_lead_on(void **state)
{
    int refused = 0;
    (void)state;
    for (uint64_t seed = 1; seed <= 200; seed++) {
        world w;
        fake_device f;
        lp_report report;
        int64_t sum[3] = {0}, most[3] = {0}, largest = 0, needed = 0;
        memset(&w, 0, sizeof w);
        w.random = failing_seed = seed;
        for (int i = 0; i < 12; i++) {
            char name[32], group[32];
            const int g = (int)pick(&w, 3);
            const int64_t rows = (int64_t)4 << pick(&w, 5), bytes = rows * 64; /* whole slots */
            snprintf(name, sizeof name, "s%d", i);
            const int from = add_source(&w, name, LP_F32, rows, 16);
            snprintf(name, sizeof name, "layers.%d.d%d", g, i);
            snprintf(group, sizeof group, "layers.%d", g);
            add_copy(&w, from, add_dest(&w, name, LP_F32, rows, 16, 0, group), 0, rows, 0);
            sum[g] += bytes;
            most[g] = bytes > most[g] ? bytes : most[g];
            largest = bytes > largest ? bytes : largest;
        }
        for (int g = 0; g < 3; g++)
            needed = sum[g] - most[g] > needed ? sum[g] - most[g] : needed;
        build_world(&w, NULL);
        const device_kit k = open_kit(&f);
        payload host = make_payload(&w), device = device_payload(&k, &w, &host, 0);
        image live = device_image(&k, &w), want = new_image(&w);
        model_load(&w, &host, &want);
        lp_plan *plan = bind_device(&k, &w, &live, &(lp_bind_options){.staging = largest + needed, .threads = 1});
        lp_session *s;
        assert_ok(&w, lp_begin(&s, plan, &(lp_session_options){.mode = LP_LAYERWISE}, &w.err));
        bool is_in[SOURCES_MAX] = {false};
        for (int left = w.nsource; left > 0;) {
            int i = (int)pick(&w, w.nsource);
            while (is_in[i])
                i = (i + 1) % w.nsource;
            lp_status status = push_any(&w, s, &host, &device, i);
            if (status == LP_E_LIMIT) {
                refused++;
                assert_true(strncmp(w.err.hint, "push '", 6) == 0);
                i = source_of(&w, w.err.hint + 6, strcspn(w.err.hint + 6, "'"));
                assert_true(i >= 0 && !is_in[i]);
                status = push_any(&w, s, &host, &device, i);
            }
            assert_ok(&w, status);
            is_in[i] = true;
            left--;
        }
        assert_ok(&w, lp_finish(s, &report, &w.err));
        assert_true(report.device_staging_peak_bytes <= largest + needed);
        assert_device_image(&k, &w, &live, &want, "in a tight budget");
        lp_session_close(s);
        lp_plan_close(plan);
        free_device_image(&k, &w, &live);
        free_device_payload(&k, &w, &device, 0);
        fake_end(&f);
        free_image(&w, &want);
        free_payload(&w, &host);
        free_world(&w);
    }
    print_message("%d pushes refused\n", refused);
    assert_true(refused > 200);
}

/* ---- faults ---- */

/* A whole load in pieces from both kinds of memory; stops at the first failure. A push that failed is tried again: it
 * must be taken, or refused because the session is poisoned with the first reason. */
static lp_status try_load(fake_device *f, world *w, const image *live, const payload *host, const payload *device,
                          lp_load_mode mode, const lp_alloc *alloc, bool *was_poisoned)
{
    lp_destination_memory memory[DESTS_MAX];
    const lp_platform platform = {.alloc = alloc};
    lp_plan *plan = NULL;
    lp_session *s = NULL;
    *was_poisoned = false;
    for (int i = 0; i < w->ndest; i++)
        memory[i] = (lp_destination_memory){.name = w->dest[i].name,
                                            .dtype = w->dest[i].dtype,
                                            .ndim = 2,
                                            .shape = w->dest[i].shape,
                                            .stride = w->dest[i].stride,
                                            .data = live->data[i]};
    const lp_bind_options o = {.platform = &platform, .threads = 1, .staging = 2048, .spill = 1024};
    lp_status status = lp_bind_with(&plan, w->trace, NULL, memory, w->ndest, &o, &f->calls_table, &w->err);
    f->is_bound = true;
    if (status == LP_OK)
        status = lp_begin(&s, plan, &(lp_session_options){.mode = mode, .digests = true}, &w->err);
    for (int i = w->nsource - 1; status == LP_OK && i >= 0; i--)
        for (int64_t lo = 0; status == LP_OK && lo < w->source[i].bytes; lo += 28) {
            const int64_t hi = lo + 28 < w->source[i].bytes ? lo + 28 : w->source[i].bytes;
            const uint8_t *from = (lo / 28 % 2 == 0 ? host : device)->data[i] + lo;
            status = lp_push_range(s, w->source[i].name, lo, from, hi - lo, &w->err);
            if (status != LP_OK) {
                lp_error second = {.code = LP_OK};
                const lp_status again = lp_push_range(s, w->source[i].name, lo, from, hi - lo, &second);
                *was_poisoned = again == LP_E_POISONED;
                if (*was_poisoned)
                    assert_non_null(strstr(second.text, w->err.text));
                else
                    status = again;
            }
        }
    if (status == LP_OK)
        status = lp_finish(s, NULL, &w->err);
    lp_session_close(s);
    assert_true(s == NULL || f->work_count == 0); /* memory may go now */
    lp_plan_close(plan);
    return status;
}

typedef struct fault_bed {
    world w;
    fake_device f;
    device_kit k;
    payload host, device;
    image live, want;
} fault_bed;

static void open_bed(fault_bed *b)
{
    rich_world(&b->w);
    b->host = make_payload(&b->w);
    b->want = new_image(&b->w);
    model_load(&b->w, &b->host, &b->want);
}

/* A fresh device for one try. */
static void open_device(fault_bed *b)
{
    image empty = new_image(&b->w);
    b->k = open_kit(&b->f);
    b->device = device_payload(&b->k, &b->w, &b->host, 0);
    b->live = device_image(&b->k, &b->w);
    put_image(&b->k, &b->w, &b->live, &empty);
    free_image(&b->w, &empty);
}

static void close_device(fault_bed *b)
{
    free_device_payload(&b->k, &b->w, &b->device, 0);
    free_device_image(&b->k, &b->w, &b->live);
    assert_int_equal(b->f.blocks, 0);
    fake_end(&b->f);
}

static void close_bed(fault_bed *b)
{
    free_payload(&b->w, &b->host);
    free_image(&b->w, &b->want);
    free_world(&b->w);
}

static const lp_load_mode MODES[] = {LP_COLD, LP_DIRECT, LP_LAYERWISE};

static void test_every_call_of_the_device_fails_once(void **state)
{
    fault_bed b;
    (void)state;
    open_bed(&b);
    for (int m = 0; m < 3; m++) {
        int failed = 0, poisoned = 0, survived = 0;
        for (int n = 0;; n++) {
            bool was_poisoned;
            open_device(&b);
            b.f.calls = 0;
            b.f.fail_at = n;
            const lp_status status = try_load(&b.f, &b.w, &b.live, &b.host, &b.device, MODES[m], NULL, &was_poisoned);
            const bool is_past = b.f.calls <= n;
            if (status == LP_OK)
                assert_device_image(&b.k, &b.w, &b.live, &b.want, "after a failed call");
            else
                assert_int_equal(status, LP_E_DEVICE);
            if (status == LP_E_DEVICE)
                assert_non_null(strstr(b.w.err.text, "it fails on demand"));
            failed += status != LP_OK;
            poisoned += was_poisoned;
            survived += status == LP_OK && !is_past;
            close_device(&b);
            if (is_past)
                break;
        }
        print_message("mode %d: %d failed (%d of them poisoned), %d survived\n", (int)MODES[m], failed, poisoned,
                      survived);
        assert_true(failed > 20 && poisoned > 5 && survived > 5);
    }
    close_bed(&b);
}

static void test_every_allocation_fails_once(void **state)
{
    fault_bed b;
    (void)state;
    open_bed(&b);
    for (int m = 0; m < 3; m++) {
        int failed = 0;
        for (int64_t n = 0;; n++) {
            failing_once f = {.countdown = n};
            const lp_alloc alloc = {.size = sizeof alloc, .context = &f, .resize = failing_once_resize};
            bool was_poisoned;
            open_device(&b);
            const lp_status status = try_load(&b.f, &b.w, &b.live, &b.host, &b.device, MODES[m], &alloc, &was_poisoned);
            if (status == LP_OK)
                assert_device_image(&b.k, &b.w, &b.live, &b.want, "after a failed allocation");
            else
                assert_int_equal(status, LP_E_MEMORY);
            failed += status != LP_OK;
            close_device(&b);
            if (f.failed == 0)
                break;
        }
        assert_true(failed > 40);
    }
    close_bed(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_mode_gives_the_model),
        cmocka_unit_test(test_the_last_write_wins_by_every_byte),
        cmocka_unit_test(test_random_subsets),
        cmocka_unit_test(test_refusals_lead_on),
        cmocka_unit_test(test_every_call_of_the_device_fails_once),
        cmocka_unit_test(test_every_allocation_fails_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
