/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Families of names: names that differ only in indices. Private to the project; lp_family_template is public.
 *
 *   lp_families f;
 *   lp_families_init(&f, alloc);
 *   int64_t family = lp_families_add(&f, name);      number from 0 in order of arrival; -1: out of memory
 *   f.item[family].members, f.item[family].first     how many, and the first member
 *   lp_families_text(&f, family)                      "layers.*.experts.*.up"
 *   lp_families_free(&f);
 */
#ifndef LOADPLAN_FAMILY_H
#define LOADPLAN_FAMILY_H

#include "traces/base.h"

/* The index parts of a name, in order: the digits between dots. Returns how many there are and stores the first `most`.
 * A part that is no number below 2^63 in its shortest form (such as "007") counts, with value -1. */
int lp_family_indices(const char *name, int64_t *index, int most);

/* Order of names as people read them: index parts by value, all else by bytes; equal only for equal names. */
int lp_family_compare(const char *a, const char *b);

typedef struct lp_family_item {
    int64_t members;
    const char *first; /* the caller's pointer: as long-lived as the name that was added */
} lp_family_item;

typedef struct lp_families {
    const lp_alloc *alloc;
    lp_strings templates;
    lp_family_item *item;
    int64_t count, capacity;
} lp_families;

void lp_families_init(lp_families *f, const lp_alloc *alloc);
void lp_families_free(lp_families *f);

/* Counts a member of its name's family; the family's number, or -1 when out of memory. */
int64_t lp_families_add(lp_families *f, const char *name);

/* The family of a name without counting it; -1 when there is none (or the name is too long to be looked up). */
int64_t lp_families_find(const lp_families *f, const char *name);

const char *lp_families_text(const lp_families *f, int64_t family); /* the template */

#endif
