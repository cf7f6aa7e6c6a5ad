/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writing a trace file. The file is built in a private database in memory, in one transaction and in the fixed order of
 * trace_schema.h, then vacuumed once into a second one, whose pages depend on nothing but the content. Only those bytes
 * reach the disk, through the platform's table of files.
 */
#include "traces/trace_file.h"

#include "traces/row_codec.h"

#include <stdarg.h>
#include <stdio.h>

static lp_status sql_fail(sqlite3 *db, int code, lp_error *err)
{
    if (lp_sql_is_nomem(db, code))
        return lp_fail_memory(err);
    return lp_fail(err, LP_E_INTERNAL, "cannot build the trace file: %s", sqlite3_errmsg(db));
}

static lp_status execute(sqlite3 *db, const char *sql, lp_error *err)
{
    const int code = sqlite3_exec(db, sql, NULL, NULL, NULL);
    return code == SQLITE_OK ? LP_OK : sql_fail(db, code, err);
}

static lp_status prepare_insert(lp_file_writer *w, int table, int columns, lp_error *err)
{
    char sql[256];
    int at = snprintf(sql, sizeof sql, "INSERT INTO %s VALUES(", lp_trace_tables[table].name);
    for (int c = 0; c < columns; c++)
        at += snprintf(sql + at, sizeof sql - (size_t)at, "%s", c == 0 ? "?" : ",?");
    snprintf(sql + at, sizeof sql - (size_t)at, ")");
    const int code = sqlite3_prepare_v3(w->db, sql, -1, SQLITE_PREPARE_PERSISTENT, &w->insert[table], NULL);
    return code == SQLITE_OK ? LP_OK : sql_fail(w->db, code, err);
}

lp_status lp_file_insert(lp_file_writer *w, const char *table, lp_error *err, const char *types, ...)
{
    int t = 0;
    while (strcmp(lp_trace_tables[t].name, table) != 0)
        t++;
    if (w->insert[t] == NULL)
        LP_TRY(prepare_insert(w, t, (int)strlen(types), err));
    sqlite3_stmt *insert = w->insert[t];
    int code = SQLITE_OK;
    va_list args;
    va_start(args, types);
    for (int c = 0; types[c] != '\0' && code == SQLITE_OK; c++) {
        if (types[c] == 'i' || types[c] == 'N') {
            const int64_t value = va_arg(args, int64_t);
            code = types[c] == 'N' && value < 0 ? sqlite3_bind_null(insert, c + 1)
                                                : sqlite3_bind_int64(insert, c + 1, value);
        } else if (types[c] == 't') {
            const char *text = va_arg(args, const char *);
            code = text == NULL ? sqlite3_bind_null(insert, c + 1)
                                : sqlite3_bind_text(insert, c + 1, text, -1, SQLITE_STATIC);
        } else {
            const void *blob = va_arg(args, const void *);
            const int64_t bytes = va_arg(args, int64_t);
            code = sqlite3_bind_blob64(insert, c + 1, blob, (sqlite3_uint64)bytes, SQLITE_STATIC);
        }
    }
    va_end(args);
    if (code == SQLITE_OK)
        code = sqlite3_step(insert);
    const lp_status status = code == SQLITE_DONE ? LP_OK : sql_fail(w->db, code, err);
    sqlite3_reset(insert);
    sqlite3_clear_bindings(insert);
    return status;
}

lp_status lp_file_compress(lp_file_writer *w, lp_error *err)
{
    if (w->raw.failed)
        return lp_fail_memory(err);
    w->frame.bytes = 0;
    const lp_status status =
        lp_frame_pack(&w->codec, w->raw.bytes > 0 ? w->raw.data : "", w->raw.bytes, &w->frame, err);
    w->raw.bytes = 0;
    return status;
}

lp_status lp_file_insert_frame(lp_file_writer *w, const char *table, lp_error *err, int64_t id, int64_t rows)
{
    LP_TRY(lp_file_compress(w, err));
    return lp_file_insert(w, table, err, "iib", id, rows, (const void *)w->frame.data, w->frame.bytes);
}

/* ---- header and catalogue ---- */

static lp_status write_header(lp_file_writer *w, lp_error *err)
{
    const lp_trace_header *h = &w->trace->header;
    const struct {
        const char *key, *value;
    } text[] = {
        {"configuration", h->configuration},
        {"loader", h->loader},
        {"loader_version", h->loader_version},
        {"target", h->target},
    };
    /* What is unknown has no row. */
    for (size_t i = 0; i < sizeof text / sizeof *text; i++)
        if (text[i].value[0] != '\0')
            LP_TRY(lp_file_insert(w, "header", err, "tt", text[i].key, text[i].value));
    const lp_checkpoint *c = w->trace->checkpoint;
    for (int32_t f = 0; f < lp_checkpoint_file_count(c); f++) {
        const lp_checkpoint_file *file = lp_checkpoint_file_at(c, f);
        LP_TRY(lp_file_insert(w, "files", err, "itNt", (int64_t)f, file->path, file->size_bytes, file->sha256));
    }
    return LP_OK;
}

