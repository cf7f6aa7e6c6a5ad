/* SPDX-License-Identifier: Apache-2.0 */
/* The index formula of a chain the other way: from a place to its element. */
#include "layouts/chain_formula.h"

/* The dimension of the result in which a digit stands. */
static int32_t out_dim_of(const lp_formula *s, int32_t axis)
{
    const lp_chain_part *const part = &s->form->chain.part[s->p];
    int32_t i = 0, d = 0;
    while (part->memory[i].axis != axis)
        i++;
    while (i >= part->out_first[d + 1])
        d++;
    return d;
}

/* "off", or the place inside the block in which the digit counts: "(off%144-16)" in a part of a dimension with bars,
 * "off%33" where a dimension has room that axes do not fill. Returns how many places that has. */
static int64_t put_off(lp_layout_writer *w, const lp_formula *s, const lp_formula_digit *g)
{
    const lp_chain_form *const form = s->form;
    const int32_t split = form->chain.parts > 1 ? form->chain.split_out : -1;
    const int64_t block = split >= 0 ? form->split_stride * form->out_shape[split] : 0;
    const int64_t start = form->out_first[s->p] * form->split_stride;
    const int32_t d = out_dim_of(s, g->axis);
    if (d != split) {
        int64_t places = 1;
        for (int32_t k = form->chain.out_ndim - 1; k >= d; k--)
            places *= form->out_shape[k];
        const bool cut = form->chain.room[d] != 0 && places < form->units;
        lp_layout_put(w, "off");
        if (cut)
            lp_layout_put(w, "%%%lld", (long long)places);
        return cut ? places : form->units;
    }
    if (g->stride * g->extent <= form->split_stride) {
        lp_layout_put(w, "off");
        return form->units;
    }
    lp_layout_put(w, start > 0 ? "(off" : "off");
    if (block < form->units)
        lp_layout_put(w, "%%%lld", (long long)block);
    if (start > 0)
        lp_layout_put(w, "-%lld)", (long long)start);
    return form->split_stride * (form->out_end[s->p] - form->out_first[s->p]);
}

/* The digit in the source, before anything turns it. */
static void put_place_digit(lp_layout_writer *w, const lp_formula *s, const lp_formula_digit *g)
{
    if (g->backwards)
        lp_layout_put(w, "%lld-", (long long)(g->extent - 1));
    if (g->listed)
        lp_layout_put(w, "%s[", s->form->chain.axis[g->axis].name);
    const int64_t places = put_off(w, s, g);
    if (g->stride != 1)
        lp_layout_put(w, "/%lld", (long long)g->stride);
    if (g->stride * g->extent != places)
        lp_layout_put(w, "%%%lld", (long long)g->extent);
    lp_layout_put(w, g->listed ? "]" : "");
}

/* The digit of an axis before lists over several axes from `list` on: "w_x[4*(off/8%3) + (off%4)]/4%3". */
static void put_joint_digit(lp_layout_writer *w, const lp_formula *s, int32_t axis, int32_t list)
{
    const lp_chain *const c = &s->form->chain;
    int32_t dim;
    int64_t below = 0;
    while (list < c->joints && lp_formula_in_joint(s, &c->joint[list], axis, &below) < 0)
        list++;
    if (list >= c->joints) {
        const lp_formula_digit g = lp_formula_digit_of(s, axis, &dim);
        put_place_digit(w, s, &g);
        return;
    }
    const lp_chain_joint *const joint = &c->joint[list];
    lp_formula_put_joint(w, s, joint);
    for (int32_t i = 0; i < joint->axes; i++) {
        int64_t factor;
        (void)lp_formula_in_joint(s, joint, joint->axis[i], &factor);
        lp_layout_put(w, i == 0 ? "[" : " + ");
        lp_formula_put_factor(w, factor);
        lp_layout_put(w, "(");
        put_joint_digit(w, s, joint->axis[i], list + 1);
        lp_layout_put(w, ")");
    }
    lp_layout_put(w, below > 1 ? "]/%lld" : "]", (long long)below);
    lp_layout_put(w, "%%%lld", (long long)c->axis[axis].extent);
}

/* Those whose places exclusive-or to a digit, its own first. */
static void put_unswizzled(lp_layout_writer *w, const lp_formula *s, const lp_formula_digit *g)
{
    const lp_chain *const c = &s->form->chain;
    const uint32_t undo = s->form->undo[s->p][g->axis];
    const char *between = "";
    if ((undo >> g->axis & 1) != 0) {
        put_place_digit(w, s, g);
        between = " ^ ";
    }
    for (int32_t a = 0; a < c->axes; a++) {
        int32_t dim;
        if (a == g->axis || (undo >> a & 1) == 0)
            continue;
        const lp_formula_digit other = lp_formula_digit_of(s, a, &dim);
        lp_layout_put(w, "%s", between);
        put_place_digit(w, s, &other);
        between = " ^ ";
    }
}

