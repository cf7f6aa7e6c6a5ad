/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The order of writes, storage by storage: destinations that share a storage are judged together. Named writes that
 * overlap get their seq (trace_overlap.c). Begin fills come before everything and never need one: they are trimmed by
 * whatever is written later.
 */
#include "traces/map_parts.h"
#include "traces/trace_order.h"

#include <stdlib.h>

bool lp_units_add(const lp_alloc *alloc, lp_units *units, const lp_write *write, const lp_destination *dest)
{
    if (!lp_grow(alloc, (void **)&units->item, &units->capacity, units->count + 1, sizeof *units->item))
        return false;
    /* Sums of checked ranges inside the storage: they cannot overflow. */
    const int64_t lo = dest->offset + write->record.dst_off;
    units->item[units->count++] =
        (lp_unit){.write = *write, .base = dest->offset, .lo = lo, .hi = lo + write->record.map->dst_hi};
    return true;
}

int64_t lp_writes_find(const lp_writes *writes, uint32_t dest, uint32_t name)
{
    const uint64_t key = (uint64_t)dest << 32 | name;
    int64_t lo = 0, hi = writes->count;
    while (lo < hi) {
        const int64_t middle = lo + (hi - lo) / 2;
        const lp_record *r = &writes->item[middle].record;
        if (((uint64_t)r->dest << 32 | r->name) < key)
            lo = middle + 1;
        else
            hi = middle;
    }
    return lo;
}

/* ---- begin fills ---- */

/* Lists, by their place in the storage, the named units and later begin fills that may write into `fill`. */
static lp_status list_cuts(const lp_unit *fill, const lp_units *named, const lp_units *fills, lp_writes *cuts,
                           lp_error *err)
{
    const lp_units *const lists[] = {named, fills};
    for (size_t l = 0; l < 2; l++)
        for (int64_t i = 0; i < lists[l]->count; i++) {
            const lp_unit *u = &lists[l]->item[i];
            const bool is_earlier = u->write.record.name == LP_NAME_BEGIN && u->write.first <= fill->write.first;
            if (is_earlier || u->hi <= fill->lo || u->lo >= fill->hi)
                continue;
            lp_write cut = u->write;
            cut.record.dst_off = u->lo;
            if (!lp_writes_add(cuts, &cut))
                return lp_fail_memory(err);
        }
    return LP_OK;
}

/* Cuts out of `fill` whatever is written later: in one go, or one by one where those writes overlap each other. */
static lp_status trim_begin_fill(lp_trace *t, lp_unit *fill, const lp_units *named, const lp_units *fills, bool *gone,
                                 lp_error *err)
{
    const lp_alloc *alloc = t->platform.alloc;
    lp_writes cuts = {.alloc = alloc};
    const lp_map *all = NULL;
    lp_status status;
    *gone = false;
    LP_TRY_GOTO(list_cuts(fill, named, fills, &cuts, err), free_cuts);
    if (cuts.count == 0)
        goto free_cuts;
    const lp_status region = lp_writes_region(t, &all, cuts.item, cuts.count, NULL);
    if (region == LP_OK) {
        status = lp_write_subtract(t, &fill->write, all, -fill->base, gone, err);
    } else if (region == LP_E_MEMORY) {
        status = lp_fail_memory(err);
    } else {
        for (int64_t i = 0; i < cuts.count && !*gone; i++) {
            const lp_record *cut = &cuts.item[i].record;
            LP_TRY_GOTO(lp_write_subtract(t, &fill->write, cut->map, cut->dst_off - fill->base, gone, err), free_cuts);
        }
    }

free_cuts:
    lp_map_free(all, alloc);
    lp_writes_free(&cuts);
    return status;
}

/* Trims `fill` and puts what is left behind the others. Where a later write takes parts of its elements it becomes one
 * fill for each byte of its pattern. */
static lp_status add_begin_fill(lp_trace *t, const lp_unit *fill, const lp_units *named, const lp_units *fills,
                                lp_writes *out, bool *any_split, lp_error *err)
{
    lp_unit rest = *fill;
    bool gone;
    const lp_status status = trim_begin_fill(t, &rest, named, fills, &gone, err);
    const int32_t bytes = fill->write.record.map->dst_elem;
    if (status == LP_OK && !gone && !lp_writes_add(out, &rest.write))
        return lp_fail_memory(err);
    if (status != LP_E_UNSUPPORTED || bytes == 1)
        return status;
    for (int32_t k = 0; k < bytes; k++) {
        int64_t src_off, dst_off;
        lp_unit part = *fill;
        lp_record *r = &part.write.record;
        const lp_map *map;
        LP_TRY(lp_map_element_byte(&map, r->map, k, t->platform.alloc, err));
        const lp_status added = lp_map_pool_add(&t->shared->maps, map, &r->map, &src_off, &dst_off, err);
        lp_map_free(map, t->platform.alloc);
        LP_TRY(added);
        r->dst_off += dst_off;
        r->fill_bits = r->fill_bits >> (8 * k) & 0xff;
        LP_TRY(trim_begin_fill(t, &part, named, fills, &gone, err));
        if (!gone && !lp_writes_add(out, &part.write))
            return lp_fail_memory(err);
    }
    *any_split = true;
    return LP_OK;
}

/* ---- storages ---- */

typedef struct storage_work {
    lp_units named, fills;
} storage_work;

