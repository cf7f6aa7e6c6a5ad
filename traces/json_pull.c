/* SPDX-License-Identifier: Apache-2.0 */
/* The strict pull parser: see json_pull.h. */
#include "traces/json_pull.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { DEPTH_MAX = 127 };

void lp_json_init(lp_json *j, const char *text, int64_t bytes, const lp_alloc *alloc, lp_error *err)
{
    *j = (lp_json){.text = text, .bytes = bytes, .what = "JSON", .path = "", .err = err, .alloc = alloc};
}

void lp_json_free(lp_json *j)
{
    lp_release(j->alloc, j->scratch);
    j->scratch = NULL;
    j->scratch_capacity = 0;
}

const char *lp_show_name(char buffer[160], const char *name, size_t bytes)
{
    const size_t whole = lp_sanitise(buffer, 157, name, bytes);
    if (whole > 156)
        memcpy(buffer + strlen(buffer), "...", 4);
    return buffer;
}

lp_status lp_json_fail(lp_json *j, int64_t off, const char *format, ...)
{
    char reason[256], name[160];
    va_list args;
    va_start(args, format);
    vsnprintf(reason, sizeof reason, format, args);
    va_end(args);
    const int64_t at = j->base + off;
    if (j->tensor == NULL)
        return lp_fail_at(j->err, LP_E_CORRUPT, j->path, at, "bad %s in '%s' at byte %lld: %s", j->what, j->path,
                          (long long)at, reason);
    return lp_fail_at(j->err, LP_E_CORRUPT, j->path, at, "bad %s in '%s' at byte %lld: tensor '%s': %s", j->what,
                      j->path, (long long)at, lp_show_name(name, j->tensor, j->tensor_bytes), reason);
}

static void skip_space(lp_json *j)
{
    while (j->off < j->bytes) {
        const char c = j->text[j->off];
        if (c != ' ' && c != '\n' && c != '\r' && c != '\t')
            return;
        j->off++;
    }
}

char lp_json_peek(lp_json *j)
{
    skip_space(j);
    return j->off < j->bytes ? j->text[j->off] : '\0';
}

/* Says what stands where something else was expected. */
static lp_status unexpected(lp_json *j, const char *expected)
{
    if (j->off >= j->bytes)
        return lp_json_fail(j, j->off, "the text ends where %s was expected", expected);
    const unsigned char c = (unsigned char)j->text[j->off];
    if (c > 0x20 && c < 0x7f)
        return lp_json_fail(j, j->off, "found '%c' where %s was expected", c, expected);
    return lp_json_fail(j, j->off, "found byte 0x%02x where %s was expected", c, expected);
}

static lp_status take(lp_json *j, char c, const char *expected)
{
    if (lp_json_peek(j) != c || j->off >= j->bytes)
        return unexpected(j, expected);
    j->off++;
    return LP_OK;
}

lp_status lp_json_enter(lp_json *j, char open)
{
    LP_TRY(take(j, open, open == '{' ? "an object" : "an array"));
    if (j->depth >= DEPTH_MAX)
        return lp_json_fail(j, j->off - 1, "nested more than %d deep", DEPTH_MAX);
    j->depth++;
    return LP_OK;
}

lp_status lp_json_next(lp_json *j, char close, bool is_first, bool *more)
{
    const char c = lp_json_peek(j);
    *more = true;
    if (c == close) {
        j->off++;
        j->depth--;
        *more = false;
        return LP_OK;
    }
    if (is_first)
        return LP_OK;
    LP_TRY(take(j, ',', close == '}' ? "',' or '}'" : "',' or ']'"));
    if (lp_json_peek(j) == close)
        return lp_json_fail(j, j->off, "comma before '%c'", close);
    return LP_OK;
}

/* ---- strings ---- */

static lp_status hex4(lp_json *j, int64_t off, uint32_t *code)
{
    uint32_t value = 0;
    for (int i = 0; i < 4; i++) {
        const char c = off + i < j->bytes ? j->text[off + i] : '\0';
        uint32_t digit;
        if (c >= '0' && c <= '9')
            digit = (uint32_t)(c - '0');
        else if (c >= 'a' && c <= 'f')
            digit = (uint32_t)(c - 'a') + 10;
        else if (c >= 'A' && c <= 'F')
            digit = (uint32_t)(c - 'A') + 10;
        else
            return lp_json_fail(j, off, "\\u needs four hexadecimal digits");
        value = value << 4 | digit;
    }
    *code = value;
    return LP_OK;
}

