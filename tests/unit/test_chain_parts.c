/* SPDX-License-Identifier: Apache-2.0 */
/* Chains with bars, swizzles, rotations and room: places by hand and against plain loops, and views in pieces. */
#include "chain_testing.h"

static int64_t flat_index(const lp_chain_form *form, const int64_t *index)
{
    int64_t flat = 0;
    for (int32_t d = 0; d < form->chain.ndim; d++)
        flat = flat * form->shape[d] + index[d];
    return flat;
}

/* Every element has one place and every place its element; the rest is padding. */
static void check_both_ways(const lp_chain_form *form, const char *what)
{
    char *const used = calloc((size_t)form->units, 1);
    int64_t index[LP_CHAIN_DIMS] = {0}, back[LP_CHAIN_DIMS];
    do {
        const int64_t off = lp_chain_locate(form, index);
        if (off < 0 || off >= form->units || used[off] || !lp_chain_origin(form, off, back) ||
            flat_index(form, index) != flat_index(form, back))
            fail_msg("%s: element %lld at %lld", what, (long long)flat_index(form, index), (long long)off);
        used[off] = 1;
    } while (next(form, index));
    for (int64_t k = 0; k < form->units; k++)
        assert_int_equal(lp_chain_origin(form, k, back), used[k]);
    free(used);
}

/* ---- places ---- */

/* Rows of 128 bytes in chunks of 16, the number of the chunk exclusive-or'ed with that of the row, in blocks of 8. */
static void places_of_a_swizzled_tile(void **state)
{
    (void)state;
    const lp_chain_form form = resolved("N(r a=8) K(b c=8 v=16) -> b r (a c^a v)", (const int64_t[]){24, 256}, false);
    int64_t index[LP_CHAIN_DIMS] = {0};
    do {
        const int64_t row = index[0], byte = index[1] % 128, block = index[1] / 128;
        const int64_t chunk = byte / 16 ^ row % 8;
        assert_int_equal(lp_chain_locate(&form, index), block * 24 * 128 + row * 128 + chunk * 16 + byte % 16);
    } while (next(&form, index));
    check_both_ways(&form, "swizzle");
}

/* Packets of 2 + 16 bytes: four rows' first parts, then four rows' second ones in fours. */
static void places_of_packets(void **state)
{
    (void)state;
    const lp_chain_form form =
        resolved("N(r i=4) B P(d=2 | c=4 v=4) -> r B (i d | c i v)", (const int64_t[]){8, 3, 18}, false);
    int64_t index[LP_CHAIN_DIMS] = {0};
    assert_memory_equal(form.out_shape, ((int64_t[]){2, 3, 72}), 3 * sizeof(int64_t));
    do {
        const int64_t row = index[0], packet = (row / 4 * 3 + index[1]) * 72, at = index[2];
        const int64_t off = at < 2 ? row % 4 * 2 + at : 8 + (at - 2) / 4 * 16 + row % 4 * 4 + (at - 2) % 4;
        assert_int_equal(lp_chain_locate(&form, index), packet + off);
    } while (next(&form, index));
    check_both_ways(&form, "packets");
}

/* Heads of queries, keys and values, one behind the other, go into groups; keys and values share the group's axis. */
static void places_of_grouped_heads(void **state)
{
    (void)state;
    enum { GROUPS = 3, QUERIES = 4, WIDTH = 2 };
    const lp_chain_form form = resolved("R(g n=4 d=2 | g d | g d) K -> g (n d | d | d) K",
                                        (const int64_t[]){GROUPS * (QUERIES + 2) * WIDTH, 5}, false);
    int64_t wanted = 0;
    for (int64_t g = 0; g < GROUPS; g++)
        for (int64_t row = 0; row < (QUERIES + 2) * WIDTH; row++)
            for (int64_t k = 0; k < 5; k++, wanted++) {
                const int64_t queries = QUERIES * WIDTH, group_rows = GROUPS * WIDTH;
                const int64_t from = row < queries ? g * queries + row
                                     : row < queries + WIDTH
                                         ? GROUPS * queries + g * WIDTH + row - queries
                                         : GROUPS * queries + group_rows + g * WIDTH + row - queries - WIDTH;
                assert_int_equal(lp_chain_locate(&form, (const int64_t[]){from, k}), wanted);
            }
    check_both_ways(&form, "heads");
}

