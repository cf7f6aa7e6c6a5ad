/* SPDX-License-Identifier: Apache-2.0 */
/* How much identifying a permutation looks at, which must not depend on what a place's neighbours are. */
#include "chain_testing.h"
#include "layouts/chain_split.h"

/* A permutation of that shape: a chain, or rows that are turned by their number, which no chain says. */
static int64_t *recorded(const char *chain, const int64_t *shape)
{
    if (chain != NULL) {
        const lp_chain_form form = resolved(chain, shape, false);
        return record(&form);
    }
    int64_t *const place = malloc((size_t)(shape[0] * shape[1]) * sizeof *place);
    for (int64_t k = 0; k < shape[0] * shape[1]; k++)
        place[k] = k / 4 * 4 + (k * (k / shape[1] % 2 * 2 + 1)) % 4;
    return place;
}

/* Counted, since time would depend on the machine: places are looked at a few times each, however many there are. */
static void each_place_is_looked_at_a_few_times(void **state)
{
    (void)state;
    static const struct {
        const char *chain;
        int64_t passes; /* measured, rounded up */
    } cases[] = {{"N(r a=4 i=32) K(c k=4) -> r c (i a k)", 3},
                 {"N(r a=8) K(b c=8 v=16) -> b r (a c^a v)", 3},
                 {"N K(c s=8) -> c N s[0 2 4 6 1 3 7 5]", 5},
                 {"R(g=4 n=8 d | g d | g d) K -> g (n d | d | d) K", 60},
                 {NULL, 128}}; /* 64, and what the last attempt takes */
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (int64_t rows = 640; rows <= 5120; rows *= 8) {
            const int64_t shape[2] = {rows, 256}, count = rows * 256;
            const int64_t most = cases[i].passes * count + (cases[i].chain == NULL ? (int64_t)1 << 26 : 0);
            int64_t looked, *const place = recorded(cases[i].chain, shape);
            lp_chain found;
            assert_int_equal(lp_split_identify(&found, place, count, 2, shape, NULL, &looked, NULL),
                             cases[i].chain != NULL ? LP_OK : LP_E_UNSUPPORTED);
            if (looked < count || looked > most)
                fail_msg("case %d: %lld rows: each place %lld times", (int)i, (long long)rows,
                         (long long)(looked / count));
            free(place);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_place_is_looked_at_a_few_times),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
