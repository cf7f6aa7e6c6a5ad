/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The guarded door of trace files, which may come from anyone. The first 100 bytes are judged before SQLite sees the
 * file; SQLite then works on a read-only image in memory, with everything switched off that a schema could use; the
 * schema must be ours to the byte; a watchdog bounds its work.
 */
#include "traces/trace_file.h"

#include "traces/mistaken_file.h"

enum { USER_VERSION = 60 };                             /* where it stands in the head */
enum { WATCHDOG_STEP = 10000, WATCHDOG_STEPS = 50000 }; /* 5 * 10^8 instructions of SQLite's machine: seconds */

static lp_status sql_fail(const lp_trace_db *d, int code, lp_error *err)
{
    if (lp_sql_is_nomem(d->db, code))
        return lp_fail_memory(err);
    if (code == SQLITE_INTERRUPT)
        return lp_fail_at(err, LP_E_HOSTILE, d->path, -1, "reading '%s' takes more work than a trace may need",
                          d->path);
    return lp_fail_at(err, LP_E_CORRUPT, d->path, -1, "'%s' is damaged: %s", d->path, sqlite3_errmsg(d->db));
}

/* ---- the first 100 bytes ---- */

static uint32_t big_endian(const uint8_t *at)
{
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

lp_status lp_trace_check_head(const char *path, const uint8_t *head, int64_t head_bytes, int64_t file_bytes,
                              lp_error *err)
{
    enum { PAGES = 28, FREE_PAGES = 36, ENCODING = 56, APPLICATION_ID = 68, HEAD_BYTES = 100 };
    static const char magic[16] = "SQLite format 3";
    /* Page size, format of reading and of writing (1: no write-ahead log), reserved bytes, three fixed fractions. */
    static const uint8_t form[] = {LP_TRACE_PAGE_BYTES >> 8, LP_TRACE_PAGE_BYTES & 0xff, 1, 1, 0, 64, 32, 32};
    const bool is_database = head_bytes >= (int64_t)sizeof magic && memcmp(head, magic, sizeof magic) == 0;
    if (head_bytes < HEAD_BYTES || !is_database) {
        lp_fail_at(err, LP_E_FORMAT, path, 0, "'%s' is not a trace", path);
        if (!is_database)
            lp_hint_no_trace(err, (const char *)head, (size_t)head_bytes);
        return LP_E_FORMAT;
    }
    if (big_endian(head + APPLICATION_ID) != LP_TRACE_APPLICATION_ID)
        return lp_fail_at(err, LP_E_FORMAT, path, APPLICATION_ID, "'%s' is an SQLite database but not a trace", path);
    const uint32_t version = big_endian(head + USER_VERSION), major = version / 1000, minor = version % 1000;
    if (major != LP_TRACE_MAJOR)
        return lp_fail_at(err, major > LP_TRACE_MAJOR ? LP_E_VERSION : LP_E_CORRUPT, path, USER_VERSION,
                          "'%s' has format version %u.%u; this program reads %d.%d", path, major, minor, LP_TRACE_MAJOR,
                          LP_TRACE_MINOR);
    /* Nothing that our writer makes. */
    const uint8_t *at = head + sizeof magic;
    const char *foreign = memcmp(at, form, 2) != 0             ? "another page size"
                          : at[2] == 2 || at[3] == 2           ? "a write-ahead log"
                          : memcmp(at, form, sizeof form) != 0 ? "another form of pages"
                          : big_endian(head + ENCODING) != 1   ? "another encoding than UTF-8"
                          : big_endian(head + FREE_PAGES) != 0 ? "free pages"
                                                               : NULL;
    if (foreign != NULL) {
        lp_fail_at(err, LP_E_CORRUPT, path, 16, "'%s' has a head that no trace has: %s", path, foreign);
        lp_hint(err, "another program wrote to it: record it again");
        return LP_E_CORRUPT;
    }
    if ((int64_t)big_endian(head + PAGES) * LP_TRACE_PAGE_BYTES != file_bytes)
        return lp_fail_at(err, LP_E_CORRUPT, path, PAGES, "'%s' has %lld bytes, its head says %lld", path,
                          (long long)file_bytes, (long long)big_endian(head + PAGES) * LP_TRACE_PAGE_BYTES);
    return LP_OK;
}

/* ---- SQLite, tied down ---- */

static int watch(void *context)
{
    lp_trace_db *d = context;
    return d->watchdog++ >= WATCHDOG_STEPS;
}

static lp_status open_database(lp_trace_db *d, uint8_t *image, int64_t bytes, lp_error *err)
{
    static const struct {
        int what, value;
    } limits[] = {{SQLITE_LIMIT_ATTACHED, 0},        {SQLITE_LIMIT_SQL_LENGTH, 4096},
                  {SQLITE_LIMIT_COLUMN, 32},         {SQLITE_LIMIT_EXPR_DEPTH, 16},
                  {SQLITE_LIMIT_COMPOUND_SELECT, 2}, {SQLITE_LIMIT_VDBE_OP, 25000},
                  {SQLITE_LIMIT_FUNCTION_ARG, 8},    {SQLITE_LIMIT_TRIGGER_DEPTH, 1},
                  {SQLITE_LIMIT_WORKER_THREADS, 0},  {SQLITE_LIMIT_LIKE_PATTERN_LENGTH, 64},
                  {SQLITE_LIMIT_VARIABLE_NUMBER, 8}};
    static const struct {
        int what, value;
    } switches[] = {{SQLITE_DBCONFIG_DEFENSIVE, 1},
                    {SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0},
                    {SQLITE_DBCONFIG_ENABLE_TRIGGER, 0},
                    {SQLITE_DBCONFIG_ENABLE_VIEW, 0},
                    {SQLITE_DBCONFIG_DQS_DDL, 0},
                    {SQLITE_DBCONFIG_DQS_DML, 0},
                    {SQLITE_DBCONFIG_ENABLE_LOAD_EXTENSION, 0}};
    int code = sqlite3_open_v2(":memory:", &d->db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, NULL);
    if (code != SQLITE_OK)
        return sql_fail(d, code, err);
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++)
        sqlite3_limit(d->db, limits[i].what, limits[i].value);
    for (size_t i = 0; i < sizeof switches / sizeof *switches && code == SQLITE_OK; i++)
        code = sqlite3_db_config(d->db, switches[i].what, switches[i].value, NULL);
    sqlite3_progress_handler(d->db, WATCHDOG_STEP, watch, d);
    if (code == SQLITE_OK)
        code = sqlite3_deserialize(d->db, "main", image, bytes, bytes, SQLITE_DESERIALIZE_READONLY);
    if (code == SQLITE_OK)
        code = sqlite3_exec(d->db, "PRAGMA cell_size_check=ON; PRAGMA query_only=ON; PRAGMA mmap_size=0", NULL, NULL,
                            NULL);
    return code == SQLITE_OK ? LP_OK : sql_fail(d, code, err);
}

