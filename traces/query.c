/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The user's SELECT over a trace. It runs in a fresh connection that has no database but the virtual tables; an
 * authorizer lets it read those and nothing else, and a progress handler ends it when it runs away.
 */
#include "traces/query.h"

#include "traces/trace_private.h"

enum { STEP = 1000 };
static const int64_t STEPS_MAX = 2000000; /* 2 * 10^9 instructions: tens of seconds */
static const int CELL_BYTES_MAX = 64 << 20;

typedef struct query {
    sqlite3 *db;
    lp_query_source source;
    int64_t steps, steps_max;
} query;

static int count_steps(void *context)
{
    query *q = context;
    return ++q->steps > q->steps_max;
}

static int authorise(void *context, int action, const char *a, const char *b, const char *database, const char *trigger)
{
    (void)context;
    (void)database;
    (void)trigger;
    switch (action) {
    case SQLITE_SELECT:
    case SQLITE_RECURSIVE:
        return SQLITE_OK;
    case SQLITE_READ:
        /* Without a column: something is counted, such as the rows of a WITH. */
        return (b != NULL && b[0] == '\0') || (a != NULL && strncmp(a, "v_", 2) == 0) ? SQLITE_OK : SQLITE_DENY;
    case SQLITE_FUNCTION:
        return b != NULL && sqlite3_stricmp(b, "load_extension") != 0 ? SQLITE_OK : SQLITE_DENY;
    default:
        return SQLITE_DENY;
    }
}

#define TABLES "v_names, v_scopes, v_destinations, v_records, v_derives and v_refusals"

static lp_status query_fail(query *q, lp_error *err)
{
    if (q->source.failed) {
        if (err != NULL)
            *err = q->source.error;
        return q->source.error.code;
    }
    const int code = q->db != NULL ? sqlite3_errcode(q->db) : SQLITE_NOMEM;
    if (code == SQLITE_NOMEM)
        return lp_fail_memory(err);
    if (code == SQLITE_INTERRUPT)
        return lp_fail(err, LP_E_LIMIT, "the query takes too many steps");
    if (code == SQLITE_AUTH) {
        lp_fail(err, LP_E_ARGUMENT, "the query may only read the tables v_*: %s", sqlite3_errmsg(q->db));
        lp_hint(err, TABLES);
        return LP_E_ARGUMENT;
    }
    lp_fail(err, LP_E_ARGUMENT, "cannot run the query: %s", sqlite3_errmsg(q->db));
    if (strncmp(sqlite3_errmsg(q->db), "no such table", 13) == 0)
        lp_hint(err, "there are " TABLES);
    else if (strncmp(sqlite3_errmsg(q->db), "no such column", 14) == 0)
        lp_hint(err, "'SELECT * FROM v_records LIMIT 1' shows the columns of a table");
    return LP_E_ARGUMENT;
}

static lp_status open_query(query *q, lp_error *err)
{
    static const struct {
        int what, value;
    } limits[] = {{SQLITE_LIMIT_ATTACHED, 0},
                  {SQLITE_LIMIT_WORKER_THREADS, 0},
                  {SQLITE_LIMIT_SQL_LENGTH, 1 << 20},
                  {SQLITE_LIMIT_EXPR_DEPTH, 200},
                  {SQLITE_LIMIT_LIKE_PATTERN_LENGTH, 1024}};
    if (sqlite3_open_v2(":memory:", &q->db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, NULL) != SQLITE_OK)
        return query_fail(q, err);
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++)
        sqlite3_limit(q->db, limits[i].what, limits[i].value);
    sqlite3_limit(q->db, SQLITE_LIMIT_LENGTH, CELL_BYTES_MAX);
    if (sqlite3_db_config(q->db, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL) != SQLITE_OK ||
        sqlite3_db_config(q->db, SQLITE_DBCONFIG_DQS_DML, 0, NULL) != SQLITE_OK ||
        sqlite3_db_config(q->db, SQLITE_DBCONFIG_ENABLE_LOAD_EXTENSION, 0, NULL) != SQLITE_OK ||
        sqlite3_exec(q->db, "PRAGMA temp_store=MEMORY", NULL, NULL, NULL) != SQLITE_OK ||
        lp_query_register(q->db, &q->source) != SQLITE_OK)
        return query_fail(q, err);
    sqlite3_set_authorizer(q->db, authorise, q);
    sqlite3_progress_handler(q->db, STEP, count_steps, q);
    return LP_OK;
}

