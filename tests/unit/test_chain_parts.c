/* SPDX-License-Identifier: Apache-2.0 */
/* Chains with bars and swizzles: places by hand and against plain loops, views in pieces, formulas, and finding the
 * swizzles of a permutation. */
#include "chain_testing.h"
#include "failing_memory.h"

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

/* ---- formulas ---- */

static void formulas_of_parts_and_swizzles(void **state)
{
    (void)state;
    char text[512];
    const lp_chain_form swizzle =
        resolved("N(r a=8) K(b c=8 v=16) -> r b (a c^a v)", (const int64_t[]){16, 256}, false);
    lp_chain_forward_text(&swizzle, text, sizeof text);
    assert_string_equal(text, "off = 2048*(n/8) + 128*(n%8) + 1024*(k/128) + 16*(k/16%8 ^ n%8) + (k%16)");
    lp_chain_inverse_text(&swizzle, text, sizeof text);
    assert_string_equal(text,
                        "n = 8*(off/2048) + off/128%8, k = 128*(off/1024%2) + 16*(off/16%8 ^ off/128%8) + off%16");
    const lp_chain_form turned = resolved("A=4 B=2 C=1 -> ~A^B^C ~B C", (const int64_t[]){4, 2, 1}, false);
    lp_chain_forward_text(&turned, text, sizeof text);
    assert_string_equal(text, "off = 2*(3-(a ^ b%2 ^ c%1)) + (1-b)");
    lp_chain_inverse_text(&turned, text, sizeof text);
    assert_string_equal(text, "a = (3-off/2 ^ 1-off%2 ^ off%1), b = (1-off%2), c = 0");
    const lp_chain_form listed = resolved("N(b s=4) K -> b s[1 3 0 2] K", (const int64_t[]){8, 3}, false);
    lp_chain_forward_text(&listed, text, sizeof text);
    assert_string_equal(text, "off = 12*(n/4) + 3*s.index(n%4) + k");
    lp_chain_inverse_text(&listed, text, sizeof text);
    assert_string_equal(text, "n = 4*(off/12) + s[off/3%4], k = off%3");
    const lp_chain_form chained = resolved("a=2 b=2 c=2 -> a b^a c^b", (const int64_t[]){2, 2, 2}, false);
    lp_chain_forward_text(&chained, text, sizeof text);
    assert_string_equal(text, "off = 4*a + 2*(b ^ a%2) + (c ^ b%2)");
    lp_chain_inverse_text(&chained, text, sizeof text);
    assert_string_equal(text, "a = off/4, b = (off/2%2 ^ off/4), c = (off%2 ^ off/4 ^ off/2%2)");
    const lp_chain_form rotated = resolved("N K(b c=5) -> b N ~c+N-b", (const int64_t[]){12, 10}, false);
    lp_chain_forward_text(&rotated, text, sizeof text);
    assert_string_equal(text, "off = 5*n + 60*(k/5) + (4-((k%5 + n%12 - k/5%2)%5))");
    lp_chain_inverse_text(&rotated, text, sizeof text);
    assert_string_equal(text, "n = off/5%12, k = 5*(off/60) + (4-off%5 + 15-off/5%12 + off/60)%5");
    const lp_chain_form room = resolved("N K(b c=4) -> N=7 (b c)=10", (const int64_t[]){6, 8}, false);
    lp_chain_forward_text(&room, text, sizeof text);
    assert_string_equal(text, "off = 10*n + k");
    lp_chain_inverse_text(&room, text, sizeof text);
    assert_string_equal(text, "n = off/10%6, k = off%10%8");
    const lp_chain_form packets =
        resolved("N(r i=4) P(d=2 | q=16) B=3 -> r (i d | i q) B", (const int64_t[]){8, 18, 3}, false);
    lp_chain_forward_text(&packets, text, sizeof text);
    assert_string_equal(
        text, "p<2: off = 216*(n/4) + 6*(n%4) + 3*p + b; p<18: off = 24 + 216*(n/4) + 48*(n%4) + 3*(p-2) + b");
    lp_chain_inverse_text(&packets, text, sizeof text);
    assert_string_equal(text, "off%216<24: n = 4*(off/216) + off%216/6, p = off%216/3%2, b = off%3; "
                              "off%216<216: n = 4*(off/216) + (off%216-24)/48, p = 2 + (off%216-24)/3%16, b = off%3");
}

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
        {"N(r x=4 y=4) K(c=4 v) -> r x y v c^x^y", {48, 12}, "N(n0 n1=4 n2=4) K(k0=4 k1=3) -> n0 (n1 n2 k1 k0^n1^n2)"},
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
        cmocka_unit_test(places_with_room),
        cmocka_unit_test(pieces_hold_each_element_once),
        cmocka_unit_test(random_pieces),
        cmocka_unit_test(formulas_of_parts_and_swizzles),
        cmocka_unit_test(recorded_swizzles_are_named),
        cmocka_unit_test(random_swizzles_are_found),
        cmocka_unit_test(recorded_parts_are_named),
        cmocka_unit_test(random_parts_are_found),
        cmocka_unit_test(no_parts_are_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
