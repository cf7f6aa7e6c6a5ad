/* SPDX-License-Identifier: Apache-2.0 */
/* Records of changes: what is put is what comes out, in the shortest of four forms, for elements of every size and
 * stretches of any length; and lists that name elements behind the end are refused. */
#include "tests/random_numbers.h"

#include "replayer/sync_change.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

enum { MOST = LP_CHANGE_ELEMENTS * 8, NAME = 0 };

static uint8_t was[MOST], is[MOST], got[MOST], record[MOST + 64];

static lp_checkpoint *make_catalogue(lp_dtype dtype)
{
    const int64_t shape[1] = {LP_CHANGE_ELEMENTS};
    const lp_checkpoint_tensor t = {.name = "w", .dtype = dtype, .ndim = 1, .shape = shape, .file = -1, .file_off = -1};
    lp_checkpoint *c = NULL;
    lp_error err;
    assert_int_equal(lp_checkpoint_new(&c, NULL, &err), LP_OK);
    assert_int_equal(lp_checkpoint_add(c, &t, &err), LP_OK);
    assert_int_equal(lp_checkpoint_seal(c, &err), LP_OK);
    return c;
}

static lp_status write_bytes(void *context, uint32_t name, int64_t off, const uint8_t *data, int64_t bytes,
                             lp_change_form form, lp_error *err)
{
    (void)form;
    (void)err;
    assert_int_equal(name, NAME);
    *(int64_t *)context += bytes;
    memcpy(got + off, data, (size_t)bytes);
    return LP_OK;
}

/* Bytes of the shortest form, by counting element by element. */
static int64_t shortest(int elem, int64_t elements, bool whole)
{
    int64_t changed = 0, runs = 0;
    bool before = false;
    for (int64_t i = 0; i < elements; i++) {
        const bool now = memcmp(was + i * elem, is + i * elem, (size_t)elem) != 0;
        changed += now;
        runs += now && !before;
        before = now;
    }
    if (changed == 0 && !whole)
        return 0;
    int64_t least = elements * elem;
    const int64_t other[] = {(2 + elem) * changed, 4 * runs + elem * changed, (elements + 7) / 8 + elem * changed};
    for (int f = 0; f < 3 && !whole; f++)
        least = other[f] < least ? other[f] : least;
    return lp_change_most(least);
}

/* One of `per` elements begins a run of `run` changed ones. */
static void check_stretch(const lp_checkpoint *c, int elem, int64_t elements, uint64_t per, int64_t run, bool whole,
                          uint64_t *r)
{
    int64_t used = 0, written = 0;
    lp_error err = {.code = LP_OK};
    for (int64_t i = 0; i < elements * elem; i++)
        was[i] = is[i] = (uint8_t)random_next(r);
    for (int64_t i = 0; i < elements; i++)
        if (per > 0 && random_next(r) % per == 0)
            for (int64_t end = i + run; i < end && i < elements; i++)
                is[i * elem + (int64_t)(random_next(r) % (uint64_t)elem)] ^= (uint8_t)(1 + random_next(r) % 255);
    memset(record, 0xab, sizeof record);
    const int64_t bytes = lp_change_put(NAME, 0, elem, elements, was, is, whole, record);
    assert_int_equal(bytes, shortest(elem, elements, whole));
    assert_int_equal(record[bytes], 0xab);
    memcpy(got, was, (size_t)(elements * elem));
    if (bytes > 0) {
        if (lp_change_get(record, bytes, c, write_bytes, &written, &used, &err) != LP_OK)
            fail_msg("%d bytes an element, %lld elements: %s", elem, (long long)elements, err.text);
        assert_int_equal(used, bytes);
    }
    assert_memory_equal(got, is, (size_t)(elements * elem));
    assert_true(!whole || written == elements * elem);
}

static void what_is_put_comes_out(void **state)
{
    static const lp_dtype dtypes[] = {LP_F8_E4M3, LP_BF16, LP_F32, LP_I64};
    static const int64_t lengths[] = {1, 7, 8, 63, 64, 65, 128, 1000, 8191, 16384, LP_CHANGE_ELEMENTS};
    static const struct {
        uint64_t per;
        int64_t run;
    } shapes[] = {{0, 1}, {1, 1}, {2, 1}, {11, 1}, {100, 1}, {5000, 1}, {9, 3}, {200, 70}, {5000, 4096}, {1, 100000}};
    const uint64_t seed = random_first_seed(1);
    uint64_t r = random_mix(seed);
    (void)state;
    print_message("seed %llu\n", (unsigned long long)seed);
    for (int d = 0; d < 4; d++) {
        lp_checkpoint *c = make_catalogue(dtypes[d]);
        for (size_t n = 0; n < sizeof lengths / sizeof *lengths; n++)
            for (size_t k = 0; k < sizeof shapes / sizeof *shapes; k++)
                check_stretch(c, 1 << d, lengths[n], shapes[k].per, shapes[k].run, k == 3 && n % 2 == 0, &r);
        lp_checkpoint_close(c);
    }
}

/* A bit map of 70 elements: each of the two bits behind its end. */
static void a_bit_behind_the_end_is_refused(void **state)
{
    lp_checkpoint *c = make_catalogue(LP_F8_E4M3);
    (void)state;
    for (int bit = 70; bit < 72; bit++) {
        int64_t used = 0, written = 0;
        lp_error err;
        memset(was, 0, 70);
        memset(is, 0, 70);
        for (int i = 0; i < 70; i += 3)
            is[i] = 1;
        const int64_t bytes = lp_change_put(NAME, 0, 1, 70, was, is, false, record);
        assert_int_equal(record[4], LP_CHANGE_BITS);
        record[LP_CHANGE_HEAD] ^= 1; /* as many as before */
        record[LP_CHANGE_HEAD + bit / 8] ^= (uint8_t)(1 << bit % 8);
        assert_int_equal(lp_change_get(record, bytes, c, write_bytes, &written, &used, &err), LP_E_CORRUPT);
        assert_int_equal(written, 0);
    }
    lp_checkpoint_close(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_put_comes_out),
        cmocka_unit_test(a_bit_behind_the_end_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
