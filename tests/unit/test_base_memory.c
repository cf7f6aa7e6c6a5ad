/* SPDX-License-Identifier: Apache-2.0 */
/* Arenas, growing arrays, checked sums, platforms, numbered strings, and SHA-256. */
#include "tests/unit/checkpoint_files.h"

#include <inttypes.h>

/* ---- memory ---- */

static void arenas_give_aligned_lasting_memory(void **state)
{
    (void)state;
    enum { COUNT = 2000 };
    faulty_memory m;
    faulty_memory_init(&m, -1);
    lp_arena a;
    lp_arena_init(&a, &m.table);
    for (int round = 0; round < 2; round++) {
        static unsigned char *piece[COUNT];
        for (int i = 0; i < COUNT; i++) {
            const size_t bytes = (size_t)(i % 97) * (i % 5 == 0 ? 100 : 1);
            piece[i] = lp_arena_get(&a, bytes);
            assert_non_null(piece[i]);
            assert_int_equal((uintptr_t)piece[i] % 16, 0);
            memset(piece[i], i & 0xff, bytes);
        }
        for (int i = 0; i < COUNT; i++)
            for (size_t k = 0; k < (size_t)(i % 97) * (i % 5 == 0 ? 100 : 1); k++)
                assert_int_equal(piece[i][k], i & 0xff);
        unsigned char *large = lp_arena_get(&a, (size_t)10 << 20);
        assert_non_null(large);
        memset(large, 1, (size_t)10 << 20);
        assert_string_equal(lp_arena_text(&a, "abcdef", 3), "abc");
        assert_string_equal(lp_arena_format(&a, "%d-%s", 7, "x"), "7-x");
        const char *wide = lp_arena_format(&a, "%600d", 7); /* longer than its inner buffer */
        assert_int_equal(strlen(wide), 600);
        assert_int_equal(wide[599], '7');
        assert_memory_equal(lp_arena_copy(&a, "xyz", 3), "xyz", 3);
        assert_non_null(lp_arena_copy(&a, NULL, 0));
        assert_null(lp_arena_get(&a, SIZE_MAX));
        assert_null(lp_arena_text(&a, "", SIZE_MAX));
        assert_true(m.live > 1);
        lp_arena_free(&a); /* and again */
        assert_int_equal(m.live, 0);
    }
    m.countdown = 0;
    assert_null(lp_arena_get(&a, 1));
    assert_null(lp_arena_format(&a, "%d", 1));
    assert_null(lp_arena_copy(&a, "x", 1));
    lp_arena_free(&a);
}

static void growing_checks_its_arithmetic(void **state)
{
    (void)state;
    faulty_memory m;
    faulty_memory_init(&m, -1);
    int32_t *items = NULL;
    int64_t capacity = 0;
    int64_t grown = 0;
    for (int64_t i = 0; i < 100000; i++) {
        const int64_t before = capacity;
        assert_true(lp_grow(&m.table, (void **)&items, &capacity, i + 1, sizeof *items));
        grown += capacity != before;
        items[i] = (int32_t)i;
    }
    assert_true(grown < 20);
    for (int64_t i = 0; i < 100000; i++)
        assert_int_equal(items[i], i);
    const int64_t before = capacity;
    assert_false(lp_grow(&m.table, (void **)&items, &capacity, INT64_MAX, sizeof *items));
    m.countdown = 0;
    assert_false(lp_grow(&m.table, (void **)&items, &capacity, capacity + 1, sizeof *items));
    assert_int_equal(capacity, before);
    assert_int_equal(items[99999], 99999); /* untouched by the failures */
    lp_release(&m.table, items);
    lp_release(&m.table, NULL);
    assert_int_equal(m.live, 0);
    void *nothing = lp_allocate(NULL, 0);
    assert_non_null(nothing);
    lp_release(NULL, nothing);
}

static void checked_arithmetic_says_no(void **state)
{
    (void)state;
    int64_t out = 5;
    assert_true(lp_add(INT64_MAX, 0, &out) && out == INT64_MAX);
    assert_false(lp_add(INT64_MAX, 1, &out));
    assert_false(lp_sub(INT64_MIN, 1, &out));
    assert_true(lp_sub(-1, INT64_MAX, &out) && out == INT64_MIN);
    assert_false(lp_mul(INT64_C(1) << 32, INT64_C(1) << 31, &out));
    assert_false(lp_mul(INT64_MIN, -1, &out));
    assert_true(lp_mul(-(INT64_C(1) << 32), INT64_C(1) << 31, &out) && out == INT64_MIN);
}

static void platforms_get_their_defaults(void **state)
{
    (void)state;
    lp_platform p = lp_platform_resolve(NULL);
    assert_ptr_equal(p.io, lp_io_default());
    assert_ptr_equal(p.alloc, lp_alloc_default());
    assert_null(p.device);
    faulty_memory m;
    faulty_memory_init(&m, -1);
    p = lp_platform_resolve(&(lp_platform){.alloc = &m.table});
    assert_ptr_equal(p.io, lp_io_default());
    assert_ptr_equal(p.alloc, &m.table);
}

static void keep_line(void *context, int level, const char *module, const char *line)
{
    snprintf(context, 256, "%d %s: %s", level, module, line);
}

static void log_lines_are_sanitised(void **state)
{
    (void)state;
    char line[256] = "";
    const lp_platform p = {.log = keep_line, .log_context = line};
    lp_log(&p, LP_LOG_INFO, "file", "name '%s'", "a\nb");
    assert_string_equal(line, "2 file: name 'a\\x0ab'");
    lp_log(NULL, LP_LOG_INFO, "file", "nobody listens");
    lp_log(&(lp_platform){0}, LP_LOG_INFO, "file", "nobody listens");
}

