/* SPDX-License-Identifier: Apache-2.0 */
/* Reports: strips against counting byte by byte, rows of destinations that are filled alike, and what a base changes.
 */
#include "model_testing.h"
#include "replayer/report.h"

#include <string.h>

/* Who writes each byte: index of the record + 1. */
typedef struct painting {
    uint8_t *byte;
    int64_t shift, elem;
    uint8_t value;
} painting;

static int paint(void *context, int64_t dst_off, int64_t src_off, int64_t count)
{
    const painting *p = context;
    (void)src_off;
    memset(p->byte + p->shift + dst_off, p->value, (size_t)(count * p->elem));
    return 0;
}

/* Two interleaved families and a fill, of random periods; sources are told apart by their families. */
static void strips_count_every_byte(void **unused)
{
    (void)unused;
    unsigned seed = 20261201;
    for (int round = 0; round < 60; round++) {
        const int64_t period = 4 + rand_r(&seed) % 60, part = 1 + rand_r(&seed) % (period - 2);
        const int64_t times = 2 + rand_r(&seed) % 200, tail = rand_r(&seed) % 50, bytes = period * times + tail;
        lp_trace *t = small_trace(3, 1 << 16, NULL);
        const uint32_t d = add_dest(t, "w", bytes);
        const lp_map *one = byte_map(0, 0, part, times, part, period);
        const lp_map *two = byte_map(0, part, period - part, times, period - part, period);
        assert_ok(lp_trace_add_record(t, &(lp_record){.name = 0, .dest = d, .map = one, .provenance = LP_NONE}, ERR));
        assert_ok(lp_trace_add_record(t, &(lp_record){.name = 1, .dest = d, .map = two, .provenance = LP_NONE}, ERR));
        lp_map_free(one, NULL);
        lp_map_free(two, NULL);
        if (tail > 1)
            add_fill(t, LP_NAME_BEGIN, d, period * times, tail - 1, 7); /* one byte is nobody's */
        assert_ok(lp_trace_seal(t, ERR));
        lp_report_rows rows;
        lp_strip strip;
        int64_t looks = INT64_MAX;
        assert_ok(lp_report_rows_make(&rows, t, NULL, ERR));
        assert_ok(lp_report_strip(&strip, &rows, 0, 0, &looks, ERR));
        assert_int_equal(strip.bytes, bytes);

        uint8_t *owner = calloc(1, (size_t)bytes);
        assert_non_null(owner);
        const lp_rows *all = rows.scope[0].rows;
        for (uint32_t i = 0; i < all->nrecord; i++) {
            const lp_record *r = &all->record[i];
            painting p = {owner, r->dst_off, r->map->dst_elem, (uint8_t)(r->name == LP_NAME_BEGIN ? 3 : r->name + 1)};
            lp_map_walk(r->map, paint, &p);
        }
        for (int32_t b = 0; b < strip.bins; b++) {
            const int64_t share = bytes / strip.bins, rest = bytes % strip.bins;
            const int64_t lo = b * share + (b < rest ? b : rest), hi = lo + share + (b < rest);
            int64_t seen[4] = {0};
            int units = 0;
            for (int64_t i = lo; i < hi; i++)
                seen[owner[i]]++;
            for (int c = 0; c < LP_STRIP_CODES; c++) {
                const lp_strip_source *source = &strip.source[c / 2];
                units += strip.bin[b].units[c];
                if (strip.bin[b].units[c] == 0)
                    continue;
                const int who = source->kind == LP_STRIP_NOTHING    ? 0
                                : source->kind == LP_STRIP_FILL     ? 3
                                : strcmp(source->family, "n0") == 0 ? 1
                                                                    : 2;
                const double exact = (double)seen[who] * LP_STRIP_UNITS / (double)(hi - lo);
                if (strip.bin[b].units[c] > exact + 1.01 || strip.bin[b].units[c] < exact - 1.01)
                    fail_msg("round %d bin %d: source %d has %d units, not %g (seed 20261201)", round, b, who,
                             strip.bin[b].units[c], exact);
            }
            assert_int_equal(units, LP_STRIP_UNITS);
        }
        free(owner);
        lp_report_rows_free(&rows);
        lp_trace_close(t);
    }
}

/* Two layers, one of which reads its source elsewhere, and a head. */
static lp_trace *layers(int64_t moved)
{
    lp_trace *t = small_trace(4, 64, NULL);
    const uint32_t a = add_dest(t, "layers.0.w", 32), b = add_dest(t, "layers.1.w", 32), c = add_dest(t, "head", 8);
    add_copy(t, "n0", a, 0, 0, 32);
    add_copy(t, "n1", b, moved, 0, 32);
    add_copy(t, "n2", c, 0, 0, 8);
    assert_ok(lp_trace_seal(t, ERR));
    return t;
}

