/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From the digits of a permutation to the axes of its chain: bits that swizzle side by side are joined, digits that
 * cross from one dimension of the source into another are cut there. chain_axes.c names what is left.
 */
#include "layouts/chain_digits.h"

#include "layouts/chain_bits.h"

#include <stdlib.h>

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

/* Digits that rotate others or are rotated. */
static uint64_t rotating(const lp_chain_digits *list)
{
    uint64_t all = 0;
    for (int32_t i = 0; i < list->count; i++) {
        const uint64_t turns = list->digit[i].plus | list->digit[i].minus | list->digit[i].flip;
        all |= turns | (uint64_t)(turns != 0) << i;
    }
    return all;
}

/* Whether one of the two swizzles or is swizzled, and the second starts a dimension of the source: an axis lies in one.
 */
static bool parts_dims(const lp_chain_digits *list, int32_t i, int ndim, const int64_t *shape)
{
    const uint64_t both = (uint64_t)3 << i;
    bool turns = (list->digit[i].swizzle | list->digit[i + 1].swizzle) != 0, starts = false;
    for (int32_t j = 0; j < list->count; j++)
        turns = turns || (list->digit[j].swizzle & both) != 0;
    int64_t stride = 1;
    for (int d = ndim - 1; d >= 0; stride *= shape[d--])
        starts = starts || llabs(list->digit[i + 1].step) == stride;
    return turns && starts;
}

/* Bit i: digits i and i + 1 are one axis. They continue each other, and so do those that they swizzle or are swizzled
 * by, bit for bit. */
static uint64_t joined_digits(const lp_chain_digits *list, int ndim, const int64_t *shape)
{
    const uint64_t rotated = rotating(list);
    uint64_t joined = 0, before;
    for (int32_t i = 0; i + 1 < list->count; i++) {
        int64_t step;
        if (list->digit[i].list_end == 0 && list->digit[i + 1].list_end == 0 &&
            lp_mul(llabs(list->digit[i].step), list->digit[i].extent, &step) &&
            llabs(list->digit[i + 1].step) == step &&
            list->digit[i + 1].below == list->digit[i].below * list->digit[i].extent &&
            runs_backwards(list, i) == runs_backwards(list, i + 1) && !parts_dims(list, i, ndim, shape) &&
            ((rotated | rotated >> 1) >> i & 1) == 0)
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
    if (list->turned)
        return true;
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
static void join(const lp_chain_digits *list, int ndim, const int64_t *shape, lp_chain_digits *out)
{
    const uint64_t joined = joined_digits(list, ndim, shape);
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
        out->digit[now[i]].below = list->digit[i].below;
        out->digit[now[i]].list_end = list->digit[i].list_end;
        out->digit[now[i]].step = llabs(list->digit[i].step) * (runs_backwards(list, i) ? -1 : 1);
    }
    for (int32_t i = 0; i < list->count; i++)
        for (int32_t j = 0; j < list->count; j++) {
            lp_chain_digit *const digit = &out->digit[now[i]];
            digit->swizzle |= (list->digit[i].swizzle >> j & 1) << now[j];
            digit->plus |= (list->digit[i].plus >> j & 1) << now[j];
            digit->minus |= (list->digit[i].minus >> j & 1) << now[j];
            digit->flip |= (list->digit[i].flip >> j & 1) << now[j];
        }
}

/* ---- digits to pieces of dimensions ---- */

/* Cuts a digit where it crosses into the next dimension. One with a swizzle or a list lies in one. */
static lp_status cut_digit(lp_chain_pieces *out, lp_chain_digit whole, bool one, int ndim, const int64_t *shape,
                           lp_error *err)
{
    int64_t at = llabs(whole.step), end = at * whole.extent, below = whole.below, stride = 1;
    for (int d = ndim - 1; d >= 0 && at < end; stride *= shape[d--]) {
        const int64_t limit = stride * shape[d];
        if (at >= limit)
            continue;
        const int64_t stop = end < limit ? end : limit;
        if (stop % at != 0 || end % stop != 0 || at % stride != 0 || out->count == LP_CHAIN_AXES || (one && stop < end))
            return lp_fail(err, LP_E_UNSUPPORTED, "no chain has this order: a step of %lld crosses the rows",
                           (long long)at);
        out->piece[out->count++] = (lp_chain_piece_of){.extent = stop / at,
                                                       .stride = at,
                                                       .below = below,
                                                       .dim = d,
                                                       .backwards = whole.step < 0,
                                                       .list_end = whole.list_end};
        below *= stop / at;
        at = stop;
    }
    return LP_OK;
}

static lp_status cut_digits(lp_chain_pieces *out, const lp_chain_digits *list, int ndim, const int64_t *shape,
                            lp_error *err)
{
    int32_t first[LP_CHAIN_DIGITS + 1] = {0}; /* pieces of each digit */
    uint64_t turning = rotating(list);
    for (int32_t i = 0; i < list->count; i++)
        turning |= list->digit[i].swizzle;
    for (int32_t i = 0; i < list->count; i++) {
        const bool one = list->digit[i].swizzle != 0 || (turning >> i & 1) != 0 || list->digit[i].list_end > 0;
        LP_TRY(cut_digit(out, list->digit[i], one, ndim, shape, err));
        first[i + 1] = out->count;
    }
    for (int32_t i = 0; i < list->count; i++)
        for (int32_t j = 0; j < list->count && first[i] < first[i + 1]; j++) {
            const uint32_t bit = first[j] < first[j + 1] ? (uint32_t)1 << first[j] : 0;
            lp_chain_piece_of *const piece = &out->piece[first[i]];
            piece->swizzle |= swizzles(list, i, j) ? bit : 0;
            piece->plus |= (list->digit[i].plus >> j & 1) != 0 ? bit : 0;
            piece->minus |= (list->digit[i].minus >> j & 1) != 0 ? bit : 0;
            piece->flip |= (list->digit[i].flip >> j & 1) != 0 ? bit : 0;
        }
    return LP_OK;
}

/* Places from one step of each digit to the next, where nothing else was said. */
static void fill_below(lp_chain_digits *list)
{
    int64_t covered = 1;
    for (int32_t i = 0; i < list->count; i++) {
        if (list->digit[i].below == 0)
            list->digit[i].below = covered;
        covered = list->digit[i].below * list->digit[i].extent;
    }
}

/* Each source element at one place: in order of stride, every piece starts where the one before ends. */
static bool covers(const lp_chain_pieces *list, int64_t count)
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
static bool repeats_lists(const lp_chain_pieces *list)
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

lp_status lp_chain_from_digits(lp_chain *out, const lp_chain_digits *list, int ndim, const int64_t *shape,
                               lp_error *err)
{
    lp_chain_digits turned, digits;
    lp_chain_pieces cut = {0};
    int64_t count = 1;
    for (int d = 0; d < ndim; d++)
        count *= shape[d];
    if (!turn_round(list, &turned))
        return lp_fail(err, LP_E_UNSUPPORTED, "no chain has this order: bits are turned by each other");
    fill_below(&turned);
    join(&turned, ndim, shape, &digits);
    LP_TRY(cut_digits(&cut, &digits, ndim, shape, err));
    if (!covers(&cut, count))
        return lp_fail(err, LP_E_UNSUPPORTED, "no chain has this order: elements are missing or repeated");
    if (!repeats_lists(&cut))
        return lp_fail(err, LP_E_UNSUPPORTED, "no chain has this order: it does not come again");
    return lp_chain_from_pieces(out, &cut, list, ndim, err);
}
