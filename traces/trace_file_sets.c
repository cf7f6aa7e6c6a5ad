/* SPDX-License-Identifier: Apache-2.0 */
/* Reading a trace file's sets of rows, scopes, families, members and provenance: their frames stay compressed. */
#include "traces/trace_reader.h"

/* ---- frames of rows ---- */

static lp_status set_row(lp_reader *r, sqlite3_stmt *q, int64_t index, const char *table, lp_stored_set *set)
{
    set->stored.rows = sqlite3_column_int64(q, 1);
    if (sqlite3_column_int64(q, 0) != index || set->stored.rows <= 0 || set->stored.rows >= UINT32_MAX)
        return lp_reader_corrupt(r, table, index, "a number is out of range");
    return lp_reader_frame(r, q, 2, table, index, true, &set->stored);
}

static lp_status destinations_row(lp_reader *r, sqlite3_stmt *q, int64_t index)
{
    return set_row(r, q, index, "destinations", &r->s->destinations[index]);
}

static lp_status derives_row(lp_reader *r, sqlite3_stmt *q, int64_t index)
{
    return set_row(r, q, index, "derives", &r->s->derives[index]);
}

static lp_status refusals_row(lp_reader *r, sqlite3_stmt *q, int64_t index)
{
    return set_row(r, q, index, "refusals", &r->s->refusals[index]);
}

static lp_status map_row(lp_reader *r, sqlite3_stmt *q, int64_t index)
{
    lp_stored_frame *stored = &r->s->map_frame[index];
    const int64_t first = index * LP_MAP_FRAME_MAPS, left = r->s->maps - first;
    stored->rows = sqlite3_column_int64(q, 1);
    if (sqlite3_column_int64(q, 0) != first || left <= 0 ||
        stored->rows != (left < LP_MAP_FRAME_MAPS ? left : LP_MAP_FRAME_MAPS))
        return lp_reader_corrupt(r, "maps", index, "maps are out of order");
    return lp_reader_frame(r, q, 2, "maps", index, true, stored);
}

lp_status lp_reader_sets(lp_reader *r)
{
    lp_stored *s = r->s;
    void *rows;
    LP_TRY(
        lp_reader_rows(r, "SELECT count(*) FROM destinations", sizeof *s->destinations, &rows, &s->destination_sets));
    s->destinations = rows;
    LP_TRY(lp_reader_each(r, "SELECT id, rows, frame FROM destinations ORDER BY id", destinations_row));
    LP_TRY(lp_reader_rows(r, "SELECT count(*) FROM derives", sizeof *s->derives, &rows, &s->derive_sets));
    s->derives = rows;
    LP_TRY(lp_reader_each(r, "SELECT id, rows, frame FROM derives ORDER BY id", derives_row));
    LP_TRY(lp_reader_rows(r, "SELECT count(*) FROM refusals", sizeof *s->refusals, &rows, &s->refusal_sets));
    s->refusals = rows;
    LP_TRY(lp_reader_each(r, "SELECT id, rows, frame FROM refusals ORDER BY id", refusals_row));
    LP_TRY(lp_reader_rows(r, "SELECT count(*) FROM maps", sizeof *s->map_frame, &rows, &s->map_frames));
    s->map_frame = rows;
    if (s->maps > s->map_frames * LP_MAP_FRAME_MAPS || s->maps <= (s->map_frames - 1) * LP_MAP_FRAME_MAPS)
        return lp_reader_corrupt(r, "maps", s->map_frames, "another number of maps than stated");
    LP_TRY(lp_reader_each(r, "SELECT first, maps, frame FROM maps ORDER BY first", map_row));
    s->map = lp_arena_get(&s->arena, (size_t)s->maps * sizeof *s->map);
    if (s->map == NULL)
        return lp_fail_memory(r->err);
    if (s->maps > 0)
        memset(s->map, 0, (size_t)s->maps * sizeof *s->map);
    return LP_OK;
}

