/* SPDX-License-Identifier: Apache-2.0 */
/* Values of the tables of a trace file, none of them believed: see trace_reader.h. */
#include "traces/trace_reader.h"

#include "traces/json_pull.h"

/* ---- errors ---- */

lp_status lp_reader_corrupt(const lp_reader *r, const char *table, int64_t row, const char *what)
{
    return lp_fail_at(r->err, LP_E_CORRUPT, r->path, -1, "'%s' is damaged: table '%s', row %lld: %s", r->path, table,
                      (long long)row, what);
}

lp_status lp_reader_as_data(const lp_reader *r, lp_status status)
{
    if (status != LP_E_ARGUMENT && status != LP_E_MISUSE)
        return status;
    if (r->err != NULL)
        r->err->code = LP_E_CORRUPT;
    return LP_E_CORRUPT;
}

lp_status lp_reader_hostile(const lp_reader *r, const char *what, int64_t value, int64_t limit)
{
    return lp_fail_at(r->err, LP_E_HOSTILE, r->path, -1, "'%s' claims %lld %s, more than the limit of %lld", r->path,
                      (long long)value, what, (long long)limit);
}

/* ---- rows ---- */

typedef struct row_call {
    lp_reader *r;
    lp_reader_row row;
} row_call;

static lp_status call_row(void *context, sqlite3_stmt *q, int64_t index)
{
    const row_call *call = context;
    return call->row(call->r, q, index);
}

lp_status lp_reader_each(lp_reader *r, const char *sql, lp_reader_row row)
{
    row_call call = {.r = r, .row = row};
    return lp_trace_db_each(&r->db, sql, call_row, &call, &r->seen, r->err);
}

/* ---- values ---- */

const char *lp_reader_text(lp_reader *r, sqlite3_stmt *q, int column, const char *table, int64_t row, lp_status *status)
{
    const char *text = (const char *)sqlite3_column_text(q, column);
    const size_t bytes = (size_t)sqlite3_column_bytes(q, column);
    size_t bad_off;
    if (text == NULL || strlen(text) != bytes || !lp_utf8_is_valid(text, bytes, &bad_off)) {
        *status = lp_reader_corrupt(r, table, row, "a text is not UTF-8");
        return NULL;
    }
    const char *copy = lp_arena_text(&r->s->arena, text, bytes);
    if (copy == NULL)
        *status = lp_fail_memory(r->err);
    return copy;
}

bool lp_reader_reference(sqlite3_stmt *q, int column, int64_t count, int64_t *out)
{
    *out = -1;
    if (sqlite3_column_type(q, column) == SQLITE_NULL)
        return true;
    *out = sqlite3_column_int64(q, column);
    return *out >= 0 && *out < count;
}

lp_status lp_reader_frame(lp_reader *r, sqlite3_stmt *q, int column, const char *table, int64_t row, bool is_frame,
                          lp_stored_frame *out)
{
    const void *blob = sqlite3_column_blob(q, column);
    const int64_t bytes = sqlite3_column_bytes(q, column);
    if (is_frame) {
        const int64_t claim = blob == NULL ? -1 : lp_frame_raw_bytes(blob, bytes);
        if (claim < 0)
            return lp_reader_corrupt(r, table, row, "a frame has no head");
        if (!lp_add(r->claimed, claim, &r->claimed) || r->claimed > r->s->decoded_bytes_max)
            return lp_reader_hostile(r, "bytes of decoded frames", r->claimed, r->s->decoded_bytes_max);
    }
    out->bytes = bytes;
    out->frame = lp_arena_copy(&r->s->arena, blob, (size_t)bytes);
    return out->frame == NULL ? lp_fail_memory(r->err) : LP_OK;
}

static lp_status count_row(lp_reader *r, sqlite3_stmt *q, int64_t index)
{
    (void)index;
    r->records_seen = sqlite3_column_int64(q, 0);
    return LP_OK;
}

lp_status lp_reader_rows(lp_reader *r, const char *count_sql, size_t row_bytes, void **out, int64_t *count)
{
    size_t bytes;
    LP_TRY(lp_reader_each(r, count_sql, count_row));
    *count = r->records_seen;
    if (__builtin_mul_overflow((size_t)*count, row_bytes, &bytes))
        return lp_fail_memory(r->err);
    *out = lp_arena_get(&r->s->arena, bytes);
    if (*out == NULL)
        return lp_fail_memory(r->err);
    memset(*out, 0, bytes);
    return LP_OK;
}
