/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From a stored scope to its rows. Everything is checked that the arrays need in order to be safe; whether the rows
 * mean something is for lp_rows_check, and whether they are the recorded ones for the plan digest.
 */
#include "traces/trace_file.h"

#include "traces/row_codec.h"

#include <stdio.h>

enum { C_NAME, C_DEST, C_SRC_OFF, C_DST_OFF, C_SEQ, C_SHARED, C_KIND = C_SHARED, C_DTYPES, C_FILL, C_MAP, C_ALL };

lp_status lp_stored_unpack(lp_stored *s, const lp_stored_frame *stored, const char *what, int64_t number, uint8_t **raw,
                           lp_unpacker *in, lp_error *err)
{
    char label[512];
    int64_t bytes;
    snprintf(label, sizeof label, "%s %lld of '%.400s'", what, (long long)number, s->path);
    LP_TRY(lp_frame_unpack(&s->codec, s->alloc, stored->frame, stored->bytes, &s->budget, label, raw, &bytes, err));
    *in = (lp_unpacker){.at = *raw, .end = *raw + bytes};
    return LP_OK;
}

static lp_status finish(const lp_stored *s, const lp_unpacker *in, const char *what, int64_t number, lp_error *err)
{
    char label[512];
    snprintf(label, sizeof label, "%s %lld of '%.400s'", what, (long long)number, s->path);
    return lp_unpack_end(in, label, err);
}

/* ---- maps ---- */

static lp_status unpack_map_frame(lp_stored *s, const lp_trace *t, int64_t frame, lp_error *err)
{
    lp_status status = LP_OK;
    const int64_t first = frame * LP_MAP_FRAME_MAPS;
    uint8_t *raw = NULL;
    lp_unpacker in;
    LP_TRY(lp_stored_unpack(s, &s->map_frame[frame], "map frame", frame, &raw, &in, err));
    for (int64_t i = 0; i < s->map_frame[frame].rows && !in.failed; i++) {
        const lp_map *map;
        int64_t src_off, dst_off;
        LP_TRY_GOTO(lp_unpack_map(&in, s->alloc, &map, err), release);
        if (in.failed)
            break;
        status = lp_map_pool_add(&t->shared->maps, map, &s->map[first + i], &src_off, &dst_off, err);
        lp_map_free(map, s->alloc);
        if (status != LP_OK)
            goto release;
        if (src_off != 0 || dst_off != 0)
            in.failed = true;
    }
    status = finish(s, &in, "map frame", frame, err);
release:
    if (status != LP_OK) /* the next who asks for one of these is told the same */
        memset(&s->map[first], 0, (size_t)s->map_frame[frame].rows * sizeof *s->map);
    lp_release(s->alloc, raw);
    return status;
}

/* A map by its number in the file. */
static lp_status map_at(lp_stored *s, const lp_trace *t, int64_t number, const lp_map **out, lp_error *err)
{
    if (number < 0 || number >= s->maps)
        return lp_fail(err, LP_E_CORRUPT, "map %lld of '%s' does not exist", (long long)number, s->path);
    if (s->map[number] == NULL)
        LP_TRY(unpack_map_frame(s, t, number / LP_MAP_FRAME_MAPS, err));
    *out = s->map[number];
    return LP_OK;
}

/* ---- records ---- */

static int member_columns(const lp_stored_member *m)
{
    return m->family >= 0 ? C_SHARED : C_ALL;
}

static lp_status read_columns(lp_stored *s, int64_t member, int64_t *column, lp_error *err)
{
    const lp_stored_member *m = &s->member[member];
    uint8_t *raw = NULL;
    lp_unpacker in;
    LP_TRY(lp_stored_unpack(s, &m->payload, "member", member, &raw, &in, err));
    for (int c = 0; c < member_columns(m); c++)
        lp_unpack_column(&in, column + c * m->payload.rows, m->payload.rows);
    const lp_status status = finish(s, &in, "member", member, err);
    lp_release(s->alloc, raw);
    return status;
}

