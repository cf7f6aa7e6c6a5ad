/* SPDX-License-Identifier: Apache-2.0 */
/* The index formula of a chain with the numbers of given sizes: from an element to its place. */
#include "layouts/chain_formula.h"

/* ---- what both directions use ---- */

lp_formula lp_formula_of(const lp_chain_form *form, int32_t p)
{
    lp_formula s = {form, p, lp_chain_joint_axes(&form->chain, p), 0};
    s.apart = s.joint;
    const lp_chain_part *const part = &form->chain.part[p];
    for (int32_t i = 0; i < part->axes; i++)
        if (lp_chain_turns(&part->memory[i]) != 0 || part->memory[i].list_end > 0)
            s.apart |= lp_chain_turns(&part->memory[i]) | (uint32_t)1 << part->memory[i].axis;
    return s;
}

int32_t lp_formula_digits(const lp_formula *s, int32_t d, lp_formula_digit out[LP_CHAIN_AXES])
{
    const lp_chain *const c = &s->form->chain;
    const lp_chain_part *const part = &c->part[s->p];
    int32_t count = 0;
    for (int32_t i = 0; i < part->axes; i++) {
        const int32_t a = part->source[i];
        int32_t at = 0;
        while (part->memory[at].axis != a)
            at++;
        const lp_chain_place *const place = &part->memory[at];
        const int64_t extent = c->axis[a].extent, stride = s->form->stride[s->p][a];
        if (c->axis[a].dim != d || extent == 1)
            continue;
        lp_formula_digit *const before = count > 0 ? &out[count - 1] : NULL;
        if (before != NULL && before->backwards == place->backwards && before->stride == extent * stride &&
            ((s->apart >> a | s->apart >> before->axis) & 1) == 0) {
            before->extent *= extent;
            before->stride = stride;
        } else {
            out[count++] = (lp_formula_digit){a, 0, extent, stride, place->backwards, place->list_end > 0, place};
        }
    }
    int64_t below = 1;
    for (int32_t i = count - 1; i >= 0; i--) {
        out[i].below = below;
        below *= out[i].extent;
    }
    return count;
}

lp_formula_digit lp_formula_digit_of(const lp_formula *s, int32_t axis, int32_t *dim)
{
    lp_formula_digit digits[LP_CHAIN_AXES] = {{0}};
    *dim = s->form->chain.axis[axis].dim;
    const int32_t count = lp_formula_digits(s, *dim, digits);
    int32_t i = 0;
    while (i < count && digits[i].axis != axis)
        i++;
    static const lp_chain_place plain = {0};
    return i < count ? digits[i] : (lp_formula_digit){axis, 1, 1, 1, false, false, &plain}; /* an axis of one step */
}

