/* SPDX-License-Identifier: Apache-2.0 */
/* Finding the parts of a recorded permutation: packets, and heads in groups; and what is padded, or has room. */
#include "chain_testing.h"
#include "failing_memory.h"

static void recorded_parts_are_named(void **state)
{
    (void)state;
    static const struct {
        const char *chain;
        int ndim;
        int64_t shape[3];
        const char *found;
    } cases[] = {
        {"N(r i=4) B P(d=2 | c=4 v=4) -> r B (i d | c i v)",
         3,
         {8, 3, 18},
         "D0(d0_0 d0_1=4) D1 D2(p0=2 | q0=4 q1=4) -> d0_0 D1 (d0_1 p0 | q0 d0_1 q1)"},
        {"N(r i=4) B P(e=1 | c=4 v=4) -> r B (i e | c ~i v)",
         3,
         {8, 3, 17},
         "D0(d0_0 d0_1=4) D1 D2(p0=1 | q0=4 q1=4) -> d0_0 D1 (p0 d0_1 | q0 ~d0_1 q1)"},
        {"R(g n=4 d=2 | g d | g d) K -> g (n d | d | d) K",
         2,
         {36, 5},
         "N(b0 p1=8 | q0=2 b0 q2=2) K -> b0 (p1 K | q0 q2 K)"},
        {"T(b t=8) P(k=32 | s=4) -> b (t k | t s)", 2, {24, 36}, "N(n0 n1=8) K(p0=32 | q0=4) -> n0 (n1 p0 | n1 q0)"},
        {"N B P(d=2 | q=6) -> N (B q | B d)", 3, {3, 5, 8}, "D0 D1 D2(p0=2 | q0=6) -> D0 (D1 q0 | D1 p0)"},
        {"N(r i=4) P(m=1 | s=3 | q=4) -> r (i q | s i | i m)",
         2,
         {12, 8},
         "N(n0 n1=4) K(p0=1 | q0=3 | r0=4) -> n0 (n1 r0 | q0 n1 | p0 n1)"},
        {"N(r i=4) P(m=1 | s=3 | q=4) -> r (i s | m i | q i)",
         2,
         {12, 8},
         "N(n0 n1=4) K(p0=1 | q0=3 | r0=4) -> n0 (n1 q0 | p0 n1 | r0 n1)"},
        {"P(d=2 | q=6) T -> (d T | ~q T)", 2, {8, 5}, "N(p0=2 | q0=6) K -> (p0 K | ~q0 K)"},
        {"G R(n d=2 | d | d) K -> (G n d | G d | G d) K",
         3,
         {3, 12, 5},
         "D0 D1(p0=8 | q0=2 q1=2) D2 -> (D0 p0 D2 | q0 D0 q1 D2)"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const lp_chain_form form = resolved(cases[i].chain, cases[i].shape, false);
        int64_t *const place = record(&form);
        lp_chain found;
        lp_error err = {0};
        char text[256];
        if (lp_chain_identify_parts(&found, place, form.units, cases[i].ndim, cases[i].shape, NULL, &err) != LP_OK)
            fail_msg("%s: %s", cases[i].chain, err.text);
        lp_chain_text(&found, text, sizeof text);
        assert_string_equal(text, cases[i].found);
        free(place);
    }
}

/* Random packets, of up to four parts: what is found gives the same places. */
static void random_parts_are_found(void **state)
{
    (void)state;
    uint32_t seed = 20261130;
    int found_parts = 0;
    for (int round = 0; round < 300; round++) {
        const int parts = 2 + formula_byte(seed++, 1) % 3, inner = 2 + formula_byte(seed++, 2) % 4;
        const int tiles = 1 + formula_byte(seed++, 3) % 3;
        int64_t shape[3] = {inner * tiles, 1 + formula_byte(seed++, 4) % 4, 0};
        char left[128] = "", right[128] = "", text[400];
        for (int p = 0; p < parts; p++) {
            const bool behind = formula_byte(seed++, 8) % 2 == 0; /* the parts before it */
            const int chunks = 1 + formula_byte(seed++, 5) % 4, width = 1 + formula_byte(seed++, 6) % 5;
            const size_t l = strlen(left), r = strlen(right);
            snprintf(left + l, sizeof left - l, "%sc%d=%d v%d=%d", p == 0 ? "" : " | ", p, chunks, p, width);
            char mine[32];
            snprintf(mine, sizeof mine, formula_byte(seed++, 7) % 2 == 0 ? "c%d i v%d" : "i c%d v%d", p, p);
            if (behind || p == 0) {
                snprintf(right + r, sizeof right - r, "%s%s", p == 0 ? "" : " | ", mine);
            } else {
                memmove(right + strlen(mine) + 3, right, r + 1);
                memcpy(right, mine, strlen(mine));
                memcpy(right + strlen(mine), " | ", 3);
            }
            shape[2] += chunks * width;
        }
        snprintf(text, sizeof text, "N(r i=%d) B P(%s) -> r B (%s)", inner, left, right);
        const lp_chain_form form = resolved(text, shape, false);
        int64_t *const place = record(&form);
        lp_chain chain;
        lp_chain_form again;
        lp_error err;
        if (lp_chain_identify_parts(&chain, place, form.units, 3, shape, NULL, &err) != LP_OK)
            fail_msg("round %d: %s: %s", round, text, err.text);
        found_parts += chain.parts > 1;
        assert_int_equal(lp_chain_resolve(&again, &chain, shape, false, NULL), LP_OK);
        int64_t *const seen = record(&again);
        assert_memory_equal(place, seen, (size_t)form.units * sizeof *place);
        free(place);
        free(seen);
    }
    assert_true(found_parts > 150); /* of the others a chain without bars says the same */
}

/* A list over the whole tensor has no parts either, and says where it is uneven. */
static void no_parts_are_found(void **state)
{
    (void)state;
    enum { N = 40, K = 9 };
    int64_t place[N * K];
    lp_chain found;
    lp_error err;
    for (int64_t k = 0; k < N * K; k++)
        place[k] = k / K * 7 % N * K + k % K * 4 % K;
    place[100] = place[101];
    assert_int_equal(lp_chain_identify_parts(&found, place, N * K, 2, (const int64_t[]){N, K}, NULL, &err),
                     LP_E_UNSUPPORTED);
    place[5] = -1;
    assert_int_equal(lp_chain_identify_parts(&found, place, N * K, 2, (const int64_t[]){N, K}, NULL, &err),
                     LP_E_UNSUPPORTED);
    assert_int_equal(err.byte_off, 5);
    place[5] = 5 * 7 % N * K;
    failing_alloc memory = {.fail_at = 1};
    assert_int_equal(lp_chain_identify_parts(&found, place, N * K, 2, (const int64_t[]){N, K},
                                             &(lp_alloc){.context = &memory, .resize = failing_resize}, &err),
                     LP_E_MEMORY);
    assert_int_equal(lp_chain_identify_parts(&found, place, N * K, 2, (const int64_t[]){N, K + 1}, NULL, &err),
                     LP_E_ARGUMENT);
}

/* ---- padding ---- */

/* What the transform would record of a form with padding, which is -1. */
static int64_t *record_padded(const lp_chain_form *form)
{
    int64_t *const place = malloc((size_t)form->units * sizeof *place);
    for (int64_t k = 0; k < form->units; k++) {
        int64_t index[LP_CHAIN_DIMS], flat = 0;
        const bool there = lp_chain_origin(form, k, index);
        for (int32_t d = 0; d < form->chain.ndim && there; d++)
            flat = flat * form->shape[d] + index[d];
        place[k] = there ? flat : -1;
    }
    return place;
}

static void padded_orders_are_named(void **state)
{
    (void)state;
    static const struct {
        const char *chain;
        int64_t shape[2];
        const char *found;
    } cases[] = {
        {"N(r a=4 i=32) K(c k=4) -> r c (i a k)", {300, 6}, "N(n0 n1=4 n2=32) K(k0 k1=4) -> n0 k0 (n2 n1 k1)"},
        {"N(r a=4 i=32) K(c k=4) -> r c (i a k)", {130, 5}, "N(n0 n1=4 n2=32) K(k0 k1=4) -> n0 k0 (n2 n1 k1)"},
        {"N(r i=16) K -> r K i", {40, 5}, "N(n0 n1=16) K -> n0 K n1"},
        {"N K -> N K=33", {7, 32}, "N K=32 -> N K=33"},
        {"N K -> N=9 K", {7, 32}, "N=7 K=32 -> (N K)=288"},
        {"N K -> N=9 K=40", {7, 32}, "N=7 K=32 -> N=9 K=40"},
        {"N(r i=4) K(c k=8) -> c r (k i)=50", {12, 24}, "N(n0 n1=4) K(k0 k1=8) -> (k0 n0) (k1 n1)=50"},
        {"N K -> K=3 N=20", {17, 1}, "N=17 K=1 -> (K N)=60"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const lp_chain_form form = resolved(cases[i].chain, cases[i].shape, true);
        int64_t *const place = record_padded(&form);
        lp_chain found;
        lp_error err = {0};
        char text[256];
        if (lp_chain_identify_parts(&found, place, form.units, 2, cases[i].shape, NULL, &err) != LP_OK)
            fail_msg("%s: %s", cases[i].chain, err.text);
        lp_chain_text(&found, text, sizeof text);
        assert_string_equal(text, cases[i].found);
        free(place);
    }
}

/* Tails and room at random: what is found has the same places; it is refused only where tails leave too little. */
static void random_padding_is_found(void **state)
{
    (void)state;
    uint32_t seed = 77;
    int padded = 0, refused = 0;
    for (int round = 0; round < 1000; round++) {
        int64_t shape[LP_CHAIN_DIMS];
        lp_chain chain = random_chain(&seed, shape, false), found;
        lp_chain_form form, again;
        for (int32_t k = 0; k < chain.axes; k++)
            chain.part[0].memory[k].backwards = false;
        for (int32_t d = 0; d < chain.ndim && round % 2 == 0; d++)
            shape[d] -= formula_byte(seed++, 6) % shape[d];
        if (round % 3 == 0)
            chain.room[0] = 8000 + formula_byte(seed++, 7);
        assert_int_equal(lp_chain_resolve(&form, &chain, shape, true, NULL), LP_OK);
        if (form.units == form.source_units)
            continue;
        int64_t *const place = record_padded(&form);
        padded++;
        if (lp_chain_identify_parts(&found, place, form.units, chain.ndim, shape, NULL, NULL) != LP_OK) {
            refused++;
            free(place);
            continue;
        }
        assert_int_equal(lp_chain_resolve(&again, &found, shape, true, NULL), LP_OK);
        assert_int_equal(again.units, form.units);
        int64_t *const seen = record_padded(&again);
        assert_memory_equal(place, seen, (size_t)form.units * sizeof *place);
        free(place);
        free(seen);
    }
    print_message("%d padded, %d refused\n", padded, refused);
    assert_true(padded > 500 && refused < padded / 3);
}

static void padding_is_refused_where_elements_are_not_there_once(void **state)
{
    (void)state;
    const int64_t shape[2] = {3, 4};
    int64_t place[16];
    lp_chain found;
    lp_error err;
    const int64_t columns[2] = {4, 3};
    for (int64_t k = 0; k < 16; k++) /* four rows of three, room for four */
        place[k] = k % 4 == 3 ? -1 : k / 4 * 3 + k % 4;
    assert_int_equal(lp_chain_identify_parts(&found, place, 16, 2, columns, NULL, &err), LP_OK);
    failing_alloc memory = {.fail_at = 1};
    assert_int_equal(lp_chain_identify_parts(&found, place, 16, 2, columns,
                                             &(lp_alloc){.context = &memory, .resize = failing_resize}, &err),
                     LP_E_MEMORY);
    assert_int_equal(lp_chain_identify_parts(&found, place, 16, 2, shape, NULL, &err), LP_E_UNSUPPORTED);
    place[1] = 0;
    assert_int_equal(lp_chain_identify_parts(&found, place, 16, 2, columns, NULL, &err), LP_E_UNSUPPORTED);
    assert_int_equal(err.byte_off, 1);
    place[1] = -7;
    assert_int_equal(lp_chain_identify_parts(&found, place, 16, 2, columns, NULL, &err), LP_E_UNSUPPORTED);
    assert_string_equal(err.text, "no chain has this order: element 1 is missing");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(recorded_parts_are_named),
        cmocka_unit_test(random_parts_are_found),
        cmocka_unit_test(no_parts_are_found),
        cmocka_unit_test(padded_orders_are_named),
        cmocka_unit_test(random_padding_is_found),
        cmocka_unit_test(padding_is_refused_where_elements_are_not_there_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
