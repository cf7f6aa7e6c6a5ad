/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From a recorded permutation with padding to a chain.
 *
 * Places without an element cannot be counted through, so this reads from the side of the source: where no axis turns
 * another, the place of an element is a sum of what its index in each dimension adds. What a dimension adds is read in
 * digits, the innermost first, until its size ends; the last one may be cut there. The digits of all dimensions must
 * then fit into each other: where steps are further apart than the digit inside them reaches, that is the last one of a
 * dimension whose size was cut, or there is room.
 */
#include "layouts/chain_digits.h"

#include <stdlib.h>

typedef struct padded_digit {
    int32_t dim;
    bool outermost;               /* of its dimension */
    int64_t extent, step, inside; /* step: of places; inside: indices of its dimension that one step counts */
} padded_digit;

typedef struct padded {
    int ndim;
    const int64_t *shape;
    int64_t count, elements;
    int64_t *at; /* the place of each element */
    int32_t digits;
    padded_digit digit[LP_CHAIN_DIGITS];
} padded;

static lp_status no_chain(lp_error *err, int64_t at, const char *what)
{
    return lp_fail_at(err, LP_E_UNSUPPORTED, "permutation", at,
                      "no chain with padding has this order: %s at place %lld", what, (long long)at);
}

/* Turns the recording round. What is outside the source is padding. */
static lp_status find_elements(padded *p, const int64_t *place, lp_error *err)
{
    for (int64_t i = 0; i < p->elements; i++)
        p->at[i] = -1;
    for (int64_t k = 0; k < p->count; k++) {
        if (place[k] < 0 || place[k] >= p->elements)
            continue;
        if (p->at[place[k]] >= 0)
            return no_chain(err, k, "an element that is there already");
        p->at[place[k]] = k;
    }
    for (int64_t i = 0; i < p->elements; i++)
        if (p->at[i] < 0)
            return lp_fail(err, LP_E_UNSUPPORTED, "no chain has this order: element %lld is missing", (long long)i);
    return LP_OK;
}

/* Source elements from an index of dimension d to the next one. */
static int64_t stride_of(const padded *p, int d)
{
    int64_t stride = 1;
    for (int k = p->ndim - 1; k > d; k--)
        stride *= p->shape[k];
    return stride;
}

/* What index i of dimension d adds to a place. */
static int64_t added(const padded *p, int64_t stride, int64_t i)
{
    return p->at[i * stride] - p->at[0];
}

static lp_status check_sums(const padded *p, lp_error *err)
{
    int64_t index[LP_CHAIN_DIMS] = {0}, stride[LP_CHAIN_DIMS];
    for (int d = 0; d < p->ndim; d++)
        stride[d] = stride_of(p, d);
    for (int64_t i = 0; i < p->elements; i++) {
        int64_t at = p->at[0];
        for (int d = 0; d < p->ndim; d++)
            at += added(p, stride[d], index[d]);
        if (at != p->at[i])
            return no_chain(err, p->at[i], "the step changes");
        for (int d = p->ndim - 1; d >= 0 && ++index[d] == p->shape[d]; d--)
            index[d] = 0;
    }
    return LP_OK;
}

/* The digits in which dimension d counts. */
static lp_status read_dim(padded *p, int d, lp_error *err)
{
    const int64_t size = p->shape[d], stride = stride_of(p, d);
    for (int64_t inside = 1; inside < size;) {
        const int64_t step = added(p, stride, inside);
        int64_t extent = 2;
        while (extent * inside < size && added(p, stride, extent * inside) == extent * step)
            extent++;
        if (p->digits == LP_CHAIN_DIGITS || step < 1)
            return no_chain(err, p->at[inside * stride], step < 1 ? "an axis that runs backwards" : "too many steps");
        for (int64_t i = inside; i < extent * inside && i < size; i++)
            if (added(p, stride, i) != added(p, stride, i % inside) + i / inside * step)
                return no_chain(err, p->at[i * stride], "the step changes");
        p->digit[p->digits++] = (padded_digit){d, extent * inside >= size, extent, step, inside};
        inside *= extent;
    }
    return LP_OK;
}

static int by_step(const void *left, const void *right)
{
    const padded_digit *const a = left, *const b = right;
    return (a->step > b->step) - (a->step < b->step);
}

/* Whether a digit goes on to where the next one starts, rather than leave room: the last one of a dimension in tiles.
 */
