/* SPDX-License-Identifier: Apache-2.0 */
/* explain counts what a load then does. */
#include "replay_testing.h"
#include "replayer/explain.h"

static void refuse(world *w)
{
    const lp_refusal r = {.name = (uint32_t)lp_checkpoint_find(w->checkpoint, "layers.0.refused"),
                          .dest = LP_NONE,
                          .operation = "aten.item",
                          .reason = "reads a value",
                          .provenance = LP_NONE};
    assert_ok(w, lp_trace_add_refusal(w->trace, &r, &w->err));
}

static void make_world(world *w)
{
    memset(w, 0, sizeof *w);
    w->random = 21;
    const int row = add_source(w, "layers.0.row.weight", LP_F32, 6, 8);
    const int row1 = add_source(w, "layers.1.row.weight", LP_F32, 6, 8), whole = add_source(w, "whole", LP_F32, 3, 4);
    const int cast = add_source(w, "cast", LP_BF16, 5, 3), fill = add_source(w, "only_fills", LP_F32, 1, 9);
    add_source(w, "other_rank", LP_U8, 100, 1);
    add_source(w, "layers.0.refused", LP_F32, 1, 1);
    for (int i = 0; i < 2; i++) {
        char name[32];
        snprintf(name, sizeof name, "layers.%d.row", i);
        const int to = add_dest(w, name, LP_F32, 6, 4, 0, i == 0 ? "layers.0" : "layers.1");
        w->call[w->ncall++] = (call){.source = i == 0 ? row : row1,
                                     .trigger = i == 0 ? row : row1,
                                     .dest = to,
                                     .size = {6, 4},
                                     .src_at = 4,
                                     .src_step = {8, 1}};
    }
    const int to = add_dest(w, "whole", LP_F32, 4, 4, 4, "root");
    add_copy(w, whole, to, 0, 3, 0);
    add_copy(w, row, add_dest(w, "first", LP_F32, 1, 8, 0, "root"), 0, 1, 0); /* the same name once more, row 0 */
    add_copy(w, cast, add_dest(w, "cast", LP_F32, 2, 3, 0, "root"), 0, 2, 3);
    add_fill(w, fill, add_dest(w, "filled", LP_F32, 2, 2, 0, "root"), 0, 2, 0x40000000);
    add_fill(w, -1, to, 3, 1, 0);
    w->derive[w->nderive++] = (derive){DERIVE_NEG_EXP, add_dest(w, "exp", LP_F32, 3, 4, 0, "root"), -1, whole};
    w->derive[w->nderive++] = (derive){DERIVE_MAX, add_dest(w, "max", LP_F32, 1, 1, 0, "root"), 0, -1};
    build_world(w, refuse);
}

static void test_explain_counts(void **state)
{
    (void)state;
    world w;
    lp_explanation e;
    make_world(&w);
    assert_ok(&w, lp_explain(&e, w.trace, 0, &w.err));
    /* layers.0.row: row 0 whole (32 bytes) and five half rows; layers.1.row: six half rows; whole; two rows of cast */
    assert_int_equal(e.bytes_read, 32 + 5 * 16 + 6 * 16 + 48 + 12);
    assert_int_equal(e.ranges_read, 6 + 6 + 1 + 1);
    assert_int_equal(e.names_read, 4);
    assert_int_equal(e.names_unused, 1);
    assert_int_equal(e.bytes_written, 96 + 96 + 48 + 32 + 24 + 16 + 16 + 48 + 4);
    assert_int_equal(e.tensors_written, 8);
    assert_int_equal(e.bytes_storage, 96 + 96 + 80 + 32 + 24 + 16 + 48 + 4);
    assert_int_equal(e.bytes_staged, 48);
    assert_int_equal(e.groups, 3);
    assert_int_equal(e.bytes_layerwise, 80 + 32 + 24 + 16 + 48 + 4);
    assert_int_equal(e.fills, 2);
    assert_int_equal(e.casts, 1);
    assert_int_equal(e.replicates, 0);
    assert_int_equal(e.derives, 2);
    assert_int_equal(e.derives_own, 1);
    assert_int_equal(e.fallbacks, 1);
    assert_int_equal(e.order_dependent, 0);
    assert_int_equal(lp_explain(&e, w.trace, 1, &w.err), LP_E_ARGUMENT);

    /* and a load writes as much */
    payload p = make_payload(&w);
    image live = new_image(&w);
    lp_plan *plan = bind_image(&w, &live, NULL);
    lp_session *s;
    lp_report report;
    assert_ok(&w, lp_begin(&s, plan, &(lp_session_options){.allow_fallbacks = true}, &w.err));
    for (int i = 0; i < 6; i++)
        push_whole(&w, s, &p, i);
    assert_ok(&w, lp_finish(s, &report, &w.err));
    assert_int_equal(report.bytes_written, e.bytes_written);
    assert_int_equal(report.staging_peak_bytes, e.bytes_staged);
    lp_session_close(s);
    lp_plan_close(plan);
    free_image(&w, &live);
    free_payload(&w, &p);
    free_world(&w);
}

