/* SPDX-License-Identifier: Apache-2.0 */
/* Two chains as one, and ways back as chains: the bytes that they move are those of one after the other. */
#include "chain_testing.h"
#include "failing_memory.h"

static lp_chain_form with_sizes(const lp_chain *chain, const int64_t *shape)
{
    lp_chain_form form;
    lp_error err;
    if (lp_chain_resolve(&form, chain, shape, true, &err) != LP_OK)
        fail_msg("%s", err.text);
    return form;
}

/* What `first` and then `second` make of bytes, against what `both` does. */
static void expect_both(const lp_chain_form *first, const lp_chain_form *second, const lp_chain *both, const char *what)
{
    const lp_chain_form form = with_sizes(both, first->shape);
    const size_t in_bytes = (size_t)first->source_units, bytes = (size_t)second->units;
    unsigned char *const in = malloc(in_bytes), *const between = malloc((size_t)first->units);
    unsigned char *const wanted = malloc(bytes), *const seen = malloc(bytes);
    for (size_t i = 0; i < in_bytes; i++)
        in[i] = (unsigned char)(1 + formula_byte((uint32_t)i, 9) % 255);
    assert_int_equal(form.units, second->units);
    assert_int_equal(lp_chain_apply(first, 8, in, between, NULL), LP_OK);
    assert_int_equal(lp_chain_apply(second, 8, between, wanted, NULL), LP_OK);
    assert_int_equal(lp_chain_apply(&form, 8, in, seen, NULL), LP_OK);
    if (memcmp(wanted, seen, bytes) != 0)
        fail_msg("%s", what);
    free(in);
    free(between);
    free(wanted);
    free(seen);
}

static void pairs_become_one(void **state)
{
    (void)state;
    static const struct {
        const char *first, *second;
        int64_t shape[2], second_shape[3];
        const char *both;
    } cases[] = {
        {"M(p=2 b) K -> (b p) K",
         "N(b i=8 p=4) K -> (b p i) K",
         {96, 3},
         {96, 3},
         "N(n0=2 n1 n2=8 n3=2) K -> n1 n3 n0 n2 K"},
        {"N K(b c=8) -> b N c", "b N c=8 -> N b c", {6, 24}, {3, 6, 8}, "N K -> N K"},
        {"N K -> K N", "x(y i=4) -> y ~i", {8, 4}, {32}, "N(n0 n1=4) K -> K n0 ~n1"},
        {"N(r a=4) K -> r a K", "r a=4 K=4 -> r a K^a", {8, 4}, {2, 4, 4}, "N(n0 n1=4) K=4 -> n0 (n1 K^n1)"},
        {"N K -> N K=5", "N K -> K N", {6, 4}, {6, 5}, NULL},
        {"N(r i=4) K -> r K i", "r K i=4 -> K r=3 i", {7, 3}, {2, 3, 4}, NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const lp_chain_form first = resolved(cases[i].first, cases[i].shape, true);
        const lp_chain_form second = resolved(cases[i].second, cases[i].second_shape, true);
        lp_chain both;
        lp_error err;
        char text[256];
        if (lp_chain_compose(&both, &first, &second, NULL, &err) != LP_OK)
            fail_msg("%s: %s", cases[i].first, err.text);
        lp_chain_text(&both, text, sizeof text);
        if (cases[i].both != NULL)
            assert_string_equal(text, cases[i].both);
        expect_both(&first, &second, &both, cases[i].first);
    }
}

/* Random chains and their ways back: one after the other is where everything was. */
static void ways_back_lead_back(void **state)
{
    (void)state;
    uint32_t seed = 12;
    int refused = 0, rounds = 0;
    for (int round = 0; round < 600; round++) {
        int64_t shape[LP_CHAIN_DIMS];
        lp_chain chain = random_chain(&seed, shape, round % 2 == 0), back, both;
        if (round % 4 == 1)
            turn_at_random(&chain, &seed);
        const lp_chain_form form = with_sizes(&chain, shape);
        lp_error err;
        rounds++;
        if (lp_chain_invert(&back, &form, NULL, &err) != LP_OK) {
            assert_int_equal(err.code, LP_E_UNSUPPORTED);
            refused++;
            continue;
        }
        const lp_chain_form way = with_sizes(&back, form.out_shape);
        for (int64_t k = 0; k < form.units; k++) {
            int64_t index[LP_CHAIN_DIMS], flat = 0;
            assert_true(lp_chain_origin(&form, k, index));
            for (int32_t d = 0; d < chain.ndim; d++)
                flat = flat * shape[d] + index[d];
            for (int64_t rest = k, d = way.chain.ndim - 1; d >= 0; rest /= way.shape[d--])
                index[d] = rest % way.shape[d];
            if (lp_chain_locate(&way, index) != flat)
                fail_msg("round %d: place %lld", round, (long long)k);
        }
        assert_int_equal(lp_chain_compose(&both, &form, &way, NULL, &err), LP_OK);
        const lp_chain_form same = with_sizes(&both, shape);
        int64_t *const place = record(&same);
        for (int64_t k = 0; k < form.units; k++)
            assert_int_equal(place[k], k);
        free(place);
    }
    print_message("%d of %d refused\n", refused, rounds);
    assert_true(refused < rounds / 3);
}

static void what_does_not_fit_is_refused(void **state)
{
    (void)state;
    const lp_chain_form one = resolved("N(r i=4) K -> r K i", (const int64_t[]){7, 3}, true);
    const lp_chain_form other = resolved("N K -> K N", (const int64_t[]){7, 3}, true);
    lp_chain out;
    lp_error err;
    assert_int_equal(lp_chain_compose(&out, &one, &other, NULL, &err), LP_E_ARGUMENT);
    assert_string_equal(err.text, "the first chain makes 24 units, the second takes 21");
    assert_int_equal(lp_chain_invert(&out, &one, NULL, &err), LP_E_UNSUPPORTED);
    assert_string_equal(err.text, "no chain drops padding: the way back has 21 units, the result 24");
    const lp_chain_form wide =
        resolved("(a b=2 c=2 d=2 e=2 f=2 g=2 h=2 i=2) -> b c d e f g h i a", (const int64_t[]){256}, true);
    assert_int_equal(lp_chain_invert(&out, &wide, NULL, &err), LP_E_UNSUPPORTED);
    for (int64_t n = 1; n < 10; n++) {
        failing_alloc memory = {.fail_at = n};
        const lp_alloc alloc = {.context = &memory, .resize = failing_resize};
        const lp_status status = lp_chain_invert(&out, &other, &alloc, &err);
        const lp_status composed = lp_chain_compose(&out, &other, &other, &alloc, &err);
        assert_true(status == LP_OK || status == LP_E_MEMORY);
        assert_true(n > 2 || status == LP_E_MEMORY || composed == LP_E_MEMORY);
        assert_int_equal(memory.live, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pairs_become_one),
        cmocka_unit_test(ways_back_lead_back),
        cmocka_unit_test(what_does_not_fit_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