/* The columns of a member that is an earlier one plus constants. */
static lp_status read_shifted(lp_stored *s, int64_t member, int64_t *column, lp_error *err)
{
    const lp_stored_member *m = &s->member[member];
    const int64_t n = m->payload.rows;
    lp_unpacker in = {.at = m->payload.frame, .end = m->payload.frame + m->payload.bytes};
    LP_TRY(read_columns(s, m->base, column, err));
    for (int c = 0; c < member_columns(m); c++) {
        const uint64_t shift = (uint64_t)lp_unpack_i64(&in);
        for (int64_t i = 0; i < n && shift != 0; i++)
            column[c * n + i] = (int64_t)((uint64_t)column[c * n + i] + shift);
    }
    return finish(s, &in, "member", member, err);
}

/* One row of the columns; false when a value is out of its field's range. */
static bool fill_record(const int64_t *column, int64_t n, int64_t i, int64_t names, uint32_t ndest, lp_record *r)
{
    const int64_t name = column[C_NAME * n + i], dest = column[C_DEST * n + i], seq = column[C_SEQ * n + i];
    if (name < -1 || name >= names || dest < 0 || dest >= ndest || seq < 0 || seq > UINT32_MAX)
        return false;
    r->name = name < 0 ? LP_NAME_BEGIN : (uint32_t)name;
    r->dest = (uint32_t)dest;
    r->src_off = column[C_SRC_OFF * n + i];
    r->dst_off = column[C_DST_OFF * n + i];
    r->seq = (uint32_t)seq;
    r->provenance = LP_NONE;
    return true;
}

static bool fill_mixed(const int64_t *column, int64_t n, int64_t i, lp_record *r)
{
    const int64_t kind = column[C_KIND * n + i], dtypes = column[C_DTYPES * n + i];
    if (kind < LP_KIND_COPY || kind > LP_KIND_FILL || dtypes < 0 || dtypes > UINT16_MAX)
        return false;
    r->kind = (uint8_t)kind;
    r->src_dtype = (uint8_t)(dtypes >> 8);
    r->dst_dtype = (uint8_t)dtypes;
    r->fill_bits = (uint64_t)column[C_FILL * n + i];
    return true;
}

static lp_status member_records(lp_stored *s, const lp_trace *t, int64_t member, uint32_t ndest, lp_record *record,
                                lp_error *err)
{
    lp_status status;
    const lp_stored_member *m = &s->member[member];
    const int64_t n = m->payload.rows, names = lp_checkpoint_count(t->checkpoint);
    lp_record shared = {0};
    int64_t *column = lp_allocate(s->alloc, (size_t)member_columns(m) * (size_t)n * sizeof *column);
    if (column == NULL)
        return lp_fail_memory(err);
    LP_TRY_GOTO(m->base >= 0 ? read_shifted(s, member, column, err) : read_columns(s, member, column, err), release);
    if (m->family >= 0) {
        const lp_stored_family *f = &s->family[m->family];
        shared = (lp_record){
            .kind = f->kind, .src_dtype = f->src_dtype, .dst_dtype = f->dst_dtype, .fill_bits = f->fill_bits};
        LP_TRY_GOTO(map_at(s, t, f->map, &shared.map, err), release);
    }
    for (int64_t i = 0; i < n; i++) {
        record[i] = shared;
        if (!fill_record(column, n, i, names, ndest, &record[i]) ||
            (m->family < 0 && !fill_mixed(column, n, i, &record[i]))) {
            status = lp_fail(err, LP_E_CORRUPT, "record %lld of member %lld of '%s' is out of range", (long long)i,
                             (long long)member, s->path);
            goto release;
        }
        if (m->family < 0)
            LP_TRY_GOTO(map_at(s, t, column[C_MAP * n + i], &record[i].map, err), release);
    }
release:
    lp_release(s->alloc, column);
    return status;
}

static bool precedes(const lp_record *a, const lp_record *b)
{
    if (a->name != b->name)
        return a->name < b->name;
    if (a->dest != b->dest)
        return a->dest < b->dest;
    return a->dst_off < b->dst_off;
}

