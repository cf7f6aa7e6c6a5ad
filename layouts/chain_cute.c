/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CuTe's notation, as CuTe prints it: "(8,(4,2)):(1,(16,8))", compositions "A o B", and a swizzle "Sw<3,4,3> o B".
 *
 * Shape and stride are trees of the same form. A leaf is a digit of its extent, whose steps are `stride` places apart;
 * in a mode the leaf that stands first counts fastest. The modes outside all others are the dimensions of the source.
 */
#include "layouts/chain_digits.h"
#include "layouts/chain_notation.h"

#include <stdlib.h>

enum { LEAVES = LP_CHAIN_DIGITS, DEPTH = 8, BITS = 56 };

typedef struct leaf {
    int64_t extent, stride;
    int32_t mode;
} leaf;

typedef struct leaves {
    int32_t count, modes;
    leaf leaf[LEAVES];
} leaves;

/* bits zero .. zero+count-1 of a place are exclusive-or'ed with those from `with` on. */
typedef struct bit_swizzle {
    int64_t count, zero, with;
} bit_swizzle;

static lp_status add_leaf(leaves *list, leaf added, const lp_notation *r)
{
    if (list->count == LEAVES)
        return lp_notation_wrong(r, "more than 64 modes");
    list->leaf[list->count++] = added;
    return LP_OK;
}

/* ---- text to leaves ---- */

/* A shape and its stride at once, so that their forms must agree. `stride` stands behind the colon. */
static lp_status read_tree(lp_notation *shape, lp_notation *stride, int depth, leaves *out)
{
    const bool tuple = lp_notation_skip(shape, '(');
    if (lp_notation_skip(stride, '(') != tuple)
        return lp_notation_wrong(stride, "a stride of another form than the shape");
    if (!tuple) {
        leaf number = {.mode = depth == 0 ? out->modes++ : out->modes - 1};
        LP_TRY(lp_notation_number(shape, &number.extent));
        if (number.extent == 0)
            return lp_notation_wrong(shape, "an extent of at least 1 should stand");
        LP_TRY(lp_notation_number(stride, &number.stride));
        return add_leaf(out, number, shape);
    }
    if (depth == DEPTH)
        return lp_notation_wrong(shape, "more than 8 brackets inside each other");
    for (bool more = true; more;) {
        if (depth == 0 && ++out->modes > LP_CHAIN_DIMS)
            return lp_notation_wrong(shape, "more than 8 dimensions");
        LP_TRY(read_tree(shape, stride, depth + 1, out));
        more = lp_notation_skip(shape, ',');
        if (lp_notation_skip(stride, ',') != more)
            return lp_notation_wrong(stride, "a stride of another form than the shape");
    }
    if (!lp_notation_skip(shape, ')'))
        return lp_notation_wrong(shape, "',' or ')' should stand");
    return lp_notation_skip(stride, ')') ? LP_OK : lp_notation_wrong(stride, "',' or ')' should stand");
}

static lp_status read_layout(lp_notation *r, leaves *out)
{
    lp_notation stride = *r;
    *out = (leaves){0};
    stride.at += (int64_t)strcspn(r->text + r->at, ":");
    if (r->text[stride.at] != ':')
        return lp_notation_wrong(&stride, "':' and strides should stand");
    const int64_t colon = stride.at++;
    LP_TRY(read_tree(r, &stride, 0, out));
    (void)lp_notation_skip(r, '\0');
    if (r->at != colon)
        return lp_notation_wrong(r, "':' should stand");
    r->at = stride.at;
    return LP_OK;
}

/* "Sw<3,4,3>" or "Swizzle<3,4,3>": the count of bits, the lowest of them, and how far apart the two are. */
static lp_status read_swizzle(lp_notation *r, bit_swizzle *out)
{
    int64_t apart;
    r->at += (int64_t)strcspn(r->text + r->at, "<");
    if (!lp_notation_skip(r, '<'))
        return lp_notation_wrong(r, "'<' should stand");
    LP_TRY(lp_notation_number(r, &out->count));
    if (!lp_notation_skip(r, ','))
        return lp_notation_wrong(r, "',' should stand");
    LP_TRY(lp_notation_number(r, &out->zero));
    if (!lp_notation_skip(r, ','))
        return lp_notation_wrong(r, "',' should stand");
    const bool down = lp_notation_skip(r, '-');
    LP_TRY(lp_notation_number(r, &apart));
    if (!lp_notation_skip(r, '>'))
        return lp_notation_wrong(r, "'>' should stand");
    if (out->count > BITS || out->zero > BITS || apart > BITS || out->zero + out->count + apart > BITS)
        return lp_notation_wrong(r, "a swizzle of more than 56 bits");
    if (apart < out->count)
        return lp_notation_wrong(r, "a swizzle of bits by themselves");
    out->with = down ? out->zero : out->zero + apart;
    out->zero = down ? out->zero + apart : out->zero;
    return LP_OK;
}

