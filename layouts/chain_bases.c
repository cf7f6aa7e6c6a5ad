/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Linear layouts by their bases, as Triton writes them: "register = [[0, 1], [0, 2]], lane = [[1, 0], [2, 1]]".
 *
 * Vector j says which element lies at place 2^j: its index in each dimension. What lies at a sum of places is the
 * exclusive or of their elements. The places run through the vectors in the order of the text, the first one fastest.
 */
#include "layouts/chain_bits.h"
#include "layouts/chain_digits.h"
#include "layouts/chain_notation.h"

typedef struct bases {
    int32_t count, ndim;
    int64_t vector[LP_BITS_MOST][LP_CHAIN_DIMS];
} bases;

/* "[0, 2]" */
static lp_status read_vector(lp_notation *r, bases *out)
{
    int32_t d = 0;
    if (out->count == LP_BITS_MOST)
        return lp_notation_wrong(r, "more than 64 vectors");
    if (!lp_notation_skip(r, '['))
        return lp_notation_wrong(r, "'[' should stand");
    do {
        if (d == LP_CHAIN_DIMS)
            return lp_notation_wrong(r, "more than 8 dimensions");
        LP_TRY(lp_notation_number(r, &out->vector[out->count][d++]));
    } while (lp_notation_skip(r, ','));
    if (!lp_notation_skip(r, ']'))
        return lp_notation_wrong(r, "',' or ']' should stand");
    if (out->ndim != 0 && d != out->ndim)
        return lp_notation_wrong(r, "a vector of another length than those before");
    out->ndim = d;
    out->count++;
    return LP_OK;
}

/* "lane = [[1, 0], [2, 0]]"; the name, which says nothing here, may be left out. */
static lp_status read_group(lp_notation *r, bases *out)
{
    (void)lp_notation_skip(r, '\0');
    r->at += (int64_t)strcspn(r->text + r->at, "[");
    if (!lp_notation_skip(r, '['))
        return lp_notation_wrong(r, "'[' should stand");
    if (lp_notation_skip(r, ']'))
        return LP_OK;
    do {
        LP_TRY(read_vector(r, out));
    } while (lp_notation_skip(r, ','));
    return lp_notation_skip(r, ']') ? LP_OK : lp_notation_wrong(r, "',' or ']' should stand");
}

static int32_t bits_of(int64_t value)
{
    int32_t bits = 0;
    for (; value > 0; value >>= 1)
        bits++;
    return bits;
}

/* row[i]: the places in which bit i of the source's index stands, dimensions one above the other. */
static lp_status matrix_of(const bases *list, uint64_t row[LP_BITS_MOST], int64_t shape[LP_CHAIN_DIMS],
                           const lp_notation *r)
{
    int32_t bits = 0;
    for (int32_t d = list->ndim - 1; d >= 0; d--) {
        int32_t of_dim = 0;
        for (int32_t j = 0; j < list->count; j++) {
            const int32_t b = bits_of(list->vector[j][d]);
            of_dim = b > of_dim ? b : of_dim;
        }
        if (bits + of_dim > list->count)
            return lp_notation_wrong(r, "fewer vectors than bits of the indices, before");
        for (int32_t b = 0; b < of_dim; b++) {
            row[bits + b] = 0;
            for (int32_t j = 0; j < list->count; j++)
                row[bits + b] |= (uint64_t)(list->vector[j][d] >> b & 1) << j;
        }
        shape[d] = (int64_t)1 << of_dim;
        bits += of_dim;
    }
    return bits < list->count ? lp_notation_wrong(r, "more vectors than bits of the indices: places repeat, before")
                              : LP_OK;
}

/* The chain of a matrix of bits: row i has bit j where bit i of the source's index is exclusive-or'ed from place 2^j;
 * its `count` bits are all of the shape's. Spoils the rows. LP_E_ARGUMENT: not every place has an element of its own.
 */
static lp_status from_bits(lp_chain *out, int32_t count, uint64_t *row, int ndim, const int64_t *shape, bool closed,
                           lp_error *err)
{
    uint64_t inverse[LP_BITS_MOST];
    int32_t of[LP_BITS_MOST];
    lp_chain_digits digits = {.count = count, .turned = true, .closed = closed};
    if (lp_bits_invert(count, row, inverse) >= 0 || lp_bits_match(count, inverse, of) >= 0)
        return lp_fail(err, LP_E_ARGUMENT, "no order: two places have one element");
    int32_t place_of[LP_BITS_MOST];
    for (int32_t j = 0; j < count; j++)
        place_of[of[j]] = j;
    for (int32_t j = 0; j < count; j++) {
        digits.digit[j] = (lp_chain_digit){.extent = 2, .step = (int64_t)1 << of[j]};
        for (int32_t i = 0; i < count; i++)
            if (i != of[j] && (inverse[j] >> i & 1) != 0)
                digits.digit[j].swizzle |= (uint64_t)1 << place_of[i];
    }
    return lp_chain_from_digits(out, &digits, ndim, shape, err);
}

lp_status lp_chain_read_bases(lp_chain *out, const char *text, lp_error *err)
{
    bases list = {0};
    uint64_t row[LP_BITS_MOST];
    int64_t shape[LP_CHAIN_DIMS];
    lp_notation r = {.text = text, .err = err};
    const bool braces = lp_notation_skip(&r, '{');
    do {
        LP_TRY(read_group(&r, &list));
    } while (lp_notation_skip(&r, ','));
    const bool closed = !braces || lp_notation_skip(&r, '}');
    (void)lp_notation_skip(&r, '\0');
    if (!closed || text[r.at] != '\0')
        return lp_notation_wrong(&r, "',' and vectors, or the end, should stand");
    if (list.count == 0 || list.count > 56)
        return lp_notation_wrong(&r, list.count == 0 ? "no vector before" : "more than 56 vectors before");
    LP_TRY(matrix_of(&list, row, shape, &r));
    return lp_notation_end(from_bits(out, list.count, row, list.ndim, shape, true, err), err);
}
