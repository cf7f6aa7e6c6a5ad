/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From a recorded permutation to a matrix of bits: the general form of swizzles.
 *
 * An index of the source is cut into bits, those of 2^e of each dimension, and an odd rest outside them. Where a place
 * digit of two steps changes bits only, the bits that it changes are its column of the matrix; any other digit counts
 * one odd rest in even steps. All places are checked afterwards.
 */
#include "layouts/chain_bits.h"
#include "layouts/chain_digits.h"

typedef struct bit_space {
    int32_t count;              /* bits of an index, */
    int64_t step[LP_BITS_MOST]; /* and what each adds to it */
} bit_space;

typedef struct bit_search {
    bit_space space;
    lp_chain_digits digits;
    int32_t bit_of[LP_CHAIN_DIGITS]; /* which place bit a digit is, or -1 */
    int32_t bits;                    /* of places */
    uint64_t column[LP_BITS_MOST];   /* of a place bit: the bits of the source that it changes */
} bit_search;

static void cut_space(bit_space *out, int ndim, const int64_t *shape)
{
    int64_t stride = 1;
    *out = (bit_space){0};
    for (int d = ndim - 1; d >= 0; stride *= shape[d--])
        for (int64_t bit = 1; shape[d] % (2 * bit) == 0; bit *= 2)
            out->step[out->count++] = bit * stride;
}

/* The bits of an index; *rest becomes what the odd rests add to it. Steps rise, so the highest is taken off first. */
static uint64_t bits_of(const bit_space *space, int ndim, const int64_t *shape, int64_t index, int64_t *rest)
{
    uint64_t bits = 0;
    int32_t b = 0;
    int64_t stride = 1, left = index;
    *rest = index;
    for (int d = ndim - 1; d >= 0; left /= shape[d--], stride *= shape[d + 1])
        for (int64_t bit = 1; shape[d] % (2 * bit) == 0; bit *= 2, b++)
            if ((left % shape[d] & bit) != 0) {
                bits |= (uint64_t)1 << b;
                *rest -= space->step[b];
            }
    return bits;
}

/* Reads the digits from the innermost on; false where a step is neither kind. */
static bool read_columns(bit_search *s, const lp_chain_recording *r, int ndim, const int64_t *shape)
{
    int64_t zero_rest, rest;
    const uint64_t zero = bits_of(&s->space, ndim, shape, r->place[0], &zero_rest);
    for (int64_t below = 1; below < r->count;) {
        const int32_t i = s->digits.count;
        const uint64_t changed = zero ^ bits_of(&s->space, ndim, shape, r->place[below], &rest);
        const bool bit = rest == zero_rest && r->count / below % 2 == 0;
        if (i == LP_CHAIN_DIGITS || (bit && s->bits == s->space.count) || (!bit && changed != 0))
            return false;
        lp_chain_digit *const digit = &s->digits.digit[s->digits.count++];
        *digit = (lp_chain_digit){.extent = 2, .step = r->place[below] - r->place[0]};
        s->bit_of[i] = bit ? s->bits : -1;
        if (bit)
            s->column[s->bits++] = changed;
        else
            for (digit->extent = 1; r->count / below > digit->extent &&
                                    r->place[digit->extent * below] - r->place[0] == digit->extent * digit->step;)
                digit->extent++;
        if (r->count / below % digit->extent != 0)
            return false;
        below *= digit->extent;
    }
    return s->bits == s->space.count;
}

/* Whether each place has the element that the columns and odd steps say. */
static bool all_fit(const bit_search *s, lp_chain_recording *r, int ndim, const int64_t *shape)
{
    int64_t at[LP_CHAIN_DIGITS] = {0}, rest;
    uint64_t bits = bits_of(&s->space, ndim, shape, r->place[0], &rest);
    for (int64_t k = 0; k < r->count; k++) {
        int64_t index = rest;
        for (uint64_t left = bits; left != 0; left &= left - 1)
            index += s->space.step[__builtin_ctzll(left)];
        if (index != r->place[k]) {
            r->looked += k;
            return false;
        }
        for (int32_t i = 0; i < s->digits.count; i++) { /* counts up */
            const lp_chain_digit *const digit = &s->digits.digit[i];
            const bool carries = ++at[i] == digit->extent;
            if (s->bit_of[i] >= 0)
                bits ^= s->column[s->bit_of[i]];
            else
                rest += carries ? (1 - digit->extent) * digit->step : digit->step;
            if (!carries)
                break;
            at[i] = 0;
        }
    }
    r->looked += r->count;
    return true;
}

/* Each place bit takes a bit of the source for its own, and is turned by the others. */
static bool turn_bits(bit_search *s, uint64_t zero)
{
    uint64_t row[LP_BITS_MOST] = {0}, inverse[LP_BITS_MOST];
    int32_t of[LP_BITS_MOST], digit_of[LP_BITS_MOST] = {0};
    for (int32_t i = 0; i < s->bits; i++)
        for (int32_t j = 0; j < s->bits; j++)
            row[i] |= (s->column[j] >> i & 1) << j;
    if (lp_bits_invert(s->bits, row, inverse) >= 0 || lp_bits_match(s->bits, inverse, of) >= 0)
        return false;
    for (int32_t i = 0; i < s->digits.count; i++)
        if (s->bit_of[i] >= 0)
            digit_of[of[s->bit_of[i]]] = i;
    for (int32_t i = 0; i < s->digits.count; i++) {
        const int32_t j = s->bit_of[i];
        lp_chain_digit *const digit = &s->digits.digit[i];
        if (j < 0)
            continue;
        digit->step = (zero >> of[j] & 1) != 0 ? -s->space.step[of[j]] : s->space.step[of[j]];
        for (int32_t b = 0; b < s->bits; b++)
            if (b != of[j] && (inverse[j] >> b & 1) != 0)
                digit->swizzle |= (uint64_t)1 << digit_of[b];
    }
    return true;
}

bool lp_chain_find_bits(lp_chain_digits *out, lp_chain_recording *r, int ndim, const int64_t *shape)
{
    bit_search s = {.digits = {.turned = true}};
    int64_t rest;
    cut_space(&s.space, ndim, shape);
    if (!read_columns(&s, r, ndim, shape) || !all_fit(&s, r, ndim, shape) ||
        !turn_bits(&s, bits_of(&s.space, ndim, shape, r->place[0], &rest)))
        return false;
    *out = s.digits;
    return true;
}
