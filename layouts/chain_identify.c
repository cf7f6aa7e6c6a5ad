/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From a recorded permutation to the digits of its places.
 *
 * In a chain the places count in mixed radix: the source index moves by one fixed step for each digit of the place. So
 * the digits can be read off one by one from the innermost on: the step is that to the next place, the digit ends where
 * the step does. Where two digits continue each other they are one, which changes no byte. Then all places are checked.
 *
 * A swizzle shows in pairs of bits: bit i of the place, turned on behind bit j, steps back instead of forth where j is
 * exclusive-or'ed onto i. Its own step is hidden in that of j, which turns i too, and comes out by subtraction.
 */
#include "layouts/chain_digits.h"

static lp_status unlike(lp_error *err, int64_t at, const char *what)
{
    lp_fail_at(err, LP_E_UNSUPPORTED, "permutation", at, "no chain has this order: %s at place %lld", what,
               (long long)at);
    lp_hint(err, "index lists are none; record them with the loader that makes them");
    return LP_E_UNSUPPORTED;
}

static lp_status add_digit(lp_chain_digits *list, int64_t extent, int64_t step, lp_error *err)
{
    if (list->count == LP_CHAIN_DIGITS)
        return lp_fail(err, LP_E_UNSUPPORTED, "no chain has this order: it takes more than %d axes",
                       (int)LP_CHAIN_AXES);
    list->digit[list->count++] = (lp_chain_digit){extent, step, 0};
    return LP_OK;
}

/* Places have been checked to lie in 0 .. count-1, so differences do not overflow. */
static lp_status read_digits(lp_chain_digits *out, const int64_t *place, int64_t count, lp_error *err)
{
    out->count = 0;
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

/* The first place that is not where the digits say; -1: none. */
static int64_t first_unlike(const lp_chain_digits *list, const int64_t *place, int64_t count)
{
    for (int64_t k = 0; k < count; k++) {
        int64_t rest = k, index = place[0], at[LP_CHAIN_DIGITS] = {0};
        uint64_t ones = 0;
        for (int32_t i = 0; i < list->count; i++) {
            at[i] = rest % list->digit[i].extent;
            rest /= list->digit[i].extent;
            ones |= (uint64_t)(at[i] & 1) << i;
        }
        for (int32_t i = 0; i < list->count; i++) {
            uint64_t turning = ones & list->digit[i].swizzle;
            for (; turning != 0; turning &= turning - 1)
                at[i] ^= 1;
            index += at[i] * list->digit[i].step;
        }
        if (index != place[k])
            return k;
    }
    return -1;
}

/* ---- swizzles ---- */

/* Digits of 2 steps where there are such, the odd rest outside them or, with `odd_first`, inside. */
static bool split_to_bits(const lp_chain_digits *from, bool odd_first, lp_chain_digits *out)
{
    out->count = 0;
    for (int32_t i = 0; i < from->count; i++) {
        int64_t odd = from->digit[i].extent, step = from->digit[i].step;
        int32_t bits = 0;
        for (; odd % 2 == 0; odd /= 2)
            bits++;
        if (out->count + bits + 1 > LP_CHAIN_DIGITS)
            return false;
        if (odd_first && odd > 1) {
            out->digit[out->count++] = (lp_chain_digit){odd, step, 0};
            step *= odd;
        }
        for (; bits > 0; bits--, step *= 2)
            out->digit[out->count++] = (lp_chain_digit){2, step, 0};
        if (!odd_first && odd > 1)
            out->digit[out->count++] = (lp_chain_digit){odd, step, 0};
    }
    return true;
}

/* Finds which bits turn which, and the steps of those that do. False: a bit that is turned turns others. */
static bool solve_swizzles(lp_chain_digits *list, const int64_t *place)
{
    int64_t unit[LP_CHAIN_DIGITS] = {0}, below = 1;
    uint64_t swizzled = 0, turning = 0;
    for (int32_t i = 0; i < list->count; i++) {
        unit[i] = below;
        below *= list->digit[i].extent;
    }
    for (int32_t i = 0; i < list->count; i++)
        for (int32_t j = 0; j < list->count; j++)
            if (i != j && list->digit[i].extent == 2 && list->digit[j].extent == 2 &&
                place[unit[i] + unit[j]] - place[unit[j]] == -list->digit[i].step) {
                list->digit[i].swizzle |= (uint64_t)1 << j;
                swizzled |= (uint64_t)1 << i;
                turning |= (uint64_t)1 << j;
            }
    for (int32_t j = 0; j < list->count; j++)
        for (int32_t i = 0; i < list->count; i++)
            if ((list->digit[i].swizzle >> j & 1) != 0)
                list->digit[j].step -= list->digit[i].step;
    return (swizzled & turning) == 0;
}

static bool find_swizzles(lp_chain_digits *list, const int64_t *place, int64_t count)
{
    for (int odd_first = 0; odd_first < 2; odd_first++) {
        lp_chain_digits bits;
        if (split_to_bits(list, odd_first != 0, &bits) && solve_swizzles(&bits, place) &&
            first_unlike(&bits, place, count) < 0) {
            *list = bits;
            return true;
        }
    }
    return false;
}

lp_status lp_chain_identify(lp_chain *out, const int64_t *place, int64_t count, int ndim, const int64_t *shape,
                            lp_error *err)
{
    int64_t expected = 1;
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

    lp_chain_digits list = {0};
    LP_TRY(read_digits(&list, place, count, err));
    const int64_t at = first_unlike(&list, place, count);
    if (at >= 0 && !find_swizzles(&list, place, count))
        return unlike(err, at, "the step changes");
    for (int32_t i = 0; i < list.count; i++)
        if (list.digit[i].step == 0)
            return unlike(err, 1, "an element that is there already");
    return lp_chain_from_digits(out, &list, ndim, shape, err);
}
