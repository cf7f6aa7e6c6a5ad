/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes of different names that share bytes: which pairs do, which of the two came later, and the numbers that follow.
 *
 * A unit is all calls of one name that do the same thing to one destination. Of two units that share bytes, one comes
 * before the other when its call came first at every shared byte; that depends neither on how calls are cut nor on
 * anything that happens elsewhere. Where two units come before each other at different bytes, or several ones form a
 * circle, no order of whole units exists: they are taken apart into their calls.
 */
#include "traces/map_parts.h"
#include "traces/trace_order.h"

#include <inttypes.h>
#include <stdlib.h>

/* Calls that are looked at to compare units call by call, in one storage; beyond it units are taken apart. */
enum { COMPARED_CALLS_MAX = 1 << 22 };

typedef struct edge {
    uint32_t from, to; /* units: from comes before to */
} edge;

typedef struct order_work {
    lp_trace *t;
    lp_units *units;
    const lp_writes *pieces;
    edge *edge;
    int64_t nedge, edge_capacity;
    int64_t compared_calls;
} order_work;

static bool is_same_deed(const lp_record *a, const lp_record *b)
{
    return a->src_dtype == b->src_dtype && a->dst_dtype == b->dst_dtype && a->fill_bits == b->fill_bits &&
           a->map->src_elem == b->map->src_elem && a->map->dst_elem == b->map->dst_elem;
}

/* The calls that a unit was merged from; itself when it is one call. */
static lp_status list_calls(order_work *w, const lp_unit *u, lp_units *calls, lp_error *err)
{
    const lp_alloc *alloc = w->t->platform.alloc;
    const lp_record *r = &u->write.record;
    const lp_destination *dest = &w->t->build->dest[r->dest];
    bool has_room = true;
    if (u->write.first == u->write.last)
        has_room = lp_units_add(alloc, calls, &u->write, dest);
    else
        for (int64_t p = lp_writes_find(w->pieces, r->dest, r->name); p < w->pieces->count && has_room; p++) {
            const lp_write *piece = &w->pieces->item[p];
            if (piece->record.dest != r->dest || piece->record.name != r->name)
                break;
            if (is_same_deed(&piece->record, r))
                has_room = lp_units_add(alloc, calls, piece, dest);
        }
    return has_room ? LP_OK : lp_fail_memory(err);
}

/* ---- one pair ---- */

/* Whether two writes of one name through different destinations put the same source bytes on every shared byte, as the
 * load of tied weights does: then no order is needed. */
static lp_status writes_same_bytes(lp_trace *t, const lp_unit *a, const lp_unit *b, bool *same, lp_error *err)
{
    const lp_record *x = &a->write.record, *y = &b->write.record;
    *same = false;
    if (x->name != y->name || !is_same_deed(x, y))
        return LP_OK;
    return lp_maps_agree(same, &(lp_placed_map){x->map, x->src_off, a->lo}, &(lp_placed_map){y->map, y->src_off, b->lo},
                         t->platform.alloc, err);
}

/* Call by call: is a call of `a` earlier than one of `b` that it shares bytes with, is one later? Both, when that
 * cannot be told. */
static lp_status compare_calls(order_work *w, const lp_unit *a, const lp_unit *b, bool *before, bool *after,
                               lp_error *err)
{
    const lp_alloc *alloc = w->t->platform.alloc;
    lp_units calls = {0};
    lp_cover_item *item = NULL;
    lp_cover_report report = {0};
    lp_status status;
    *before = *after = true;
    if (w->compared_calls > COMPARED_CALLS_MAX)
        return LP_OK;
    LP_TRY_GOTO(list_calls(w, a, &calls, err), free_calls);
    const int64_t of_a = calls.count;
    LP_TRY_GOTO(list_calls(w, b, &calls, err), free_calls);
    w->compared_calls += calls.count;
    item = lp_allocate(alloc, (size_t)calls.count * sizeof *item);
    if (item == NULL) {
        status = lp_fail_memory(err);
        goto free_calls;
    }
    for (int64_t i = 0; i < calls.count; i++)
        item[i] = (lp_cover_item){
            .map = calls.item[i].write.record.map, .dst_off = calls.item[i].lo - a->lo, .tag = (uint32_t)i};
    LP_TRY_GOTO(lp_cover(&report, NULL, item, calls.count, w->t->build->memo, alloc, err), free_calls);
    if (!report.undecided && !report.pairs_truncated) {
        *before = *after = false;
        for (int64_t p = 0; p < report.npair; p++) {
            const lp_cover_pair *pair = &report.pair[p];
            if (pair->a >= of_a || pair->b < of_a)
                continue;
            const bool a_first = calls.item[pair->a].write.first < calls.item[pair->b].write.first;
            *before = *before || a_first;
            *after = *after || !a_first;
        }
    }
    lp_cover_report_free(&report, alloc);

free_calls:
    lp_release(alloc, item);
    lp_release(alloc, calls.item);
    return status;
}

