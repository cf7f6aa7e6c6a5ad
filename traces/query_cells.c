/* SPDX-License-Identifier: Apache-2.0 */
/* The cells of the virtual tables over a trace, column by column: docs/format.md Q1-Q6. */
#include "traces/query_cells.h"

#include "traces/dump_text.h"
#include "traces/trace_dump.h"

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

static void name_cell(sqlite3_context *out, const lp_view_cursor *c, const lp_trace *t, int column)
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

static void scope_cell(sqlite3_context *out, const lp_view_cursor *c, int column)
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

static void destination_cell(sqlite3_context *out, const lp_view_cursor *c, const lp_trace *t, int column)
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

static void record_cell(sqlite3_context *out, const lp_view_cursor *c, const lp_trace *t, int column)
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

static void derive_cell(sqlite3_context *out, const lp_view_cursor *c, const lp_trace *t, int column)
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

static void refusal_cell(sqlite3_context *out, const lp_view_cursor *c, const lp_trace *t, int column)
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

void lp_query_cell(sqlite3_context *out, lp_view_kind kind, const lp_view_cursor *c, const lp_trace *t, int column)
{
    if (column == 0 && lp_view_is_of_ranks(kind)) {
        sqlite3_result_int(out, lp_scope_rank(&c->rows->scope));
        return;
    }
    switch (kind) {
    case LP_VIEW_NAMES:
        name_cell(out, c, t, column);
        break;
    case LP_VIEW_SCOPES:
        scope_cell(out, c, column);
        break;
    case LP_VIEW_DESTINATIONS:
        destination_cell(out, c, t, column);
        break;
    case LP_VIEW_RECORDS:
        record_cell(out, c, t, column);
        break;
    case LP_VIEW_DERIVES:
        derive_cell(out, c, t, column);
        break;
    case LP_VIEW_REFUSALS:
        refusal_cell(out, c, t, column);
        break;
    case LP_VIEW_COUNT:
        break;
    }
}
