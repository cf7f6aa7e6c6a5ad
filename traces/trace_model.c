/* SPDX-License-Identifier: Apache-2.0 */
/* A trace in memory: its life, its builder's entry points, its accessors. */
#include "traces/trace_build.h"

#include "traces/json_pull.h"

#include <stdlib.h>

/* ---- life ---- */

const char *lp_trace_text(const lp_trace *t, const char *text)
{
    if (text == NULL)
        text = "";
    lp_strings *strings = &t->shared->strings;
    const int64_t number = lp_strings_add(strings, text, strlen(text));
    return number < 0 ? NULL : strings->text[number];
}

static lp_status copy_header(lp_trace *t, const lp_trace_header *header, lp_error *err)
{
    static const lp_trace_header unknown = {0};
    const lp_trace_header *from = header != NULL ? header : &unknown;
    const char *const text[] = {from->loader, from->loader_version, from->configuration, from->target};
    for (size_t i = 0; i < sizeof text / sizeof *text; i++) {
        size_t bad_off;
        if (text[i] == NULL)
            continue;
        if (strlen(text[i]) > LP_CONFIGURATION_BYTES_MAX)
            return lp_fail(err, LP_E_LIMIT, "a text of the trace header is longer than %d bytes",
                           LP_CONFIGURATION_BYTES_MAX);
        if (!lp_utf8_is_valid(text[i], strlen(text[i]), &bad_off))
            return lp_fail(err, LP_E_ARGUMENT, "a text of the trace header is not UTF-8: '%s'", text[i]);
    }
    t->header.loader = lp_trace_text(t, from->loader);
    t->header.loader_version = lp_trace_text(t, from->loader_version);
    t->header.configuration = lp_trace_text(t, from->configuration);
    t->header.target = lp_trace_text(t, from->target);
    if (t->header.loader == NULL || t->header.loader_version == NULL || t->header.configuration == NULL ||
        t->header.target == NULL)
        return lp_fail_memory(err);
    t->header.layout = from->layout;
    t->header.layout.pp_rank = t->header.layout.dp_rank = t->header.layout.tp_rank = 0;
    return lp_scope_normalise(&t->header.layout, err);
}

lp_status lp_trace_new_with(lp_trace **out, lp_checkpoint *checkpoint, const lp_trace_header *header,
                            const lp_platform *platform, lp_error *err)
{
    const lp_platform resolved = lp_platform_resolve(platform);
    lp_trace *t = lp_allocate_zero(resolved.alloc, sizeof *t);
    if (t == NULL) {
        lp_checkpoint_close(checkpoint);
        return lp_fail_memory(err);
    }
    t->platform = resolved;
    t->checkpoint = checkpoint;
    lp_status status = LP_OK;
    t->shared = lp_allocate_zero(resolved.alloc, sizeof *t->shared);
    if (t->shared == NULL) {
        status = lp_fail_memory(err);
        goto close_trace;
    }
    lp_strings_init(&t->shared->strings, resolved.alloc);
    lp_map_pool_init(&t->shared->maps, resolved.alloc);
    LP_TRY_GOTO(copy_header(t, header, err), close_trace);
    *out = t;
    return LP_OK;

close_trace:
    lp_trace_close(t);
    return status;
}

lp_status lp_trace_new(lp_trace **out, const lp_checkpoint *checkpoint, const lp_trace_header *header,
                       const lp_platform *platform, lp_error *err)
{
    lp_checkpoint *copy;
    LP_TRY(lp_checkpoint_copy(&copy, checkpoint, platform, err));
    return lp_trace_new_with(out, copy, header, platform, err);
}

void lp_trace_close(lp_trace *t)
{
    if (t == NULL)
        return;
    const lp_alloc *alloc = t->platform.alloc;
    for (int32_t s = 0; s < t->scope_count; s++)
        lp_arena_free(&t->scope[s].arena);
    lp_release(alloc, t->scope);
    lp_build_free(t->build);
    if (t->source.close != NULL)
        t->source.close(t->source.context);
    if (t->shared != NULL) {
        lp_strings_free(&t->shared->strings);
        lp_map_pool_free(&t->shared->maps);
        lp_release(alloc, t->shared->provenance.row);
        lp_release(alloc, t->shared->provenance.table);
        lp_release(alloc, t->shared);
    }
    lp_checkpoint_close(t->checkpoint);
    lp_release(alloc, t);
}

/* ---- building ---- */

