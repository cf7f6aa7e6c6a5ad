/* SPDX-License-Identifier: Apache-2.0 */
/* Whether two chains are the same: against a walk over all places, and how little is looked at. */
#include "chain_testing.h"

enum { MOST = 1 << 20 };

static lp_chain_form with_sizes(const lp_chain *chain, const int64_t *shape)
{
    lp_chain_form form;
    lp_error err;
    if (lp_chain_resolve(&form, chain, shape, true, &err) != LP_OK)
        fail_msg("%s", err.text);
    return form;
}

/* The row-major element at a place; -1: padding. */
static int64_t element_at(const lp_chain_form *form, int64_t place)
{
    int64_t index[LP_CHAIN_DIMS], flat = 0;
    if (!lp_chain_origin(form, place, index))
        return -1;
    for (int32_t d = 0; d < form->chain.ndim; d++)
        flat = flat * form->shape[d] + index[d];
    return flat;
}

static int64_t walked_place(const lp_chain_form *one, const lp_chain_form *other)
{
    int64_t place = 0;
    while (place < one->units && element_at(one, place) == element_at(other, place))
        place++;
    return place < one->units ? place : -1;
}

/* Without a walk, the verdict is that of one. */
static void expect_verdict(const lp_chain_form *one, const lp_chain_form *other, const char *what, uint32_t seed)
{
    lp_chain_comparison seen = lp_chain_same(one, other, MOST);
    if (one->source_units != other->source_units || one->units != other->units) {
        assert_int_equal(seen.verdict, LP_CHAIN_DIFFERS);
        return;
    }
    const int64_t place = walked_place(one, other);
    if (seen.verdict != (place < 0 ? LP_CHAIN_SAME : LP_CHAIN_DIFFERS) || seen.place != place)
        fail_msg("%s, seed %u: verdict %d at %lld, walked %lld", what, seed, (int)seen.verdict, (long long)seen.place,
                 (long long)place);
    seen = lp_chain_same(one, other, one->units - 1);
    if (place < 0 && seen.verdict == LP_CHAIN_DIFFERS)
        fail_msg("%s, seed %u: equal chains differ at %lld", what, seed, (long long)seen.place);
    if (place >= 0 && seen.verdict == LP_CHAIN_SAME)
        fail_msg("%s, seed %u: chains that differ at %lld are the same", what, seed, (long long)place);
    if (seen.verdict == LP_CHAIN_DIFFERS && element_at(one, seen.place) == element_at(other, seen.place))
        fail_msg("%s, seed %u: no difference at %lld", what, seed, (long long)seen.place);
}

/* 2^40 elements and more: a few thousand are looked at. */
static void large_chains_are_decided_by_their_digits(void **state)
{
    (void)state;
    static const struct {
        const char *one, *other;
        int64_t shape[3], other_shape[3];
        lp_chain_verdict verdict;
        int64_t looked;
    } cases[] = {
        {"N K -> K N", "N(n0 n1=64) K(k0 k1=4096) -> k0 k1 n0 n1", {1 << 20, 1 << 20}, {0}, LP_CHAIN_SAME, 8},
        {"N K -> K N", "N(n0 n1=64) K(k0 k1=4096) -> k0 k1 n1 n0", {1 << 20, 1 << 20}, {0}, LP_CHAIN_DIFFERS, 8},
        {"N K -> N K", "X(a b=6 c=10) -> a b c", {60, (int64_t)1 << 40}, {(int64_t)60 << 40}, LP_CHAIN_SAME, 8},
        {"N(r a=8) K(b c=8 v=16) -> b r (a c^a v)",
         "N(r a2=2 a1=2 a0=2) K(b c2=2 c1=2 c0=2 v=16) -> b r a2 a1 a0 c2^a2 c1^a1 c0^a0 v",
         {1 << 20, 1 << 22},
         {0},
         LP_CHAIN_SAME,
         40},
        {"N(r a=8) K(b c=8 v=16) -> b r (a c^a v)",
         "N(r a2=2 a1=2 a0=2) K(b c2=2 c1=2 c0=2 v=16) -> b r a2 a1 a0 c2^a2 c1^a1 c0 v",
         {1 << 20, 1 << 22},
         {0},
         LP_CHAIN_DIFFERS,
         40},
        {"I J -> I J-I", "I(i i0=2) J -> (i i0) J-i", {1 << 21, 1 << 20}, {0}, LP_CHAIN_DIFFERS, 8},
        {"I J -> I J-I", "A B -> A B-A", {1 << 20, 1 << 20}, {0}, LP_CHAIN_SAME, 8},
        {"N K(b s=4) -> b N s[0 2 1 3]",
         "N(n m=2) K(b s=2 t=2) -> b n m t s",
         {1 << 20, 1 << 22},
         {0},
         LP_CHAIN_SAME,
         16},
        {"N(r i=4) B P(d=2 | q=16) -> r B (i d | i q)",
         "N(r i=2 j=2) B P(d=2 | q=8 v=2) -> r B (i j d | i j q v)",
         {1 << 20, 1 << 18, 18},
         {0},
         LP_CHAIN_SAME,
         24},
        {"N(r i=4) B P(d=2 | q=16) -> r B (i d | i q)",
         "N(r i=2 j=2) B P(d=2 | q=8 v=2) -> r B (i j d | i j v q)",
         {1 << 20, 1 << 18, 18},
         {0},
         LP_CHAIN_DIFFERS,
         24},
        {"N(r i=128) K(c k=4) -> r c (i k)",
         "N(r a=2 i=64) K(c k=4) -> r c (a i k)",
         {(1 << 20) - 5, (1 << 21) - 3},
         {0},
         LP_CHAIN_SAME,
         16},
        {"N(r i=128) K -> r K i", "N(r i=64 j=2) K -> r K j i", {(1 << 20) - 5, 1 << 21}, {0}, LP_CHAIN_DIFFERS, 16},
        {"N(r i=16) K(c k=1024) -> r c (i k)",
         "N(r a=2 i=8) K(c k=32 l=32) -> r c (a i k l)",
         {((int64_t)1 << 40) - 5, 3},
         {0},
         LP_CHAIN_SAME,
         12},
        {"N(r i=16) K(c k=1024) -> r c (i k)",
         "N(r a=2 i=8) K(c k=32 l=32) -> r c (i a k l)",
         {((int64_t)1 << 40) - 5, 3},
         {0},
         LP_CHAIN_DIFFERS,
         12},
        {"N K(a b=6) -> N b a", "N K(a b=4) -> N b a", {1 << 20, 12 << 18}, {0}, LP_CHAIN_DIFFERS, 8},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const int64_t *const shape = cases[i].other_shape[0] == 0 ? cases[i].shape : cases[i].other_shape;
        const lp_chain_form one = resolved(cases[i].one, cases[i].shape, true);
        const lp_chain_form other = resolved(cases[i].other, shape, true);
        const lp_chain_comparison seen = lp_chain_same(&one, &other, MOST);
        assert_true(one.source_units >= (int64_t)1 << 40);
        if (seen.verdict != cases[i].verdict || seen.looked > cases[i].looked)
            fail_msg("case %zu: verdict %d after %lld looks", i, (int)seen.verdict, (long long)seen.looked);
        assert_int_equal(seen.place >= 0, seen.verdict == LP_CHAIN_DIFFERS);
        if (seen.place >= 0)
            assert_true(element_at(&one, seen.place) != element_at(&other, seen.place));
    }
}

