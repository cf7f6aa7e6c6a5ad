/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The oracle of everything: a cold start with B, a reload from A to B, and that reload once more leave the same bytes
 * as the model, in every mode, order and split, on random worlds with fills, casts, replication, overlaps and derives.
 */
#include "replay_testing.h"

#include "replayer/own_math.h"

#include <time.h>

enum { WORLDS = 200 };

float model_neg_exp(float x)
{
    return -lp_own_exp(x);
}

/* ---- random worlds ---- */

static void random_sources(world *w)
{
    static const lp_dtype dtype[] = {LP_F32, LP_BF16, LP_U8, LP_F32, LP_BF16};
    const int count = 3 + (int)pick(w, 6);
    for (int i = 0; i < count; i++) {
        char name[32];
        snprintf(name, sizeof name, "model.layers.%d.t%d", i % 3, i);
        add_source(w, name, dtype[pick(w, 5)], 1 + pick(w, 6), 1 + pick(w, 6));
    }
    add_source(w, "twin.0", LP_F32, 2, 3);
    add_source(w, "twin.1", LP_F32, 2, 3);
}

/* Another source of the same type and shape, or i itself. */
static int twin_of(const world *w, int i)
{
    for (int j = 0; j < w->nsource; j++)
        if (j != i && w->source[j].dtype == w->source[i].dtype &&
            memcmp(w->source[j].shape, w->source[i].shape, sizeof w->source[i].shape) == 0)
            return j;
    return i;
}

/* Row-major or transposed, with gaps, sometimes at an offset of its storage. */
static void random_dests(world *w)
{
    static const lp_dtype dtype[] = {LP_F32, LP_F32, LP_BF16, LP_U8, LP_F32};
    const int count = 2 + (int)pick(w, 5);
    for (int i = 0; i < count; i++) {
        char name[32], group[32];
        snprintf(name, sizeof name, "layers.%d.d%d", i % 3, i);
        snprintf(group, sizeof group, "layers.%d", i % 3);
        const int64_t rows = 2 + pick(w, 6), columns = 1 + pick(w, 5);
        const int at = add_dest(w, name, dtype[pick(w, 5)], rows, columns, 0, group);
        dest *d = &w->dest[at];
        const int64_t e = elem(d->dtype);
        if (pick(w, 3) == 0) {
            d->stride[0] = e * (1 + pick(w, 2));
            d->stride[1] = d->stride[0] * (rows - 1) + e + e * pick(w, 3);
        } else {
            d->stride[1] = e * (1 + pick(w, 2));
            d->stride[0] = d->stride[1] * (columns - 1) + e + e * pick(w, 3);
        }
        d->offset = pick(w, 2) * 8;
        d->storage_bytes = d->offset + (rows - 1) * d->stride[0] + (columns - 1) * d->stride[1] + e + pick(w, 9);
    }
}

/* A source that can fill size elements of `to`, with steps inside it; false when this pick does not fit. */
static bool random_read(world *w, call *c)
{
    const source *s = &w->source[c->source];
    const dest *d = &w->dest[c->dest];
    const int64_t count = s->shape[0] * s->shape[1];
    if (s->dtype != d->dtype && lp_cast_kind_of(s->dtype, d->dtype) != LP_CAST_VALUES)
        return false;
    if (s->dtype != d->dtype && (s->dtype == LP_U8 || d->dtype == LP_U8))
        return false; /* values out of range have no place in this test */
    c->src_step[0] = pick(w, 3) == 0 ? 0 : pick(w, s->shape[1] + 1);
    c->src_step[1] = pick(w, 3);
    const int64_t reach = (c->size[0] - 1) * c->src_step[0] + (c->size[1] - 1) * c->src_step[1];
    if (reach >= count)
        return false;
    c->src_at = pick(w, count - reach);
    return true;
}