static lp_status open_scope(const lp_trace *t, lp_error *err)
{
    if (t->sealed)
        return lp_fail(err, LP_E_MISUSE, "the trace is sealed and takes no more rows");
    if (t->failed)
        return lp_fail(err, LP_E_MISUSE, "an earlier scope of the trace failed");
    if (t->build == NULL || !t->build->is_open)
        return lp_fail(err, LP_E_MISUSE, "no scope was begun");
    return LP_OK;
}

lp_status lp_trace_begin_scope(lp_trace *t, const lp_scope *scope, lp_error *err)
{
    if (t->sealed)
        return lp_fail(err, LP_E_MISUSE, "the trace is sealed and takes no more scopes");
    if (t->failed)
        return lp_fail(err, LP_E_MISUSE, "an earlier scope of the trace failed");
    lp_scope at = *scope;
    const lp_scope *layout = &t->header.layout;
    LP_TRY(lp_scope_normalise(&at, err));
    if (at.pp != layout->pp || at.dp != layout->dp || at.tp != layout->tp ||
        at.expert_parallel != layout->expert_parallel)
        return lp_fail(err, LP_E_ARGUMENT,
                       "the scope's sizes pp %d, dp %d, tp %d are not the trace's pp %d, dp %d, tp %d", at.pp, at.dp,
                       at.tp, layout->pp, layout->dp, layout->tp);
    LP_TRY(lp_build_close_scope(t, err));
    if (t->scope_count >= LP_SCOPES_MAX)
        return lp_fail(err, LP_E_LIMIT, "more than %d scopes in one trace", LP_SCOPES_MAX);
    if (t->build == NULL) {
        t->build = lp_allocate_zero(t->platform.alloc, sizeof *t->build);
        if (t->build == NULL)
            return lp_fail_memory(err);
        lp_arena_init(&t->build->arena, t->platform.alloc);
        lp_strings_init(&t->build->dest_names, t->platform.alloc);
    }
    t->build->scope = at;
    t->build->is_open = true;
    return LP_OK;
}

lp_rows lp_build_rows(const lp_scope_build *build)
{
    return (lp_rows){.scope = build->scope,
                     .ndest = (uint32_t)build->ndest,
                     .nrecord = (uint32_t)build->nrecord,
                     .nderive = (uint32_t)build->nderive,
                     .nrefusal = (uint32_t)build->nrefusal,
                     .dest = build->dest,
                     .record = build->record,
                     .derive = build->derive,
                     .refusal = build->refusal};
}

/* Row numbers are 32 bits wide and LP_NONE is not one of them. */
static lp_status make_room(const lp_trace *t, void **rows, int64_t *capacity, int64_t count, size_t row_bytes,
                           lp_error *err)
{
    if (count >= UINT32_MAX - 1)
        return lp_fail(err, LP_E_LIMIT, "more than 4,294,967,294 rows of one kind in one scope");
    if (!lp_grow(t->platform.alloc, rows, capacity, count + 1, row_bytes))
        return lp_fail_memory(err);
    return LP_OK;
}

lp_status lp_trace_add_destination(lp_trace *t, const lp_destination *dest, uint32_t *index, lp_error *err)
{
    LP_TRY(open_scope(t, err));
    LP_TRY(lp_destination_check(dest, LP_E_ARGUMENT, err));
    lp_scope_build *b = t->build;
    if (lp_strings_find(&b->dest_names, dest->name, strlen(dest->name)) >= 0)
        return lp_fail_at(err, LP_E_ARGUMENT, dest->name, -1, "destination '%s' is declared twice", dest->name);
    LP_TRY(make_room(t, (void **)&b->dest, &b->dest_capacity, b->ndest, sizeof *b->dest, err));

    lp_destination copy = *dest;
    const size_t extents_bytes = (size_t)dest->ndim * sizeof(int64_t);
    int64_t *stride = lp_arena_copy(&b->arena, dest->stride, extents_bytes);
    copy.shape = lp_arena_copy(&b->arena, dest->shape, extents_bytes);
    copy.stride = stride;
    copy.name = lp_trace_text(t, dest->name);
    copy.storage = dest->storage == NULL || dest->storage[0] == '\0' ? copy.name : lp_trace_text(t, dest->storage);
    copy.layout = lp_trace_text(t, dest->layout);
    copy.group = lp_trace_text(t, dest->group);
    if (stride == NULL || copy.shape == NULL || copy.name == NULL || copy.storage == NULL || copy.layout == NULL ||
        copy.group == NULL)
        return lp_fail_memory(err);
    lp_destination_normalise(&copy, stride);
    if (lp_strings_add(&b->dest_names, dest->name, strlen(dest->name)) < 0)
        return lp_fail_memory(err);
    b->dest[b->ndest] = copy;
    if (index != NULL)
        *index = (uint32_t)b->ndest;
    b->ndest++;
    return LP_OK;
}

