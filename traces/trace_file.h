/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parts of the trace file's writer and reader. Private. A file is built and taken apart in memory: SQLite never
 * sees a path, so every byte of input and output goes through the platform's tables.
 */
#ifndef LOADPLAN_TRACE_FILE_H
#define LOADPLAN_TRACE_FILE_H

#include "traces/column_codec.h"
#include "traces/trace_private.h"
#include "traces/trace_schema.h"

#include <sqlite3.h>

/* Whether an SQLite result code, or the state of a connection (NULL: none could be made), says "out of memory". */
bool lp_sql_is_nomem(sqlite3 *db, int code);

/* ---- writing ---- */

typedef struct lp_file_writer {
    const lp_trace *trace;
    const lp_alloc *alloc;
    sqlite3 *db;
    sqlite3_stmt *insert[LP_TRACE_TABLES];
    lp_codec codec;
    lp_text raw, frame; /* scratch: the frame that is being made */
    uint64_t regroup;   /* see lp_trace_image_regrouped */
} lp_file_writer;

/* Appends a row. `types` has a letter a column: i int64_t; t const char *; n NULL; N int64_t, NULL when negative;
 * b const void *, int64_t bytes. */
lp_status lp_file_insert(lp_file_writer *w, const char *table, lp_error *err, const char *types, ...);

/* Compresses w->raw and appends a row whose last column it is; `types` describes the columns before it. Empties w->raw.
 */
lp_status lp_file_insert_frame(lp_file_writer *w, const char *table, lp_error *err, int64_t id, int64_t rows);
lp_status lp_file_compress(lp_file_writer *w, lp_error *err); /* w->raw into w->frame, emptied before */

/* Tables families, members and maps: the records of all scopes. Scopes come in order. */
typedef struct lp_member_writer lp_member_writer;
lp_status lp_member_writer_new(lp_member_writer **out, lp_file_writer *file, lp_error *err);
void lp_member_writer_free(lp_member_writer *m);
lp_status lp_member_writer_add(lp_member_writer *m, int64_t scope, const lp_rows *rows, lp_error *err);
lp_status lp_member_writer_end(lp_member_writer *m, int64_t *maps, lp_error *err);

/* Tables provenance and provenance_rows. */
lp_status lp_file_write_provenance(lp_file_writer *w, lp_error *err);

/* The whole file as a block that the caller releases with sqlite3_free. */
lp_status lp_trace_image(const lp_trace *t, uint8_t **image, int64_t *bytes, lp_error *err);

/* The same trace with its families torn apart at random by `seed` (not 0): a worse grouping of the same rows, for the
 * test that no digest depends on grouping. */
lp_status lp_trace_image_regrouped(const lp_trace *t, uint64_t seed, uint8_t **image, int64_t *bytes, lp_error *err);

/* ---- reading: the guarded database ---- */

typedef struct lp_trace_db {
    sqlite3 *db;
    const char *path; /* for messages */
    bool newer_minor; /* written by a newer minor version: may hold more than we know */
    int watchdog;
} lp_trace_db;

/* LP_E_CORRUPT where a page of the image states a row that is longer than the file (trace_file_cells.c). */
lp_status lp_trace_check_cells(const uint8_t *image, int64_t bytes, const char *path, lp_error *err);

/* Judges a file of file_bytes bytes by its first ones, before SQLite, or memory for it, is asked for anything. */
lp_status lp_trace_check_head(const char *path, const uint8_t *head, int64_t head_bytes, int64_t file_bytes,
                              lp_error *err);

/* Opens an image that has the head and the schema of a trace; the image is only read and must outlive the object. */
lp_status lp_trace_db_open(lp_trace_db *d, uint8_t *image, int64_t bytes, const char *path, lp_error *err);
void lp_trace_db_close(lp_trace_db *d); /* a zeroed object is allowed */

/* Calls `row` for every row of a query until it fails; *rows gets their number. */
lp_status lp_trace_db_each(lp_trace_db *d, const char *sql,
                           lp_status (*row)(void *context, sqlite3_stmt *q, int64_t index), void *context,
                           int64_t *rows, lp_error *err);

/* ---- reading: what an opened trace keeps ---- */

/* A compressed frame as it stands in the file, kept until somebody needs its rows. */
typedef struct lp_stored_frame {
    int64_t rows;
    const uint8_t *frame;
    int64_t bytes;
} lp_stored_frame;

/* A set of destinations, derives or refusals, unpacked at first use. */
typedef struct lp_stored_set {
    lp_stored_frame stored;
    void *rows;
} lp_stored_set;

typedef struct lp_stored_scope {
    int64_t destinations, derives, refusals; /* sets, -1: none */
    int64_t records;
    int64_t first_member, members;
    lp_stored_frame provenance; /* frame NULL: none */
} lp_stored_scope;

typedef struct lp_stored_family {
    uint8_t kind, src_dtype, dst_dtype;
    uint64_t fill_bits;
    int64_t map;
} lp_stored_family;

typedef struct lp_stored_member {
    int64_t family, base; /* -1: none */
    lp_stored_frame payload;
} lp_stored_member;

/* What an opened trace keeps of its file: everything but the catalogue stays compressed until a scope asks for it. */
typedef struct lp_stored {
    const lp_alloc *alloc;
    const char *path;
    lp_arena arena;
    lp_codec codec;
    int64_t budget; /* bytes that frames may still expand to */
    int64_t decoded_bytes_max;
    lp_stored_set *destinations, *derives, *refusals;
    int64_t destination_sets, derive_sets, refusal_sets;
    lp_stored_scope *scope;
    int64_t scopes;
    lp_stored_family *family;
    int64_t families;
    lp_stored_member *member;
    int64_t members;
    lp_stored_frame *map_frame;
    int64_t map_frames, maps;
    const lp_map **map; /* pooled; NULL until its frame was read */
    uint32_t *provenance;
    int64_t provenances;
} lp_stored;

/* Expands a frame under the budget of an opened trace; `what` and `number` name it in errors. The caller releases *raw.
 */
lp_status lp_stored_unpack(lp_stored *s, const lp_stored_frame *stored, const char *what, int64_t number, uint8_t **raw,
                           lp_unpacker *in, lp_error *err);

/* lp_rows_source.expand and close; the context is an lp_stored. */
lp_status lp_stored_expand(void *context, const lp_trace *t, int32_t scope_index, lp_rows *rows, lp_arena *arena,
                           lp_error *err);
void lp_stored_close(void *context);

/* Opens the bytes of a trace file; `path` is for messages. The image is only read (SQLite wants it writable), and not
 * needed afterwards. */
lp_status lp_trace_open_image(lp_trace **out, uint8_t *image, int64_t bytes, const char *path,
                              const lp_platform *platform, lp_error *err);

#endif
