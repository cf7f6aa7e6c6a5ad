/* SPDX-License-Identifier: Apache-2.0 */
/* Text: builder, sanitising of names from files, numbers for people, and the streamed SHA-256. */
#include "traces/base.h"

#include <inttypes.h>
#include <openssl/evp.h>
#include <pthread.h>
#include <stdio.h>

#define STRINGIFY_(x) #x
#define STRINGIFY(x)  STRINGIFY_(x)

const char *lp_version(void)
{
    return STRINGIFY(LP_VERSION_MAJOR) "." STRINGIFY(LP_VERSION_MINOR) "." STRINGIFY(LP_VERSION_PATCH);
}

void lp_text_init(lp_text *t, const lp_alloc *alloc)
{
    *t = (lp_text){.alloc = alloc};
}

void lp_text_add(lp_text *t, const char *data, size_t bytes)
{
    if (t->failed || bytes > INT64_MAX / 4 ||
        !lp_grow(t->alloc, (void **)&t->data, &t->capacity, t->bytes + (int64_t)bytes + 1, 1)) {
        t->failed = true;
        return;
    }
    if (bytes > 0)
        memcpy(t->data + t->bytes, data, bytes);
    t->bytes += (int64_t)bytes;
    t->data[t->bytes] = '\0';
}

void lp_text_format(lp_text *t, const char *format, ...)
{
    char small[256];
    va_list args;
    va_start(args, format);
    const int n = vsnprintf(small, sizeof small, format, args);
    va_end(args);
    if (n < 0) {
        t->failed = true;
        return;
    }
    if ((size_t)n < sizeof small) {
        lp_text_add(t, small, (size_t)n);
        return;
    }
    if (t->failed || !lp_grow(t->alloc, (void **)&t->data, &t->capacity, t->bytes + n + 1, 1)) {
        t->failed = true;
        return;
    }
    va_start(args, format);
    vsnprintf(t->data + t->bytes, (size_t)n + 1, format, args);
    va_end(args);
    t->bytes += n;
}

void lp_text_free(lp_text *t)
{
    lp_release(t->alloc, t->data);
    *t = (lp_text){.alloc = t->alloc};
}

/* What a terminal or a page obeys, or shows as nothing: C1 controls, marks of direction and joining, line separators,
 * invisible operators, annotations, tags. */
static bool is_control(uint32_t code)
{
    static const struct {
        uint32_t first, last;
    } range[] = {{0x80, 0x9f},     {0xad, 0xad},       {0x61c, 0x61c},        {0x180e, 0x180e},
                 {0x200b, 0x200f}, {0x2028, 0x202e},   {0x2060, 0x206f},      {0xfeff, 0xfeff},
                 {0xfff9, 0xfffb}, {0xe0000, 0xe0fff}, {0x110000, UINT32_MAX}};
    for (size_t i = 0; i < sizeof range / sizeof *range; i++)
        if (code >= range[i].first && code <= range[i].last)
            return true;
    return false;
}

/* Length of the valid UTF-8 sequence at p (n bytes are left), or 0. Overlong forms, surrogates and C1 controls are not
 * taken: they are escaped. */
static size_t printable_sequence(const unsigned char *p, size_t n)
{
    if (p[0] >= 0x20 && p[0] < 0x7f)
        return 1;
    size_t length;
    uint32_t code;
    if (p[0] >= 0xc2 && p[0] <= 0xdf) {
        length = 2;
        code = p[0] & 0x1fu;
    } else if (p[0] >= 0xe0 && p[0] <= 0xef) {
        length = 3;
        code = p[0] & 0x0fu;
    } else if (p[0] >= 0xf0 && p[0] <= 0xf4) {
        length = 4;
        code = p[0] & 0x07u;
    } else {
        return 0;
    }
    if (length > n)
        return 0;
    for (size_t i = 1; i < length; i++) {
        if ((p[i] & 0xc0) != 0x80)
            return 0;
        code = code << 6 | (p[i] & 0x3fu);
    }
    const bool overlong = (length == 3 && code < 0x800) || (length == 4 && code < 0x10000);
    const bool surrogate = code >= 0xd800 && code <= 0xdfff;
    const bool control = is_control(code);
    return overlong || surrogate || control ? 0 : length;
}

