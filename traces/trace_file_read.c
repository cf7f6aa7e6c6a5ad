/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading the tables of a trace file. Frames stay compressed, apart from the catalogue, and what they claim to expand
 * to is added up here, so that a bomb is refused before it is lit.
 */
#include "traces/trace_file.h"

#include "traces/checkpoint_catalogue.h"
#include "traces/json_pull.h"
#include "traces/row_codec.h"

enum { NAMES_AT_ONCE = 1 << 20 };

typedef struct reader {
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
} reader;

/* ---- errors ---- */

static lp_status corrupt(const reader *r, const char *table, int64_t row, const char *what)
{
    return lp_fail_at(r->err, LP_E_CORRUPT, r->path, -1, "'%s' is damaged: table '%s', row %lld: %s", r->path, table,
                      (long long)row, what);
}

/* What the model calls a bad argument is bad data here. */
static lp_status as_data(const reader *r, lp_status status)
{
    if (status != LP_E_ARGUMENT && status != LP_E_MISUSE)
        return status;
    if (r->err != NULL)
        r->err->code = LP_E_CORRUPT;
    return LP_E_CORRUPT;
}

static lp_status hostile(const reader *r, const char *what, int64_t value, int64_t limit)
{
    return lp_fail_at(r->err, LP_E_HOSTILE, r->path, -1, "'%s' claims %lld %s, more than the limit of %lld", r->path,
                      (long long)value, what, (long long)limit);
}

/* ---- rows ---- */

typedef lp_status (*row_function)(reader *r, sqlite3_stmt *q, int64_t index);

typedef struct row_call {
    reader *r;
    row_function row;
} row_call;

static lp_status call_row(void *context, sqlite3_stmt *q, int64_t index)
{
    const row_call *call = context;
    return call->row(call->r, q, index);
}

/* Calls `row` for every row of a query; r->seen gets their number. */
static lp_status each_row(reader *r, const char *sql, row_function row)
{
    row_call call = {.r = r, .row = row};
    return lp_trace_db_each(&r->db, sql, call_row, &call, &r->seen, r->err);
}

/* ---- values ---- */

/* A text of the arena: UTF-8, no NUL. NULL with the error filled in. */
static const char *text_at(reader *r, sqlite3_stmt *q, int column, const char *table, int64_t row, lp_status *status)
{
    const char *text = (const char *)sqlite3_column_text(q, column);
    const size_t bytes = (size_t)sqlite3_column_bytes(q, column);
    size_t bad_off;
    if (text == NULL || strlen(text) != bytes || !lp_utf8_is_valid(text, bytes, &bad_off)) {
        *status = corrupt(r, table, row, "a text is not UTF-8");
        return NULL;
    }
    const char *copy = lp_arena_text(&r->s->arena, text, bytes);
    if (copy == NULL)
        *status = lp_fail_memory(r->err);
    return copy;
}

/* A reference that may be NULL (-1): true when it is in [0, count) or NULL. */
static bool reference(sqlite3_stmt *q, int column, int64_t count, int64_t *out)
{
    *out = -1;
    if (sqlite3_column_type(q, column) == SQLITE_NULL)
        return true;
    *out = sqlite3_column_int64(q, column);
    return *out >= 0 && *out < count;
}

/* A frame: copied into the arena, its claim counted. */
static lp_status frame_at(reader *r, sqlite3_stmt *q, int column, const char *table, int64_t row, bool is_frame,
                          lp_stored_frame *out)
{
    const void *blob = sqlite3_column_blob(q, column);
    const int64_t bytes = sqlite3_column_bytes(q, column);
    if (is_frame) {
        const int64_t claim = blob == NULL ? -1 : lp_frame_raw_bytes(blob, bytes);
        if (claim < 0)
            return corrupt(r, table, row, "a frame has no head");
        if (!lp_add(r->claimed, claim, &r->claimed) || r->claimed > r->s->decoded_bytes_max)
            return hostile(r, "bytes of decoded frames", r->claimed, r->s->decoded_bytes_max);
    }
    out->bytes = bytes;
    out->frame = lp_arena_copy(&r->s->arena, blob, (size_t)bytes);
    return out->frame == NULL ? lp_fail_memory(r->err) : LP_OK;
}

static lp_status count_row(reader *r, sqlite3_stmt *q, int64_t index)
{
    (void)index;
    r->records_seen = sqlite3_column_int64(q, 0);
    return LP_OK;
}

