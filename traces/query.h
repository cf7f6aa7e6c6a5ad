/* SPDX-License-Identifier: Apache-2.0 */
/* SQL over a trace, from the inside. Private. */
#ifndef LOADPLAN_QUERY_H
#define LOADPLAN_QUERY_H

#include "traces/base.h"

#include <sqlite3.h>

typedef enum lp_cell_type { LP_CELL_NULL, LP_CELL_INTEGER, LP_CELL_REAL, LP_CELL_TEXT } lp_cell_type;

/* Like the callback of lp_trace_query, with the type of each cell. */
typedef int (*lp_query_row)(void *context, int columns, const char *const *values, const lp_cell_type *types,
                            bool is_header);

/* lp_trace_query with types and with a bound of its own: `steps` thousands of instructions of SQLite's machine. */
lp_status lp_trace_query_with(const lp_trace *t, const char *sql, int64_t steps, lp_query_row row, void *context,
                              lp_error *err);

/* What the virtual tables read. An error of the trace is kept here while SQLite only hears that something failed. */
typedef struct lp_query_source {
    const lp_trace *trace;
    lp_error error;
    bool failed;
} lp_query_source;

/* Registers v_names, v_scopes, v_destinations, v_records, v_derives and v_refusals. Returns an SQLite code. */
int lp_query_register(sqlite3 *db, lp_query_source *source);

#endif
