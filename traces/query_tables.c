/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The virtual tables over a trace: the promised SQL surface of docs/format.md Q1-Q6. One module serves all six; they
 * differ in their columns. "rank = N" expands one scope only, and "name = X" finds records by bisection.
 */
#include "traces/query.h"

#include "traces/dump_text.h"
#include "traces/trace_dump.h"
#include "traces/trace_private.h"

#include <inttypes.h>
#include <stdio.h>

typedef enum table_kind { T_NAMES, T_SCOPES, T_DESTINATIONS, T_RECORDS, T_DERIVES, T_REFUSALS, T_COUNT } table_kind;

typedef struct table {
    table_kind kind;
    const char *name, *schema;
    int name_column; /* a constraint on it is used, -1: none */
} table;

static const table tables[T_COUNT] = {
    {T_NAMES, "v_names",
     "CREATE TABLE v_names(name TEXT, dtype TEXT, shape TEXT, bytes INTEGER, file TEXT, file_offset INTEGER)", 0},
    {T_SCOPES, "v_scopes",
     "CREATE TABLE v_scopes(rank INTEGER, pp_rank INTEGER, dp_rank INTEGER, tp_rank INTEGER, destinations INTEGER,"
     " records INTEGER, derives INTEGER, refusals INTEGER, plan_digest TEXT)",
     -1},
    {T_DESTINATIONS, "v_destinations",
     "CREATE TABLE v_destinations(rank INTEGER, name TEXT, dtype TEXT, shape TEXT, stride TEXT, storage TEXT,"
     " storage_bytes INTEGER, storage_offset INTEGER, layout TEXT, layout_version INTEGER, commit_group TEXT,"
     " flags TEXT, dummy_bits INTEGER, slot_dim INTEGER, slot_count INTEGER)",
     -1},
    {T_RECORDS, "v_records",
     "CREATE TABLE v_records(rank INTEGER, name TEXT, destination TEXT, kind TEXT, src_dtype TEXT, dst_dtype TEXT,"
     " seq INTEGER, src_offset INTEGER, dst_offset INTEGER, bytes INTEGER, fill_bits INTEGER, map TEXT,"
     " file TEXT, line INTEGER, chain TEXT)",
     1},
    {T_DERIVES, "v_derives",
     "CREATE TABLE v_derives(rank INTEGER, destination TEXT, map TEXT, inputs TEXT, nodes TEXT, error TEXT,"
     " file TEXT, line INTEGER, chain TEXT)",
     -1},
    {T_REFUSALS, "v_refusals",
     "CREATE TABLE v_refusals(rank INTEGER, name TEXT, destination TEXT, map TEXT, operation TEXT, reason TEXT,"
     " file TEXT, line INTEGER, chain TEXT)",
     -1},
};

typedef struct view {
    sqlite3_vtab base;
    const table *table;
    lp_query_source *source;
} view;

typedef struct cursor {
    sqlite3_vtab_cursor base;
    int32_t scope, last_scope; /* of per-scope tables: the one at hand, and the end */
    const lp_rows *rows;
    int64_t row, end;
    int64_t rowid;
    bool by_name;
    int64_t name; /* with by_name: index in the catalogue */
} cursor;

enum { BY_RANK = 1, BY_NAME = 2 };

static bool is_per_scope(const table *t)
{
    return t->kind != T_NAMES && t->kind != T_SCOPES;
}

/* ---- opening ---- */

static int connect(sqlite3 *db, void *context, int argc, const char *const *argv, sqlite3_vtab **out, char **message)
{
    (void)argc;
    (void)message;
    const table *t = tables;
    while (strcmp(t->name, argv[0]) != 0)
        t++;
    const int code = sqlite3_declare_vtab(db, t->schema);
    if (code != SQLITE_OK)
        return code;
    view *v = sqlite3_malloc(sizeof *v);
    if (v == NULL)
        return SQLITE_NOMEM;
    *v = (view){.table = t, .source = context};
    *out = &v->base;
    return SQLITE_OK;
}

