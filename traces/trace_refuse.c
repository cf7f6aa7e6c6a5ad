/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names with a refusal. Such a name is a fallback: the engine loads it, so the plan must not touch what it writes. Its
 * records go, and so do derives that need its staged bytes; the regions that nobody writes any more stay known as
 * regions of refusals. A derive that goes takes its other staged names with it: half of its inputs help nobody.
 */
#include "traces/trace_build.h"

typedef struct refuser {
    lp_trace *t;
    lp_scope_build *build;
    uint32_t *first; /* per name: 1 + index of its first refusal, or 0 */
    uint32_t *queue; /* refused names whose derives are still to be looked at */
    int64_t queued;
    lp_sort_item *reader; /* (staged name, derive), sorted */
    int64_t nreader;
    bool *is_dropped; /* per derive */
} refuser;

static lp_status add_refusal(refuser *f, const lp_refusal *refusal, lp_error *err)
{
    LP_TRY(lp_trace_add_refusal(f->t, refusal, err));
    if (f->first[refusal->name] == 0) {
        f->first[refusal->name] = (uint32_t)f->build->nrefusal;
        f->queue[f->queued++] = refusal->name;
    }
    return LP_OK;
}

/* What a derive would have written, as the region of a refusal; NULL for a check. */
static lp_status derive_region(refuser *f, const lp_derive *derive, const lp_map **out, lp_error *err)
{
    *out = NULL;
    if (derive->map == NULL)
        return LP_OK;
    lp_write write = {0};
    int64_t src_off;
    LP_TRY(lp_map_pool_add(&f->t->shared->maps, derive->map, &write.record.map, &src_off, &write.record.dst_off, err));
    return lp_writes_region(f->t, out, &write, 1, err);
}

/* `derive` reads the refused name `cause`: it goes, and every name that it stages becomes a fallback. */
static lp_status drop_derive(refuser *f, const lp_derive *derive, uint32_t cause, lp_error *err)
{
    const lp_map *region;
    LP_TRY(derive_region(f, derive, &region, err));
    lp_status status = LP_OK;
    const char *cause_name = lp_checkpoint_at(f->t->checkpoint, cause)->name;
    const char *reason = "a derive reads it together with another fallback";
    if (strlen(cause_name) < LP_TEXT_BYTES_MAX / 2)
        reason = lp_arena_format(&f->build->arena, "a derive reads it together with '%s', a fallback", cause_name);
    if (reason == NULL)
        status = lp_fail_memory(err);
    for (uint32_t i = 0; i < derive->ninput && status == LP_OK; i++) {
        if (!derive->input[i].staged)
            continue;
        const uint32_t name = derive->input[i].index;
        lp_refusal refusal = {.name = name,
                              .dest = derive->dest,
                              .map = region,
                              .operation = "derive",
                              .reason = reason,
                              .provenance = derive->provenance};
        if (f->first[name] != 0) {
            const lp_refusal *known = &f->build->refusal[f->first[name] - 1];
            refusal.operation = known->operation;
            refusal.reason = known->reason;
            refusal.provenance = known->provenance;
        }
        status = add_refusal(f, &refusal, err);
    }
    lp_map_free(region, f->t->platform.alloc);
    return status;
}

static int64_t first_reader(const refuser *f, uint32_t name)
{
    int64_t lo = 0, hi = f->nreader;
    while (lo < hi) {
        const int64_t middle = lo + (hi - lo) / 2;
        if (f->reader[middle].key < name)
            lo = middle + 1;
        else
            hi = middle;
    }
    return lo;
}

static lp_status drop_derives(refuser *f, lp_error *err)
{
    lp_scope_build *b = f->build;
    for (int64_t q = 0; q < f->queued; q++) {
        const uint32_t name = f->queue[q];
        for (int64_t i = first_reader(f, name); i < f->nreader && f->reader[i].key == name; i++) {
            const uint64_t d = f->reader[i].value;
            if (f->is_dropped[d])
                continue;
            f->is_dropped[d] = true;
            LP_TRY(drop_derive(f, &b->derive[d], name, err));
        }
    }
    int64_t kept = 0;
    for (int64_t d = 0; d < b->nderive; d++)
        if (!f->is_dropped[d])
            b->derive[kept++] = b->derive[d];
    b->nderive = kept;
    return LP_OK;
}

