/* SPDX-License-Identifier: Apache-2.0 */
/* The text form of traces (docs/format.md T1-T9; rules R3, R12, R18): back and forth without loss, strict, linear. */
#include "growth_testing.h"
#include "trace_faults.h"
#include "trace_fixture.h"

#include "traces/dump_text.h"
#include "traces/trace_dump.h"
#include "traces/trace_file.h"

static int append(void *context, const char *text, size_t bytes)
{
    lp_text_add(context, text, bytes);
    return 0;
}

static int refuse_text(void *context, const char *text, size_t bytes)
{
    (void)context;
    (void)text;
    (void)bytes;
    return 1;
}

static lp_text dump(const lp_trace *t, bool provenance)
{
    lp_text text;
    lp_text_init(&text, NULL);
    FIX_OK(lp_trace_dump_with(t, provenance, append, &text, &fix_err));
    assert_false(text.failed);
    return text;
}

static void same_bytes(const lp_trace *a, const lp_trace *b)
{
    uint8_t *x, *y;
    int64_t x_bytes, y_bytes;
    FIX_OK(lp_trace_image(a, &x, &x_bytes, &fix_err));
    FIX_OK(lp_trace_image(b, &y, &y_bytes, &fix_err));
    assert_int_equal(x_bytes, y_bytes);
    assert_memory_equal(x, y, (size_t)x_bytes);
    sqlite3_free(x);
    sqlite3_free(y);
}

static void text_and_back_is_the_same(void **state) /* R12 */
{
    (void)state;
    lp_trace *t = fix_trace(false), *back;
    lp_text text = dump(t, true);
    FIX_OK(lp_trace_undump(&back, text.data, (size_t)text.bytes, NULL, &fix_err));
    fix_same(t, back, true);
    same_bytes(t, back);
    lp_text again = dump(back, true);
    assert_int_equal(text.bytes, again.bytes);
    assert_memory_equal(text.data, again.data, (size_t)text.bytes);
    lp_text_free(&again);
    lp_trace_close(back);
    lp_text_free(&text);
    lp_trace_close(t);
}

static void provenance_can_be_left_out(void **state) /* R7 */
{
    (void)state;
    lp_trace *t = fix_trace(false), *back;
    lp_text text = dump(t, false);
    assert_null(strstr(text.data, "loader.py"));
    FIX_OK(lp_trace_undump(&back, text.data, (size_t)text.bytes, NULL, &fix_err));
    fix_same(t, back, false);
    lp_trace_close(back);
    lp_text_free(&text);
    lp_trace_close(t);
}

static void lines_read_like_this(void **state) /* T1-T9 */
{
    (void)state;
    static const char *const lines[] = {
        "loadplan-trace 1000\n",
        "\nheader configuration \"a=1\\nb=\\u00e4\\n\"\n",
        "\nlayout pp=1 dp=1 tp=2 ep=1\n",
        "\nfile \"model-1.safetensors\" bytes=1048576\n",
        "\nname \"layers.0.experts.0.up.weight\" BF16 [8,16] file=0 off=808\n",
        "\nname \"placeless\" I8 [32]\n",
        "\nmap @6b3e517f95932663 1>1 16 37+16:24\n",
        "\nscope pp=0 dp=0 tp=1\n# rank 1, plan digest ",
        "\ndest \"layers.0.w13\" BF16 [6,8,16] bytes=1536 layout=\"w13_rows\" version=2 group=\"layers.own\" "
        "slots=0:6\n",
        "\ndest \"embed.exp\" F32 [4,16] storage=\"pool\" bytes=1024 off=256 group=\"root\" flags=buffer\n",
        "\ncopy \"layers.0.experts.10.up.weight\" -> \"layers.0.w13\" src=0 dst=1024 map=256 at \"loader.py\":41 via "
        "\"narrow(0,0,8)\"\n",
        "\ncast \"layers.0.norm\" -> \"layers.0.norm_f32\" BF16>F32 src=0 dst=0 map=2>4|16 at \"loader.py\":40",
        "\ncopy \"two parts\" -> \"parts\" src=3 dst=0 map=@6b3e517f95932663\n",
        "src=16 dst=8 map=8 seq=1 at \"loader.py\":9 flags=materialises\n",
        "\nfill begin -> \"\\u00e4 \\\"quoted\\\" \\\\ name\\n\" value=0x0 dst=16 map=0>1|8\n",
        "\nderive check error=\"embed {index} \\\"is\\\" not 1\" inputs=(dest \"embed.exp\" F32 64 256) nodes=(input "
        "F32 64 "
        "0,0,0 0x0; const F32 1 0,0,0 0x3f800000; all_close - 0 0,1,0 0x3727c5ac)\n",
        "\nrefuse \"host_read\" -> \"embed.exp\" map=0>1|256 op=\"aten.max\" reason=\"reads a value\\non the host\"",
        "\nEND names=81 scopes=2 records=88 derives=4 refusals=2\n",
    };
    lp_trace *t = fix_trace(false);
    lp_text text = dump(t, true);
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        if (strstr(text.data, lines[i]) == NULL)
            fail_msg("not in the text: %s", lines[i]);
    /* R18: nothing that a terminal would obey. */
    for (int64_t i = 0; i < text.bytes; i++)
        assert_true(text.data[i] == '\n' || (text.data[i] >= 0x20 && text.data[i] < 0x7f));
    lp_text_free(&text);
    lp_trace_close(t);
}

