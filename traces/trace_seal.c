/* SPDX-License-Identifier: Apache-2.0 */
/* The last step of a scope: canonical order of all rows, one exact copy of them, and the plan digest. */
#include "traces/trace_build.h"

#include <stdlib.h>

/* ---- sorting ---- */

void lp_sort_by_key(lp_sort_item *item, lp_sort_item *spare, int64_t count)
{
    uint64_t differing = 0;
    bool is_sorted = true;
    for (int64_t i = 1; i < count; i++) {
        differing |= item[i].key ^ item[0].key;
        is_sorted = is_sorted && item[i - 1].key <= item[i].key;
    }
    if (is_sorted)
        return;
    /* Radix by byte from the lowest, skipping bytes that all keys share. */
    lp_sort_item *from = item, *to = spare;
    for (int shift = 0; shift < 64; shift += 8) {
        if ((differing >> shift & 0xff) == 0)
            continue;
        int64_t start[256] = {0};
        for (int64_t i = 0; i < count; i++)
            start[from[i].key >> shift & 0xff]++;
        int64_t sum = 0;
        for (int v = 0; v < 256; v++) {
            const int64_t n = start[v];
            start[v] = sum;
            sum += n;
        }
        for (int64_t i = 0; i < count; i++)
            to[start[from[i].key >> shift & 0xff]++] = from[i];
        lp_sort_item *swap = from;
        from = to;
        to = swap;
    }
    if (from != item)
        memcpy(item, from, (size_t)count * sizeof *item);
}

typedef struct named_row {
    const char *name;
    uint32_t index;
} named_row;

static int compare_names(const void *a, const void *b)
{
    return strcmp(((const named_row *)a)->name, ((const named_row *)b)->name);
}

/* Sorts destinations by name into the entry; new_index[old] says where each one went. */
static lp_status place_destinations(lp_trace *t, lp_scope_entry *entry, uint32_t *new_index, lp_error *err)
{
    const lp_scope_build *b = t->build;
    lp_destination *dest = lp_arena_get(&entry->arena, (size_t)b->ndest * sizeof *dest);
    named_row *row = lp_allocate(t->platform.alloc, (size_t)b->ndest * sizeof *row);
    lp_status status = LP_OK;
    if (dest == NULL || row == NULL) {
        status = lp_fail_memory(err);
        goto free_rows;
    }
    for (int64_t d = 0; d < b->ndest; d++)
        row[d] = (named_row){b->dest[d].name, (uint32_t)d};
    qsort(row, (size_t)b->ndest, sizeof *row, compare_names);
    for (int64_t d = 0; d < b->ndest; d++) {
        const lp_destination *from = &b->dest[row[d].index];
        const size_t bytes = (size_t)from->ndim * sizeof(int64_t);
        dest[d] = *from;
        dest[d].shape = lp_arena_copy(&entry->arena, from->shape, bytes);
        dest[d].stride = lp_arena_copy(&entry->arena, from->stride, bytes);
        if (dest[d].shape == NULL || dest[d].stride == NULL) {
            status = lp_fail_memory(err);
            goto free_rows;
        }
        new_index[row[d].index] = (uint32_t)d;
    }
    entry->rows.dest = dest;
    entry->rows.ndest = (uint32_t)b->ndest;

free_rows:
    lp_release(t->platform.alloc, row);
    return status;
}

static int compare_records(const void *a, const void *b)
{
    const lp_record *x = a, *y = b;
    if (x->dst_off != y->dst_off)
        return x->dst_off < y->dst_off ? -1 : 1;
    return (x->seq > y->seq) - (x->seq < y->seq);
}

static lp_status place_records(lp_trace *t, lp_scope_entry *entry, const uint32_t *new_index, lp_error *err)
{
    const lp_scope_build *b = t->build;
    const int64_t count = b->nrecord;
    lp_record *record = lp_arena_get(&entry->arena, (size_t)count * sizeof *record);
    lp_sort_item *order = lp_allocate(t->platform.alloc, (size_t)count * 2 * sizeof *order);
    if (record == NULL || order == NULL) {
        lp_release(t->platform.alloc, order);
        return lp_fail_memory(err);
    }
    for (int64_t i = 0; i < count; i++)
        order[i] = (lp_sort_item){(uint64_t)b->record[i].name << 32 | new_index[b->record[i].dest], (uint64_t)i};
    lp_sort_by_key(order, order + count, count);
    for (int64_t i = 0, end; i < count; i = end) {
        for (end = i; end < count && order[end].key == order[i].key; end++) {
            record[end] = b->record[order[end].value];
            record[end].dest = new_index[record[end].dest];
        }
        if (end - i > 1)
            qsort(&record[i], (size_t)(end - i), sizeof *record, compare_records);
    }
    lp_release(t->platform.alloc, order);
    entry->rows.record = record;
    entry->rows.nrecord = (uint32_t)count;
    return LP_OK;
}

