/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Layouts with a name, recorded at random sizes and identified from their places alone: what is found is never wrong at
 * those sizes, and right at others too where the recording had as many tiles each way as no extent of the layout.
 */
#include "chain_testing.h"

enum { MOST = 1 << 16 };

static const int64_t tiles[] = {3, 5, 7, 1, 2, 4};

/* What a dimension has to be a multiple of; 0: its size is that of its parts, or several of its axes are open. */
static int64_t multiple_of(const lp_chain *c, int32_t d, int64_t *parts)
{
    int64_t multiple = 1;
    int32_t open = 0;
    *parts = 0;
    if (d == c->split_dim) {
        for (int32_t p = 0; p < c->parts; p++) {
            int64_t extent = 1;
            for (int32_t i = 0; i < c->part[p].axes; i++)
                if (c->axis[c->part[p].source[i]].dim == d)
                    extent *= c->axis[c->part[p].source[i]].extent;
            *parts = extent == 0 ? -1 : *parts < 0 ? *parts : *parts + extent;
        }
        return 0;
    }
    for (int32_t a = 0; a < c->axes; a++) {
        if (c->axis[a].dim != d)
            continue;
        open += c->axis[a].extent == 0;
        multiple *= c->axis[a].extent == 0 ? 1 : c->axis[a].extent;
    }
    return open > 1 ? 0 : open == 0 ? -multiple : multiple;
}

/* Some tiles each way, as many as the first `kinds` of the list; false where --shape would have to say more, or too
 * large. */
static bool random_shape(const lp_chain *c, uint32_t *seed, int kinds, int64_t shape[LP_CHAIN_DIMS])
{
    int64_t units = 1;
    for (int32_t d = 0; d < c->ndim; d++) {
        int64_t parts;
        const int64_t multiple = multiple_of(c, d, &parts);
        if (d == c->split_dim ? parts < 0 : multiple == 0)
            return false;
        shape[d] = d == c->split_dim ? parts
                   : multiple < 0    ? -multiple
                                     : multiple * tiles[formula_byte((*seed)++, (uint32_t)d) % kinds];
        units *= shape[d];
    }
    return units <= MOST;
}

static bool identified(lp_chain *found, const lp_chain_form *form)
{
    int64_t *const place = malloc((size_t)form->units * sizeof *place);
    for (int64_t k = 0; k < form->units; k++) {
        int64_t index[LP_CHAIN_DIMS];
        place[k] = -1;
        if (lp_chain_origin(form, k, index)) {
            place[k] = 0;
            for (int32_t d = 0; d < form->chain.ndim; d++)
                place[k] = place[k] * form->shape[d] + index[d];
        }
    }
    const lp_status status =
        lp_chain_identify_parts(found, place, form->units, form->chain.ndim, form->shape, NULL, NULL);
    free(place);
    assert_true(status == LP_OK || status == LP_E_UNSUPPORTED);
    return status == LP_OK;
}

/* True where what was found takes these sizes: then it is the layout. */
static bool is_same(const lp_chain_known *known, const lp_chain *found, const int64_t *shape, bool pads)
{
    char text[512];
    const lp_chain chain = parsed(known->chain);
    lp_chain_form form, other;
    assert_int_equal(lp_chain_resolve(&form, &chain, shape, known->pads, NULL), LP_OK);
    lp_chain_text(found, text, sizeof text);
    if (lp_chain_resolve(&other, found, shape, pads, NULL) != LP_OK)
        return false;
    const lp_chain_comparison seen = lp_chain_same(&form, &other, MOST);
    if (seen.verdict != LP_CHAIN_SAME)
        fail_msg("%s [%lld, %lld]: %s, verdict %d at %lld", known->id, (long long)shape[0], (long long)shape[1], text,
                 (int)seen.verdict, (long long)seen.place);
    return true;
}

static void what_is_found_is_never_wrong(void **state)
{
    (void)state;
    int32_t found_all = 0, right_elsewhere = 0, refused_elsewhere = 0;
    for (int32_t i = 0; i < lp_chain_known_count(); i++) {
        const lp_chain_known *const known = lp_chain_known_at(i);
        const lp_chain chain = parsed(known->chain);
        for (uint32_t seed = 40u * (uint32_t)i, round = 0; round < 2; round++) {
            const bool odd = round == 0; /* tiles each way are 3, 5 or 7 */
            int64_t shape[LP_CHAIN_DIMS] = {0}, other[LP_CHAIN_DIMS] = {0};
            lp_chain_form form;
            lp_chain found;
            if (!random_shape(&chain, &seed, odd ? 3 : 6, shape) ||
                lp_chain_resolve(&form, &chain, shape, known->pads, NULL) != LP_OK)
                continue;
            if (!identified(&found, &form)) {
                if (chain.joints == 0) /* lists over several axes are found by their name only */
                    assert_string_equal(known->id, "cannon_right"); /* rotated by an axis inside it */
                continue;
            }
            found_all++;
            assert_true(is_same(known, &found, shape, true));
            if (odd && random_shape(&chain, &seed, 3, other))
                (is_same(known, &found, other, known->pads) ? &right_elsewhere : &refused_elsewhere)[0]++;
        }
    }
    print_message("%d found, %d of them right at other sizes, %d refused there\n", found_all, right_elsewhere,
                  refused_elsewhere);
    assert_true(found_all > 240 && right_elsewhere > 110 && refused_elsewhere <= 2); /* Cannon's rotations are square */
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(what_is_found_is_never_wrong)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
