/* SPDX-License-Identifier: Apache-2.0 */
/* Chains: texts and their errors, places both ways, bytes and views. What bars and turns add is in test_chain_parts.c.
 */
#include "chain_testing.h"

/* ---- texts ---- */

static void texts_come_back(void **state)
{
    (void)state;
    static const char *const text[] = {"N(r a=4 i=32) K(c k=4) -> r c (i a k)",
                                       "a -> a",
                                       "N(b h=2) K -> b ~h K",
                                       "(x y=3) (z) -> (z ~y) x",
                                       "K=16 N -> (N K)",
                                       "N(r i=8) K(b c=8 v=16) -> r b (i ~c^i v)",
                                       "a=8 b=2 c=4 -> a^b^c c b",
                                       "N K(c s=4) -> c (s[1 3 0 2] N)",
                                       "N(r i=4) B P(d=2 | h=2 q=8) -> r B (i d | i q ~h)",
                                       "R(g n=4 d=16 | g d | g d) K -> g (n d | d | d) K",
                                       "N P(d=2 | q=16) -> (N q | N d)",
                                       "R(d | n d | d) -> (d | d | ~n d)",
                                       "a=4 b=4 c=4 -> a^b^c b^c c^a",
                                       "N=5 K=3 -> N K+N",
                                       "T(h=2 w c=4) -> w~h h c",
                                       "a=2 b=6 c=5 d=3 -> a (~b~a~c c) d",
                                       "a b=6 c=5 -> a (~c-a+b b)",
                                       "N(r i=8) K=32 -> (r i) K=33",
                                       "N(r i=4) P(d=2 | q=16) -> r (i d | i q)=80"};
    for (size_t i = 0; i < sizeof text / sizeof text[0]; i++) {
        char written[256];
        const lp_chain chain = parsed(text[i]);
        const size_t length = lp_chain_text(&chain, written, sizeof written);
        assert_string_equal(written, text[i]);
        assert_int_equal(length, strlen(written));
        char cut[8];
        assert_int_equal(lp_chain_text(&chain, cut, sizeof cut), length); /* tells the length, writes what fits */
        assert_memory_equal(cut, written, length < 7 ? length + 1 : 7);
    }
    for (int32_t i = 0; i < lp_chain_known_count(); i++) {
        char written[1024];
        const lp_chain_known *const known = lp_chain_known_at(i);
        const lp_chain chain = parsed(known->chain);
        lp_chain_text(&chain, written, sizeof written);
        assert_string_equal(written, known->chain);
        assert_ptr_equal(lp_chain_known_find(known->id), known);
        assert_null(lp_layout_find(known->id));
    }
    assert_null(lp_chain_known_find("scale_128"));
    assert_null(lp_chain_known_at(-1));
    assert_null(lp_chain_known_at(lp_chain_known_count()));
}

