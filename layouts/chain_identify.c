/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From a recorded permutation to its chain.
 *
 * In a chain the places count in mixed radix: the source index moves by one fixed step for each digit of the place. So
 * the digits can be read off one by one from the innermost on: the step is that to the next place, the digit ends where
 * the step does. Where two digits continue each other they are one, which changes no byte. Then all places are checked,
 * and digits that cross from one dimension of the source into another are cut there.
 */
#include "layouts/layout_private.h"

#include <stdio.h>
#include <stdlib.h>

typedef struct digit {
    int64_t extent, step; /* step: of the source index; negative when it runs backwards */
} digit;

typedef struct digits {
    int32_t count;
    digit digit[LP_CHAIN_AXES]; /* innermost first */
} digits;

static lp_status unlike(lp_error *err, int64_t at, const char *what)
{
    lp_fail_at(err, LP_E_UNSUPPORTED, "permutation", at, "no chain has this order: %s at place %lld", what,
               (long long)at);
    lp_hint(err, "index lists and swizzles by exclusive or are none; record them with the loader that makes them");
    return LP_E_UNSUPPORTED;
}

static lp_status add_digit(digits *list, int64_t extent, int64_t step, lp_error *err)
{
    if (list->count == LP_CHAIN_AXES)
        return lp_fail(err, LP_E_UNSUPPORTED, "no chain has this order: it takes more than %d axes",
                       (int)LP_CHAIN_AXES);
    list->digit[list->count++] = (digit){extent, step};
    return LP_OK;
}

/* Places have been checked to lie in 0 .. count-1, so differences do not overflow. */
static lp_status read_digits(digits *out, const int64_t *place, int64_t count, lp_error *err)
{
    *out = (digits){0};
    for (int64_t below = 1; below < count;) {
        const int64_t step = place[below] - place[0], most = count / below;
        int64_t extent = 2;
        while (extent < most && place[extent * below] - place[(extent - 1) * below] == step)
            extent++;
        if (most % extent != 0)
            return unlike(err, extent * below, "the step changes");
        LP_TRY(add_digit(out, extent, step, err));
        below *= extent;
    }
    return LP_OK;
}

static lp_status check_places(const digits *list, const int64_t *place, int64_t count, lp_error *err)
{
    for (int64_t k = 0; k < count; k++) {
        int64_t rest = k, index = place[0];
        for (int32_t i = 0; i < list->count; i++) {
            index += rest % list->digit[i].extent * list->digit[i].step;
            rest /= list->digit[i].extent;
        }
        if (index != place[k])
            return unlike(err, k, "the step changes");
    }
    return LP_OK;
}

/* ---- digits to axes ---- */

typedef struct piece {
    int64_t extent, stride; /* of the source index */
    int32_t dim;
    bool backwards;
} piece;

typedef struct pieces {
    int32_t count;
    piece piece[LP_CHAIN_AXES]; /* innermost of the result first */
} pieces;

/* Source strides of the dimensions; above[d] is the number of elements that one step of dimension d - 1 passes. */
static void strides_of(int ndim, const int64_t *shape, int64_t *stride)
{
    int64_t s = 1;
    for (int d = ndim - 1; d >= 0; d--) {
        stride[d] = s;
        s *= shape[d];
    }
}

/* Cuts a digit where it crosses into the next dimension. */
static lp_status cut_digit(pieces *out, digit whole, int ndim, const int64_t *shape, const int64_t *stride,
                           lp_error *err)
{
    int64_t at = llabs(whole.step), end = at * whole.extent;
    for (int d = ndim - 1; d >= 0 && at < end; d--) {
        const int64_t limit = stride[d] * shape[d];
        if (at >= limit)
            continue;
        const int64_t stop = end < limit ? end : limit;
        if (stop % at != 0 || end % stop != 0 || at % stride[d] != 0 || out->count == LP_CHAIN_AXES)
            return lp_fail(err, LP_E_UNSUPPORTED, "no chain has this order: a step of %lld crosses the rows",
                           (long long)at);
        out->piece[out->count++] = (piece){stop / at, at, d, whole.step < 0};
        at = stop;
    }
    return LP_OK;
}

/* Each source element at one place: in order of stride, every piece starts where the one before ends. */
static bool covers(const pieces *list, int64_t count)
{
    int64_t covered = 1;
    while (covered < count) {
        int32_t next = 0;
        while (next < list->count && list->piece[next].stride != covered)
            next++;
        if (next == list->count)
            return false;
        covered *= list->piece[next].extent;
    }
    return covered == count;
}

