/* SPDX-License-Identifier: Apache-2.0 */
/* Globs, suppression files and settings: what they take, what they refuse by line, and what is silenced. */
#include "findings_testing.h"
#include "growth_testing.h"
#include "traces/glob.h"
#include "traces/settings.h"
#include "traces/suppress.h"

/* ---- globs ---- */

/* The definition, tried in every way. */
static bool slow_match(const char *glob, const char *text)
{
    if (*glob == '\0')
        return *text == '\0';
    if (*glob == '*')
        return slow_match(glob + 1, text) || (*text != '\0' && slow_match(glob, text + 1));
    const bool is_escaped = *glob == '\\' && glob[1] != '\0';
    if (*text == '\0' || !((*glob == '?' && !is_escaped) || glob[is_escaped] == *text))
        return false;
    return slow_match(glob + 1 + is_escaped, text + 1);
}

static void globs_match_as_defined(void **unused)
{
    (void)unused;
    static const struct {
        const char *glob, *text;
        bool matches;
    } cases[] = {
        {"", "", true},
        {"", "a", false},
        {"*", "", true},
        {"layers.*.up", "layers.3.experts.12.up", true},
        {"layers.*.up", "layers.*.up", true}, /* a family is matched by itself */
        {"layers.?.up", "layers.12.up", false},
        {"w[1]", "w[1]", true}, /* brackets are names' */
        {"a\\*b", "a*b", true},
        {"a\\*b", "axb", false},
        {"*.weight", "weight", false},
        {"a\\", "a\\", true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        if (lp_glob_match(cases[i].glob, cases[i].text) != cases[i].matches)
            fail_msg("'%s' and '%s'", cases[i].glob, cases[i].text);
    unsigned seed = 20261130;
    static const char glob_letters[] = "ab*?\\*", text_letters[] = "ab*\\";
    for (int round = 0; round < 200000; round++) {
        char glob[9], text[9];
        const int n = rand_r(&seed) % 8, m = rand_r(&seed) % 8;
        for (int i = 0; i < n; i++)
            glob[i] = glob_letters[rand_r(&seed) % 6];
        for (int i = 0; i < m; i++)
            text[i] = text_letters[rand_r(&seed) % 4];
        glob[n] = text[m] = '\0';
        if (lp_glob_match(glob, text) != slow_match(glob, text))
            fail_msg("round %d: '%s' and '%s'", round, glob, text);
    }
}

static void a_glob_of_stars_is_no_attack(void **unused)
{
    (void)unused;
    enum { STARS = 2000, LETTERS = 4000 };
    static char glob[2 * STARS + 2], text[LETTERS + 1];
    for (int i = 0; i < STARS; i++)
        memcpy(glob + 2 * i, "*a", 2);
    glob[2 * STARS] = 'b';
    memset(text, 'a', LETTERS);
    assert_false(lp_glob_match(glob, text)); /* would not end if each star were tried again */
}

/* ---- suppression files ---- */

static void expect_refusal(const char *text, const char *message)
{
    lp_suppressions s;
    lp_error err = {0};
    lp_suppressions_init(&s, NULL);
    assert_int_equal(lp_suppressions_parse(&s, text, (int64_t)strlen(text), "f", &err), LP_E_FORMAT);
    assert_string_equal(err.text, message);
    lp_suppressions_free(&s);
}

static void reasons_are_mandatory(void **unused)
{
    (void)unused;
    expect_refusal("\nmap_changed layers.*\n", "'f' line 2: the reason is missing: say why this is accepted");
    expect_refusal("map_changed * \t", "'f' line 1: the reason is missing: say why this is accepted");
    expect_refusal("map_changed * TODO", "'f' line 1: the reason is still to be written in place of 'TODO'");
    expect_refusal("map_changed",
                   "'f' line 1: RULE GLOB REASON is wanted, and the glob is missing or its quote does not end");
    expect_refusal("map_change * x", "'f' line 1: there is no rule 'map_change'");
    expect_refusal("map_changed \"a b x",
                   "'f' line 1: RULE GLOB REASON is wanted, and the glob is missing or its quote does not end");
    expect_refusal("\"map_changed * x", "'f' line 1: a quote does not end");
    expect_refusal("map_changed * \xff", "'f' line 1: this is not text in UTF-8");
}

static void there_is_a_limit(void **unused)
{
    (void)unused;
    lp_text text;
    lp_suppressions s;
    lp_error err = {0};
    lp_text_init(&text, NULL);
    for (int i = 0; i <= LP_SUPPRESSIONS_MAX; i++)
        lp_suppression_text(&text, "map_changed", i % 2 == 0 ? "two words" : "a", "because");
    lp_suppressions_init(&s, NULL);
    assert_int_equal(lp_suppressions_parse(&s, text.data, text.bytes, "f", &err), LP_E_LIMIT);
    assert_int_equal(s.count, LP_SUPPRESSIONS_MAX);
    assert_string_equal(s.item[0].glob, "two words");
    lp_suppressions_free(&s);
    lp_text_free(&text);
}

static lp_suppressions parse(const char *text)
{
    lp_suppressions s;
    lp_suppressions_init(&s, NULL);
    assert_ok(lp_suppressions_parse(&s, text, (int64_t)strlen(text), "f", ERR));
    return s;
}

/* Three destinations that nothing writes: one family of two, and one by itself. */
static lp_findings *holes(lp_trace **t)
{
    lp_findings *f;
    *t = small_trace(1, 64, NULL);
    add_dest(*t, "layers.0.w", 8);
    add_dest(*t, "layers.1.w", 8);
    add_copy(*t, "n0", add_dest(*t, "head", 16), 0, 0, 8);
    assert_ok(lp_trace_seal(*t, ERR));
    assert_ok(lp_check(&f, *t, ERR));
    assert_int_equal(lp_findings_count(f), 2);
    return f;
}

static void a_family_is_silenced_as_a_whole_or_not_at_all(void **unused)
{
    (void)unused;
    lp_trace *t;
    lp_findings *f = holes(&t);
    lp_suppressions part = parse("dest_uncovered layers.1.* only one of two\nmap_changed * another rule\n");
    assert_ok(lp_findings_suppress(f, &part, ERR));
    assert_null(finding_of(f, "dest_uncovered", "layers.*.w")->suppressed);
    assert_true(part.item[0].is_used); /* it matched, though it silenced nothing */
    assert_false(part.item[1].is_used);
    assert_string_equal(lp_findings_summary(f), "2 denied, 0 warnings: dest_uncovered in head (1 tensor), ...");

    lp_suppressions witness = parse("dest_uncovered layers.0.* the other of two\n");
    assert_ok(lp_findings_suppress(f, &witness, ERR));
    assert_null(finding_of(f, "dest_uncovered", "layers.*.w")->suppressed);
    assert_true(witness.item[0].is_used);

    lp_suppressions both = parse("dest_uncovered layers.1.* the first\ndest_uncovered layers.0.* another\n");
    assert_ok(lp_findings_suppress(f, &both, ERR));
    assert_string_equal(finding_of(f, "dest_uncovered", "layers.*.w")->suppressed, "another");
    assert_int_equal(lp_findings_worst(f), LP_DENY);
    assert_string_equal(lp_findings_at(f, 1)->family, "layers.*.w"); /* last */
    assert_string_equal(lp_findings_summary(f),
                        "1 denied, 0 warnings: dest_uncovered in head (1 tensor); 1 finding suppressed");

    lp_suppressions all = parse("dest_uncovered * all of it\n");
    assert_ok(lp_findings_suppress(f, &all, ERR));
    assert_int_equal(lp_findings_worst(f), LP_ALLOW);
    assert_string_equal(lp_findings_summary(f), "nothing denied, nothing to warn of; 2 findings suppressed");
    lp_suppressions_free(&part);
    lp_suppressions_free(&witness);
    lp_suppressions_free(&both);
    lp_suppressions_free(&all);
    lp_findings_free(f);
    lp_trace_close(t);
}

/* Ranks say the same of the same tensors, the witness among them. */
static void a_tensor_counts_once_in_a_finding(void **unused)
{
    (void)unused;
    static const char *const tensors[] = {"a.0", "a.1", "a.0", "a.1", "a.2", "a.0", "a.2"};
    static const int64_t members[] = {1, 2, 2, 2, 3, 3, 3};
    lp_findings *f;
    assert_ok(lp_findings_new(&f, lp_alloc_default(), ERR));
    for (int i = 0; i < 7; i++) {
        bool is_first;
        const lp_note note = {.rule = LP_RULE_DEST_VANISHED, .tensor = tensors[i], .rank = i};
        assert_ok(lp_findings_note(f, &note, &is_first, ERR));
        assert_int_equal(is_first, i == 0);
        assert_int_equal(lp_findings_count(f), 1);
        assert_int_equal(lp_findings_at(f, 0)->members, members[i]);
    }
    lp_findings_free(f);
}

/* Processor time of telling suppressed findings apart from as many that stay. */
static double seconds_to_silence_half(int n)
{
    lp_findings *f;
    lp_suppressions half = parse("dest_vanished gone-* as was agreed\n");
    assert_ok(lp_findings_new(&f, lp_alloc_default(), ERR));
    for (int i = 0; i < n; i++) {
        bool is_first;
        char name[32];
        snprintf(name, sizeof name, "%s-%d", i % 2 == 0 ? "gone" : "lost", i);
        const lp_note note = {.rule = LP_RULE_DEST_VANISHED, .tensor = name, .rank = -1};
        assert_ok(lp_findings_note(f, &note, &is_first, ERR));
    }
    assert_ok(lp_findings_seal(f, &(lp_tally){.of_diff = true, .changed_scopes = 1}, ERR));
    const double started = processor_seconds();
    assert_ok(lp_findings_suppress(f, &half, ERR));
    const double seconds = processor_seconds() - started;
    assert_null(lp_findings_at(f, n / 2 - 1)->suppressed);
    assert_string_equal(lp_findings_at(f, n / 2)->suppressed, "as was agreed");
    lp_findings_free(f);
    lp_suppressions_free(&half);
    return seconds;
}

static void many_may_be_silenced(void **unused)
{
    (void)unused;
    assert_grows_linearly(seconds_to_silence_half, 4000);
}

static void fingerprints_know_rule_witness_and_map(void **unused)
{
    (void)unused;
    lp_trace *t;
    lp_findings *f = holes(&t), *again;
    const lp_finding *w = finding_of(f, "dest_uncovered", "layers.*.w"),
                     *head = finding_of(f, "dest_uncovered", "head");
    assert_int_equal(strlen(w->fingerprint), 64);
    assert_string_not_equal(w->fingerprint, head->fingerprint);
    assert_ok(lp_check(&again, t, ERR));
    assert_string_equal(finding_of(again, "dest_uncovered", "head")->fingerprint, head->fingerprint);
    lp_findings_free(again);
    lp_findings_free(f);
    lp_trace_close(t);
}

/* The findings of a trace whose memory fails while they are silenced. */
static void silencing_may_run_out_of_memory(void **unused)
{
    (void)unused;
    failing_alloc faults = {0};
    const lp_alloc alloc = {.size = sizeof alloc, .context = &faults, .resize = failing_resize};
    lp_trace *t = small_trace(1, 64, &(lp_platform){.alloc = &alloc});
    add_dest(t, "layers.0.w", 8);
    assert_ok(lp_trace_seal(t, ERR));
    lp_suppressions all = parse("dest_uncovered * all of it\n");
    for (int64_t n = 1, done = 0; !done; n++) {
        lp_findings *f;
        lp_error err = {0};
        assert_ok(lp_check(&f, t, ERR));
        faults.calls = 0;
        faults.fail_at = n;
        const lp_status status = lp_findings_suppress(f, &all, &err);
        faults.fail_at = 0;
        assert_true(status == LP_OK || err.code == LP_E_MEMORY);
        done = status == LP_OK;
        assert_true(!done || n > 2);
        lp_findings_free(f);
    }
    lp_suppressions_free(&all);
    lp_trace_close(t);
    assert_int_equal(faults.live, 0);
}

static void every_allocation_may_fail(void **unused)
{
    (void)unused;
    static const char text[] = "dest_uncovered \"layers.*\" a\nmap_changed b c\n", conf[] = "a = 1\nb = 2\n";
    failing_alloc faults = {0};
    const lp_alloc alloc = {.size = sizeof alloc, .context = &faults, .resize = failing_resize};
    int rounds = 0;
    for (lp_status status = LP_E_MEMORY; status == LP_E_MEMORY; rounds++) {
        lp_suppressions s;
        lp_error err = {0};
        faults = (failing_alloc){.fail_at = rounds + 1};
        lp_suppressions_init(&s, &alloc);
        status = lp_suppressions_parse(&s, text, sizeof text - 1, "f", &err);
        assert_true(status == LP_OK || err.code == LP_E_MEMORY);
        lp_suppressions_free(&s);
        assert_int_equal(faults.live, 0);
    }
    assert_true(rounds > 2);
    rounds = 0;
    for (lp_status status = LP_E_MEMORY; status == LP_E_MEMORY; rounds++) {
        lp_settings *s;
        lp_error err = {0};
        faults = (failing_alloc){.fail_at = rounds + 1};
        status = lp_settings_parse(&s, conf, sizeof conf - 1, "f", &alloc, &err);
        lp_settings_free(s);
        assert_int_equal(faults.live, 0);
    }
    assert_true(rounds > 2);
}

/* ---- settings ---- */

static void settings_are_read_by_line(void **unused)
{
    (void)unused;
    static const char good[] = "# comment\n\n fail-on =  warn \r\nrule.x=a = b\nempty =";
    lp_settings *s;
    assert_ok(lp_settings_parse(&s, good, sizeof good - 1, "f", NULL, ERR));
    assert_int_equal(s->count, 3);
    assert_string_equal(lp_settings_find(s, "fail-on"), "warn");
    assert_string_equal(lp_settings_find(s, "rule.x"), "a = b");
    assert_string_equal(lp_settings_find(s, "empty"), "");
    assert_int_equal(s->item[1].line, 4);
    assert_null(lp_settings_find(s, "fail"));
    assert_null(lp_settings_find(NULL, "fail"));
    lp_settings_free(s);
    static const struct {
        const char *text, *message;
    } bad[] = {
        {"a = 1\n\na = 2", "'f' line 3: 'a' is set twice"},    {"a b = 1", "'f' line 1: a line is 'key = value'"},
        {"= 1", "'f' line 1: a line is 'key = value'"},        {"a", "'f' line 1: a line is 'key = value'"},
        {"a = \xc0", "'f' line 1: this is not text in UTF-8"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        lp_error err = {0};
        assert_int_equal(lp_settings_parse(&s, bad[i].text, (int64_t)strlen(bad[i].text), "f", NULL, &err),
                         LP_E_FORMAT);
        assert_string_equal(err.text, bad[i].message);
        assert_null(s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(globs_match_as_defined),
        cmocka_unit_test(a_glob_of_stars_is_no_attack),
        cmocka_unit_test(reasons_are_mandatory),
        cmocka_unit_test(there_is_a_limit),
        cmocka_unit_test(a_family_is_silenced_as_a_whole_or_not_at_all),
        cmocka_unit_test(a_tensor_counts_once_in_a_finding),
        cmocka_unit_test(many_may_be_silenced),
        cmocka_unit_test(fingerprints_know_rule_witness_and_map),
        cmocka_unit_test(silencing_may_run_out_of_memory),
        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(settings_are_read_by_line),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
