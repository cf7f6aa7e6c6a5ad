/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The oracle of everything: a cold start with B, a reload from A to B, and that reload once more leave the same bytes
 * as the model, in every mode, order and split, on random worlds with fills, casts, replication, overlaps and derives.
 */
#include "random_worlds.h"

#include <time.h>

enum { WORLDS = 200 };

/* ---- random loads ---- */

/* Pushes everything; what the budget refuses comes again later, as its hint says. */
static void push_pieces(world *w, lp_session *s, const payload *p, bool is_whole)
{
    piece list[600];
    int count = cut_pieces(w, list, 600, is_whole);
    while (count > 0) {
        int kept = 0;
        for (int i = 0; i < count; i++) {
            const piece *x = &list[i];
            const lp_status status =
                lp_push_range(s, w->source[x->source].name, x->lo, p->data[x->source] + x->lo, x->hi - x->lo, &w->err);
            if (status == LP_E_LIMIT) {
                assert_true(strncmp(w->err.hint, "push '", 6) == 0);
                list[kept++] = *x;
            } else {
                assert_ok(w, status);
            }
        }
        assert_true(kept < count); /* else no order would fit the budget */
        count = kept;
    }
}

static void load(world *w, lp_plan *plan, const payload *p, lp_load_mode mode, bool is_whole, lp_report *report)
{
    lp_session *s;
    assert_ok(w, lp_begin(&s, plan, &(lp_session_options){.mode = mode, .digests = true}, &w->err));
    push_pieces(w, s, p, is_whole);
    assert_ok(w, lp_finish(s, report, &w->err));
    lp_session_close(s);
}

static bool is_same_image(const world *w, const image *a, const image *b)
{
    for (int i = 0; i < w->ndest; i++)
        if (memcmp(a->data[i], b->data[i], (size_t)w->dest[i].storage_bytes) != 0)
            return false;
    return true;
}

static void test_every_mode_gives_the_model(void **state)
{
    (void)state;
    const uint64_t first = random_first_seed((uint64_t)time(NULL) * 1000);
    print_message("seed %llu\n", (unsigned long long)first);
    int differing = 0, ordered = 0;
    for (uint64_t n = 0; n < WORLDS; n++) {
        world w;
        lp_report report;
        random_world(&w, first + n);
        failing_seed = first + n;
        payload a = make_payload(&w), b = make_payload(&w);
        image live = new_image(&w), want_a = new_image(&w), want_b = new_image(&w);
        model_load(&w, &a, &want_a);
        model_load(&w, &b, &want_b);
        differing += !is_same_image(&w, &want_a, &want_b);
        lp_plan *plan = bind_image(&w, &live, NULL);
        const lp_rows *rows = lp_plan_rows(plan);
        for (uint32_t i = 0; i < rows->nrecord; i++)
            ordered += rows->record[i].seq != 0;
        static const lp_load_mode modes[] = {LP_COLD, LP_DIRECT, LP_LAYERWISE};
        for (int i = 0; i < w.ndest; i++) /* a cold start finds old bytes in its memory */
            memset(live.data[i], 0x5a, (size_t)w.dest[i].storage_bytes);
        load(&w, plan, &a, LP_COLD, n % 3 == 0, &report);
        assert_same_image(&w, &live, &want_a, "cold start with A");
        for (int m = 0; m < 3; m++) {
            load(&w, plan, &b, modes[m], n % 3 == 1, &report);
            assert_same_image(&w, &live, &want_b, "A to B");
            load(&w, plan, &b, modes[m], n % 3 == 2, &report);
            assert_same_image(&w, &live, &want_b, "B again");
            if (modes[m] != LP_COLD)
                assert_int_equal(report.tensors_changed, 0);
            load(&w, plan, &a, modes[(m + 1) % 3], false, &report);
            assert_same_image(&w, &live, &want_a, "back to A");
        }
        lp_plan_close(plan);
        free_image(&w, &live);
        free_image(&w, &want_a);
        free_image(&w, &want_b);
        free_payload(&w, &a);
        free_payload(&w, &b);
        free_world(&w);
    }
    print_message("%d of %d worlds differ between A and B, %d ordered records\n", differing, WORLDS, ordered);
    assert_true(differing > WORLDS * 9 / 10);
    assert_true(ordered > WORLDS / 4);
}

/* Bytes that nobody owns are zero after a cold start and kept by every reload. */
static void test_bytes_that_nobody_owns(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 60; seed++) {
        world w;
        lp_report report;
        random_world(&w, seed);
        failing_seed = seed;
        payload a = make_payload(&w), b = make_payload(&w);
        image live = new_image(&w), mark = new_image(&w), want = new_image(&w);
        lp_plan *plan = bind_image(&w, &live, NULL);
        load(&w, plan, &a, LP_COLD, true, &report);
        for (int i = 0; i < w.ndest; i++) /* what the model never writes keeps its mark */
            memset(mark.data[i], 0xff, (size_t)w.dest[i].storage_bytes);
        model_load(&w, &a, &mark);
        model_load(&w, &a, &want);
        for (int i = 0; i < w.ndest; i++)
            for (int64_t k = 0; k < w.dest[i].storage_bytes; k++)
                if (mark.data[i][k] == 0xff && want.data[i][k] == 0)
                    live.data[i][k] = want.data[i][k] = 0xc3;
        model_load(&w, &b, &want);
        load(&w, plan, &b, seed % 2 == 0 ? LP_DIRECT : LP_LAYERWISE, false, &report);
        assert_same_image(&w, &live, &want, "kept bytes");
        lp_plan_close(plan);
        free_image(&w, &live);
        free_image(&w, &mark);
        free_image(&w, &want);
        free_payload(&w, &a);
        free_payload(&w, &b);
        free_world(&w);
    }
}