/* "o" between two layouts. */
static bool read_after(lp_notation *r)
{
    const lp_notation kept = *r;
    if (lp_notation_skip(r, 'o') && (r->text[r->at] == ' ' || r->text[r->at] == '('))
        return true;
    *r = kept;
    return false;
}

/* What CuTe prints between a swizzle and its layout: "0 o", or "smem_ptr[16b](unset) o", which says that the swizzle is
 * one of bytes, where the layout counts elements of 16 bits. */
static lp_status read_pointer(lp_notation *r, bit_swizzle *swizzle)
{
    int64_t bits, finer = 3;
    (void)lp_notation_skip(r, '\0');
    lp_notation next = *r;
    (void)lp_notation_skip(&next, '_');
    if (lp_notation_skip(&next, '0') && read_after(&next)) {
        *r = next;
    } else if (strncmp(r->text + r->at, "smem_ptr[", 9) == 0) {
        r->at += 9;
        LP_TRY(lp_notation_number(r, &bits));
        for (; bits > 1 && bits % 2 == 0; bits /= 2)
            finer--;
        if (bits != 1 || finer < -3 || swizzle->zero + finer < 0 || swizzle->with + finer < 0)
            return lp_notation_wrong(r, "an element of other than 1 to 64 bits, or wider than the swizzle, before");
        swizzle->zero += finer;
        swizzle->with += finer;
        r->at += (int64_t)strcspn(r->text + r->at, " ");
        if (!read_after(r))
            return lp_notation_wrong(r, "'o' and a layout should stand");
    }
    return LP_OK;
}

/* ---- composition ---- */

/* The leaves of `outer` that a leaf of the inner layout steps through: `stride` of its indices are skipped, then taken
 * one after the other. */
static lp_status compose_leaf(const leaves *outer, leaf inner, leaves *out, const lp_notation *r)
{
    for (int32_t i = 0; i < outer->count && inner.extent > 1; i++) {
        const leaf *const l = &outer->leaf[i];
        int64_t take = inner.extent;
        leaf step = {.mode = inner.mode};
        if (i + 1 < outer->count) {
            if (inner.stride % l->extent == 0) {
                inner.stride /= l->extent;
                continue;
            }
            const int64_t left = l->extent / inner.stride;
            if (l->extent % inner.stride != 0 || (left < take && take % left != 0))
                return lp_notation_wrong(r, "a composition of steps that do not divide each other, before");
            take = left < take ? left : take;
        }
        step.extent = take;
        if (!lp_mul(l->stride, inner.stride, &step.stride))
            return lp_notation_wrong(r, "a stride that does not fit 64 bits, before");
        LP_TRY(add_leaf(out, step, r));
        inner.extent /= take;
        inner.stride = 1;
    }
    return LP_OK;
}

/* inner becomes outer o inner. */
static lp_status compose(const leaves *outer, leaves *inner, const lp_notation *r)
{
    leaves out = {.modes = inner->modes};
    int64_t size = 1, reach = 0;
    for (int32_t i = 0; i < outer->count; i++)
        if (!lp_mul(size, outer->leaf[i].extent, &size))
            return lp_notation_wrong(r, "a size that does not fit 64 bits, before");
    for (int32_t i = 0; i < inner->count; i++) {
        int64_t steps;
        const leaf *const l = &inner->leaf[i];
        if (l->stride == 0 && l->extent > 1)
            return lp_notation_wrong(r, "a stride of 0: elements share a place, before");
        if (!lp_mul(l->extent - 1, l->stride, &steps) || !lp_add(reach, steps, &reach) || reach >= size)
            return lp_notation_wrong(r, "a layout that reaches beyond the one it is composed with, before");
        if (l->extent == 1)
            LP_TRY(add_leaf(&out, *l, r));
        else
            LP_TRY(compose_leaf(outer, *l, &out, r));
    }
    *inner = out;
    return LP_OK;
}

/* ---- leaves to digits ---- */

static int by_place(const void *left, const void *right)
{
    const lp_chain_digit *const a = left, *const b = right;
    return (a->below > b->below) - (a->below < b->below);
}