static void name_axis(char name[LP_CHAIN_NAME], const char *dim, int number, bool alone)
{
    char text[LP_CHAIN_NAME + 16];
    snprintf(text, sizeof text, alone ? "%s" : "%s%d", dim, number);
    if (!alone && text[0] >= 'A' && text[0] <= 'Z')
        text[0] = (char)(text[0] - 'A' + 'a');
    memcpy(name, text, LP_CHAIN_NAME);
    name[LP_CHAIN_NAME - 1] = '\0';
}

/* Axes in the order of the source, by falling stride; the outermost of a dimension is left open. */
static lp_status build(lp_chain *c, const pieces *list, int ndim, lp_error *err)
{
    int32_t axis_of[LP_CHAIN_AXES] = {0};
    c->ndim = ndim;
    for (int d = 0; d < ndim; d++) {
        if (ndim == 2)
            memcpy(c->dim_name[d], d == 0 ? "N" : "K", 2);
        else
            snprintf(c->dim_name[d], LP_CHAIN_NAME, "D%d", d);
        int of_dim = 0, number = 0;
        for (int32_t i = 0; i < list->count; i++)
            of_dim += list->piece[i].dim == d;
        for (int64_t above = INT64_MAX; number < of_dim || number == 0; number++) {
            int32_t next = -1;
            for (int32_t i = 0; i < list->count; i++)
                if (list->piece[i].dim == d && list->piece[i].stride < above &&
                    (next < 0 || list->piece[i].stride > list->piece[next].stride))
                    next = i;
            if (c->axes == LP_CHAIN_AXES)
                return lp_fail(err, LP_E_UNSUPPORTED, "no chain has this order: it takes more than %d axes",
                               (int)LP_CHAIN_AXES);
            lp_chain_axis *const axis = &c->axis[c->axes];
            *axis = (lp_chain_axis){.dim = d};
            name_axis(axis->name, c->dim_name[d], number, of_dim < 2);
            if (next >= 0) {
                axis->extent = number == 0 ? 0 : list->piece[next].extent;
                axis->backwards = list->piece[next].backwards;
                axis_of[next] = c->axes;
                above = list->piece[next].stride;
            } else { /* a dimension of one element: it lies outermost */
                c->memory_order[c->out_ndim++] = (int8_t)c->axes;
            }
            c->axes++;
        }
    }
    for (int32_t i = list->count - 1; i >= 0; i--)
        c->memory_order[c->out_ndim++] = (int8_t)axis_of[i];
    return LP_OK;
}

/* Open axes count blocks; what lies inside the last of them is a block, one dimension of the result. */
static void group(lp_chain *c)
{
    int32_t block = 0;
    for (int32_t i = 0; i < c->axes; i++)
        if (c->axis[c->memory_order[i]].extent == 0)
            block = i + 1;
    c->out_ndim = 0;
    for (int32_t i = 0; i < block; i++)
        c->out_first[c->out_ndim++] = (int8_t)i;
    if (block < c->axes)
        c->out_first[c->out_ndim++] = (int8_t)block;
    c->out_first[c->out_ndim] = (int8_t)c->axes;
}

lp_status lp_chain_identify(lp_chain *out, const int64_t *place, int64_t count, int ndim, const int64_t *shape,
                            lp_error *err)
{
    int64_t expected = 1, stride[LP_CHAIN_DIMS];
    if (ndim < 1 || ndim > LP_CHAIN_DIMS)
        return lp_fail(err, LP_E_ARGUMENT, "a chain has 1 to %d dimensions, not %d", (int)LP_CHAIN_DIMS, ndim);
    for (int d = 0; d < ndim; d++)
        if (shape[d] < 1 || !lp_mul(expected, shape[d], &expected))
            return lp_fail(err, LP_E_ARGUMENT, "dimension %d has %lld elements", d, (long long)shape[d]);
    if (expected != count)
        return lp_fail(err, LP_E_ARGUMENT, "the shape has %lld elements, the permutation %lld: padded or cut",
                       (long long)expected, (long long)count);
    for (int64_t k = 0; k < count; k++)
        if (place[k] < 0 || place[k] >= count)
            return unlike(err, k, "no element of the source");

    digits list;
    pieces cut = {0};
    lp_chain chain = {0};
    LP_TRY(read_digits(&list, place, count, err));
    LP_TRY(check_places(&list, place, count, err));
    strides_of(ndim, shape, stride);
    for (int32_t i = 0; i < list.count; i++) {
        if (list.digit[i].step == 0)
            return unlike(err, 1, "an element that is there already");
        LP_TRY(cut_digit(&cut, list.digit[i], ndim, shape, stride, err));
    }
    if (!covers(&cut, count))
        return lp_fail(err, LP_E_UNSUPPORTED, "no chain has this order: elements are missing or repeated");
    LP_TRY(build(&chain, &cut, ndim, err));
    group(&chain);
    *out = chain;
    return LP_OK;
}
