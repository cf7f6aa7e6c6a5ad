/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether two chains put every element in the same place, without a look at every element.
 *
 * The place of an element in one chain, less that in the other, is a sum of terms, each of a few digits of its number
 * (chain_cuts.c). It is 0 everywhere exactly where it is 0 for the first element and no term ever leaves what it is
 * there. So each group of digits is run through by itself, the others at 0: some thousand elements instead of all.
 * Padding needs no care: an element with other digits at 0 is there whenever one with the same digits is.
 */
#include "layouts/chain_cuts.h"

typedef struct search {
    const lp_chain_form *one, *other;
    int64_t most;
    bool undecided;
    lp_chain_comparison *out;
} search;

/* Looks at an element. */
static bool differs(search *s, int64_t element)
{
    int64_t index[LP_CHAIN_DIMS], left = element;
    s->out->looked++;
    for (int32_t d = s->one->chain.ndim - 1; d >= 0; left /= s->one->shape[d--])
        index[d] = left % s->one->shape[d];
    const int64_t place = lp_chain_locate(s->one, index);
    left = element;
    for (int32_t d = s->other->chain.ndim - 1; d >= 0; left /= s->other->shape[d--])
        index[d] = left % s->other->shape[d];
    if (lp_chain_locate(s->other, index) == place)
        return false;
    s->out->place = place;
    return true;
}

/* Steps that a digit takes, the last one in part. */
static int64_t steps_of(const lp_cut_digit *digit)
{
    return (digit->until - 1) / digit->from + 1;
}

/* The element of these steps of a group's digits, all others being 0; -1: there is none. */
static int64_t element_of(const lp_cuts *cuts, const int32_t *member, int32_t members, const int64_t *step)
{
    int64_t element = cuts->first, in_block[LP_CHAIN_DIMS] = {0};
    for (int32_t i = 0; i < members; i++) {
        const lp_cut_digit *const digit = &cuts->digit[member[i]];
        in_block[digit->block] += step[i] * digit->from;
        element += step[i] * digit->from;
        if (in_block[digit->block] >= cuts->block[digit->block].until)
            return -1;
    }
    return element;
}

/* Whether one digit of a group at its first or last step shows a difference, which all steps might only after long. */
static bool single_differs(search *s, const lp_cut_digit *digit, int64_t zero)
{
    const int64_t last = steps_of(digit) - 1;
    return last > 0 && (differs(s, zero + digit->from) || differs(s, zero + last * digit->from));
}

/* Whether a group leaves its term for the first element. */
static bool group_differs(search *s, const lp_cuts *cuts, int32_t group)
{
    int32_t member[LP_CUT_DIGITS], members = 0, i = 0;
    int64_t step[LP_CUT_DIGITS] = {0}, left = s->most;
    for (int32_t j = group; j < cuts->digits; j++)
        if (cuts->digit[j].group == group)
            member[members++] = j;
    for (int32_t j = 0; j < members; j++)
        if (single_differs(s, &cuts->digit[member[j]], cuts->first))
            return true;
    if (members == 1 && cuts->digit[group].by_itself)
        return false;
    while (i < members) {
        const int64_t element = element_of(cuts, member, members, step);
        if (left-- == 0) {
            s->undecided = true;
            return false;
        }
        if (element >= 0 && differs(s, element))
            return true;
        for (i = 0; i < members && ++step[i] == steps_of(&cuts->digit[member[i]]); i++)
            step[i] = 0;
    }
    return false;
}

static bool part_differs(search *s, int32_t p)
{
    lp_cuts cuts;
    if (!lp_cuts_of(&cuts, s->one, s->other, p)) {
        s->undecided = true;
        return false;
    }
    if (differs(s, cuts.first))
        return true;
    for (int32_t i = 0; i < cuts.digits; i++)
        if (cuts.digit[i].group == i && group_differs(s, &cuts, i))
            return true;
    return false;
}

/* From the first place on. */
static bool walk_differs(search *s)
{
    for (int64_t k = 0; k < s->one->units; k++, s->out->looked++)
        if (lp_chain_element_at(s->one, k) != lp_chain_element_at(s->other, k)) {
            s->out->place = k;
            return true;
        }
    return false;
}

lp_chain_comparison lp_chain_same(const lp_chain_form *one, const lp_chain_form *other, int64_t most)
{
    lp_chain_comparison out = {.verdict = LP_CHAIN_DIFFERS, .place = -1};
    search s = {one, other, most, false, &out};
    if (one->source_units != other->source_units || one->units != other->units)
        return out;
    bool found = false;
    for (int32_t p = 0; p < one->chain.parts && !found; p++)
        found = part_differs(&s, p);
    if (one->units <= most && (found || s.undecided)) {
        s.undecided = false;
        found = walk_differs(&s);
    }
    if (!found)
        out.verdict = s.undecided ? LP_CHAIN_UNDECIDED : LP_CHAIN_SAME;
    return out;
}
