/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The virtual tables over a trace: the promised SQL surface of docs/format.md Q1-Q6. One module serves all six; they
 * differ in their columns. "rank = N" expands one scope only, and "name = X" finds records by bisection. What stands in
 * a cell is in query_cells.c.
 */
#include "traces/query_cells.h"

#include <stdio.h>

typedef struct table {
    lp_view_kind kind;
    const char *name, *schema;
    int name_column; /* a constraint on it is used, -1: none */
} table;

static const table tables[LP_VIEW_COUNT] = {
    {LP_VIEW_NAMES, "v_names",
     "CREATE TABLE v_names(name TEXT, dtype TEXT, shape TEXT, bytes INTEGER, file TEXT, file_offset INTEGER)", 0},
    {LP_VIEW_SCOPES, "v_scopes",
     "CREATE TABLE v_scopes(rank INTEGER, pp_rank INTEGER, dp_rank INTEGER, tp_rank INTEGER, destinations INTEGER,"
     " records INTEGER, derives INTEGER, refusals INTEGER, plan_digest TEXT)",
     -1},
    {LP_VIEW_DESTINATIONS, "v_destinations",
     "CREATE TABLE v_destinations(rank INTEGER, name TEXT, dtype TEXT, shape TEXT, stride TEXT, storage TEXT,"
     " storage_bytes INTEGER, storage_offset INTEGER, layout TEXT, layout_version INTEGER, commit_group TEXT,"
     " flags TEXT, dummy_bits INTEGER, slot_dim INTEGER, slot_count INTEGER)",
     -1},
    {LP_VIEW_RECORDS, "v_records",
     "CREATE TABLE v_records(rank INTEGER, name TEXT, destination TEXT, kind TEXT, src_dtype TEXT, dst_dtype TEXT,"
     " seq INTEGER, src_offset INTEGER, dst_offset INTEGER, bytes INTEGER, fill_bits INTEGER, map TEXT,"
     " file TEXT, line INTEGER, chain TEXT)",
     1},
    {LP_VIEW_DERIVES, "v_derives",
     "CREATE TABLE v_derives(rank INTEGER, destination TEXT, map TEXT, inputs TEXT, nodes TEXT, error TEXT,"
     " file TEXT, line INTEGER, chain TEXT)",
     -1},
    {LP_VIEW_REFUSALS, "v_refusals",
     "CREATE TABLE v_refusals(rank INTEGER, name TEXT, destination TEXT, map TEXT, operation TEXT, reason TEXT,"
     " file TEXT, line INTEGER, chain TEXT)",
     -1},
};

typedef struct view {
    sqlite3_vtab base;
    const table *table;
    lp_query_source *source;
} view;

enum { BY_RANK = 1, BY_NAME = 2 };

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
    const int rank_column = v->table->kind == LP_VIEW_NAMES ? -1 : 0;
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
    lp_view_cursor *c = sqlite3_malloc(sizeof *c);
    if (c == NULL)
        return SQLITE_NOMEM;
    *c = (lp_view_cursor){0};
    *out = &c->base;
    return SQLITE_OK;
}

static int close_cursor(sqlite3_vtab_cursor *base)
{
    sqlite3_free(base);
    return SQLITE_OK;
}

/* ---- moving ---- */

static int load_rows(lp_view_cursor *c, const view *v)
{
    lp_query_source *source = v->source;
    if (lp_trace_rows(source->trace, c->scope, &c->rows, &source->error) == LP_OK)
        return SQLITE_OK;
    source->failed = true;
    return SQLITE_ERROR;
}

/* Records first, of one name: they are sorted by name. */
static void bound_by_name(lp_view_cursor *c)
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
static int settle(lp_view_cursor *c, const view *v)
{
    while (c->row >= c->end && lp_view_is_of_ranks(v->table->kind) && ++c->scope < c->last_scope) {
        const int code = load_rows(c, v);
        if (code != SQLITE_OK)
            return code;
        c->row = 0;
        switch (v->table->kind) {
        case LP_VIEW_DESTINATIONS:
            c->end = c->rows->ndest;
            break;
        case LP_VIEW_RECORDS:
            c->end = c->rows->nrecord;
            break;
        case LP_VIEW_DERIVES:
            c->end = c->rows->nderive;
            break;
        case LP_VIEW_REFUSALS:
            c->end = c->rows->nrefusal;
            break;
        case LP_VIEW_NAMES:
        case LP_VIEW_SCOPES:
        case LP_VIEW_COUNT:
            break;
        }
        if (c->by_name)
            bound_by_name(c);
    }
    if (v->table->kind == LP_VIEW_SCOPES && c->row < c->end) {
        c->scope = (int32_t)c->row;
        return load_rows(c, v);
    }
    return SQLITE_OK;
}

static int filter(sqlite3_vtab_cursor *base, int index, const char *index_text, int argc, sqlite3_value **argv)
{
    (void)index_text;
    lp_view_cursor *c = (lp_view_cursor *)base;
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
    if (v->table->kind == LP_VIEW_NAMES) {
        const int64_t count = lp_checkpoint_count(lp_trace_checkpoint(t));
        c->row = c->by_name ? (c->name < 0 ? count : c->name) : 0;
        c->end = c->by_name && c->name >= 0 ? c->name + 1 : count;
    } else if (v->table->kind == LP_VIEW_SCOPES) {
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
    lp_view_cursor *c = (lp_view_cursor *)base;
    c->row++;
    c->rowid++;
    return settle(c, (const view *)base->pVtab);
}

static int eof(sqlite3_vtab_cursor *base)
{
    const lp_view_cursor *c = (const lp_view_cursor *)base;
    return c->row >= c->end;
}

static int rowid(sqlite3_vtab_cursor *base, sqlite3_int64 *out)
{
    *out = ((const lp_view_cursor *)base)->rowid;
    return SQLITE_OK;
}

static int cell(sqlite3_vtab_cursor *base, sqlite3_context *out, int column)
{
    const view *v = (const view *)base->pVtab;
    lp_query_cell(out, v->table->kind, (const lp_view_cursor *)base, v->source->trace, column);
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
    for (int t = 0; t < LP_VIEW_COUNT; t++) {
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
