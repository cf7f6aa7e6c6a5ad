/* SPDX-License-Identifier: Apache-2.0 */
/* Between the two files that write a chain's index formula, forward and back. */
#ifndef LOADPLAN_CHAIN_FORMULA_H
#define LOADPLAN_CHAIN_FORMULA_H

#include "layouts/layout_private.h"

/* A part of an index: index / below % extent, found at off / stride % extent. Axes that continue each other are one. */
typedef struct lp_formula_digit {
    int32_t axis; /* one of them */
    int64_t below, extent, stride;
    bool backwards, listed;
    const lp_chain_place *place;
} lp_formula_digit;

/* What a formula is about: one part of a form. */
typedef struct lp_formula {
    const lp_chain_form *form;
    int32_t p;
    uint32_t joint; /* axes of lists over several of them */
    uint32_t apart; /* those, and axes that turn or are turned, or have a list: never joined to others */
} lp_formula;

lp_formula lp_formula_of(const lp_chain_form *form, int32_t p);

/* Digits of dimension d, outermost first. */
int32_t lp_formula_digits(const lp_formula *s, int32_t d, lp_formula_digit out[LP_CHAIN_AXES]);

/* The digit of an axis that turns others, and the dimension that it is of. */
lp_formula_digit lp_formula_digit_of(const lp_formula *s, int32_t axis, int32_t *dim);

/* "n" for dimension N; "i2" where names are missing or differ in nothing else. */
void lp_formula_put_index(lp_layout_writer *w, const lp_chain *chain, int32_t d);

/* "w_x", what a list over axes w and x is called. */
void lp_formula_put_joint(lp_layout_writer *w, const lp_formula *s, const lp_chain_joint *joint);

/* Where an axis stands in such a list of its part, or -1; *below: what a step of it counts there. */
int32_t lp_formula_in_joint(const lp_formula *s, const lp_chain_joint *joint, int32_t axis, int64_t *below);

/* "16*", or nothing for 1. */
void lp_formula_put_factor(lp_layout_writer *w, int64_t factor);

#endif