void lp_formula_put_index(lp_layout_writer *w, const lp_chain *chain, int32_t d)
{
    char lower[LP_CHAIN_DIMS][LP_CHAIN_NAME];
    bool usable = true;
    for (int32_t i = 0; i < chain->ndim; i++) {
        usable = usable && chain->dim_name[i][0] != '\0';
        for (int k = 0; k < LP_CHAIN_NAME; k++) {
            const char c = chain->dim_name[i][k];
            lower[i][k] = (char)(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
        }
        for (int32_t j = 0; j < i; j++)
            usable = usable && strcmp(lower[i], lower[j]) != 0;
    }
    if (usable)
        lp_layout_put(w, "%s", lower[d]);
    else
        lp_layout_put(w, "i%d", (int)d);
}

void lp_formula_put_factor(lp_layout_writer *w, int64_t factor)
{
    if (factor != 1)
        lp_layout_put(w, "%lld*", (long long)factor);
}

void lp_formula_put_joint(lp_layout_writer *w, const lp_formula *s, const lp_chain_joint *joint)
{
    for (int32_t i = 0; i < joint->axes; i++)
        lp_layout_put(w, "%s%s", i > 0 ? "_" : "", s->form->chain.axis[joint->axis[i]].name);
}

int32_t lp_formula_in_joint(const lp_formula *s, const lp_chain_joint *joint, int32_t axis, int64_t *below)
{
    *below = 1;
    for (int32_t i = joint->axes - 1; i >= 0 && lp_chain_joint_in(&s->form->chain, joint, s->p); i--) {
        if (joint->axis[i] == axis)
            return i;
        *below *= s->form->chain.axis[joint->axis[i]].extent;
    }
    return -1;
}

/* ---- forward ---- */

/* "n/4%32"; `outermost` digits need no remainder. */
static void put_source_digit(lp_layout_writer *w, const lp_formula *s, int32_t d, const lp_formula_digit *g,
                             bool outermost)
{
    const int64_t first = d == s->form->chain.split_dim ? s->form->first[s->p] : 0;
    lp_layout_put(w, first > 0 ? "(" : "");
    lp_formula_put_index(w, &s->form->chain, d);
    if (first > 0)
        lp_layout_put(w, "-%lld)", (long long)first);
    if (g->below > 1)
        lp_layout_put(w, "/%lld", (long long)g->below);
    if (!outermost)
        lp_layout_put(w, "%%%lld", (long long)g->extent);
}

/* The digit of an axis behind the first `lists` lists over several axes: "w_x.index(4*(b%3) + (x%4))/4%3". */
static void put_joint_digit(lp_layout_writer *w, const lp_formula *s, int32_t axis, int32_t lists)
{
    const lp_chain *const c = &s->form->chain;
    int32_t dim;
    int64_t below;
    if (lists == 0) {
        const lp_formula_digit g = lp_formula_digit_of(s, axis, &dim);
        put_source_digit(w, s, dim, &g, false);
        return;
    }
    const lp_chain_joint *const joint = &c->joint[lists - 1];
    if (lp_formula_in_joint(s, joint, axis, &below) < 0) {
        put_joint_digit(w, s, axis, lists - 1);
        return;
    }
    lp_formula_put_joint(w, s, joint);
    for (int32_t i = 0; i < joint->axes; i++) {
        int64_t factor;
        (void)lp_formula_in_joint(s, joint, joint->axis[i], &factor);
        lp_layout_put(w, i == 0 ? ".index(" : " + ");
        lp_formula_put_factor(w, factor);
        lp_layout_put(w, "(");
        put_joint_digit(w, s, joint->axis[i], lists - 1);
        lp_layout_put(w, ")");
    }
    lp_layout_put(w, below > 1 ? ")/%lld" : ")", (long long)below);
    lp_layout_put(w, "%%%lld", (long long)c->axis[axis].extent);
}

/* Digits that turn g, each behind its sign: " ^ n%8". */
static void put_turns(lp_layout_writer *w, const lp_formula *s, const lp_formula_digit *g)
{
    for (int32_t a = 0; a < s->form->chain.axes; a++) {
        int32_t dim;
        if ((lp_chain_turns(g->place) >> a & 1) == 0)
            continue;
        const lp_formula_digit other = lp_formula_digit_of(s, a, &dim);
        const char sign = lp_chain_turn_sign(g->place, a);
        lp_layout_put(w, " %c ", sign == '~' ? '+' : sign);
        put_source_digit(w, s, dim, &other, false);
    }
}

/* The step that a digit stands at: "k/16%8 ^ n%8", "(k%8 + n%8)%8", "s.index(k%8)", "k%6 + (5-2*(k%6))*((0 + n%2)%2)".
 */
static void put_step(lp_layout_writer *w, const lp_formula *s, int32_t d, const lp_formula_digit *g, bool outermost)
{
    const bool turned = lp_chain_turns(g->place) != 0, flipped = g->place->flip != 0;
    const bool rotated = (g->place->plus | g->place->minus) != 0;
    if (g->backwards)
        lp_layout_put(w, turned ? "%lld-(" : "%lld-", (long long)(g->extent - 1));
    if (g->listed)
        lp_layout_put(w, "%s.index(", s->form->chain.axis[g->axis].name);
    lp_layout_put(w, rotated ? "(" : "");
    if ((s->joint >> g->axis & 1) != 0)
        put_joint_digit(w, s, g->axis, s->form->chain.joints);
    else
        put_source_digit(w, s, d, g, outermost);
    if (flipped) {
        lp_layout_put(w, " + (%lld-2*(", (long long)(g->extent - 1));
        put_source_digit(w, s, d, g, outermost);
        lp_layout_put(w, "))*((0");
    }
    put_turns(w, s, g);
    if (rotated)
        lp_layout_put(w, ")%%%lld", (long long)g->extent);
    lp_layout_put(w, flipped ? ")%%2)" : "");
    lp_layout_put(w, g->listed || (g->backwards && turned) ? ")" : "");
}

static void put_forward(lp_layout_writer *w, const lp_formula *s)
{
    const lp_chain *const c = &s->form->chain;
    const int64_t start = s->form->out_first[s->p] * s->form->split_stride;
    const char *plus = "";
    lp_layout_put(w, "off = ");
    if (start > 0) {
        lp_layout_put(w, "%lld", (long long)start);
        plus = " + ";
    }
    for (int32_t d = 0; d < c->ndim; d++) {
        lp_formula_digit digits[LP_CHAIN_AXES];
        const int32_t count = lp_formula_digits(s, d, digits);
        for (int32_t i = 0; i < count; i++, plus = " + ") {
            const lp_formula_digit *const g = &digits[i];
            const bool turned = lp_chain_turns(g->place) != 0 || (s->joint >> g->axis & 1) != 0;
            const bool plain = g->below == 1 && i == 0 && !g->backwards && !turned;
            lp_layout_put(w, "%s", plus);
            lp_formula_put_factor(w, g->stride);
            lp_layout_put(w, g->listed || plain ? "" : "(");
            put_step(w, s, d, g, i == 0);
            lp_layout_put(w, g->listed || plain ? "" : ")");
        }
    }
    if (*plus == '\0')
        lp_layout_put(w, "0");
}

/* "p<2: " before all parts but an only one. */
static void put_part(lp_layout_writer *w, const lp_chain_form *form, int32_t p)
{
    if (form->chain.parts == 1)
        return;
    lp_layout_put(w, p > 0 ? "; " : "");
    lp_formula_put_index(w, &form->chain, form->chain.split_dim);
    lp_layout_put(w, "<%lld: ", (long long)form->first[p + 1]);
}

size_t lp_chain_forward_text(const lp_chain_form *form, char *buffer, size_t buffer_bytes)
{
    lp_layout_writer w = lp_layout_writer_start(buffer, buffer_bytes);
    for (int32_t p = 0; p < form->chain.parts; p++) {
        const lp_formula s = lp_formula_of(form, p);
        put_part(&w, form, p);
        put_forward(&w, &s);
    }
    return w.used;
}
