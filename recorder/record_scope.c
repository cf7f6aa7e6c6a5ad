/* SPDX-License-Identifier: Apache-2.0 */
/* A scope's end: what was kept goes into the trace, in the order of the calls, and the memory goes. */
#include "recorder/record_private.h"

lp_status rec_begin_scope(lp_recorder *r, const lp_scope *scope, lp_error *err)
{
    LP_TRY(lp_trace_begin_scope(r->trace, scope, err));
    r->scope = *scope;
    return LP_OK;
}

/* ---- destinations ---- */

/* Destinations that share a storage agree on its size: that of the one that needs most. */
static lp_status agree_on_storages(lp_recorder *r, lp_error *err)
{
    lp_strings storages;
    int64_t *bytes = NULL, capacity = 0;
    lp_status status = LP_OK;
    lp_strings_init(&storages, r->platform.alloc);
    for (int64_t i = 0; i < r->dest_names.count; i++) {
        const lp_destination *row = &r->dest[i].row;
        const int64_t before = storages.count;
        const int64_t number = lp_strings_add(&storages, row->storage, strlen(row->storage));
        if (number < 0 || !lp_grow(r->platform.alloc, (void **)&bytes, &capacity, storages.count, sizeof *bytes)) {
            status = lp_fail_memory(err);
            goto done;
        }
        if (number == before || bytes[number] < row->storage_bytes)
            bytes[number] = row->storage_bytes;
    }
    for (int64_t i = 0; i < r->dest_names.count; i++) {
        lp_destination *row = &r->dest[i].row;
        row->storage_bytes = bytes[lp_strings_find(&storages, row->storage, strlen(row->storage))];
    }
done:
    lp_strings_free(&storages);
    lp_release(r->platform.alloc, bytes);
    return status;
}

static lp_status flush_destinations(lp_recorder *r, lp_error *err)
{
    LP_TRY(agree_on_storages(r, err));
    for (int64_t i = 0; i < r->dest_names.count; i++) {
        uint32_t index;
        LP_TRY(lp_trace_add_destination(r->trace, &r->dest[i].row, &index, err));
        if (index != (uint32_t)i)
            return lp_fail(err, LP_E_INTERNAL, "destination '%s' got another number", r->dest[i].row.name);
    }
    return LP_OK;
}

/* ---- records ---- */

/* Room for a map that is moved, reused by all records. */
typedef struct moved_map {
    const lp_alloc *alloc;
    lp_map map;
    lp_box *box;
    int64_t capacity;
} moved_map;

static lp_status move_map(moved_map *m, const lp_map *from, int64_t src_off, int64_t dst_off, lp_error *err)
{
    if (!lp_grow(m->alloc, (void **)&m->box, &m->capacity, from->nbox, sizeof *m->box))
        return lp_fail_memory(err);
    m->map = *from;
    m->map.box = m->box;
    for (int32_t b = 0; b < from->nbox; b++) {
        m->box[b] = from->box[b];
        m->box[b].src_off += src_off;
        m->box[b].dst_off += dst_off;
    }
    if (from->src_elem != 0) {
        m->map.src_lo += src_off;
        m->map.src_hi += src_off;
    }
    m->map.dst_lo += dst_off;
    m->map.dst_hi += dst_off;
    return LP_OK;
}

/* Names lie all over a large catalogue: the row of one that comes soon is asked for early. */
static void look_ahead(const lp_recorder *r, int64_t at)
{
    enum { AHEAD = 8 };
    const lp_checkpoint_tensor *row =
        at + AHEAD < r->write_count ? lp_checkpoint_at(lp_trace_checkpoint(r->trace), r->write[at + AHEAD].name) : NULL;
    if (row != NULL)
        __builtin_prefetch(&row->bytes);
}

