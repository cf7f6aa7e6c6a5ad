/* SPDX-License-Identifier: Apache-2.0 */
/* What a reader goes around: bytes of a name that have arrived already. */
#include "replayer/read_names.h"
#include "traces/base.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum { BYTES = 40, ROUNDS = 2000 };

static void add(lp_track *track, const lp_alloc *alloc, int64_t lo, int64_t hi)
{
    assert_int_equal(lp_track_reserve(track, alloc, NULL), LP_OK);
    lp_track_add(track, lo, hi);
}

static void nothing_has_arrived(void **state)
{
    (void)state;
    const lp_track track = {0};
    int64_t lo = 3, end = -1;
    assert_true(lp_read_absent(&track, &lo, 9, &end));
    assert_int_equal(lo, 3);
    assert_int_equal(end, 9);
    lo = 9;
    assert_false(lp_read_absent(&track, &lo, 9, &end));
}

/* Byte by byte against a bitmap: every absent byte of the range is told once, in stretches that do not touch. */
static void absent_stretches_are_those_of_a_bitmap(void **state)
{
    (void)state;
    const lp_platform platform = lp_platform_resolve(NULL);
    uint32_t x = 20261130;
    for (int round = 0; round < ROUNDS; round++) {
        lp_track track = {0};
        bool has[BYTES] = {false};
        for (int at = (int)(x % 5); at < BYTES;) {
            x = x * 1664525 + 1013904223;
            const int bytes = 1 + (int)(x >> 16) % 6, gap = (int)(x >> 24) % 5;
            const int hi = at + bytes < BYTES ? at + bytes : BYTES;
            add(&track, platform.alloc, at, hi);
            for (int i = at; i < hi; i++)
                has[i] = true;
            at = hi + gap;
        }
        const int64_t first = (int64_t)(x % BYTES), hi = first + (int64_t)(x >> 8) % (BYTES - first + 1);
        int64_t at = first, before = -1;
        for (int64_t lo = first, end; lp_read_absent(&track, &lo, hi, &end); lo = end) {
            if (lo <= before || end <= lo || end > hi)
                fail_msg("round %d: [%d, %d) behind %d", round, (int)lo, (int)end, (int)before);
            for (; at < lo; at++)
                assert_true(has[at]);
            for (; at < end; at++)
                assert_false(has[at]);
            before = end;
        }
        for (; at < hi; at++)
            assert_true(has[at]);
        lp_release(platform.alloc, track.span);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_has_arrived),
        cmocka_unit_test(absent_stretches_are_those_of_a_bitmap),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