static lp_status add_edge(order_work *w, int64_t from, int64_t to, lp_error *err)
{
    if (!lp_grow(w->t->platform.alloc, (void **)&w->edge, &w->edge_capacity, w->nedge + 1, sizeof *w->edge))
        return lp_fail_memory(err);
    w->edge[w->nedge++] = (edge){(uint32_t)from, (uint32_t)to};
    return LP_OK;
}

static lp_status add_pair(order_work *w, int64_t i, int64_t j, lp_error *err)
{
    const lp_unit *a = &w->units->item[i], *b = &w->units->item[j];
    bool before = a->write.last <= b->write.first, after = b->write.last <= a->write.first;
    if (a->write.record.dest != b->write.record.dest) {
        bool same;
        LP_TRY(writes_same_bytes(w->t, a, b, &same, err));
        if (same)
            return LP_OK;
    }
    if (!before && !after)
        LP_TRY(compare_calls(w, a, b, &before, &after, err));
    if (before)
        LP_TRY(add_edge(w, i, j, err));
    if (after)
        LP_TRY(add_edge(w, j, i, err));
    return LP_OK;
}

/* ---- all pairs ---- */

/* Where the sweep cannot decide who shares bytes, all units count as sharing some with their neighbours in time. */
static lp_status chain_cluster(order_work *w, int64_t from, int64_t to, lp_error *err)
{
    const lp_alloc *alloc = w->t->platform.alloc;
    const int64_t count = to - from;
    lp_sort_item *order = lp_allocate(alloc, (size_t)count * 2 * sizeof *order);
    if (order == NULL)
        return lp_fail_memory(err);
    for (int64_t i = 0; i < count; i++)
        order[i] = (lp_sort_item){(uint64_t)w->units->item[from + i].write.first, (uint64_t)(from + i)};
    lp_sort_by_key(order, order + count, count);
    lp_status status = LP_OK;
    for (int64_t i = 1; i < count && status == LP_OK; i++) {
        const int64_t a = (int64_t)order[i - 1].value, b = (int64_t)order[i].value;
        status = add_edge(w, a, b, err);
        if (status == LP_OK && w->units->item[a].write.last > w->units->item[b].write.first)
            status = add_edge(w, b, a, err);
    }
    lp_release(alloc, order);
    return status;
}

/* Pairs among units [from, to), whose address ranges touch. Places are relative to the cluster, so that equal clusters
 * of other experts, layers and ranks are known problems. */
static lp_status pairs_of_cluster(order_work *w, int64_t from, int64_t to, lp_error *err)
{
    const lp_alloc *alloc = w->t->platform.alloc;
    const int64_t count = to - from;
    const lp_unit *unit = &w->units->item[from];
    lp_cover_item *item = lp_allocate(alloc, (size_t)count * sizeof *item);
    if (item == NULL)
        return lp_fail_memory(err);
    for (int64_t i = 0; i < count; i++)
        item[i] =
            (lp_cover_item){.map = unit[i].write.record.map, .dst_off = unit[i].lo - unit[0].lo, .tag = (uint32_t)i};
    lp_cover_report report;
    lp_status status = lp_cover(&report, NULL, item, count, w->t->build->memo, alloc, err);
    lp_release(alloc, item);
    LP_TRY(status);
    if (report.undecided || report.pairs_truncated)
        status = chain_cluster(w, from, to, err);
    else
        for (int64_t p = 0; p < report.npair && status == LP_OK; p++)
            status = add_pair(w, from + report.pair[p].a, from + report.pair[p].b, err);
    lp_cover_report_free(&report, alloc);
    return status;
}

static int compare_by_address(const void *a, const void *b)
{
    const lp_unit *x = a, *y = b;
    if (x->lo != y->lo)
        return x->lo < y->lo ? -1 : 1;
    return (x->write.first > y->write.first) - (x->write.first < y->write.first);
}

static lp_status find_pairs(order_work *w, lp_error *err)
{
    lp_units *units = w->units;
    bool is_sorted = true;
    w->nedge = 0;
    for (int64_t i = 1; i < units->count && is_sorted; i++)
        is_sorted = compare_by_address(&units->item[i - 1], &units->item[i]) <= 0;
    if (!is_sorted)
        qsort(units->item, (size_t)units->count, sizeof *units->item, compare_by_address);
    for (int64_t i = 0, end; i < units->count; i = end) {
        int64_t hi = units->item[i].hi;
        for (end = i + 1; end < units->count && units->item[end].lo < hi; end++)
            if (units->item[end].hi > hi)
                hi = units->item[end].hi;
        if (end - i > 1)
            LP_TRY(pairs_of_cluster(w, i, end, err));
    }
    return LP_OK;
}

