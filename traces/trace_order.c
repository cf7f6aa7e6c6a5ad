/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes of different names that overlap. The last one wins, so their order is part of the plan: seq. It is the length
 * of the longest chain of overlapping earlier writes, plus one: a function of the order of exactly those pairs that
 * overlap, and of nothing else. All writes that overlap nothing keep seq 0.
 *
 * Bytes are those of storages, so that destinations which share one are judged together. Begin fills come before
 * everything and never need a seq: they are trimmed by whatever is written later.
 */
#include "traces/trace_build.h"

#include <inttypes.h>
#include <stdlib.h>

/* A write of one storage, by its place there. */
typedef struct unit {
    lp_write write;
    int64_t base;   /* of the destination in its storage */
    int64_t lo, hi; /* bytes of the storage between which it writes */
    bool is_split;  /* its calls have to be ordered one by one */
} unit;

typedef struct units {
    unit *item;
    int64_t count, capacity;
} units;

typedef struct edge {
    uint32_t from, to; /* units by time: from is earlier */
} edge;

typedef struct edges {
    edge *item;
    int64_t count, capacity;
} edges;

static bool add_unit(const lp_alloc *alloc, units *list, const lp_write *write, const lp_destination *dest)
{
    if (!lp_grow(alloc, (void **)&list->item, &list->capacity, list->count + 1, sizeof *list->item))
        return false;
    /* Sums of checked ranges inside the storage: they cannot overflow. */
    const int64_t at = dest->offset + write->record.dst_off;
    list->item[list->count++] = (unit){
        .write = *write, .base = dest->offset, .lo = at, .hi = at + write->record.map->dst_hi, .is_split = false};
    return true;
}

static int compare_units_by_address(const void *a, const void *b)
{
    const unit *x = a, *y = b;
    if (x->lo != y->lo)
        return x->lo < y->lo ? -1 : 1;
    return (x->write.first > y->write.first) - (x->write.first < y->write.first);
}

/* ---- overlaps ---- */

static lp_status shifted_part(lp_trace *t, const unit *of, const unit *with, const lp_map **out, lp_error *err)
{
    const lp_alloc *alloc = t->platform.alloc;
    const int64_t of_at = of->base + of->write.record.dst_off, with_at = with->base + with->write.record.dst_off;
    const lp_map *part;
    LP_TRY(lp_map_intersect(&part, of->write.record.map, with->write.record.map, with_at - of_at, alloc, err));
    const lp_status status = lp_map_shift(out, part, of->write.record.src_off, of_at, alloc, err);
    lp_map_free(part, alloc);
    return status;
}

/* Whether two writes of one name through different destinations put the same source bytes on every shared byte, as the
 * load of tied weights does: then no order is needed. */
static lp_status writes_same_bytes(lp_trace *t, const unit *a, const unit *b, bool *same, lp_error *err)
{
    const lp_alloc *alloc = t->platform.alloc;
    const lp_record *x = &a->write.record, *y = &b->write.record;
    *same = false;
    if (x->name != y->name || x->src_dtype != y->src_dtype || x->dst_dtype != y->dst_dtype ||
        x->fill_bits != y->fill_bits || (x->kind == LP_KIND_FILL) != (y->kind == LP_KIND_FILL))
        return LP_OK;
    const lp_map *p = NULL, *q = NULL;
    lp_status status = LP_OK;
    LP_TRY_GOTO(shifted_part(t, a, b, &p, err), free_parts);
    LP_TRY_GOTO(shifted_part(t, b, a, &q, err), free_parts);
    *same = lp_map_equal(p, q);

free_parts:
    lp_map_free(p, alloc);
    lp_map_free(q, alloc);
    return status;
}

static lp_status add_edge(lp_trace *t, edges *list, const unit *base, uint32_t a, uint32_t b, lp_error *err)
{
    bool same;
    if (base[a].write.record.dest != base[b].write.record.dest) {
        LP_TRY(writes_same_bytes(t, &base[a], &base[b], &same, err));
        if (same)
            return LP_OK;
    }
    if (!lp_grow(t->platform.alloc, (void **)&list->item, &list->capacity, list->count + 1, sizeof *list->item))
        return lp_fail_memory(err);
    const bool in_order = base[a].write.first < base[b].write.first;
    list->item[list->count++] = in_order ? (edge){a, b} : (edge){b, a};
    return LP_OK;
}

/* Overlapping pairs among units [from, to), whose address ranges touch. Where the sweep cannot decide, every pair of
 * neighbours in time counts as overlapping, which fixes the whole order. */
