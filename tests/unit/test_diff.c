/* SPDX-License-Identifier: Apache-2.0 */
/* What diff tells of changed maps, kinds, derives, destinations and refusals. More: test_diff_order.c. */
#include "diff_testing.h"

static void equal_traces_end_at_once(void **unused)
{
    (void)unused;
    lp_findings *f = diff((variant){.ranks = 2}, (variant){.ranks = 2});
    assert_int_equal(lp_findings_count(f), 0);
    assert_string_equal(lp_findings_summary(f), "no change: 2 ranks with equal plan digests");
    lp_findings_free(f);
}

static void a_gate_up_swap_is_seen(void **unused)
{
    (void)unused;
    lp_findings *f = diff((variant){0}, (variant){.swap_gate_up = true});
    const lp_finding *gate = expect(f, 2, "map_changed", "layers.*.experts.*.gate");
    assert_int_equal(gate->level, LP_DENY);
    assert_int_equal(gate->members, LAYERS * EXPERTS);
    assert_string_equal(gate->tensor, "layers.0.experts.0.gate");
    assert_int_equal(gate->byte_lo, HALF);
    assert_int_equal(gate->byte_hi, 2 * HALF);
    const lp_finding *up = expect(f, 2, "map_changed", "layers.*.experts.*.up");
    assert_int_equal(up->byte_lo, 0);
    assert_string_equal(lp_findings_summary(f), "2 families worse, 0 better: 24 tensors changed, 0 added, 0 removed");
    lp_findings_free(f);
}

static void a_changed_derive_constant_is_seen(void **unused)
{
    (void)unused;
    lp_findings *f = diff((variant){0}, (variant){.constant = 0.5f});
    const lp_finding *x = expect(f, 1, "derive_changed", "layers.*.l2_scale");
    assert_int_equal(x->members, LAYERS);
    assert_int_equal(x->level, LP_DENY);
    expect_text(x, "the derive of 'layers.0.l2_scale' has the constant 0.5, was 1");
    assert_string_equal(lp_findings_summary(f), "1 family worse, 0 better: layers.*.l2_scale (3 tensors)");
    lp_findings_free(f);
}

static void a_changed_tolerance_is_seen(void **unused)
{
    (void)unused;
    lp_findings *f = diff((variant){0}, (variant){.tolerance = 0.5f});
    expect_text(expect(f, 1, "derive_changed", "layers.*.scales"), "the tolerance 0.5, was 9.99999975e-06");
    lp_findings_free(f);
}

static void a_cast_in_place_of_a_copy_is_seen(void **unused)
{
    (void)unused;
    lp_findings *f = diff((variant){.read_more = true}, (variant){.cast_norm = true});
    const lp_finding *x = finding_of(f, "kind_changed", "layers.*.norm");
    assert_non_null(x);
    assert_int_equal(x->level, LP_DENY);
    assert_int_equal(x->members, LAYERS);
    expect_text(x, "is a cast, was a copy (now cast from BF16 to F32)");
    const lp_finding *type = finding_of(f, "dest_type_changed", "layers.*.norm");
    assert_non_null(type);
    expect_text(type, "'layers.0.norm' is F32 [8], was BF16 [8]");
    lp_findings_free(f);
}

static void a_copy_in_place_of_a_replicate_reads_more(void **unused)
{
    (void)unused;
    lp_findings *f = diff((variant){0}, (variant){.read_more = true});
    expect_text(expect(f, 2, "kind_changed", "layers.*.norm"), "is a copy, was a replicate");
    const lp_finding *x = expect(f, 2, "more_bytes_read", "layers.*.norm");
    assert_int_equal(x->level, LP_WARN);
    expect_text(x, "14 more bytes");
    lp_findings_free(f);
}

static void shapes_layouts_and_places_are_seen(void **unused)
{
    (void)unused;
    lp_findings *f = diff((variant){0}, (variant){.wide_out = true});
    expect_text(expect(f, 1, "dest_type_changed", "layers.*.l2_scale"), "is F32 [2], was F32 [1]");
    lp_findings_free(f);

    f = diff((variant){0}, (variant){.layout = "rows", .layout_version = 2});
    const lp_finding *x = expect(f, 1, "layout_changed", "layers.*.w13");
    assert_int_equal(x->members, 1);
    expect_text(x, "layout 'rows' version 2, had 'rows' version 1");
    lp_findings_free(f);

    f = diff((variant){0}, (variant){.layout = "columns", .layout_version = 1});
    expect_text(expect(f, 1, "layout_changed", "layers.*.w13"), "layout 'columns'");
    lp_findings_free(f);

    f = diff((variant){0}, (variant){.move = 64});
    expect_text(expect(f, 1, "dest_moved", "layers.*.l2_scale"),
                "at byte 64 of storage 'pool' (4096 bytes), was at byte 0");
    lp_findings_free(f);

    f = diff((variant){.move = 64}, (variant){.move = 128});
    expect_text(expect(f, 1, "dest_moved", "layers.*.l2_scale"), "at byte 128");
    lp_findings_free(f);

    f = diff((variant){0}, (variant){.group = "late"});
    assert_int_equal(lp_findings_worst(f), LP_DENY);
    expect_text(finding_of(f, "dest_type_changed", "layers.*.w13"), "commit group 'late', was 'root'");
    lp_findings_free(f);
}

