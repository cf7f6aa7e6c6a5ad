/* SPDX-License-Identifier: Apache-2.0 */
/* The ground that everything stands on: errors, and text for people. Memory: test_base_memory.c, files:
 * test_base_files.c. */
#include "tests/unit/checkpoint_files.h"

/* ---- errors ---- */

static void statuses_have_names_and_texts(void **state)
{
    (void)state;
    static const lp_status all[] = {
        LP_OK,          LP_E_ARGUMENT,   LP_E_MISUSE,   LP_E_UNSUPPORTED, LP_E_LIMIT,    LP_E_USAGE,
        LP_E_FORMAT,    LP_E_CORRUPT,    LP_E_VERSION,  LP_E_HOSTILE,     LP_E_IO,       LP_E_MEMORY,
        LP_E_DEVICE,    LP_E_PEER,       LP_E_EXISTS,   LP_E_STALE,       LP_E_MISMATCH, LP_E_UNKNOWN_NAME,
        LP_E_DUPLICATE, LP_E_INCOMPLETE, LP_E_POISONED, LP_E_REFUSED,     LP_E_VALUE,    LP_E_INTERNAL,
    };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        assert_string_not_equal(lp_status_name(all[i]), "LP_E_UNKNOWN");
        assert_string_not_equal(lp_strerror(all[i]), "unknown status");
        for (size_t k = 0; k < i; k++)
            assert_string_not_equal(lp_status_name(all[i]), lp_status_name(all[k]));
    }
    assert_string_equal(lp_status_name(LP_E_STALE), "LP_E_STALE");
    assert_string_equal(lp_status_name((lp_status)-1000), "LP_E_UNKNOWN");
    assert_string_equal(lp_strerror((lp_status)1), "unknown status");
    assert_int_equal(LP_E_STALE, -60); /* values are pinned */
    assert_int_equal(LP_E_INTERNAL, -90);
    char version[32];
    snprintf(version, sizeof version, "%d.%d.%d", LP_VERSION_MAJOR, LP_VERSION_MINOR, LP_VERSION_PATCH);
    assert_string_equal(lp_version(), version);
}

static void errors_are_sanitised_and_cut(void **state)
{
    (void)state;
    lp_error err;
    memset(&err, 'x', sizeof err);
    assert_int_equal(lp_fail(&err, LP_E_LIMIT, "bad '%s'", "a\x1b[31m\n"), LP_E_LIMIT);
    assert_int_equal(err.code, LP_E_LIMIT);
    assert_string_equal(err.text, "bad 'a\\x1b[31m\\x0a'");
    assert_string_equal(err.subject, "");
    assert_string_equal(err.hint, "");
    assert_int_equal(err.byte_off, -1);
    lp_hint(&err, "try '%s'", "\r");
    assert_string_equal(err.hint, "try '\\x0d'");
    assert_int_equal(lp_fail_at(&err, LP_E_CORRUPT, "f\t", 7, "x"), LP_E_CORRUPT);
    assert_string_equal(err.subject, "f\\x09");
    assert_int_equal(err.byte_off, 7);
    assert_string_equal(err.hint, ""); /* a hint belongs to its error */
    lp_fail_at(&err, LP_E_CORRUPT, "f", -5, "x");
    assert_int_equal(err.byte_off, -1);

    char large[4000];
    memset(large, 'n', sizeof large - 1);
    large[sizeof large - 1] = '\0';
    lp_fail_at(&err, LP_E_CORRUPT, large, 0, "%s", large);
    assert_int_equal(strlen(err.text), sizeof err.text - 1);
    assert_int_equal(strlen(err.subject), sizeof err.subject - 1);

    assert_int_equal(lp_fail_errno(&err, ENOENT, "open", "x"), LP_E_IO);
    assert_string_equal(err.text, "cannot open 'x': No such file or directory");
    assert_int_equal(lp_fail_errno(&err, -ENOENT, "open", "x"), LP_E_IO);
    assert_string_equal(err.text, "cannot open 'x': No such file or directory");
    assert_int_equal(lp_fail_errno(&err, ENOMEM, "open", "x"), LP_E_MEMORY);
    assert_string_equal(err.text, "out of memory");
    assert_int_equal(lp_fail(NULL, LP_E_IO, "x"), LP_E_IO);
    lp_hint(NULL, "x");
}

static void an_error_may_be_built_from_itself(void **state)
{
    (void)state;
    lp_error err;
    lp_fail_at(&err, LP_E_CORRUPT, "subject", 3, "inner");
    lp_fail_at(&err, LP_E_CORRUPT, err.subject, 4, "outer: %s", err.text);
    assert_string_equal(err.text, "outer: inner");
    assert_string_equal(err.subject, "subject");
}

/* ---- text ---- */

