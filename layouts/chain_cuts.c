/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Common digits of two chains with sizes.
 *
 * An axis takes a digit of the numbers of elements: number / from % extent. Where one chain splits a dimension at 16
 * and the other at 64, both can count in digits of 16 and 4: a plain axis is linear in its digit, so it may be cut at
 * any divisor. Which digits depend on each other is for chain_terms.c to say.
 */
#include "layouts/chain_cuts.h"

static const lp_chain_place *place_of(const lp_chain_part *part, int32_t axis)
{
    int32_t i = 0;
    while (part->memory[i].axis != axis)
        i++;
    return &part->memory[i];
}

static bool continues(const lp_cut_span *inner, const lp_cut_span *outer)
{
    return inner->plain && outer->plain && inner->place->backwards == outer->place->backwards &&
           outer->stride == inner->stride * inner->extent && outer->from == inner->from * inner->extent;
}

static void read_side(lp_cut_side *s, const lp_chain_form *form, int32_t p)
{
    const lp_chain *const c = &form->chain;
    const lp_chain_part *const part = &c->part[p];
    int64_t next[LP_CHAIN_DIMS], end[LP_CHAIN_DIMS], below = 1;
    const uint32_t joint = lp_chain_joint_axes(c, p);
    *s = (lp_cut_side){.form = form, .p = p};
    for (int32_t d = c->ndim - 1; d >= 0; d--) {
        next[d] = below;
        end[d] = below *= form->shape[d];
    }
    for (int32_t i = part->axes - 1; i >= 0; i--) {
        const int32_t a = part->source[i], d = c->axis[a].dim;
        const int64_t extent = c->axis[a].extent, from = next[d];
        next[d] *= extent;
        const lp_chain_place *const place = place_of(part, a);
        const bool plain = lp_chain_turns(place) == 0 && place->list_end == 0 && (joint >> a & 1) == 0;
        const int64_t until = next[d] < end[d] ? next[d] : end[d];
        const lp_cut_span now = {from, extent, form->stride[p][a], until, place, a, plain};
        const bool there = from < end[d];
        if (extent == 1 || (!there && plain))
            continue;
        if (there && s->spans > 0 && continues(&s->span[s->spans - 1], &now))
            s->run[s->runs - 1].until = now.until;
        else if (there)
            s->run[s->runs++] = (lp_cut_run){from, now.until};
        s->span[s->spans++] = now;
    }
}

/* ---- blocks ---- */

static bool same_parts(const lp_chain_form *one, const lp_chain_form *other)
{
    const int32_t parts = one->chain.parts;
    return other->chain.parts == parts &&
           (parts == 1 || memcmp(one->first, other->first, (size_t)(parts + 1) * sizeof one->first[0]) == 0);
}

/* Takes dimensions into a block, from `*d` outwards, until it has `until` elements or more. Only the outermost one of a
 * block may be padded, and one with bars is alone. */
static bool grow(const lp_chain_form *form, int32_t *d, int32_t taken, int64_t *size)
{
    if (*d < 0 || (taken > 0 && (form->padded[*d + 1] != form->shape[*d + 1] || *d == form->chain.split_dim ||
                                 *d + 1 == form->chain.split_dim)))
        return false;
    *size *= form->shape[(*d)--];
    return true;
}

static bool cut_blocks(lp_cuts *out, const lp_chain_form *one, const lp_chain_form *other, int32_t p)
{
    int32_t d = one->chain.ndim - 1, e = other->chain.ndim - 1;
    int64_t from = 1;
    while (d >= 0 || e >= 0) {
        const bool bars = one->chain.split_dim >= 0 && d == one->chain.split_dim;
        const int32_t d_first = d, e_first = e;
        int64_t size = 1, other_size = 1;
        if (bars != (other->chain.split_dim >= 0 && e == other->chain.split_dim))
            return false;
        if (!grow(one, &d, 0, &size) || !grow(other, &e, 0, &other_size))
            return false;
        while (size != other_size)
            if (!(size < other_size ? grow(one, &d, d_first - d, &size) : grow(other, &e, e_first - e, &other_size)))
                return false;
        while (d >= 0 && e < 0 && grow(one, &d, d_first - d, &size)) /* dimensions of one step are left */
            continue;
        while (e >= 0 && d < 0 && grow(other, &e, e_first - e, &other_size))
            continue;
        const int64_t steps = bars ? one->first[p + 1] - one->first[p] : size;
        out->block[out->blocks++] = (lp_cut_block){from, from * steps};
        out->first += bars ? one->first[p] * from : 0;
        from *= size;
    }
    return true;
}