lp_status lp_trace_db_each(lp_trace_db *d, const char *sql,
                           lp_status (*row)(void *context, sqlite3_stmt *q, int64_t index), void *context,
                           int64_t *rows, lp_error *err)
{
    sqlite3_stmt *query = NULL;
    lp_status status = LP_OK;
    int code = sqlite3_prepare_v2(d->db, sql, -1, &query, NULL);
    if (code != SQLITE_OK)
        return sql_fail(d, code, err);
    code = SQLITE_DONE;
    int64_t index = 0;
    while (status == LP_OK && (code = sqlite3_step(query)) == SQLITE_ROW)
        status = row(context, query, index++);
    if (status == LP_OK && code != SQLITE_DONE)
        status = sql_fail(d, code, err);
    sqlite3_finalize(query);
    *rows = index;
    return status;
}

/* ---- what is in it ---- */

typedef struct schema_check {
    const lp_trace_db *db;
    lp_error *err;
} schema_check;

static lp_status refuse(const schema_check *c, int64_t row, const char *what)
{
    return lp_fail_at(c->err, LP_E_CORRUPT, c->db->path, -1, "'%s' is damaged: table 'sqlite_schema', row %lld: %s",
                      c->db->path, (long long)row, what);
}

static lp_status quick_check_row(void *context, sqlite3_stmt *q, int64_t index)
{
    const schema_check *c = context;
    const unsigned char *text = sqlite3_column_text(q, 0);
    if (index == 0 && text != NULL && strcmp((const char *)text, "ok") == 0)
        return LP_OK;
    return lp_fail_at(c->err, LP_E_CORRUPT, c->db->path, -1, "'%s' is damaged: %s", c->db->path,
                      text != NULL ? (const char *)text : "");
}