/* Replaces the first `from` of the text; the result must be refused, naming the line and this. */
static void refused(const lp_text *text, const char *from, const char *to, lp_status code, const char *message)
{
    lp_trace *t = NULL;
    lp_error err = {0};
    const char *at = strstr(text->data, from);
    if (at == NULL)
        fail_msg("not in the text: %s", from);
    lp_text bad;
    lp_text_init(&bad, NULL);
    lp_text_add(&bad, text->data, (size_t)(at - text->data));
    lp_text_add(&bad, to, strlen(to));
    lp_text_add(&bad, at + strlen(from), strlen(at + strlen(from)));
    const lp_status status = lp_trace_undump(&t, bad.data, (size_t)bad.bytes, NULL, &err);
    if (status != code || strstr(err.text, message) == NULL)
        print_error("'%s' -> '%s' gives %s: %s\n", from, to, lp_status_name(status), err.text);
    assert_int_equal(status, code);
    assert_non_null(strstr(err.text, message));
    assert_null(t);
    lp_text_free(&bad);
}

static void wrong_lines_are_refused_by_number(void **state)
{
    (void)state;
    lp_trace *t = fix_trace(false);
    lp_text text = dump(t, true);
    refused(&text, "loadplan-trace 1000", "loadplan-trees 1000", LP_E_FORMAT, "does not begin with");
    refused(&text, "loadplan-trace 1000", "loadplan-trace 2000", LP_E_VERSION, "format version 2.0");
    refused(&text, "loadplan-trace 1000", "loadplan-trace 1001", LP_E_VERSION, "format version 1.1");
    refused(&text, "layout pp=1", "layout pp=0", LP_E_CORRUPT, "line 5: '0' is no number between 1");
    refused(&text, "header loader ", "header looder ", LP_E_CORRUPT, "line 2: expected 'layout pp='");
    refused(&text, "BF16 [8,16]", "BF17 [8,16]", LP_E_CORRUPT, "unknown dtype 'BF17'");
    refused(&text, "BF16 [8,16]", "BF16 [8,-16]", LP_E_CORRUPT, "negative");
    refused(&text, "[8,16] file=0", "[8,16] file=7", LP_E_CORRUPT, "no file 7");
    refused(&text, "\"placeless\" I8", "\"embed\" I8", LP_E_CORRUPT, "appears twice");
    refused(&text, "\"placeless\"", "\"place", LP_E_CORRUPT, "not closed");
    refused(&text, "\\u00e4", "\\u0000", LP_E_CORRUPT, "escape");
    refused(&text, "\\u00e4", "\\ud800", LP_E_CORRUPT, "escape");
    refused(&text, "\\u00e4", "\\q", LP_E_CORRUPT, "escape");
    refused(&text, "1>1 16 37+16:24", "1>1 16 37+15:24", LP_E_CORRUPT, "no legal map");
    refused(&text, "1>1 16 37+16:24", "1>1", LP_E_CORRUPT, "line 89");
    refused(&text, "map=@6b3e517f95932663", "map=@6b3e517f95932664", LP_E_CORRUPT, "is not given before its use");
    refused(&text, "-> \"parts\"", "-> \"partz\"", LP_E_CORRUPT, "no destination 'partz'");
    refused(&text, "copy \"two parts\"", "copy \"too parts\"", LP_E_CORRUPT, "no checkpoint tensor 'too parts'");
    refused(&text, "dest \"parts\"", "dest \"embed.exp\"", LP_E_CORRUPT, "given twice");
    refused(&text, "src=3 dst=0", "src=9 dst=0", LP_E_CORRUPT, "reads bytes outside");
    refused(&text, "src=3 dst=0", "src=3 dst=9", LP_E_CORRUPT, "writes bytes outside");
    refused(&text, "src=3 dst=0", "src=99999999999999999999 dst=0", LP_E_CORRUPT, "is no number");
    refused(&text, "map=256 at", "map=256  at", LP_E_CORRUPT, "left over");
    refused(&text, "\"loader.py\":40", "\"loader.\xffy\":40", LP_E_CORRUPT, "is not UTF-8");
    refused(&text, "via \"narrow", "via \"n\\xe4rrow", LP_E_CORRUPT, "is not UTF-8");
    refused(&text, "file \"model-1",
            "file \"m\xf6"
            "del-1",
            LP_E_CORRUPT, "line 6: the name of a file is too long or not UTF-8");
    refused(&text, "nodes=(input", "nodes=(inputs", LP_E_CORRUPT, "unknown operation");
    refused(&text, "0,1,0 0x3727c5ac", "0,3,0 0x3727c5ac", LP_E_CORRUPT, "does not come before it");
    refused(&text, "slots=0:6", "slots=5:6", LP_E_CORRUPT, "slot");
    refused(&text, "scope pp=0 dp=0 tp=1", "scope pp=0 dp=0 tp=0", LP_E_CORRUPT, "twice");
    refused(&text, "records=88", "records=87", LP_E_CORRUPT, "counts of the END line");
    refused(&text, "END names", "ENDE names", LP_E_CORRUPT, "expected 'END names='");
    refused(&text, "refusals=2\n", "refusals=2\nname \"late\" F32 []\n", LP_E_CORRUPT, "behind the END line");
    lp_text_free(&text);
    lp_trace_close(t);
}