static void sanitising_escapes_what_harms_a_terminal(void **state)
{
    (void)state;
    static const struct {
        const char *in;
        size_t bytes;
        const char *out;
    } cases[] = {
        {"", 0, ""},
        {"model.layers.0", 14, "model.layers.0"},
        {"a\0b", 3, "a\\x00b"},
        {"\x7f\x01", 2, "\\x7f\\x01"},
        {"\xc3\xa9", 2, "\xc3\xa9"}, /* e acute stays */
        {"\xe4\xb8\xad\xf0\x9f\x98\x80", 7, "\xe4\xb8\xad\xf0\x9f\x98\x80"},
        {"\xc3", 1, "\\xc3"}, /* cut short */
        {"\xc3(", 2, "\\xc3("},
        {"\xc0\x80", 2, "\\xc0\\x80"}, /* overlong */
        {"\xe0\x80\x80", 3, "\\xe0\\x80\\x80"},
        {"\xf0\x80\x80\x80", 4, "\\xf0\\x80\\x80\\x80"},
        {"\xed\xa0\x80", 3, "\\xed\\xa0\\x80"},          /* surrogate */
        {"\xf4\x90\x80\x80", 4, "\\xf4\\x90\\x80\\x80"}, /* beyond Unicode */
        {"\xc2\x9b", 2, "\\xc2\\x9b"},                   /* C1: another escape */
        {"\xe2\x80\xae", 3, "\\xe2\\x80\\xae"},          /* right-to-left override */
        {"\xe2\x81\xa6", 3, "\\xe2\\x81\\xa6"},
        {"\xff\xfe", 2, "\\xff\\xfe"},
        {"\xd8\x9c", 2, "\\xd8\\x9c"},                       /* Arabic letter mark */
        {"\xef\xbb\xbf", 3, "\\xef\\xbb\\xbf"},              /* no width, no break */
        {"\xe2\x81\xa0", 3, "\\xe2\\x81\\xa0"},              /* word joiner */
        {"\xf3\xa0\x81\x81", 4, "\\xf3\\xa0\\x81\\x81"},     /* tag A */
        {"\xe2\x81\x9f\xc2\xae", 5, "\xe2\x81\x9f\xc2\xae"}, /* a space and a sign stay */
        {"::error::x", 10, "\\x3a:error::x"},                /* a command to a runner of CI */
        {"a ::error::x", 12, "a ::error::x"},
        {"a ##[error]x", 12, "a \\x23#[error]x"},
        {"##vso[x]", 8, "\\x23#vso[x]"},
        {"# ## ##", 7, "# ## ##"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char out[64];
        assert_int_equal(lp_sanitise(out, sizeof out, cases[i].in, cases[i].bytes), strlen(cases[i].out));
        assert_string_equal(out, cases[i].out);
    }
}

static void sanitising_cuts_between_characters(void **state)
{
    (void)state;
    const char *text = "ab\xc3\xa9\n";
    static const char *const expected[] = {"", "", "a", "ab", "ab", "ab\xc3\xa9", "ab\xc3\xa9"};
    for (size_t room = 0; room < 7; room++) {
        char out[16];
        memset(out, 'z', sizeof out);
        assert_int_equal(lp_sanitise(out, room, text, 5), 8);
        if (room > 0)
            assert_string_equal(out, expected[room]);
        assert_int_equal(out[room], 'z');
    }
}

static void numbers_for_people(void **state)
{
    (void)state;
    static const struct {
        int64_t value;
        const char *bytes, *count;
    } cases[] = {
        {0, "0 B", "0"},
        {999, "999 B", "999"},
        {1000, "1000 B", "1,000"},
        {1023, "1023 B", "1,023"},
        {1024, "1.0 KiB", "1,024"},
        {1536, "1.5 KiB", "1,536"},
        {1048575, "1.0 MiB", "1,048,575"},
        {390196953088, "363.4 GiB", "390,196,953,088"},
        {INT64_MAX, "8192.0 PiB", "9,223,372,036,854,775,807"},
        {-1234567, "-1234567 B", "-1,234,567"},
        {-123456, "-123456 B", "-123,456"},
    };
    char buffer[32];
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_string_equal(lp_format_bytes(buffer, cases[i].value), cases[i].bytes);
        assert_string_equal(lp_format_count(buffer, cases[i].value), cases[i].count);
    }
    char hex[9];
    lp_format_hex(hex, (const uint8_t[]){0x00, 0x0f, 0xa0, 0xff}, 4);
    assert_string_equal(hex, "000fa0ff");
}

static void text_grows_and_remembers_failure(void **state)
{
    (void)state;
    faulty_memory m;
    faulty_memory_init(&m, -1);
    lp_text t;
    lp_text_init(&t, &m.table);
    lp_text_add(&t, NULL, 0);
    assert_string_equal(t.data, "");
    char large[1000];
    memset(large, 'x', sizeof large - 1);
    large[sizeof large - 1] = '\0';
    for (int i = 0; i < 100; i++)
        lp_text_format(&t, "%s%d,", large, i % 10); /* longer than any inner buffer */
    assert_int_equal(t.bytes, 100 * 1001);
    assert_int_equal(strlen(t.data), 100 * 1001);
    assert_int_equal(t.data[999], '0');
    assert_int_equal(t.data[1001 * 99 + 999], '9');
    lp_text_add(&t, "a\0b", 3);
    assert_int_equal(t.bytes, 100 * 1001 + 3);
    assert_false(t.failed);
    m.countdown = 0;
    for (int i = 0; i < 1000 && !t.failed; i++)
        lp_text_add(&t, large, 999);
    assert_true(t.failed);
    const int64_t bytes = t.bytes;
    m.countdown = -1;
    lp_text_add(&t, "x", 1);
    lp_text_format(&t, "%d", 1);
    assert_int_equal(t.bytes, bytes); /* sticky */
    lp_text_free(&t);
    assert_int_equal(m.live, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(statuses_have_names_and_texts),
        cmocka_unit_test(errors_are_sanitised_and_cut),
        cmocka_unit_test(an_error_may_be_built_from_itself),
        cmocka_unit_test(sanitising_escapes_what_harms_a_terminal),
        cmocka_unit_test(sanitising_cuts_between_characters),
        cmocka_unit_test(numbers_for_people),
        cmocka_unit_test(text_grows_and_remembers_failure),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
