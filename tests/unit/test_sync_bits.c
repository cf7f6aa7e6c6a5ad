/* SPDX-License-Identifier: Apache-2.0 */
/* Sets of names on the wire: they come back as they were, are short where ranks read what ranks read, and what is
 * damaged is told. */
#include <setjmp.h>
#include <stdarg.h>

#include "replayer/sync_bits.h"
#include "tests/random_numbers.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <cmocka.h>

enum { NAMES = 276480, BYTES = NAMES / 8 };

static uint8_t map[BYTES + 1], back[BYTES + 1];

static void set_bit(int64_t i)
{
    map[i / 8] = (uint8_t)(map[i / 8] | 1u << (i % 8));
}

/* The bytes that it takes; the rest of the last byte counts for nothing. */
static int64_t round_trip(const uint8_t *from, int64_t bits)
{
    lp_text text;
    lp_error err;
    int64_t at = 0;
    lp_text_init(&text, NULL);
    lp_bits_put(from, bits, &text);
    assert_false(text.failed);
    memset(back, 0x5a, sizeof back);
    assert_int_equal(lp_bits_get((const uint8_t *)text.data, text.bytes, &at, back, bits, &err), LP_OK);
    assert_int_equal(at, text.bytes);
    for (int64_t i = 0; i < bits; i++)
        assert_int_equal(back[i / 8] >> (i % 8) & 1, from == NULL ? 0 : from[i / 8] >> (i % 8) & 1);
    if (bits % 8 == 0) /* nothing behind it is touched */
        assert_int_equal(back[bits / 8], 0x5a);
    lp_text_free(&text);
    return at;
}

static void sets_come_back(void **state)
{
    (void)state;
    uint64_t random = (uint64_t)time(NULL);
    printf("seed %llu\n", (unsigned long long)random);
    for (int n = 0; n < 400; n++) {
        random = random_mix(random);
        const int64_t bits = (int64_t)(random % (n % 2 == 0 ? 40 : 4000)), run = (int64_t)(random >> 32) % 70 + 1;
        memset(map, 0, sizeof map);
        for (int64_t i = 0; i < bits; i += run) {
            random = random_mix(random);
            for (int64_t k = i; random % 3 == 0 && k < i + run && k < bits; k++)
                set_bit(k);
        }
        assert_true(round_trip(map, bits) <= (bits + 7) / 8 + 1);
    }
}

static void what_ranks_read_is_short(void **state)
{
    (void)state;
    assert_int_equal(round_trip(NULL, NAMES), 1 + 3);
    memset(map, 0xff, sizeof map);
    assert_int_equal(round_trip(map, NAMES), 1 + 1 + 3);
    /* 60 layers of 384 experts of 12 names: those of one rank of 32 are 144 names in a row in each. */
    memset(map, 0, sizeof map);
    for (int64_t layer = 0; layer < 60; layer++)
        for (int64_t i = 0; i < 144; i++)
            set_bit(layer * 4608 + 7 * 144 + i);
    assert_true(round_trip(map, NAMES) < 300);
    /* Every other name: the bits themselves. */
    memset(map, 0xaa, sizeof map);
    assert_int_equal(round_trip(map, NAMES), 1 + BYTES);
}

static void damage_is_told(void **state)
{
    (void)state;
    lp_text text;
    lp_error err;
    int refused = 0;
    memset(map, 0, sizeof map);
    for (int64_t i = 0; i < 1000; i++)
        if (i % 300 < 50)
            set_bit(i);
    lp_text_init(&text, NULL);
    lp_bits_put(map, 1000, &text);
    for (int64_t bytes = 0; bytes < text.bytes; bytes++) { /* cut short, of exactly that many bytes */
        uint8_t *cut = malloc((size_t)bytes + 1);
        int64_t at = 0;
        assert_non_null(cut);
        memcpy(cut, text.data, (size_t)bytes);
        cut = realloc(cut, bytes == 0 ? 1 : (size_t)bytes);
        assert_int_equal(lp_bits_get(cut, bytes, &at, back, 1000, &err), LP_E_CORRUPT);
        free(cut);
    }
    for (int64_t i = 0; i < text.bytes; i++)
        for (int value = 0; value < 256; value++) {
            uint8_t data[64];
            int64_t at = 0;
            assert_true(text.bytes < (int64_t)sizeof data);
            memcpy(data, text.data, (size_t)text.bytes);
            data[i] = (uint8_t)value;
            back[125] = 0x5a;
            refused += lp_bits_get(data, text.bytes, &at, back, 1000, &err) == LP_E_CORRUPT;
            assert_true(at <= text.bytes && back[125] == 0x5a);
        }
    assert_true(refused > 1000);
    static const uint8_t endless[16] = {1, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80};
    static const uint8_t empty_run[] = {1, 5, 0, 0, 0, 0};
    int64_t at = 0;
    assert_int_equal(lp_bits_get(endless, sizeof endless, &at, back, 1000, &err), LP_E_CORRUPT);
    at = 0;
    assert_int_equal(lp_bits_get(empty_run, sizeof empty_run, &at, back, 1000, &err), LP_E_CORRUPT);
    lp_text_free(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sets_come_back),
        cmocka_unit_test(what_ranks_read_is_short),
        cmocka_unit_test(damage_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
