/* SPDX-License-Identifier: Apache-2.0 */
/* Blocked layouts in the notations of oneDNN and XLA: the chains that they become, against plain offsets. */
#include "chain_testing.h"

static lp_chain read_text(const char *text)
{
    lp_chain chain;
    lp_error err;
    if (lp_chain_read(&chain, text, &err) != LP_OK)
        fail_msg("'%s': %s", text, err.text);
    return chain;
}

static void tags_become_chains(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"ABcd16b16a2b", "A(a0 a1=16) B(b0 b1=16 b2=2) C D -> a0 b0 C D (b1 a1 b2)"},
        {"BA16a64b4a", "A(a0 a1=16 a2=4) B(b0 b1=64) -> b0 a0 (a1 b1 a2)"},
        {"acdb", "A B C D -> A C D B"},
        {"a", "A -> A"},
        {"{1,0:T(8,128)(2,1)}", "A(a0 a1=4 a2=2) B(b0 b1=128) -> a0 b0 (a1 b1 a2)"},
        {"bf16[10,20]{0,1:T(8,128)}", "A(a0 a1=128) B(b0 b1=8) -> b0 a0 (b1 a1)"},
        {"{2,0,1}", "A B C -> B A C"},
        {" {1,0:T(256)}", "A B(b0 b1=256) -> A b0 b1"},
        {"{0:T(1024)(128)(4,1)}", "A(a0 a1=2 a2=4 a3=128) -> a0 (a1 a3 a2)"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[256];
        const lp_chain chain = read_text(cases[i][0]);
        lp_chain_text(&chain, text, sizeof text);
        assert_string_equal(text, cases[i][1]);
    }
}

static void wrong_texts_are_refused(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"ABc16b", "'ABc16b' is no layout"}, /* A has no block */
        {"Abc", "'Abc' is no layout"},
        {"aab", "'aab' is no layout"},
        {"bc", "'bc' is no layout"},
        {"aBcd8", "'aBcd8' is no layout"},
        {"aBcd8B", "'aBcd8B' is no layout"},
        {"aBcd0b", "'aBcd0b' is no layout"},
        {"", "'' is no layout"},
        {"A2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a", "more axes than a chain has"},
        {"A99999999999999999a", "a number of more than 2^56"},
        {"{1,0:T(8,128)(3,1)}", "a tile that does not divide the one before it"},
        {"{2,0:T(8)}", "not all dimensions"},
        {"{0,0}", "a dimension twice"},
        {"{9,0}", "more than 8 dimensions"},
        {"{1,0:T(8,128,2)}", "more dimensions than there are"},
        {"{1,0:T(0,128)}", "a tile of 0"},
        {"{1,0:S(1)}", "'T(' should stand"},
        {"{1,0:T(8,128)", "'}' and the end"},
        {"{1,0} x", "'}' and the end"},
        {"{1,0:T(8;128)}", "',' or ')' should stand"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        lp_chain chain;
        lp_error err = {0};
        assert_int_equal(lp_chain_read(&chain, cases[i][0], &err), LP_E_ARGUMENT);
        if (strstr(err.text, cases[i][1]) == NULL)
            fail_msg("'%s': %s", cases[i][0], err.text);
    }
}

static void expect_offsets(const char *text, int ndim, const int64_t *shape,
                           int64_t (*offset)(const void *layout, const int64_t *index), const void *layout)
{
    const lp_chain chain = read_text(text);
    lp_chain_form form;
    lp_error err;
    int64_t index[LP_CHAIN_DIMS] = {0};
    assert_int_equal(chain.ndim, ndim);
    if (lp_chain_resolve(&form, &chain, shape, true, &err) != LP_OK)
        fail_msg("'%s': %s", text, err.text);
    do {
        if (lp_chain_locate(&form, index) != offset(layout, index))
            fail_msg("'%s': [%lld, %lld, ..] at %lld, not %lld", text, (long long)index[0], (long long)index[1],
                     (long long)lp_chain_locate(&form, index), (long long)offset(layout, index));
    } while (next(&form, index));
}

/* ---- oneDNN: blocks from the innermost on take the last digits of their dimension ---- */

typedef struct tag {
    int ndim, blocks, order[4], of[4];
    int64_t size[4], shape[4];
} tag;

static int64_t tag_offset(const void *layout, const int64_t *index)
{
    const tag *const t = layout;
    int64_t left[4] = {0}, steps[4], off = 0, stride = 1;
    for (int d = 0; d < t->ndim; d++) {
        left[d] = index[d];
        steps[d] = t->shape[d];
    }
    for (int i = t->blocks - 1; i >= 0; i--) {
        off += left[t->of[i]] % t->size[i] * stride;
        left[t->of[i]] /= t->size[i];
        steps[t->of[i]] = (steps[t->of[i]] + t->size[i] - 1) / t->size[i];
        stride *= t->size[i];
    }
    for (int i = t->ndim - 1; i >= 0; i--) {
        off += left[t->order[i]] * stride;
        stride *= steps[t->order[i]];
    }
    return off;
}