/* ---- derives and refusals: few, and each with a digest to sort by ---- */

typedef struct digest_row {
    uint32_t dest;
    uint8_t digest[32];
    uint32_t index;
} digest_row;

static int compare_digest_rows(const void *a, const void *b)
{
    const digest_row *x = a, *y = b;
    if (x->dest != y->dest)
        return x->dest < y->dest ? -1 : 1;
    const int content = memcmp(x->digest, y->digest, sizeof x->digest);
    return content != 0 ? content : (x->index > y->index) - (x->index < y->index);
}

static void renumber_derive(lp_derive *derive, lp_derive_input *input, const uint32_t *new_index)
{
    if (derive->dest != LP_NONE)
        derive->dest = new_index[derive->dest];
    for (uint32_t i = 0; i < derive->ninput; i++)
        if (!input[i].staged)
            input[i].index = new_index[input[i].index];
    derive->input = input;
}

static lp_status place_derives(lp_trace *t, lp_scope_entry *entry, const uint32_t *new_index, lp_error *err)
{
    const lp_scope_build *b = t->build;
    const size_t count = (size_t)b->nderive;
    lp_derive *copy = lp_arena_get(&entry->arena, count * sizeof *copy);
    lp_derive *placed = lp_arena_get(&entry->arena, count * sizeof *placed);
    digest_row *row = lp_allocate(t->platform.alloc, count * sizeof *row);
    lp_status status = LP_OK;
    if (copy == NULL || placed == NULL || row == NULL) {
        status = lp_fail_memory(err);
        goto free_rows;
    }
    for (uint32_t d = 0; d < count; d++) {
        LP_TRY_GOTO(lp_derive_copy(t, &entry->arena, &b->derive[d], &copy[d], err), free_rows);
        lp_derive_input *input = lp_arena_copy(&entry->arena, copy[d].input, copy[d].ninput * sizeof *copy[d].input);
        if (input == NULL) {
            status = lp_fail_memory(err);
            goto free_rows;
        }
        renumber_derive(&copy[d], input, new_index);
        row[d].dest = copy[d].dest;
        row[d].index = d;
        LP_TRY_GOTO(lp_derive_digest(t, &entry->rows, &copy[d], row[d].digest, err), free_rows);
    }
    qsort(row, count, sizeof *row, compare_digest_rows);
    uint32_t kept = 0;
    for (size_t i = 0; i < count; i++)
        if (i == 0 || row[i].dest != row[i - 1].dest ||
            memcmp(row[i].digest, row[i - 1].digest, sizeof row[i].digest) != 0)
            placed[kept++] = copy[row[i].index];
    entry->rows.derive = placed;
    entry->rows.nderive = kept;

free_rows:
    lp_release(t->platform.alloc, row);
    return status;
}

int lp_refusal_compare(const lp_refusal *x, const lp_refusal *y)
{
    if (x->name != y->name)
        return x->name < y->name ? -1 : 1;
    if (x->dest != y->dest)
        return x->dest < y->dest ? -1 : 1;
    if ((x->map == NULL) != (y->map == NULL))
        return x->map == NULL ? -1 : 1;
    if (x->map != NULL && !lp_map_equal(x->map, y->map)) {
        if (x->map->dst_lo != y->map->dst_lo)
            return x->map->dst_lo < y->map->dst_lo ? -1 : 1;
        uint8_t dx[32], dy[32];
        lp_map_digest(x->map, dx);
        lp_map_digest(y->map, dy);
        return memcmp(dx, dy, sizeof dx);
    }
    const int operation = strcmp(x->operation, y->operation);
    return operation != 0 ? operation : strcmp(x->reason, y->reason);
}

static int compare_refusals(const void *a, const void *b)
{
    return lp_refusal_compare(a, b);
}

static lp_status place_refusals(lp_trace *t, lp_scope_entry *entry, const uint32_t *new_index, lp_error *err)
{
    const lp_scope_build *b = t->build;
    lp_refusal *refusal = lp_arena_get(&entry->arena, (size_t)b->nrefusal * sizeof *refusal);
    if (refusal == NULL)
        return lp_fail_memory(err);
    for (int64_t i = 0; i < b->nrefusal; i++) {
        LP_TRY(lp_refusal_copy(t, &entry->arena, &b->refusal[i], &refusal[i], err));
        if (refusal[i].dest != LP_NONE)
            refusal[i].dest = new_index[refusal[i].dest];
    }
    qsort(refusal, (size_t)b->nrefusal, sizeof *refusal, compare_refusals);
    uint32_t kept = 0;
    for (int64_t i = 0; i < b->nrefusal; i++) {
        const lp_refusal *last = kept > 0 ? &refusal[kept - 1] : NULL;
        const bool is_known =
            last != NULL && last->name == refusal[i].name && last->dest == refusal[i].dest &&
            (lp_refusal_compare(last, &refusal[i]) == 0 || (last->map == NULL && refusal[i].map != NULL));
        if (!is_known)
            refusal[kept++] = refusal[i];
    }
    entry->rows.refusal = refusal;
    entry->rows.nrefusal = kept;
    return LP_OK;
}