/* All codes, then all scales, and three parts from the last to the first. */
static void places_of_parts_in_another_order(void **state)
{
    (void)state;
    const lp_chain_form form = resolved("B P(d=2 | q=16) -> (B q | B d)", (const int64_t[]){5, 18}, false);
    int64_t index[LP_CHAIN_DIMS] = {0};
    do {
        assert_int_equal(lp_chain_locate(&form, index),
                         index[1] < 2 ? 5 * 16 + index[0] * 2 + index[1] : index[0] * 16 + index[1] - 2);
    } while (next(&form, index));
    check_both_ways(&form, "scales behind codes");
    const lp_chain_form three =
        resolved("B(r i=2) P(m=1 | s=3 | q=4) T=3 -> r (i q | ~s i | i m) T", (const int64_t[]){6, 8, 3}, false);
    check_both_ways(&three, "three parts");
    assert_int_equal(lp_chain_locate(&three, (const int64_t[]){3, 0, 2}), (16 + 15) * 3 + 2);
    assert_int_equal(lp_chain_locate(&three, (const int64_t[]){3, 1, 2}), (16 + 8 + 5) * 3 + 2);
    assert_int_equal(lp_chain_locate(&three, (const int64_t[]){3, 4, 2}), (16 + 4) * 3 + 2);
}

/* Bytes of every eight in the order of a list, twice as wide in the other dimension. */
static void places_of_a_list(void **state)
{
    (void)state;
    static const int order[8] = {0, 2, 4, 6, 1, 3, 5, 7};
    const lp_chain_form form = resolved("N K(b s=8) -> b N s[0 2 4 6 1 3 5 7]", (const int64_t[]){3, 16}, false);
    for (int64_t off = 0; off < form.units; off++) {
        int64_t index[2];
        assert_true(lp_chain_origin(&form, off, index));
        assert_int_equal(index[0], off / 8 % 3);
        assert_int_equal(index[1], off / 24 * 8 + order[off % 8]);
        assert_int_equal(lp_chain_locate(&form, index), off);
    }
    check_both_ways(&form, "list");
}

/* Bits that are turned by turned ones, both ways round, and a matrix of bits in which no order of them is a triangle.
 */
static void places_of_chained_swizzles(void **state)
{
    (void)state;
    const lp_chain_form form = resolved("a=4 b=4 c=4 -> a^b^c b^a c^a", (const int64_t[]){4, 4, 4}, false);
    int64_t index[LP_CHAIN_DIMS] = {0};
    do {
        const int64_t a = index[0], b = index[1], c = index[2];
        assert_int_equal(lp_chain_locate(&form, index), 16 * (a ^ b ^ c) + 4 * (b ^ a) + (c ^ a));
    } while (next(&form, index));
    check_both_ways(&form, "no triangle");
    const lp_chain_form chained = resolved("a=3 b=4 c=8 -> ~b^a c^b a", (const int64_t[]){3, 4, 8}, false);
    index[0] = index[1] = index[2] = 0;
    do {
        const int64_t a = index[0], b = index[1], c = index[2];
        assert_int_equal(lp_chain_locate(&chained, index), 24 * (3 - (b ^ a)) + 3 * (c ^ b) + a);
    } while (next(&chained, index));
    check_both_ways(&chained, "chained");
}

/* Columns move by one from row to row, in tiles of five; and by another axis, the other way, in any number of steps. */
static void places_of_rotations(void **state)
{
    (void)state;
    const lp_chain_form form = resolved("N(r i=7) K(c k=5) -> r c (~i-c k+r)", (const int64_t[]){21, 20}, false);
    int64_t index[LP_CHAIN_DIMS] = {0};
    do {
        const int64_t i = index[0] % 7, k = index[1] % 5, c = index[1] / 5;
        assert_int_equal(lp_chain_locate(&form, index),
                         index[0] / 7 * 140 + c * 35 + (6 - (i + 7 - c) % 7) * 5 + (k + index[0] / 7) % 5);
    } while (next(&form, index));
    check_both_ways(&form, "rotations");
}

/* Chunks of a sequence for ranks in a ring: each has one from the front and one from the back. And rows that run to and
 * fro. */
