/* SPDX-License-Identifier: Apache-2.0 */
/* What diff tells of fills, staging, renamed families and ranks, in which order, and that other forms of the same bytes
 * are no change. */
#include "diff_testing.h"

static void fills_and_staging_are_seen(void **unused)
{
    (void)unused;
    lp_findings *f = diff((variant){0}, (variant){.pad = true});
    const lp_finding *x = expect(f, 1, "fill_added", "extra");
    assert_int_equal(x->level, LP_ALLOW);
    assert_int_equal(x->byte_lo, 16);
    assert_int_equal(x->byte_hi, 24);
    lp_findings_free(f);
    f = diff((variant){.pad = true}, (variant){0});
    expect_text(expect(f, 1, "map_changed", "extra"), "no longer writes bytes [16, 24)");
    lp_findings_free(f);
    f = diff((variant){0}, (variant){.stage = true});
    assert_non_null(finding_of(f, "derive_changed", "layers.*.l2_scale"));
    const lp_finding *staged = finding_of(f, "more_bytes_staged", "layers.*.experts.*.w2_input_scale");
    assert_non_null(staged);
    assert_int_equal(staged->level, LP_WARN);
    assert_int_equal(staged->members, LAYERS);
    expect_text(staged, "4 more bytes of 'layers.0.experts.0.w2_input_scale' are staged");
    lp_findings_free(f);
}

static void renamed_families_are_not_changes(void **unused)
{
    (void)unused;
    lp_findings *f = diff((variant){0}, (variant){.rename_dests = true});
    assert_int_equal(lp_findings_worst(f), LP_ALLOW);
    const lp_finding *x = finding_of(f, "family_renamed", "model.layers.*.w13");
    assert_non_null(x);
    assert_int_equal(x->members, LAYERS);
    expect_text(x, "'layers.0.w13' is now called 'model.layers.0.w13'");
    lp_findings_free(f);

    f = diff((variant){0}, (variant){.prefix = "language_model."});
    assert_int_equal(lp_findings_worst(f), LP_ALLOW);
    assert_non_null(finding_of(f, "family_renamed", "language_model.layers.*.experts.*.gate"));
    lp_findings_free(f);

    /* renamed and changed: the change is still seen */
    f = diff((variant){0}, (variant){.rename_dests = true, .constant = 2.0f});
    assert_non_null(finding_of(f, "derive_changed", "model.layers.*.l2_scale"));
    lp_findings_free(f);
}

static void scopes_of_one_side_are_told(void **unused)
{
    (void)unused;
    lp_findings *f = diff((variant){.ranks = 2}, (variant){.ranks = 1});
    const lp_finding *x = finding_of(f, "dest_vanished", "layers.*.w13");
    assert_non_null(x);
    assert_int_equal(x->rank, 1);
    expect_text(x, "rank 1 is no longer in the trace");
    lp_findings_free(f);
    f = diff((variant){.ranks = 1}, (variant){.ranks = 2});
    x = finding_of(f, "dest_added", "layers.*.w13");
    assert_non_null(x);
    expect_text(x, "rank 1 is new in the trace");
    lp_findings_free(f);
}

static void findings_come_worst_first(void **unused)
{
    (void)unused;
    lp_findings *f = diff((variant){0}, (variant){.pad = true, .swap_gate_up = true, .more_extra = true});
    lp_level last = LP_DENY;
    for (int64_t i = 0; i < lp_findings_count(f); i++) {
        assert_true(lp_findings_at(f, i)->level <= last);
        last = lp_findings_at(f, i)->level;
    }
    assert_int_equal(last, LP_ALLOW);
    /* other levels sort and sum up again */
    assert_ok(lp_findings_set_level(f, lp_rule_find("map_changed"), LP_ALLOW, ERR));
    assert_int_equal(lp_findings_worst(f), LP_WARN);
    assert_string_equal(lp_findings_at(f, 0)->rule->id, "dest_added");
    lp_findings_free(f);
}

/* ---- other forms of the same bytes ---- */

static lp_record record_of(const lp_map *map, int64_t src_off, int64_t dst_off)
{
    return (lp_record){.kind = LP_KIND_COPY, .map = map, .src_off = src_off, .dst_off = dst_off};
}

/* Beyond the work bound of the canonical form two forms may mean the same: they are walked side by side. */
static void other_forms_of_the_same_bytes_are_equal(void **unused)
{
    (void)unused;
    const int64_t n = INT64_C(5) << 20;
    /* 4-byte runs every 8 bytes: once as one mode, once as pairs, and once with a last pair that reads elsewhere */
    const lp_mode one[] = {{.extent = n, .src_stride = 4, .dst_stride = 8}};
    const lp_mode pairs[] = {{.extent = n / 2, .src_stride = 8, .dst_stride = 16},
                             {.extent = 2, .src_stride = 4, .dst_stride = 8}};
    const lp_mode most[] = {{.extent = n / 2 - 1, .src_stride = 8, .dst_stride = 16},
                            {.extent = 2, .src_stride = 4, .dst_stride = 8}};
    const lp_box one_box[] = {{.run = 4, .rank = 1, .mode = one}}, pair_box[] = {{.run = 4, .rank = 2, .mode = pairs}};
    const lp_box odd_box[] = {{.run = 4, .rank = 2, .mode = most},
                              {.run = 4, .dst_off = (n - 2) * 8, .src_off = (n - 2) * 4, .rank = 0, .mode = most},
                              {.run = 4, .dst_off = (n - 1) * 8, .src_off = (n - 3) * 4, .rank = 0, .mode = most}};
    const lp_map base = {.src_elem = 1, .dst_elem = 1, .dst_bytes = 4 * n, .dst_hi = n * 8 - 4, .src_hi = n * 4};
    lp_pooled_map a = {.map = base}, b = {.map = base}, c = {.map = base};
    a.map.nbox = b.map.nbox = 1;
    a.map.box = one_box;
    b.map.box = pair_box;
    c.map.nbox = 3;
    c.map.box = odd_box;
    lp_differ d = {.runs_left = LP_DIFF_RUNS_MAX};
    bool same, known;
    const lp_record x = record_of(&a.map, 8, 16), y = record_of(&b.map, 8, 16), z = record_of(&c.map, 8, 16);
    assert_ok(lp_diff_same_bytes(&d, &x, &y, &same, &known, ERR));
    assert_true(same && known);
    assert_ok(lp_diff_same_bytes(&d, &x, &z, &same, &known, ERR));
    assert_true(!same && known);
    const lp_record moved = record_of(&b.map, 12, 16);
    assert_ok(lp_diff_same_bytes(&d, &x, &moved, &same, &known, ERR));
    assert_true(!same && known);
    d.runs_left = 1000; /* too large to be compared: never silently the same */
    assert_ok(lp_diff_same_bytes(&d, &x, &y, &same, &known, ERR));
    assert_true(!same && !known);
    lp_release(NULL, (void *)d.equal);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fills_and_staging_are_seen),
        cmocka_unit_test(renamed_families_are_not_changes),
        cmocka_unit_test(scopes_of_one_side_are_told),
        cmocka_unit_test(findings_come_worst_first),
        cmocka_unit_test(other_forms_of_the_same_bytes_are_equal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