static lp_status write_catalogue(lp_file_writer *w, lp_error *err)
{
    const lp_checkpoint *c = w->trace->checkpoint;
    const int64_t count = lp_checkpoint_count(c);
    lp_place *place = lp_allocate(w->alloc, (size_t)count * sizeof *place);
    if (place == NULL)
        return lp_fail_memory(err);
    lp_status status;
    LP_TRY_GOTO(lp_catalogue_places(c, place, err), release);
    for (int64_t first = 0; first < count; first += LP_CATALOGUE_FRAME_NAMES) {
        const int64_t n = count - first < LP_CATALOGUE_FRAME_NAMES ? count - first : LP_CATALOGUE_FRAME_NAMES;
        LP_TRY_GOTO(lp_pack_catalogue(&w->raw, c, place, first, n, w->alloc, err), release);
        LP_TRY_GOTO(lp_file_insert_frame(w, "catalogue", err, first, n), release);
    }
release:
    lp_release(w->alloc, place);
    return status;
}

/* ---- scopes ---- */

/* Equal sets of different scopes are stored once: `seen` holds the packed bytes of each. */
static lp_status write_set(lp_file_writer *w, lp_strings *seen, const char *table, int64_t rows, int64_t *id,
                           lp_error *err)
{
    *id = -1;
    if (w->raw.failed)
        return lp_fail_memory(err);
    if (rows == 0)
        return LP_OK;
    const int64_t known = seen->count;
    *id = lp_strings_add(seen, w->raw.data, (size_t)w->raw.bytes);
    if (*id < 0)
        return lp_fail_memory(err);
    if (*id < known) {
        w->raw.bytes = 0;
        return LP_OK;
    }
    return lp_file_insert_frame(w, table, err, *id, rows);
}

typedef struct scope_sets {
    lp_strings destinations, derives, refusals;
} scope_sets;

static lp_status write_scope(lp_file_writer *w, scope_sets *sets, lp_member_writer *members, int32_t s,
                             int64_t *records, lp_error *err)
{
    const lp_rows *rows;
    int64_t destinations, derives, refusals;
    LP_TRY(lp_trace_rows(w->trace, s, &rows, err));
    LP_TRY(lp_pack_destinations(&w->raw, rows->dest, rows->ndest, w->alloc, err));
    LP_TRY(write_set(w, &sets->destinations, "destinations", rows->ndest, &destinations, err));
    w->raw.bytes = 0;
    lp_pack_derives(&w->raw, rows->derive, rows->nderive);
    LP_TRY(write_set(w, &sets->derives, "derives", rows->nderive, &derives, err));
    lp_pack_refusals(&w->raw, rows->refusal, rows->nrefusal);
    LP_TRY(write_set(w, &sets->refusals, "refusals", rows->nrefusal, &refusals, err));
    *records += rows->nrecord;
    const int64_t names = lp_checkpoint_count(w->trace->checkpoint);
    if (rows->nrecord > lp_trace_scope_records_max(names) || *records > lp_trace_records_max(names))
        return lp_fail(err, LP_E_LIMIT, "more records than a trace file of %lld names holds: %lld a scope, %lld in all",
                       (long long)names, (long long)lp_trace_scope_records_max(names),
                       (long long)lp_trace_records_max(names));
    LP_TRY(lp_file_insert(w, "scopes", err, "iiiiNNNib", (int64_t)s, (int64_t)rows->scope.pp_rank,
                          (int64_t)rows->scope.dp_rank, (int64_t)rows->scope.tp_rank, destinations, derives, refusals,
                          (int64_t)rows->nrecord, (const void *)rows->digest, (int64_t)sizeof rows->digest));
    return lp_member_writer_add(members, s, rows, err);
}

