/* SPDX-License-Identifier: Apache-2.0 */
/* Lists over several axes: their text, places, formulas, pieces, and what they are the same as. */
#include "chain_testing.h"

/* Words of four codes, three words to a group, whose twelve codes are transposed: a list of what is a plain order too.
 */
static const char *const transposed = "B(g w=3) N x=4 -> g w N x, (w x)[0 4 8 1 5 9 2 6 10 3 7 11]";
static const char *const swapped = "B(g w=3) N x=4 -> g w N x, (w x)[3 0 1 2 4 5 6 7 8 9 11 10]";

static void steps_lie_in_the_order_of_the_list(void **state)
{
    (void)state;
    static const int list[] = {3, 0, 1, 2, 4, 5, 6, 7, 8, 9, 11, 10};
    const lp_chain_form form = resolved(swapped, (int64_t[]){6, 5, 4}, false);
    for (int64_t g = 0; g < 2; g++)
        for (int64_t n = 0; n < 5; n++)
            for (int64_t k = 0; k < 12; k++) { /* place k of a group's twelve in column n */
                const int64_t off = g * 60 + k / 4 * 20 + n * 4 + k % 4;
                const int64_t index[] = {g * 3 + list[k] / 4, n, list[k] % 4};
                int64_t seen[LP_CHAIN_DIMS];
                assert_int_equal(lp_chain_locate(&form, index), off);
                assert_true(lp_chain_origin(&form, off, seen));
                assert_memory_equal(seen, index, sizeof index);
            }
}

/* The second list renumbers what the first one made; a part without all axes of a list has none of it. */
static void lists_follow_each_other(void **state)
{
    (void)state;
    static const int first[] = {5, 0, 1, 2, 3, 4}, second[] = {1, 2, 3, 0};
    const lp_chain_form form =
        resolved("a=2 P(d=2 | b=3 c=2) -> (a d | b a c), (b c)[5 0 1 2 3 4], (a c)[1 2 3 0]", (int64_t[]){2, 8}, false);
    for (int64_t a = 0; a < 2; a++)
        for (int64_t p = 0; p < 8; p++) {
            int64_t place = a * 2 + p;
            if (p >= 2) {
                int64_t bc = 0, ac = 0;
                while (first[bc] != p - 2)
                    bc++;
                while (second[ac] != a * 2 + bc % 2)
                    ac++;
                place = 4 + bc / 2 * 4 + ac / 2 * 2 + ac % 2;
            }
            const int64_t index[] = {a, p};
            int64_t seen[LP_CHAIN_DIMS];
            assert_int_equal(lp_chain_locate(&form, index), place);
            assert_true(lp_chain_origin(&form, place, seen));
            assert_memory_equal(seen, index, sizeof index);
        }
}

static void bytes_move_and_come_back(void **state)
{
    (void)state;
    const int64_t shape[] = {9, 5, 4};
    const lp_chain_form form = resolved(swapped, shape, false);
    unsigned char in[180], out[180], back[180];
    for (int i = 0; i < 180; i++)
        in[i] = (unsigned char)i;
    assert_int_equal(lp_chain_apply(&form, 8, in, out, NULL), LP_OK);
    for (int64_t k = 0; k < 180; k++) {
        int64_t index[LP_CHAIN_DIMS];
        assert_true(lp_chain_origin(&form, k, index));
        assert_int_equal(out[k], in[(index[0] * 5 + index[1]) * 4 + index[2]]);
    }
    assert_int_equal(lp_chain_undo(&form, 8, out, back, NULL), LP_OK);
    assert_memory_equal(in, back, sizeof in);
}

/* Each piece moves one step of the list's axes: its first element is where the formula says. */
static void pieces_follow_the_list(void **state)
{
    (void)state;
    const lp_chain_form form = resolved(swapped, (int64_t[]){6, 5, 4}, false);
    lp_view region, source;
    int64_t elements = 0, cursor = 0;
    assert_int_equal(lp_chain_region(&form, LP_U8, &region, NULL), LP_E_UNSUPPORTED);
    for (;;) {
        assert_int_equal(lp_chain_piece(&form, LP_U8, &cursor, &region, &source, NULL), LP_OK);
        if (cursor < 0)
            break;
        const int64_t from = source.offset_bits / 8, index[] = {from / 20, from / 4 % 5, from % 4};
        assert_int_equal(region.offset_bits / 8, lp_chain_locate(&form, index));
        elements += lp_view_count(&source);
    }
    assert_int_equal(elements, 120);
}

