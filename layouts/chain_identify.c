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
 *
 * Two more kinds of digits have files of their own: bits that swizzle each other in any way (chain_linear.c) and digits
 * that rotate others (chain_rotate.c).
 *
 * What is left may be in the order of a list, the same in every block: the smallest block that moves as a whole, and
 * whose elements lie evenly in the source, is the digit.
 */
#include "layouts/chain_digits.h"

static lp_status unlike(lp_error *err, int64_t at, const char *what)
{
    lp_fail_at(err, LP_E_UNSUPPORTED, "permutation", at, "no chain has this order: %s at place %lld", what,
               (long long)at);
    lp_hint(err, "index lists are none; record them with the loader that makes them");
    return LP_E_UNSUPPORTED;
}

/* Steps of the digit at `below` that are as long as its first one, at the first places. Places have been checked to lie
 * in 0 .. count-1, so differences do not overflow. */
static int64_t even_steps(const lp_chain_recording *r, int64_t below)
{
    const int64_t *const place = r->place;
    const int64_t step = place[below] - place[0], most = r->count / below;
    int64_t extent = 2;
    while (extent < most && place[extent * below] - place[(extent - 1) * below] == step)
        extent++;
    return extent;
}

/* Returns where the steps are uneven, or -1. There are fewer digits than bits of count. */
static int64_t read_digits(lp_chain_digits *out, const lp_chain_recording *r)
{
    for (int64_t below = 1; below < r->count;) {
        const int64_t extent = even_steps(r, below);
        if (r->count / below % extent != 0)
            return extent * below;
        out->digit[out->count++] = (lp_chain_digit){.extent = extent, .step = r->place[below] - r->place[0]};
        below *= extent;
    }
    return -1;
}

/* The source element of a place, given the digits that it counts in. */
static int64_t element_of(const lp_chain_digits *list, const int64_t *at, uint64_t ones)
{
    int64_t index = 0;
    for (int32_t i = 0; i < list->count; i++) {
        const int odd = __builtin_parityll(ones & list->digit[i].swizzle);
        index += (at[i] ^ odd) * list->digit[i].step;
    }
    return index;
}

/* Whether the steps of the innermost digit are even wherever the others stand. */
static bool runs_evenly(const lp_chain_digits *list)
{
    bool even = list->count > 0 && list->digit[0].swizzle == 0;
    for (int32_t i = 0; i < list->count; i++)
        even = even && (list->digit[i].swizzle & 1) == 0;
    return even;
}

/* The first place that is not where the digits say; -1: none. Places are counted up digit by digit, in runs of the
 * innermost one. */
static int64_t first_unlike(lp_chain_recording *r, const lp_chain_digits *list)
{
    const int64_t *const place = r->place;
    const int32_t first = runs_evenly(list);
    const int64_t run = first > 0 ? list->digit[0].extent : 1, step = first > 0 ? list->digit[0].step : 0;
    int64_t at[LP_CHAIN_DIGITS] = {0};
    uint64_t ones = 0;
    for (int64_t k = 0; k < r->count; k += run) {
        const int64_t index = place[0] + element_of(list, at, ones);
        for (int64_t t = 0; t < run; t++)
            if (place[k + t] != index + t * step) {
                r->looked += k + t;
                return k + t;
            }
        for (int32_t i = first; i < list->count; i++) {
            at[i] = at[i] + 1 == list->digit[i].extent ? 0 : at[i] + 1;
            ones = (ones & ~((uint64_t)1 << i)) | (uint64_t)(at[i] & 1) << i;
            if (at[i] != 0)
                break;
        }
    }
    r->looked += r->count;
    return -1;
}

/* ---- swizzles ---- */

