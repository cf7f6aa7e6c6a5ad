/* SPDX-License-Identifier: Apache-2.0 */
/* Where the elements of a chain with sizes lie, and what lies at a place. */
#include "layouts/layout_private.h"

/* Where the digit of an axis stands. */
int64_t lp_chain_step_at(const lp_chain_form *form, const lp_chain_place *place, const int64_t *digit)
{
    const int64_t extent = form->chain.axis[place->axis].extent;
    int64_t value = digit[place->axis];
    if (place->list_end > 0)
        return form->where[place->list_end - extent + value];
    bool odd = false;
    uint32_t others = lp_chain_turns(place);
    for (int32_t a = 0; others != 0; others >>= 1, a++) {
        if ((others & 1) == 0)
            continue;
        if ((place->swizzle >> a & 1) != 0)
            value ^= digit[a];
        else if ((place->flip >> a & 1) != 0)
            odd ^= digit[a] % 2 != 0;
        else
            value = lp_chain_rotated(value, (place->plus >> a & 1) != 0 ? digit[a] : -digit[a], extent);
    }
    return place->backwards != odd ? extent - 1 - value : value;
}

int32_t lp_chain_part_at(const lp_chain_form *form, const int64_t *index)
{
    int32_t p = 0;
    while (p + 1 < form->chain.parts && index[form->chain.split_dim] >= form->first[p + 1])
        p++;
    return p;
}

int64_t lp_chain_locate(const lp_chain_form *form, const int64_t *index)
{
    const lp_chain *const c = &form->chain;
    const int32_t p = lp_chain_part_at(form, index);
    const lp_chain_part *const part = &c->part[p];
    int64_t digit[LP_CHAIN_AXES], rest = 0, off = form->out_first[p] * form->split_stride;
    int32_t dim = -1;
    for (int32_t i = part->axes - 1; i >= 0; i--) {
        const int32_t a = part->source[i];
        if (c->axis[a].dim != dim) {
            dim = c->axis[a].dim;
            rest = index[dim] - (dim == c->split_dim ? form->first[p] : 0);
        }
        digit[a] = rest % c->axis[a].extent;
        rest /= c->axis[a].extent;
    }
    lp_chain_join_digits(form, p, digit);
    for (int32_t i = 0; i < part->axes; i++) {
        const int32_t a = part->memory[i].axis;
        off += form->stride[p][a] * lp_chain_step_at(form, &part->memory[i], digit);
    }
    return off;
}

/* ---- from a place to its element ---- */

/* Cuts a place into the steps that its axes stand at, by axis, before anything turns them. False where none stands. */
static bool read_steps(const lp_chain_form *form, int64_t off, int32_t *part_index, int64_t *step)
{
    const lp_chain *const c = &form->chain;
    int64_t at[LP_CHAIN_AXES]; /* index in each dimension of the result */
    for (int32_t d = c->out_ndim - 1; d >= 0; d--) {
        at[d] = off % form->out_shape[d];
        off /= form->out_shape[d];
    }
    int32_t p = 0;
    if (c->parts > 1) {
        while (p < c->parts && (at[c->split_out] < form->out_first[p] || at[c->split_out] >= form->out_end[p]))
            p++;
        if (p == c->parts)
            return false;
        at[c->split_out] -= form->out_first[p];
    }
    const lp_chain_part *const part = &c->part[p];
    for (int32_t d = 0; d < c->out_ndim; d++) {
        for (int32_t i = part->out_first[d + 1] - 1; i >= part->out_first[d]; i--) {
            const int32_t a = part->memory[i].axis;
            step[a] = at[d] % c->axis[a].extent;
            at[d] /= c->axis[a].extent;
        }
        if (at[d] != 0) /* room that no axis fills */
            return false;
    }
    *part_index = p;
    return true;
}

/* The digit of an axis before late turns; `step` has been turned back where axes run backwards or have a list. */
static int64_t digit_at(const lp_chain_form *form, int32_t p, const lp_chain_place *place, const int64_t *step)
{
    int64_t digit = 0;
    if (place->swizzle == 0)
        return step[place->axis];
    uint32_t others = form->undo[p][place->axis];
    for (int32_t a = 0; others != 0; others >>= 1, a++)
        if ((others & 1) != 0)
            digit ^= step[a];
    return digit;
}

/* The digits of all axes from the steps that they stand at: those that are turned late last. */
static void turn_back(const lp_chain_form *form, int32_t p, int64_t *step, int64_t *digit)
{
    const lp_chain *const c = &form->chain;
    const lp_chain_part *const part = &c->part[p];
    for (int32_t i = 0; i < part->axes; i++) {
        const lp_chain_place *const place = &part->memory[i];
        int64_t *const s = &step[place->axis];
        const int64_t extent = c->axis[place->axis].extent;
        if (place->list_end > 0)
            *s = c->list[place->list_end - extent + *s];
        else if (place->backwards)
            *s = extent - 1 - *s;
    }
    for (int32_t i = 0; i < part->axes; i++)
        digit[part->memory[i].axis] = digit_at(form, p, &part->memory[i], step);
    for (int32_t i = 0; i < part->axes; i++) {
        const lp_chain_place *const place = &part->memory[i];
        const int64_t extent = c->axis[place->axis].extent;
        int64_t *const own = &digit[place->axis];
        uint32_t others = lp_chain_late_turns(place);
        for (int32_t a = 0; others != 0; others >>= 1, a++) {
            if ((others & 1) == 0)
                continue;
            if ((place->flip >> a & 1) == 0)
                *own = lp_chain_rotated(*own, (place->plus >> a & 1) != 0 ? -digit[a] : digit[a], extent);
            else if (digit[a] % 2 != 0)
                *own = extent - 1 - *own;
        }
    }
}

bool lp_chain_origin(const lp_chain_form *form, int64_t off, int64_t *index)
{
    const lp_chain *const c = &form->chain;
    int64_t step[LP_CHAIN_AXES] = {0}, digit[LP_CHAIN_AXES] = {0};
    int32_t p;
    if (!read_steps(form, off, &p, step))
        return false;
    turn_back(form, p, step, digit);
    lp_chain_unjoin_digits(form, p, digit);
    for (int32_t d = 0; d < c->ndim; d++)
        index[d] = 0;
    for (int32_t i = 0; i < c->part[p].axes; i++) {
        const int32_t a = c->part[p].source[i];
        index[c->axis[a].dim] = index[c->axis[a].dim] * c->axis[a].extent + digit[a];
    }
    if (c->parts > 1)
        index[c->split_dim] += form->first[p];
    for (int32_t d = 0; d < c->ndim; d++)
        if (index[d] >= form->shape[d])
            return false;
    return true;
}

int64_t lp_chain_element_at(const lp_chain_form *form, int64_t off)
{
    int64_t index[LP_CHAIN_DIMS], flat = 0;
    if (!lp_chain_origin(form, off, index))
        return -1;
    for (int32_t d = 0; d < form->chain.ndim; d++)
        flat = flat * form->shape[d] + index[d];
    return flat;
}