static void random_tags(void **state)
{
    (void)state;
    for (uint32_t seed = 5, round = 0; round < 300; round++) {
        tag t = {.ndim = 1 + formula_byte(seed, 0) % 4, .blocks = formula_byte(seed, 1) % 5};
        seed++;
        char text[64];
        int used = 0;
        bool capital[4] = {false};
        for (int d = 0; d < t.ndim; d++) {
            const int other = formula_byte(seed++, 2) % (d + 1);
            t.order[d] = t.order[other];
            t.order[other] = d;
            t.shape[d] = 1 + formula_byte(seed++, 3) % 11;
        }
        for (int i = 0; i < t.blocks; i++) {
            t.of[i] = formula_byte(seed++, 4) % t.ndim;
            t.size[i] = 1 + formula_byte(seed++, 5) % 4;
            capital[t.of[i]] = true;
        }
        for (int d = 0; d < t.ndim; d++)
            text[used++] = (char)((capital[t.order[d]] ? 'A' : 'a') + t.order[d]);
        text[used] = '\0';
        for (int i = 0; i < t.blocks; i++)
            used += snprintf(text + used, sizeof text - (size_t)used, "%d%c", (int)t.size[i], 'a' + t.of[i]);
        expect_offsets(text, t.ndim, t.shape, tag_offset, &t);
    }
}

/* ---- XLA: a tile cuts each of the innermost dimensions in two, whole tiles outside ---- */

typedef struct tiling {
    int ndim, order[3], tiles, count[2];
    int64_t tile[2][2], shape[3];
} tiling;

static int64_t tiling_offset(const void *layout, const int64_t *index)
{
    const tiling *const t = layout;
    int64_t at[16], size[16], off = 0;
    int dims = 0;
    for (; dims < t->ndim; dims++) {
        at[dims] = index[t->order[dims]];
        size[dims] = t->shape[t->order[dims]];
    }
    for (int i = 0; i < t->tiles; i++) {
        for (int k = 0; k < t->count[i]; k++) {
            const int outer = dims - t->count[i] + k;
            const int64_t step = t->tile[i][k];
            at[dims + k] = at[outer] % step;
            size[dims + k] = step;
            at[outer] /= step;
            size[outer] = (size[outer] + step - 1) / step;
        }
        dims += t->count[i];
    }
    for (int d = 0; d < dims; d++)
        off = off * size[d] + at[d];
    return off;
}

static void random_tiles(void **state)
{
    (void)state;
    for (uint32_t seed = 9, round = 0; round < 300; round++) {
        tiling t = {.ndim = 1 + formula_byte(seed, 0) % 3, .tiles = formula_byte(seed, 1) % 3};
        seed++;
        char text[96] = "";
        int used = 0;
        for (int d = 0; d < t.ndim; d++) {
            const int other = formula_byte(seed++, 2) % (d + 1);
            t.order[d] = t.order[other];
            t.order[other] = d;
            t.shape[d] = 1 + formula_byte(seed++, 3) % 9;
        }
        for (int d = t.ndim - 1; d >= 0; d--)
            used += snprintf(text + used, sizeof text - (size_t)used, "%s%d", d == t.ndim - 1 ? "{" : ",", t.order[d]);
        for (int i = 0; i < t.tiles; i++) {
            const int most = t.ndim < 2 ? 1 : 2;
            t.count[i] = i == 0 ? 1 + formula_byte(seed++, 4) % most : 1 + formula_byte(seed++, 4) % t.count[0];
            for (int k = 0; k < t.count[i]; k++) { /* of 12, 4 or 6, then 2 or 1: each divides the one before it */
                t.tile[i][k] =
                    i == 0 ? (int64_t[]){12, 4, 6}[formula_byte(seed++, 5) % 3] : 1 + formula_byte(seed++, 6) % 2;
                used += snprintf(text + used, sizeof text - (size_t)used, "%s%d",
                                 k > 0    ? ","
                                 : i == 0 ? ":T("
                                          : "(",
                                 (int)t.tile[i][k]);
            }
            used += snprintf(text + used, sizeof text - (size_t)used, ")");
        }
        snprintf(text + used, sizeof text - (size_t)used, "}");
        expect_offsets(text, t.ndim, t.shape, tiling_offset, &t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tags_become_chains),
        cmocka_unit_test(wrong_texts_are_refused),
        cmocka_unit_test(random_tags),
        cmocka_unit_test(random_tiles),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