/* An array with one zeroed entry for each row of a table. */
static lp_status rows_of(reader *r, const char *count_sql, size_t row_bytes, void **out, int64_t *count)
{
    size_t bytes;
    LP_TRY(each_row(r, count_sql, count_row));
    *count = r->records_seen;
    if (__builtin_mul_overflow((size_t)*count, row_bytes, &bytes))
        return lp_fail_memory(r->err);
    *out = lp_arena_get(&r->s->arena, bytes);
    if (*out == NULL)
        return lp_fail_memory(r->err);
    memset(*out, 0, bytes);
    return LP_OK;
}

/* ---- header ---- */

static lp_status header_row(reader *r, sqlite3_stmt *q, int64_t index)
{
    const struct {
        const char *key;
        const char **value;
    } known[] = {{"configuration", &r->header.configuration},
                 {"loader", &r->header.loader},
                 {"loader_version", &r->header.loader_version},
                 {"target", &r->header.target}};
    lp_status status = LP_OK;
    const char *key = text_at(r, q, 0, "header", index, &status);
    const char *value = key != NULL ? text_at(r, q, 1, "header", index, &status) : NULL;
    if (value == NULL)
        return status;
    for (size_t k = 0; k < sizeof known / sizeof *known; k++)
        if (strcmp(known[k].key, key) == 0) {
            *known[k].value = value;
            return LP_OK;
        }
    return r->db.newer_minor ? LP_OK : corrupt(r, "header", index, "unknown key");
}

static lp_status trace_row(reader *r, sqlite3_stmt *q, int64_t index)
{
    int64_t value[9];
    for (int c = 0; c < 9; c++) {
        value[c] = sqlite3_column_int64(q, c);
        if (value[c] < (c < 3) || (c < 4 && value[c] > INT32_MAX))
            return corrupt(r, "trace", index, "a number is out of range");
    }
    if (index > 0 || value[3] > 1)
        return corrupt(r, "trace", index, "is not the one row that a trace has");
    r->header.layout = (lp_scope){
        .pp = (int32_t)value[0], .dp = (int32_t)value[1], .tp = (int32_t)value[2], .expert_parallel = value[3] != 0};
    r->files = value[4];
    r->names = value[5];
    r->s->maps = value[6];
    r->s->scopes = value[7];
    r->records = value[8];
    if (r->records > lp_trace_records_max(r->names))
        return hostile(r, "records", r->records, lp_trace_records_max(r->names));
    if (r->s->scopes > LP_SCOPES_MAX)
        return hostile(r, "scopes", r->s->scopes, LP_SCOPES_MAX);
    return LP_OK;
}

/* ---- catalogue ---- */

static lp_status file_row(reader *r, sqlite3_stmt *q, int64_t index)
{
    lp_status status = LP_OK;
    lp_checkpoint_file file = {.size_bytes = -1};
    file.path = text_at(r, q, 1, "files", index, &status);
    if (file.path == NULL)
        return status;
    if (sqlite3_column_int64(q, 0) != index || !lp_path_is_safe(file.path))
        return corrupt(r, "files", index, "a path is absolute, goes upwards, or is out of order");
    if (sqlite3_column_type(q, 2) != SQLITE_NULL)
        file.size_bytes = sqlite3_column_int64(q, 2);
    if (file.size_bytes < 0 && sqlite3_column_type(q, 2) != SQLITE_NULL)
        return corrupt(r, "files", index, "a size is negative");
    if (sqlite3_column_type(q, 3) != SQLITE_NULL) {
        file.sha256 = text_at(r, q, 3, "files", index, &status);
        if (file.sha256 == NULL)
            return status;
    }
    return lp_checkpoint_add_file(r->checkpoint, &file, r->err);
}