/* A dimension of 3 * 2^28 that is turned to and fro, whole and in two digits, is the same; too much depends on it. */
static void what_is_too_large_is_undecided(void **state)
{
    (void)state;
    const int64_t large[] = {2, (int64_t)3 << 28}, small[] = {2, 3 << 8};
    lp_chain_form one = resolved("B J -> B J~B", large, false);
    lp_chain_form other = resolved("B J(j=3 k) -> B j~B k~B", large, false);
    lp_chain_comparison seen = lp_chain_same(&one, &other, 1 << 16);
    assert_int_equal(seen.verdict, LP_CHAIN_UNDECIDED);
    assert_int_equal(seen.place, -1);
    assert_true(seen.looked <= (1 << 16) + 8);
    one = resolved("B J -> B J~B", small, false);
    other = resolved("B J(j=3 k) -> B j~B k~B", small, false);
    seen = lp_chain_same(&one, &other, 1 << 16);
    assert_int_equal(seen.verdict, LP_CHAIN_SAME);
}

/* Parts that lie across each other have no common digits: a walk tells as long as there are few places. */
static void chains_without_common_digits_are_walked(void **state)
{
    (void)state;
    const lp_chain_form one = resolved("B P(a=2 | b=4) -> B (a | b)", (int64_t[]){5, 6}, false);
    const lp_chain_form other = resolved("B P -> B P", (int64_t[]){5, 6}, false);
    assert_int_equal(lp_chain_same(&one, &other, MOST).verdict, LP_CHAIN_SAME);
    assert_int_equal(lp_chain_same(&one, &other, 29).verdict, LP_CHAIN_UNDECIDED);
}

/* Differences that show at no first or last step of a digit. */
static void inner_steps_are_looked_at(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "K(b s=8) -> b s",
        "K(b s=8) -> b s[0 1 2 5 4 3 6 7]",
        "K(b s=8) -> b s[0 1 3 2 4 5 6 7]",
        "K(b x=2 y=2 z=2) -> b x y^x z",
        "K(b x=2 y=4) -> b x y~x",
        "K(b x=2 y=4) -> b x y+x",
    };
    const int64_t shape[] = {(int64_t)8 << 38};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        for (size_t j = 0; j < sizeof texts / sizeof texts[0]; j++) {
            const lp_chain_form one = resolved(texts[i], shape, false), other = resolved(texts[j], shape, false);
            const lp_chain_comparison seen = lp_chain_same(&one, &other, MOST);
            if (seen.verdict != (i == j ? LP_CHAIN_SAME : LP_CHAIN_DIFFERS) || seen.looked > 64)
                fail_msg("%s, %s: verdict %d after %lld looks", texts[i], texts[j], (int)seen.verdict,
                         (long long)seen.looked);
        }
}

