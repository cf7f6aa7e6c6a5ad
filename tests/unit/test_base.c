/* SPDX-License-Identifier: Apache-2.0 */
/* The ground that everything stands on: errors, memory, text, strings, digests, and files that appear whole or not. */
#include "tests/unit/checkpoint_files.h"

#include <fcntl.h>
#include <inttypes.h>

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

/* ---- memory ---- */

static void arenas_give_aligned_lasting_memory(void **state)
{
    (void)state;
    enum { COUNT = 2000 };
    faulty_memory m;
    faulty_memory_init(&m, -1);
    lp_arena a;
    lp_arena_init(&a, &m.table);
    for (int round = 0; round < 2; round++) {
        static unsigned char *piece[COUNT];
        for (int i = 0; i < COUNT; i++) {
            const size_t bytes = (size_t)(i % 97) * (i % 5 == 0 ? 100 : 1);
            piece[i] = lp_arena_get(&a, bytes);
            assert_non_null(piece[i]);
            assert_int_equal((uintptr_t)piece[i] % 16, 0);
            memset(piece[i], i & 0xff, bytes);
        }
        for (int i = 0; i < COUNT; i++)
            for (size_t k = 0; k < (size_t)(i % 97) * (i % 5 == 0 ? 100 : 1); k++)
                assert_int_equal(piece[i][k], i & 0xff);
        unsigned char *large = lp_arena_get(&a, (size_t)10 << 20);
        assert_non_null(large);
        memset(large, 1, (size_t)10 << 20);
        assert_string_equal(lp_arena_text(&a, "abcdef", 3), "abc");
        assert_string_equal(lp_arena_format(&a, "%d-%s", 7, "x"), "7-x");
        const char *wide = lp_arena_format(&a, "%600d", 7); /* longer than its inner buffer */
        assert_int_equal(strlen(wide), 600);
        assert_int_equal(wide[599], '7');
        assert_memory_equal(lp_arena_copy(&a, "xyz", 3), "xyz", 3);
        assert_non_null(lp_arena_copy(&a, NULL, 0));
        assert_null(lp_arena_get(&a, SIZE_MAX));
        assert_null(lp_arena_text(&a, "", SIZE_MAX));
        assert_true(m.live > 1);
        lp_arena_free(&a); /* and again */
        assert_int_equal(m.live, 0);
    }
    m.countdown = 0;
    assert_null(lp_arena_get(&a, 1));
    assert_null(lp_arena_format(&a, "%d", 1));
    assert_null(lp_arena_copy(&a, "x", 1));
    lp_arena_free(&a);
}

static void growing_checks_its_arithmetic(void **state)
{
    (void)state;
    faulty_memory m;
    faulty_memory_init(&m, -1);
    int32_t *items = NULL;
    int64_t capacity = 0;
    int64_t grown = 0;
    for (int64_t i = 0; i < 100000; i++) {
        const int64_t before = capacity;
        assert_true(lp_grow(&m.table, (void **)&items, &capacity, i + 1, sizeof *items));
        grown += capacity != before;
        items[i] = (int32_t)i;
    }
    assert_true(grown < 20);
    for (int64_t i = 0; i < 100000; i++)
        assert_int_equal(items[i], i);
    const int64_t before = capacity;
    assert_false(lp_grow(&m.table, (void **)&items, &capacity, INT64_MAX, sizeof *items));
    m.countdown = 0;
    assert_false(lp_grow(&m.table, (void **)&items, &capacity, capacity + 1, sizeof *items));
    assert_int_equal(capacity, before);
    assert_int_equal(items[99999], 99999); /* untouched by the failures */
    lp_release(&m.table, items);
    lp_release(&m.table, NULL);
    assert_int_equal(m.live, 0);
    void *nothing = lp_allocate(NULL, 0);
    assert_non_null(nothing);
    lp_release(NULL, nothing);
}

static void checked_arithmetic_says_no(void **state)
{
    (void)state;
    int64_t out = 5;
    assert_true(lp_add(INT64_MAX, 0, &out) && out == INT64_MAX);
    assert_false(lp_add(INT64_MAX, 1, &out));
    assert_false(lp_sub(INT64_MIN, 1, &out));
    assert_true(lp_sub(-1, INT64_MAX, &out) && out == INT64_MIN);
    assert_false(lp_mul(INT64_C(1) << 32, INT64_C(1) << 31, &out));
    assert_false(lp_mul(INT64_MIN, -1, &out));
    assert_true(lp_mul(-(INT64_C(1) << 32), INT64_C(1) << 31, &out) && out == INT64_MIN);
}

