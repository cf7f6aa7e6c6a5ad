/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which digits a place depends on together.
 *
 * Each plain axis adds a term that is linear in its digit. A swizzled one has a term for each of its bits. What a list,
 * a rotation or a turn to and fro makes of an axis is one term of all digits that it depends on, unless the other chain
 * has the same term: then both drop out of the difference.
 */
#include "layouts/chain_cuts.h"

/* The digits of numbers that steps from .. until-1 of an axis take are of one group with *group (-1: none yet). */
static void join(lp_cuts *out, const lp_cut_span *x, int64_t from, int64_t until, int32_t *group)
{
    for (int32_t i = 0; i < out->digits; i++) {
        lp_cut_digit *const digit = &out->digit[i];
        if (digit->from >= (until < x->until ? until : x->until) || digit->until <= from)
            continue;
        const int32_t to = *group < 0 || digit->group < *group ? digit->group : *group;
        const int32_t gone = *group < 0 ? to : digit->group + *group - to;
        for (int32_t j = 0; j < out->digits; j++)
            if (out->digit[j].group == gone)
                out->digit[j].group = to;
        *group = to;
        digit->by_itself = false;
    }
}

static const lp_cut_span *span_of(const lp_cut_side *s, int32_t axis)
{
    for (int32_t i = 0; i < s->spans; i++)
        if (s->span[i].axis == axis)
            return &s->span[i];
    return NULL; /* of one step */
}

/* The axes of a mask in digits of the numbers, whatever they are called. */
static bool same_turns(const lp_cut_side *s, uint32_t mask, const lp_cut_side *t, uint32_t other)
{
    int32_t left = 0;
    for (int32_t i = 0; i < t->spans; i++)
        left += (int32_t)(other >> t->span[i].axis & 1);
    for (int32_t i = 0; i < s->spans; i++) {
        if ((mask >> s->span[i].axis & 1) == 0)
            continue;
        int32_t j = 0;
        while (j < t->spans && ((other >> t->span[j].axis & 1) == 0 || t->span[j].from != s->span[i].from ||
                                t->span[j].extent != s->span[i].extent))
            j++;
        if (j == t->spans)
            return false;
        left--;
    }
    return left == 0;
}

static bool has_term(const lp_cut_side *t, const lp_cut_span *wanted, const lp_cut_side *s)
{
    for (int32_t i = 0; i < t->spans; i++) {
        const lp_cut_span *const x = &t->span[i];
        const lp_chain_place *const a = x->place, *const b = wanted->place;
        const size_t steps = (size_t)(b->list_end > 0 ? wanted->extent : 0);
        if (x->from == wanted->from && x->extent == wanted->extent && x->stride == wanted->stride &&
            a->backwards == b->backwards && (a->list_end > 0) == (b->list_end > 0) &&
            (steps == 0 || memcmp(&t->form->chain.list[a->list_end - x->extent],
                                  &s->form->chain.list[b->list_end - x->extent], steps) == 0) &&
            same_turns(t, a->swizzle, s, b->swizzle) && same_turns(t, a->plus, s, b->plus) &&
            same_turns(t, a->minus, s, b->minus) && same_turns(t, a->flip, s, b->flip))
            return true;
    }
    return false;
}

static void join_swizzled(lp_cuts *out, const lp_cut_side *s, const lp_cut_span *x)
{
    for (int64_t bit = 1; bit < x->extent; bit *= 2) {
        int32_t group = -1;
        join(out, x, x->from * bit, x->from * bit * 2, &group);
        for (int32_t a = 0; a < s->form->chain.axes; a++) {
            const lp_cut_span *const by = (x->place->swizzle >> a & 1) != 0 ? span_of(s, a) : NULL;
            if (by != NULL && (by->extent & (by->extent - 1)) != 0)
                join(out, by, by->from, by->until, &group);
            else if (by != NULL && bit < by->extent)
                join(out, by, by->from * bit, by->from * bit * 2, &group);
        }
    }
}

/* Whether list j of several axes is the same in both, and its axes lie in the same places. */
static bool same_joint(const lp_cut_side *s, const lp_cut_side *t, int32_t j)
{
    const lp_chain_joint *const a = &s->form->chain.joint[j], *const b = &t->form->chain.joint[j];
    const bool here = lp_chain_joint_in(&s->form->chain, a, s->p);
    bool same = here == lp_chain_joint_in(&t->form->chain, b, t->p) && a->axes == b->axes && a->steps == b->steps;
    for (int32_t i = 0; i < a->axes && same && here; i++) {
        const lp_cut_span *const x = span_of(s, a->axis[i]), *const y = span_of(t, b->axis[i]);
        same = x == NULL || y == NULL ? x == y
                                      : x->from == y->from && x->extent == y->extent && x->stride == y->stride &&
                                            x->place->backwards == y->place->backwards;
    }
    return same && memcmp(&s->form->chain.list[a->list_end - a->steps], &t->form->chain.list[b->list_end - b->steps],
                          (size_t)a->steps) == 0;
}

/* What lists of several axes place depends on all of these axes; where lists share one, on those of all. */
static void join_joints(lp_cuts *out, const lp_cut_side *s, const lp_cut_side *other)
{
    const lp_chain *const c = &s->form->chain;
    bool same = c->joints == other->form->chain.joints;
    for (int32_t j = 0; j < c->joints && same; j++)
        same = same_joint(s, other, j);
    for (int32_t j = 0; j < c->joints && !same; j++) {
        int32_t group = -1;
        for (int32_t i = 0; i < c->joint[j].axes && lp_chain_joint_in(c, &c->joint[j], s->p); i++) {
            const lp_cut_span *const x = span_of(s, c->joint[j].axis[i]);
            if (x != NULL)
                join(out, x, x->from, x->until, &group);
        }
    }
}

void lp_cut_join_terms(lp_cuts *out, const lp_cut_side *s, const lp_cut_side *other)
{
    join_joints(out, s, other);
    for (int32_t i = 0; i < s->spans; i++) {
        const lp_cut_span *const x = &s->span[i];
        const bool by_list = x->place->list_end > 0;
        if ((lp_chain_turns(x->place) == 0 && !by_list) || has_term(other, x, s))
            continue;
        if (!by_list && lp_chain_late_turns(x->place) == 0) {
            join_swizzled(out, s, x);
            continue;
        }
        int32_t group = -1;
        join(out, x, x->from, x->until, &group);
        for (int32_t a = 0; a < s->form->chain.axes; a++) {
            const lp_cut_span *const by = (lp_chain_turns(x->place) >> a & 1) != 0 ? span_of(s, a) : NULL;
            if (by != NULL)
                join(out, by, by->from, by->until, &group);
        }
    }
}