static void wrong_texts_say_where(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t at;
    } wrong[] = {{"", 0},
                 {"a", 1},
                 {"-> a", 0},
                 {"a -> b", 5},
                 {"a -> a a", 7},
                 {"(a a) -> a", 3},
                 {"N(a", 3},
                 {"N( ) -> N", 1},
                 {"a -> ()", 5},
                 {"a -> (a", 7},
                 {"a=0 -> a", 2},
                 {"a= -> a", 2},
                 {"a=99999999999999999999 -> a", 2},
                 {"a b -> a", -1},
                 {"a-> ~~a", 5},
                 {"sixteen_letters_ -> a", 0},
                 {"a b c d e f g h i -> a", 16},
                 {"(a b c d e f g h i j k l m n o p q r s t u v w x y) -> a", 49},
                 {"a.b -> a", 1},
                 {"a -> \xff", 5},
                 {"a b -> a^c b", 9},
                 {"a b -> a^a b", 9},
                 {"a b -> a^b^b b", 11},
                 {"a b -> a^ b", 9},
                 {"a b -> a+b b^a", 8},
                 {"a b c -> a+b b-c c", 10},
                 {"a b -> a^b+b b", 10},
                 {"a b -> a+b^b b", 10},
                 {"a b -> a+b-b b", 11},
                 {"a b -> a-a b", 9},
                 {"a b -> a~b+b b", 10},
                 {"a b -> a^b~b b", 10},
                 {"a b c -> a~b b~c c", 10},
                 {"a b -> a- b", 9},
                 {"a b -> a[1 0]+b b", 13},
                 {"a b -> a=0 b", 9},
                 {"a b -> a b=", 11},
                 {"a b -> (a b=4)", 11},
                 {"a b -> a[0 0] b", 11},
                 {"a b -> a[0 2] b", 8},
                 {"a=3 b -> a[1 0] b", 10},
                 {"a b -> a[] b", 8},
                 {"a b -> a[0 1 b", 13},
                 {"a b -> a[0 256] b", 11},
                 {"a b -> ~a[0 1] b", 9},
                 {"a b -> a[1 0]^b b", 13},
                 {"a(b=1 | c=2) -> (b | c", 22},
                 {"a(b=1 | ) -> (b | b)", 6},
                 {"a( | b=1) -> (b | b)", 1},
                 {"a(b=1 | b=2) -> (b | b)", 8},
                 {"a(b=1 | c=2) d(e=1 | f=2) -> (b | c)", 13},
                 {"a(b=1 | c=2) -> b c", 16},
                 {"a(b=1 | b) -> b", 15},
                 {"a(b=1 | c=2) -> (b c)", 17},
                 {"a(b=1 | c=2) -> (c | c)", 21},
                 {"a(b=1 | c=2) d -> (c d | d)", -1},
                 {"a(b=1 | c=2) -> (b)", 17},
                 {"a(b=1 | c=2) -> (b | c | c)", 23},
                 {"a(b=1 | c=2) -> (b | )", 19},
                 {"a(b=1 | c=2) -> (b | c) (b | c)", 24},
                 {"a(b=1 | c=2) d -> (b d | c)", -1},
                 {"a(b=1 | c=2) d -> (b d | c^b d)", 26},
                 {"a -> (a | a)", 8},
                 {"a(b=1|c=1|d=1|e=1|f=1|g=1|h=1|i=1|j=1) -> a", 33}};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        lp_chain chain;
        lp_error err = {0};
        if (lp_chain_parse(&chain, wrong[i].text, &err) != LP_E_ARGUMENT || err.byte_off != wrong[i].at)
            fail_msg("'%s': byte %lld: %s", wrong[i].text, (long long)err.byte_off, err.text);
        assert_int_equal(lp_chain_parse(&chain, wrong[i].text, NULL), LP_E_ARGUMENT);
    }
}

static void wrong_sizes_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *chain;
        int64_t shape[2];
        bool pads;
        lp_status status;
        const char *text;
    } wrong[] = {
        {"N(r i=32) K -> r K i", {33, 2}, false, LP_E_ARGUMENT, "N must be a multiple of 32, 33 is not; pad to 64"},
        {"N(r i=32) K -> r K i", {0, 2}, true, LP_E_ARGUMENT, "N must be from 1 to 2^56, not 0"},
        {"N(r i=32) K -> r K i", {32, -1}, true, LP_E_ARGUMENT, "K must be from 1 to 2^56, not -1"},
        {"(r i) K -> r K i",
         {33, 2},
         false,
         LP_E_ARGUMENT,
         "dimension 0: the extents of axes 'r' and 'i' are both open: one has to be given"},
        {"N=8 K -> N K", {9, 2}, true, LP_E_ARGUMENT, "N must be 8, not 9"},
        {"N=8 K -> N K", {7, 2}, false, LP_E_ARGUMENT, "N must be 8, not 7"},
        {"N K -> N K", {1ll << 40, 1ll << 40}, false, LP_E_LIMIT, "a tensor of more than 2^56 elements"},
        {"N K -> N K", {1ll << 60, 1}, false, LP_E_LIMIT, "N must be from 1 to 2^56, not 1152921504606846976"},
        {"N(a=4294967296 b=4294967296) K -> a b K",
         {1, 1},
         true,
         LP_E_LIMIT,
         "N: the product of its extents is more than 2^56"},
        {"N(b a=6) K=4 -> b a^K K",
         {12, 4},
         false,
         LP_E_ARGUMENT,
         "axis 'a' is swizzled and must have a power of 2 steps, not 6"},
        {"N(b a=4) K -> b a^K K",
         {12, 5},
         false,
         LP_E_ARGUMENT,
         "axis 'K' swizzles 'a' and must have at most its 4 steps, not 5: split it"},
        {"N=4 K=4 -> N^K K^N",
         {4, 4},
         false,
         LP_E_ARGUMENT,
         "the swizzles around axis 'K' give two elements one place"},
        {"N K -> N K=7", {2, 8}, true, LP_E_ARGUMENT, "dimension 1 of the result has 8 steps and room for 7 only"},
        {"N K -> N=1099511627776 K=1099511627776", {2, 8}, true, LP_E_LIMIT, "a result of more than 2^56 elements"},
        {"N P(d=2 | q=16) -> (N d | N q)", {4, 17}, true, LP_E_ARGUMENT, "P must be 18, not 17"},
        {"R(g n=2 d=3 | g d) K -> g K (n d | d)", {8, 2}, true, LP_E_ARGUMENT, "R must be a multiple of 9, 8 is not"},
        {"R(h=8 | g n=3) K -> K (h | g n)", {8, 2}, true, LP_E_ARGUMENT, "R must be 8 + a multiple of 3, 8 is not"},
        {"R(h=8 | g n=3) K -> K (h | g n)", {12, 2}, true, LP_E_ARGUMENT, "R must be 8 + a multiple of 3, 12 is not"},
        {"R(g | h) K -> K (g | h)",
         {8, 2},
         true,
         LP_E_ARGUMENT,
         "R: the extents of axes 'g' and 'h' are both open: one has to be given"},
        {"R(g=4294967296 h=4294967296 | i) K -> K (g h | i)",
         {8, 2},
         true,
         LP_E_LIMIT,
         "R: the product of its extents is more than 2^56"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        const lp_chain chain = parsed(wrong[i].chain);
        lp_chain_form form;
        lp_error err;
        assert_int_equal(lp_chain_resolve(&form, &chain, wrong[i].shape, wrong[i].pads, &err), wrong[i].status);
        assert_string_equal(err.text, wrong[i].text);
    }
}

