/* SPDX-License-Identifier: Apache-2.0 */
/* Between the three files that hold two chains against each other without walking over all their elements. */
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

/* An axis among the numbers of elements. Of a padded dimension it may count more steps than there are, or lie behind
 * them altogether: then its digit is 0 wherever it matters. */
typedef struct lp_cut_span {
    int64_t from, extent, stride, until; /* until: the end of its dimension, or of all its steps */
    const lp_chain_place *place;
    int32_t axis;
    bool plain; /* its term is linear in its own digit */
} lp_cut_span;

/* Axes that continue each other, as far as their dimension goes. */
typedef struct lp_cut_run {
    int64_t from, until;
} lp_cut_run;

typedef struct lp_cut_side {
    const lp_chain_form *form;
    int32_t p, spans, runs;
    lp_cut_span span[LP_CHAIN_AXES]; /* innermost first */
    lp_cut_run run[LP_CHAIN_AXES];
} lp_cut_side;

/* Makes one group of the digits that each term of a side depends on, but for those terms that the other side has too.
 */
void lp_cut_join_terms(lp_cuts *out, const lp_cut_side *s, const lp_cut_side *other);

/*
 * Cuts the numbers of the elements of part p into digits whose groups do not meet in a place: the place of an element
 * in one chain, less that in the other, is a sum of one term for each group. False where the chains have no such digits
 * (their parts or padded dimensions lie across each other) or too many.
 */
bool lp_cuts_of(lp_cuts *out, const lp_chain_form *one, const lp_chain_form *other, int32_t p);

#endif