static void cut_texts_are_refused(void **state)
{
    (void)state;
    lp_trace *t = fix_trace(false), *back = NULL;
    lp_error err;
    lp_text text = dump(t, true);
    for (int64_t cut = 0; cut < text.bytes - 1; cut += 53) {
        char *part = malloc((size_t)cut + 1); /* so that a read beyond it is seen */
        memcpy(part, text.data, (size_t)cut);
        assert_true(lp_trace_undump(&back, part, (size_t)cut, NULL, &err) != LP_OK);
        assert_null(back);
        free(part);
    }
    /* Without its last newline it is whole. */
    FIX_OK(lp_trace_undump(&back, text.data, (size_t)text.bytes - 1, NULL, &fix_err));
    lp_trace_close(back);
    lp_text_free(&text);
    lp_trace_close(t);
}

static void an_edited_text_is_another_trace(void **state)
{
    (void)state;
    lp_trace *t = fix_trace(false), *other;
    uint8_t a[32], b[32];
    lp_text text = dump(t, true);
    char *at = strstr(text.data, "src=3 dst=0");
    assert_non_null(at);
    at[4] = '2';
    FIX_OK(lp_trace_undump(&other, text.data, (size_t)text.bytes, NULL, &fix_err));
    FIX_OK(lp_trace_set_digest(t, a, &fix_err));
    FIX_OK(lp_trace_set_digest(other, b, &fix_err));
    assert_memory_not_equal(a, b, 32);
    lp_trace_close(other);
    lp_text_free(&text);
    lp_trace_close(t);
}

static void strings_of_all_kinds_come_back(void **state) /* R18 */
{
    (void)state;
    static const char *const strings[] = {"",
                                          "plain",
                                          "tab\there",
                                          "\x1b[31mred",
                                          "\x7f",
                                          "\xe2\x80\xae right to left",
                                          "\xf0\x9f\x90\x8d",
                                          "bad \xff byte",
                                          "cut \xe2\x80",
                                          "\xc0\x80",
                                          "a/b\\\\\"c\""};
    for (size_t i = 0; i < sizeof strings / sizeof *strings; i++) {
        lp_text text;
        lp_text_init(&text, NULL);
        lp_dump_string(&text, strings[i]);
        for (int64_t k = 0; k < text.bytes; k++)
            assert_true(text.data[k] >= 0x20 && text.data[k] < 0x7f);
        lp_arena arena;
        lp_arena_init(&arena, NULL);
        lp_error err = {0};
        lp_line line = {.at = text.data, .end = text.data + text.bytes, .arena = &arena, .err = &err};
        const char *back;
        assert_int_equal(lp_line_string(&line, &back), LP_OK);
        assert_string_equal(back, strings[i]);
        assert_int_equal(lp_line_end(&line), LP_OK);
        lp_arena_free(&arena);
        lp_text_free(&text);
    }
}