/* The source digit of an axis that turns others. */
static void put_turning(lp_layout_writer *w, const lp_formula *s, int32_t axis)
{
    int32_t dim;
    const lp_formula_digit other = lp_formula_digit_of(s, axis, &dim);
    const bool bracket = other.backwards || other.place->swizzle != 0;
    lp_layout_put(w, bracket ? "(" : "");
    put_unswizzled(w, s, &other);
    lp_layout_put(w, bracket ? ")" : "");
}

/* "(off%8 + 8-off/8%8)%8": a multiple of its steps is added where something is taken away. */
static void put_unrotated(lp_layout_writer *w, const lp_formula *s, const lp_formula_digit *g)
{
    lp_layout_put(w, "(");
    put_place_digit(w, s, g);
    for (int32_t a = 0; a < s->form->chain.axes; a++) {
        const int64_t round = (s->form->chain.axis[a].extent + g->extent - 1) / g->extent * g->extent;
        if ((lp_chain_turns(g->place) >> a & 1) == 0)
            continue;
        lp_layout_put(w, " + ");
        if ((g->place->plus >> a & 1) != 0)
            lp_layout_put(w, "%lld-", (long long)round);
        put_turning(w, s, a);
    }
    lp_layout_put(w, ")%%%lld", (long long)g->extent);
}

/* "(off%6 + (5-2*(off%6))*((0 + off/6%2)%2))": the other end where the digits that turn it are odd. */
static void put_unflipped(lp_layout_writer *w, const lp_formula *s, const lp_formula_digit *g)
{
    lp_layout_put(w, "(");
    put_place_digit(w, s, g);
    lp_layout_put(w, " + (%lld-2*(", (long long)(g->extent - 1));
    put_place_digit(w, s, g);
    lp_layout_put(w, "))*((0");
    for (int32_t a = 0; a < s->form->chain.axes; a++) {
        if ((g->place->flip >> a & 1) == 0)
            continue;
        lp_layout_put(w, " + ");
        put_turning(w, s, a);
    }
    lp_layout_put(w, ")%%2))");
}

static void put_inverse(lp_layout_writer *w, const lp_formula *s)
{
    const lp_chain *const c = &s->form->chain;
    for (int32_t d = 0; d < c->ndim; d++) {
        lp_formula_digit digits[LP_CHAIN_AXES];
        const int32_t count = lp_formula_digits(s, d, digits);
        const int64_t first = d == c->split_dim ? s->form->first[s->p] : 0;
        lp_layout_put(w, d == 0 ? "" : ", ");
        lp_formula_put_index(w, c, d);
        lp_layout_put(w, count == 0 && first == 0 ? " = 0" : " = ");
        if (first > 0)
            lp_layout_put(w, "%lld", (long long)first);
        for (int32_t i = 0; i < count; i++) {
            const lp_formula_digit *const g = &digits[i];
            const bool late = lp_chain_late_turns(g->place) != 0;
            const bool bracket = !g->listed && !late && (g->below != 1 || g->backwards || g->place->swizzle != 0);
            lp_layout_put(w, i == 0 && first == 0 ? "" : " + ");
            lp_formula_put_factor(w, g->below);
            lp_layout_put(w, bracket ? "(" : "");
            if ((s->joint >> g->axis & 1) != 0)
                put_joint_digit(w, s, g->axis, 0);
            else if (g->place->flip != 0)
                put_unflipped(w, s, g);
            else if (late)
                put_unrotated(w, s, g);
            else
                put_unswizzled(w, s, g);
            lp_layout_put(w, bracket ? ")" : "");
        }
    }
}

size_t lp_chain_inverse_text(const lp_chain_form *form, char *buffer, size_t buffer_bytes)
{
    lp_layout_writer w = lp_layout_writer_start(buffer, buffer_bytes);
    const lp_chain *const c = &form->chain;
    for (int32_t k = 0; k < c->parts; k++) {
        const int32_t p = c->out_order[k];
        const lp_formula s = lp_formula_of(form, p);
        if (c->parts > 1) {
            const int64_t block = form->split_stride * form->out_shape[c->split_out];
            const int64_t end = form->out_end[p] * form->split_stride;
            lp_layout_put(&w, k == 0 ? "off" : "; off");
            if (block < form->units)
                lp_layout_put(&w, "%%%lld", (long long)block);
            lp_layout_put(&w, "<%lld: ", (long long)end);
        }
        put_inverse(&w, &s);
    }
    return w.used;
}