/* ---- digits ---- */

/* Whether a chain can count in digits that end here: whole steps of the run that it lies in, and as many in each of
 * them, unless it is the outermost of a block, where fewer are left of the last one. */
static bool may_cut(const lp_cut_side *s, const lp_cut_block *block, int64_t at)
{
    for (int32_t i = 0; i < s->runs; i++)
        if (s->run[i].from < at && at < s->run[i].until)
            return at % s->run[i].from == 0 && (s->run[i].until % at == 0 || s->run[i].until >= block->until);
    return true;
}

typedef struct candidates {
    int32_t count;
    int64_t at[LP_CUT_DIGITS];
} candidates;

static bool add(candidates *list, int64_t at)
{
    int32_t i = list->count;
    while (i > 0 && list->at[i - 1] > at)
        i--;
    if (i > 0 && list->at[i - 1] == at)
        return true;
    if (list->count == LP_CUT_DIGITS)
        return false;
    memmove(&list->at[i + 1], &list->at[i], (size_t)(list->count++ - i) * sizeof list->at[0]);
    list->at[i] = at;
    return true;
}

/* Where runs begin, and the bits of axes that swizzle or are swizzled. */
static bool add_side(candidates *list, const lp_cut_side *s)
{
    uint32_t bits = 0;
    for (int32_t i = 0; i < s->runs; i++)
        if (!add(list, s->run[i].from))
            return false;
    for (int32_t i = 0; i < s->spans; i++)
        if (s->span[i].place->swizzle != 0)
            bits |= s->span[i].place->swizzle | (uint32_t)1 << s->span[i].axis;
    for (int32_t i = 0; i < s->spans; i++)
        for (int64_t bit = 2; (bits >> s->span[i].axis & 1) != 0 && s->span[i].extent % bit == 0; bit *= 2)
            if (s->span[i].from * bit <= s->span[i].until && !add(list, s->span[i].from * bit))
                return false;
    return true;
}

static bool begins_inside(const lp_cut_side *s, int64_t from, int64_t until)
{
    for (int32_t i = 0; i < s->runs; i++)
        if (s->run[i].from > from && s->run[i].from < until)
            return true;
    return false;
}

static bool cut_digits(lp_cuts *out, const lp_cut_side *one, const lp_cut_side *other)
{
    candidates list = {0};
    for (int32_t b = 0; b < out->blocks; b++)
        if (!add(&list, out->block[b].from))
            return false;
    if (!add_side(&list, one) || !add_side(&list, other))
        return false;
    for (int32_t b = 0, i = 0; b < out->blocks; b++) {
        const lp_cut_block *const block = &out->block[b];
        int64_t last = 0;
        for (; i < list.count && (b + 1 == out->blocks || list.at[i] < out->block[b + 1].from); i++) {
            const int64_t at = list.at[i];
            if (at < block->from || at >= block->until ||
                (last != 0 && (at % last != 0 || !may_cut(one, block, at) || !may_cut(other, block, at))))
                continue;
            if (last != 0)
                out->digit[out->digits - 1].until = at;
            out->digit[out->digits] = (lp_cut_digit){at, block->until, b, out->digits, true};
            out->digits++;
            last = at;
        }
    }
    for (int32_t i = 0; i < out->digits; i++) {
        lp_cut_digit *const digit = &out->digit[i];
        digit->by_itself =
            !begins_inside(one, digit->from, digit->until) && !begins_inside(other, digit->from, digit->until);
    }
    return true;
}

bool lp_cuts_of(lp_cuts *out, const lp_chain_form *one, const lp_chain_form *other, int32_t p)
{
    lp_cut_side a, b;
    *out = (lp_cuts){0};
    if (!same_parts(one, other) || !cut_blocks(out, one, other, p))
        return false;
    read_side(&a, one, p);
    read_side(&b, other, p);
    if (!cut_digits(out, &a, &b))
        return false;
    lp_cut_join_terms(out, &a, &b);
    lp_cut_join_terms(out, &b, &a);
    return true;
}