lp_status lp_trace_add_record(lp_trace *t, const lp_record *record, lp_error *err)
{
    LP_TRY(open_scope(t, err));
    if (record->map->nbox == 0)
        return LP_OK; /* a copy of nothing */
    lp_scope_build *b = t->build;
    lp_record r = *record;
    LP_TRY(lp_map_pool_add(&t->shared->maps, record->map, &r.map, &r.src_off, &r.dst_off, err));
    LP_TRY(lp_record_normalise(&r, err));
    r.seq = 0;
    const lp_rows rows = lp_build_rows(b);
    LP_TRY(lp_record_check(t, &rows, &r, LP_E_ARGUMENT, err));
    LP_TRY(make_room(t, (void **)&b->record, &b->record_capacity, b->nrecord, sizeof *b->record, err));
    b->record[b->nrecord++] = r;
    return LP_OK;
}

lp_status lp_trace_add_derive(lp_trace *t, const lp_derive *derive, lp_error *err)
{
    LP_TRY(open_scope(t, err));
    lp_scope_build *b = t->build;
    const lp_rows rows = lp_build_rows(b);
    LP_TRY(lp_derive_check(t, &rows, derive, LP_E_ARGUMENT, err));
    LP_TRY(make_room(t, (void **)&b->derive, &b->derive_capacity, b->nderive, sizeof *b->derive, err));
    lp_derive copy;
    LP_TRY(lp_derive_copy(t, &b->arena, derive, &copy, err));
    b->derive[b->nderive++] = copy;
    return LP_OK;
}

lp_status lp_trace_add_refusal(lp_trace *t, const lp_refusal *refusal, lp_error *err)
{
    LP_TRY(open_scope(t, err));
    lp_scope_build *b = t->build;
    const lp_rows rows = lp_build_rows(b);
    LP_TRY(lp_refusal_check(t, &rows, refusal, LP_E_ARGUMENT, err));
    LP_TRY(make_room(t, (void **)&b->refusal, &b->refusal_capacity, b->nrefusal, sizeof *b->refusal, err));
    lp_refusal copy;
    LP_TRY(lp_refusal_copy(t, &b->arena, refusal, &copy, err));
    b->refusal[b->nrefusal++] = copy;
    return LP_OK;
}

static int compare_scopes(const void *a, const void *b)
{
    const int32_t x = lp_scope_rank(&((const lp_scope_entry *)a)->scope);
    const int32_t y = lp_scope_rank(&((const lp_scope_entry *)b)->scope);
    return (x > y) - (x < y);
}

lp_status lp_trace_seal(lp_trace *t, lp_error *err)
{
    if (t->sealed)
        return lp_fail(err, LP_E_MISUSE, "the trace is sealed already");
    if (t->failed)
        return lp_fail(err, LP_E_MISUSE, "an earlier scope of the trace failed");
    LP_TRY(lp_build_close_scope(t, err));
    if (t->scope_count > 1)
        qsort(t->scope, (size_t)t->scope_count, sizeof *t->scope, compare_scopes);
    for (int32_t s = 1; s < t->scope_count; s++) {
        const int32_t rank = lp_scope_rank(&t->scope[s].scope);
        if (rank == lp_scope_rank(&t->scope[s - 1].scope)) {
            t->failed = true;
            return lp_fail(err, LP_E_ARGUMENT, "rank %d was recorded twice", rank);
        }
    }
    lp_build_free(t->build);
    t->build = NULL;
    t->sealed = true;
    return LP_OK;
}

/* ---- accessors ---- */

const lp_trace_header *lp_trace_header_of(const lp_trace *t)
{
    return &t->header;
}

const lp_checkpoint *lp_trace_checkpoint(const lp_trace *t)
{
    return t->checkpoint;
}

int32_t lp_trace_scope_count(const lp_trace *t)
{
    return t->scope_count;
}

const lp_scope *lp_trace_scope_at(const lp_trace *t, int32_t index)
{
    return index >= 0 && index < t->scope_count ? &t->scope[index].scope : NULL;
}

int32_t lp_trace_scope_find(const lp_trace *t, int32_t global_rank)
{
    int32_t lo = 0, hi = t->scope_count;
    while (lo < hi) {
        const int32_t middle = lo + (hi - lo) / 2;
        if (lp_scope_rank(&t->scope[middle].scope) < global_rank)
            lo = middle + 1;
        else
            hi = middle;
    }
    return lo < t->scope_count && lp_scope_rank(&t->scope[lo].scope) == global_rank ? lo : -1;
}
