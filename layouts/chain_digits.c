/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From the digits of a permutation to the axes of its chain: bits that swizzle side by side are joined, digits that
 * cross from one dimension of the source into another are cut there, and what is left is named and put in order.
 */
#include "layouts/chain_digits.h"

#include "layouts/chain_bits.h"

#include <stdio.h>
#include <stdlib.h>

typedef struct piece {
    int64_t extent, stride; /* of the source index */
    int32_t dim;
    bool backwards;
    uint32_t swizzle; /* pieces */
    int16_t list_end;
} piece;

typedef struct pieces {
    int32_t count;
    piece piece[LP_CHAIN_AXES]; /* innermost of the result first */
} pieces;

/* ---- bits that go together ---- */

static bool swizzles(const lp_chain_digits *list, int32_t i, int32_t j)
{
    return i < list->count && j < list->count && (list->digit[i].swizzle >> j & 1) != 0;
}

/* Whether an axis holds the digit turned round: by its own sign, and by those of the digits that swizzle it, whose
 * places are complements of what they stand for. */
static bool runs_backwards(const lp_chain_digits *list, int32_t i)
{
    bool backwards = list->digit[i].step < 0;
    for (int32_t j = 0; j < list->count; j++)
        if (swizzles(list, i, j))
            backwards ^= list->digit[j].step < 0;
    return backwards;
}

/* Bit i: digits i and i + 1 are one axis. They continue each other, and so do those that they swizzle or are swizzled
 * by, bit for bit. */
static uint64_t joined_digits(const lp_chain_digits *list)
{
    uint64_t joined = 0, before;
    for (int32_t i = 0; i + 1 < list->count; i++) {
        int64_t step;
        if (list->digit[i].list_end == 0 && list->digit[i + 1].list_end == 0 &&
            lp_mul(llabs(list->digit[i].step), list->digit[i].extent, &step) &&
            llabs(list->digit[i + 1].step) == step && runs_backwards(list, i) == runs_backwards(list, i + 1))
            joined |= (uint64_t)1 << i;
    }
    do {
        before = joined;
        for (int32_t i = 0; i < list->count; i++)
            for (int32_t j = 0; j < list->count; j++) {
                const uint64_t up = (uint64_t)1 << i | (uint64_t)1 << j, down = up >> 1;
                if (!swizzles(list, i, j))
                    continue;
                if ((joined & up) != up || !swizzles(list, i + 1, j + 1))
                    joined &= ~up;
                if (i == 0 || j == 0 || (joined & down) != down || !swizzles(list, i - 1, j - 1))
                    joined &= ~((i > 0 ? (uint64_t)1 << (i - 1) : 0) | (j > 0 ? (uint64_t)1 << (j - 1) : 0));
            }
    } while (joined != before);
    return joined;
}

/* From the places that turn a digit of the source to the digits of the source that turn a place: the inverse over bits,
 * which is the same where no swizzled digit swizzles others. False: a place has no digit of its own. */
static bool turn_round(const lp_chain_digits *list, lp_chain_digits *out)
{
    uint64_t row[LP_CHAIN_DIGITS], inverse[LP_CHAIN_DIGITS];
    *out = *list;
    for (int32_t i = 0; i < list->count; i++)
        row[i] = list->digit[i].swizzle | (uint64_t)1 << i;
    if (lp_bits_invert(list->count, row, inverse) >= 0)
        return false;
    for (int32_t i = 0; i < list->count; i++) {
        if ((inverse[i] >> i & 1) == 0)
            return false;
        out->digit[i].swizzle = inverse[i] & ~((uint64_t)1 << i);
    }
    return true;
}