/* ---- string set ---- */

static void strings_are_numbered_once(void **state)
{
    (void)state;
    enum { COUNT = 50000 };
    lp_strings s;
    lp_strings_init(&s, NULL);
    assert_int_equal(lp_strings_find(&s, "a", 1), -1);
    char name[32];
    for (int i = 0; i < COUNT; i++) {
        const int n = snprintf(name, sizeof name, "layers.%d", i);
        assert_int_equal(lp_strings_add(&s, name, (size_t)n), i);
        assert_int_equal(lp_strings_add(&s, name, (size_t)n), i);
    }
    memset(name, 0, sizeof name);
    assert_int_equal(s.count, COUNT);
    for (int i = 0; i < COUNT; i++) {
        const int n = snprintf(name, sizeof name, "layers.%d", i);
        assert_int_equal(lp_strings_find(&s, name, (size_t)n), i);
        assert_string_equal(s.text[i], name);
        assert_int_equal(s.bytes[i], n);
    }
    /* Lengths count: a NUL is a byte like any other, and the empty string is one too. */
    const int64_t empty = lp_strings_add(&s, "", 0), nul = lp_strings_add(&s, "\0", 1),
                  two = lp_strings_add(&s, "a\0b", 3);
    assert_true(empty == COUNT && nul == COUNT + 1 && two == COUNT + 2);
    assert_int_equal(lp_strings_find(&s, "a\0c", 3), -1);
    assert_int_equal(lp_strings_find(&s, "a", 1), -1);
    assert_int_equal(lp_strings_find(&s, "", 0), empty);
    lp_strings_free(&s);
    assert_int_equal(lp_strings_find(&s, "layers.1", 8), -1);
    assert_int_equal(lp_strings_add(&s, "x", 1), 0); /* it can be used again */
    lp_strings_free(&s);
}

static void a_string_set_survives_failing_memory(void **state)
{
    (void)state;
    int64_t n = 0;
    bool is_done = false;
    for (; !is_done; n++) {
        faulty_memory m;
        faulty_memory_init(&m, n);
        lp_strings s;
        lp_strings_init(&s, &m.table);
        int64_t added = 0;
        is_done = true;
        for (int i = 0; i < 200; i++) {
            char name[16];
            const int length = snprintf(name, sizeof name, "n%d", i);
            const int64_t number = lp_strings_add(&s, name, (size_t)length);
            if (number < 0) {
                is_done = false;
                break;
            }
            assert_int_equal(number, added++);
        }
        assert_int_equal(s.count, added);
        for (int64_t i = 0; i < added; i++)
            assert_int_equal(lp_strings_find(&s, s.text[i], s.bytes[i]), i);
        lp_strings_free(&s);
        assert_int_equal(m.live, 0);
    }
    assert_true(n > 6);
}

/* ---- hashes ---- */

/* Names that are chosen so that their plain hashes end alike: anybody can make millions of them. */
static void chosen_names_do_not_share_places(void **state)
{
    (void)state;
    enum { CHOSEN = 256, PLACES = 1024 };
    static bool is_taken[PLACES];
    int64_t chosen = 0, taken = 0;
    for (int64_t n = 0; chosen < CHOSEN; n++) {
        char name[32];
        const size_t bytes = (size_t)snprintf(name, sizeof name, "%08" PRIx64, (uint64_t)n);
        if (lp_hash(name, bytes) % PLACES != 0)
            continue;
        chosen++;
        const uint64_t hash = lp_table_hash(name, bytes);
        assert_true(hash == lp_table_hash(name, bytes));
        taken += !is_taken[hash % PLACES];
        is_taken[hash % PLACES] = true;
    }
    assert_true(taken > CHOSEN * 3 / 4); /* 226 by chance; 1 if the hash were the plain one */
}

/* ---- SHA-256 ---- */

static void expect_digest(lp_sha256 *h, const char *hex)
{
    uint8_t digest[32];
    char text[65];
    assert_true(lp_sha256_end(h, digest));
    lp_format_hex(text, digest, sizeof digest);
    assert_string_equal(text, hex);
}

static void digests_are_sha_256(void **state)
{
    (void)state;
    lp_sha256 h, other;
    lp_sha256_begin(&h);
    expect_digest(&h, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    lp_sha256_begin(&h);
    lp_sha256_add(&h, "a", 1);
    lp_sha256_add(&h, "bc", 2);
    expect_digest(&h, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    /* Numbers are eight bytes, little endian; a text is its length and its bytes. */
    uint8_t a[32], b[32];
    lp_sha256_begin(&h);
    lp_sha256_i64(&h, -2);
    lp_sha256_text(&h, "xy");
    assert_true(lp_sha256_end(&h, a));
    lp_sha256_begin(&other);
    lp_sha256_add(&other, "\xfe\xff\xff\xff\xff\xff\xff\xff\x02\0\0\0\0\0\0\0xy", 18);
    assert_true(lp_sha256_end(&other, b));
    assert_memory_equal(a, b, sizeof a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arenas_give_aligned_lasting_memory),
        cmocka_unit_test(growing_checks_its_arithmetic),
        cmocka_unit_test(checked_arithmetic_says_no),
        cmocka_unit_test(platforms_get_their_defaults),
        cmocka_unit_test(log_lines_are_sanitised),
        cmocka_unit_test(strings_are_numbered_once),
        cmocka_unit_test(a_string_set_survives_failing_memory),
        cmocka_unit_test(chosen_names_do_not_share_places),
        cmocka_unit_test(digests_are_sha_256),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