static void open_axes_are_set(void **state)
{
    (void)state;
    lp_chain chain = parsed("N(h d p=2) -> h p d");
    lp_error err;
    assert_int_equal(lp_chain_set(&chain, "q", 3, &err), LP_E_ARGUMENT);
    assert_int_equal(lp_chain_set(&chain, "p", 3, &err), LP_E_ARGUMENT);
    assert_string_equal(err.text, "axis 'p' has 2 steps, not 3");
    assert_int_equal(lp_chain_set(&chain, "h", 0, &err), LP_E_ARGUMENT);
    assert_int_equal(lp_chain_set(&chain, "p", 2, &err), LP_OK);
    assert_int_equal(lp_chain_set(&chain, "h", 3, &err), LP_OK);
    char text[64];
    lp_chain_text(&chain, text, sizeof text);
    assert_string_equal(text, "N(h=3 d p=2) -> h p d");
}

static void stacks_lie_one_behind_the_other(void **state)
{
    (void)state;
    lp_chain chain = parsed("N(r i=2) K -> r K ~i"), full;
    char text[LP_CHAIN_AXES * 4 + 16] = "";
    lp_error err;
    assert_int_equal(lp_chain_stack(&chain, "i", &err), LP_E_ARGUMENT);
    assert_int_equal(lp_chain_stack(&chain, "", &err), LP_E_ARGUMENT);
    assert_int_equal(lp_chain_stack(&chain, "sixteen_letters_", &err), LP_E_ARGUMENT);
    assert_int_equal(lp_chain_stack(&chain, "E", &err), LP_OK);
    lp_chain_text(&chain, text, sizeof text);
    assert_string_equal(text, "E N(r i=2) K -> E r K ~i");
    const lp_chain_form one = resolved("N(r i=2) K -> r K ~i", (const int64_t[]){6, 5}, false);
    lp_chain_form stack;
    assert_int_equal(lp_chain_resolve(&stack, &chain, (const int64_t[]){3, 6, 5}, false, NULL), LP_OK);
    assert_int_equal(lp_chain_locate(&stack, (const int64_t[]){2, 5, 3}),
                     2 * one.units + lp_chain_locate(&one, (const int64_t[]){5, 3}));
    chain = parsed("N(r i=4) P(d=2 | q=4) -> r (i d | ~q^i i)");
    assert_int_equal(lp_chain_stack(&chain, "E", &err), LP_OK);
    lp_chain_text(&chain, text, sizeof text);
    assert_string_equal(text, "E N(r i=4) P(d=2 | q=4) -> E r (i d | ~q^i i)");
    const lp_chain_form packet = resolved("N(r i=4) P(d=2 | q=4) -> r (i d | ~q^i i)", (const int64_t[]){8, 6}, false);
    assert_int_equal(lp_chain_resolve(&stack, &chain, (const int64_t[]){3, 8, 6}, false, NULL), LP_OK);
    assert_int_equal(lp_chain_locate(&stack, (const int64_t[]){2, 5, 3}),
                     2 * packet.units + lp_chain_locate(&packet, (const int64_t[]){5, 3}));
    full = parsed("a b c d e f g h -> a b c d e f g h");
    assert_int_equal(lp_chain_stack(&full, "E", &err), LP_E_LIMIT);
    full =
        parsed("(a b c d e f g h i j k l m n o p q r s t u v w x) -> a b c d e f g h i j k l m n o p q r s t u v w x");
    assert_int_equal(lp_chain_stack(&full, "E", &err), LP_E_LIMIT);
}

