/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of the reader of trace files share: trace_file_read.c, trace_file_sets.c, trace_reader.c. Private. */
#ifndef LOADPLAN_TRACE_READER_H
#define LOADPLAN_TRACE_READER_H

#include "traces/row_codec.h"
#include "traces/trace_file.h"

typedef struct lp_reader {
    lp_trace_db db;
    const char *path;
    lp_platform platform;
    lp_stored *s;
    lp_checkpoint *checkpoint;
    lp_place *place;
    lp_trace *trace;
    lp_trace_header header;
    int64_t files, names, records; /* as stated */
    int64_t seen, records_seen;    /* running totals of the table at hand */
    int64_t claimed;               /* bytes that frames claim to expand to */
    lp_error *err;
} lp_reader;

/* ---- errors: each fills r->err and returns its code ---- */

lp_status lp_reader_corrupt(const lp_reader *r, const char *table, int64_t row, const char *what);
lp_status lp_reader_hostile(const lp_reader *r, const char *what, int64_t value, int64_t limit);
/* What the model calls a bad argument is bad data here. */
lp_status lp_reader_as_data(const lp_reader *r, lp_status status);

/* ---- rows and values ---- */

typedef lp_status (*lp_reader_row)(lp_reader *r, sqlite3_stmt *q, int64_t index);

/* Calls `row` for every row of a query; r->seen gets their number. */
lp_status lp_reader_each(lp_reader *r, const char *sql, lp_reader_row row);

/* An array of the arena with one zeroed entry of row_bytes for each row of a table. */
lp_status lp_reader_rows(lp_reader *r, const char *count_sql, size_t row_bytes, void **out, int64_t *count);

/* A text of the arena: UTF-8, no NUL. NULL with the error filled in, and its code in *status. */
const char *lp_reader_text(lp_reader *r, sqlite3_stmt *q, int column, const char *table, int64_t row,
                           lp_status *status);

/* A reference that may be NULL (-1): true when it is in [0, count) or NULL. */
bool lp_reader_reference(sqlite3_stmt *q, int column, int64_t count, int64_t *out);

/* A frame, or numbers that stand in a frame's place: copied into the arena; what a frame claims is counted. */
lp_status lp_reader_frame(lp_reader *r, sqlite3_stmt *q, int column, const char *table, int64_t row, bool is_frame,
                          lp_stored_frame *out);

/* ---- the tables behind the catalogue: trace_file_sets.c ---- */

lp_status lp_reader_sets(lp_reader *r);   /* destinations, derives, refusals, maps */
lp_status lp_reader_scopes(lp_reader *r); /* with families and members */
lp_status lp_reader_provenance(lp_reader *r);

#endif
