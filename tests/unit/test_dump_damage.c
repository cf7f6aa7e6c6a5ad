/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The text form of a trace with one word, number or mark of a line gone or another: it is refused by the number of that
 * line or a later one, or it is a text like any other, which is written again as it was read.
 */
#define FIX_SMALL
#include "trace_fixture.h"

#include "traces/trace_dump.h"

#include <ctype.h>
#include <string.h>

static int append(void *context, const char *text, size_t bytes)
{
    lp_text_add(context, text, bytes);
    return 0;
}

static lp_text dump(const lp_trace *t)
{
    lp_text text;
    lp_text_init(&text, NULL);
    FIX_OK(lp_trace_dump(t, append, &text, &fix_err));
    assert_false(text.failed);
    return text;
}

/* Text of an accepted trace: reading it back and writing it again changes nothing. */
static void must_be_stable(const lp_trace *t, const char *what)
{
    lp_trace *back;
    lp_text first = dump(t), again;
    lp_error err = {0};
    if (lp_trace_undump(&back, first.data, (size_t)first.bytes, NULL, &err) != LP_OK)
        fail_msg("%s: reads, but what is written then does not: %s", what, err.text);
    again = dump(back);
    assert_int_equal(first.bytes, again.bytes);
    assert_memory_equal(first.data, again.data, (size_t)first.bytes);
    lp_trace_close(back);
    lp_text_free(&first);
    lp_text_free(&again);
}

typedef struct lp_count {
    int64_t refused, accepted;
} lp_count;

/* `line` was damaged; rows are judged when their scope, which began at line `scope`, is whole, and are named then. */
static void judge(const lp_text *bad, int line, int scope, const char *what, lp_count *count)
{
    lp_trace *t = NULL;
    lp_error err = {0};
    const lp_status status = lp_trace_undump(&t, bad->data, (size_t)bad->bytes, NULL, &err);
    if (status == LP_OK) {
        must_be_stable(t, what);
        lp_trace_close(t);
        count->accepted++;
        return;
    }
    int told = 0;
    const char *number = strstr(err.text, "line ");
    const bool is_head = line == 1 && (status == LP_E_FORMAT || status == LP_E_VERSION);
    /* What only the whole tells (a size that does not fit, two destinations with one name) has no line. */
    const bool is_whole = number == NULL || sscanf(number, "line %d: ", &told) != 1;
    if (t != NULL || err.code != status || (status != LP_E_CORRUPT && status != LP_E_LIMIT && !is_head))
        fail_msg("%s: %s: %s", what, lp_status_name(status), err.text);
    if (!is_head && !is_whole && told < line && told != scope)
        fail_msg("%s: line %d is blamed: %s", what, told, err.text);
    count->refused++;
}

/* Bytes of the word, number, string or mark that begins here. */
static size_t piece_at(const char *p)
{
    const char *end = p + 1;
    if (*p == '"') {
        for (; *end != '"'; end++)
            end += *end == '\\';
        return (size_t)(end + 1 - p);
    }
    while ((isalnum((unsigned char)*p) || *p == '_') && (isalnum((unsigned char)*end) || *end == '_'))
        end++;
    return (size_t)(end - p);
}

static void damage(const lp_text *text, size_t at, size_t bytes, const char *instead, int line, int scope,
                   lp_count *count)
{
    char what[160];
    lp_text bad;
    lp_text_init(&bad, NULL);
    lp_text_add(&bad, text->data, at);
    lp_text_add(&bad, instead, strlen(instead));
    lp_text_add(&bad, text->data + at + bytes, (size_t)text->bytes - at - bytes);
    snprintf(what, sizeof what, "line %d, '%.*s' -> '%.60s'", line, (int)bytes, text->data + at, instead);
    judge(&bad, line, scope, what, count);
    lp_text_free(&bad);
}

/* Whether a line of this form was damaged already: its words, with every number and string as one. */
static bool is_known_form(lp_strings *known, const char *line)
{
    char form[1024];
    size_t used = 0;
    for (const char *p = line; *p != '\n' && used + 1 < sizeof form; p += piece_at(p))
        form[used++] = isdigit((unsigned char)*p) ? '0' : *p;
    const uint32_t before = (uint32_t)known->count;
    assert_true(lp_strings_add(known, form, used) >= 0);
    return (uint32_t)known->count == before;
}

static void no_word_of_a_line_is_believed(void **state)
{
    (void)state;
    static const char *const numbers[] = {"",  "0", "7", "2147483648", "9223372036854775807", "99999999999999999999",
                                          "-9"};
    static const char *const words[] = {"", "x", " "};
    static const char *const strings[] = {"", "\"\"", "\"x\"", "\"x", "\"\\x\"", "\"a\nb\""};
    lp_trace *t = fix_trace(false);
    lp_text text;
    lp_text_init(&text, NULL);
    FIX_OK(lp_trace_dump_with(t, true, append, &text, &fix_err));
    lp_strings known;
    lp_strings_init(&known, NULL);
    lp_count count = {0};
    int line = 0, scope = 0, forms = 0;
    for (const char *p = text.data; p < text.data + text.bytes; p = strchr(p, '\n') + 1) {
        line++;
        if (strncmp(p, "scope ", 6) == 0)
            scope = line;
        if (*p == '#' || is_known_form(&known, p))
            continue;
        forms++;
        for (size_t bytes; *p != '\n'; p += bytes) {
            bytes = piece_at(p);
            const bool is_number = isdigit((unsigned char)*p) != 0, is_string = *p == '"';
            const char *const *list = is_number ? numbers : is_string ? strings : words;
            const size_t n = is_number   ? sizeof numbers / sizeof *numbers
                             : is_string ? sizeof strings / sizeof *strings
                                         : sizeof words / sizeof *words;
            for (size_t i = 0; i < n; i++)
                damage(&text, (size_t)(p - text.data), bytes, list[i], line, scope, &count);
            damage(&text, (size_t)(p - text.data), (size_t)(strchr(p, '\n') - p), "", line, scope, &count);
        }
    }
    printf("%d forms of lines: %lld texts refused, %lld accepted\n", forms, (long long)count.refused,
           (long long)count.accepted);
    assert_true(forms > 15);
    assert_true(count.refused > 2 * count.accepted);
    lp_strings_free(&known);
    lp_text_free(&text);
    lp_trace_close(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_word_of_a_line_is_believed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