/* ---- places ---- */

/* Worked out by hand: tiles of 128 x 4, the second padded. */
static void places_of_a_scale_tile(void **state)
{
    (void)state;
    const lp_chain_form form = resolved(lp_chain_known_find("scale_128x4")->chain, (const int64_t[]){130, 5}, true);
    static const struct {
        int64_t row, column, off;
    } known[] = {{0, 0, 0},     {0, 3, 3},   {1, 0, 16},     {32, 0, 4},
                 {127, 3, 511}, {0, 4, 512}, {128, 0, 1024}, {129, 4, 1552}};
    assert_int_equal(form.units, 256 * 8);
    assert_int_equal(form.source_units, 130 * 5);
    assert_int_equal(form.chain.out_ndim, 3);
    assert_memory_equal(form.out_shape, ((int64_t[]){2, 2, 512}), 3 * sizeof(int64_t));
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        const int64_t index[2] = {known[i].row, known[i].column};
        int64_t back[2];
        assert_int_equal(lp_chain_locate(&form, index), known[i].off);
        assert_true(lp_chain_origin(&form, known[i].off, back));
        assert_memory_equal(back, index, sizeof back);
    }
    int64_t index[2];
    assert_false(lp_chain_origin(&form, 1024 + 2 * 16, index)); /* row 130 */
    assert_false(lp_chain_origin(&form, 513, index));           /* column 5 */
}

/* Bytes go where the formula says, padding is zeros, and come back; for every unit. */
static void bytes_follow_the_places(void **state)
{
    (void)state;
    static const struct {
        const char *chain;
        int64_t shape[3];
    } cases[] = {{"N(r a=4 i=8) K(c k=4) -> r c (i a k)", {52, 6, 0}},
                 {"N(b h=2) K -> b K ~h", {6, 4, 0}},
                 {"B N k(q=4 h=2) -> B ~N (h ~q)", {3, 5, 8}},
                 {"a -> ~a", {8, 0, 0}}};
    static const int units[] = {1, 2, 4, 8, 16, 32, 64};
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++)
        for (size_t u = 0; u < sizeof units / sizeof units[0]; u++) {
            const int bits = units[u];
            const lp_chain_form form = resolved(cases[c].chain, cases[c].shape, true);
            const size_t bytes = (size_t)(form.units * bits / 8), in_bytes = (size_t)(form.source_units * bits / 8);
            unsigned char *const in = malloc(in_bytes), *const out = malloc(bytes), *const back = malloc(in_bytes);
            unsigned char *const wanted = calloc(bytes, 1);
            for (size_t i = 0; i < in_bytes; i++)
                in[i] = formula_byte((uint32_t)i, (uint32_t)bits);
            memset(out, 0xee, bytes);
            int64_t index[LP_CHAIN_DIMS] = {0}, from = 0;
            do {
                const int64_t to = lp_chain_locate(&form, index);
                for (int64_t bit = 0; bit < bits; bit++) {
                    const int value = in[(from * bits + bit) / 8] >> (from * bits + bit) % 8 & 1;
                    const int64_t at = to * bits + bit;
                    wanted[at / 8] = (unsigned char)(wanted[at / 8] | value << at % 8);
                }
                from++;
            } while (next(&form, index));
            assert_int_equal(lp_chain_apply(&form, bits, in, out, NULL), LP_OK);
            assert_memory_equal(out, wanted, bytes);
            assert_int_equal(lp_chain_undo(&form, bits, out, back, NULL), LP_OK);
            assert_memory_equal(back, in, in_bytes);
            free(in);
            free(out);
            free(back);
            free(wanted);
        }
    const lp_chain_form odd = resolved("a -> a", (const int64_t[]){3}, false);
    unsigned char bytes[4] = {0};
    assert_int_equal(lp_chain_apply(&odd, 4, bytes, bytes + 2, NULL), LP_E_ARGUMENT);
    assert_int_equal(lp_chain_apply(&odd, 12, bytes, bytes + 2, NULL), LP_E_ARGUMENT);
}