static int disconnect(sqlite3_vtab *base)
{
    sqlite3_free(base);
    return SQLITE_OK;
}

static int best_index(sqlite3_vtab *base, sqlite3_index_info *info)
{
    const view *v = (const view *)base;
    const int rank_column = v->table->kind == T_NAMES ? -1 : 0;
    double cost = 1e6;
    int rank = -1, name = -1, arguments = 0;
    for (int i = 0; i < info->nConstraint; i++) {
        if (!info->aConstraint[i].usable || info->aConstraint[i].op != SQLITE_INDEX_CONSTRAINT_EQ)
            continue;
        if (info->aConstraint[i].iColumn == rank_column && rank_column >= 0)
            rank = i;
        if (info->aConstraint[i].iColumn == v->table->name_column && v->table->name_column >= 0)
            name = i;
    }
    /* SQLite checks the constraints again: a comparison by another collation or type is its affair. */
    if (rank >= 0) {
        info->aConstraintUsage[rank].argvIndex = ++arguments;
        info->idxNum |= BY_RANK;
        cost /= 32;
    }
    if (name >= 0 && sqlite3_stricmp(sqlite3_vtab_collation(info, name), "BINARY") == 0) {
        info->aConstraintUsage[name].argvIndex = ++arguments;
        info->idxNum |= BY_NAME;
        cost /= 1e4;
    }
    info->estimatedCost = cost;
    info->estimatedRows = (sqlite3_int64)cost;
    return SQLITE_OK;
}

static int open_cursor(sqlite3_vtab *base, sqlite3_vtab_cursor **out)
{
    (void)base;
    cursor *c = sqlite3_malloc(sizeof *c);
    if (c == NULL)
        return SQLITE_NOMEM;
    *c = (cursor){0};
    *out = &c->base;
    return SQLITE_OK;
}

static int close_cursor(sqlite3_vtab_cursor *base)
{
    sqlite3_free(base);
    return SQLITE_OK;
}

/* ---- moving ---- */

static int load_rows(cursor *c, const view *v)
{
    lp_query_source *source = v->source;
    if (lp_trace_rows(source->trace, c->scope, &c->rows, &source->error) == LP_OK)
        return SQLITE_OK;
    source->failed = true;
    return SQLITE_ERROR;
}

/* Records first, of one name: they are sorted by name. */
static void bound_by_name(cursor *c)
{
    const lp_record *record = c->rows->record;
    int64_t lo = 0, hi = c->rows->nrecord;
    while (lo < hi) {
        const int64_t middle = lo + (hi - lo) / 2;
        if (record[middle].name < c->name)
            lo = middle + 1;
        else
            hi = middle;
    }
    while (hi < c->rows->nrecord && record[hi].name == c->name)
        hi++;
    c->row = lo;
    c->end = hi;
}

/* Goes to the first row at or behind the cursor, over scopes without rows. */
static int settle(cursor *c, const view *v)
{
    while (c->row >= c->end && is_per_scope(v->table) && ++c->scope < c->last_scope) {
        const int code = load_rows(c, v);
        if (code != SQLITE_OK)
            return code;
        c->row = 0;
        switch (v->table->kind) {
        case T_DESTINATIONS:
            c->end = c->rows->ndest;
            break;
        case T_RECORDS:
            c->end = c->rows->nrecord;
            break;
        case T_DERIVES:
            c->end = c->rows->nderive;
            break;
        case T_REFUSALS:
            c->end = c->rows->nrefusal;
            break;
        case T_NAMES:
        case T_SCOPES:
        case T_COUNT:
            break;
        }
        if (c->by_name)
            bound_by_name(c);
    }
    if (v->table->kind == T_SCOPES && c->row < c->end) {
        c->scope = (int32_t)c->row;
        return load_rows(c, v);
    }
    return SQLITE_OK;
}