static lp_status prepare(query *q, const char *sql, sqlite3_stmt **out, lp_error *err)
{
    const char *rest = NULL;
    sqlite3_stmt *more = NULL;
    if (sqlite3_prepare_v2(q->db, sql, -1, out, &rest) != SQLITE_OK)
        return query_fail(q, err);
    if (*out == NULL)
        return lp_fail(err, LP_E_ARGUMENT, "the query is empty");
    if (sqlite3_prepare_v2(q->db, rest, -1, &more, NULL) != SQLITE_OK || more != NULL) {
        sqlite3_finalize(more);
        return lp_fail(err, LP_E_ARGUMENT, "the query holds more than one statement");
    }
    return sqlite3_stmt_readonly(*out) && sqlite3_column_count(*out) > 0
               ? LP_OK
               : lp_fail(err, LP_E_ARGUMENT, "the query is no SELECT");
}

/* The cells of the row at hand. What would end before its end is refused rather than cut. */
static lp_status read_cells(sqlite3_stmt *stmt, int columns, const char **value, lp_cell_type *type, lp_error *err)
{
    for (int c = 0; c < columns; c++) {
        const int kind = sqlite3_column_type(stmt, c);
        type[c] = kind == SQLITE_NULL      ? LP_CELL_NULL
                  : kind == SQLITE_INTEGER ? LP_CELL_INTEGER
                  : kind == SQLITE_FLOAT   ? LP_CELL_REAL
                                           : LP_CELL_TEXT;
        value[c] = kind == SQLITE_NULL ? NULL : (const char *)sqlite3_column_text(stmt, c);
        const size_t bytes = (size_t)sqlite3_column_bytes(stmt, c);
        /* An empty blob has no text. */
        if (value[c] == NULL && kind == SQLITE_BLOB && bytes == 0)
            value[c] = "";
        if (value[c] == NULL && kind != SQLITE_NULL)
            return lp_fail_memory(err);
        if (value[c] != NULL && strlen(value[c]) != bytes)
            return lp_fail(err, LP_E_UNSUPPORTED, "column '%s' of the query holds a NUL: ask for its hex()",
                           sqlite3_column_name(stmt, c));
    }
    return LP_OK;
}

static lp_status run(query *q, sqlite3_stmt *stmt, lp_query_row row, void *context, lp_error *err)
{
    lp_status status = LP_OK;
    const lp_alloc *alloc = q->source.trace->platform.alloc;
    const int columns = sqlite3_column_count(stmt);
    const char **value = lp_allocate(alloc, (size_t)columns * sizeof *value);
    lp_cell_type *type = lp_allocate(alloc, (size_t)columns * sizeof *type);
    if (value == NULL || type == NULL) {
        status = lp_fail_memory(err);
        goto release;
    }
    for (int c = 0; c < columns; c++) {
        value[c] = sqlite3_column_name(stmt, c);
        type[c] = LP_CELL_TEXT;
        if (value[c] == NULL) {
            status = lp_fail_memory(err);
            goto release;
        }
    }
    int stop = row(context, columns, value, type, true), code = SQLITE_DONE;
    while (stop == 0 && (code = sqlite3_step(stmt)) == SQLITE_ROW) {
        LP_TRY_GOTO(read_cells(stmt, columns, value, type, err), release);
        stop = row(context, columns, value, type, false);
    }
    if (stop == 0 && code != SQLITE_DONE)
        status = query_fail(q, err);
release:
    lp_release(alloc, value);
    lp_release(alloc, type);
    return status;
}

lp_status lp_trace_query_with(const lp_trace *t, const char *sql, int64_t steps, lp_query_row row, void *context,
                              lp_error *err)
{
    lp_status status;
    sqlite3_stmt *stmt = NULL;
    query q = {.source = {.trace = t}, .steps_max = steps};
    LP_TRY_GOTO(open_query(&q, err), release);
    LP_TRY_GOTO(prepare(&q, sql, &stmt, err), release);
    status = run(&q, stmt, row, context, err);
release:
    sqlite3_finalize(stmt);
    sqlite3_close(q.db);
    return status;
}

typedef struct plain_row {
    int (*row)(void *context, int columns, const char *const *values, bool is_header);
    void *context;
} plain_row;

static int without_types(void *context, int columns, const char *const *values, const lp_cell_type *types,
                         bool is_header)
{
    (void)types;
    const plain_row *plain = context;
    return plain->row(plain->context, columns, values, is_header);
}

lp_status lp_trace_query(const lp_trace *t, const char *sql,
                         int (*row)(void *context, int columns, const char *const *values, bool is_header),
                         void *context, lp_error *err)
{
    plain_row plain = {.row = row, .context = context};
    return lp_trace_query_with(t, sql, STEPS_MAX, without_types, &plain, err);
}
