/* SPDX-License-Identifier: Apache-2.0 */
/* Strings and numbers of the text form of traces. */
#include "traces/dump_text.h"

#include "traces/json_pull.h"

#include <inttypes.h>
#include <stdio.h>

const char *const lp_dest_flag_names[LP_DEST_FLAG_NAMES] = {"no_loader", "tied", "dummy", "buffer"};
const char *const lp_prov_flag_names[LP_PROV_FLAG_NAMES] = {"materialises", "implicit_cast"};

/* ---- writing ---- */

/* Length of the UTF-8 sequence at p, of which `left` bytes are there, and its code point; 0 when it is none. */
static size_t decode(const unsigned char *p, size_t left, uint32_t *code)
{
    const size_t bytes = p[0] < 0x80 ? 1 : p[0] < 0xe0 ? 2 : p[0] < 0xf0 ? 3 : 4;
    size_t bad_off;
    if (bytes > left || !lp_utf8_is_valid((const char *)p, bytes, &bad_off))
        return 0;
    static const uint8_t mask[] = {0, 0x7f, 0x1f, 0x0f, 0x07};
    *code = p[0] & mask[bytes];
    for (size_t i = 1; i < bytes; i++)
        *code = *code << 6 | (p[i] & 0x3fu);
    return bytes;
}

void lp_dump_string(lp_text *out, const char *text)
{
    const unsigned char *p = (const unsigned char *)text;
    size_t left = strlen(text);
    lp_text_add(out, "\"", 1);
    while (left > 0) {
        size_t plain = 0;
        while (plain < left && p[plain] >= 0x20 && p[plain] < 0x7f && p[plain] != '"' && p[plain] != '\\')
            plain++;
        lp_text_add(out, (const char *)p, plain);
        p += plain;
        left -= plain;
        if (left == 0)
            break;
        uint32_t code = 0;
        const size_t bytes = decode(p, left, &code);
        if (bytes == 0)
            lp_text_format(out, "\\x%02x", p[0]);
        else if (code == '"' || code == '\\')
            lp_text_format(out, "\\%c", (char)code);
        else if (code == '\n')
            lp_text_add(out, "\\n", 2);
        else if (code < 0x10000)
            lp_text_format(out, "\\u%04x", code);
        else
            lp_text_format(out, "\\u%04x\\u%04x", 0xd7c0 + (code >> 10), 0xdc00 + (code & 0x3ff));
        p += bytes > 0 ? bytes : 1;
        left -= bytes > 0 ? bytes : 1;
    }
    lp_text_add(out, "\"", 1);
}

void lp_dump_numbers(lp_text *out, const int64_t *number, int32_t count)
{
    lp_text_add(out, "[", 1);
    for (int32_t i = 0; i < count; i++)
        lp_text_format(out, "%s%" PRId64, i > 0 ? "," : "", number[i]);
    lp_text_add(out, "]", 1);
}

void lp_dump_flags(lp_text *out, const char *const *names, int count, uint32_t flags)
{
    const char *between = "";
    for (int bit = 0; bit < count; bit++)
        if (flags >> bit & 1) {
            lp_text_format(out, "%s%s", between, names[bit]);
            between = "+";
        }
    if (flags >> count != 0)
        lp_text_format(out, "%s%" PRIu32, between, flags >> count << count);
}

/* ---- reading ---- */

bool lp_line_next(lp_line *l)
{
    while (l->next < l->stop) {
        const char *newline = memchr(l->next, '\n', (size_t)(l->stop - l->next));
        l->at = l->next;
        l->end = newline != NULL ? newline : l->stop;
        l->next = newline != NULL ? newline + 1 : l->stop;
        l->number++;
        if (l->end > l->at && l->at[0] != '#')
            return true;
    }
    l->at = l->end = l->stop;
    return false;
}

lp_status lp_line_fail(const lp_line *l, const char *format, ...)
{
    char text[400];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return lp_fail(l->err, LP_E_CORRUPT, "line %" PRId64 ": %s", l->number, text);
}