static void texts_come_back_and_say_what_is_wrong(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t at;
    } wrong[] = {
        {"a=2 b=2 -> a b, (a b)[0 1 2", 27},
        {"a=2 b=2 -> a b, (a b)[0 1 1 2]", 26},
        {"a=2 b=2 -> a b, (a b)[0 1 3]", 21},
        {"a=2 b=2 -> a b, (a b)[]", 21},
        {"a=2 b=2 -> a b, (a b)", 21},
        {"a=2 b=2 -> a b, (a)[1 0]", 16},
        {"a=2 b=2 -> a b, (a c)[1 0]", 19},
        {"a=2 b=2 -> a b, (a a)[1 0]", 19},
        {"a=2 b=2 -> a b, a b[1 0]", 16},
        {"a=2 b=2 -> a b,", 15},
        {"a=2 b=2 -> a b, (a b)[0 1 2 3] c", 31},
        {"a=2 b=2 -> a b^a, (a b)[0 1 2 3]", 18},
        {"a=2 b=2 c=2 -> a b c^a, (a b)[0 1 2 3]", 24},
        {"a=2 b=2 -> a b[1 0], (a b)[0 1 2 3]", 21},
        {"P(a=2 | b=2) -> (a | b), (a b)[0 1 2 3]", 25},
        {"a b c d e f -> a b c d e f, (a b c d e)[0]", 37},
    };
    char text[256];
    const lp_chain chain = parsed(swapped);
    lp_chain_text(&chain, text, sizeof text);
    assert_string_equal(text, swapped);
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        lp_chain out;
        lp_error err = {0};
        assert_int_equal(lp_chain_parse(&out, wrong[i].text, &err), LP_E_ARGUMENT);
        if (err.byte_off != wrong[i].at)
            fail_msg("'%s': %s", wrong[i].text, err.text);
    }
    const lp_chain few = parsed("a=2 b=3 -> a b, (a b)[0 1 2 3]");
    lp_chain_form form;
    lp_error err;
    assert_int_equal(lp_chain_resolve(&form, &few, (int64_t[]){2, 3}, false, &err), LP_E_ARGUMENT);
    assert_non_null(strstr(err.text, "make 6 steps, their list has 4"));
}

static void formulas_name_the_list(void **state)
{
    (void)state;
    const lp_chain_form form = resolved(transposed, (int64_t[]){6, 5, 4}, false);
    char text[512];
    lp_chain_forward_text(&form, text, sizeof text);
    assert_string_equal(text, "off = 60*(b/3) + 20*(w_x.index(4*(b%3) + (x%4))/4%3) + 4*n + "
                              "(w_x.index(4*(b%3) + (x%4))%4)");
    lp_chain_inverse_text(&form, text, sizeof text);
    assert_string_equal(text, "b = 3*(off/60) + w_x[4*(off/20%3) + (off%4)]/4%3, n = off/4%5, "
                              "x = w_x[4*(off/20%3) + (off%4)]%4");
}

/* A list that says a plain order is the same as that; by a few looks, whatever the size. */
static void lists_are_compared(void **state)
{
    (void)state;
    static const char *const texts[] = {
        transposed,
        "B(g w=3) N x(y=2 z=2) -> g w N y z, (w y z)[0 4 8 1 5 9 2 6 10 3 7 11]",
        swapped,
        "B(g w=3) N x=4 -> g w N x",
        "B(g w=3) N x=4 -> g w N x, (w x)[0 4 8 1 5 9 2 6 10 3 7 11], (w x)[0 1 2 3 4 5 6 7 8 9 10 11]",
    };
    const int64_t shape[] = {3 << 16, (int64_t)1 << 24, 4};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        for (size_t j = 0; j < sizeof texts / sizeof texts[0]; j++) {
            const lp_chain_form one = resolved(texts[i], shape, false), other = resolved(texts[j], shape, false);
            const lp_chain_comparison seen = lp_chain_same(&one, &other, 1 << 20);
            const bool same = i == j || (i != 2 && i != 3 && j != 2 && j != 3);
            if (seen.verdict != (same ? LP_CHAIN_SAME : LP_CHAIN_DIFFERS) || seen.looked > 64)
                fail_msg("%s, %s: verdict %d after %lld looks", texts[i], texts[j], (int)seen.verdict,
                         (long long)seen.looked);
        }
}

static void stacks_keep_their_list(void **state)
{
    (void)state;
    lp_chain chain = parsed(swapped);
    lp_chain_form form;
    assert_int_equal(lp_chain_stack(&chain, "E", NULL), LP_OK);
    assert_int_equal(lp_chain_resolve(&form, &chain, (int64_t[]){2, 6, 5, 4}, false, NULL), LP_OK);
    assert_int_equal(lp_chain_locate(&form, (int64_t[]){1, 3, 2, 3}), 120 + 60 + 8); /* step 3 lies first */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_lie_in_the_order_of_the_list),
        cmocka_unit_test(lists_follow_each_other),
        cmocka_unit_test(bytes_move_and_come_back),
        cmocka_unit_test(pieces_follow_the_list),
        cmocka_unit_test(texts_come_back_and_say_what_is_wrong),
        cmocka_unit_test(formulas_name_the_list),
        cmocka_unit_test(lists_are_compared),
        cmocka_unit_test(stacks_keep_their_list),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
