/* SPDX-License-Identifier: Apache-2.0 */
/* A row of a virtual table over a trace, and what its cells hold: between query_tables.c and query_cells.c. Private. */
#ifndef LOADPLAN_QUERY_CELLS_H
#define LOADPLAN_QUERY_CELLS_H

#include "traces/query.h"
#include "traces/trace_private.h"

typedef enum lp_view_kind {
    LP_VIEW_NAMES,
    LP_VIEW_SCOPES,
    LP_VIEW_DESTINATIONS,
    LP_VIEW_RECORDS,
    LP_VIEW_DERIVES,
    LP_VIEW_REFUSALS,
    LP_VIEW_COUNT
} lp_view_kind;

typedef struct lp_view_cursor {
    sqlite3_vtab_cursor base;
    int32_t scope, last_scope; /* of tables with rows of ranks: the one at hand, and the end */
    const lp_rows *rows;
    int64_t row, end;
    int64_t rowid;
    bool by_name;
    int64_t name; /* with by_name: index in the catalogue */
} lp_view_cursor;

/* The tables whose rows belong to ranks; column 0 of them is the rank. */
static inline bool lp_view_is_of_ranks(lp_view_kind kind)
{
    return kind != LP_VIEW_NAMES && kind != LP_VIEW_SCOPES;
}

/* Gives a cell of the row at the cursor; one for which nothing is given is NULL. Texts of names, shapes and the like
 * are not copied: they live as long as the rows, which live as long as the trace. */
void lp_query_cell(sqlite3_context *out, lp_view_kind kind, const lp_view_cursor *c, const lp_trace *t, int column);

#endif