/* ---- scopes, families, members ---- */

static lp_status scope_row(lp_reader *r, sqlite3_stmt *q, int64_t index)
{
    lp_stored_scope *at = &r->s->scope[index];
    lp_scope scope = r->header.layout;
    int64_t rank[3];
    for (int c = 0; c < 3; c++) {
        rank[c] = sqlite3_column_int64(q, 1 + c);
        if (rank[c] < 0 || rank[c] > INT32_MAX)
            return lp_reader_corrupt(r, "scopes", index, "a rank is out of range");
    }
    scope.pp_rank = (int32_t)rank[0];
    scope.dp_rank = (int32_t)rank[1];
    scope.tp_rank = (int32_t)rank[2];
    at->records = sqlite3_column_int64(q, 7);
    if (sqlite3_column_int64(q, 0) != index || sqlite3_column_bytes(q, 8) != 32 || at->records < 0 ||
        !lp_reader_reference(q, 4, r->s->destination_sets, &at->destinations) ||
        !lp_reader_reference(q, 5, r->s->derive_sets, &at->derives) ||
        !lp_reader_reference(q, 6, r->s->refusal_sets, &at->refusals))
        return lp_reader_corrupt(r, "scopes", index, "a number is out of range");
    if (at->records > lp_trace_scope_records_max(r->names))
        return lp_reader_hostile(r, "records in a scope", at->records, lp_trace_scope_records_max(r->names));
    r->records_seen += at->records;
    return lp_reader_as_data(r, lp_trace_add_stored_scope(r->trace, &scope, sqlite3_column_blob(q, 8), r->err));
}

static lp_status family_row(lp_reader *r, sqlite3_stmt *q, int64_t index)
{
    lp_stored_family *f = &r->s->family[index];
    const int64_t kind = sqlite3_column_int64(q, 1), src = sqlite3_column_int64(q, 2), dst = sqlite3_column_int64(q, 3);
    f->fill_bits = (uint64_t)sqlite3_column_int64(q, 4);
    f->map = sqlite3_column_int64(q, 5);
    if (sqlite3_column_int64(q, 0) != index || kind < LP_KIND_COPY || kind > LP_KIND_FILL || src < 0 ||
        src >= LP_DTYPE_COUNT || dst < 0 || dst >= LP_DTYPE_COUNT || f->map < 0 || f->map >= r->s->maps)
        return lp_reader_corrupt(r, "families", index, "a number is out of range");
    f->kind = (uint8_t)kind;
    f->src_dtype = (uint8_t)src;
    f->dst_dtype = (uint8_t)dst;
    return LP_OK;
}

static lp_status member_row(lp_reader *r, sqlite3_stmt *q, int64_t index)
{
    lp_stored *s = r->s;
    lp_stored_member *m = &s->member[index];
    const int64_t scope = sqlite3_column_int64(q, 1);
    m->payload.rows = sqlite3_column_int64(q, 3);
    if (sqlite3_column_int64(q, 0) != index || scope < 0 || scope >= s->scopes ||
        !lp_reader_reference(q, 2, s->families, &m->family) || !lp_reader_reference(q, 4, index, &m->base))
        return lp_reader_corrupt(r, "members", index, "a number is out of range");
    /* A base has columns of its own, so that no chain of bases can be built. */
    if (m->base >= 0 && (s->member[m->base].base >= 0 || s->member[m->base].family != m->family ||
                         s->member[m->base].payload.rows != m->payload.rows))
        return lp_reader_corrupt(r, "members", index, "its base is not of its kind");
    lp_stored_scope *at = &s->scope[scope];
    if (at->members == 0)
        at->first_member = index;
    if (m->payload.rows <= 0 || m->payload.rows > at->records - r->records_seen * (at->members > 0) ||
        at->first_member + at->members != index)
        return lp_reader_corrupt(r, "members", index, "is out of order, or has more records than its scope");
    r->records_seen = (at->members > 0 ? r->records_seen : 0) + m->payload.rows;
    at->members++;
    return lp_reader_frame(r, q, 5, "members", index, m->base < 0, &m->payload);
}