static lp_status pairs_of_cluster(lp_trace *t, const units *list, int64_t from, int64_t to, edges *out, lp_error *err)
{
    const lp_alloc *alloc = t->platform.alloc;
    const int64_t count = to - from;
    lp_cover_item *item = lp_allocate(alloc, (size_t)count * sizeof *item);
    if (item == NULL)
        return lp_fail_memory(err);
    for (int64_t i = 0; i < count; i++) {
        const unit *u = &list->item[from + i];
        /* Relative to the cluster, so that equal clusters of other experts, layers and ranks are known problems. */
        item[i] =
            (lp_cover_item){.map = u->write.record.map, .dst_off = u->lo - list->item[from].lo, .tag = (uint32_t)i};
    }
    lp_cover_report report;
    lp_status status = lp_cover(&report, NULL, item, count, t->build->memo, alloc, err);
    lp_release(alloc, item);
    LP_TRY(status);
    if (!report.undecided && !report.pairs_truncated) {
        for (int64_t p = 0; p < report.npair && status == LP_OK; p++)
            status = add_edge(t, out, list->item, (uint32_t)(from + report.pair[p].a),
                              (uint32_t)(from + report.pair[p].b), err);
        lp_cover_report_free(&report, alloc);
        return status;
    }
    lp_cover_report_free(&report, alloc);
    lp_sort_item *order = lp_allocate(alloc, (size_t)count * 2 * sizeof *order);
    if (order == NULL)
        return lp_fail_memory(err);
    for (int64_t i = 0; i < count; i++)
        order[i] = (lp_sort_item){(uint64_t)list->item[from + i].write.first, (uint64_t)(from + i)};
    lp_sort_by_key(order, order + count, count);
    for (int64_t i = 1; i < count && status == LP_OK; i++)
        status = add_edge(t, out, list->item, (uint32_t)order[i - 1].value, (uint32_t)order[i].value, err);
    lp_release(alloc, order);
    return status;
}

/* All overlapping pairs of a storage's units, which get sorted by address. */
static lp_status find_pairs(lp_trace *t, units *list, edges *out, lp_error *err)
{
    out->count = 0;
    bool is_sorted = true;
    for (int64_t i = 1; i < list->count && is_sorted; i++)
        is_sorted = compare_units_by_address(&list->item[i - 1], &list->item[i]) <= 0;
    if (!is_sorted)
        qsort(list->item, (size_t)list->count, sizeof *list->item, compare_units_by_address);
    for (int64_t i = 0, end; i < list->count; i = end) {
        int64_t hi = list->item[i].hi;
        for (end = i + 1; end < list->count && list->item[end].lo < hi; end++)
            if (list->item[end].hi > hi)
                hi = list->item[end].hi;
        if (end - i > 1)
            LP_TRY(pairs_of_cluster(t, list, i, end, out, err));
    }
    return LP_OK;
}

/* ---- numbering ---- */

/* Marks units whose merged calls lie on both sides of a call that they overlap. */
static bool mark_splits(units *list, const edges *pairs)
{
    bool any = false;
    for (int64_t e = 0; e < pairs->count; e++) {
        unit *a = &list->item[pairs->item[e].from], *b = &list->item[pairs->item[e].to];
        if (a->write.last <= b->write.first)
            continue;
        a->is_split = b->is_split = true;
        any = true;
    }
    return any;
}

static int64_t first_piece(const lp_writes *pieces, uint32_t dest, uint32_t name)
{
    const uint64_t key = (uint64_t)dest << 32 | name;
    int64_t lo = 0, hi = pieces->count;
    while (lo < hi) {
        const int64_t middle = lo + (hi - lo) / 2;
        const lp_record *r = &pieces->item[middle].record;
        if (((uint64_t)r->dest << 32 | r->name) < key)
            lo = middle + 1;
        else
            hi = middle;
    }
    return lo;
}

static bool is_same_deed(const lp_record *a, const lp_record *b)
{
    return a->src_dtype == b->src_dtype && a->dst_dtype == b->dst_dtype && a->fill_bits == b->fill_bits &&
           a->map->src_elem == b->map->src_elem && a->map->dst_elem == b->map->dst_elem;
}

/* Puts the calls of split units in their place. */
static lp_status split_units(lp_trace *t, units *list, const lp_writes *pieces, lp_error *err)
{
    units out = {0};
    const lp_alloc *alloc = t->platform.alloc;
    for (int64_t i = 0; i < list->count; i++) {
        const unit *u = &list->item[i];
        const lp_record *r = &u->write.record;
        const lp_destination *dest = &t->build->dest[r->dest];
        bool has_room = true;
        if (!u->is_split || u->write.first == u->write.last) {
            has_room = add_unit(alloc, &out, &u->write, dest);
        } else {
            for (int64_t p = first_piece(pieces, r->dest, r->name); p < pieces->count && has_room; p++) {
                const lp_write *piece = &pieces->item[p];
                if (piece->record.dest != r->dest || piece->record.name != r->name)
                    break;
                if (is_same_deed(&piece->record, r))
                    has_room = add_unit(alloc, &out, piece, dest);
            }
        }
        if (!has_room) {
            lp_release(alloc, out.item);
            return lp_fail_memory(err);
        }
    }
    lp_release(alloc, list->item);
    *list = out;
    return LP_OK;
}