/* A subset leaves everything else as it is, and its result is that of one load with the mixed bytes. */
static void test_random_subsets(void **state)
{
    (void)state;
    int refused = 0, done = 0;
    for (uint64_t seed = 1000; seed < 1200; seed++) {
        world w;
        lp_report report;
        random_world(&w, seed);
        failing_seed = seed;
        payload a = make_payload(&w), b = make_payload(&w), mixed = a;
        image live = new_image(&w), want = new_image(&w);
        lp_plan *plan = bind_image(&w, &live, NULL);
        load(&w, plan, &a, LP_COLD, true, &report);
        const char *subset[SOURCES_MAX];
        int count = 0;
        for (int i = 0; i < w.nsource; i++)
            if (pick(&w, 2) == 0 && lp_plan_use(plan, lp_plan_handle(plan, w.source[i].name)) == LP_USE_LOADED) {
                subset[count++] = w.source[i].name;
                mixed.data[i] = b.data[i];
            }
        lp_session *s = NULL;
        const lp_session_options o = {
            .mode = seed % 2 == 0 ? LP_DIRECT : LP_LAYERWISE, .subset = subset, .subset_count = count};
        const lp_status status = lp_begin(&s, plan, &o, &w.err);
        if (status == LP_E_ARGUMENT) {
            refused++; /* a staged input is left out */
            assert_non_null(strstr(w.err.text, "the subset leaves out"));
        } else {
            assert_ok(&w, status);
            for (int i = 0; i < w.nsource; i++)
                if (mixed.data[i] != a.data[i])
                    push_whole(&w, s, &b, i);
            assert_ok(&w, lp_finish(s, NULL, &w.err));
            model_load(&w, &mixed, &want);
            assert_same_image(&w, &live, &want, "subset");
            done++;
        }
        lp_session_close(s);
        lp_plan_close(plan);
        free_image(&w, &live);
        free_image(&w, &want);
        free_payload(&w, &a);
        free_payload(&w, &b);
        free_world(&w);
    }
    print_message("%d subsets loaded, %d refused\n", done, refused);
    assert_true(done > 100 && refused > 5);
}

/* The largest group, and the staged inputs, within the smallest budget that begin accepts. */
static void test_layerwise_within_its_budget(void **state)
{
    (void)state;
    int tight = 0;
    for (uint64_t seed = 2000; seed < 2100; seed++) {
        world w;
        lp_report report;
        memset(&w, 0, sizeof w);
        w.random = seed;
        random_sources(&w);
        random_dests(&w);
        random_calls(&w, false);
        /* each name into one group only, so that every order fits a budget of one group */
        int group[SOURCES_MAX];
        memset(group, -1, sizeof group);
        int kept = 0;
        for (int i = 0; i < w.ncall; i++) {
            const int t = w.call[i].trigger, g = w.call[i].dest % 3;
            if (t >= 0 && group[t] >= 0 && group[t] != g)
                continue;
            if (t >= 0)
                group[t] = g;
            w.call[kept++] = w.call[i];
        }
        w.ncall = kept;
        build_world(&w, NULL);
        int64_t bytes[3] = {0, 0, 0}, most = 0;
        for (int i = 0; i < w.ndest; i++)
            bytes[i % 3] += w.dest[i].storage_bytes;
        for (int g = 0; g < 3; g++)
            most = bytes[g] > most ? bytes[g] : most;
        payload a = make_payload(&w), b = make_payload(&w);
        image live = new_image(&w), want = new_image(&w);
        lp_plan *plan = bind_image(&w, &live, &(lp_bind_options){.staging = most});
        load(&w, plan, &a, LP_COLD, true, &report);
        load(&w, plan, &b, LP_LAYERWISE, true, &report);
        assert_true(report.staging_peak_bytes <= most);
        tight += report.groups_committed > 1;
        model_load(&w, &b, &want);
        assert_same_image(&w, &live, &want, "layerwise in a tight budget");
        lp_plan_close(plan);
        free_image(&w, &live);
        free_image(&w, &want);
        free_payload(&w, &a);
        free_payload(&w, &b);
        free_world(&w);
    }
    assert_true(tight > 30);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_mode_gives_the_model),
        cmocka_unit_test(test_bytes_that_nobody_owns),
        cmocka_unit_test(test_random_subsets),
        cmocka_unit_test(test_layerwise_within_its_budget),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