/* Every object of a schema must be one of our tables, word by word; a newer minor version may have more tables. */
static lp_status schema_row(void *context, sqlite3_stmt *q, int64_t index)
{
    const schema_check *c = context;
    const char *type = (const char *)sqlite3_column_text(q, 0), *name = (const char *)sqlite3_column_text(q, 1);
    const char *table = (const char *)sqlite3_column_text(q, 2), *sql = (const char *)sqlite3_column_text(q, 3);
    if (type == NULL || name == NULL || table == NULL || sql == NULL || strcmp(type, "table") != 0 ||
        strcmp(name, table) != 0)
        return refuse(c, index, "is no table of a trace");
    for (int t = 0; t < LP_TRACE_TABLES; t++)
        if (strcmp(lp_trace_tables[t].name, name) == 0)
            return strcmp(lp_trace_tables[t].sql, sql) == 0 && (t == index || c->db->newer_minor)
                       ? LP_OK
                       : refuse(c, index, "is not the table that a trace has there");
    return c->db->newer_minor ? LP_OK : refuse(c, index, "is no table of a trace");
}

static lp_status requires_row(void *context, sqlite3_stmt *q, int64_t index)
{
    const schema_check *c = context;
    (void)index;
    return lp_fail_at(c->err, LP_E_VERSION, c->db->path, -1, "'%s' requires '%s', which this program does not know",
                      c->db->path, (const char *)sqlite3_column_text(q, 0));
}

static lp_status check_content(lp_trace_db *d, lp_error *err)
{
    schema_check check = {.db = d, .err = err};
    int64_t rows = 0;
    LP_TRY(lp_trace_db_each(d, "PRAGMA quick_check(1)", quick_check_row, &check, &rows, err));
    LP_TRY(lp_trace_db_each(d, "SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY rowid", schema_row, &check,
                            &rows, err));
    if (rows < LP_TRACE_TABLES)
        return refuse(&check, rows, "a table is missing");
    return lp_trace_db_each(d, "SELECT feature FROM requires", requires_row, &check, &rows, err);
}

lp_status lp_trace_db_open(lp_trace_db *d, uint8_t *image, int64_t bytes, const char *path, lp_error *err)
{
    *d = (lp_trace_db){.path = path};
    LP_TRY(lp_trace_check_head(path, image, bytes, bytes, err));
    d->newer_minor = big_endian(image + USER_VERSION) % 1000 > LP_TRACE_MINOR;
    LP_TRY(lp_trace_check_cells(image, bytes, path, err));
    lp_status status;
    LP_TRY_GOTO(open_database(d, image, bytes, err), close);
    LP_TRY_GOTO(check_content(d, err), close);
    return LP_OK;
close:
    lp_trace_db_close(d);
    return status;
}

void lp_trace_db_close(lp_trace_db *d)
{
    sqlite3_close(d->db);
    d->db = NULL;
}