static void rows_hold_what_is_filled_alike(void **unused)
{
    (void)unused;
    lp_trace *t = small_trace(8, 64, NULL);
    for (int i = 0; i < 4; i++) {
        char name[32], from[16];
        snprintf(name, sizeof name, "layers.%d.w", i);
        snprintf(from, sizeof from, "n%d", i);
        const uint32_t d = add_dest(t, name, 32);
        add_copy(t, "n7", d, 0, 0, i == 3 ? 32 : 16); /* the last layer is filled otherwise */
        if (i < 3)
            add_copy(t, "n6", d, 0, 16, 16);
    }
    assert_ok(lp_trace_seal(t, ERR));
    lp_report_rows rows;
    assert_ok(lp_report_rows_make(&rows, t, NULL, ERR));
    assert_int_equal(rows.count, 2);
    assert_int_equal(rows.item[0].members, 3);
    assert_string_equal(rows.item[0].family, "layers.*.w");
    assert_string_equal(rows.item[0].dest->name, "layers.0.w");
    assert_int_equal(rows.item[1].members, 1);
    assert_string_equal(rows.item[1].dest->name, "layers.3.w");
    lp_report_rows_free(&rows);
    lp_trace_close(t);
}

static void a_base_shows_which_rows_changed(void **unused)
{
    (void)unused;
    lp_trace *old = layers(0), *new = layers(16);
    lp_report_rows was, is;
    assert_ok(lp_report_rows_make(&was, old, NULL, ERR));
    assert_ok(lp_report_rows_make(&is, new, NULL, ERR));
    assert_ok(lp_report_rows_compare(&is, &was, ERR));
    int64_t changed = 0;
    for (int64_t i = 0; i < is.count; i++) {
        changed += is.item[i].changed;
        if (strcmp(is.item[i].family, "head") == 0)
            assert_int_equal(is.item[i].changed, 0);
    }
    assert_int_equal(changed, 1); /* layers.1.w reads other bytes of its source, into the same places */
    assert_ok(lp_report_rows_compare(&was, &was, ERR));
    for (int64_t i = 0; i < was.count; i++)
        assert_int_equal(was.item[i].changed, 0);
    lp_report_rows_free(&was);
    lp_report_rows_free(&is);
    lp_trace_close(old);
    lp_trace_close(new);
}

static void tied_names_show_what_fills_their_memory(void **unused)
{
    (void)unused;
    lp_trace *t = small_trace(2, 64, NULL);
    const int64_t half = 32, stride = 1;
    lp_report_rows rows;
    lp_strip strip;
    int64_t looks = INT64_MAX;
    uint32_t tied, whole = add_dest(t, "a", 64);
    const lp_destination view = {.name = "b",
                                 .dtype = LP_U8,
                                 .ndim = 1,
                                 .shape = &half,
                                 .stride = &stride,
                                 .storage = "a",
                                 .storage_bytes = 64,
                                 .offset = 32,
                                 .group = "root",
                                 .flags = LP_DEST_TIED,
                                 .slot_dim = -1};
    assert_ok(lp_trace_add_destination(t, &view, &tied, ERR));
    add_copy(t, "n0", whole, 0, 0, 32);
    add_copy(t, "n1", whole, 0, 32, 16);
    assert_ok(lp_trace_seal(t, ERR));
    assert_ok(lp_report_rows_make(&rows, t, NULL, ERR));
    assert_ok(lp_report_strip(&strip, &rows, 0, 1, &looks, ERR));
    assert_int_equal(strip.bytes, 32);
    for (int b = 0; b < 32; b++) { /* the first half of the view is n1's, the second nobody's */
        int from_n1 = 0;
        for (int s = 1; s < strip.sources; s++)
            if (strcmp(strip.source[s].family, "n1") == 0)
                from_n1 += strip.bin[b].units[2 * s] + strip.bin[b].units[2 * s + 1];
        assert_int_equal(from_n1, b < 16 ? LP_STRIP_UNITS : 0);
    }
    lp_report_rows_free(&rows);
    lp_trace_close(t);
}

static void work_that_runs_out_is_not_called_nothing(void **unused)
{
    (void)unused;
    lp_trace *t = layers(0);
    lp_report_rows rows;
    lp_strip strip;
    int64_t looks = 3;
    assert_ok(lp_report_rows_make(&rows, t, NULL, ERR));
    assert_ok(lp_report_strip(&strip, &rows, 0, 1, &looks, ERR));
    for (int c = 0; c < LP_STRIP_CODES; c++)
        if (strip.bin[strip.bins - 1].units[c] > 0)
            assert_int_equal(strip.source[c / 2].kind, LP_STRIP_OTHERS);
    lp_report_rows_free(&rows);
    lp_trace_close(t);
}