static bool goes_on(const padded_digit *digit, int64_t next)
{
    return digit->outermost && digit->inside > 1 && next % digit->step == 0;
}

/* Makes the digits fit into each other, and `shape` what they make of the dimensions. *room tells of places that no
 * digit counts. */
static void fit(padded *p, int64_t shape[LP_CHAIN_DIMS], bool *room)
{
    qsort(p->digit, (size_t)p->digits, sizeof p->digit[0], by_step);
    for (int d = 0; d < p->ndim; d++)
        shape[d] = 1;
    for (int32_t i = 0; i < p->digits; i++) {
        padded_digit *const digit = &p->digit[i];
        const int64_t next = i + 1 < p->digits ? p->digit[i + 1].step : p->count;
        if (digit->step * digit->extent < next && goes_on(digit, next))
            digit->extent = next / digit->step;
        *room = *room || digit->step * digit->extent != next;
        shape[digit->dim] *= digit->extent;
    }
    *room = *room || p->digits == 0 || p->digit[0].step != 1;
}

/* What the outermost dimension of the result has room for; those inside it have all got theirs. */
static void add_last_room(lp_chain *c, int64_t count)
{
    int64_t inside = 1, filled = 1;
    for (int32_t d = 1; d < c->out_ndim; d++)
        inside *= c->room[d];
    for (int32_t i = 0; i < c->part[0].out_first[1]; i++)
        filled *= c->axis[c->part[0].memory[i].axis].extent;
    if (count % inside == 0 && count / inside > filled)
        c->room[0] = count / inside;
}

/* That the chain has the places which were recorded. */
static bool says_it(const padded *p, const lp_chain *chain)
{
    lp_chain_form form;
    int64_t index[LP_CHAIN_DIMS] = {0};
    if (lp_chain_resolve(&form, chain, p->shape, true, NULL) != LP_OK || form.units != p->count)
        return false;
    for (int64_t i = 0; i < p->elements; i++) {
        if (lp_chain_locate(&form, index) != p->at[i])
            return false;
        for (int d = p->ndim - 1; d >= 0 && ++index[d] == p->shape[d]; d--)
            index[d] = 0;
    }
    return true;
}

static lp_status search(padded *p, const int64_t *place, lp_chain *out, lp_error *err)
{
    int64_t shape[LP_CHAIN_DIMS];
    bool room = false;
    LP_TRY(find_elements(p, place, err));
    LP_TRY(check_sums(p, err));
    for (int d = 0; d < p->ndim; d++)
        LP_TRY(read_dim(p, d, err));
    fit(p, shape, &room);
    lp_chain_digits list = {.count = p->digits, .closed = room};
    for (int32_t i = 0; i < p->digits; i++) {
        const padded_digit *const digit = &p->digit[i];
        int64_t step = digit->inside;
        for (int d = p->ndim - 1; d > digit->dim; d--)
            step *= shape[d];
        list.digit[i] = (lp_chain_digit){.extent = digit->extent, .step = step, .below = digit->step};
    }
    lp_status status = lp_chain_from_digits(out, &list, p->ndim, shape, err);
    if (status == LP_OK && room) {
        add_last_room(out, p->count);
        lp_chain opened = *out;
        lp_chain_open_dimensions(&opened);
        if (says_it(p, &opened)) /* there may be room for more steps than the shape has */
            *out = opened;
    }
    if (status == LP_E_ARGUMENT)
        status = no_chain(err, 0, "steps that overlap");
    return status != LP_OK || says_it(p, out) ? status : no_chain(err, p->at[0], "room that is uneven");
}

lp_status lp_chain_identify_padded(lp_chain *out, const int64_t *place, int64_t count, int ndim, const int64_t *shape,
                                   const lp_alloc *alloc, lp_error *err)
{
    padded p = {.ndim = ndim, .shape = shape, .count = count, .elements = 1};
    for (int d = 0; d < ndim; d++)
        if (!lp_mul(p.elements, shape[d], &p.elements))
            return lp_fail(err, LP_E_ARGUMENT, "dimension %d has %lld elements", d, (long long)shape[d]);
    p.at = lp_allocate(alloc, (size_t)p.elements * sizeof *p.at);
    if (p.at == NULL)
        return lp_fail_memory(err);
    const lp_status status = search(&p, place, out, err);
    lp_release(alloc, p.at);
    return status;
}