static void copies_that_became_refusals_are_seen(void **unused)
{
    (void)unused;
    lp_findings *f = diff((variant){.ranks = 2}, (variant){.refuse_scales = true, .ranks = 2});
    const lp_finding *x = expect(f, 1, "copy_became_refusal", "layers.*.experts.*.w2_input_scale");
    assert_int_equal(x->level, LP_DENY);
    assert_int_equal(x->members, LAYERS * EXPERTS);
    assert_string_equal(x->file, "model_loader/experts.py");
    assert_int_equal(x->line, 412);
    assert_string_equal(x->text,
                        "aten.max (over a CPU copy) at model_loader/experts.py:412: the name now falls back to "
                        "the engine on every load");
    assert_string_equal(x->hint, "write each value into its own slot and let a derive take the maximum");
    assert_string_equal(lp_findings_summary(f),
                        "1 family worse, 0 better: layers.*.experts.*.w2_input_scale (12 tensors)");
    lp_findings_free(f);

    f = diff((variant){0}, (variant){.refuse_scales = true, .more_extra = true});
    assert_string_equal(lp_findings_summary(f), "2 families worse, 0 better: 0 tensors changed, 1 added, 0 removed; "
                                                "12 copies became refusals");
    lp_findings_free(f);

    f = diff((variant){.refuse_scales = true}, (variant){0});
    assert_int_equal(expect(f, 1, "refusal_became_copy", NULL)->level, LP_ALLOW);
    assert_string_equal(lp_findings_summary(f), "0 families worse, 1 better: 0 tensors changed, 0 added, 0 removed");
    lp_findings_free(f);
}

static void a_name_that_was_not_loaded_may_be_refused(void **unused)
{
    (void)unused;
    lp_trace *a = small_trace(2, 16, NULL), *b = small_trace(2, 16, NULL);
    add_copy(a, "n0", add_dest(a, "w", 16), 0, 0, 16);
    add_copy(b, "n0", add_dest(b, "w", 16), 0, 0, 16);
    add_refusal(b, "n1", LP_NONE, NULL, place_at(b, "l.py", 7, 0));
    lp_findings *f;
    assert_ok(lp_trace_seal(a, ERR));
    assert_ok(lp_trace_seal(b, ERR));
    assert_ok(lp_diff(&f, a, b, ERR));
    assert_int_equal(expect(f, 1, "new_refusal", "n1")->line, 7);
    lp_findings_free(f);
    assert_ok(lp_diff(&f, b, a, ERR));
    expect_text(expect(f, 1, "map_changed", "n1"), "neither loaded nor refused");
    lp_findings_free(f);
    lp_trace_close(a);
    lp_trace_close(b);
}

/* "extra" is the first by name: without it every row has another number, which is no difference. */
static void destinations_come_and_go(void **unused) /* R13 */
{
    (void)unused;
    lp_findings *f = diff((variant){0}, (variant){.without_extra = true});
    const lp_finding *x = expect(f, 1, "dest_vanished", "extra");
    assert_int_equal(x->level, LP_DENY);
    assert_string_equal(lp_findings_summary(f), "1 family worse, 0 better: extra (1 tensor)");
    lp_findings_free(f);
    f = diff((variant){0}, (variant){.more_extra = true});
    assert_int_equal(expect(f, 1, "dest_added", "more")->level, LP_WARN);
    lp_findings_free(f);
}

static void new_order_is_seen(void **unused)
{
    (void)unused;
    lp_findings *f = diff((variant){0}, (variant){.overlap = true});
    const lp_finding *x = finding_of(f, "new_order_dependence", "extra");
    assert_non_null(x);
    assert_int_equal(x->level, LP_DENY);
    assert_non_null(finding_of(f, "map_changed", "layers.*.norm"));
    lp_findings_free(f);
    /* the other one wins */
    f = diff((variant){.overlap = true}, (variant){.overlap_reversed = true});
    assert_int_equal(lp_findings_count(f), 2);
    expect_text(finding_of(f, "map_changed", "extra"),
                "number 2 of the names that write the same bytes of 'extra', was 1");
    lp_findings_free(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_traces_end_at_once),
        cmocka_unit_test(a_gate_up_swap_is_seen),
        cmocka_unit_test(a_changed_derive_constant_is_seen),
        cmocka_unit_test(a_changed_tolerance_is_seen),
        cmocka_unit_test(a_cast_in_place_of_a_copy_is_seen),
        cmocka_unit_test(a_copy_in_place_of_a_replicate_reads_more),
        cmocka_unit_test(shapes_layouts_and_places_are_seen),
        cmocka_unit_test(copies_that_became_refusals_are_seen),
        cmocka_unit_test(a_name_that_was_not_loaded_may_be_refused),
        cmocka_unit_test(destinations_come_and_go),
        cmocka_unit_test(new_order_is_seen),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