/* Longest chains: a pair only ever raises the later unit, so pairs are taken in order of their later unit's time. */
static lp_status number_chains(lp_trace *t, units *list, const edges *pairs, lp_error *err)
{
    if (pairs->count == 0)
        return LP_OK;
    const lp_alloc *alloc = t->platform.alloc;
    lp_sort_item *order = lp_allocate(alloc, (size_t)pairs->count * 2 * sizeof *order);
    if (order == NULL)
        return lp_fail_memory(err);
    for (int64_t e = 0; e < pairs->count; e++)
        order[e] = (lp_sort_item){(uint64_t)list->item[pairs->item[e].to].write.first, (uint64_t)e};
    lp_sort_by_key(order, order + pairs->count, pairs->count);
    for (int64_t i = 0; i < pairs->count; i++) {
        const edge *e = &pairs->item[order[i].value];
        lp_record *from = &list->item[e->from].write.record, *to = &list->item[e->to].write.record;
        if (from->seq == 0)
            from->seq = 1;
        if (to->seq <= from->seq)
            to->seq = from->seq + 1;
    }
    lp_release(alloc, order);
    return LP_OK;
}

/* ---- begin fills ---- */

/* Lists, by their place in the storage, the named units and later begin fills that may write into `fill`. */
static lp_status list_cuts(const unit *fill, const units *named, const units *fills, lp_writes *cuts, lp_error *err)
{
    const units *const lists[] = {named, fills};
    for (size_t l = 0; l < 2; l++)
        for (int64_t i = 0; i < lists[l]->count; i++) {
            const unit *u = &lists[l]->item[i];
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
static lp_status trim_begin_fill(lp_trace *t, unit *fill, const units *named, const units *fills, bool *gone,
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

/* ---- storages ---- */

typedef struct storage_work {
    units named, fills;
    edges pairs;
} storage_work;

static lp_status order_storage(lp_trace *t, storage_work *w, const lp_writes *pieces, lp_writes *out, bool *any_split,
                               lp_error *err)
{
    LP_TRY(find_pairs(t, &w->named, &w->pairs, err));
    if (mark_splits(&w->named, &w->pairs)) {
        *any_split = true;
        LP_TRY(split_units(t, &w->named, pieces, err));
        LP_TRY(find_pairs(t, &w->named, &w->pairs, err));
    }
    LP_TRY(number_chains(t, &w->named, &w->pairs, err));
    for (int64_t i = 0; i < w->named.count; i++)
        if (!lp_writes_add(out, &w->named.item[i].write))
            return lp_fail_memory(err);
    for (int64_t i = 0; i < w->fills.count; i++) {
        unit fill = w->fills.item[i];
        bool gone;
        LP_TRY(trim_begin_fill(t, &fill, &w->named, &w->fills, &gone, err));
        if (!gone && !lp_writes_add(out, &fill.write))
            return lp_fail_memory(err);
    }
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
        const lp_destination *owner = &b->dest[by_storage[i].value];
        w.named.count = w.fills.count = 0;
        for (end = i; end < b->ndest && by_storage[end].key == by_storage[i].key; end++) {
            const uint32_t d = (uint32_t)by_storage[end].value;
            const lp_destination *dest = &b->dest[d];
            if (dest->storage_bytes != owner->storage_bytes) {
                status = lp_fail_at(err, LP_E_ARGUMENT, dest->name, -1,
                                    "destinations '%s' and '%s' give storage '%s' two sizes", owner->name, dest->name,
                                    dest->storage);
                goto free_work;
            }
            for (int64_t m = first_piece(merged, d, 0); m < merged->count && merged->item[m].record.dest == d; m++) {
                const lp_write *write = &merged->item[m];
                if (!add_unit(alloc, write->record.name == LP_NAME_BEGIN ? &w.fills : &w.named, write, dest)) {
                    status = lp_fail_memory(err);
                    goto free_work;
                }
            }
        }
        LP_TRY_GOTO(order_storage(t, &w, pieces, out, &any_split, err), free_work);
    }
    if (any_split)
        status = merge_again(t, out, err);

free_work:
    lp_release(alloc, w.named.item);
    lp_release(alloc, w.fills.item);
    lp_release(alloc, w.pairs.item);
    lp_release(alloc, by_storage);
    return status;
}