/* The same digits, bits of one axis joined; those that run backwards have a negative step. */
static void join(const lp_chain_digits *list, lp_chain_digits *out)
{
    const uint64_t joined = joined_digits(list);
    int32_t now[LP_CHAIN_DIGITS] = {0};
    *out = (lp_chain_digits){.listed = list->listed};
    memcpy(out->list, list->list, sizeof out->list);
    for (int32_t i = 0; i < list->count; i++) {
        if (i > 0 && (joined >> (i - 1) & 1) != 0) {
            now[i] = now[i - 1];
            out->digit[now[i]].extent *= list->digit[i].extent;
            continue;
        }
        now[i] = out->count++;
        out->digit[now[i]].extent = list->digit[i].extent;
        out->digit[now[i]].list_end = list->digit[i].list_end;
        out->digit[now[i]].step = llabs(list->digit[i].step) * (runs_backwards(list, i) ? -1 : 1);
    }
    for (int32_t i = 0; i < list->count; i++)
        for (int32_t j = 0; j < list->count; j++)
            if (swizzles(list, i, j))
                out->digit[now[i]].swizzle |= (uint64_t)1 << now[j];
}

/* ---- digits to pieces of dimensions ---- */

/* Cuts a digit where it crosses into the next dimension. One with a swizzle or a list lies in one. */
static lp_status cut_digit(pieces *out, lp_chain_digit whole, bool one, int ndim, const int64_t *shape, lp_error *err)
{
    int64_t at = llabs(whole.step), end = at * whole.extent, stride = 1;
    for (int d = ndim - 1; d >= 0 && at < end; stride *= shape[d--]) {
        const int64_t limit = stride * shape[d];
        if (at >= limit)
            continue;
        const int64_t stop = end < limit ? end : limit;
        if (stop % at != 0 || end % stop != 0 || at % stride != 0 || out->count == LP_CHAIN_AXES || (one && stop < end))
            return lp_fail(err, LP_E_UNSUPPORTED, "no chain has this order: a step of %lld crosses the rows",
                           (long long)at);
        out->piece[out->count++] = (piece){stop / at, at, d, whole.step < 0, 0, whole.list_end};
        at = stop;
    }
    return LP_OK;
}

static lp_status cut_digits(pieces *out, const lp_chain_digits *list, int ndim, const int64_t *shape, lp_error *err)
{
    int32_t first[LP_CHAIN_DIGITS + 1] = {0}; /* pieces of each digit */
    uint64_t turning = 0;
    for (int32_t i = 0; i < list->count; i++)
        turning |= list->digit[i].swizzle;
    for (int32_t i = 0; i < list->count; i++) {
        const bool one = list->digit[i].swizzle != 0 || (turning >> i & 1) != 0 || list->digit[i].list_end > 0;
        LP_TRY(cut_digit(out, list->digit[i], one, ndim, shape, err));
        first[i + 1] = out->count;
    }
    for (int32_t i = 0; i < list->count; i++)
        for (int32_t j = 0; j < list->count; j++)
            if (swizzles(list, i, j) && first[i] < first[i + 1] && first[j] < first[j + 1])
                out->piece[first[i]].swizzle |= (uint32_t)1 << first[j];
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

/* An order of steps that never comes again is no order of blocks. */
static bool repeats_lists(const pieces *list)
{
    for (int32_t i = 0; i < list->count; i++) {
        bool again = list->piece[i].list_end == 0;
        for (int32_t j = 0; j < list->count; j++)
            again =
                again || (list->piece[j].dim == list->piece[i].dim && list->piece[j].stride > list->piece[i].stride);
        if (!again)
            return false;
    }
    return true;
}

/* ---- pieces to axes ---- */

static void name_axis(char name[LP_CHAIN_NAME], const char *dim, int number, bool alone)
{
    char text[LP_CHAIN_NAME + 16];
    snprintf(text, sizeof text, alone ? "%s" : "%s%d", dim, number);
    if (!alone && text[0] >= 'A' && text[0] <= 'Z')
        text[0] = (char)(text[0] - 'A' + 'a');
    memcpy(name, text, LP_CHAIN_NAME);
    name[LP_CHAIN_NAME - 1] = '\0';
}

/* The piece of dimension d with the largest stride below `above`, or -1. */
static int32_t next_piece(const pieces *list, int d, int64_t above)
{
    int32_t next = -1;
    for (int32_t i = 0; i < list->count; i++)
        if (list->piece[i].dim == d && list->piece[i].stride < above &&
            (next < 0 || list->piece[i].stride > list->piece[next].stride))
            next = i;
    return next;
}

/* Axes in the order of the source, by falling stride; the outermost of a dimension is left open. */
static lp_status name_axes(lp_chain *c, const pieces *list, int ndim, int32_t axis_of[LP_CHAIN_AXES], lp_error *err)
{
    lp_chain_part *const part = &c->part[0];
    int32_t outermost = 0;
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
            const int32_t next = next_piece(list, d, above);
            if (c->axes == LP_CHAIN_AXES)
                return lp_fail(err, LP_E_UNSUPPORTED, "no chain has this order: it takes more than %d axes",
                               (int)LP_CHAIN_AXES);
            lp_chain_axis *const axis = &c->axis[c->axes];
            *axis = (lp_chain_axis){.dim = d};
            name_axis(axis->name, c->dim_name[d], number, of_dim < 2);
            if (next >= 0) {
                axis->extent = number == 0 ? 0 : list->piece[next].extent;
                axis_of[next] = c->axes;
                above = list->piece[next].stride;
            } else { /* a dimension of one element: it lies outermost */
                part->memory[outermost++].axis = (int8_t)c->axes;
            }
            part->source[c->axes] = (int8_t)c->axes;
            c->axes++;
        }
    }
    for (int32_t i = list->count - 1; i >= 0; i--) {
        lp_chain_place *const place = &part->memory[outermost++];
        *place = (lp_chain_place){
            .axis = (int8_t)axis_of[i], .backwards = list->piece[i].backwards, .list_end = list->piece[i].list_end};
        for (int32_t j = 0; j < list->count; j++)
            if ((list->piece[i].swizzle >> j & 1) != 0)
                place->swizzle |= (uint32_t)1 << axis_of[j];
    }
    part->axes = c->axes;
    return LP_OK;
}