/* Whole numbers of blocks are one view of the result; a tail is where one view reaches it. */
static void regions_follow_the_places(void **state)
{
    (void)state;
    for (int32_t i = 0; i < lp_chain_known_count(); i++) {
        const lp_chain_known *const known = lp_chain_known_at(i);
        lp_chain chain = parsed(known->chain);
        if (known->unit_bits < 8)
            continue;
        static const char *const needed[][3] = {{"rope", "h"},      {"qkv_groups", "n", "d"}, {"qkv_from", "d"},
                                                {"qkvz", "d", "v"}, {"zigzag", "w"},          {"kt_amx", "k"}};
        for (size_t n = 0; n < sizeof needed / sizeof needed[0]; n++)
            for (size_t a = 1; a < 3 && strncmp(known->id, needed[n][0], strlen(needed[n][0])) == 0; a++)
                if (needed[n][a] != NULL)
                    assert_int_equal(lp_chain_set(&chain, needed[n][a], 3, NULL), LP_OK);
        int64_t shape[LP_CHAIN_DIMS];
        for (int32_t d = 0; d < chain.ndim; d++) {
            shape[d] = 0;
            for (int32_t p = 0; p < (d == chain.split_dim ? chain.parts : 1); p++) {
                int64_t part = 1;
                for (int32_t k = 0; k < chain.part[p].axes; k++) {
                    const lp_chain_axis *const axis = &chain.axis[chain.part[p].source[k]];
                    part *= axis->dim != d ? 1 : axis->extent != 0 ? axis->extent : 2;
                }
                shape[d] += part;
            }
        }
        lp_chain_form form;
        lp_view region;
        const lp_dtype dtype = known->unit_bits == 8 ? LP_U8 : known->unit_bits == 16 ? LP_BF16 : LP_F32;
        assert_int_equal(lp_chain_resolve(&form, &chain, shape, false, NULL), LP_OK);
        bool one = chain.parts == 1;
        for (int32_t k = 0; k < chain.part[0].axes; k++) {
            const lp_chain_place *const place = &chain.part[0].memory[k];
            one = one && place->list_end == 0 && (place->swizzle | place->plus | place->minus | place->flip) == 0;
        }
        assert_int_equal(lp_chain_region(&form, dtype, &region, NULL), one ? LP_OK : LP_E_UNSUPPORTED);
        if (!one)
            continue;
        assert_int_equal(region.ndim, chain.ndim);
        int64_t index[LP_CHAIN_DIMS] = {0};
        do {
            if (view_byte(&region, index) != lp_chain_locate(&form, index) * known->unit_bits / 8)
                fail_msg("%s: element [%lld, %lld]", known->id, (long long)index[0], (long long)index[1]);
        } while (next(&form, index));
    }
    lp_view region;
    const lp_chain_form reached = resolved("N(b a=4) K -> K b a", (const int64_t[]){3, 5}, true);
    assert_int_equal(lp_chain_region(&reached, LP_F32, &region, NULL), LP_OK);
    assert_int_equal(region.size[0], 3);
    assert_int_equal(view_byte(&region, (const int64_t[]){2, 4}), (4 * 4 + 2) * 4);
    lp_error err;
    const lp_chain_form cut = resolved("N(r a=4 i=32) -> r i a", (const int64_t[]){130}, true);
    assert_int_equal(lp_chain_region(&cut, LP_U8, &region, &err), LP_E_UNSUPPORTED);
    assert_int_equal(lp_chain_region(&reached, LP_F4, &region, &err), LP_E_UNSUPPORTED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_come_back),
        cmocka_unit_test(wrong_texts_say_where),
        cmocka_unit_test(wrong_sizes_are_refused),
        cmocka_unit_test(open_axes_are_set),
        cmocka_unit_test(stacks_lie_one_behind_the_other),
        cmocka_unit_test(places_of_a_scale_tile),
        cmocka_unit_test(bytes_follow_the_places),
        cmocka_unit_test(regions_follow_the_places),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