static void platforms_get_their_defaults(void **state)
{
    (void)state;
    lp_platform p = lp_platform_resolve(NULL);
    assert_ptr_equal(p.io, lp_io_default());
    assert_ptr_equal(p.alloc, lp_alloc_default());
    assert_null(p.device);
    faulty_memory m;
    faulty_memory_init(&m, -1);
    p = lp_platform_resolve(&(lp_platform){.alloc = &m.table});
    assert_ptr_equal(p.io, lp_io_default());
    assert_ptr_equal(p.alloc, &m.table);
}

static void keep_line(void *context, int level, const char *module, const char *line)
{
    snprintf(context, 256, "%d %s: %s", level, module, line);
}

static void log_lines_are_sanitised(void **state)
{
    (void)state;
    char line[256] = "";
    const lp_platform p = {.log = keep_line, .log_context = line};
    lp_log(&p, LP_LOG_INFO, "file", "name '%s'", "a\nb");
    assert_string_equal(line, "2 file: name 'a\\x0ab'");
    lp_log(NULL, LP_LOG_INFO, "file", "nobody listens");
    lp_log(&(lp_platform){0}, LP_LOG_INFO, "file", "nobody listens");
}

/* ---- string set ---- */

static void strings_are_numbered_once(void **state)
{
    (void)state;
    enum { COUNT = 50000 };
    lp_strings s;
    lp_strings_init(&s, NULL);
    assert_int_equal(lp_strings_find(&s, "a", 1), -1);
    char name[32];
    for (int i = 0; i < COUNT; i++) {
        const int n = snprintf(name, sizeof name, "layers.%d", i);
        assert_int_equal(lp_strings_add(&s, name, (size_t)n), i);
        assert_int_equal(lp_strings_add(&s, name, (size_t)n), i);
    }
    memset(name, 0, sizeof name);
    assert_int_equal(s.count, COUNT);
    for (int i = 0; i < COUNT; i++) {
        const int n = snprintf(name, sizeof name, "layers.%d", i);
        assert_int_equal(lp_strings_find(&s, name, (size_t)n), i);
        assert_string_equal(s.text[i], name);
        assert_int_equal(s.bytes[i], n);
    }
    /* Lengths count: a NUL is a byte like any other, and the empty string is one too. */
    const int64_t empty = lp_strings_add(&s, "", 0), nul = lp_strings_add(&s, "\0", 1),
                  two = lp_strings_add(&s, "a\0b", 3);
    assert_true(empty == COUNT && nul == COUNT + 1 && two == COUNT + 2);
    assert_int_equal(lp_strings_find(&s, "a\0c", 3), -1);
    assert_int_equal(lp_strings_find(&s, "a", 1), -1);
    assert_int_equal(lp_strings_find(&s, "", 0), empty);
    lp_strings_free(&s);
    assert_int_equal(lp_strings_find(&s, "layers.1", 8), -1);
    assert_int_equal(lp_strings_add(&s, "x", 1), 0); /* it can be used again */
    lp_strings_free(&s);
}

static void a_string_set_survives_failing_memory(void **state)
{
    (void)state;
    int64_t n = 0;
    bool is_done = false;
    for (; !is_done; n++) {
        faulty_memory m;
        faulty_memory_init(&m, n);
        lp_strings s;
        lp_strings_init(&s, &m.table);
        int64_t added = 0;
        is_done = true;
        for (int i = 0; i < 200; i++) {
            char name[16];
            const int length = snprintf(name, sizeof name, "n%d", i);
            const int64_t number = lp_strings_add(&s, name, (size_t)length);
            if (number < 0) {
                is_done = false;
                break;
            }
            assert_int_equal(number, added++);
        }
        assert_int_equal(s.count, added);
        for (int64_t i = 0; i < added; i++)
            assert_int_equal(lp_strings_find(&s, s.text[i], s.bytes[i]), i);
        lp_strings_free(&s);
        assert_int_equal(m.live, 0);
    }
    assert_true(n > 6);
}

/* ---- SHA-256 ---- */

