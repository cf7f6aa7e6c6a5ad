/* SPDX-License-Identifier: Apache-2.0 */
/* Finding the chain of a recorded permutation: rotations and swizzles in general, and how much is looked at. What else
 * is found is in test_chain.c and test_chain_parts.c. */
#include "chain_testing.h"
#include "layouts/chain_split.h"

/* ---- what is found ---- */

static void recorded_orders_are_named(void **state)
{
    (void)state;
    static const struct {
        const char *chain;
        int64_t shape[2];
        const char *found;
    } cases[] = {
        {"N(r a=4 i=32) K(c k=4) -> r c (i a k)", {384, 12}, "N(n0 n1=4 n2=32) K(k0 k1=4) -> n0 k0 (n2 n1 k1)"},
        {"N K -> N K", {3, 5}, "N K -> N K"},
        {"N K -> K N", {3, 5}, "N K -> K N"},
        {"N(p=2 b) K -> ~p b K", {6, 5}, "N(n0=2 n1) K -> ~n0 n1 K"},
        {"N(b i=3) K -> b ~i ~K", {6, 5}, "N(n0=2 n1) K -> n0 ~n1 ~K"},
        {"N K -> N K", {1, 5}, "N K -> N K"},
        {"N K -> N K", {1, 1}, "N K -> N K"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        expect_identified(cases[i].chain, cases[i].shape, cases[i].found);
}

/* Random chains: what is found gives the same places. */
static void random_orders_are_found(void **state)
{
    (void)state;
    uint32_t seed = 20261130;
    for (int round = 0; round < 3000; round++) {
        int64_t shape[LP_CHAIN_DIMS];
        const lp_chain chain = random_chain(&seed, shape, false);
        lp_chain_form form;
        lp_chain found;
        lp_error err;
        assert_int_equal(lp_chain_resolve(&form, &chain, shape, false, NULL), LP_OK);
        int64_t *const place = record(&form);
        if (lp_chain_identify(&found, place, form.units, chain.ndim, shape, &err) != LP_OK)
            fail_msg("round %d: %s", round, err.text);
        char text[512];
        lp_chain_text(&found, text, sizeof text);
        expect_places(text, shape, place, round);
        free(place);
    }
}

static void other_orders_are_refused(void **state)
{
    (void)state;
    enum { COUNT = 64 };
    const int64_t shape[2] = {8, 8};
    lp_chain found;
    lp_error err;
    int64_t place[COUNT];
    for (int64_t k = 0; k < COUNT; k++) /* columns rotated by the square of the row */
        place[k] = k / 8 * 8 + (k + k / 8 * (k / 8)) % 8;
    assert_int_equal(lp_chain_identify(&found, place, COUNT, 2, shape, &err), LP_E_UNSUPPORTED);
    assert_int_equal(err.byte_off, 15); /* row 1 runs 9 10 ... 15 and then 8 */
    for (int64_t k = 0; k < COUNT; k++)
        place[k] = k;
    place[40] = 41;
    place[41] = 40;
    assert_int_equal(lp_chain_identify(&found, place, COUNT, 2, shape, &err), LP_E_UNSUPPORTED);
    assert_int_equal(err.byte_off, 40);
    for (int64_t k = 0; k < COUNT; k++)
        place[k] = k / 2; /* repeated */
    assert_int_equal(lp_chain_identify(&found, place, COUNT, 2, shape, &err), LP_E_UNSUPPORTED);
    place[5] = COUNT;
    assert_int_equal(lp_chain_identify(&found, place, COUNT, 2, shape, &err), LP_E_UNSUPPORTED);
    assert_int_equal(err.byte_off, 5);
    place[5] = INT64_MIN;
    assert_int_equal(lp_chain_identify(&found, place, COUNT, 2, shape, &err), LP_E_UNSUPPORTED);
    assert_int_equal(lp_chain_identify(&found, place, COUNT - 1, 2, shape, &err), LP_E_ARGUMENT);
    assert_int_equal(lp_chain_identify(&found, place, COUNT, 0, shape, &err), LP_E_ARGUMENT);
    assert_int_equal(lp_chain_identify(&found, place, COUNT, 9, shape, &err), LP_E_ARGUMENT);
    /* rows of 6: steps of 4 elements cross from one into the next */
    int64_t six[12];
    for (int64_t k = 0; k < 12; k++)
        six[k] = k % 3 * 4 + k / 3;
    assert_int_equal(lp_chain_identify(&found, six, 12, 2, (const int64_t[]){2, 6}, &err), LP_E_UNSUPPORTED);
    assert_int_equal(lp_chain_identify(&found, six, 12, 2, (const int64_t[]){3, 4}, &err), LP_OK);
}

/* ---- swizzles and rotations ---- */

/* ---- identify ---- */

static void recorded_swizzles_are_named(void **state)
{
    (void)state;
    static const struct {
        const char *chain;
        int64_t shape[2];
        const char *found;
    } cases[] = {
        {"N(r a=8) K(b c=8 v=16) -> r (a b c^a v)", {24, 256}, "N(n0 n1=8) K(k0 k1=8 k2=16) -> n0 n1 k0 (k1^n1 k2)"},
        {"N(r a=4 s=2) K(b c=4 v=16) -> r b (a s c^a v)",
         {24, 192},
         "N(n0 n1=4 n2=2) K(k0 k1=4 k2=16) -> n0 k0 (n1 n2 k1^n1 k2)"},
        {"N(r a=2) K(b c=4) -> b r ~a ~c^a", {6, 12}, "N(n0 n1=2) K(k0 k1=2 k2=2) -> k0 n0 (~n1 ~k1 ~k2^n1)"},
        {"N(r a=5) K(c s=4) -> r c a[2 0 4 1 3] s[1 3 0 2]",
         {10, 12},
         "N(n0 n1=5) K(k0 k1=2 k2=2) -> n0 k0 (n1[2 0 4 1 3] ~k2 k1)"},
        {"N K(c s=8) -> c N s[0 2 4 6 1 3 5 7]", {3, 24}, "N K(k0 k1=4 k2=2) -> k0 N (k2 k1)"},
        {"N(r x=4 y=4) K(c=4 v) -> r x y v c^x^y", {48, 12}, "N(n0 n1=4 n2=4) K(k0=4 k1) -> n0 n1 n2 k1 k0^n1^n2"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        expect_identified(cases[i].chain, cases[i].shape, cases[i].found);
}

/* What is found gives the same places. Swizzles of odd blocks inside even ones are hard to tell and may be refused. */
static void random_swizzles_are_found(void **state)
{
    (void)state;
    uint32_t seed = 20261130;
    int refused = 0, swizzled = 0;
    for (int round = 0; round < 3000; round++) {
        int64_t shape[LP_CHAIN_DIMS];
        const lp_chain chain = random_chain(&seed, shape, true);
        lp_chain_form form;
        lp_chain found;
        char text[512];
        assert_int_equal(lp_chain_resolve(&form, &chain, shape, false, NULL), LP_OK);
        int64_t *const place = record(&form);
        if (lp_chain_identify(&found, place, form.units, chain.ndim, shape, NULL) != LP_OK) {
            refused++;
            free(place);
            continue;
        }
        lp_chain_text(&found, text, sizeof text);
        swizzled += strchr(text, '^') != NULL;
        expect_places(text, shape, place, round);
        free(place);
    }
    print_message("%d swizzled, %d refused\n", swizzled, refused);
    assert_true(swizzled > 300 && refused < 60);
}

static void recorded_turns_are_named(void **state)
{
    (void)state;
    static const struct {
        const char *chain;
        int64_t shape[2];
        const char *found;
    } cases[] = {
        {"N K(c k=5) -> c N k+N", {21, 20}, "N K(k0 k1=5) -> k0 N k1+N"},
        {"N K(c k=5) -> c N ~k+N", {21, 20}, "N K(k0 k1=5) -> k0 N ~k1+N"},
        {"N(r i=4) K(c k=6) -> r i c k-i", {12, 30}, "N(n0 n1=4) K(k0 k1=6) -> n0 n1 k0 k1-n1"},
        {"N(r p=2) K -> r p K~p", {8, 7}, "N K=7 -> N K~N"},
        {"N(h=2 w=6 c=4) K -> w~h h c K", {48, 5}, "N(n0 n1=6 n2=4) K -> n1~n0 n0 n2 K"},
        {"N(w=6 h=2) K=5 -> w h ~K~h", {12, 5}, "N K=5 -> N ~K~N"},
        {"N=7 K=7 -> N K+N", {7, 7}, "N K=7 -> N K+N"},
        {"N(r i=4) K(j=3 c=5) -> r i j+r c-i", {12, 15}, "N(n0 n1=4) K(k0=3 k1=5) -> n0 (n1 k0+n0 k1-n1)"},
        {"N(r a=4 b=4) K=4 -> r a^b^K b^a K^a", {32, 4}, NULL}, /* no triangle: more than one text says it */
        {"N(r=3 a=4) K(s=5 b=4) -> s ~a^b r ~b", {12, 20}, "N(n0 n1=4) K(k0 k1=4) -> k0 ~n1^k1 n0 ~k1"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const lp_chain asked = parsed(cases[i].chain);
        lp_chain_form form;
        assert_int_equal(lp_chain_resolve(&form, &asked, cases[i].shape, false, NULL), LP_OK);
        if (cases[i].found != NULL) {
            expect_identified(cases[i].chain, cases[i].shape, cases[i].found);
            continue;
        }
        int64_t *const place = record(&form);
        lp_chain found;
        lp_error err;
        char text[256];
        if (lp_chain_identify(&found, place, form.units, 2, cases[i].shape, &err) != LP_OK)
            fail_msg("%s: %s", cases[i].chain, err.text);
        lp_chain_text(&found, text, sizeof text);
        expect_places(text, cases[i].shape, place, (int)i);
        free(place);
    }
}

/* Chains that are turned at random: what is found gives the same places. Of rotations only those of inner digits by
 * outer ones are looked for. */
static void random_turns_are_found(void **state)
{
    (void)state;
    uint32_t seed = 1;
    int refused = 0, turned = 0, rotated = 0;
    for (int round = 0; round < 1500; round++) {
        int64_t shape[LP_CHAIN_DIMS];
        lp_chain chain = random_chain(&seed, shape, false), found;
        lp_chain_form form;
        char text[512];
        turn_at_random(&chain, &seed);
        assert_int_equal(lp_chain_resolve(&form, &chain, shape, false, NULL), LP_OK);
        int64_t *const place = record(&form);
        if (lp_chain_identify(&found, place, form.units, chain.ndim, shape, NULL) != LP_OK) {
            refused++;
            free(place);
            continue;
        }
        lp_chain_text(&found, text, sizeof text);
        turned += strchr(text, '^') != NULL;
        rotated += strpbrk(strchr(text, '>'), "+-") != NULL;
        expect_places(text, shape, place, round);
        free(place);
    }
    print_message("%d swizzled, %d rotated, %d refused\n", turned, rotated, refused);
    assert_true(turned > 100 && rotated > 150 && refused < 500);
}

/* Matrices of bits of 4 to 12 bits: all of them are found. */
static void random_bits_are_found(void **state)
{
    (void)state;
    uint32_t seed = 3;
    for (int round = 0; round < 400; round++) {
        const int count = 4 + formula_byte(seed++, 1) % 8, rows = 1 + formula_byte(seed++, 2) % (count - 1);
        const int64_t all = (int64_t)1 << count, shape[2] = {(int64_t)1 << rows, all >> rows};
        int64_t vector[12], *const place = malloc((size_t)all * sizeof *place), first = formula_byte(seed++, 3) % all;
        for (int j = 0; j < count; j++)
            vector[j] = 1 << j;
        for (int step = 0; step < 60; step++) {
            const int i = formula_byte(seed++, 4) % count, j = formula_byte(seed++, 5) % count;
            vector[i] ^= i != j ? vector[j] : 0;
        }
        for (int64_t k = 0; k < all; k++) {
            place[k] = first;
            for (int j = 0; j < count; j++)
                place[k] ^= (k >> j & 1) * vector[j];
        }
        lp_chain found;
        lp_error err;
        char text[1024];
        if (lp_chain_identify(&found, place, all, 2, shape, &err) != LP_OK)
            fail_msg("round %d: %s", round, err.text);
        lp_chain_text(&found, text, sizeof text);
        expect_places(text, shape, place, round);
        free(place);
    }
}

/* ---- how much is looked at ---- */

/* A permutation of that shape: a chain, or rows that are turned by their number, which no chain says. */
static int64_t *recorded(const char *chain, const int64_t *shape)
{
    if (chain != NULL) {
        const lp_chain_form form = resolved(chain, shape, false);
        return record(&form);
    }
    int64_t *const place = malloc((size_t)(shape[0] * shape[1]) * sizeof *place);
    for (int64_t k = 0; k < shape[0] * shape[1]; k++)
        place[k] = k / 4 * 4 + (k * (k / shape[1] % 2 * 2 + 1)) % 4;
    return place;
}

/* Counted, since time would depend on the machine: places are looked at a few times each, however many there are. */
static void each_place_is_looked_at_a_few_times(void **state)
{
    (void)state;
    static const struct {
        const char *chain;
        int64_t passes; /* measured, rounded up */
    } cases[] = {{"N(r a=4 i=32) K(c k=4) -> r c (i a k)", 3},
                 {"N(r a=8) K(b c=8 v=16) -> b r (a c^a v)", 3},
                 {"N K(c s=8) -> c N s[0 2 4 6 1 3 7 5]", 5},
                 {"R(g=4 n=8 d | g d | g d) K -> g (n d | d | d) K", 60},
                 {NULL, 120}}; /* 56, and what the last attempt takes */
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (int64_t rows = 640; rows <= 5120; rows *= 8) {
            const int64_t shape[2] = {rows, 256}, count = rows * 256;
            const int64_t most = cases[i].passes * count + (cases[i].chain == NULL ? (int64_t)1 << 24 : 0);
            int64_t looked, *const place = recorded(cases[i].chain, shape);
            lp_chain found;
            assert_int_equal(lp_split_identify(&found, place, count, 2, shape, NULL, &looked, NULL),
                             cases[i].chain != NULL ? LP_OK : LP_E_UNSUPPORTED);
            if (looked < count || looked > most)
                fail_msg("case %d: %lld rows: each place %lld times", (int)i, (long long)rows,
                         (long long)(looked / count));
            free(place);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(recorded_orders_are_named),
        cmocka_unit_test(random_orders_are_found),
        cmocka_unit_test(other_orders_are_refused),
        cmocka_unit_test(recorded_swizzles_are_named),
        cmocka_unit_test(random_swizzles_are_found),
        cmocka_unit_test(recorded_turns_are_named),
        cmocka_unit_test(random_turns_are_found),
        cmocka_unit_test(random_bits_are_found),
        cmocka_unit_test(each_place_is_looked_at_a_few_times),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
