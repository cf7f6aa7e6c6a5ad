/* SPDX-License-Identifier: Apache-2.0 */
/* Between the two files that hold two chains against each other without walking over all their elements. */
#ifndef LOADPLAN_CHAIN_CUTS_H
#define LOADPLAN_CHAIN_CUTS_H

#include "layouts/layout_private.h"

enum { LP_CUT_DIGITS = 256 };

/* A digit in which both chains count the elements: number / from % ... up to `until`. Numbers are row-major. */
typedef struct lp_cut_digit {
    int64_t from, until; /* until: what the next digit counts, or behind the last element of its block */
    int32_t block;
    int32_t group;  /* the lowest digit that the same term of a place depends on */
    bool by_itself; /* places are linear in it, and it is alone in its group: one step says all */
} lp_cut_digit;

/* Neighbouring dimensions that hold as many elements in both chains: their indices go from 0 on, whatever those of
 * other blocks are. */
typedef struct lp_cut_block {
    int64_t from, until;
} lp_cut_block;

typedef struct lp_cuts {
    int64_t first; /* number of the element that all digits 0 make */
    int32_t blocks, digits;
    lp_cut_block block[LP_CHAIN_DIMS];
    lp_cut_digit digit[LP_CUT_DIGITS]; /* innermost first */
} lp_cuts;

/*
 * Cuts the numbers of the elements of part p into digits whose groups do not meet in a place: the place of an element
 * in one chain, less that in the other, is a sum of one term for each group. False where the chains have no such digits
 * (their parts or padded dimensions lie across each other) or too many.
 */
bool lp_cuts_of(lp_cuts *out, const lp_chain_form *one, const lp_chain_form *other, int32_t p);

#endif