lp_status lp_line_pass(const lp_line *l, int64_t number, lp_status status)
{
    if (status == LP_OK || status == LP_E_MEMORY)
        return status;
    const lp_status code = status == LP_E_ARGUMENT || status == LP_E_MISUSE ? LP_E_CORRUPT : status;
    if (l->err == NULL)
        return code;
    char text[sizeof l->err->text];
    memcpy(text, l->err->text, sizeof text);
    return lp_fail(l->err, code, "line %" PRId64 ": %s", number, text);
}

bool lp_line_take(lp_line *l, const char *text)
{
    const size_t bytes = strlen(text);
    if ((size_t)(l->end - l->at) < bytes || memcmp(l->at, text, bytes) != 0)
        return false;
    l->at += bytes;
    return true;
}

lp_status lp_line_expect(lp_line *l, const char *text)
{
    if (lp_line_take(l, text))
        return LP_OK;
    const int shown = l->end - l->at < 24 ? (int)(l->end - l->at) : 24;
    return lp_line_fail(l, "expected '%s' at '%.*s'", text, shown, l->at);
}

lp_status lp_line_end(lp_line *l)
{
    const int shown = l->end - l->at < 24 ? (int)(l->end - l->at) : 24;
    if (l->at == l->end)
        return LP_OK;
    lp_line_fail(l, "something is left over: '%.*s'", shown, l->at);
    if (*l->at == '\r')
        lp_hint(l->err, "its lines end with CR LF: git keeps them as they are with '*.txt -text' in .gitattributes");
    return LP_E_CORRUPT;
}

lp_status lp_line_word(lp_line *l, const char **word, size_t *bytes)
{
    *word = l->at;
    while (l->at < l->end && *l->at != ' ')
        l->at++;
    *bytes = (size_t)(l->at - *word);
    return *bytes > 0 ? LP_OK : lp_line_fail(l, "a word is missing");
}

lp_status lp_line_integer(lp_line *l, int64_t least, int64_t most, int64_t *value)
{
    const char *start = l->at;
    const bool negative = l->at < l->end && *l->at == '-';
    int64_t n = 0;
    bool fits = true;
    l->at += negative;
    const char *digits = l->at;
    for (; l->at < l->end && *l->at >= '0' && *l->at <= '9'; l->at++) {
        const int64_t digit = *l->at - '0';
        fits = fits && lp_mul(n, 10, &n) && (negative ? lp_sub(n, digit, &n) : lp_add(n, digit, &n));
    }
    if (l->at == digits || !fits || n < least || n > most) {
        const int shown = l->at - start < 24 ? (int)(l->at - start) : 24;
        if (least == INT64_MIN && most == INT64_MAX)
            return lp_line_fail(l, "'%.*s' is no number", shown, start);
        return lp_line_fail(l, "'%.*s' is no number between %" PRId64 " and %" PRId64, shown, start, least, most);
    }
    *value = n;
    return LP_OK;
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* `digits` hex digits. */
static bool take_hex(lp_line *l, int digits, uint32_t *value)
{
    *value = 0;
    if (l->end - l->at < digits)
        return false;
    for (int i = 0; i < digits; i++) {
        const int digit = hex_digit(*l->at++);
        if (digit < 0)
            return false;
        *value = *value << 4 | (uint32_t)digit;
    }
    return true;
}

lp_status lp_line_hex(lp_line *l, uint64_t *value)
{
    LP_TRY(lp_line_expect(l, "0x"));
    int digits = 0;
    *value = 0;
    for (; l->at < l->end && hex_digit(*l->at) >= 0; l->at++, digits++)
        *value = *value << 4 | (uint64_t)hex_digit(*l->at);
    return digits > 0 && digits <= 16 ? LP_OK : lp_line_fail(l, "a hexadecimal number has 1 to 16 digits");
}

/* One escape behind its backslash; 0 bytes: it is none. No escape is longer than what stands for it. */
static size_t unescape(lp_line *l, char *out)
{
    uint32_t code, low;
    if (l->at == l->end)
        return 0;
    switch (*l->at++) {
    case '"':
        out[0] = '"';
        return 1;
    case '\\':
        out[0] = '\\';
        return 1;
    case '/':
        out[0] = '/';
        return 1;
    case 'n':
        out[0] = '\n';
        return 1;
    case 't':
        out[0] = '\t';
        return 1;
    case 'r':
        out[0] = '\r';
        return 1;
    case 'b':
        out[0] = '\b';
        return 1;
    case 'f':
        out[0] = '\f';
        return 1;
    case 'x':
        if (!take_hex(l, 2, &code) || code < 0x80)
            return 0;
        out[0] = (char)code;
        return 1;
    case 'u':
        if (!take_hex(l, 4, &code) || code == 0 || (code >= 0xdc00 && code <= 0xdfff))
            return 0;
        if (code < 0xd800 || code > 0xdbff)
            return lp_utf8_encode(out, code);
        if (!lp_line_take(l, "\\u") || !take_hex(l, 4, &low) || low < 0xdc00 || low > 0xdfff)
            return 0;
        return lp_utf8_encode(out, 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00));
    default:
        return 0;
    }
}

