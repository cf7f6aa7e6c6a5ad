/* SPDX-License-Identifier: Apache-2.0 */
/* A choice of rows of a dump. Private. */
#ifndef LOADPLAN_DUMP_FILTER_H
#define LOADPLAN_DUMP_FILTER_H

#include "traces/number_set.h"

/* Passes on the lines of a dump that were asked for: of destinations, names and rows whose tensor matches `tensor`, and
 * of these rows those whose number in their rank is in `rows`. Lines of ranks stay, so that one sees whose rows they
 * are; the result is for reading, not for undump. */
typedef struct lp_dump_filter {
    const char *tensor;        /* glob, or NULL */
    const lp_number_set *rows; /* or NULL */
    lp_write_fn write;
    void *context;
    lp_text line;   /* that is not complete yet */
    int64_t number; /* of the next row of its rank */
} lp_dump_filter;

/* An lp_write_fn whose context is the filter. `line` is initialised and freed by the caller. */
int lp_dump_filter_write(void *filter, const char *text, size_t bytes);

#endif