/* ---- the scope ---- */

static void reset_build(lp_scope_build *b, const lp_alloc *alloc)
{
    lp_arena_free(&b->arena);
    lp_strings_free(&b->dest_names);
    lp_arena_init(&b->arena, alloc);
    lp_strings_init(&b->dest_names, alloc);
    b->ndest = b->nrecord = b->nderive = b->nrefusal = 0;
    b->is_open = false;
}

lp_status lp_build_finish(lp_trace *t, lp_error *err)
{
    const lp_alloc *alloc = t->platform.alloc;
    if (!lp_grow(alloc, (void **)&t->scope, &t->scope_capacity, t->scope_count + 1, sizeof *t->scope))
        return lp_fail_memory(err);
    lp_scope_entry entry = {.scope = t->build->scope};
    entry.rows.scope = entry.scope;
    lp_arena_init(&entry.arena, alloc);
    lp_status status = LP_OK;
    uint32_t *new_index = lp_allocate(alloc, (size_t)t->build->ndest * sizeof *new_index);
    if (new_index == NULL) {
        status = lp_fail_memory(err);
        goto free_index;
    }
    LP_TRY_GOTO(place_destinations(t, &entry, new_index, err), free_index);
    LP_TRY_GOTO(place_records(t, &entry, new_index, err), free_index);
    LP_TRY_GOTO(place_derives(t, &entry, new_index, err), free_index);
    LP_TRY_GOTO(place_refusals(t, &entry, new_index, err), free_index);
    LP_TRY_GOTO(lp_plan_digest(t, &entry.rows, entry.rows.digest, err), free_index);
    memcpy(entry.digest, entry.rows.digest, sizeof entry.digest);
    entry.has_rows = true;
    t->scope[t->scope_count++] = entry;
    reset_build(t->build, alloc);

free_index:
    lp_release(alloc, new_index);
    if (status != LP_OK)
        lp_arena_free(&entry.arena);
    return status;
}

static lp_status make_canonical(lp_trace *t, lp_error *err)
{
    const lp_alloc *alloc = t->platform.alloc;
    lp_scope_build *b = t->build;
    lp_writes pieces = {.alloc = alloc}, merged = {.alloc = alloc}, ordered = {.alloc = alloc};
    lp_status status = LP_OK;
    if (b->memo == NULL)
        LP_TRY(lp_cover_memo_new(&b->memo, alloc, err));
    LP_TRY_GOTO(lp_build_merge(t, &pieces, &merged, err), free_writes);
    LP_TRY_GOTO(lp_build_refuse(t, &pieces, &merged, err), free_writes);
    LP_TRY_GOTO(lp_build_order(t, &pieces, &merged, &ordered, err), free_writes);
    /* There may be more writes than calls were: a call that was cut on both sides and split. */
    if (!lp_grow(alloc, (void **)&b->record, &b->record_capacity, ordered.count, sizeof *b->record)) {
        status = lp_fail_memory(err);
        goto free_writes;
    }
    for (int64_t i = 0; i < ordered.count; i++)
        b->record[i] = ordered.item[i].record;
    b->nrecord = ordered.count;

free_writes:
    lp_writes_free(&pieces);
    lp_writes_free(&merged);
    lp_writes_free(&ordered);
    return status;
}

lp_status lp_build_close_scope(lp_trace *t, lp_error *err)
{
    if (t->build == NULL || !t->build->is_open)
        return LP_OK;
    lp_status status = make_canonical(t, err);
    if (status == LP_OK)
        status = lp_build_finish(t, err);
    if (status != LP_OK)
        t->failed = true;
    return status;
}

void lp_build_free(lp_scope_build *build)
{
    if (build == NULL)
        return;
    const lp_alloc *alloc = build->arena.alloc;
    lp_arena_free(&build->arena);
    lp_strings_free(&build->dest_names);
    lp_release(alloc, build->dest);
    lp_release(alloc, build->record);
    lp_release(alloc, build->derive);
    lp_release(alloc, build->refusal);
    lp_cover_memo_free(build->memo);
    lp_release(alloc, build);
}