static void expect_digest(lp_sha256 *h, const char *hex)
{
    uint8_t digest[32];
    char text[65];
    assert_true(lp_sha256_end(h, digest));
    lp_format_hex(text, digest, sizeof digest);
    assert_string_equal(text, hex);
}

static void digests_are_sha_256(void **state)
{
    (void)state;
    lp_sha256 h, other;
    lp_sha256_begin(&h);
    expect_digest(&h, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    lp_sha256_begin(&h);
    lp_sha256_add(&h, "a", 1);
    lp_sha256_add(&h, "bc", 2);
    expect_digest(&h, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    /* Numbers are eight bytes, little endian; a text is its length and its bytes. */
    uint8_t a[32], b[32];
    lp_sha256_begin(&h);
    lp_sha256_i64(&h, -2);
    lp_sha256_text(&h, "xy");
    assert_true(lp_sha256_end(&h, a));
    lp_sha256_begin(&other);
    lp_sha256_add(&other, "\xfe\xff\xff\xff\xff\xff\xff\xff\x02\0\0\0\0\0\0\0xy", 18);
    assert_true(lp_sha256_end(&other, b));
    assert_memory_equal(a, b, sizeof a);
}

/* ---- files ---- */

static void expect_content(const char *path, const char *expected)
{
    char *text = NULL;
    int64_t bytes;
    lp_error err = {0};
    if (lp_read_file(NULL, path, 1 << 20, &text, &bytes, &err) != LP_OK)
        fail_msg("%s", err.text);
    assert_int_equal(bytes, strlen(expected));
    assert_string_equal(text, expected);
    lp_release(NULL, text);
}

static bool exists(const char *path)
{
    return access(path, F_OK) == 0;
}

static lp_status write_output(const lp_platform *platform, const char *path, bool overwrite, lp_error *err)
{
    lp_outfile f;
    lp_status status;
    LP_TRY(lp_outfile_open(&f, platform, path, overwrite, err));
    LP_TRY_GOTO(lp_outfile_write(&f, "new ", 4, err), abandon);
    LP_TRY_GOTO(lp_outfile_write(&f, "", 0, err), abandon);
    LP_TRY_GOTO(lp_outfile_write(&f, "content", 7, err), abandon);
    return lp_outfile_commit(&f, err);
abandon:
    lp_outfile_abandon(&f);
    return status;
}

static void outputs_appear_whole(void **state)
{
    (void)state;
    const char *path = in_folder("out"), *partial = in_folder("out.partial");
    lp_error err = {0};
    assert_int_equal(write_output(NULL, path, false, &err), LP_OK);
    expect_content(path, "new content");
    assert_false(exists(partial));

    write_text(path, "old");
    assert_int_equal(write_output(NULL, path, false, &err), LP_E_EXISTS);
    assert_string_equal(err.hint, "use -f to replace it");
    expect_content(path, "old");
    assert_false(exists(partial));

    lp_outfile f;
    assert_int_equal(lp_outfile_open(&f, NULL, path, true, &err), LP_OK);
    assert_int_equal(lp_outfile_write(&f, "half", 4, &err), LP_OK);
    assert_true(exists(partial));
    expect_content(path, "old"); /* until commit */
    lp_outfile_abandon(&f);
    lp_outfile_abandon(&f);
    lp_outfile_abandon(&(lp_outfile){0});
    expect_content(path, "old");
    assert_false(exists(partial));

    write_text(partial, "left over by a crash, and longer than what follows");
    assert_int_equal(write_output(NULL, path, true, &err), LP_OK);
    expect_content(path, "new content");
    assert_int_equal(write_output(NULL, in_folder("no/such/folder"), false, &err), LP_E_IO);
}

static void a_failing_output_keeps_the_old_file(void **state)
{
    (void)state;
    const char *path = in_folder("kept"), *partial = in_folder("kept.partial");
    lp_error err = {0};
    faulty_io io;
    faulty_memory m;
    faulty_io_init(&io, -1, 0);
    faulty_memory_init(&m, -1);
    io.piece = 2; /* short writes */
    const lp_platform platform = {.io = &io.table, .alloc = &m.table};
    assert_int_equal(write_output(&platform, path, true, &err), LP_OK);
    expect_content(path, "new content");
    const int64_t calls = io.calls;
    assert_true(calls > 10);
    static const int errors[] = {-ENOSPC, -EIO, 0};
    for (size_t e = 0; e < sizeof errors / sizeof errors[0]; e++)
        for (int64_t n = 0; n < calls; n++) {
            write_text(path, "old");
            faulty_io_init(&io, n, errors[e]);
            io.piece = 2;
            io.is_once = true;
            const lp_status status = write_output(&platform, path, true, &err);
            assert_int_equal(io.open_files, 0);
            assert_int_equal(m.live, 0);
            assert_false(exists(partial));
            char *text = NULL;
            int64_t bytes;
            assert_int_equal(lp_read_file(NULL, path, 100, &text, &bytes, &err), LP_OK);
            /* Only the fsync of the folder comes after the rename; then the new file stands, and is whole. */
            if (status == LP_OK || strcmp(text, "old") != 0)
                assert_string_equal(text, "new content");
            else
                assert_int_equal(status, LP_E_IO);
            lp_release(NULL, text);
        }
    for (int64_t n = 0; n < 3; n++) {
        write_text(path, "old");
        faulty_io_init(&io, -1, 0);
        faulty_memory_init(&m, n);
        const lp_status status = write_output(&platform, path, true, &err);
        assert_int_equal(status, n < 2 ? LP_E_MEMORY : LP_OK);
        expect_content(path, n < 2 ? "old" : "new content");
        assert_int_equal(m.live, 0);
        assert_int_equal(io.open_files, 0);
        assert_false(exists(partial));
    }
}

/* The first request is refused; every other block is as the one before left it, with the name of a file in it. */
typedef struct littered {
    const char *name;
    int calls;
} littered;

static void *littered_resize(void *context, void *old, size_t bytes)
{
    littered *l = context;
    assert_true(old == NULL || bytes == 0);
    free(old);
    if (bytes == 0 || l->calls++ == 0)
        return NULL;
    const size_t length = strlen(l->name) + 1;
    char *block = malloc(bytes + length);
    assert_non_null(block);
    memcpy(block, l->name, length);
    return block;
}

/* Without memory for one of its names, an output that was never begun removes nothing. */
static void an_output_without_memory_removes_nothing(void **state)
{
    (void)state;
    const char *victim = in_folder("victim");
    littered l = {.name = victim};
    const lp_alloc alloc = {.size = sizeof alloc, .context = &l, .resize = littered_resize};
    const lp_platform platform = {.alloc = &alloc};
    lp_outfile f;
    lp_error err;
    write_text(victim, "kept");
    assert_int_equal(lp_outfile_open(&f, &platform, in_folder("other"), true, &err), LP_E_MEMORY);
    expect_content(victim, "kept");
}

static void interrupted_calls_go_on(void **state)
{
    (void)state;
    const char *path = in_folder("interrupted");
    lp_error err = {0};
    faulty_io io;
    const lp_platform platform = {.io = &io.table};
    /* Calls 0 to 2 look at the old file, call 3 makes the new one; calls 4 to 7 write its pieces. */
    for (int64_t n = 4; n <= 7; n++) {
        write_text(path, "old");
        faulty_io_init(&io, n, -EINTR);
        io.is_once = true;
        io.piece = 3;
        assert_int_equal(write_output(&platform, path, true, &err), LP_OK);
        expect_content(path, "new content");
    }
}

static int64_t judged_bytes, judged_file_bytes;

static lp_status takes_digits(const char *path, const char *start, int64_t start_bytes, int64_t file_bytes,
                              lp_error *err)
{
    judged_bytes = start_bytes;
    judged_file_bytes = file_bytes;
    return start_bytes > 0 && start[0] == '0' ? LP_OK : lp_fail(err, LP_E_UNSUPPORTED, "'%s': no digits", path);
}

/* Of a file that is not what it was taken for, however large, no more is read than its start, and no memory taken. */
static void files_are_judged_before_they_are_read(void **state)
{
    (void)state;
    const char *path = in_folder("judged");
    char *text = NULL;
    int64_t bytes = -1;
    lp_error err = {0};
    faulty_memory m;
    faulty_memory_init(&m, 0);
    const lp_platform no_memory = {.alloc = &m.table};
    write_text(path, "not what is wanted");
    assert_int_equal(truncate(path, INT64_C(1) << 40), 0);
    assert_int_equal(lp_read_judged(&no_memory, path, 4, takes_digits, &text, &bytes, &err), LP_E_UNSUPPORTED);
    assert_int_equal(judged_bytes, LP_JUDGED_BYTES);
    assert_int_equal(judged_file_bytes, INT64_C(1) << 40);
    write_text(path, "0123456789");
    assert_int_equal(lp_read_judged(NULL, path, 9, takes_digits, &text, &bytes, &err), LP_E_HOSTILE);
    assert_int_equal(lp_read_judged(NULL, path, 10, takes_digits, &text, &bytes, &err), LP_OK);
    assert_int_equal(judged_bytes, 10);
    assert_string_equal(text, "0123456789");
    lp_release(NULL, text);
    write_text(path, "");
    assert_int_equal(lp_read_judged(NULL, path, 10, takes_digits, &text, &bytes, &err), LP_E_UNSUPPORTED);
    assert_int_equal(judged_bytes, 0);
    assert_int_equal(lp_read_judged(NULL, test_folder, 10, takes_digits, &text, &bytes, &err), LP_E_FORMAT);
}

static void whole_files_are_read_with_a_limit(void **state)
{
    (void)state;
    const char *path = in_folder("text");
    char *text = NULL;
    int64_t bytes = -1;
    lp_error err = {0};
    write_file(path, "a\0bc", 4);
    assert_int_equal(lp_read_file(NULL, path, 4, &text, &bytes, &err), LP_OK);
    assert_int_equal(bytes, 4);
    assert_memory_equal(text, "a\0bc", 5);
    lp_release(NULL, text);
    text = NULL;
    assert_int_equal(lp_read_file(NULL, path, 3, &text, &bytes, &err), LP_E_HOSTILE);
    assert_int_equal(lp_read_file(NULL, test_folder, 100, &text, &bytes, &err), LP_E_FORMAT);
    assert_int_equal(lp_read_file(NULL, in_folder("absent"), 100, &text, &bytes, &err), LP_E_IO);
    assert_null(text);
    write_text(path, "");
    assert_int_equal(lp_read_file(NULL, path, 0, &text, &bytes, &err), LP_OK);
    assert_int_equal(bytes, 0);
    assert_string_equal(text, "");
    lp_release(NULL, text);

    write_text(path, "0123456789");
    faulty_io io;
    faulty_memory m;
    const lp_platform platform = {.io = &io.table, .alloc = &m.table};
    lp_status status = LP_E_IO;
    for (int64_t n = 0; status != LP_OK; n++) {
        faulty_io_init(&io, n, -EIO);
        faulty_memory_init(&m, -1);
        io.piece = 3;
        io.is_once = true;
        text = NULL;
        status = lp_read_file(&platform, path, 100, &text, &bytes, &err);
        lp_release(&m.table, text);
        assert_int_equal(m.live, 0);
        assert_int_equal(io.open_files, 0);
        assert_true(status == LP_E_IO || n > 5);
    }
    const int fd = open(path, O_RDONLY);
    char buffer[20];
    assert_int_equal(lp_read_exact(lp_io_default(), fd, path, buffer, 11, 0, &err), LP_E_CORRUPT);
    assert_non_null(strstr(err.text, "ends at byte 10"));
    assert_int_equal(err.byte_off, 10);
    assert_int_equal(lp_read_exact(lp_io_default(), fd, path, buffer, 5, 5, &err), LP_OK);
    assert_memory_equal(buffer, "56789", 5);
    close(fd);
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
        cmocka_unit_test(arenas_give_aligned_lasting_memory),
        cmocka_unit_test(growing_checks_its_arithmetic),
        cmocka_unit_test(checked_arithmetic_says_no),
        cmocka_unit_test(platforms_get_their_defaults),
        cmocka_unit_test(log_lines_are_sanitised),
        cmocka_unit_test(strings_are_numbered_once),
        cmocka_unit_test(a_string_set_survives_failing_memory),
        cmocka_unit_test(digests_are_sha_256),
        cmocka_unit_test(outputs_appear_whole),
        cmocka_unit_test(a_failing_output_keeps_the_old_file),
        cmocka_unit_test(an_output_without_memory_removes_nothing),
        cmocka_unit_test(interrupted_calls_go_on),
        cmocka_unit_test(files_are_judged_before_they_are_read),
        cmocka_unit_test(whole_files_are_read_with_a_limit),
    };
    return cmocka_run_group_tests(tests, make_test_folder, remove_test_folder);
}