/* Digits of 2 steps where there are such, the odd rest outside them or, with `odd_first`, inside. */
static bool split_to_bits(const lp_chain_digits *from, bool odd_first, lp_chain_digits *out)
{
    *out = (lp_chain_digits){0};
    for (int32_t i = 0; i < from->count; i++) {
        int64_t odd = from->digit[i].extent, step = from->digit[i].step;
        int32_t bits = 0;
        for (; odd % 2 == 0; odd /= 2)
            bits++;
        if (out->count + bits + 1 > LP_CHAIN_DIGITS)
            return false;
        if (odd_first && odd > 1) {
            out->digit[out->count++] = (lp_chain_digit){.extent = odd, .step = step};
            step *= odd;
        }
        for (; bits > 0; bits--, step *= 2)
            out->digit[out->count++] = (lp_chain_digit){.extent = 2, .step = step};
        if (!odd_first && odd > 1)
            out->digit[out->count++] = (lp_chain_digit){.extent = odd, .step = step};
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

static bool find_swizzles(lp_chain_digits *list, lp_chain_recording *r)
{
    for (int odd_first = 0; odd_first < 2; odd_first++) {
        lp_chain_digits bits;
        if (split_to_bits(list, odd_first != 0, &bits) && solve_swizzles(&bits, r->place) &&
            first_unlike(r, &bits) < 0) {
            *list = bits;
            return true;
        }
    }
    return false;
}

/* ---- lists ---- */

/* Whether the digit of `extent` steps at `below` moves the source index by the same amounts wherever it stands. */
static bool moves_alike(lp_chain_recording *r, int64_t below, int64_t extent)
{
    for (int64_t block = 0; block < r->count; block += below * extent)
        for (int64_t t = 1; t < extent; t++) {
            const int64_t *const zero = r->place + block, *const here = zero + t * below;
            const int64_t moved = r->place[t * below] - r->place[0];
            int64_t i = 0;
            while (i < below && here[i] - zero[i] == moved)
                i++;
            r->looked += i;
            if (i < below)
                return false;
        }
    return true;
}

/* Reads the digit's steps: one after the other, or in the order of a list. False: neither. */
static bool read_list(lp_chain_digits *out, const int64_t *place, int64_t below, int64_t extent)
{
    lp_chain_digit digit = {.extent = extent, .step = place[below] - place[0]};
    int64_t least = 0;
    bool even = true, seen[LP_CHAIN_LISTS] = {false};
    for (int64_t t = 1; t < extent; t++) {
        const int64_t moved = place[t * below] - place[0];
        even = even && moved == t * digit.step;
        least = moved < least ? moved : least;
    }
    if (even) {
        out->digit[out->count++] = digit;
        return true;
    }
    if (extent > LP_CHAIN_LISTS - out->listed)
        return false;
    digit.step = INT64_MAX;
    for (int64_t t = 0; t < extent; t++) {
        const int64_t above = place[t * below] - place[0] - least;
        digit.step = above > 0 && above < digit.step ? above : digit.step;
    }
    for (int64_t t = 0; t < extent; t++) {
        const int64_t above = place[t * below] - place[0] - least;
        if (above % digit.step != 0 || above / digit.step >= extent || seen[above / digit.step])
            return false;
        seen[above / digit.step] = true;
        out->list[out->listed + t] = (uint8_t)(above / digit.step);
    }
    out->listed += (int32_t)extent;
    digit.list_end = (int16_t)out->listed;
    out->digit[out->count++] = digit;
    return true;
}

/* Steps of the digit at `below`: all that go on evenly, if that is a block, else the fewest that are one; 0: none. */
static int64_t block_steps(lp_chain_digits *found, lp_chain_recording *r, int64_t below)
{
    const int64_t most = r->count / below, even = even_steps(r, below);
    if (most % even == 0 && moves_alike(r, below, even) && read_list(found, r->place, below, even))
        return even;
    for (int64_t extent = 2; extent <= most && extent <= LP_CHAIN_LISTS; extent++)
        if (most % extent == 0 && moves_alike(r, below, extent) && read_list(found, r->place, below, extent))
            return extent;
    return 0;
}

static bool find_lists(lp_chain_digits *list, lp_chain_recording *r)
{
    lp_chain_digits found = {0};
    int64_t extent;
    for (int64_t below = 1; below < r->count; below *= extent) {
        extent = block_steps(&found, r, below);
        if (extent == 0)
            return false;
    }
    *list = found;
    return true;
}

lp_status lp_chain_check_recording(lp_chain_recording *r, int ndim, const int64_t *shape, lp_error *err)
{
    int64_t expected = 1;
    if (ndim < 1 || ndim > LP_CHAIN_DIMS)
        return lp_fail(err, LP_E_ARGUMENT, "a chain has 1 to %d dimensions, not %d", (int)LP_CHAIN_DIMS, ndim);
    for (int d = 0; d < ndim; d++)
        if (shape[d] < 1 || !lp_mul(expected, shape[d], &expected))
            return lp_fail(err, LP_E_ARGUMENT, "dimension %d has %lld elements", d, (long long)shape[d]);
    if (expected != r->count)
        return lp_fail(err, LP_E_ARGUMENT, "the shape has %lld elements, the permutation %lld: padded or cut",
                       (long long)expected, (long long)r->count);
    for (int64_t k = 0; k < r->count; k++)
        if (r->place[k] < 0 || r->place[k] >= r->count)
            return unlike(err, k, "no element of the source");
    r->looked += r->count;
    return LP_OK;
}

lp_status lp_chain_identify_in(lp_chain *out, lp_chain_recording *r, int ndim, const int64_t *shape, lp_error *err)
{
    lp_chain_digits list = {0};
    int64_t at = read_digits(&list, r);
    bool found = false;
    if (at < 0) {
        at = first_unlike(r, &list);
        found = at < 0 || (!r->plain && find_swizzles(&list, r));
    }
    if (!found && !r->plain)
        found = lp_chain_find_bits(&list, r, ndim, shape) || lp_chain_find_rotations(&list, r);
    if (!found && !find_lists(&list, r))
        return unlike(err, at, "the step changes");
    for (int32_t i = 0; i < list.count; i++)
        if (list.digit[i].step == 0)
            return unlike(err, 1, "an element that is there already");
    const lp_status status = lp_chain_from_digits(out, &list, ndim, shape, err);
    return status == LP_E_UNSUPPORTED && at >= 0 ? unlike(err, at, "the step changes") : status;
}

lp_status lp_chain_identify(lp_chain *out, const int64_t *place, int64_t count, int ndim, const int64_t *shape,
                            lp_error *err)
{
    lp_chain_recording r = {.place = place, .count = count};
    LP_TRY(lp_chain_check_recording(&r, ndim, shape, err));
    return lp_chain_identify_in(out, &r, ndim, shape, err);
}
