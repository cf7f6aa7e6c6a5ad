/* SPDX-License-Identifier: Apache-2.0 */
/* What check tells of refusals, derives, unused names and another checkpoint, and the table of its rules. */
#include "check_testing.h"

/* The region of a refusal is the engine's to fill: no hole, but a warning with its place. */
static void refusals_are_fallbacks_not_holes(void **unused)
{
    (void)unused;
    lp_trace *t = small_trace(3, 16, NULL);
    const uint32_t d = add_dest(t, "scales", 32), whole = add_dest(t, "whole", 8);
    const lp_map *region = fill_map(16, 16, 1, 0);
    add_copy(t, "n0", d, 0, 0, 16);
    add_refusal(t, "n1", d, region, place_at(t, "model_loader/experts.py", 412, 0));
    add_refusal(t, "n2", whole, NULL, LP_NONE);
    lp_map_free(region, NULL);
    lp_findings *f = check(t);
    const lp_finding *x = expect(f, 2, "non_view_op", "n1");
    assert_int_equal(x->level, LP_WARN);
    assert_string_equal(x->file, "model_loader/experts.py");
    assert_int_equal(x->line, 412);
    expect_text(x, "aten.max (over a CPU copy) at model_loader/experts.py:412");
    assert_string_equal(x->hint, "write each value into its own slot and let a derive take the maximum");
    end(t, f);
}

static void provenance_tells_casts_and_temporaries(void **unused)
{
    (void)unused;
    lp_trace *t = small_trace(2, 16, NULL);
    const uint32_t d = add_dest(t, "w", 32);
    add_map(t, "n0", d, byte_map(0, 0, 16, 1, 0, 0), place_at(t, "l.py", 3, LP_PROV_MATERIALISES));
    add_map(t, "n1", d, byte_map(0, 16, 16, 1, 0, 0), place_at(t, "l.py", 9, LP_PROV_IMPLICIT_CAST));
    lp_findings *f = check(t);
    const lp_finding *x = expect(f, 2, "materialises", "n0");
    assert_string_equal(x->file, "l.py");
    assert_int_equal(x->line, 3);
    assert_int_equal(expect(f, 2, "implicit_cast", "n1")->line, 9);
    assert_int_equal(lp_findings_worst(f), LP_WARN);
    end(t, f);
}

static void derives_that_wait_for_each_other_are_a_cycle(void **unused)
{
    (void)unused;
    lp_trace *t = small_trace(1, 16, NULL);
    const uint32_t a = add_dest(t, "a", 4), b = add_dest(t, "b", 4), c = add_dest(t, "c", 4), w = add_dest(t, "w", 16);
    add_copy(t, "n0", w, 0, 0, 16);
    add_max_derive(t, a, false, b, 1, 1.0f);
    add_max_derive(t, b, false, c, 1, 1.0f);
    add_max_derive(t, c, false, a, 1, 1.0f);
    lp_findings *f = check(t);
    for (int i = 0; i < 3; i++)
        assert_non_null(finding_of(f, "derive_cycle", ((const char *[]){"a", "b", "c"})[i]));
    assert_int_equal(lp_findings_count(f), 3);
    end(t, f);

    t = small_trace(1, 16, NULL); /* a chain is fine */
    const uint32_t p = add_dest(t, "p", 4), q = add_dest(t, "q", 4), s = add_dest(t, "s", 16);
    add_copy(t, "n0", s, 0, 0, 16);
    add_max_derive(t, p, false, s, 4, 1.0f);
    add_max_derive(t, q, false, p, 1, 1.0f);
    f = check(t);
    assert_int_equal(lp_findings_count(f), 0);
    end(t, f);
}

static void a_derive_of_its_own_output_is_not_idempotent(void **unused)
{
    (void)unused;
    lp_trace *t = small_trace(1, 16, NULL);
    const uint32_t x = add_dest(t, "x", 4);
    add_max_derive(t, x, false, x, 1, 1.0f);
    add_copy(t, "n0", add_dest(t, "w", 16), 0, 0, 16);
    lp_findings *f = check(t);
    expect_text(expect(f, 1, "derive_not_idempotent", "x"), "its own output");
    end(t, f);
}