static int filter(sqlite3_vtab_cursor *base, int index, const char *index_text, int argc, sqlite3_value **argv)
{
    (void)index_text;
    cursor *c = (cursor *)base;
    const view *v = (const view *)base->pVtab;
    const lp_trace *t = v->source->trace;
    int argument = 0;
    int64_t first = 0, last = lp_trace_scope_count(t);
    if ((index & BY_RANK) && argument < argc) {
        const int64_t rank = sqlite3_value_int64(argv[argument]);
        const int32_t scope = rank < 0 || rank > INT32_MAX ? -1 : lp_trace_scope_find(t, (int32_t)rank);
        /* "rank = '3'" and "rank = 3.0" compare equal as well; whatever does not is sorted out by SQLite. */
        first = scope < 0 ? 0 : scope;
        last = scope < 0 ? 0 : scope + 1;
        argument++;
    }
    c->by_name = (index & BY_NAME) && argument < argc;
    c->name = -1;
    if (c->by_name) {
        const char *name = (const char *)sqlite3_value_text(argv[argument]);
        c->name = name == NULL ? -1 : lp_checkpoint_find(lp_trace_checkpoint(t), name);
    }
    c->rowid = 0;
    if (v->table->kind == T_NAMES) {
        const int64_t count = lp_checkpoint_count(lp_trace_checkpoint(t));
        c->row = c->by_name ? (c->name < 0 ? count : c->name) : 0;
        c->end = c->by_name && c->name >= 0 ? c->name + 1 : count;
    } else if (v->table->kind == T_SCOPES) {
        c->row = first;
        c->end = last;
    } else {
        /* Nothing has a name that the catalogue does not know. */
        c->last_scope = (int32_t)(c->by_name && c->name < 0 ? first : last);
        c->scope = (int32_t)first - 1;
        c->row = c->end = 0;
    }
    return settle(c, v);
}

static int next(sqlite3_vtab_cursor *base)
{
    cursor *c = (cursor *)base;
    c->row++;
    c->rowid++;
    return settle(c, (const view *)base->pVtab);
}

static int eof(sqlite3_vtab_cursor *base)
{
    const cursor *c = (const cursor *)base;
    return c->row >= c->end;
}

static int rowid(sqlite3_vtab_cursor *base, sqlite3_int64 *out)
{
    *out = ((const cursor *)base)->rowid;
    return SQLITE_OK;
}

/* ---- cells ---- */

/* Texts of names, shapes and the like live as long as the rows, which live as long as the trace. */
static void give_text(sqlite3_context *out, const char *text)
{
    sqlite3_result_text(out, text, -1, SQLITE_STATIC);
}

static void give_dtype(sqlite3_context *out, unsigned dtype)
{
    if (dtype != LP_DTYPE_NONE)
        give_text(out, lp_dtype_name((lp_dtype)dtype));
}

static void give_built(sqlite3_context *out, lp_text *text)
{
    if (text->failed)
        sqlite3_result_error_nomem(out);
    else
        sqlite3_result_text64(out, text->data != NULL ? text->data : "", (sqlite3_uint64)text->bytes, SQLITE_TRANSIENT,
                              SQLITE_UTF8);
    lp_text_free(text);
}

static void give_numbers(sqlite3_context *out, const int64_t *number, int32_t count, const lp_alloc *alloc)
{
    lp_text text;
    lp_text_init(&text, alloc);
    lp_dump_numbers(&text, number, count);
    give_built(out, &text);
}

static void give_map(sqlite3_context *out, const lp_map *map, const lp_alloc *alloc)
{
    lp_text text;
    if (map == NULL)
        return;
    lp_text_init(&text, alloc);
    if (map->nbox == 1)
        lp_dump_map_ref(&text, map);
    else
        lp_dump_map_boxes(&text, map);
    give_built(out, &text);
}

static void give_provenance(sqlite3_context *out, const lp_trace *t, uint32_t index, int column)
{
    const lp_provenance *p = lp_trace_provenance(t, index);
    if (p == NULL)
        return;
    if (column == 0)
        give_text(out, p->file);
    else if (column == 1)
        sqlite3_result_int(out, p->line);
    else
        give_text(out, p->chain);
}