/* Members are sorted each; neighbours are merged until one run is left. start has runs + 1 entries. */
static lp_record *merge_runs(lp_record *from, lp_record *to, int64_t *start, int64_t runs)
{
    while (runs > 1) {
        int64_t merged = 0;
        for (int64_t k = 0; k < runs; k += 2) {
            const int64_t lo = start[k], mid = start[k + 1], hi = k + 2 <= runs ? start[k + 2] : mid;
            int64_t a = lo, b = mid;
            for (int64_t i = lo; i < hi; i++)
                to[i] = b >= hi || (a < mid && !precedes(&from[b], &from[a])) ? from[a++] : from[b++];
            start[merged++] = lo;
            start[merged] = hi;
        }
        runs = merged;
        lp_record *other = from;
        from = to;
        to = other;
    }
    return from;
}

/* Fills records[0 .. n-1] of a scope in canonical order. */
static lp_status fill_records(lp_stored *s, const lp_trace *t, int64_t scope, uint32_t ndest, lp_record *records,
                              lp_error *err)
{
    lp_status status = LP_OK;
    const lp_stored_scope *at = &s->scope[scope];
    int64_t *start = lp_allocate(s->alloc, ((size_t)at->members + 2) * sizeof *start);
    lp_record *spare = lp_allocate(s->alloc, (size_t)at->records * sizeof *spare);
    if (start == NULL || spare == NULL) {
        status = lp_fail_memory(err);
        goto release;
    }
    int64_t count = 0;
    start[0] = 0;
    for (int64_t m = 0; m < at->members; m++) {
        LP_TRY_GOTO(member_records(s, t, at->first_member + m, ndest, records + count, err), release);
        count += s->member[at->first_member + m].payload.rows;
        start[m + 1] = count;
    }
    if (at->members > 1) {
        const lp_record *sorted = merge_runs(records, spare, start, at->members);
        if (sorted != records)
            memcpy(records, sorted, (size_t)count * sizeof *records);
    }
release:
    lp_release(s->alloc, start);
    lp_release(s->alloc, spare);
    return status;
}

/* ---- sets ---- */

typedef enum set_kind { SET_DESTINATIONS, SET_DERIVES, SET_REFUSALS } set_kind;

static lp_status unpack_set(lp_stored *s, set_kind kind, lp_stored_set *set, int64_t number, lp_error *err)
{
    static const char *const what[] = {"destination set", "derive set", "refusal set"};
    if (set->rows != NULL)
        return LP_OK;
    lp_status status;
    uint8_t *raw = NULL;
    lp_unpacker in;
    lp_destination *dest = NULL;
    lp_derive *derive = NULL;
    lp_refusal *refusal = NULL;
    LP_TRY(lp_stored_unpack(s, &set->stored, what[kind], number, &raw, &in, err));
    if (kind == SET_DESTINATIONS)
        status = lp_unpack_destinations(&in, set->stored.rows, &s->budget, &s->arena, &dest, err);
    else if (kind == SET_DERIVES)
        status = lp_unpack_derives(&in, set->stored.rows, &s->arena, &derive, err);
    else
        status = lp_unpack_refusals(&in, set->stored.rows, &s->arena, &refusal, err);
    if (status == LP_OK)
        status = finish(s, &in, what[kind], number, err);
    if (status == LP_OK)
        set->rows = kind == SET_DESTINATIONS ? (void *)dest : kind == SET_DERIVES ? (void *)derive : (void *)refusal;
    lp_release(s->alloc, raw);
    return status;
}

/* ---- provenance ---- */

static lp_status provenance_column(lp_stored *s, lp_unpacker *in, lp_column *column, int64_t count, lp_error *err)
{
    if (!lp_column_read(column, in, count))
        return lp_fail_memory(err);
    for (int64_t i = 0; i < count && !in->failed; i++) {
        if (column->value[i] < -1 || column->value[i] > UINT32_MAX)
            in->failed = true;
        /* The rows that they name may have been removed: then nothing is known. */
        else if (column->value[i] >= s->provenances)
            column->value[i] = LP_NONE;
        else
            column->value[i] = column->value[i] < 0 ? LP_NONE : s->provenance[column->value[i]];
    }
    return LP_OK;
}