static lp_status list_readers(refuser *f, lp_error *err)
{
    const lp_alloc *alloc = f->t->platform.alloc;
    int64_t count = 0;
    for (int64_t d = 0; d < f->build->nderive; d++)
        for (uint32_t i = 0; i < f->build->derive[d].ninput; i++)
            count += f->build->derive[d].input[i].staged;
    f->reader = lp_allocate(alloc, (size_t)count * 2 * sizeof *f->reader);
    if (f->reader == NULL)
        return lp_fail_memory(err);
    for (int64_t d = 0; d < f->build->nderive; d++)
        for (uint32_t i = 0; i < f->build->derive[d].ninput; i++)
            if (f->build->derive[d].input[i].staged)
                f->reader[f->nreader++] = (lp_sort_item){f->build->derive[d].input[i].index, (uint64_t)d};
    lp_sort_by_key(f->reader, f->reader + count, count);
    return LP_OK;
}

/* Drops the writes of refused names; with `note_regions` the bytes become regions of refusals. */
static lp_status drop_writes(refuser *f, lp_writes *writes, bool note_regions, lp_error *err)
{
    int64_t kept = 0;
    for (int64_t i = 0; i < writes->count; i++) {
        const lp_write *w = &writes->item[i];
        const uint32_t name = w->record.name;
        if (name == LP_NAME_BEGIN || f->first[name] == 0) {
            writes->item[kept++] = *w;
            continue;
        }
        if (!note_regions)
            continue;
        const lp_refusal *known = &f->build->refusal[f->first[name] - 1];
        const lp_map *region;
        LP_TRY(lp_writes_region(f->t, &region, w, 1, err));
        const lp_refusal refusal = {.name = name,
                                    .dest = w->record.dest,
                                    .map = region,
                                    .operation = known->operation,
                                    .reason = known->reason,
                                    .provenance = known->provenance};
        const lp_status status = add_refusal(f, &refusal, err);
        lp_map_free(region, f->t->platform.alloc);
        LP_TRY(status);
    }
    writes->count = kept;
    return LP_OK;
}

lp_status lp_build_refuse(lp_trace *t, lp_writes *pieces, lp_writes *merged, lp_error *err)
{
    lp_scope_build *b = t->build;
    if (b->nrefusal == 0)
        return LP_OK;
    const lp_alloc *alloc = t->platform.alloc;
    const size_t names = (size_t)lp_checkpoint_count(t->checkpoint);
    refuser f = {.t = t, .build = b};
    lp_status status = LP_OK;
    f.first = lp_allocate_zero(alloc, names * sizeof *f.first);
    f.queue = lp_allocate(alloc, names * sizeof *f.queue);
    f.is_dropped = lp_allocate_zero(alloc, (size_t)b->nderive * sizeof *f.is_dropped);
    if (f.first == NULL || f.queue == NULL || f.is_dropped == NULL) {
        status = lp_fail_memory(err);
        goto free_refuser;
    }
    for (int64_t i = 0; i < b->nrefusal; i++) {
        const uint32_t name = b->refusal[i].name;
        if (f.first[name] == 0) {
            f.first[name] = (uint32_t)i + 1;
            f.queue[f.queued++] = name;
        }
    }
    LP_TRY_GOTO(list_readers(&f, err), free_refuser);
    LP_TRY_GOTO(drop_derives(&f, err), free_refuser);
    LP_TRY_GOTO(drop_writes(&f, pieces, false, err), free_refuser);
    LP_TRY_GOTO(drop_writes(&f, merged, true, err), free_refuser);

free_refuser:
    lp_release(alloc, f.reader);
    lp_release(alloc, f.is_dropped);
    lp_release(alloc, f.queue);
    lp_release(alloc, f.first);
    return status;
}
