/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading the tables of a trace file. Frames stay compressed, apart from the catalogue, and what they claim to expand
 * to is added up here, so that a bomb is refused before it is lit.
 */
#include "traces/trace_reader.h"

#include "traces/checkpoint_catalogue.h"

enum { NAMES_AT_ONCE = 1 << 20 };

/* ---- header ---- */

static lp_status header_row(lp_reader *r, sqlite3_stmt *q, int64_t index)
{
    const struct {
        const char *key;
        const char **value;
    } known[] = {{"configuration", &r->header.configuration},
                 {"loader", &r->header.loader},
                 {"loader_version", &r->header.loader_version},
                 {"target", &r->header.target}};
    lp_status status = LP_OK;
    const char *key = lp_reader_text(r, q, 0, "header", index, &status);
    const char *value = key != NULL ? lp_reader_text(r, q, 1, "header", index, &status) : NULL;
    if (value == NULL)
        return status;
    for (size_t k = 0; k < sizeof known / sizeof *known; k++)
        if (strcmp(known[k].key, key) == 0) {
            *known[k].value = value;
            return LP_OK;
        }
    return r->db.newer_minor ? LP_OK : lp_reader_corrupt(r, "header", index, "unknown key");
}

static lp_status trace_row(lp_reader *r, sqlite3_stmt *q, int64_t index)
{
    int64_t value[9];
    for (int c = 0; c < 9; c++) {
        value[c] = sqlite3_column_int64(q, c);
        if (value[c] < (c < 3) || (c < 4 && value[c] > INT32_MAX))
            return lp_reader_corrupt(r, "trace", index, "a number is out of range");
    }
    if (index > 0 || value[3] > 1)
        return lp_reader_corrupt(r, "trace", index, "is not the one row that a trace has");
    r->header.layout = (lp_scope){
        .pp = (int32_t)value[0], .dp = (int32_t)value[1], .tp = (int32_t)value[2], .expert_parallel = value[3] != 0};
    r->files = value[4];
    r->names = value[5];
    r->s->maps = value[6];
    r->s->scopes = value[7];
    r->records = value[8];
    if (r->records > lp_trace_records_max(r->names))
        return lp_reader_hostile(r, "records", r->records, lp_trace_records_max(r->names));
    if (r->s->scopes > LP_SCOPES_MAX)
        return lp_reader_hostile(r, "scopes", r->s->scopes, LP_SCOPES_MAX);
    return LP_OK;
}

/* ---- catalogue ---- */

static lp_status file_row(lp_reader *r, sqlite3_stmt *q, int64_t index)
{
    lp_status status = LP_OK;
    lp_checkpoint_file file = {.size_bytes = -1};
    file.path = lp_reader_text(r, q, 1, "files", index, &status);
    if (file.path == NULL)
        return status;
    if (sqlite3_column_int64(q, 0) != index || !lp_path_is_safe(file.path))
        return lp_reader_corrupt(r, "files", index, "a path is absolute, goes upwards, or is out of order");
    if (sqlite3_column_type(q, 2) != SQLITE_NULL)
        file.size_bytes = sqlite3_column_int64(q, 2);
    if (file.size_bytes < 0 && sqlite3_column_type(q, 2) != SQLITE_NULL)
        return lp_reader_corrupt(r, "files", index, "a size is negative");
    if (sqlite3_column_type(q, 3) != SQLITE_NULL) {
        file.sha256 = lp_reader_text(r, q, 3, "files", index, &status);
        if (file.sha256 == NULL)
            return status;
    }
    return lp_checkpoint_add_file(r->checkpoint, &file, r->err);
}

static lp_status catalogue_row(lp_reader *r, sqlite3_stmt *q, int64_t index)
{
    lp_status status;
    lp_stored_frame stored = {.rows = sqlite3_column_int64(q, 1)};
    uint8_t *raw = NULL;
    lp_unpacker in;
    const int64_t first = lp_checkpoint_count(r->checkpoint), left = r->names - first;
    if (sqlite3_column_int64(q, 0) != first || stored.rows <= 0 || stored.rows > left)
        return lp_reader_corrupt(r, "catalogue", index, "names are out of order");
    LP_TRY(lp_reader_frame(r, q, 2, "catalogue", index, true, &stored));
    LP_TRY(lp_stored_unpack(r->s, &stored, "catalogue frame", index, &raw, &in, r->err));
    /* The claimed number of names holds for this frame at least, so the array may grow to what is there. */
    if (stored.rows > in.end - in.at) {
        status = lp_reader_corrupt(r, "catalogue", index, "claims more names than bytes");
        goto release;
    }
    lp_place *grown =
        r->platform.alloc->resize(r->platform.alloc->context, r->place, (size_t)(first + stored.rows) * sizeof *grown);
    if (grown == NULL) {
        status = lp_fail_memory(r->err);
        goto release;
    }
    r->place = grown;
    LP_TRY_GOTO(lp_unpack_catalogue(&in, stored.rows, lp_checkpoint_file_count(r->checkpoint), &r->s->budget,
                                    r->checkpoint, r->place + first, r->err),
                release);
    status = lp_unpack_end(&in, "a catalogue frame", r->err);
    /* Frames are sorted each; here the seam. */
    if (status == LP_OK && first > 0 &&
        strcmp(lp_checkpoint_at(r->checkpoint, first - 1)->name, lp_checkpoint_at(r->checkpoint, first)->name) >= 0)
        status = lp_reader_corrupt(r, "catalogue", index, "names are not sorted");
release:
    lp_release(r->platform.alloc, raw);
    return status;
}

