/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A chain's result as views: in one where strides say it, else in pieces.
 *
 * A piece is a range of steps of each axis. What needs pieces is fixed digit by digit: axes that turn others, have a
 * list or are rotated, and swizzled ones of a dimension that is padded. A padded dimension has a piece for each level
 * at which its size cuts an axis: whole steps of the outermost, then what remains of the next one in the last step, and
 * so on.
 */
#include "layouts/layout_private.h"
#include "traces/view_private.h"

typedef struct ranges {
    int64_t from[LP_CHAIN_AXES], until[LP_CHAIN_AXES]; /* steps of each axis */
} ranges;

/* Where an axis stands in memory. */
static const lp_chain_place *place_of(const lp_chain_part *part, int32_t axis)
{
    int32_t i = 0;
    while (part->memory[i].axis != axis)
        i++;
    return &part->memory[i];
}

/* ---- which pieces there are ---- */

static uint32_t fixed_axes(const lp_chain_form *form, int32_t p)
{
    const lp_chain *const c = &form->chain;
    const lp_chain_part *const part = &c->part[p];
    uint32_t fixed = lp_chain_joint_axes(c, p);
    for (int32_t i = 0; i < part->axes; i++) {
        const lp_chain_place *const place = &part->memory[i];
        const int32_t d = c->axis[place->axis].dim;
        fixed |= lp_chain_turns(place);
        if (place->list_end > 0 || lp_chain_late_turns(place) != 0 ||
            (place->swizzle != 0 && form->padded[d] != form->shape[d]))
            fixed |= (uint32_t)1 << place->axis;
    }
    return fixed;
}

static int32_t levels_of(const lp_chain_form *form, const lp_chain_part *part, int32_t d)
{
    int32_t levels = 0;
    for (int32_t i = 0; i < part->axes; i++)
        levels += form->chain.axis[part->source[i]].dim == d;
    return form->shape[d] == form->padded[d] ? 1 : levels;
}

/* What level `level` of a padded dimension holds of its axes. */
static void cut_tail(const lp_chain_form *form, const lp_chain_part *part, int32_t d, int32_t level, ranges *r)
{
    int64_t left = form->shape[d], below = form->padded[d];
    for (int32_t i = 0, at = 0; i < part->axes && at <= level; i++) {
        const int32_t a = part->source[i];
        if (form->chain.axis[a].dim != d)
            continue;
        below /= form->chain.axis[a].extent;
        r->from[a] = at < level ? left / below : 0;
        r->until[a] = at < level ? left / below + 1 : left / below;
        left %= below;
        at++;
    }
}

/* Piece *number of part p: false where it is empty; *number becomes -1 behind the last. */
static bool cut(const lp_chain_form *form, int32_t p, int64_t *number, ranges *r)
{
    const lp_chain *const c = &form->chain;
    const lp_chain_part *const part = &c->part[p];
    const uint32_t fixed = fixed_axes(form, p);
    int64_t left = *number;
    for (int32_t a = 0; a < c->axes; a++) {
        r->from[a] = 0;
        r->until[a] = c->axis[a].extent;
    }
    for (int32_t d = 0; d < c->ndim; d++) {
        const int32_t levels = levels_of(form, part, d);
        if (form->shape[d] != form->padded[d])
            cut_tail(form, part, d, (int32_t)(left % levels), r);
        left /= levels;
    }
    bool empty = false;
    for (int32_t i = 0; i < part->axes; i++) {
        const int32_t a = part->source[i];
        if ((fixed >> a & 1) != 0) {
            const int64_t at = left % c->axis[a].extent;
            left /= c->axis[a].extent;
            empty = empty || at < r->from[a] || at >= r->until[a];
            r->from[a] = at;
            r->until[a] = at + 1;
        }
        empty = empty || r->from[a] >= r->until[a];
    }
    if (left > 0)
        *number = -1;
    return !empty && left == 0;
}

/* ---- views of a piece ---- */

/* Steps from .. until-1 of an axis whose digit is exclusive-or'ed with `mask`: bit by bit where there is one. */
static lp_status add_steps(lp_view *v, int64_t from, int64_t until, int64_t stride_bits, int64_t mask, lp_error *err)
{
    if (mask == 0 || until - from == 1) {
        v->offset_bits += (from ^ mask) * stride_bits;
        return lp_view_add_mode(v, until - from, stride_bits, err);
    }
    for (int64_t bit = until / 2; bit > 0; bit /= 2) { /* all steps, a power of 2 of them */
        const bool turns = (mask & bit) != 0;
        v->offset_bits += turns ? bit * stride_bits : 0;
        LP_TRY(lp_view_add_mode(v, 2, (turns ? -bit : bit) * stride_bits, err));
    }
    return LP_OK;
}

