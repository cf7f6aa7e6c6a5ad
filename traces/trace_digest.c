/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Identities of a trace: plan digest, set digest, structure key. Each is SHA-256 over the serialisation that
 * docs/identities.md numbers; what is written here and what is written there are one contract.
 */
#include "traces/trace_private.h"

#include <endian.h>
#include <stdlib.h>

/* ---- serialisation ---- */

/* Rows are small and SHA-256 likes long updates. */
typedef struct writer {
    lp_sha256 sha;
    size_t used;
    uint8_t buffer[16384];
} writer;

static void flush(writer *w)
{
    lp_sha256_add(&w->sha, w->buffer, w->used);
    w->used = 0;
}

static void put_bytes(writer *w, const void *data, size_t bytes)
{
    if (bytes > sizeof w->buffer - w->used)
        flush(w);
    if (bytes > sizeof w->buffer) {
        lp_sha256_add(&w->sha, data, bytes);
        return;
    }
    memcpy(w->buffer + w->used, data, bytes);
    w->used += bytes;
}

static void put_i64(writer *w, int64_t value)
{
    const uint64_t little = htole64((uint64_t)value);
    put_bytes(w, &little, sizeof little);
}

static void put_text(writer *w, const char *text)
{
    const size_t bytes = strlen(text);
    put_i64(w, (int64_t)bytes);
    put_bytes(w, text, bytes);
}

static void put_name(writer *w, const lp_trace *t, uint32_t name)
{
    if (name == LP_NAME_BEGIN)
        put_i64(w, -1);
    else
        put_text(w, lp_checkpoint_at(t->checkpoint, name)->name);
}

static void put_map(writer *w, const lp_map *map)
{
    uint8_t digest[32] = {0};
    if (map != NULL)
        lp_map_digest(map, digest);
    put_bytes(w, digest, sizeof digest);
}

static void begin(writer *w, const char *what)
{
    lp_sha256_begin(&w->sha);
    w->used = 0;
    put_text(w, what);
}

static lp_status end(writer *w, uint8_t digest[32], lp_error *err)
{
    flush(w);
    return lp_sha256_end(&w->sha, digest) ? LP_OK : lp_fail(err, LP_E_INTERNAL, "SHA-256 failed");
}

/* ---- plan digest ---- */

static void put_destination(writer *w, const lp_destination *d)
{
    put_text(w, d->name);
    put_i64(w, d->dtype);
    put_i64(w, d->ndim);
    for (int32_t i = 0; i < d->ndim; i++)
        put_i64(w, d->shape[i]);
    for (int32_t i = 0; i < d->ndim; i++)
        put_i64(w, d->stride[i]);
    put_text(w, d->storage);
    put_i64(w, d->storage_bytes);
    put_i64(w, d->offset);
    put_text(w, d->layout);
    put_i64(w, d->layout_version);
    put_text(w, d->group);
    put_i64(w, d->flags);
    put_i64(w, (int64_t)d->dummy_bits);
    put_i64(w, d->slot_dim);
    put_i64(w, d->slot_count);
}

static bool put_record(writer *w, const lp_trace *t, const lp_record *r)
{
    const uint8_t *map = lp_map_pool_digest(&t->shared->maps, r->map);
    if (map == NULL)
        return false;
    put_name(w, t, r->name);
    const uint64_t field[8] = {htole64(r->dest),
                               htole64(r->kind),
                               htole64(r->src_dtype),
                               htole64(r->dst_dtype),
                               htole64(r->seq),
                               htole64((uint64_t)r->src_off),
                               htole64((uint64_t)r->dst_off),
                               htole64(r->fill_bits)};
    put_bytes(w, field, sizeof field);
    put_bytes(w, map, 32);
    return true;
}

/* Operation and reason of a refusal explain it but move no byte: two refusals that differ only there count once. */
static bool is_same_region(const lp_refusal *a, const lp_refusal *b)
{
    return a->name == b->name && a->dest == b->dest && (a->map == NULL) == (b->map == NULL) &&
           (a->map == NULL || lp_map_equal(a->map, b->map));
}