/* copy x; y = max(x); x = max(z): a reload may read either x. */
static void reading_what_is_copied_and_derived_is_not_idempotent(void **unused)
{
    (void)unused;
    lp_trace *t = small_trace(2, 16, NULL);
    const uint32_t x = add_dest(t, "x", 4), y = add_dest(t, "y", 4), z = add_dest(t, "z", 16);
    add_copy(t, "n0", x, 0, 0, 4);
    add_copy(t, "n1", z, 0, 0, 16);
    add_max_derive(t, y, false, x, 1, 1.0f);
    add_max_derive(t, x, false, z, 4, 1.0f);
    lp_findings *f = check(t);
    expect_text(expect(f, 2, "derive_not_idempotent", "y"), "copied first");
    assert_non_null(finding_of(f, "dest_overlap", "x"));
    end(t, f);
}

static void families_that_nobody_took_up_are_told(void **unused)
{
    (void)unused;
    lp_checkpoint *c;
    lp_trace *t;
    assert_ok(lp_checkpoint_new(&c, NULL, ERR));
    const int64_t shape[] = {4};
    static const char *const names[] = {"layers.0.w",           "layers.1.w",           "layers.0.input_scale",
                                        "layers.1.input_scale", "layers.0.rotary.freq", "layers.1.rotary.freq"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        assert_ok(lp_checkpoint_add(
            c,
            &(lp_checkpoint_tensor){
                .name = names[i], .dtype = LP_U8, .ndim = 1, .shape = shape, .file = -1, .file_off = -1},
            ERR));
    assert_ok(lp_checkpoint_seal(c, ERR));
    const lp_trace_header header = {.loader = "test", .configuration = "decline=layers.*.rotary.freq\n"};
    assert_ok(lp_trace_new(&t, c, &header, NULL, ERR));
    assert_ok(lp_trace_begin_scope(t, &(lp_scope){0}, ERR));
    add_copy(t, "layers.1.w", add_dest(t, "w", 4), 0, 0, 4); /* layers.0.w is declined with it */
    lp_findings *f = check(t);
    const lp_finding *x = expect(f, 1, "checkpoint_name_unused", "layers.*.input_scale");
    assert_int_equal(x->members, 2);
    assert_int_equal(x->rank, -1);
    assert_int_equal(x->level, LP_WARN);
    lp_checkpoint_close(c);
    end(t, f);
}

static void declined_families_stand_in_the_configuration(void **unused)
{
    (void)unused;
    lp_checkpoint *c = small_checkpoint(2, 8);
    lp_trace *t;
    const lp_trace_header header = {.loader = "test", .configuration = "config.a=1\ntp=2"};
    assert_ok(lp_trace_new(&t, c, &header, NULL, ERR));
    lp_checkpoint_close(c);
    assert_ok(lp_trace_begin_scope(t, &(lp_scope){0}, ERR));
    add_copy(t, "n0", add_dest(t, "w", 8), 0, 0, 8);
    static const char *const names[] = {"n1", "z.3.q", "z.12.q", "a", "n1", "n\n1"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        assert_ok(lp_trace_decline(t, names[i], ERR));
    assert_string_equal(lp_trace_header_of(t)->configuration, "config.a=1\ndecline=a\ndecline=n1\ndecline=z.*.q\ntp=2");
    lp_findings *f = check(t);
    assert_int_equal(lp_findings_count(f), 0);
    lp_error err;
    assert_int_equal(lp_trace_decline(t, "b", &err), LP_E_MISUSE);
    end(t, f);

    t = small_trace(1, 8, NULL);
    assert_ok(lp_trace_decline(t, "b", ERR));
    assert_ok(lp_trace_decline(t, "c", ERR));
    assert_ok(lp_trace_decline(t, "a", ERR));
    assert_string_equal(lp_trace_header_of(t)->configuration, "decline=a\ndecline=b\ndecline=c\n");
    lp_trace_close(t);
}

static void another_checkpoint_may_lack_names_or_shapes(void **unused)
{
    (void)unused;
    lp_trace *t = small_trace(3, 16, NULL);
    lp_checkpoint *other;
    assert_ok(lp_checkpoint_new(&other, NULL, ERR));
    const int64_t same[] = {16}, less[] = {8};
    assert_ok(lp_checkpoint_add(
        other,
        &(lp_checkpoint_tensor){.name = "n0", .dtype = LP_U8, .ndim = 1, .shape = same, .file = -1, .file_off = -1},
        ERR));
    assert_ok(lp_checkpoint_add(
        other,
        &(lp_checkpoint_tensor){.name = "n1", .dtype = LP_BF16, .ndim = 1, .shape = less, .file = -1, .file_off = -1},
        ERR));
    assert_ok(lp_checkpoint_seal(other, ERR));
    for (int i = 0; i < 3; i++) {
        char name[16];
        snprintf(name, sizeof name, "n%d", i);
        add_copy(t, name, add_dest(t, name, 16), 0, 0, 16);
    }
    lp_findings *f;
    assert_ok(lp_trace_seal(t, ERR));
    assert_ok(lp_check_against(&f, t, other, ERR));
    expect_text(expect(f, 2, "shape_mismatch", "n1"), "'n1' is BF16 [8], was U8 [16]");
    assert_non_null(finding_of(f, "name_not_in_checkpoint", "n2"));
    lp_checkpoint_close(other);
    end(t, f);
}

static void what_cannot_be_proven_is_denied(void **unused)
{
    (void)unused;
    const int64_t bytes = INT64_C(1) << 34, steps = INT64_C(1) << 30;
    lp_trace *t = small_trace(2, bytes, NULL);
    const uint32_t d = add_dest(t, "w", bytes);
    add_map(t, "n0", d, byte_map(0, 0, 1, steps, 1, 3), LP_NONE);
    add_map(t, "n1", d, byte_map(0, 1, 1, steps, 1, 5), LP_NONE);
    lp_findings *f = check(t);
    assert_non_null(finding_of(f, "undecided", "w"));
    assert_int_equal(finding_of(f, "undecided", "w")->level, LP_DENY);
    end(t, f);
}

static void every_rule_has_an_id_and_a_sentence(void **unused)
{
    (void)unused;
    for (int i = 0; i < lp_rule_count(); i++) {
        const lp_rule *r = lp_rule_at(i);
        assert_true(strlen(r->sentence) > 20);
        assert_ptr_equal(lp_rule_find(r->id), r);
        for (const char *p = r->id; *p != '\0'; p++)
            assert_true((*p >= 'a' && *p <= 'z') || *p == '_');
    }
    assert_null(lp_rule_at(lp_rule_count()));
    assert_null(lp_rule_find("no_such_rule"));
}

/* The tables of docs/check.md and docs/diff.md are the table of the code. */
static void every_rule_is_documented(void **unused)
{
    (void)unused;
    static const char *const levels[] = {"allow", "warn", "deny"};
    char *text[2];
    int64_t bytes;
    assert_ok(lp_read_file(NULL, TEST_CASES "/../../docs/check.md", 1 << 20, &text[0], &bytes, ERR));
    assert_ok(lp_read_file(NULL, TEST_CASES "/../../docs/diff.md", 1 << 20, &text[1], &bytes, ERR));
    for (int i = 0; i < lp_rule_count(); i++) {
        const lp_rule *r = lp_rule_at(i);
        char row[512];
        snprintf(row, sizeof row, "\n| `%s` | %s | %s |\n", r->id, levels[r->level], r->sentence);
        if (strstr(text[r->of_diff], row) == NULL)
            fail_msg("not documented:%s", row);
    }
    lp_release(NULL, text[0]);
    lp_release(NULL, text[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refusals_are_fallbacks_not_holes),
        cmocka_unit_test(provenance_tells_casts_and_temporaries),
        cmocka_unit_test(derives_that_wait_for_each_other_are_a_cycle),
        cmocka_unit_test(a_derive_of_its_own_output_is_not_idempotent),
        cmocka_unit_test(reading_what_is_copied_and_derived_is_not_idempotent),
        cmocka_unit_test(families_that_nobody_took_up_are_told),
        cmocka_unit_test(declined_families_stand_in_the_configuration),
        cmocka_unit_test(another_checkpoint_may_lack_names_or_shapes),
        cmocka_unit_test(what_cannot_be_proven_is_denied),
        cmocka_unit_test(every_rule_has_an_id_and_a_sentence),
        cmocka_unit_test(every_rule_is_documented),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