static lp_status flush_records(lp_recorder *r, lp_error *err)
{
    moved_map moved = {.alloc = r->platform.alloc};
    lp_status status = LP_OK;
    for (int64_t i = 0; i < r->write_count; i++) {
        const rec_write *w = &r->write[i];
        look_ahead(r, i);
        if (w->kind != REC_BYTES)
            continue;
        LP_TRY_GOTO(move_map(&moved, w->map, w->src_off, w->dst_off, err), done);
        const lp_record record = {.name = w->name,
                                  .dest = w->dest,
                                  .src_dtype = w->src_dtype,
                                  .dst_dtype = w->dst_dtype,
                                  .fill_bits = w->fill_bits,
                                  .map = &moved.map,
                                  .provenance = w->provenance};
        LP_TRY_GOTO(lp_trace_add_record(r->trace, &record, err), done);
    }
done:
    lp_release(moved.alloc, moved.box);
    return status;
}

static lp_status flush_derives(lp_recorder *r, lp_error *err)
{
    for (int64_t i = 0; i < r->derive_count; i++) {
        const rec_derive *from = &r->derive[i];
        if (from->dropped)
            continue;
        lp_derive d = {.dest = from->dest, .map = from->map, .error_text = from->text, .provenance = from->provenance};
        LP_TRY(rec_flatten_value(r, from->root, &d, err));
        LP_TRY(lp_trace_add_derive(r->trace, &d, err));
    }
    return LP_OK;
}

static lp_status flush_refusals(lp_recorder *r, lp_error *err)
{
    for (int64_t i = 0; i < r->refusal_count; i++) {
        const rec_refusal *from = &r->refusal[i];
        const lp_refusal refusal = {.name = from->name,
                                    .dest = from->dest,
                                    .map = from->map,
                                    .operation = from->operation,
                                    .reason = from->reason,
                                    .provenance = from->provenance};
        LP_TRY(lp_trace_add_refusal(r->trace, &refusal, err));
    }
    return LP_OK;
}

lp_status rec_end_scope(lp_recorder *r, lp_error *err)
{
    LP_TRY(lp_recorder_status(r, err));
    LP_TRY(flush_destinations(r, err));
    LP_TRY(flush_records(r, err));
    LP_TRY(flush_derives(r, err));
    LP_TRY(flush_refusals(r, err));
    rec_free_scope(r);
    return LP_OK;
}

void rec_free_scope(lp_recorder *r)
{
    const lp_alloc *alloc = r->platform.alloc;
    for (int64_t i = 0; i < r->marked_count; i++)
        r->name_flags[r->marked[i]] = 0;
    for (int64_t i = 0; i < r->temporary_count; i++)
        lp_release(alloc, r->temporary[i].piece);
    for (int64_t i = 0; i < r->scope_map_count; i++)
        lp_map_free(r->scope_map[i], alloc);
    lp_strings_free(&r->dest_names);
    lp_strings_init(&r->dest_names, alloc);
    lp_arena_free(&r->arena);
    lp_release(alloc, r->dest);
    lp_release(alloc, r->write);
    lp_release(alloc, r->temporary);
    lp_release(alloc, r->value);
    lp_release(alloc, r->value_number);
    lp_release(alloc, r->derive);
    lp_release(alloc, r->reader);
    lp_release(alloc, r->refusal);
    lp_release(alloc, r->marked);
    lp_release(alloc, r->scope_map);
    r->dest = NULL;
    r->write = NULL;
    r->temporary = NULL;
    r->value = NULL;
    r->value_number = NULL;
    r->derive = NULL;
    r->reader = NULL;
    r->reader_count = r->reader_capacity = 0;
    r->refusal = NULL;
    r->marked = NULL;
    r->scope_map = NULL;
    r->dest_capacity = r->write_count = r->write_capacity = 0;
    r->temporary_count = r->temporary_capacity = r->value_count = r->value_capacity = 0;
    r->value_number_count = r->value_number_capacity = 0;
    r->derive_count = r->derive_capacity = r->refusal_count = r->refusal_capacity = 0;
    r->marked_count = r->marked_capacity = r->scope_map_count = r->scope_map_capacity = 0;
}