static lp_status write_scopes(lp_file_writer *w, lp_error *err)
{
    lp_status status;
    int64_t records = 0, maps = 0;
    lp_member_writer *members = NULL;
    scope_sets sets;
    lp_strings_init(&sets.destinations, w->alloc);
    lp_strings_init(&sets.derives, w->alloc);
    lp_strings_init(&sets.refusals, w->alloc);
    LP_TRY_GOTO(lp_member_writer_new(&members, w, err), release);
    for (int32_t s = 0; s < w->trace->scope_count; s++)
        LP_TRY_GOTO(write_scope(w, &sets, members, s, &records, err), release);
    LP_TRY_GOTO(lp_member_writer_end(members, &maps, err), release);
    LP_TRY_GOTO(lp_file_write_provenance(w, err), release);
    const lp_scope *layout = &w->trace->header.layout;
    status = lp_file_insert(w, "trace", err, "iiiiiiiiii", INT64_C(1), (int64_t)layout->pp, (int64_t)layout->dp,
                            (int64_t)layout->tp, (int64_t)layout->expert_parallel,
                            (int64_t)lp_checkpoint_file_count(w->trace->checkpoint),
                            lp_checkpoint_count(w->trace->checkpoint), maps, (int64_t)w->trace->scope_count, records);
release:
    lp_member_writer_free(members);
    lp_strings_free(&sets.destinations);
    lp_strings_free(&sets.derives);
    lp_strings_free(&sets.refusals);
    return status;
}

/* ---- the file ---- */

static lp_status build(lp_file_writer *w, lp_error *err)
{
    char pragmas[256];
    snprintf(pragmas, sizeof pragmas,
             "PRAGMA page_size=%d; PRAGMA secure_delete=ON; PRAGMA auto_vacuum=NONE; PRAGMA encoding='UTF-8';"
             "PRAGMA application_id=%d; PRAGMA user_version=%d; BEGIN",
             LP_TRACE_PAGE_BYTES, LP_TRACE_APPLICATION_ID, LP_TRACE_USER_VERSION);
    LP_TRY(execute(w->db, pragmas, err));
    for (int t = 0; t < LP_TRACE_TABLES; t++)
        LP_TRY(execute(w->db, lp_trace_tables[t].sql, err));
    LP_TRY(write_header(w, err));
    LP_TRY(write_catalogue(w, err));
    LP_TRY(write_scopes(w, err));
    return execute(w->db, "COMMIT", err);
}

static lp_status open_memory(sqlite3 **db, const char *name, lp_error *err)
{
    const int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_URI | SQLITE_OPEN_NOMUTEX;
    const int code = sqlite3_open_v2(name, db, flags, NULL);
    return code == SQLITE_OK ? LP_OK : sql_fail(*db, code, err);
}

/* VACUUM INTO a second database in memory. Its name is this process's alone while the writer lives. */
static lp_status vacuum(lp_file_writer *w, uint8_t **image, int64_t *bytes, lp_error *err)
{
    lp_status status;
    sqlite3 *target = NULL;
    char name[64], sql[96];
    sqlite3_int64 size = 0;
    snprintf(name, sizeof name, "file:/loadplan-%p?vfs=memdb", (void *)w);
    snprintf(sql, sizeof sql, "VACUUM INTO '%s'", name);
    LP_TRY_GOTO(open_memory(&target, name, err), close_target);
    LP_TRY_GOTO(execute(w->db, sql, err), close_target);
    *image = sqlite3_serialize(target, "main", &size, 0);
    *bytes = size;
    if (*image == NULL)
        status = lp_fail_memory(err);
    else if (size > LP_TRACE_FILE_BYTES_MAX) {
        sqlite3_free(*image);
        *image = NULL;
        status = lp_fail(err, LP_E_LIMIT, "the trace file would have %lld bytes, more than the limit of %lld",
                         (long long)size, (long long)LP_TRACE_FILE_BYTES_MAX);
    }
close_target:
    sqlite3_close(target);
    return status;
}

lp_status lp_trace_image(const lp_trace *t, uint8_t **image, int64_t *bytes, lp_error *err)
{
    return lp_trace_image_regrouped(t, 0, image, bytes, err);
}

lp_status lp_trace_image_regrouped(const lp_trace *t, uint64_t seed, uint8_t **image, int64_t *bytes, lp_error *err)
{
    lp_status status;
    if (!t->sealed)
        return lp_fail(err, LP_E_MISUSE, "a trace is saved after lp_trace_seal only");
    lp_file_writer w = {.trace = t, .alloc = t->platform.alloc, .regroup = seed};
    lp_text_init(&w.raw, w.alloc);
    lp_text_init(&w.frame, w.alloc);
    LP_TRY_GOTO(open_memory(&w.db, ":memory:", err), release);
    LP_TRY_GOTO(build(&w, err), release);
    status = vacuum(&w, image, bytes, err);
release:
    for (int i = 0; i < LP_TRACE_TABLES; i++)
        sqlite3_finalize(w.insert[i]);
    sqlite3_close(w.db);
    lp_codec_free(&w.codec);
    lp_text_free(&w.raw);
    lp_text_free(&w.frame);
    return status;
}