static void test_families(void **state)
{
    (void)state;
    world w;
    lp_family_costs *f;
    make_world(&w);
    assert_ok(&w, lp_explain_families(&f, w.trace, 0, &w.err));
    assert_int_equal(lp_family_costs_count(f), 4);
    const lp_family_cost *first = lp_family_costs_at(f, 0), *second = lp_family_costs_at(f, 1);
    assert_string_equal(first->family, "layers.*.row.weight");
    assert_int_equal(first->names, 2);
    assert_int_equal(first->bytes_read, 32 + 11 * 16);
    assert_int_equal(first->ranges_read, 12);
    assert_int_equal(first->bytes_written, 96 + 96 + 32);
    assert_string_equal(first->kinds, "copy");
    assert_string_equal(second->family, "whole");
    assert_string_equal(second->kinds, "copy, derive");
    assert_string_equal(lp_family_costs_at(f, 2)->kinds, "cast");
    assert_string_equal(lp_family_costs_at(f, 3)->kinds, "fill");
    assert_int_equal(lp_family_costs_at(f, 3)->bytes_read, 0);
    assert_null(lp_family_costs_at(f, 4));
    lp_family_costs_free(f);
    free_world(&w);
}

static void test_layers(void **state)
{
    (void)state;
    world w;
    lp_family_costs *f, *families;
    int64_t read = 0, written = 0;
    make_world(&w);
    assert_ok(&w, lp_explain_layers(&f, w.trace, 0, &w.err));
    assert_ok(&w, lp_explain_families(&families, w.trace, 0, &w.err));
    for (int64_t i = 0; i < lp_family_costs_count(families); i++) {
        read += lp_family_costs_at(families, i)->bytes_read;
        written += lp_family_costs_at(families, i)->bytes_written;
    }
    bool has_root = false, has_layer = false;
    for (int64_t i = 0; i < lp_family_costs_count(f); i++) {
        const lp_family_cost *x = lp_family_costs_at(f, i);
        has_root = has_root || strcmp(x->family, "root") == 0;
        has_layer = has_layer || strncmp(x->family, "layers.", 7) == 0;
        assert_null(strstr(x->family, "row")); /* a layer ends with its index */
        read -= x->bytes_read;
        written -= x->bytes_written;
    }
    assert_true(has_root && has_layer);
    assert_int_equal(read, 0); /* the same bytes, cut otherwise */
    assert_int_equal(written, 0);
    lp_family_costs_free(f);
    lp_family_costs_free(families);
    free_world(&w);
}

typedef struct ranges {
    int64_t lo[8], hi[8];
    int count;
} ranges;

static int add_range(void *context, int64_t lo, int64_t hi)
{
    ranges *r = context;
    r->lo[r->count] = lo;
    r->hi[r->count++] = hi;
    return r->count == 7;
}

static void test_reads_of_a_name(void **state)
{
    (void)state;
    world w;
    make_world(&w);
    image live = new_image(&w);
    lp_plan *plan = bind_image(&w, &live, NULL);
    ranges r = {.count = 0};
    assert_ok(&w, lp_plan_reads(plan, lp_plan_handle(plan, "layers.0.row.weight"), add_range, &r, &w.err));
    assert_int_equal(r.count, 6);
    assert_int_equal(r.lo[0], 0);
    assert_int_equal(r.hi[0], 32);
    for (int i = 1; i < 6; i++) {
        assert_int_equal(r.lo[i], 32 * i + 16);
        assert_int_equal(r.hi[i], 32 * i + 32);
    }
    r.count = 0;
    assert_ok(&w, lp_plan_reads(plan, lp_plan_handle(plan, "other_rank"), add_range, &r, &w.err));
    assert_int_equal(r.count, 0);
    assert_int_equal(lp_plan_reads(plan, LP_NONE, add_range, &r, &w.err), LP_E_UNKNOWN_NAME);
    lp_plan_close(plan);
    free_image(&w, &live);
    free_world(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_explain_counts),
        cmocka_unit_test(test_families),
        cmocka_unit_test(test_layers),
        cmocka_unit_test(test_reads_of_a_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
