/* SPDX-License-Identifier: Apache-2.0 */
/* The index formula of a chain, both ways, with the numbers of given sizes. */
#include "layouts/layout_private.h"

/* A part of an index: index / below % extent, found at off / stride % extent. Axes that continue each other are one. */
typedef struct digit {
    int64_t below, extent, stride;
    bool backwards;
} digit;

/* Digits of dimension d, outermost first. */
static int32_t digits_of(const lp_chain_form *form, int32_t d, digit out[LP_CHAIN_AXES])
{
    int32_t count = 0;
    for (int32_t a = 0; a < form->chain.axes; a++) {
        const lp_chain_axis *const axis = &form->chain.axis[a];
        if (axis->dim != d || axis->extent == 1)
            continue;
        digit *const before = count > 0 ? &out[count - 1] : NULL;
        if (before != NULL && before->backwards == axis->backwards &&
            before->stride == axis->extent * form->stride[a]) {
            before->extent *= axis->extent;
            before->stride = form->stride[a];
        } else {
            out[count++] = (digit){0, axis->extent, form->stride[a], axis->backwards};
        }
    }
    int64_t below = 1;
    for (int32_t i = count - 1; i >= 0; i--) {
        out[i].below = below;
        below *= out[i].extent;
    }
    return count;
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

size_t lp_chain_forward_text(const lp_chain_form *form, char *buffer, size_t buffer_bytes)
{
    lp_layout_writer w = lp_layout_writer_start(buffer, buffer_bytes);
    lp_layout_put(&w, "off = ");
    const char *plus = "";
    for (int32_t d = 0; d < form->chain.ndim; d++) {
        digit digits[LP_CHAIN_AXES];
        const int32_t count = digits_of(form, d, digits);
        for (int32_t i = 0; i < count; i++, plus = " + ") {
            const digit *const g = &digits[i];
            const bool divides = g->below > 1, reduces = i > 0, whole = !divides && !reduces && !g->backwards;
            lp_layout_put(&w, "%s", plus);
            put_factor(&w, g->stride);
            if (!whole)
                lp_layout_put(&w, "(");
            if (g->backwards)
                lp_layout_put(&w, "%lld-", (long long)(g->extent - 1));
            put_index(&w, &form->chain, d);
            if (divides)
                lp_layout_put(&w, "/%lld", (long long)g->below);
            if (reduces)
                lp_layout_put(&w, "%%%lld", (long long)g->extent);
            if (!whole)
                lp_layout_put(&w, ")");
        }
    }
    if (*plus == '\0')
        lp_layout_put(&w, "0");
    return w.used;
}

size_t lp_chain_inverse_text(const lp_chain_form *form, char *buffer, size_t buffer_bytes)
{
    lp_layout_writer w = lp_layout_writer_start(buffer, buffer_bytes);
    for (int32_t d = 0; d < form->chain.ndim; d++) {
        digit digits[LP_CHAIN_AXES];
        const int32_t count = digits_of(form, d, digits);
        lp_layout_put(&w, d == 0 ? "" : ", ");
        put_index(&w, &form->chain, d);
        lp_layout_put(&w, count == 0 ? " = 0" : " = ");
        for (int32_t i = 0; i < count; i++) {
            const digit *const g = &digits[i];
            const bool outermost = g->stride * g->extent == form->units, bracket = g->below != 1 || g->backwards;
            lp_layout_put(&w, i == 0 ? "" : " + ");
            put_factor(&w, g->below);
            lp_layout_put(&w, bracket ? "(" : "");
            if (g->backwards)
                lp_layout_put(&w, "%lld-", (long long)(g->extent - 1));
            lp_layout_put(&w, "off");
            if (g->stride != 1)
                lp_layout_put(&w, "/%lld", (long long)g->stride);
            if (!outermost)
                lp_layout_put(&w, "%%%lld", (long long)g->extent);
            lp_layout_put(&w, bracket ? ")" : "");
        }
    }
    return w.used;
}