static void put_refusals(writer *w, const lp_trace *t, const lp_rows *rows)
{
    int64_t count = 0;
    for (uint32_t i = 0; i < rows->nrefusal; i++)
        count += i == 0 || !is_same_region(&rows->refusal[i - 1], &rows->refusal[i]);
    put_i64(w, count);
    for (uint32_t i = 0; i < rows->nrefusal; i++) {
        const lp_refusal *r = &rows->refusal[i];
        if (i > 0 && is_same_region(&rows->refusal[i - 1], r))
            continue;
        put_name(w, t, r->name);
        put_i64(w, r->dest == LP_NONE ? -1 : (int64_t)r->dest);
        put_map(w, r->map);
    }
}

lp_status lp_plan_digest(const lp_trace *t, const lp_rows *rows, uint8_t digest[32], lp_error *err)
{
    writer w;
    lp_status status = LP_OK;
    begin(&w, "loadplan plan 1");
    put_i64(&w, rows->ndest);
    for (uint32_t i = 0; i < rows->ndest; i++)
        put_destination(&w, &rows->dest[i]);
    put_i64(&w, rows->nrecord);
    for (uint32_t i = 0; i < rows->nrecord && status == LP_OK; i++) {
        lp_look_ahead(t->checkpoint, rows->record, rows->nrecord, i);
        if (!put_record(&w, t, &rows->record[i]))
            status = lp_fail_memory(err);
    }
    put_i64(&w, rows->nderive);
    for (uint32_t i = 0; i < rows->nderive && status == LP_OK; i++) {
        uint8_t derive[32];
        status = lp_derive_digest(t, rows, &rows->derive[i], derive, err);
        if (status == LP_OK)
            put_bytes(&w, derive, sizeof derive);
    }
    put_refusals(&w, t, rows);
    if (status == LP_OK)
        return end(&w, digest, err);
    uint8_t unused[32];
    lp_sha256_end(&w.sha, unused);
    return status;
}

lp_status lp_derive_digest(const lp_trace *t, const lp_rows *rows, const lp_derive *derive, uint8_t digest[32],
                           lp_error *err)
{
    writer w;
    begin(&w, "loadplan derive 1");
    if (derive->dest == LP_NONE)
        put_i64(&w, -1);
    else
        put_text(&w, rows->dest[derive->dest].name);
    put_i64(&w, derive->nnode);
    for (uint32_t n = 0; n < derive->nnode; n++) {
        const lp_node *node = &derive->node[n];
        put_i64(&w, node->op);
        put_i64(&w, node->dtype);
        for (int a = 0; a < 3; a++)
            put_i64(&w, node->arg[a]);
        put_i64(&w, (int64_t)node->bits);
        put_i64(&w, node->count);
    }
    put_i64(&w, derive->ninput);
    for (uint32_t i = 0; i < derive->ninput; i++) {
        const lp_derive_input *input = &derive->input[i];
        put_i64(&w, input->staged);
        if (input->staged)
            put_name(&w, t, input->index);
        else
            put_text(&w, rows->dest[input->index].name);
        put_i64(&w, input->dtype);
        put_i64(&w, input->count);
        put_map(&w, input->map);
    }
    put_map(&w, derive->map);
    put_text(&w, derive->error_text);
    return end(&w, digest, err);
}

/* ---- set digest ---- */

static lp_status sealed(const lp_trace *t, lp_error *err)
{
    return t->sealed ? LP_OK : lp_fail(err, LP_E_MISUSE, "the trace is not sealed yet");
}

lp_status lp_trace_set_digest(const lp_trace *t, uint8_t digest[32], lp_error *err)
{
    LP_TRY(sealed(t, err));
    writer w;
    begin(&w, "loadplan set 1");
    put_i64(&w, t->scope_count);
    for (int32_t s = 0; s < t->scope_count; s++) {
        const lp_scope *at = &t->scope[s].scope;
        const int64_t coordinate[] = {at->pp,      at->pp_rank,        at->dp, at->dp_rank, at->tp,
                                      at->tp_rank, at->expert_parallel};
        for (size_t i = 0; i < sizeof coordinate / sizeof *coordinate; i++)
            put_i64(&w, coordinate[i]);
        put_bytes(&w, t->scope[s].digest, sizeof t->scope[s].digest);
    }
    return end(&w, digest, err);
}

/* ---- structure key ---- */

typedef struct layout_use {
    const char *id;
    int32_t version;
} layout_use;

static int compare_layouts(const void *a, const void *b)
{
    const layout_use *x = a, *y = b;
    const int id = strcmp(x->id, y->id);
    return id != 0 ? id : (x->version > y->version) - (x->version < y->version);
}

typedef struct layout_list {
    lp_arena arena; /* ids outlive the rows that they came from */
    layout_use *item;
    int64_t count, capacity;
} layout_list;