static lp_status catalogue_row(reader *r, sqlite3_stmt *q, int64_t index)
{
    lp_status status;
    lp_stored_frame stored = {.rows = sqlite3_column_int64(q, 1)};
    uint8_t *raw = NULL;
    lp_unpacker in;
    const int64_t first = lp_checkpoint_count(r->checkpoint), left = r->names - first;
    if (sqlite3_column_int64(q, 0) != first || stored.rows <= 0 || stored.rows > left)
        return corrupt(r, "catalogue", index, "names are out of order");
    LP_TRY(frame_at(r, q, 2, "catalogue", index, true, &stored));
    LP_TRY(lp_stored_unpack(r->s, &stored, "catalogue frame", index, &raw, &in, r->err));
    /* The claimed number of names holds for this frame at least, so the array may grow to what is there. */
    if (stored.rows > in.end - in.at) {
        status = corrupt(r, "catalogue", index, "claims more names than bytes");
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
        status = corrupt(r, "catalogue", index, "names are not sorted");
release:
    lp_release(r->platform.alloc, raw);
    return status;
}

static lp_status read_catalogue(reader *r)
{
    bool fits;
    LP_TRY(lp_checkpoint_new(&r->checkpoint, &r->platform, r->err));
    LP_TRY(each_row(r, "SELECT id, path, bytes, sha256 FROM files ORDER BY id", file_row));
    if (r->seen != r->files)
        return corrupt(r, "files", r->seen, "another number of files than stated");
    /* Room in one piece, as long as the number is one that a real checkpoint has: it is not proven yet. */
    const int64_t room = r->names < NAMES_AT_ONCE ? r->names : NAMES_AT_ONCE;
    if (!lp_grow(r->platform.alloc, (void **)&r->checkpoint->tensor, &r->checkpoint->capacity, room,
                 sizeof *r->checkpoint->tensor))
        return lp_fail_memory(r->err);
    LP_TRY(each_row(r, "SELECT first, names, frame FROM catalogue ORDER BY first", catalogue_row));
    if (lp_checkpoint_count(r->checkpoint) != r->names)
        return corrupt(r, "catalogue", r->seen, "another number of names than stated");
    LP_TRY(lp_catalogue_offsets(r->checkpoint, r->place, &fits, r->err));
    if (!fits)
        return corrupt(r, "catalogue", 0, "tensors do not fit their files");
    return lp_checkpoint_seal_sorted(r->checkpoint, r->err);
}

/* ---- frames of rows ---- */

static lp_status set_row(reader *r, sqlite3_stmt *q, int64_t index, const char *table, lp_stored_set *set)
{
    set->stored.rows = sqlite3_column_int64(q, 1);
    if (sqlite3_column_int64(q, 0) != index || set->stored.rows <= 0 || set->stored.rows >= UINT32_MAX)
        return corrupt(r, table, index, "a number is out of range");
    return frame_at(r, q, 2, table, index, true, &set->stored);
}

static lp_status destinations_row(reader *r, sqlite3_stmt *q, int64_t index)
{
    return set_row(r, q, index, "destinations", &r->s->destinations[index]);
}

static lp_status derives_row(reader *r, sqlite3_stmt *q, int64_t index)
{
    return set_row(r, q, index, "derives", &r->s->derives[index]);
}

static lp_status refusals_row(reader *r, sqlite3_stmt *q, int64_t index)
{
    return set_row(r, q, index, "refusals", &r->s->refusals[index]);
}

static lp_status map_row(reader *r, sqlite3_stmt *q, int64_t index)
{
    lp_stored_frame *stored = &r->s->map_frame[index];
    const int64_t first = index * LP_MAP_FRAME_MAPS, left = r->s->maps - first;
    stored->rows = sqlite3_column_int64(q, 1);
    if (sqlite3_column_int64(q, 0) != first || left <= 0 ||
        stored->rows != (left < LP_MAP_FRAME_MAPS ? left : LP_MAP_FRAME_MAPS))
        return corrupt(r, "maps", index, "maps are out of order");
    return frame_at(r, q, 2, "maps", index, true, stored);
}

static lp_status read_sets(reader *r)
{
    lp_stored *s = r->s;
    void *rows;
    LP_TRY(rows_of(r, "SELECT count(*) FROM destinations", sizeof *s->destinations, &rows, &s->destination_sets));
    s->destinations = rows;
    LP_TRY(each_row(r, "SELECT id, rows, frame FROM destinations ORDER BY id", destinations_row));
    LP_TRY(rows_of(r, "SELECT count(*) FROM derives", sizeof *s->derives, &rows, &s->derive_sets));
    s->derives = rows;
    LP_TRY(each_row(r, "SELECT id, rows, frame FROM derives ORDER BY id", derives_row));
    LP_TRY(rows_of(r, "SELECT count(*) FROM refusals", sizeof *s->refusals, &rows, &s->refusal_sets));
    s->refusals = rows;
    LP_TRY(each_row(r, "SELECT id, rows, frame FROM refusals ORDER BY id", refusals_row));
    LP_TRY(rows_of(r, "SELECT count(*) FROM maps", sizeof *s->map_frame, &rows, &s->map_frames));
    s->map_frame = rows;
    if (s->maps > s->map_frames * LP_MAP_FRAME_MAPS || s->maps <= (s->map_frames - 1) * LP_MAP_FRAME_MAPS)
        return corrupt(r, "maps", s->map_frames, "another number of maps than stated");
    LP_TRY(each_row(r, "SELECT first, maps, frame FROM maps ORDER BY first", map_row));
    s->map = lp_arena_get(&s->arena, (size_t)s->maps * sizeof *s->map);
    if (s->map == NULL)
        return lp_fail_memory(r->err);
    if (s->maps > 0)
        memset(s->map, 0, (size_t)s->maps * sizeof *s->map);
    return LP_OK;
}

/* ---- scopes, families, members ---- */

static lp_status scope_row(reader *r, sqlite3_stmt *q, int64_t index)
{
    lp_stored_scope *at = &r->s->scope[index];
    lp_scope scope = r->header.layout;
    int64_t rank[3];
    for (int c = 0; c < 3; c++) {
        rank[c] = sqlite3_column_int64(q, 1 + c);
        if (rank[c] < 0 || rank[c] > INT32_MAX)
            return corrupt(r, "scopes", index, "a rank is out of range");
    }
    scope.pp_rank = (int32_t)rank[0];
    scope.dp_rank = (int32_t)rank[1];
    scope.tp_rank = (int32_t)rank[2];
    at->records = sqlite3_column_int64(q, 7);
    if (sqlite3_column_int64(q, 0) != index || sqlite3_column_bytes(q, 8) != 32 || at->records < 0 ||
        !reference(q, 4, r->s->destination_sets, &at->destinations) ||
        !reference(q, 5, r->s->derive_sets, &at->derives) || !reference(q, 6, r->s->refusal_sets, &at->refusals))
        return corrupt(r, "scopes", index, "a number is out of range");
    if (at->records > lp_trace_scope_records_max(r->names))
        return hostile(r, "records in a scope", at->records, lp_trace_scope_records_max(r->names));
    r->records_seen += at->records;
    return as_data(r, lp_trace_add_stored_scope(r->trace, &scope, sqlite3_column_blob(q, 8), r->err));
}

static lp_status family_row(reader *r, sqlite3_stmt *q, int64_t index)
{
    lp_stored_family *f = &r->s->family[index];
    const int64_t kind = sqlite3_column_int64(q, 1), src = sqlite3_column_int64(q, 2), dst = sqlite3_column_int64(q, 3);
    f->fill_bits = (uint64_t)sqlite3_column_int64(q, 4);
    f->map = sqlite3_column_int64(q, 5);
    if (sqlite3_column_int64(q, 0) != index || kind < LP_KIND_COPY || kind > LP_KIND_FILL || src < 0 ||
        src >= LP_DTYPE_COUNT || dst < 0 || dst >= LP_DTYPE_COUNT || f->map < 0 || f->map >= r->s->maps)
        return corrupt(r, "families", index, "a number is out of range");
    f->kind = (uint8_t)kind;
    f->src_dtype = (uint8_t)src;
    f->dst_dtype = (uint8_t)dst;
    return LP_OK;
}

static lp_status member_row(reader *r, sqlite3_stmt *q, int64_t index)
{
    lp_stored *s = r->s;
    lp_stored_member *m = &s->member[index];
    const int64_t scope = sqlite3_column_int64(q, 1);
    m->payload.rows = sqlite3_column_int64(q, 3);
    if (sqlite3_column_int64(q, 0) != index || scope < 0 || scope >= s->scopes ||
        !reference(q, 2, s->families, &m->family) || !reference(q, 4, index, &m->base))
        return corrupt(r, "members", index, "a number is out of range");
    /* A base has columns of its own, so that no chain of bases can be built. */
    if (m->base >= 0 && (s->member[m->base].base >= 0 || s->member[m->base].family != m->family ||
                         s->member[m->base].payload.rows != m->payload.rows))
        return corrupt(r, "members", index, "its base is not of its kind");
    lp_stored_scope *at = &s->scope[scope];
    if (at->members == 0)
        at->first_member = index;
    if (m->payload.rows <= 0 || m->payload.rows > at->records - r->records_seen * (at->members > 0) ||
        at->first_member + at->members != index)
        return corrupt(r, "members", index, "is out of order, or has more records than its scope");
    r->records_seen = (at->members > 0 ? r->records_seen : 0) + m->payload.rows;
    at->members++;
    return frame_at(r, q, 5, "members", index, m->base < 0, &m->payload);
}

static lp_status read_scopes(reader *r)
{
    lp_stored *s = r->s;
    void *rows;
    int64_t count;
    LP_TRY(rows_of(r, "SELECT count(*) FROM scopes", sizeof *s->scope, &rows, &count));
    s->scope = rows;
    if (count != s->scopes)
        return corrupt(r, "scopes", count, "another number of scopes than stated");
    r->records_seen = 0;
    LP_TRY(each_row(r,
                    "SELECT id, pp_rank, dp_rank, tp_rank, destinations, derives, refusals, records, plan_digest"
                    " FROM scopes ORDER BY id",
                    scope_row));
    if (r->records_seen != r->records)
        return corrupt(r, "scopes", count, "another number of records than stated");
    LP_TRY(rows_of(r, "SELECT count(*) FROM families", sizeof *s->family, &rows, &s->families));
    s->family = rows;
    LP_TRY(each_row(r, "SELECT id, kind, src_dtype, dst_dtype, fill_bits, map FROM families ORDER BY id", family_row));
    LP_TRY(rows_of(r, "SELECT count(*) FROM members", sizeof *s->member, &rows, &s->members));
    s->member = rows;
    r->records_seen = 0;
    LP_TRY(each_row(r, "SELECT id, scope, family, records, base, payload FROM members ORDER BY id", member_row));
    for (int64_t i = 0; i < s->scopes; i++) {
        int64_t records = 0;
        for (int64_t m = 0; m < s->scope[i].members; m++)
            records += s->member[s->scope[i].first_member + m].payload.rows;
        if (records != s->scope[i].records)
            return corrupt(r, "scopes", i, "its members have another number of records");
    }
    return LP_OK;
}

/* ---- provenance ---- */

static lp_status provenance_row(reader *r, sqlite3_stmt *q, int64_t index)
{
    lp_status status = LP_OK;
    const int64_t line = sqlite3_column_int64(q, 2), flags = sqlite3_column_int64(q, 4);
    const char *file = text_at(r, q, 1, "provenance", index, &status);
    const char *chain = file != NULL ? text_at(r, q, 3, "provenance", index, &status) : NULL;
    if (chain == NULL)
        return status;
    if (sqlite3_column_int64(q, 0) != index || line < 0 || line > INT32_MAX || flags < 0 || flags > UINT32_MAX)
        return corrupt(r, "provenance", index, "a number is out of range");
    const lp_provenance row = {.file = file, .line = (int32_t)line, .chain = chain, .flags = (uint32_t)flags};
    return as_data(r, lp_trace_add_provenance(r->trace, &row, &r->s->provenance[index], r->err));
}

static lp_status provenance_rows_row(reader *r, sqlite3_stmt *q, int64_t index)
{
    const int64_t scope = sqlite3_column_int64(q, 0);
    if (scope < 0 || scope >= r->s->scopes)
        return corrupt(r, "provenance_rows", index, "no such scope");
    return frame_at(r, q, 1, "provenance_rows", index, true, &r->s->scope[scope].provenance);
}

static lp_status read_provenance(reader *r)
{
    void *rows;
    LP_TRY(rows_of(r, "SELECT count(*) FROM provenance", sizeof *r->s->provenance, &rows, &r->s->provenances));
    r->s->provenance = rows;
    LP_TRY(each_row(r, "SELECT id, file, line, chain, flags FROM provenance ORDER BY id", provenance_row));
    return each_row(r, "SELECT scope, frame FROM provenance_rows ORDER BY scope", provenance_rows_row);
}

/* ---- the whole ---- */

static lp_status read_everything(reader *r)
{
    LP_TRY(each_row(r, "SELECT key, value FROM header", header_row));
    LP_TRY(each_row(r,
                    "SELECT pp, dp, tp, expert_parallel, files, names, maps, scopes, records FROM trace"
                    " ORDER BY id",
                    trace_row));
    if (r->seen != 1)
        return corrupt(r, "trace", 0, "is missing");
    LP_TRY(read_catalogue(r));
    lp_checkpoint *checkpoint = r->checkpoint;
    r->checkpoint = NULL; /* taken over, also on failure */
    LP_TRY(as_data(r, lp_trace_new_with(&r->trace, checkpoint, &r->header, &r->platform, r->err)));
    LP_TRY(read_sets(r));
    LP_TRY(read_scopes(r));
    return read_provenance(r);
}

static lp_status new_stored(reader *r, int64_t bytes)
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
    reader r = {.path = path, .platform = lp_platform_resolve(platform), .err = err};
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