/* ---- numbering ---- */

/* Longest chains, unit by unit as soon as all earlier ones are numbered. Units on a circle, or behind one, are never
 * reached: they are marked to be split, and *circles is set. */
static lp_status number_chains(order_work *w, bool *circles, lp_error *err)
{
    const lp_alloc *alloc = w->t->platform.alloc;
    lp_unit *unit = w->units->item;
    const int64_t count = w->units->count;
    uint32_t *waiting = lp_allocate_zero(alloc, (size_t)count * sizeof *waiting); /* for so many earlier units */
    uint32_t *ready = lp_allocate(alloc, (size_t)count * sizeof *ready);
    lp_sort_item *out = lp_allocate(alloc, (size_t)w->nedge * 2 * sizeof *out); /* edges by where they start */
    int64_t *start = lp_allocate_zero(alloc, (size_t)(count + 1) * sizeof *start);
    lp_status status = LP_OK;
    if (waiting == NULL || ready == NULL || out == NULL || start == NULL) {
        status = lp_fail_memory(err);
        goto free_graph;
    }
    for (int64_t e = 0; e < w->nedge; e++) {
        out[e] = (lp_sort_item){w->edge[e].from, w->edge[e].to};
        waiting[w->edge[e].to]++;
        start[w->edge[e].from + 1]++;
    }
    lp_sort_by_key(out, out + w->nedge, w->nedge);
    int64_t nready = 0;
    for (int64_t u = 0; u < count; u++) {
        start[u + 1] += start[u];
        unit[u].write.record.seq = 0;
        if (waiting[u] == 0)
            ready[nready++] = (uint32_t)u;
    }
    for (int64_t i = 0; i < nready; i++) {
        const uint32_t u = ready[i];
        lp_record *from = &unit[u].write.record;
        if (from->seq == 0 && start[u + 1] > start[u])
            from->seq = 1;
        for (int64_t e = start[u]; e < start[u + 1]; e++) {
            const uint64_t v = out[e].value;
            if (unit[v].write.record.seq <= from->seq)
                unit[v].write.record.seq = from->seq + 1;
            if (--waiting[v] == 0)
                ready[nready++] = (uint32_t)v;
        }
    }
    *circles = nready < count;
    for (int64_t u = 0; u < count; u++)
        unit[u].is_split = waiting[u] > 0 && unit[u].write.first != unit[u].write.last;

free_graph:
    lp_release(alloc, waiting);
    lp_release(alloc, ready);
    lp_release(alloc, out);
    lp_release(alloc, start);
    return status;
}

/* Puts the calls of marked units in their place. *any: there was one. */
static lp_status split_units(order_work *w, bool *any, lp_error *err)
{
    const lp_alloc *alloc = w->t->platform.alloc;
    lp_units out = {0};
    lp_status status = LP_OK;
    *any = false;
    for (int64_t i = 0; i < w->units->count && status == LP_OK; i++) {
        const lp_unit *u = &w->units->item[i];
        if (u->is_split) {
            *any = true;
            status = list_calls(w, u, &out, err);
        } else if (!lp_units_add(alloc, &out, &u->write, &w->t->build->dest[u->write.record.dest])) {
            status = lp_fail_memory(err);
        }
    }
    if (status != LP_OK) {
        lp_release(alloc, out.item);
        return status;
    }
    lp_release(alloc, w->units->item);
    *w->units = out;
    return LP_OK;
}

lp_status lp_units_order(lp_trace *t, lp_units *units, const lp_writes *pieces, bool *any_split, lp_error *err)
{
    order_work w = {.t = t, .units = units, .pieces = pieces};
    lp_status status;
    bool circles = false;
    do {
        LP_TRY_GOTO(find_pairs(&w, err), free_edges);
        if (w.nedge == 0)
            break;
        LP_TRY_GOTO(number_chains(&w, &circles, err), free_edges);
        if (circles) {
            bool any;
            LP_TRY_GOTO(split_units(&w, &any, err), free_edges);
            if (!any) { /* single calls follow each other in time: they cannot form a circle */
                status = lp_fail(err, LP_E_INTERNAL, "overlapping writes have no order");
                goto free_edges;
            }
            *any_split = true;
        }
    } while (circles);

free_edges:
    lp_release(t->platform.alloc, w.edge);
    return status;
}