lp_status lp_reader_scopes(lp_reader *r)
{
    lp_stored *s = r->s;
    void *rows;
    int64_t count;
    LP_TRY(lp_reader_rows(r, "SELECT count(*) FROM scopes", sizeof *s->scope, &rows, &count));
    s->scope = rows;
    if (count != s->scopes)
        return lp_reader_corrupt(r, "scopes", count, "another number of scopes than stated");
    r->records_seen = 0;
    LP_TRY(lp_reader_each(r,
                          "SELECT id, pp_rank, dp_rank, tp_rank, destinations, derives, refusals, records, plan_digest"
                          " FROM scopes ORDER BY id",
                          scope_row));
    if (r->records_seen != r->records)
        return lp_reader_corrupt(r, "scopes", count, "another number of records than stated");
    LP_TRY(lp_reader_rows(r, "SELECT count(*) FROM families", sizeof *s->family, &rows, &s->families));
    s->family = rows;
    LP_TRY(lp_reader_each(r, "SELECT id, kind, src_dtype, dst_dtype, fill_bits, map FROM families ORDER BY id",
                          family_row));
    LP_TRY(lp_reader_rows(r, "SELECT count(*) FROM members", sizeof *s->member, &rows, &s->members));
    s->member = rows;
    r->records_seen = 0;
    LP_TRY(lp_reader_each(r, "SELECT id, scope, family, records, base, payload FROM members ORDER BY id", member_row));
    for (int64_t i = 0; i < s->scopes; i++) {
        int64_t records = 0;
        for (int64_t m = 0; m < s->scope[i].members; m++)
            records += s->member[s->scope[i].first_member + m].payload.rows;
        if (records != s->scope[i].records)
            return lp_reader_corrupt(r, "scopes", i, "its members have another number of records");
    }
    return LP_OK;
}

/* ---- provenance ---- */

static lp_status provenance_row(lp_reader *r, sqlite3_stmt *q, int64_t index)
{
    lp_status status = LP_OK;
    const int64_t line = sqlite3_column_int64(q, 2), flags = sqlite3_column_int64(q, 4);
    const char *file = lp_reader_text(r, q, 1, "provenance", index, &status);
    const char *chain = file != NULL ? lp_reader_text(r, q, 3, "provenance", index, &status) : NULL;
    if (chain == NULL)
        return status;
    if (sqlite3_column_int64(q, 0) != index || line < 0 || line > INT32_MAX || flags < 0 || flags > UINT32_MAX)
        return lp_reader_corrupt(r, "provenance", index, "a number is out of range");
    const lp_provenance row = {.file = file, .line = (int32_t)line, .chain = chain, .flags = (uint32_t)flags};
    return lp_reader_as_data(r, lp_trace_add_provenance(r->trace, &row, &r->s->provenance[index], r->err));
}

static lp_status provenance_rows_row(lp_reader *r, sqlite3_stmt *q, int64_t index)
{
    const int64_t scope = sqlite3_column_int64(q, 0);
    if (scope < 0 || scope >= r->s->scopes)
        return lp_reader_corrupt(r, "provenance_rows", index, "no such scope");
    return lp_reader_frame(r, q, 1, "provenance_rows", index, true, &r->s->scope[scope].provenance);
}

lp_status lp_reader_provenance(lp_reader *r)
{
    void *rows;
    LP_TRY(lp_reader_rows(r, "SELECT count(*) FROM provenance", sizeof *r->s->provenance, &rows, &r->s->provenances));
    r->s->provenance = rows;
    LP_TRY(lp_reader_each(r, "SELECT id, file, line, chain, flags FROM provenance ORDER BY id", provenance_row));
    return lp_reader_each(r, "SELECT scope, frame FROM provenance_rows ORDER BY scope", provenance_rows_row);
}