static void name_cell(sqlite3_context *out, const cursor *c, const lp_trace *t, int column)
{
    const lp_checkpoint *ck = lp_trace_checkpoint(t);
    const lp_checkpoint_tensor *n = lp_checkpoint_at(ck, c->row);
    switch (column) {
    case 0:
        give_text(out, n->name);
        break;
    case 1:
        give_dtype(out, n->dtype);
        break;
    case 2:
        give_numbers(out, n->shape, n->ndim, t->platform.alloc);
        break;
    case 3:
        sqlite3_result_int64(out, n->bytes);
        break;
    case 4:
        if (n->file >= 0)
            give_text(out, lp_checkpoint_file_at(ck, n->file)->path);
        break;
    default:
        if (n->file_off >= 0)
            sqlite3_result_int64(out, n->file_off);
    }
}

static void scope_cell(sqlite3_context *out, const cursor *c, int column)
{
    const lp_rows *r = c->rows;
    const int64_t number[] = {lp_scope_rank(&r->scope),
                              r->scope.pp_rank,
                              r->scope.dp_rank,
                              r->scope.tp_rank,
                              r->ndest,
                              r->nrecord,
                              r->nderive,
                              r->nrefusal};
    char hex[65];
    if (column < 8) {
        sqlite3_result_int64(out, number[column]);
        return;
    }
    lp_format_hex(hex, r->digest, sizeof r->digest);
    sqlite3_result_text(out, hex, -1, SQLITE_TRANSIENT);
}

static void destination_cell(sqlite3_context *out, const cursor *c, const lp_trace *t, int column)
{
    const lp_destination *d = &c->rows->dest[c->row];
    lp_text text;
    switch (column) {
    case 1:
        give_text(out, d->name);
        break;
    case 2:
        give_dtype(out, d->dtype);
        break;
    case 3:
        give_numbers(out, d->shape, d->ndim, t->platform.alloc);
        break;
    case 4:
        give_numbers(out, d->stride, d->ndim, t->platform.alloc);
        break;
    case 5:
        give_text(out, d->storage);
        break;
    case 6:
        sqlite3_result_int64(out, d->storage_bytes);
        break;
    case 7:
        sqlite3_result_int64(out, d->offset);
        break;
    case 8:
        give_text(out, d->layout);
        break;
    case 9:
        sqlite3_result_int(out, d->layout_version);
        break;
    case 10:
        give_text(out, d->group);
        break;
    case 11:
        lp_text_init(&text, t->platform.alloc);
        lp_dump_flags(&text, lp_dest_flag_names, LP_DEST_FLAG_NAMES, d->flags);
        give_built(out, &text);
        break;
    case 12:
        if (d->flags & LP_DEST_HAS_DUMMY)
            sqlite3_result_int64(out, (sqlite3_int64)d->dummy_bits);
        break;
    case 13:
        if (d->slot_dim >= 0)
            sqlite3_result_int(out, d->slot_dim);
        break;
    default:
        if (d->slot_dim >= 0)
            sqlite3_result_int(out, d->slot_count);
    }
}

static void record_cell(sqlite3_context *out, const cursor *c, const lp_trace *t, int column)
{
    const lp_record *r = &c->rows->record[c->row];
    switch (column) {
    case 1: /* NULL: a fill when the session begins */
        if (r->name != LP_NAME_BEGIN)
            give_text(out, lp_checkpoint_at(lp_trace_checkpoint(t), r->name)->name);
        break;
    case 2:
        give_text(out, c->rows->dest[r->dest].name);
        break;
    case 3:
        give_text(out, lp_kind_name((lp_kind)r->kind));
        break;
    case 4:
        give_dtype(out, r->src_dtype);
        break;
    case 5:
        give_dtype(out, r->dst_dtype);
        break;
    case 6:
        if (r->seq != 0)
            sqlite3_result_int64(out, r->seq);
        break;
    case 7:
        if (r->kind != LP_KIND_FILL)
            sqlite3_result_int64(out, r->src_off);
        break;
    case 8:
        sqlite3_result_int64(out, r->dst_off);
        break;
    case 9:
        sqlite3_result_int64(out, r->map->dst_bytes);
        break;
    case 10:
        if (r->kind == LP_KIND_FILL)
            sqlite3_result_int64(out, (sqlite3_int64)r->fill_bits);
        break;
    case 11:
        give_map(out, r->map, t->platform.alloc);
        break;
    default:
        give_provenance(out, t, r->provenance, column - 12);
    }
}