/* The escape behind the backslash at *off: writes what it means, moves *off behind it. */
static lp_status unescape(lp_json *j, int64_t *off, char *out, size_t *out_bytes)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    const int64_t start = *off;
    const char c = start + 1 < j->bytes ? j->text[start + 1] : '\0';
    const char *simple = c != '\0' ? strchr(from, c) : NULL;
    if (simple != NULL) {
        *out = to[simple - from];
        *out_bytes = 1;
        *off = start + 2;
        return LP_OK;
    }
    if (c != 'u')
        return lp_json_fail(j, start, "unknown escape in a string");
    uint32_t code = 0;
    LP_TRY(hex4(j, start + 2, &code));
    *off = start + 6;
    if (code >= 0xd800 && code <= 0xdfff) {
        uint32_t low = 0;
        if (code >= 0xdc00 || *off + 1 >= j->bytes || j->text[*off] != '\\' || j->text[*off + 1] != 'u')
            return lp_json_fail(j, start, "lone surrogate in a string");
        LP_TRY(hex4(j, *off + 2, &low));
        if (low < 0xdc00 || low > 0xdfff)
            return lp_json_fail(j, start, "lone surrogate in a string");
        code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
        *off += 6;
    }
    *out_bytes = lp_utf8_encode(out, code);
    return LP_OK;
}

/* The string from `start` (behind its quote) on, whose first escape is at `off`. */
static lp_status escaped_string(lp_json *j, int64_t start, int64_t off, const char **text, size_t *bytes)
{
    size_t n = 0;
    int64_t plain = start; /* where the run of plain characters began that is not copied yet */
    for (;;) {
        const unsigned char c = off < j->bytes ? (unsigned char)j->text[off] : 0;
        if (c >= 0x20 && c != '"' && c != '\\') {
            off++;
            continue;
        }
        const size_t run = (size_t)(off - plain);
        if (!lp_grow(j->alloc, (void **)&j->scratch, &j->scratch_capacity, (int64_t)(n + run) + 4, 1))
            return lp_fail_memory(j->err);
        memcpy(j->scratch + n, j->text + plain, run);
        n += run;
        if (c == '"')
            break;
        if (c != '\\')
            return lp_json_fail(j, off, off < j->bytes ? "control character in a string" : "a string does not end");
        size_t piece = 0;
        LP_TRY(unescape(j, &off, j->scratch + n, &piece));
        n += piece;
        plain = off;
    }
    *text = j->scratch;
    *bytes = n;
    j->off = off + 1;
    return LP_OK;
}

lp_status lp_json_string(lp_json *j, const char **text, size_t *bytes)
{
    LP_TRY(take(j, '"', "a string"));
    const int64_t start = j->off;
    for (int64_t off = start; off < j->bytes; off++) {
        const unsigned char c = (unsigned char)j->text[off];
        if (c == '"') {
            *text = j->text + start;
            *bytes = (size_t)(off - start);
            j->off = off + 1;
            return LP_OK;
        }
        if (c == '\\')
            return escaped_string(j, start, off, text, bytes);
        if (c < 0x20)
            return lp_json_fail(j, off, "control character in a string");
    }
    return lp_json_fail(j, j->bytes, "a string does not end");
}

lp_status lp_json_key(lp_json *j, const char **text, size_t *bytes)
{
    LP_TRY(lp_json_string(j, text, bytes));
    return take(j, ':', "':'");
}

/* ---- numbers and literals ---- */

static bool is_digit(const lp_json *j, int64_t off)
{
    return off < j->bytes && j->text[off] >= '0' && j->text[off] <= '9';
}

typedef struct number {
    int64_t digits, digits_end;     /* before the point */
    int64_t fraction, fraction_end; /* behind it */
    int64_t exponent;               /* clamped */
    bool is_plain;                  /* digits only */
} number;

