/* SPDX-License-Identifier: Apache-2.0 */
/* Printing the rows of a query: aligned text, tab-separated values, JSON. Part of the program. */
#ifndef LOADPLAN_QUERY_PRINT_H
#define LOADPLAN_QUERY_PRINT_H

#include "traces/query.h"

#include <stdio.h>

typedef enum lp_print_format { LP_PRINT_TEXT, LP_PRINT_TSV, LP_PRINT_JSON } lp_print_format;

/* Text is aligned by its first rows, which are held back until there are enough. */
typedef struct lp_row_printer {
    FILE *out;
    lp_print_format format;
    int columns;
    int *width;
    lp_text held; /* cells of the rows held back, each with a NUL */
    int64_t held_rows, rows;
    bool failed;
} lp_row_printer;

/* The callback of lp_trace_query_with; the context is an lp_row_printer. */
int lp_print_row(void *context, int columns, const char *const *values, const lp_cell_type *types, bool is_header);
/* After the last row; frees. False when something could not be written. */
bool lp_print_end(lp_row_printer *p);

#endif