static void derive_cell(sqlite3_context *out, const cursor *c, const lp_trace *t, int column)
{
    const lp_derive *d = &c->rows->derive[c->row];
    lp_text text;
    lp_text_init(&text, t->platform.alloc);
    switch (column) {
    case 1: /* NULL: a check */
        if (d->dest != LP_NONE)
            give_text(out, c->rows->dest[d->dest].name);
        break;
    case 2:
        give_map(out, d->map, t->platform.alloc);
        break;
    case 3:
        lp_dump_inputs(&text, t, c->rows, d);
        give_built(out, &text);
        break;
    case 4:
        lp_dump_nodes(&text, d);
        give_built(out, &text);
        break;
    case 5:
        if (d->error_text[0] != '\0')
            give_text(out, d->error_text);
        break;
    default:
        give_provenance(out, t, d->provenance, column - 6);
    }
}

static void refusal_cell(sqlite3_context *out, const cursor *c, const lp_trace *t, int column)
{
    const lp_refusal *r = &c->rows->refusal[c->row];
    switch (column) {
    case 1:
        give_text(out, lp_checkpoint_at(lp_trace_checkpoint(t), r->name)->name);
        break;
    case 2:
        if (r->dest != LP_NONE)
            give_text(out, c->rows->dest[r->dest].name);
        break;
    case 3:
        give_map(out, r->map, t->platform.alloc);
        break;
    case 4:
        give_text(out, r->operation);
        break;
    case 5:
        give_text(out, r->reason);
        break;
    default:
        give_provenance(out, t, r->provenance, column - 6);
    }
}

/* A cell for which nothing is given is NULL. */
static int cell(sqlite3_vtab_cursor *base, sqlite3_context *out, int column)
{
    const cursor *c = (const cursor *)base;
    const view *v = (const view *)base->pVtab;
    const lp_trace *t = v->source->trace;
    if (column == 0 && is_per_scope(v->table)) {
        sqlite3_result_int(out, lp_scope_rank(&c->rows->scope));
        return SQLITE_OK;
    }
    switch (v->table->kind) {
    case T_NAMES:
        name_cell(out, c, t, column);
        break;
    case T_SCOPES:
        scope_cell(out, c, column);
        break;
    case T_DESTINATIONS:
        destination_cell(out, c, t, column);
        break;
    case T_RECORDS:
        record_cell(out, c, t, column);
        break;
    case T_DERIVES:
        derive_cell(out, c, t, column);
        break;
    case T_REFUSALS:
        refusal_cell(out, c, t, column);
        break;
    case T_COUNT:
        break;
    }
    return SQLITE_OK;
}

/* Without xCreate: the tables exist from the start and cannot be made. */
static const sqlite3_module module = {
    .iVersion = 1,
    .xConnect = connect,
    .xBestIndex = best_index,
    .xDisconnect = disconnect,
    .xOpen = open_cursor,
    .xClose = close_cursor,
    .xFilter = filter,
    .xNext = next,
    .xEof = eof,
    .xColumn = cell,
    .xRowid = rowid,
};

int lp_query_register(sqlite3 *db, lp_query_source *source)
{
    for (int t = 0; t < T_COUNT; t++) {
        char sql[64];
        sqlite3_stmt *probe = NULL;
        int code = sqlite3_create_module(db, tables[t].name, &module, source);
        /* A table is declared at its first use, which an authorizer would forbid later. */
        snprintf(sql, sizeof sql, "SELECT 1 FROM %s", tables[t].name);
        if (code == SQLITE_OK)
            code = sqlite3_prepare_v2(db, sql, -1, &probe, NULL);
        sqlite3_finalize(probe);
        if (code != SQLITE_OK)
            return code;
    }
    return SQLITE_OK;
}