static lp_status scan_number(lp_json *j, number *n)
{
    lp_json_peek(j);
    const int64_t start = j->off;
    int64_t off = start;
    *n = (number){.is_plain = true};
    if (off < j->bytes && j->text[off] == '-') {
        n->is_plain = false;
        off++;
    }
    n->digits = off;
    if (!is_digit(j, off))
        return off == start ? unexpected(j, "a number") : lp_json_fail(j, start, "a number needs digits");
    if (j->text[off] == '0' && is_digit(j, off + 1))
        return lp_json_fail(j, start, "a number begins with 0");
    while (is_digit(j, off))
        off++;
    n->digits_end = n->fraction = n->fraction_end = off;
    if (off < j->bytes && j->text[off] == '.') {
        n->is_plain = false;
        n->fraction = ++off;
        while (is_digit(j, off))
            off++;
        n->fraction_end = off;
        if (n->fraction == off)
            return lp_json_fail(j, start, "a number needs digits after its point");
    }
    if (off < j->bytes && (j->text[off] == 'e' || j->text[off] == 'E')) {
        n->is_plain = false;
        off++;
        const bool negative = off < j->bytes && j->text[off] == '-';
        if (off < j->bytes && (j->text[off] == '-' || j->text[off] == '+'))
            off++;
        if (!is_digit(j, off))
            return lp_json_fail(j, start, "a number needs digits in its exponent");
        for (; is_digit(j, off); off++)
            if (n->exponent < INT32_MAX)
                n->exponent = n->exponent * 10 + (j->text[off] - '0');
        if (negative)
            n->exponent = -n->exponent;
    }
    j->off = off;
    return LP_OK;
}

/* Appends a decimal digit; false, and *value untouched, when that overflows. */
static bool append_digit(uint64_t *value, char digit)
{
    uint64_t v;
    if (__builtin_mul_overflow(*value, 10u, &v) || __builtin_add_overflow(v, (uint64_t)(digit - '0'), &v))
        return false;
    *value = v;
    return true;
}

/* Whether the number is infinite in the reference reader's arithmetic, which refuses such numbers: the digits that fit
 * 64 bits, times a power of ten, both as doubles. */
static bool is_beyond_double(const lp_json *j, const number *n)
{
    uint64_t significand = 0;
    int64_t i = n->digits, exponent = n->exponent;
    while (i < n->digits_end && append_digit(&significand, j->text[i]))
        i++;
    exponent += n->digits_end - i;
    for (i = n->fraction; i < n->fraction_end && append_digit(&significand, j->text[i]); i++)
        exponent--;
    if (significand == 0 || exponent < 0)
        return false;
    if (exponent > 308)
        return true;
    char power[8];
    snprintf(power, sizeof power, "1e%d", (int)exponent);
    return isinf((double)significand * strtod(power, NULL));
}

lp_status lp_json_u64(lp_json *j, uint64_t *value)
{
    lp_json_peek(j);
    const int64_t start = j->off;
    number n;
    LP_TRY(scan_number(j, &n));
    if (!n.is_plain)
        return lp_json_fail(j, start, "not an unsigned integer");
    uint64_t v = 0;
    for (int64_t i = n.digits; i < n.digits_end; i++)
        if (!append_digit(&v, j->text[i]))
            return lp_json_fail(j, start, "an integer beyond 64 bits");
    *value = v;
    return LP_OK;
}

static lp_status literal(lp_json *j, const char *word)
{
    const size_t bytes = strlen(word);
    if ((size_t)(j->bytes - j->off) < bytes || memcmp(j->text + j->off, word, bytes) != 0)
        return unexpected(j, "a value");
    j->off += (int64_t)bytes;
    return LP_OK;
}

lp_status lp_json_null(lp_json *j)
{
    lp_json_peek(j);
    return literal(j, "null");
}

static lp_status skip_container(lp_json *j, char open) /* at most DEPTH_MAX deep */
{
    const char close = open == '{' ? '}' : ']';
    const char *key;
    size_t key_bytes;
    bool more;
    LP_TRY(lp_json_enter(j, open));
    for (bool first = true;; first = false) {
        LP_TRY(lp_json_next(j, close, first, &more));
        if (!more)
            return LP_OK;
        if (open == '{')
            LP_TRY(lp_json_key(j, &key, &key_bytes));
        LP_TRY(lp_json_skip(j));
    }
}

lp_status lp_json_skip(lp_json *j)
{
    const char c = lp_json_peek(j);
    const char *text;
    size_t bytes;
    switch (c) {
    case '{':
    case '[':
        return skip_container(j, c);
    case '"':
        return lp_json_string(j, &text, &bytes);
    case 't':
        return literal(j, "true");
    case 'f':
        return literal(j, "false");
    case 'n':
        return literal(j, "null");
    default:
        break;
    }
    if (c != '-' && (c < '0' || c > '9'))
        return unexpected(j, "a value");
    const int64_t start = j->off;
    number n;
    LP_TRY(scan_number(j, &n));
    return is_beyond_double(j, &n) ? lp_json_fail(j, start, "a number beyond a double") : LP_OK;
}

lp_status lp_json_end(lp_json *j)
{
    lp_json_peek(j);
    return j->off < j->bytes ? unexpected(j, "the end") : LP_OK;
}