static lp_status order_storage(lp_trace *t, storage_work *w, const lp_writes *pieces, lp_writes *out, bool *any_split,
                               lp_error *err)
{
    LP_TRY(lp_units_order(t, &w->named, pieces, any_split, err));
    for (int64_t i = 0; i < w->named.count; i++)
        if (!lp_writes_add(out, &w->named.item[i].write))
            return lp_fail_memory(err);
    for (int64_t i = 0; i < w->fills.count; i++)
        LP_TRY(add_begin_fill(t, &w->fills.item[i], &w->named, &w->fills, out, any_split, err));
    return LP_OK;
}

/* Merged writes again, after some were split: those that ended with one seq are one record. */
static lp_status merge_again(lp_trace *t, lp_writes *writes, lp_error *err)
{
    const lp_alloc *alloc = t->platform.alloc;
    const int64_t count = writes->count;
    lp_sort_item *order = lp_allocate(alloc, (size_t)count * 2 * sizeof *order);
    if (order == NULL)
        return lp_fail_memory(err);
    for (int64_t i = 0; i < count; i++) {
        const lp_record *r = &writes->item[i].record;
        order[i] = (lp_sort_item){(uint64_t)r->dest << 32 | r->name, (uint64_t)i};
    }
    lp_sort_by_key(order, order + count, count);
    lp_writes out = {.alloc = alloc};
    lp_status status = LP_OK;
    for (int64_t i = 0, end; i < count && status == LP_OK; i = end) {
        const int64_t from = out.count;
        for (end = i; end < count && order[end].key == order[i].key && status == LP_OK; end++)
            if (!lp_writes_add(&out, &writes->item[order[end].value]))
                status = lp_fail_memory(err);
        if (status == LP_OK)
            status = lp_writes_merge(t, &out, from, err);
    }
    lp_release(alloc, order);
    if (status != LP_OK) {
        lp_writes_free(&out);
        return status;
    }
    lp_writes_free(writes);
    *writes = out;
    return LP_OK;
}

/* Adds the begin fills or the named writes of one destination. */
static lp_status gather(lp_trace *t, lp_units *units, const lp_writes *writes, uint32_t dest, bool is_begin,
                        lp_error *err)
{
    for (int64_t m = lp_writes_find(writes, dest, is_begin ? LP_NAME_BEGIN : 0); m < writes->count; m++) {
        const lp_write *write = &writes->item[m];
        if (write->record.dest != dest || (write->record.name == LP_NAME_BEGIN) != is_begin)
            break;
        if (!lp_units_add(t->platform.alloc, units, write, &t->build->dest[dest]))
            return lp_fail_memory(err);
    }
    return LP_OK;
}

/* Collects the writes of a storage, given its destinations. */
static lp_status gather_storage(lp_trace *t, storage_work *w, const lp_sort_item *dests, int64_t count,
                                const lp_writes *pieces, const lp_writes *merged, bool *any_split, lp_error *err)
{
    const lp_destination *owner = &t->build->dest[dests[0].value];
    /* Begin fills of several destinations can cover each other in turns: then every call counts by itself. */
    const lp_writes *fills = count > 1 ? pieces : merged;
    w->named.count = w->fills.count = 0;
    for (int64_t i = 0; i < count; i++) {
        const uint32_t d = (uint32_t)dests[i].value;
        const lp_destination *dest = &t->build->dest[d];
        if (dest->storage_bytes != owner->storage_bytes)
            return lp_fail_at(err, LP_E_ARGUMENT, dest->name, -1,
                              "destinations '%s' and '%s' give storage '%s' two sizes", owner->name, dest->name,
                              dest->storage);
        LP_TRY(gather(t, &w->named, merged, d, false, err));
        LP_TRY(gather(t, &w->fills, fills, d, true, err));
    }
    *any_split = *any_split || (count > 1 && w->fills.count > 0);
    return LP_OK;
}

lp_status lp_build_order(lp_trace *t, const lp_writes *pieces, const lp_writes *merged, lp_writes *out, lp_error *err)
{
    const lp_alloc *alloc = t->platform.alloc;
    const lp_scope_build *b = t->build;
    lp_sort_item *by_storage = lp_allocate(alloc, (size_t)b->ndest * 2 * sizeof *by_storage);
    storage_work w = {0};
    lp_status status = LP_OK;
    bool any_split = false;
    if (by_storage == NULL)
        return lp_fail_memory(err);
    /* Names of storages are interned: one address each. Their order has no influence, only their equality has. */
    for (int64_t d = 0; d < b->ndest; d++)
        by_storage[d] = (lp_sort_item){(uint64_t)(uintptr_t)b->dest[d].storage, (uint64_t)d};
    lp_sort_by_key(by_storage, by_storage + b->ndest, b->ndest);

    for (int64_t i = 0, end; i < b->ndest; i = end) {
        for (end = i + 1; end < b->ndest && by_storage[end].key == by_storage[i].key;)
            end++;
        LP_TRY_GOTO(gather_storage(t, &w, &by_storage[i], end - i, pieces, merged, &any_split, err), free_work);
        LP_TRY_GOTO(order_storage(t, &w, pieces, out, &any_split, err), free_work);
    }
    if (any_split)
        status = merge_again(t, out, err);

free_work:
    lp_release(alloc, w.named.item);
    lp_release(alloc, w.fills.item);
    lp_release(alloc, by_storage);
    return status;
}