static void other_numbers_of_elements_or_places_differ(void **state)
{
    (void)state;
    const lp_chain_form one = resolved("N K -> N K=9", (int64_t[]){4, 8}, false);
    const lp_chain_form wider = resolved("N K -> N K=10", (int64_t[]){4, 8}, false);
    const lp_chain_form more = resolved("N K -> N K=9", (int64_t[]){5, 8}, false);
    assert_int_equal(lp_chain_same(&one, &wider, MOST).verdict, LP_CHAIN_DIFFERS);
    assert_int_equal(lp_chain_same(&one, &more, MOST).verdict, LP_CHAIN_DIFFERS);
    assert_int_equal(lp_chain_same(&one, &wider, MOST).place, -1);
    assert_int_equal(lp_chain_same(&one, &one, 0).verdict, LP_CHAIN_SAME);
}

/* Random chains against themselves, as they are found again, and with two axes exchanged or one turned. */
static void random_chains_are_judged_as_by_a_walk(void **state)
{
    (void)state;
    for (uint32_t seed = 7, round = 0; round < 600; round++) {
        const uint32_t first = seed;
        int64_t shape[LP_CHAIN_DIMS];
        lp_chain chain = random_chain(&seed, shape, round % 3 == 1), found;
        if (round % 3 == 0)
            turn_at_random(&chain, &seed);
        for (int32_t d = 0; d < chain.ndim && round % 4 == 1; d++) /* the last tiles in part, or not there */
            shape[d] -= formula_byte(seed++, 6) % shape[d];
        lp_chain_form form;
        if (lp_chain_resolve(&form, &chain, shape, true, NULL) != LP_OK)
            continue;
        expect_verdict(&form, &form, "itself", first);
        assert_int_equal(lp_chain_same(&form, &form, 0).verdict, LP_CHAIN_SAME);
        if (form.units == form.source_units) {
            int64_t *const place = record(&form);
            if (lp_chain_identify(&found, place, form.units, chain.ndim, shape, NULL) == LP_OK) {
                const lp_chain_form again = with_sizes(&found, shape);
                expect_verdict(&form, &again, "found again", first);
            }
            free(place);
        }
        lp_chain_part *const part = &chain.part[0];
        const int32_t i = formula_byte(seed++, 1) % chain.axes, j = formula_byte(seed++, 2) % chain.axes;
        const lp_chain_place kept = part->memory[i];
        part->memory[i] = part->memory[j];
        part->memory[j] = kept;
        part->memory[i].backwards ^= formula_byte(seed++, 3) % 3 == 0;
        lp_chain_form changed;
        if (lp_chain_resolve(&changed, &chain, shape, true, NULL) == LP_OK)
            expect_verdict(&form, &changed, "changed", first);
    }
}

/* Every chain with a name against its own axes, split, at sizes that end inside its tiles where it pads. */
static void named_chains_are_themselves(void **state)
{
    (void)state;
    for (int32_t i = 0; i < lp_chain_known_count(); i++) {
        const lp_chain_known *const known = lp_chain_known_at(i);
        const lp_chain chain = parsed(known->chain);
        int64_t shape[LP_CHAIN_DIMS], most = 1;
        lp_chain_form form;
        for (int32_t d = 0; d < chain.ndim; d++) {
            int64_t multiple = 1, parts = 0;
            for (int32_t a = 0; a < chain.axes; a++)
                if (chain.axis[a].dim == d && chain.axis[a].extent > 0)
                    multiple *= chain.axis[a].extent;
            for (int32_t p = 0; d == chain.split_dim && p < chain.parts; p++) {
                int64_t extent = 1;
                for (int32_t k = 0; k < chain.part[p].axes; k++)
                    if (chain.axis[chain.part[p].source[k]].dim == d)
                        extent *= chain.axis[chain.part[p].source[k]].extent;
                parts += extent;
            }
            shape[d] = parts > 0 ? parts : multiple * (known->pads ? 1 : 4096) + (known->pads ? 1 : 0);
        }
        lp_chain sized = chain;
        for (int32_t a = 0; a < sized.axes; a++) /* where the split dimension is open */
            if (sized.axis[a].dim == sized.split_dim && sized.axis[a].extent == 0)
                most = 0;
        if (most == 0 || lp_chain_resolve(&form, &sized, shape, known->pads, NULL) != LP_OK)
            continue;
        const lp_chain_comparison seen = lp_chain_same(&form, &form, 0);
        if (seen.verdict != LP_CHAIN_SAME || seen.looked > 256)
            fail_msg("%s: verdict %d after %lld looks", known->id, (int)seen.verdict, (long long)seen.looked);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(large_chains_are_decided_by_their_digits),
        cmocka_unit_test(what_is_too_large_is_undecided),
        cmocka_unit_test(chains_without_common_digits_are_walked),
        cmocka_unit_test(inner_steps_are_looked_at),
        cmocka_unit_test(other_numbers_of_elements_or_places_differ),
        cmocka_unit_test(random_chains_are_judged_as_by_a_walk),
        cmocka_unit_test(named_chains_are_themselves),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