static void places_of_axes_that_run_both_ways(void **state)
{
    (void)state;
    const lp_chain_form ring = resolved("T(h=2 w c=3) -> w~h (h c)", (const int64_t[]){30}, false);
    for (int64_t rank = 0; rank < 5; rank++)
        for (int64_t k = 0; k < 3; k++) {
            assert_int_equal(lp_chain_locate(&ring, (const int64_t[]){rank * 3 + k}), rank * 6 + k);
            assert_int_equal(lp_chain_locate(&ring, (const int64_t[]){(9 - rank) * 3 + k}), rank * 6 + 3 + k);
        }
    check_both_ways(&ring, "ring");
    const lp_chain_form snake = resolved("N K -> N ~K~N", (const int64_t[]){4, 7}, false);
    int64_t index[LP_CHAIN_DIMS] = {0};
    do {
        assert_int_equal(lp_chain_locate(&snake, index), index[0] * 7 + (index[0] % 2 == 0 ? 6 - index[1] : index[1]));
    } while (next(&snake, index));
    check_both_ways(&snake, "snake");
}

/* Rows of 8 with room for 11, and two rows behind the last. */
static void places_with_room(void **state)
{
    (void)state;
    const lp_chain_form form = resolved("N K(b k=4) -> N=7 (~b k)=11", (const int64_t[]){5, 8}, false);
    int64_t index[LP_CHAIN_DIMS] = {0};
    assert_int_equal(form.units, 77);
    assert_memory_equal(form.out_shape, ((int64_t[]){7, 11}), 2 * sizeof(int64_t));
    do {
        assert_int_equal(lp_chain_locate(&form, index), index[0] * 11 + (index[1] / 4 == 0) * 4 + index[1] % 4);
    } while (next(&form, index));
    check_both_ways(&form, "room");
    unsigned char in[40], out[77], back[40];
    for (int i = 0; i < 40; i++)
        in[i] = (unsigned char)(i + 1);
    memset(out, 0xee, sizeof out);
    assert_int_equal(lp_chain_apply(&form, 8, in, out, NULL), LP_OK);
    for (int k = 0; k < 77; k++) /* row 0 starts with its second half */
        assert_int_equal(out[k], k < 55 && k % 11 < 8 ? k / 11 * 8 + (k % 11 + 4) % 8 + 1 : 0);
    assert_int_equal(lp_chain_undo(&form, 8, out, back, NULL), LP_OK);
    assert_memory_equal(back, in, sizeof in);
    const lp_chain_form packets =
        resolved("N(r i=4) P(d=2 | q=3) -> r (i d | ~q i)=24", (const int64_t[]){8, 5}, false);
    assert_int_equal(packets.units, 48);
    check_both_ways(&packets, "packets with room");
}

/* ---- views ---- */

/* The pieces hold each element once, at its place. */
static void check_pieces(const lp_chain_form *form, const char *what)
{
    lp_view region, source;
    int64_t *const seen = malloc((size_t)form->source_units * sizeof *seen), covered = 0;
    for (int64_t i = 0; i < form->source_units; i++)
        seen[i] = -1;
    lp_error err;
    for (int64_t cursor = 0;;) {
        if (lp_chain_piece(form, LP_U8, &cursor, &region, &source, &err) != LP_OK)
            fail_msg("%s: %s", what, err.text);
        if (cursor < 0)
            break;
        assert_int_equal(region.ndim, form->chain.ndim);
        assert_memory_equal(region.size, source.size, sizeof region.size[0] * (size_t)region.ndim);
        int64_t index[LP_CHAIN_DIMS] = {0};
        for (bool more = true; more; covered++) {
            const int64_t from = view_byte(&source, index);
            assert_in_range(from, 0, form->source_units - 1);
            assert_int_equal(seen[from], -1);
            seen[from] = view_byte(&region, index);
            more = false;
            for (int32_t d = form->chain.ndim - 1; d >= 0 && !more; d--) {
                more = ++index[d] < region.size[d];
                index[d] = more ? index[d] : 0;
            }
        }
    }
    assert_int_equal(covered, form->source_units);
    int64_t index[LP_CHAIN_DIMS] = {0};
    do {
        if (seen[flat_index(form, index)] != lp_chain_locate(form, index))
            fail_msg("%s: element %lld", what, (long long)flat_index(form, index));
    } while (next(form, index));
    free(seen);
}