lp_status lp_line_string(lp_line *l, const char **text)
{
    LP_TRY(lp_line_expect(l, "\""));
    const char *stop = l->at;
    while (stop < l->end && *stop != '"')
        stop += *stop == '\\' && stop + 1 < l->end ? 2 : 1;
    if (stop >= l->end)
        return lp_line_fail(l, "a string is not closed");
    char *out = lp_arena_get(l->arena, (size_t)(stop - l->at) + 1);
    if (out == NULL)
        return lp_fail_memory(l->err);
    size_t bytes = 0;
    while (l->at < stop) {
        const unsigned char c = (unsigned char)*l->at;
        if (c == '\\') {
            l->at++;
            const size_t more = unescape(l, out + bytes);
            if (more == 0)
                return lp_line_fail(l, "an escape in a string is not one");
            bytes += more;
        } else if (c < 0x20) {
            return lp_line_fail(l, "a control character in a string");
        } else {
            out[bytes++] = *l->at++;
        }
    }
    out[bytes] = '\0';
    *text = out;
    return lp_line_expect(l, "\"");
}

lp_status lp_line_flags(lp_line *l, const char *const *names, int count, uint32_t *flags)
{
    *flags = 0;
    do {
        const char *start = l->at;
        int bit = 0;
        while (l->at < l->end && *l->at != '+' && *l->at != ' ')
            l->at++;
        const size_t bytes = (size_t)(l->at - start);
        while (bit < count && (strlen(names[bit]) != bytes || memcmp(names[bit], start, bytes) != 0))
            bit++;
        if (bit < count) {
            *flags |= UINT32_C(1) << bit;
            continue;
        }
        int64_t rest;
        l->at = start;
        LP_TRY(lp_line_integer(l, 0, UINT32_MAX, &rest));
        *flags |= (uint32_t)rest;
    } while (lp_line_take(l, "+"));
    return LP_OK;
}

lp_status lp_line_numbers(lp_line *l, int32_t most, const int64_t **number, int32_t *count)
{
    LP_TRY(lp_line_expect(l, "["));
    int64_t room = 1;
    for (const char *p = l->at; p < l->end && *p != ']'; p++)
        room += *p == ',';
    int64_t *out = lp_arena_get(l->arena, (size_t)room * sizeof *out);
    if (out == NULL)
        return lp_fail_memory(l->err);
    *number = out;
    *count = 0;
    if (lp_line_take(l, "]"))
        return LP_OK;
    do {
        if (*count >= most)
            return lp_line_fail(l, "more than %" PRId32 " numbers in a list", most);
        LP_TRY(lp_line_integer(l, INT64_MIN, INT64_MAX, &out[(*count)++]));
    } while (lp_line_take(l, ","));
    return lp_line_expect(l, "]");
}
