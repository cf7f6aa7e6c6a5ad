/* SPDX-License-Identifier: Apache-2.0 */
/* The index formula of a chain, both ways, with the numbers of given sizes. */
#include "layouts/layout_private.h"

/* A part of an index: index / below % extent, found at off / stride % extent. Axes that continue each other are one. */
typedef struct digit {
    int32_t axis; /* one of them */
    int64_t below, extent, stride;
    bool backwards, listed;
    uint32_t swizzle;
} digit;

/* What a formula is about: one part of a form. */
typedef struct subject {
    const lp_chain_form *form;
    int32_t p;
    uint32_t apart; /* axes that swizzle or are swizzled, or have a list: never joined to others */
} subject;

static subject subject_of(const lp_chain_form *form, int32_t p)
{
    subject s = {form, p, 0};
    const lp_chain_part *const part = &form->chain.part[p];
    for (int32_t i = 0; i < part->axes; i++)
        if (part->memory[i].swizzle != 0 || part->memory[i].list_end > 0)
            s.apart |= part->memory[i].swizzle | (uint32_t)1 << part->memory[i].axis;
    return s;
}

/* Digits of dimension d, outermost first. */
static int32_t digits_of(const subject *s, int32_t d, digit out[LP_CHAIN_AXES])
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
        digit *const before = count > 0 ? &out[count - 1] : NULL;
        if (before != NULL && before->backwards == place->backwards && before->stride == extent * stride &&
            ((s->apart >> a | s->apart >> before->axis) & 1) == 0) {
            before->extent *= extent;
            before->stride = stride;
        } else {
            out[count++] = (digit){a, 0, extent, stride, place->backwards, place->list_end > 0, place->swizzle};
        }
    }
    int64_t below = 1;
    for (int32_t i = count - 1; i >= 0; i--) {
        out[i].below = below;
        below *= out[i].extent;
    }
    return count;
}

/* The digit of an axis that swizzles others, and the dimension that it is of. */
static digit digit_of(const subject *s, int32_t axis, int32_t *dim)
{
    digit digits[LP_CHAIN_AXES] = {{0}};
    *dim = s->form->chain.axis[axis].dim;
    const int32_t count = digits_of(s, *dim, digits);
    int32_t i = 0;
    while (i < count && digits[i].axis != axis)
        i++;
    return i < count ? digits[i] : (digit){axis, 1, 1, 1, false, false, 0}; /* an axis of one step */
}

/* "n" for dimension N; "i2" where names are missing or differ in nothing else. */
static void put_index(lp_layout_writer *w, const lp_chain *chain, int32_t d)
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

static void put_factor(lp_layout_writer *w, int64_t factor)
{
    if (factor != 1)
        lp_layout_put(w, "%lld*", (long long)factor);
}

/* ---- forward ---- */

/* "n/4%32"; `outermost` digits need no remainder. */
static void put_source_digit(lp_layout_writer *w, const subject *s, int32_t d, const digit *g, bool outermost)
{
    const int64_t first = d == s->form->chain.split_dim ? s->form->first[s->p] : 0;
    lp_layout_put(w, first > 0 ? "(" : "");
    put_index(w, &s->form->chain, d);
    if (first > 0)
        lp_layout_put(w, "-%lld)", (long long)first);
    if (g->below > 1)
        lp_layout_put(w, "/%lld", (long long)g->below);
    if (!outermost)
        lp_layout_put(w, "%%%lld", (long long)g->extent);
}

static void put_forward(lp_layout_writer *w, const subject *s)
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
        digit digits[LP_CHAIN_AXES];
        const int32_t count = digits_of(s, d, digits);
        for (int32_t i = 0; i < count; i++, plus = " + ") {
            const digit *const g = &digits[i];
            const bool whole = g->listed || (g->below == 1 && i == 0 && !g->backwards && g->swizzle == 0);
            lp_layout_put(w, "%s", plus);
            put_factor(w, g->stride);
            lp_layout_put(w, whole ? "" : "(");
            if (g->backwards)
                lp_layout_put(w, g->swizzle != 0 ? "%lld-(" : "%lld-", (long long)(g->extent - 1));
            if (g->listed)
                lp_layout_put(w, "%s.index(", c->axis[g->axis].name);
            put_source_digit(w, s, d, g, i == 0);
            for (int32_t a = 0; a < c->axes; a++) {
                int32_t dim;
                if ((g->swizzle >> a & 1) == 0)
                    continue;
                const digit other = digit_of(s, a, &dim);
                lp_layout_put(w, " ^ ");
                put_source_digit(w, s, dim, &other, false);
            }
            lp_layout_put(w, g->listed || (g->backwards && g->swizzle != 0) ? ")" : "");
            lp_layout_put(w, whole ? "" : ")");
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
    put_index(w, &form->chain, form->chain.split_dim);
    lp_layout_put(w, "<%lld: ", (long long)form->first[p + 1]);
}

