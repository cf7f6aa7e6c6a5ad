/* SPDX-License-Identifier: Apache-2.0 */
/* Sets of row numbers: what they hold, and what they refuse. */
#include "model_testing.h"
#include "traces/number_set.h"

static void sets_hold_what_they_say(void **unused)
{
    (void)unused;
    static const struct {
        const char *text;
        uint32_t bits; /* of 0..20 */
    } cases[] = {
        {"4", 1u << 4},
        {"0-6/2", 1u << 0 | 1u << 2 | 1u << 4 | 1u << 6},
        {"1-6/4", 1u << 1 | 1u << 5},
        {"3,7-9", 1u << 3 | 7u << 7},
        {"0-20", (1u << 21) - 1},
        {",2,,3,", 1u << 2 | 1u << 3},
        {"5-5", 1u << 5},
        {"100-9223372036854775807", 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        lp_number_set set;
        assert_ok(lp_number_set_parse(&set, cases[i].text, NULL, ERR));
        for (int n = 0; n <= 20; n++)
            if (lp_number_set_has(&set, n) != ((cases[i].bits >> n & 1) != 0))
                fail_msg("'%s' and %d", cases[i].text, n);
        lp_number_set_free(&set);
    }
}

static void nonsense_is_refused(void **unused)
{
    (void)unused;
    static const char *const bad[] = {
        "", ",", ",,", "-1", "1-", "2-1", "1/0", "a", "1 ", "1-2-3", "1-9/", "/2", "--", "9223372036854775808", "0x10"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        lp_number_set set;
        lp_error err = {0};
        if (lp_number_set_parse(&set, bad[i], NULL, &err) != LP_E_ARGUMENT)
            fail_msg("'%s' was taken", bad[i]);
        lp_number_set_free(&set);
    }
}

static void memory_may_run_out(void **unused)
{
    (void)unused;
    failing_alloc faults = {.fail_at = 1};
    const lp_alloc alloc = {.size = sizeof alloc, .context = &faults, .resize = failing_resize};
    lp_number_set set;
    lp_error err = {0};
    assert_int_equal(lp_number_set_parse(&set, "1,2", &(lp_platform){.alloc = &alloc}, &err), LP_E_MEMORY);
    lp_number_set_free(&set);
    assert_int_equal(faults.live, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sets_hold_what_they_say),
        cmocka_unit_test(nonsense_is_refused),
        cmocka_unit_test(memory_may_run_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
