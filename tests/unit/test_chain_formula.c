/* SPDX-License-Identifier: Apache-2.0 */
/* The printed index formulas of chains, both ways. tests/python/chain_numpy.py works out those of all named ones. */
#include "chain_testing.h"

static void formulas_of_odd_forms(void **state)
{
    (void)state;
    char text[256];
    const lp_chain_form one = resolved("A B -> B A", (const int64_t[]){1, 1}, false);
    assert_int_equal(lp_chain_forward_text(&one, text, sizeof text), strlen("off = 0"));
    assert_string_equal(text, "off = 0");
    lp_chain_inverse_text(&one, text, sizeof text);
    assert_string_equal(text, "a = 0, b = 0");
    const lp_chain_form twin = resolved("n(b h=2) N -> N ~h b", (const int64_t[]){6, 4}, false);
    lp_chain_forward_text(&twin, text, sizeof text);
    assert_string_equal(text, "off = (i0/2) + 3*(1-i0%2) + 6*i1");
    lp_chain_inverse_text(&twin, text, sizeof text);
    assert_string_equal(text, "i0 = 2*(off%3) + (1-off/3%2), i1 = off/6");
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
    const lp_chain_form ring = resolved("T(h=2 w c=3) -> ~w~h h c", (const int64_t[]){30}, false);
    lp_chain_forward_text(&ring, text, sizeof text);
    assert_string_equal(text, "off = 3*(t/15) + 6*(4-(t/3%5 + (4-2*(t/3%5))*((0 + t/15%2)%2))) + (t%3)");
    lp_chain_inverse_text(&ring, text, sizeof text);
    assert_string_equal(text, "t = 15*(off/3%2) + 3*(4-off/6 + (4-2*(4-off/6))*((0 + off/3%2)%2)) + off%3");
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(formulas_of_odd_forms),
        cmocka_unit_test(formulas_of_parts_and_swizzles),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