/* Many maps, many rows, derives and refusals, a destination without bytes, two fills in one place. */
static lp_trace *much(void)
{
    enum { LAYERS = 700 };
    lp_trace *t = small_trace(LAYERS, 4096, NULL);
    for (int i = 0; i < LAYERS; i++) {
        char name[32], from[16];
        snprintf(name, sizeof name, "part%d.w", i);
        snprintf(from, sizeof from, "n%d", i);
        const uint32_t d = add_dest(t, name, 1024);
        add_copy(t, from, d, 0, 0, 1 + i);
        if (i % 3 == 0)
            add_fill(t, LP_NAME_BEGIN, d, 1000, 24, (uint8_t)i);
    }
    add_dest(t, "empty", 0);
    const uint32_t refused = add_dest(t, "refused", 8);
    assert_ok(lp_trace_add_refusal(t,
                                   &(lp_refusal){.name = name_index(t, "n1"),
                                                 .dest = refused,
                                                 .operation = "aten.max",
                                                 .reason = "reads a value",
                                                 .provenance = LP_NONE},
                                   ERR));
    assert_ok(lp_trace_seal(t, ERR));
    return t;
}

static void every_allocation_may_fail(void **unused)
{
    (void)unused;
    lp_trace *t = much();
    lp_report_rows base;
    assert_ok(lp_report_rows_make(&base, t, NULL, ERR));
    assert_int_equal(base.count, 702);
    failing_alloc faults = {0};
    const lp_alloc alloc = {.size = sizeof alloc, .context = &faults, .resize = failing_resize};
    const lp_platform platform = {.alloc = &alloc};
    lp_status status = LP_E_MEMORY;
    int64_t n = 0;
    /* Growing tables ask rarely: the first requests one by one, the others in leaps. */
    for (int64_t at = 1; status != LP_OK; at += at < 60 ? 1 : at / 20, n++) {
        lp_report_rows rows;
        lp_strip strip;
        lp_error err = {0};
        int64_t looks = INT64_MAX;
        faults = (failing_alloc){.fail_at = at};
        status = lp_report_rows_make(&rows, t, &platform, &err);
        if (status == LP_OK)
            status = lp_report_rows_compare(&rows, &base, &err);
        if (status == LP_OK)
            status = lp_report_strip(&strip, &rows, 0, 5, &looks, &err);
        assert_true(status == LP_OK || (status == LP_E_MEMORY && err.code == LP_E_MEMORY));
        lp_report_rows_free(&rows);
        assert_int_equal(faults.live, 0);
    }
    assert_true(n > 20);
    lp_report_rows_free(&base);
    lp_trace_close(t);
}

static void fallbacks_and_nothing_are_told_apart(void **unused)
{
    (void)unused;
    lp_trace *t = much();
    lp_report_rows rows;
    lp_strip strip;
    int32_t scope;
    uint32_t index;
    int64_t looks = INT64_MAX;
    assert_ok(lp_report_rows_make(&rows, t, NULL, ERR));
    assert_false(lp_report_rows_find(&rows, 0, "nobody", &scope, &index));
    assert_false(lp_report_rows_find(&rows, 7, "empty", &scope, &index));
    assert_true(lp_report_rows_find(&rows, 0, "refused", &scope, &index));
    assert_ok(lp_report_strip(&strip, &rows, scope, index, &looks, ERR));
    assert_int_equal(strip.sources, 2);
    assert_int_equal(strip.source[1].kind, LP_STRIP_FALLBACK);
    assert_string_equal(strip.source[1].note, "aten.max");
    assert_int_equal(strip.bin[0].units[2] + strip.bin[0].units[3], LP_STRIP_UNITS);
    assert_true(lp_report_rows_find(&rows, 0, "empty", &scope, &index));
    assert_ok(lp_report_strip(&strip, &rows, scope, index, &looks, ERR));
    assert_int_equal(strip.bins, 0);
    assert_true(lp_report_rows_find(&rows, 0, "part5.w", &scope, &index));
    assert_ok(lp_report_strip(&strip, &rows, scope, index, &looks, ERR));
    assert_int_equal(strip.bin[LP_STRIP_BINS - 1].units[0], LP_STRIP_UNITS); /* source 0: nothing writes the end */
    lp_report_rows_free(&rows);
    lp_trace_close(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(strips_count_every_byte),
        cmocka_unit_test(rows_hold_what_is_filled_alike),
        cmocka_unit_test(a_base_shows_which_rows_changed),
        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(fallbacks_and_nothing_are_told_apart),
        cmocka_unit_test(tied_names_show_what_fills_their_memory),
        cmocka_unit_test(work_that_runs_out_is_not_called_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