/* Rows of a scope of its own, so that they can be written. */
typedef struct own_rows {
    lp_record *record;
    lp_derive *derive;
    lp_refusal *refusal;
    int64_t records, derives, refusals;
} own_rows;

static lp_status add_provenance(lp_stored *s, int64_t scope, const own_rows *own, lp_error *err)
{
    lp_status status;
    uint8_t *raw = NULL;
    lp_unpacker in;
    lp_column column = {.alloc = s->alloc};
    LP_TRY(lp_stored_unpack(s, &s->scope[scope].provenance, "provenance of scope", scope, &raw, &in, err));
    LP_TRY_GOTO(provenance_column(s, &in, &column, own->records, err), release);
    for (int64_t i = 0; i < own->records && !in.failed; i++)
        own->record[i].provenance = (uint32_t)column.value[i];
    LP_TRY_GOTO(provenance_column(s, &in, &column, own->derives, err), release);
    for (int64_t i = 0; i < own->derives && !in.failed; i++)
        own->derive[i].provenance = (uint32_t)column.value[i];
    LP_TRY_GOTO(provenance_column(s, &in, &column, own->refusals, err), release);
    for (int64_t i = 0; i < own->refusals && !in.failed; i++)
        own->refusal[i].provenance = (uint32_t)column.value[i];
    status = finish(s, &in, "provenance of scope", scope, err);
release:
    lp_release(s->alloc, raw);
    lp_release(s->alloc, column.value);
    return status;
}

/* ---- scopes ---- */

lp_status lp_stored_expand(void *context, const lp_trace *t, int32_t scope_index, lp_rows *rows, lp_arena *arena,
                           lp_error *err)
{
    lp_stored *s = context;
    const lp_stored_scope *at = &s->scope[scope_index];
    s->budget = s->decoded_bytes_max; /* what all frames claim together was checked when the file was opened */
    if (at->destinations >= 0) {
        lp_stored_set *set = &s->destinations[at->destinations];
        LP_TRY(unpack_set(s, SET_DESTINATIONS, set, at->destinations, err));
        rows->dest = set->rows;
        rows->ndest = (uint32_t)set->stored.rows;
    }
    own_rows own = {.records = at->records};
    own.record = lp_arena_get(arena, (size_t)own.records * sizeof *own.record);
    if (own.record == NULL)
        return lp_fail_memory(err);
    LP_TRY(fill_records(s, t, scope_index, rows->ndest, own.record, err));
    rows->record = own.record;
    rows->nrecord = (uint32_t)own.records;
    /* Copies, because provenance may differ between scopes that share a set. */
    if (at->derives >= 0) {
        lp_stored_set *set = &s->derives[at->derives];
        LP_TRY(unpack_set(s, SET_DERIVES, set, at->derives, err));
        own.derives = set->stored.rows;
        own.derive = lp_arena_copy(arena, set->rows, (size_t)own.derives * sizeof *own.derive);
        if (own.derive == NULL)
            return lp_fail_memory(err);
        rows->derive = own.derive;
        rows->nderive = (uint32_t)own.derives;
    }
    if (at->refusals >= 0) {
        lp_stored_set *set = &s->refusals[at->refusals];
        LP_TRY(unpack_set(s, SET_REFUSALS, set, at->refusals, err));
        own.refusals = set->stored.rows;
        own.refusal = lp_arena_copy(arena, set->rows, (size_t)own.refusals * sizeof *own.refusal);
        if (own.refusal == NULL)
            return lp_fail_memory(err);
        rows->refusal = own.refusal;
        rows->nrefusal = (uint32_t)own.refusals;
    }
    if (at->provenance.frame != NULL)
        return add_provenance(s, scope_index, &own, err);
    return LP_OK;
}

void lp_stored_close(void *context)
{
    lp_stored *s = context;
    if (s == NULL)
        return;
    const lp_alloc *alloc = s->alloc;
    lp_codec_free(&s->codec);
    lp_arena_free(&s->arena);
    lp_release(alloc, s);
}