static void a_reader_that_stops_is_heard(void **state)
{
    (void)state;
    lp_trace *t = fix_trace(false);
    lp_error err = {0};
    assert_int_equal(lp_trace_dump(t, refuse_text, NULL, &err), LP_E_IO);
    lp_trace_close(t);
}

static lp_status work(const lp_text *text, const lp_platform *platform, lp_text *out, lp_error *err)
{
    lp_trace *t = NULL;
    LP_TRY(lp_trace_undump(&t, text->data, (size_t)text->bytes, platform, err));
    out->bytes = 0;
    const lp_status status = lp_trace_dump(t, append, out, err);
    lp_trace_close(t);
    return status;
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    fix_faults f = {0};
    const lp_alloc alloc = {.size = sizeof alloc, .context = &f, .resize = fix_resize};
    const lp_platform platform = {.alloc = &alloc};
    lp_trace *t = fix_trace(false);
    lp_text text = dump(t, true), out;
    lp_text_init(&out, NULL);
    lp_error err = {0};
    assert_int_equal(work(&text, &platform, &out, &err), LP_OK);
    const int64_t allocations = f.allocations;
    int survived = 0;
    assert_int_equal(f.live, 0);
    for (int64_t n = 1; n <= allocations; n++) {
        f = (fix_faults){.fail_allocation = n};
        const lp_status status = work(&text, &platform, &out, &err);
        survived += status == LP_OK;
        if (status != LP_E_MEMORY && status != LP_OK)
            print_error("allocation %lld: %s: %s\n", (long long)n, lp_status_name(status), err.text);
        assert_true(status == LP_E_MEMORY || status == LP_OK);
        assert_int_equal(f.live, 0);
    }
    assert_true(survived <= 1); /* the catalogue's name table, without which names are found more slowly */
    printf("%lld allocations failed in turn\n", (long long)allocations);
    lp_text_free(&out);
    lp_text_free(&text);
    lp_trace_close(t);
}

/* A text of n names, each used once; the seconds that reading takes. */
static double seconds_for(int n)
{
    lp_text text;
    lp_text_init(&text, NULL);
    lp_text_format(&text, "loadplan-trace 1000\nlayout pp=1 dp=1 tp=1 ep=0\n");
    for (int i = 0; i < n; i++)
        lp_text_format(&text, "name \"n.%07d\" U8 [64]\n", i);
    lp_text_format(&text, "scope pp=0 dp=0 tp=0\ndest \"d\" U8 [%d] bytes=%d group=\"root\"\n", 64 * n, 64 * n);
    for (int i = 0; i < n; i++)
        lp_text_format(&text, "copy \"n.%07d\" -> \"d\" src=0 dst=%d map=64\n", i, 64 * i);
    lp_text_format(&text, "END names=%d scopes=1 records=%d derives=0 refusals=0\n", n, n);
    assert_false(text.failed);
    lp_trace *t;
    const double begin = processor_seconds();
    FIX_OK(lp_trace_undump(&t, text.data, (size_t)text.bytes, NULL, &fix_err));
    const double seconds = processor_seconds() - begin;
    lp_trace_close(t);
    lp_text_free(&text);
    return seconds;
}

static void reading_takes_linear_time(void **state)
{
    (void)state;
    assert_grows_linearly(seconds_for, 5000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_and_back_is_the_same),      cmocka_unit_test(provenance_can_be_left_out),
        cmocka_unit_test(lines_read_like_this),           cmocka_unit_test(wrong_lines_are_refused_by_number),
        cmocka_unit_test(cut_texts_are_refused),          cmocka_unit_test(an_edited_text_is_another_trace),
        cmocka_unit_test(strings_of_all_kinds_come_back), cmocka_unit_test(a_reader_that_stops_is_heard),
        cmocka_unit_test(every_allocation_may_fail),      cmocka_unit_test(reading_takes_linear_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