static lp_status read_catalogue(lp_reader *r)
{
    bool fits;
    LP_TRY(lp_checkpoint_new(&r->checkpoint, &r->platform, r->err));
    LP_TRY(lp_reader_each(r, "SELECT id, path, bytes, sha256 FROM files ORDER BY id", file_row));
    if (r->seen != r->files)
        return lp_reader_corrupt(r, "files", r->seen, "another number of files than stated");
    /* Room in one piece, as long as the number is one that a real checkpoint has: it is not proven yet. */
    const int64_t room = r->names < NAMES_AT_ONCE ? r->names : NAMES_AT_ONCE;
    if (!lp_grow(r->platform.alloc, (void **)&r->checkpoint->tensor, &r->checkpoint->capacity, room,
                 sizeof *r->checkpoint->tensor))
        return lp_fail_memory(r->err);
    LP_TRY(lp_reader_each(r, "SELECT first, names, frame FROM catalogue ORDER BY first", catalogue_row));
    if (lp_checkpoint_count(r->checkpoint) != r->names)
        return lp_reader_corrupt(r, "catalogue", r->seen, "another number of names than stated");
    LP_TRY(lp_catalogue_offsets(r->checkpoint, r->place, &fits, r->err));
    if (!fits)
        return lp_reader_corrupt(r, "catalogue", 0, "tensors do not fit their files");
    return lp_checkpoint_seal_sorted(r->checkpoint, r->err);
}

/* ---- the whole ---- */

static lp_status read_everything(lp_reader *r)
{
    LP_TRY(lp_reader_each(r, "SELECT key, value FROM header", header_row));
    LP_TRY(lp_reader_each(r,
                          "SELECT pp, dp, tp, expert_parallel, files, names, maps, scopes, records FROM trace"
                          " ORDER BY id",
                          trace_row));
    if (r->seen != 1)
        return lp_reader_corrupt(r, "trace", 0, "is missing");
    LP_TRY(read_catalogue(r));
    lp_checkpoint *checkpoint = r->checkpoint;
    r->checkpoint = NULL; /* taken over, also on failure */
    LP_TRY(lp_reader_as_data(r, lp_trace_new_with(&r->trace, checkpoint, &r->header, &r->platform, r->err)));
    LP_TRY(lp_reader_sets(r));
    LP_TRY(lp_reader_scopes(r));
    return lp_reader_provenance(r);
}

static lp_status new_stored(lp_reader *r, int64_t bytes)
{
    lp_stored *s = lp_allocate_zero(r->platform.alloc, sizeof *s);
    if (s == NULL)
        return lp_fail_memory(r->err);
    s->alloc = r->platform.alloc;
    s->budget = s->decoded_bytes_max = lp_trace_decoded_bytes_max(bytes);
    lp_arena_init(&s->arena, s->alloc);
    r->s = s;
    s->path = lp_arena_text(&s->arena, r->path, strlen(r->path));
    return s->path == NULL ? lp_fail_memory(r->err) : LP_OK;
}

lp_status lp_trace_open_image(lp_trace **out, uint8_t *image, int64_t bytes, const char *path,
                              const lp_platform *platform, lp_error *err)
{
    lp_status status;
    lp_reader r = {.path = path, .platform = lp_platform_resolve(platform), .err = err};
    LP_TRY_GOTO(lp_trace_db_open(&r.db, image, bytes, path, err), release);
    LP_TRY_GOTO(new_stored(&r, bytes), release);
    LP_TRY_GOTO(read_everything(&r), release);
    lp_trace_end_stored(
        r.trace,
        &(lp_rows_source){.context = r.s, .expand = lp_stored_expand, .close = lp_stored_close, .path = r.s->path});
    *out = r.trace;
    r.trace = NULL;
    r.s = NULL;
release:
    if (status != LP_OK)
        lp_error_of_file(err, path);
    lp_release(r.platform.alloc, r.place);
    lp_trace_db_close(&r.db);
    lp_trace_close(r.trace);
    lp_checkpoint_close(r.checkpoint);
    lp_stored_close(r.s);
    return status;
}