/* Axes of a swizzle or a list keep their extents: a larger tensor has more of such blocks, not larger ones. */
static void close_blocks(lp_chain *c, const pieces *list, const int32_t axis_of[LP_CHAIN_AXES])
{
    uint32_t turning = 0;
    for (int32_t i = 0; i < list->count; i++)
        turning |= list->piece[i].swizzle;
    for (int32_t i = 0; i < list->count; i++)
        if (list->piece[i].swizzle != 0 || (turning >> i & 1) != 0 || list->piece[i].list_end > 0)
            c->axis[axis_of[i]].extent = list->piece[i].extent;
}

/* Open axes count blocks; what lies inside the last of them is a block, one dimension of the result. */
static void group(lp_chain *c)
{
    lp_chain_part *const part = &c->part[0];
    int32_t block = 0;
    for (int32_t i = 0; i < c->axes; i++)
        if (c->axis[part->memory[i].axis].extent == 0)
            block = i + 1;
    c->out_ndim = 0;
    for (int32_t i = 0; i < block; i++)
        part->out_first[c->out_ndim++] = (int8_t)i;
    if (block < c->axes)
        part->out_first[c->out_ndim++] = (int8_t)block;
    part->out_first[c->out_ndim] = (int8_t)c->axes;
}

lp_status lp_chain_from_digits(lp_chain *out, const lp_chain_digits *list, int ndim, const int64_t *shape,
                               lp_error *err)
{
    lp_chain chain = {.split_dim = -1, .split_out = -1, .parts = 1};
    lp_chain_digits turned, digits;
    pieces cut = {0};
    int32_t axis_of[LP_CHAIN_AXES] = {0};
    int64_t count = 1;
    for (int d = 0; d < ndim; d++)
        count *= shape[d];
    if (!turn_round(list, &turned))
        return lp_fail(err, LP_E_UNSUPPORTED, "no chain has this order: bits are turned by each other");
    join(&turned, &digits);
    LP_TRY(cut_digits(&cut, &digits, ndim, shape, err));
    if (!covers(&cut, count))
        return lp_fail(err, LP_E_UNSUPPORTED, "no chain has this order: elements are missing or repeated");
    if (!repeats_lists(&cut))
        return lp_fail(err, LP_E_UNSUPPORTED, "no chain has this order: it does not come again");
    LP_TRY(name_axes(&chain, &cut, ndim, axis_of, err));
    chain.listed = digits.listed;
    memcpy(chain.list, digits.list, sizeof chain.list);
    close_blocks(&chain, &cut, axis_of);
    group(&chain);
    *out = chain;
    return LP_OK;
}