static void pieces_hold_each_element_once(void **state)
{
    (void)state;
    static const struct {
        const char *chain;
        int64_t shape[3];
        int64_t pieces;
    } cases[] = {{"N(r a=4 i=32) K(c k=4) -> r c (i a k)", {256, 8}, 1},
                 {"N(r a=4 i=32) K(c k=4) -> r c (i a k)", {300, 6}, 6},
                 {"N(r a=8) K(b c=8 v=2) -> b r (a c^a v)", {24, 32}, 8},
                 {"N(r a=8) K(b c=8 v=2) -> b r (a ~c^a v)", {21, 21}, 143},
                 {"N(r i=4) B P(d=2 | c=4 v=4) -> r B (i d | c ~i v)", {8, 3, 18}, 2},
                 {"N(r i=4) B P(d=2 | c=4 v=4) -> r B (c ~i v | i d)", {8, 3, 18}, 2},
                 {"N(r i=4) B P(d=2 | c=4 v=4) -> r B (i d | c^i ~i v)", {7, 3, 18}, 9},
                 {"N K(b s=8) -> b N s[0 2 4 6 1 3 5 7]", {3, 16}, 8},
                 {"N(a=3 b=2) K(c s=4) -> c a[2 0 1] s[3 1 0 2] b", {6, 8}, 12},
                 {"N K(b s=8) -> b N s[0 2 4 6 1 3 5 7]", {3, 13}, 13},
                 {"N(r a=4) K(b c=4) -> b r (a c+a)", {8, 8}, 16},
                 {"N(r a=2) K(b c=4) -> b r (a^b ~c^a)", {8, 8}, 4},
                 {"N K -> N=9 K=12", {8, 8}, 1},
                 {"N K -> N K~N", {3, 5}, 15},
                 {"a=1 -> a", {1}, 1}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const lp_chain_form form = resolved(cases[i].chain, cases[i].shape, true);
        lp_view region, source;
        int64_t pieces = -1;
        for (int64_t cursor = 0; cursor >= 0; pieces++)
            assert_int_equal(lp_chain_piece(&form, LP_U8, &cursor, &region, &source, NULL), LP_OK);
        if (cases[i].pieces != pieces)
            fail_msg("%s: %lld pieces", cases[i].chain, (long long)pieces);
        check_both_ways(&form, cases[i].chain);
        check_pieces(&form, cases[i].chain);
    }
    const lp_chain_form swizzle = resolved("N=2 K=2 -> N K^N", (const int64_t[]){2, 2}, false);
    const lp_chain_form parts = resolved("N K(a=1 | b=1) -> (N a | N b)", (const int64_t[]){2, 2}, false);
    lp_view region, source;
    lp_error err;
    int64_t cursor = 0;
    assert_int_equal(lp_chain_region(&swizzle, LP_U8, &region, &err), LP_E_UNSUPPORTED);
    assert_string_equal(err.text, "no one view says a swizzle, a rotation or a list: lp_chain_piece does, in several");
    assert_int_equal(lp_chain_region(&parts, LP_U8, &region, &err), LP_E_UNSUPPORTED);
    assert_string_equal(err.text, "no one view says several parts: lp_chain_piece does, in several");
    assert_int_equal(lp_chain_piece(&parts, LP_F4, &cursor, &region, &source, &err), LP_E_UNSUPPORTED);
}

/* Random chains, with swizzles and with sizes that leave a tail. */
static void random_pieces(void **state)
{
    (void)state;
    uint32_t seed = 77;
    for (int round = 0; round < 400; round++) {
        int64_t shape[LP_CHAIN_DIMS];
        char what[32];
        lp_chain chain = random_chain(&seed, shape, round % 2 == 0);
        lp_chain_form form;
        if (round % 4 == 1)
            turn_at_random(&chain, &seed);
        if (round % 8 == 7)
            chain.room[0] = 8000 + formula_byte(seed++, 7);
        for (int32_t d = 0; d < chain.ndim; d++)
            shape[d] -= formula_byte(seed++, 6) % shape[d];
        snprintf(what, sizeof what, "round %d", round);
        assert_int_equal(lp_chain_resolve(&form, &chain, shape, true, NULL), LP_OK);
        check_both_ways(&form, what);
        check_pieces(&form, what);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(places_of_a_swizzled_tile),
        cmocka_unit_test(places_of_packets),
        cmocka_unit_test(places_of_grouped_heads),
        cmocka_unit_test(places_of_a_list),
        cmocka_unit_test(places_of_parts_in_another_order),
        cmocka_unit_test(places_of_chained_swizzles),
        cmocka_unit_test(places_of_rotations),
        cmocka_unit_test(places_of_axes_that_run_both_ways),
        cmocka_unit_test(places_with_room),
        cmocka_unit_test(pieces_hold_each_element_once),
        cmocka_unit_test(random_pieces),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
