/* SPDX-License-Identifier: Apache-2.0 */
/* Rows chosen by number: what they write, what they speak of, and what check tells when only they count. */
#include "failing_memory.h"
#include "findings_testing.h"

#include "traces/row_choice.h"

/* Two ranks over the names a to d: rows 0 to 2 are records, row 3 is a derive, row 4 a refusal, as `dump` counts. */
static const char two_ranks[] = "loadplan-trace 1000\nlayout pp=1 dp=1 tp=2 ep=0\n"
                                "name \"a\" F32 [2]\nname \"b\" F32 [2]\nname \"c\" F32 [2]\nname \"d\" F32 [2]\n"
                                "scope pp=0 dp=0 tp=0\n"
                                "dest \"p\" F32 [4] bytes=16 group=\"root\"\n"
                                "dest \"q\" F32 [1] bytes=4 group=\"root\"\n"
                                "dest \"r\" F32 [2] bytes=8 group=\"root\"\n"
                                "copy \"a\" -> \"p\" src=0 dst=0 map=8\n"
                                "copy \"b\" -> \"p\" src=0 dst=8 map=4\n"
                                "fill begin -> \"p\" value=0x0 dst=12 map=0>1|4\n"
                                "derive \"q\" map=4 inputs=(name \"c\" F32 2 8) nodes=(input F32 2 0,0,0 0x0; "
                                "max F32 1 0,0,0 0x0)\n"
                                "refuse \"d\" -> \"r\" op=\"item\" reason=\"reads a value on the host\"\n"
                                "scope pp=0 dp=0 tp=1\n"
                                "dest \"s\" F32 [2] bytes=8 group=\"root\"\n"
                                "copy \"b\" -> \"s\" src=0 dst=0 map=8\n"
                                "END names=4 scopes=2 records=4 derives=1 refusals=1\n";

static lp_trace *trace(void)
{
    lp_trace *t;
    assert_ok(lp_trace_undump(&t, two_ranks, sizeof two_ranks - 1, NULL, ERR));
    return t;
}

static void rows_write_destinations(void **unused)
{
    (void)unused;
    static const struct {
        const char *rows;
        bool dest[3];
    } cases[] = {
        {"0", {true, false, false}},
        {"1-2", {true, false, false}},
        {"3", {false, true, false}},
        {"4", {false, false, true}},
        {"5-100", {false, false, false}},
        {"2-4/2", {true, false, true}},
        {"0-9999999999999/3", {true, true, false}},
    };
    lp_trace *t = trace();
    const lp_rows *rows;
    assert_ok(lp_trace_rows(t, 0, &rows, ERR));
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        lp_number_set set;
        bool dest[3] = {false, false, false};
        assert_ok(lp_number_set_parse(&set, cases[i].rows, NULL, ERR));
        lp_chosen_destinations(rows, &set, dest);
        for (int d = 0; d < 3; d++)
            if (dest[d] != cases[i].dest[d])
                fail_msg("rows %s and destination %d", cases[i].rows, d);
        lp_number_set_free(&set);
    }
    lp_trace_close(t);
}

static void rows_speak_of_tensors(void **unused)
{
    (void)unused;
    static const struct {
        const char *rows, *names; /* of both ranks, by first letters */
    } cases[] = {{"0", "abps"}, {"1", "bp"}, {"2", "p"}, {"3", "cq"}, {"4", "dr"}, {"7", ""}, {"0-4", "abcdpqrs"}};
    lp_trace *t = trace();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        lp_number_set set;
        lp_strings names;
        assert_ok(lp_number_set_parse(&set, cases[i].rows, NULL, ERR));
        lp_strings_init(&names, NULL);
        assert_ok(lp_chosen_tensors(&names, t, &set, ERR));
        for (char c = 'a'; c <= 's'; c++)
            if ((lp_strings_find(&names, &c, 1) >= 0) != (strchr(cases[i].names, c) != NULL))
                fail_msg("rows %s and tensor %c", cases[i].rows, c);
        lp_strings_free(&names);
        lp_number_set_free(&set);
    }
    lp_trace_close(t);
}

static void memory_may_end(void **unused)
{
    (void)unused;
    lp_trace *t = trace();
    lp_number_set set;
    lp_status status = LP_E_MEMORY;
    assert_ok(lp_number_set_parse(&set, "0-4", NULL, ERR));
    for (int64_t n = 1; status != LP_OK; n++) {
        failing_alloc memory = {.fail_at = n};
        const lp_alloc table = {.size = sizeof table, .context = &memory, .resize = failing_resize, .exact = true};
        lp_strings names;
        lp_strings_init(&names, &table);
        status = lp_chosen_tensors(&names, t, &set, NULL);
        assert_int_equal(status, memory.calls < n ? LP_OK : LP_E_MEMORY);
        lp_strings_free(&names);
        assert_int_equal(memory.live, 0);
    }
    lp_number_set_free(&set);
    lp_trace_close(t);
}

static void only_they_are_told_of(void **unused)
{
    (void)unused;
    lp_trace *t = trace();
    lp_number_set set;
    lp_findings *f;
    assert_ok(lp_number_set_parse(&set, "4", NULL, ERR));
    assert_ok(lp_check_only(&f, t, NULL, &(lp_tensor_choice){.rows = &set}, ERR));
    expect(f, 1, "non_view_op", "d");
    lp_findings_free(f);
    assert_ok(lp_check_only(&f, t, NULL, &(lp_tensor_choice){.rows = &set, .glob = "p"}, ERR));
    assert_int_equal(lp_findings_count(f), 0);
    assert_string_equal(lp_findings_summary(f), "nothing to tell of what the chosen rows speak of");
    lp_findings_free(f);
    assert_ok(lp_diff_only(&f, t, t, &(lp_tensor_choice){.rows = &set}, ERR));
    assert_int_equal(lp_findings_count(f), 0);
    lp_findings_free(f);
    lp_number_set_free(&set);
    lp_trace_close(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_write_destinations),
        cmocka_unit_test(rows_speak_of_tensors),
        cmocka_unit_test(memory_may_end),
        cmocka_unit_test(only_they_are_told_of),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