static lp_status piece_region(const lp_chain_form *form, int32_t p, const ranges *r, lp_dtype dtype, lp_view *v,
                              lp_error *err)
{
    const lp_chain *const c = &form->chain;
    const lp_chain_part *const part = &c->part[p];
    const int64_t bits = lp_dtype_bits(dtype);
    const uint32_t joint = lp_chain_joint_axes(c, p);
    int64_t digit[LP_CHAIN_AXES];
    memcpy(digit, r->from, sizeof digit);
    lp_chain_join_digits(form, p, digit);
    lp_view_start(v, dtype, form->out_first[p] * form->split_stride * bits);
    for (int32_t i = 0, d = -1; i < part->axes; i++) {
        const int32_t a = part->source[i];
        const lp_chain_place *const place = place_of(part, a);
        int64_t mask = place->backwards ? c->axis[a].extent - 1 : 0, stride = form->stride[p][a] * bits;
        for (; d < c->axis[a].dim; d++)
            LP_TRY(lp_view_add_dim(v, 1, err));
        for (int32_t b = 0; b < c->axes; b++)
            if ((place->swizzle >> b & 1) != 0)
                mask ^= r->from[b];
        v->size[d] *= r->until[a] - r->from[a];
        if (place->list_end > 0 || lp_chain_late_turns(place) != 0 || (joint >> a & 1) != 0) {
            v->offset_bits += lp_chain_step_at(form, place, digit) * stride;
            continue;
        }
        if (place->swizzle == 0 && place->backwards) { /* any extent: no exclusive or */
            v->offset_bits += mask * stride;
            stride = -stride;
            mask = 0;
        }
        LP_TRY(add_steps(v, r->from[a], r->until[a], stride, mask, err));
    }
    lp_view_seal(v);
    return LP_OK;
}

/* The same steps of the source. */
static lp_status piece_source(const lp_chain_form *form, int32_t p, const ranges *r, lp_dtype dtype, lp_view *v,
                              lp_error *err)
{
    const lp_chain *const c = &form->chain;
    const lp_chain_part *const part = &c->part[p];
    const int64_t bits = lp_dtype_bits(dtype);
    int64_t stride[LP_CHAIN_AXES], outer[LP_CHAIN_DIMS], below = 1;
    for (int32_t d = c->ndim - 1; d >= 0; d--) {
        outer[d] = below;
        below *= form->shape[d];
    }
    lp_view_start(v, dtype, c->parts > 1 ? form->first[p] * outer[c->split_dim] * bits : 0);
    for (int32_t i = part->axes - 1; i >= 0; i--) {
        const lp_chain_axis *const axis = &c->axis[part->source[i]];
        stride[part->source[i]] = outer[axis->dim];
        outer[axis->dim] *= axis->extent;
    }
    for (int32_t i = 0, d = -1; i < part->axes; i++) {
        const int32_t a = part->source[i];
        for (; d < c->axis[a].dim; d++)
            LP_TRY(lp_view_add_dim(v, 1, err));
        v->size[d] *= r->until[a] - r->from[a];
        LP_TRY(add_steps(v, r->from[a], r->until[a], stride[a] * bits, 0, err));
    }
    lp_view_seal(v);
    return LP_OK;
}

static lp_status check_bits(lp_dtype dtype, lp_error *err)
{
    const int bits = lp_dtype_bits(dtype);
    return bits < 8 ? lp_fail(err, LP_E_UNSUPPORTED, "elements of %d bits are not copied one by one", bits) : LP_OK;
}

/* *cursor counts the pieces that could be there; the part is in its upper bits. */
lp_status lp_chain_piece(const lp_chain_form *form, lp_dtype dtype, int64_t *cursor, lp_view *region, lp_view *source,
                         lp_error *err)
{
    const int part_shift = 58;
    int32_t p = (int32_t)(*cursor >> part_shift);
    int64_t number = *cursor & (((int64_t)1 << part_shift) - 1);
    ranges r;
    LP_TRY(check_bits(dtype, err));
    for (;;) {
        int64_t at = number;
        const bool there = cut(form, p, &at, &r);
        number = at < 0 ? 0 : number + 1;
        p += at < 0;
        if (there || p == form->chain.parts)
            break;
    }
    if (p == form->chain.parts) {
        *cursor = -1;
        return LP_OK;
    }
    LP_TRY(piece_region(form, p, &r, dtype, region, err));
    LP_TRY(piece_source(form, p, &r, dtype, source, err));
    *cursor = ((int64_t)p << part_shift) + number;
    return LP_OK;
}

lp_status lp_chain_region(const lp_chain_form *form, lp_dtype dtype, lp_view *out, lp_error *err)
{
    const lp_chain *const c = &form->chain;
    lp_view v;
    ranges r;
    LP_TRY(check_bits(dtype, err));
    if (c->parts > 1 || fixed_axes(form, 0) != 0)
        return lp_fail(err, LP_E_UNSUPPORTED, "no one view says %s: lp_chain_piece does, in several",
                       c->parts > 1 ? "several parts" : "a swizzle, a rotation or a list");
    for (int32_t a = 0; a < c->axes; a++) {
        r.from[a] = 0;
        r.until[a] = c->axis[a].extent;
    }
    LP_TRY(piece_region(form, 0, &r, dtype, &v, err));
    for (int32_t d = 0; d < c->ndim; d++)
        if (form->shape[d] != form->padded[d])
            LP_TRY(lp_view_narrow(&v, d, 0, form->shape[d], err));
    *out = v;
    return LP_OK;
}