/* Digits of 2 steps up to place 2^top, where a swizzle looks at single bits, and what is above as one. */
static lp_status add_digit(lp_chain_digits *out, lp_chain_digit whole, int64_t top, const lp_notation *r)
{
    while (whole.extent > 1) {
        lp_chain_digit next = whole;
        if (top > 0 && whole.below < (int64_t)1 << top) {
            if (whole.extent % 2 != 0 || (whole.below & (whole.below - 1)) != 0)
                return lp_notation_wrong(r, "a swizzle of what are no powers of 2, before");
            next.extent = 2;
        }
        if (out->count == LP_CHAIN_DIGITS)
            return lp_notation_wrong(r, "more than 64 digits, before");
        out->digit[out->count++] = next;
        whole.extent /= next.extent;
        if (whole.extent > 1 &&
            (!lp_mul(whole.below, next.extent, &whole.below) || !lp_mul(whole.step, next.extent, &whole.step)))
            return lp_notation_wrong(r, "a stride that does not fit 64 bits, before");
    }
    return LP_OK;
}

/* The digit at a power of 2 of places, or -1. */
static int32_t bit_at(const lp_chain_digits *list, int64_t bit)
{
    int32_t i = 0;
    while (i < list->count && list->digit[i].below != (int64_t)1 << bit)
        i++;
    return i < list->count ? i : -1;
}

static lp_status swizzle_digits(lp_chain_digits *list, const bit_swizzle *s, const lp_notation *r)
{
    for (int64_t b = 0; b < s->count; b++) {
        const int32_t zero = bit_at(list, s->zero + b), with = bit_at(list, s->with + b);
        if (with < 0) /* always 0 */
            continue;
        if (zero < 0)
            return lp_notation_wrong(r, "a swizzle into places that the layout leaves out, before");
        list->digit[zero].swizzle |= (uint64_t)1 << with;
    }
    return LP_OK;
}

static lp_status make_chain(lp_chain *out, const leaves *list, const bit_swizzle *swizzle, const lp_notation *r)
{
    const int64_t top = swizzle->count + (swizzle->zero > swizzle->with ? swizzle->zero : swizzle->with);
    lp_chain_digits digits = {.turned = true, .closed = true};
    int64_t shape[LP_CHAIN_DIMS], below = 1;
    for (int32_t mode = list->modes - 1; mode >= 0; mode--) {
        shape[mode] = 1;
        for (int32_t i = 0; i < list->count; i++) {
            const leaf *const l = &list->leaf[i];
            if (l->mode != mode)
                continue;
            if (l->stride == 0 && l->extent > 1)
                return lp_notation_wrong(r, "a stride of 0: elements share a place, before");
            if (l->stride > ((int64_t)1 << BITS) / l->extent)
                return lp_notation_wrong(r, "a layout of more than 2^56 places, before");
            LP_TRY(add_digit(&digits,
                             (lp_chain_digit){.extent = l->extent, .step = below * shape[mode], .below = l->stride},
                             swizzle->count > 0 ? top : 0, r));
            if (!lp_mul(shape[mode], l->extent, &shape[mode]) || below > ((int64_t)1 << BITS) / shape[mode])
                return lp_notation_wrong(r, "a layout of more than 2^56 elements, before");
        }
        below *= shape[mode];
    }
    qsort(digits.digit, (size_t)digits.count, sizeof digits.digit[0], by_place);
    LP_TRY(swizzle_digits(&digits, swizzle, r));
    return lp_chain_from_digits(out, &digits, list->modes, shape, r->err);
}

lp_status lp_chain_read_cute(lp_chain *out, const char *text, lp_error *err)
{
    enum { FACTORS = 8 };
    leaves factor[FACTORS];
    bit_swizzle swizzle = {0};
    int32_t count = 0;
    lp_notation r = {.text = text, .err = err};
    (void)lp_notation_skip(&r, '\0');
    if (text[r.at] == 'S') {
        LP_TRY(read_swizzle(&r, &swizzle));
        if (!read_after(&r))
            return lp_notation_wrong(&r, "'o' and a layout should stand");
        LP_TRY(read_pointer(&r, &swizzle));
    }
    do {
        if (count == FACTORS)
            return lp_notation_wrong(&r, "more than 8 layouts");
        LP_TRY(read_layout(&r, &factor[count++]));
    } while (read_after(&r));
    (void)lp_notation_skip(&r, '\0');
    if (text[r.at] != '\0')
        return lp_notation_wrong(&r, "'o' and a layout, or the end, should stand");
    for (int32_t i = count - 2; i >= 0; i--) {
        LP_TRY(compose(&factor[i], &factor[i + 1], &r));
        factor[i] = factor[i + 1];
    }
    return lp_notation_end(make_chain(out, &factor[0], &swizzle, &r), err);
}
