/* SPDX-License-Identifier: Apache-2.0 */
/* UTF-8: validation and encoding. */
#include "traces/json_pull.h"

bool lp_utf8_is_valid(const char *text, size_t bytes, size_t *bad_off)
{
    const unsigned char *p = (const unsigned char *)text;
    size_t i = 0;
    while (i < bytes) {
        uint64_t word;
        if (bytes - i >= sizeof word) {
            memcpy(&word, p + i, sizeof word);
            if ((word & 0x8080808080808080u) == 0) {
                i += sizeof word;
                continue;
            }
        }
        if (p[i] < 0x80) {
            i++;
            continue;
        }
        /* The second byte carries the rules against overlong forms, surrogates and codes beyond 10FFFF. */
        size_t tail;
        unsigned char low = 0x80, high = 0xbf;
        if (p[i] >= 0xc2 && p[i] <= 0xdf) {
            tail = 1;
        } else if (p[i] >= 0xe0 && p[i] <= 0xef) {
            tail = 2;
            low = p[i] == 0xe0 ? 0xa0 : 0x80;
            high = p[i] == 0xed ? 0x9f : 0xbf;
        } else if (p[i] >= 0xf0 && p[i] <= 0xf4) {
            tail = 3;
            low = p[i] == 0xf0 ? 0x90 : 0x80;
            high = p[i] == 0xf4 ? 0x8f : 0xbf;
        } else {
            *bad_off = i;
            return false;
        }
        bool is_good = bytes - i > tail && p[i + 1] >= low && p[i + 1] <= high;
        for (size_t k = 2; is_good && k <= tail; k++)
            is_good = (p[i + k] & 0xc0) == 0x80;
        if (!is_good) {
            *bad_off = i;
            return false;
        }
        i += tail + 1;
    }
    return true;
}

const char *lp_utf8_text(char *buffer, size_t buffer_bytes, const char *text)
{
    const size_t bytes = strlen(text);
    size_t bad_off;
    if (lp_utf8_is_valid(text, bytes, &bad_off))
        return text;
    lp_sanitise(buffer, buffer_bytes, text, bytes);
    return buffer;
}

size_t lp_utf8_encode(char out[4], uint32_t code)
{
    if (code < 0x80) {
        out[0] = (char)code;
        return 1;
    }
    if (code < 0x800) {
        out[0] = (char)(0xc0 | code >> 6);
        out[1] = (char)(0x80 | (code & 0x3f));
        return 2;
    }
    if (code < 0x10000) {
        out[0] = (char)(0xe0 | code >> 12);
        out[1] = (char)(0x80 | (code >> 6 & 0x3f));
        out[2] = (char)(0x80 | (code & 0x3f));
        return 3;
    }
    out[0] = (char)(0xf0 | code >> 18);
    out[1] = (char)(0x80 | (code >> 12 & 0x3f));
    out[2] = (char)(0x80 | (code >> 6 & 0x3f));
    out[3] = (char)(0x80 | (code & 0x3f));
    return 4;
}