size_t lp_chain_forward_text(const lp_chain_form *form, char *buffer, size_t buffer_bytes)
{
    lp_layout_writer w = lp_layout_writer_start(buffer, buffer_bytes);
    for (int32_t p = 0; p < form->chain.parts; p++) {
        const subject s = subject_of(form, p);
        put_part(&w, form, p);
        put_forward(&w, &s);
    }
    return w.used;
}

/* ---- inverse ---- */

/* "off", or the place inside its block of the dimension with bars: "(off%144-16)". Returns how many places that has. */
static int64_t put_off(lp_layout_writer *w, const subject *s, const digit *g)
{
    const lp_chain_form *const form = s->form;
    const int64_t block = form->chain.parts > 1 ? form->split_stride * form->out_shape[form->chain.split_out] : 0;
    const int64_t start = form->out_first[s->p] * form->split_stride;
    if (g->stride >= block || g->stride * g->extent <= form->split_stride) {
        lp_layout_put(w, "off");
        return form->units;
    }
    lp_layout_put(w, start > 0 ? "(off" : "off");
    if (block < form->units)
        lp_layout_put(w, "%%%lld", (long long)block);
    if (start > 0)
        lp_layout_put(w, "-%lld)", (long long)start);
    return form->split_stride * (form->out_first[s->p + 1] - form->out_first[s->p]);
}

/* The digit in the source, without those that swizzle it. */
static void put_place_digit(lp_layout_writer *w, const subject *s, const digit *g)
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

static void put_inverse(lp_layout_writer *w, const subject *s)
{
    const lp_chain *const c = &s->form->chain;
    for (int32_t d = 0; d < c->ndim; d++) {
        digit digits[LP_CHAIN_AXES];
        const int32_t count = digits_of(s, d, digits);
        const int64_t first = d == c->split_dim ? s->form->first[s->p] : 0;
        lp_layout_put(w, d == 0 ? "" : ", ");
        put_index(w, c, d);
        lp_layout_put(w, count == 0 && first == 0 ? " = 0" : " = ");
        if (first > 0)
            lp_layout_put(w, "%lld", (long long)first);
        for (int32_t i = 0; i < count; i++) {
            const digit *const g = &digits[i];
            const bool bracket = !g->listed && (g->below != 1 || g->backwards || g->swizzle != 0);
            lp_layout_put(w, i == 0 && first == 0 ? "" : " + ");
            put_factor(w, g->below);
            lp_layout_put(w, bracket ? "(" : "");
            put_place_digit(w, s, g);
            for (int32_t a = 0; a < c->axes; a++) {
                int32_t dim;
                if ((g->swizzle >> a & 1) == 0)
                    continue;
                const digit other = digit_of(s, a, &dim);
                lp_layout_put(w, " ^ ");
                put_place_digit(w, s, &other);
            }
            lp_layout_put(w, bracket ? ")" : "");
        }
    }
}

size_t lp_chain_inverse_text(const lp_chain_form *form, char *buffer, size_t buffer_bytes)
{
    lp_layout_writer w = lp_layout_writer_start(buffer, buffer_bytes);
    const lp_chain *const c = &form->chain;
    for (int32_t p = 0; p < c->parts; p++) {
        const subject s = subject_of(form, p);
        if (c->parts > 1) {
            const int64_t block = form->split_stride * form->out_shape[c->split_out];
            const int64_t end = form->out_first[p + 1] * form->split_stride;
            lp_layout_put(&w, p == 0 ? "off" : "; off");
            if (block < form->units)
                lp_layout_put(&w, "%%%lld", (long long)block);
            lp_layout_put(&w, "<%lld: ", (long long)end);
        }
        put_inverse(&w, &s);
    }
    return w.used;
}
