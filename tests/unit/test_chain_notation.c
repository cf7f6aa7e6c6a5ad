/* SPDX-License-Identifier: Apache-2.0 */
/* Layouts in the notations of CuTe and Triton against what those mean, worked out index by index. */
#include "chain_testing.h"

static lp_chain_form read_form(const char *text, const int64_t *shape)
{
    lp_chain chain;
    lp_chain_form form;
    lp_error err;
    if (lp_chain_read(&chain, text, &err) != LP_OK)
        fail_msg("'%s': %s", text, err.text);
    if (lp_chain_resolve(&form, &chain, shape, false, &err) != LP_OK)
        fail_msg("'%s': %s", text, err.text);
    return form;
}

static void texts_become_chains(void **state)
{
    (void)state;
    static const struct {
        const char *text, *chain;
    } cases[] = {
        {"N(r a=4) -> a r", "N(r a=4) -> a r"},
        {"8:1", "D0=8 -> D0"},
        {"(3,5):(5,1)", "N=3 K=5 -> (N K)"},
        {" ( _3 , _5 ) : ( _1 , _3 ) ", "N=3 K=5 -> (K N)"},
        {"((32,4),4):((16,4),1)", "N(n0=4 n1=32) K=4 -> (n1 n0 K)"},
        {"(8,32):(33,1)", "N=8 K=32 -> N K=33"},
        {"(2,4,3):(40,4,16)", NULL},
        {"(2,4,4):(40,4,1)", "D0=2 D1=4 D2=4 -> D0 (D1 D2)=40"},
        {"(1,4):(0,1)", "N=1 K=4 -> (N K)"},
        {"Sw<3,4,3> o (8,128):(128,1)", "N=8 K(k0=8 k1=16) -> (N k0^N k1)"},
        {"Swizzle<1,0,2> o 0 o (2,4):(4,1)", "N=2 K(k0=2 k1=2) -> (N k0 k1^N)"},
        {"Sw<1,0,-2> o (2,4):(4,1)", "N=2 K(k0=2 k1=2) -> (N^k1 k0 k1)"},
        {"Sw<3,4,3> o smem_ptr[16b](unset) o ((8,1),(64,1)):((64,0),(1,0))", "N=8 K(k0=8 k1=8) -> (N k0^N k1)"},
        {"Sw<3,4,3> o smem_ptr[8b] o (8,128):(128,1)", "N=8 K(k0=8 k1=16) -> (N k0^N k1)"},
        {"Sw<2,4,2> o (16,64):(64,1)", "N(n0=4 n1=4) K(k0=4 k1=16) -> (n0 n1 k0^n1 k1)"},
        {"(4,8):(8,1) o (8,4):(1,8)", "N(n0=2 n1=4) K=4 -> (n1 K n0)"},
        {"offset = [[0, 1], [0, 2], [1, 0], [2, 0]]", "N=4 K=4 -> (N K)"},
        {"{register = [[0, 1]], lane = [[1, 0], [2, 1]], warp = [], block = []}", "N(n0=2 n1=2) K=2 -> (n0 n1 K^n0)"},
        {"[[1], [3], [6]]", "D0(d00=2 d01=2 d02=2) -> (d00 d01^d00 d02^d00^d01)"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        lp_chain chain;
        lp_error err = {0};
        char text[256];
        const lp_status status = lp_chain_read(&chain, cases[i].text, &err);
        if (cases[i].chain == NULL) {
            assert_int_equal(status, LP_E_ARGUMENT);
            continue;
        }
        if (status != LP_OK)
            fail_msg("'%s': %s", cases[i].text, err.text);
        lp_chain_text(&chain, text, sizeof text);
        assert_string_equal(text, cases[i].chain);
    }
}

static void wrong_texts_are_refused(void **state)
{
    (void)state;
    static const char *const wrong[] = {
        "(2,3):(1)",
        "(2,3):(1,2",
        "(2,3:(1,2)",
        "((2,3):(1,2))",
        "(2,(3,4)):(1,2,3)",
        "(2,3):(1,2) x",
        "(2,3):(1,2) o",
        "(0,3):(1,2)",
        "(2,3):(0,1)",
        "(2,3):(1,1)",
        "(2,3):(2,4)",
        "(2,3):(1,-2)",
        ":",
        "(2,99999999999999999999):(1,2)",
        "(99999999999,99999999999):(99999999999,1)",
        "((((((((((2)))))))))):((((((((((1))))))))))",
        "(1,1,1,1,1,1,1,1,1):(1,1,1,1,1,1,1,1,1)",
        "Sw<3,4> o (8,128):(128,1)",
        "Sw<3,4,2> o (8,128):(128,1)",
        "Sw<3,4,99> o (8,128):(128,1)",
        "Sw<3,4,3> (8,128):(128,1)",
        "Sw<1,0,1> o (3,2):(2,1)",
        "Sw<1,1,1> o (2,2):(4,1)",
        "Sw<3,1,3> o smem_ptr[32b](unset) o (8,128):(128,1)",
        "(4,8):(8,1) o (5,2):(3,1)",
        "(4,8):(8,1) o (33):(1)",
        "(4,8):(8,1) o (4):(0)",
        "(8,(1,2)):(2,(16,8))",
        "52777755577775553:755535",
        "[[0, 1], [1]]",
        "[[0, 1], [0, 1]]",
        "[[0, 1], [0, 0]]",
        "[[1], [2], [3]]",
        "[[1], [4]]",
        "[[1, 2], [",
        "[[]]",
        "x = [], y = []",
        "{[[1]]",
        "[[1]]}",
        "[[1,1,1,1,1,1,1,1,1]]",
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        lp_chain chain;
        lp_error err = {0};
        if (lp_chain_read(&chain, wrong[i], &err) != LP_E_ARGUMENT || err.code != LP_E_ARGUMENT || err.text[0] == '\0')
            fail_msg("'%s' is taken: %s", wrong[i], err.text);
        assert_int_equal(lp_chain_read(&chain, wrong[i], NULL), LP_E_ARGUMENT);
    }
}

/* ---- random layouts ---- */

enum { LEAVES = 6 };

/* A layout of two modes: extents and strides of its leaves, the first `split` of them in mode 0. */
typedef struct random_layout {
    int count, split;
    int64_t extent[LEAVES], stride[LEAVES], size[2];
    char text[256];
} random_layout;

static void put_tuple(char *text, const int64_t *value, int split, int count)
{
    char *at = text + strlen(text);
    for (int i = 0; i < count; i++)
        at += sprintf(at, "%s%lld%s",
                      i == 0       ? "(("
                      : i == split ? "("
                                   : "",
                      (long long)value[i],
                      i == count - 1   ? "))"
                      : i == split - 1 ? "),"
                                       : ",");
}

/* Strides in a random order of the leaves; where `room`, now and then with places left out. */
static random_layout draw(uint32_t *seed, bool powers, bool room)
{
    random_layout l = {.count = 2 + formula_byte((*seed)++, 1) % (LEAVES - 1), .size = {1, 1}};
    int order[LEAVES];
    int64_t below = 1;
    l.split = 1 + formula_byte((*seed)++, 2) % (l.count - 1);
    for (int i = 0; i < l.count; i++) {
        l.extent[i] = powers ? (int64_t)1 << formula_byte((*seed)++, 3) % 4 : 1 + formula_byte((*seed)++, 3) % 5;
        l.size[i >= l.split] *= l.extent[i];
        order[i] = i;
    }
    for (int i = l.count - 1; i > 0; i--) {
        const int other = formula_byte((*seed)++, 4) % (i + 1), kept = order[i];
        order[i] = order[other];
        order[other] = kept;
    }
    for (int i = 0; i < l.count; i++) {
        const int64_t extent = l.extent[order[i]];
        l.stride[order[i]] = below;
        below *= extent + (room && extent > 1 && formula_byte((*seed)++, 5) % 3 == 0);
    }
    put_tuple(l.text, l.extent, l.split, l.count);
    strcat(l.text, ":");
    put_tuple(l.text, l.stride, l.split, l.count);
    return l;
}

/* The offset of an index of the whole, the first leaf fastest. */
static int64_t offset_of(const random_layout *l, int64_t index)
{
    int64_t off = 0;
    for (int i = 0; i < l->count; i++) {
        off += index % l->extent[i] * l->stride[i];
        index /= l->extent[i];
    }
    return off;
}

static void random_cute_layouts(void **state)
{
    (void)state;
    uint32_t seed = 20261201;
    for (int round = 0; round < 600; round++) {
        const bool swizzled = round % 3 == 1;
        const random_layout l = draw(&seed, swizzled, round % 3 == 2);
        const int bits = 1 + formula_byte(seed++, 6) % 2, zero = formula_byte(seed++, 7) % 4;
        const int apart = bits + formula_byte(seed++, 8) % 3;
        char text[320];
        snprintf(text, sizeof text, "Sw<%d,%d,%d> o %s", bits, zero, apart, l.text);
        lp_chain chain;
        const int64_t all = l.size[0] * l.size[1];
        if (swizzled && all % ((int64_t)1 << (zero + bits)) != 0)
            continue; /* smaller than what is swizzled */
        if (!swizzled && lp_chain_read(&chain, l.text, NULL) != LP_OK) {
            assert_int_equal(round % 3, 2); /* room of no whole steps */
            continue;
        }
        const lp_chain_form form = read_form(swizzled ? text : l.text, l.size);
        for (int64_t j = 0; j < l.size[1]; j++)
            for (int64_t i = 0; i < l.size[0]; i++) {
                const int64_t index[2] = {i, j};
                int64_t off = offset_of(&l, i + j * l.size[0]), back[2];
                if (swizzled)
                    off ^= (off >> (zero + apart) & ((1 << bits) - 1)) << zero;
                if (lp_chain_locate(&form, index) != off || !lp_chain_origin(&form, off, back) || back[0] != i ||
                    back[1] != j)
                    fail_msg("round %d: '%s': [%lld, %lld]", round, swizzled ? text : l.text, (long long)i,
                             (long long)j);
            }
    }
}

/* An inner layout of steps that divide those of the outer one: its leaves are those of the outer domain in any order.
 */
static void random_compositions(void **state)
{
    (void)state;
    uint32_t seed = 5;
    for (int round = 0; round < 300; round++) {
        const random_layout outer = draw(&seed, true, false), inner = draw(&seed, true, false);
        const int64_t all = inner.size[0] * inner.size[1];
        char text[600];
        if (all > outer.size[0] * outer.size[1])
            continue;
        snprintf(text, sizeof text, "%s o %s", outer.text, inner.text);
        lp_chain chain;
        if (all < outer.size[0] * outer.size[1] && lp_chain_read(&chain, text, NULL) != LP_OK)
            continue; /* its places do not start at every unit */
        const lp_chain_form form = read_form(text, inner.size);
        for (int64_t k = 0; k < all; k++) {
            const int64_t index[2] = {k % inner.size[0], k / inner.size[0]};
            assert_int_equal(lp_chain_locate(&form, index), offset_of(&outer, offset_of(&inner, k)));
        }
    }
}

/* Random vectors of 3 to 10 bits in one to three dimensions: those that repeat places are refused, and no others. */
static void random_bases(void **state)
{
    (void)state;
    uint32_t seed = 9;
    int orders = 0;
    for (int round = 0; round < 600; round++) {
        const int count = 3 + formula_byte(seed++, 1) % 8, ndim = 1 + formula_byte(seed++, 2) % 3;
        int width[3] = {0}, vector[10];
        int64_t shape[LP_CHAIN_DIMS];
        char text[600] = "[";
        for (int b = 0; b < count; b++)
            width[b % ndim]++;
        for (int d = 0; d < ndim; d++)
            shape[d] = (int64_t)1 << width[d];
        for (int j = 0; j < count; j++) {
            vector[j] = 1 << j;
            for (int b = 0; b < j; b++)
                vector[j] ^= formula_byte(seed++, 3) % 3 == 0 ? vector[b] : 0;
        }
        for (int j = count - 1; j > 0; j--) {
            const int other = formula_byte(seed++, 4) % (j + 1), kept = vector[j];
            vector[j] = vector[other];
            vector[other] = kept;
            if (formula_byte(seed++, 5) % 2 == 0)
                vector[j] ^= vector[other] * (other != j);
        }
        if (round % 4 == 3)
            vector[0] ^= vector[1] ^ vector[2]; /* still an order; then one that is none */
        if (round % 8 == 7)
            vector[0] = vector[1] ^ vector[2];
        for (int j = 0; j < count; j++) {
            int rest = vector[j], coordinate[3];
            for (int d = ndim - 1; d >= 0; d--) {
                coordinate[d] = rest & ((1 << width[d]) - 1);
                rest >>= width[d];
            }
            for (int d = 0; d < ndim; d++)
                sprintf(text + strlen(text), "%s%d%s",
                        d > 0   ? ", "
                        : j > 0 ? ", ["
                                : "[",
                        coordinate[d], d == ndim - 1 ? "]" : "");
        }
        strcat(text, "]");
        lp_chain chain;
        if (round % 8 == 7) {
            assert_int_equal(lp_chain_read(&chain, text, NULL), LP_E_ARGUMENT);
            continue;
        }
        const lp_chain_form form = read_form(text, shape);
        for (int64_t k = 0; k < (int64_t)1 << count; k++) {
            int64_t index[LP_CHAIN_DIMS], flat = 0, wanted = 0;
            for (int j = 0; j < count; j++)
                wanted ^= (k >> j & 1) * vector[j];
            assert_true(lp_chain_origin(&form, k, index));
            for (int d = 0; d < ndim; d++)
                flat = flat * shape[d] + index[d];
            if (flat != wanted || lp_chain_locate(&form, index) != k)
                fail_msg("round %d: '%s': place %lld", round, text, (long long)k);
        }
        orders++;
    }
    assert_int_equal(orders, 525);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_become_chains), cmocka_unit_test(wrong_texts_are_refused),
        cmocka_unit_test(random_cute_layouts), cmocka_unit_test(random_compositions),
        cmocka_unit_test(random_bases),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
