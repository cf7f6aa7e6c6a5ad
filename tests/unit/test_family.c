/* SPDX-License-Identifier: Apache-2.0 */
/* Families of names. */
#include "traces/family.h"

#include "model_testing.h"

static void templates_replace_whole_index_parts(void **state)
{
    (void)state;
    static const struct {
        const char *name, *family;
    } cases[] = {
        {"layers.12.experts.3.up", "layers.*.experts.*.up"},
        {"12", "*"},
        {"12.", "*."},
        {".12", ".*"},
        {"1.2.3", "*.*.*"},
        {"h.0", "h.*"},
        {"007.x", "*.x"},
        {"99999999999999999999999.x", "*.x"},
        {"fc1.weight", "fc1.weight"},
        {"layers.1a.x", "layers.1a.x"},
        {"layers.a1.x", "layers.a1.x"},
        {"layers.-1.x", "layers.-1.x"},
        {"a..b", "a..b"},
        {"a.*.b", "a.*.b"},
        {"", ""},
        {".", "."},
        {"\xc3\xa9.4", "\xc3\xa9.*"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char buffer[64];
        assert_int_equal(lp_family_template(cases[i].name, buffer, sizeof buffer), strlen(cases[i].family));
        assert_string_equal(buffer, cases[i].family);
    }
}

static void a_small_buffer_is_terminated_and_the_length_is_whole(void **state)
{
    (void)state;
    for (size_t n = 0; n < 16; n++) {
        char buffer[20];
        memset(buffer, 'x', sizeof buffer);
        assert_int_equal(lp_family_template("a.12.bcd", buffer, n), 7);
        if (n > 0) {
            assert_int_equal(strlen(buffer), n - 1 < 7 ? n - 1 : 7);
            assert_memory_equal(buffer, "a.*.bcd", strlen(buffer));
        }
        assert_int_equal(buffer[n], 'x'); /* nothing is written behind the end */
    }
}

static void indices_are_read_in_order(void **state)
{
    (void)state;
    int64_t index[4] = {-7, -7, -7, -7};
    assert_int_equal(lp_family_indices("layers.12.experts.3.up", index, 4), 2);
    assert_int_equal(index[0], 12);
    assert_int_equal(index[1], 3);
    assert_int_equal(index[2], -7);
    assert_int_equal(lp_family_indices("1.007.0.9223372036854775807.9223372036854775808", index, 4), 5);
    assert_int_equal(index[0], 1);
    assert_int_equal(index[1], -1);
    assert_int_equal(index[2], 0);
    assert_true(index[3] == INT64_MAX);
    assert_int_equal(lp_family_indices("9223372036854775808", index, 4), 1);
    assert_int_equal(index[0], -1);
    assert_int_equal(lp_family_indices("", index, 4), 0);
    assert_int_equal(lp_family_indices("fc1.1x", index, 4), 0);
}

static int compare_names(const void *a, const void *b)
{
    return lp_family_compare(*(const char *const *)a, *(const char *const *)b);
}

static void names_sort_as_people_read_them(void **state)
{
    (void)state;
    static const char *const sorted[] = {"",      "a.1",  "a.01",  "a.2",    "a.10", "a.10.b",
                                         "a.100", "a.1x", "a.b.9", "a.b.11", "b10",  "b9"};
    enum { COUNT = sizeof sorted / sizeof *sorted };
    for (int i = 0; i < COUNT; i++)
        for (int j = 0; j < COUNT; j++) {
            const int order = lp_family_compare(sorted[i], sorted[j]);
            assert_int_equal(order == 0, i == j);
            assert_int_equal(order<0, lp_family_compare(sorted[j], sorted[i])> 0);
        }
    const char *shuffled[COUNT];
    for (int i = 0; i < COUNT; i++)
        shuffled[i] = sorted[i * 5 % COUNT];
    qsort(shuffled, COUNT, sizeof *shuffled, compare_names);
    assert_true(lp_family_compare("a.2", "a.10") < 0);
    assert_true(lp_family_compare("b10", "b9") < 0); /* no index part: bytes */
    for (int i = 1; i < COUNT; i++)
        assert_true(lp_family_compare(shuffled[i - 1], shuffled[i]) < 0);
}

static void the_table_counts_members(void **state)
{
    (void)state;
    lp_families f;
    lp_families_init(&f, NULL);
    char name[1000][32];
    for (int i = 0; i < 1000; i++) {
        snprintf(name[i], sizeof name[i], i % 4 ? "layers.%d.up" : "layers.%d.down", i);
        assert_int_equal(lp_families_add(&f, name[i]), i % 4 ? 1 : 0);
    }
    assert_int_equal(f.count, 2);
    assert_int_equal(f.item[0].members, 250);
    assert_int_equal(f.item[1].members, 750);
    assert_string_equal(f.item[1].first, "layers.1.up");
    assert_string_equal(lp_families_text(&f, 1), "layers.*.up");
    assert_int_equal(lp_families_find(&f, "layers.5000.up"), 1);
    assert_int_equal(lp_families_find(&f, "layers.x.up"), -1);
    char long_name[2000];
    memset(long_name, 'n', sizeof long_name);
    long_name[sizeof long_name - 1] = '\0';
    assert_int_equal(lp_families_add(&f, long_name), 2);
    assert_string_equal(lp_families_text(&f, 2), long_name);
    lp_families_free(&f);
    assert_int_equal(f.count, 0);
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    failing_alloc failing = {0};
    const lp_alloc table = {.size = sizeof table, .context = &failing, .resize = failing_resize};
    int64_t family = -1;
    for (int64_t n = 1; family < 0 && n < 100; n++) {
        lp_families f;
        failing = (failing_alloc){.fail_at = n};
        lp_families_init(&f, &table);
        family = lp_families_add(&f, "layers.1.up");
        if (family < 0)
            assert_int_equal(lp_families_add(&f, "layers.2.up"), 0); /* the table is whole */
        lp_families_free(&f);
        assert_int_equal(failing.live, 0);
    }
    assert_int_equal(family, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(templates_replace_whole_index_parts),
        cmocka_unit_test(a_small_buffer_is_terminated_and_the_length_is_whole),
        cmocka_unit_test(indices_are_read_in_order),
        cmocka_unit_test(names_sort_as_people_read_them),
        cmocka_unit_test(the_table_counts_members),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests_name("families", tests, NULL, NULL);
}