static lp_status add_layouts(const lp_trace *t, layout_list *list, const lp_rows *rows, lp_error *err)
{
    for (uint32_t d = 0; d < rows->ndest; d++) {
        const layout_use use = {rows->dest[d].layout, rows->dest[d].layout_version};
        const layout_use *last = list->count > 0 ? &list->item[list->count - 1] : NULL;
        if (use.id[0] == '\0' || (last != NULL && compare_layouts(last, &use) == 0))
            continue;
        if (!lp_grow(t->platform.alloc, (void **)&list->item, &list->capacity, list->count + 1, sizeof *list->item))
            return lp_fail_memory(err);
        const char *id = lp_arena_text(&list->arena, use.id, strlen(use.id));
        if (id == NULL)
            return lp_fail_memory(err);
        list->item[list->count++] = (layout_use){id, use.version};
    }
    /* Short again after every scope: ranks use the same few layouts. */
    if (list->count > 1)
        qsort(list->item, (size_t)list->count, sizeof *list->item, compare_layouts);
    int64_t kept = 0;
    for (int64_t i = 0; i < list->count; i++)
        if (i == 0 || compare_layouts(&list->item[kept - 1], &list->item[i]) != 0)
            list->item[kept++] = list->item[i];
    list->count = kept;
    return LP_OK;
}

static void put_order(writer *w, const lp_trace *t, const lp_rows *rows)
{
    int64_t count = 0;
    for (uint32_t i = 0; i < rows->nrecord; i++)
        count += rows->record[i].seq > 0;
    put_i64(w, count);
    for (uint32_t i = 0; i < rows->nrecord && count > 0; i++) {
        const lp_record *r = &rows->record[i];
        if (r->seq == 0)
            continue;
        put_name(w, t, r->name);
        put_text(w, rows->dest[r->dest].name);
        put_i64(w, r->seq);
    }
}

static void put_catalogue(writer *w, const lp_checkpoint *c)
{
    const int64_t count = lp_checkpoint_count(c);
    put_i64(w, count);
    for (int64_t i = 0; i < count; i++) {
        const lp_checkpoint_tensor *tensor = lp_checkpoint_at(c, i);
        put_text(w, tensor->name);
        put_i64(w, tensor->dtype);
        put_i64(w, tensor->ndim);
        for (int32_t d = 0; d < tensor->ndim; d++)
            put_i64(w, tensor->shape[d]);
    }
}

/* Rows that were not expanded before are dropped again: the key of a large trace needs one scope at a time. */
lp_status lp_trace_structure_key(const lp_trace *t, uint8_t key[32], lp_error *err)
{
    LP_TRY(sealed(t, err));
    layout_list layouts = {0};
    lp_status status = LP_OK;
    writer w;
    uint8_t unused[32];
    lp_arena_init(&layouts.arena, t->platform.alloc);
    begin(&w, "loadplan structure 1");
    put_catalogue(&w, t->checkpoint);
    put_text(&w, t->header.loader);
    put_text(&w, t->header.loader_version);
    put_text(&w, t->header.configuration);
    put_text(&w, t->header.target);
    const lp_scope *sizes = &t->header.layout;
    put_i64(&w, sizes->pp);
    put_i64(&w, sizes->dp);
    put_i64(&w, sizes->tp);
    put_i64(&w, sizes->expert_parallel);
    for (int32_t s = 0; s < t->scope_count; s++) {
        const bool had_rows = t->scope[s].has_rows;
        const lp_rows *rows;
        LP_TRY_GOTO(lp_trace_rows(t, s, &rows, err), free_layouts);
        status = add_layouts(t, &layouts, rows, err);
        put_i64(&w, lp_scope_rank(&t->scope[s].scope));
        put_order(&w, t, rows);
        if (!had_rows)
            lp_scope_entry_release(&t->scope[s]);
        if (status != LP_OK)
            goto free_layouts;
    }
    put_i64(&w, layouts.count);
    for (int64_t i = 0; i < layouts.count; i++) {
        put_text(&w, layouts.item[i].id);
        put_i64(&w, layouts.item[i].version);
    }

free_layouts:
    lp_arena_free(&layouts.arena);
    lp_release(t->platform.alloc, layouts.item);
    if (status == LP_OK)
        return end(&w, key, err);
    lp_sha256_end(&w.sha, unused);
    return status;
}
