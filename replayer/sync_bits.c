/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One byte says how: RAW, then the bits; or RUNS, then the lengths of runs, the first of clear bits, which may have
 * none, seven bits a byte, low ones first, the high bit set in all bytes of a length but its last.
 */
#include "replayer/sync_bits.h"

enum { RAW = 0, RUNS = 1, LENGTH_BYTES = 9 };

static bool bit_of(const uint8_t *map, int64_t i)
{
    return map != NULL && (map[i / 8] >> (i % 8) & 1) != 0;
}

/* First bit from `i` on that is not as bit i. */
static int64_t run_end(const uint8_t *map, int64_t i, int64_t bits)
{
    const bool is = bit_of(map, i);
    const uint8_t all = is ? 0xff : 0;
    if (map == NULL)
        return bits;
    while (i < bits && bit_of(map, i) == is)
        i += i % 8 == 0 && i + 8 <= bits && map[i / 8] == all ? 8 : 1;
    return i;
}

static void put_length(lp_text *out, int64_t length)
{
    char byte[LENGTH_BYTES + 1];
    size_t count = 0;
    for (; length >= 0x80; length >>= 7)
        byte[count++] = (char)(uint8_t)(0x80 | (length & 0x7f));
    byte[count++] = (char)length;
    lp_text_add(out, byte, count);
}

void lp_bits_put(const uint8_t *map, int64_t bits, lp_text *out)
{
    const int64_t raw = (bits + 7) / 8;
    const char form[2] = {RAW, RUNS};
    lp_text runs;
    lp_text_init(&runs, out->alloc);
    if (bits > 0 && bit_of(map, 0))
        put_length(&runs, 0);
    for (int64_t i = 0; i < bits && runs.bytes < raw && !runs.failed;) {
        const int64_t end = run_end(map, i, bits);
        put_length(&runs, end - i);
        i = end;
    }
    if (runs.bytes < raw || map == NULL) {
        lp_text_add(out, &form[1], 1);
        lp_text_add(out, runs.data, (size_t)runs.bytes);
    } else {
        lp_text_add(out, &form[0], 1);
        lp_text_add(out, (const char *)map, (size_t)raw);
    }
    out->failed = out->failed || runs.failed;
    lp_text_free(&runs);
}

/* -1: there is none. */
static int64_t get_length(const uint8_t *data, int64_t bytes, int64_t *at)
{
    int64_t length = 0;
    for (int k = 0; k < LENGTH_BYTES && *at < bytes; k++) {
        const uint8_t byte = data[(*at)++];
        length |= (int64_t)(byte & 0x7f) << (7 * k);
        if (byte < 0x80)
            return length;
    }
    return -1;
}

static void set_run(uint8_t *map, int64_t lo, int64_t hi)
{
    for (int64_t i = lo; i < hi;) {
        if (i % 8 == 0 && i + 8 <= hi) {
            map[i / 8] = 0xff;
            i += 8;
        } else {
            map[i / 8] = (uint8_t)(map[i / 8] | 1u << (i % 8));
            i++;
        }
    }
}

static lp_status get_runs(const uint8_t *data, int64_t bytes, int64_t *at, uint8_t *map, int64_t bits, lp_error *err)
{
    bool is_set = false;
    for (int64_t i = 0; i < bits; is_set = !is_set) {
        const bool is_first = i == 0 && !is_set;
        const int64_t length = get_length(data, bytes, at);
        if (length < (is_first ? 0 : 1) || length > bits - i)
            return lp_fail(err, LP_E_CORRUPT, "a list of names that came is damaged");
        if (is_set)
            set_run(map, i, i + length);
        i += length;
    }
    return LP_OK;
}

lp_status lp_bits_get(const uint8_t *data, int64_t bytes, int64_t *at, uint8_t *map, int64_t bits, lp_error *err)
{
    const int64_t raw = (bits + 7) / 8;
    const int form = *at < bytes ? data[(*at)++] : -1;
    if (raw > 0)
        memset(map, 0, (size_t)raw);
    if (form == RUNS)
        return get_runs(data, bytes, at, map, bits, err);
    if (form != RAW || bytes - *at < raw)
        return lp_fail(err, LP_E_CORRUPT, "a list of names that came is damaged");
    if (raw > 0)
        memcpy(map, data + *at, (size_t)raw);
    *at += raw;
    return LP_OK;
}