/* Disjoint row bands of every destination, each written by a name or filled, and now and then a second write. */
static void random_calls(world *w, bool with_overlaps)
{
    call list[CALLS_MAX];
    int count = 0;
    for (int d = 0; d < w->ndest; d++) {
        for (int64_t row = 0; row < w->dest[d].shape[0] && count < 40;) {
            int64_t rows = 1 + pick(w, 3);
            rows = rows < w->dest[d].shape[0] - row ? rows : w->dest[d].shape[0] - row;
            call c = {.dest = d, .dst_at = {row, 0}, .size = {rows, w->dest[d].shape[1]}, .source = -1};
            const int64_t kind = pick(w, 8);
            row += rows;
            if (kind == 0)
                continue; /* bytes that nobody owns */
            c.bits = next_random(w) & (pick(w, 2) != 0 ? 0x0101u : 0x3f800000u);
            c.trigger = kind == 1 ? -1 : (int)pick(w, w->nsource);
            if (kind > 2) {
                int tries = 20;
                do {
                    c.source = c.trigger = (int)pick(w, w->nsource);
                } while (!random_read(w, &c) && --tries > 0);
                c.source = tries > 0 ? c.source : -1;
            }
            list[count++] = c;
            if (with_overlaps && pick(w, 4) == 0 && c.trigger >= 0) { /* the same rows by another name */
                call again = c;
                again.trigger = (int)pick(w, w->nsource);
                again.source = -1;
                again.bits = 0x7777;
                if (again.trigger != c.trigger)
                    list[count++] = again;
            }
        }
    }
    for (int s = -1; s < w->nsource; s++) /* a loader goes name by name */
        for (int i = 0; i < count; i++)
            if (list[i].trigger == s)
                w->call[w->ncall++] = list[i];
}

static void random_derives(world *w)
{
    for (int i = 0; i < w->ndest - 1 && w->nderive < 3; i++) {
        const dest *from = &w->dest[i];
        if (from->dtype != LP_F32 || pick(w, 2) == 0 || w->ndest >= DESTS_MAX - 2)
            continue;
        char name[32], group[32];
        snprintf(group, sizeof group, "%s", from->group);
        snprintf(name, sizeof name, "layers.%d.max%d", (int)pick(w, 3), i);
        const int to = add_dest(w, name, LP_F32, 1, 1, 0, group);
        w->derive[w->nderive++] = (derive){DERIVE_MAX, to, i, -1};
    }
    for (int i = 0; i < w->nsource && w->nderive < DERIVES_MAX - 1; i++) {
        const source *s = &w->source[i];
        if (s->dtype != LP_F32 || pick(w, 2) == 0 || w->ndest >= DESTS_MAX)
            continue;
        char name[32];
        snprintf(name, sizeof name, "layers.%d.exp%d", (int)pick(w, 3), i);
        const int to = add_dest(w, name, LP_F32, s->shape[0], s->shape[1], 4, "layers.1");
        w->derive[w->nderive++] = (derive){DERIVE_NEG_EXP, to, -1, i};
        if (w->ndest < DESTS_MAX && pick(w, 2) == 0) { /* a chain: reads the result of the other */
            snprintf(name, sizeof name, "layers.%d.sum%d", (int)pick(w, 3), i);
            const int sum = add_dest(w, name, LP_F32, s->shape[0], s->shape[1], 0, "layers.2");
            w->derive[w->nderive++] = (derive){DERIVE_ADD, sum, to, twin_of(w, i)};
        }
    }
}

static void random_world(world *w, uint64_t seed)
{
    memset(w, 0, sizeof *w);
    w->random = seed;
    random_sources(w);
    random_dests(w);
    random_calls(w, seed % 2 == 0);
    random_derives(w);
    build_world(w, NULL);
}

/* ---- random loads ---- */

/* Pieces of all tensors in one random order. */
typedef struct piece {
    int source;
    int64_t lo, hi;
} piece;

static int cut_pieces(world *w, piece *list, int most, bool is_whole)
{
    int count = 0;
    for (int i = 0; i < w->nsource; i++) {
        for (int64_t lo = 0; lo < w->source[i].bytes && count < most;) {
            int64_t hi = is_whole || count > most / 2 ? w->source[i].bytes : lo + 1 + pick(w, 40);
            hi = hi < w->source[i].bytes ? hi : w->source[i].bytes;
            list[count++] = (piece){i, lo, hi};
            lo = hi;
        }
    }
    for (int i = count - 1; i > 0; i--) {
        const int j = (int)pick(w, i + 1);
        const piece keep = list[i];
        list[i] = list[j];
        list[j] = keep;
    }
    return count;
}

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
    const char *text = getenv("LOADPLAN_TEST_SEED");
    const uint64_t first = text != NULL ? strtoull(text, NULL, 10) : (uint64_t)time(NULL) * 1000;
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