/* What runners of CI take for a command to them: "::error::" at the start of a line, "##[" and "##vso[" anywhere. */
static bool is_runner_command(const unsigned char *p, size_t n, bool at_start)
{
    return (at_start && n >= 2 && memcmp(p, "::", 2) == 0) || (n >= 3 && memcmp(p, "##[", 3) == 0) ||
           (n >= 6 && memcmp(p, "##vso[", 6) == 0);
}

size_t lp_sanitise(char *out, size_t out_bytes, const char *text, size_t text_bytes)
{
    size_t whole = 0, room = out_bytes > 0 ? out_bytes - 1 : 0, kept = 0;
    bool full = false;
    for (size_t i = 0; i < text_bytes;) {
        const unsigned char *p = (const unsigned char *)text + i;
        const size_t left = text_bytes - i;
        const size_t length = is_runner_command(p, left, i == 0) ? 0 : printable_sequence(p, left);
        char piece[8];
        size_t piece_bytes;
        if (length > 0) {
            memcpy(piece, p, length);
            piece_bytes = length;
            i += length;
        } else {
            snprintf(piece, sizeof piece, "\\x%02x", p[0]);
            piece_bytes = 4;
            i += 1;
        }
        if (!full && kept + piece_bytes <= room) {
            memcpy(out + kept, piece, piece_bytes);
            kept += piece_bytes;
        } else {
            full = true;
        }
        whole += piece_bytes;
    }
    if (out_bytes > 0)
        out[kept] = '\0';
    return whole;
}

const char *lp_format_bytes(char buffer[32], int64_t bytes)
{
    static const char *const unit[] = {"KiB", "MiB", "GiB", "TiB", "PiB"};
    if (bytes < 1024) {
        snprintf(buffer, 32, "%" PRId64 " B", bytes);
        return buffer;
    }
    double value = (double)bytes / 1024;
    size_t u = 0;
    while (value >= 1023.95 && u + 1 < sizeof unit / sizeof unit[0]) {
        value /= 1024;
        u++;
    }
    snprintf(buffer, 32, "%.1f %s", value, unit[u]);
    return buffer;
}

const char *lp_format_count(char buffer[32], int64_t count)
{
    char digits[24];
    const int n = snprintf(digits, sizeof digits, "%" PRId64, count);
    int out = 0;
    for (int i = 0; i < n && out < 30; i++) {
        if (i > 0 && (n - i) % 3 == 0 && digits[i - 1] != '-')
            buffer[out++] = ',';
        buffer[out++] = digits[i];
    }
    buffer[out] = '\0';
    return buffer;
}

void lp_format_hex(char *out, const uint8_t *data, size_t bytes)
{
    static const char digit[] = "0123456789abcdef";
    for (size_t i = 0; i < bytes; i++) {
        out[2 * i] = digit[data[i] >> 4];
        out[2 * i + 1] = digit[data[i] & 15];
    }
    out[2 * bytes] = '\0';
}

/* Looking the algorithm up takes longer than digesting a short text. Lives as long as the process. */
static EVP_MD *sha256;

static void look_up_sha256(void)
{
    sha256 = EVP_MD_fetch(NULL, "SHA2-256", NULL);
}

void lp_sha256_begin(lp_sha256 *h)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)pthread_once(&once, look_up_sha256);
    EVP_MD_CTX *state = EVP_MD_CTX_new();
    h->state = state;
    h->failed = state == NULL || sha256 == NULL || EVP_DigestInit_ex(state, sha256, NULL) != 1;
}

void lp_sha256_add(lp_sha256 *h, const void *data, size_t bytes)
{
    if (!h->failed && EVP_DigestUpdate(h->state, data, bytes) != 1)
        h->failed = true;
}

void lp_sha256_i64(lp_sha256 *h, int64_t value)
{
    uint8_t raw[8];
    for (int i = 0; i < 8; i++)
        raw[i] = (uint8_t)((uint64_t)value >> (8 * i));
    lp_sha256_add(h, raw, sizeof raw);
}

void lp_sha256_text(lp_sha256 *h, const char *text)
{
    const size_t bytes = strlen(text);
    lp_sha256_i64(h, (int64_t)bytes);
    lp_sha256_add(h, text, bytes);
}

bool lp_sha256_end(lp_sha256 *h, uint8_t digest[32])
{
    if (!h->failed && EVP_DigestFinal_ex(h->state, digest, NULL) != 1)
        h->failed = true;
    if (h->failed)
        memset(digest, 0, 32);
    EVP_MD_CTX_free(h->state);
    h->state = NULL;
    return !h->failed;
}
