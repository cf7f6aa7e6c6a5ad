/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes of one name into one destination. However a loader cuts a copy into calls, the plan is the same: what a later
 * call overwrites is trimmed, and what is left becomes one record for each thing that is done (copy, cast, fill).
 */
#include "traces/trace_build.h"

#include <inttypes.h>
#include <stdlib.h>

bool lp_writes_add(lp_writes *writes, const lp_write *write)
{
    if (!lp_grow(writes->alloc, (void **)&writes->item, &writes->capacity, writes->count + 1, sizeof *writes->item))
        return false;
    writes->item[writes->count++] = *write;
    return true;
}

void lp_writes_free(lp_writes *writes)
{
    lp_release(writes->alloc, writes->item);
    *writes = (lp_writes){.alloc = writes->alloc};
}

/* ---- byte sets ---- */

static int64_t count_boxes(const lp_write *write, int64_t count)
{
    int64_t boxes = 0;
    for (int64_t i = 0; i < count; i++)
        boxes += write[i].record.map->nbox;
    return boxes;
}

lp_status lp_writes_region(lp_trace *t, const lp_map **out, const lp_write *write, int64_t count, lp_error *err)
{
    const lp_alloc *alloc = t->platform.alloc;
    const int64_t nbox = count_boxes(write, count);
    int64_t nmode = 0, m = 0, b = 0;
    for (int64_t i = 0; i < count; i++)
        nmode += write[i].record.map->nmode;
    if (nbox > LP_MAP_BOXES_MAX)
        return lp_fail(err, LP_E_LIMIT, "a region of more than %d boxes", LP_MAP_BOXES_MAX);
    lp_box *box = lp_allocate(alloc, (size_t)nbox * sizeof *box);
    lp_mode *mode = lp_allocate(alloc, (size_t)nmode * sizeof *mode);
    lp_status status = LP_OK;
    if (box == NULL || mode == NULL) {
        status = lp_fail_memory(err);
        goto free_boxes;
    }
    for (int64_t i = 0; i < count; i++) {
        const lp_map *map = write[i].record.map;
        for (int32_t k = 0; k < map->nbox; k++, b++) {
            const lp_box *from = &map->box[k];
            box[b] = (lp_box){.dst_off = from->dst_off + write[i].record.dst_off,
                              .run = from->run * map->dst_elem,
                              .rank = from->rank,
                              .mode = &mode[m]};
            for (int32_t r = 0; r < from->rank; r++)
                mode[m++] = (lp_mode){.extent = from->mode[r].extent, .dst_stride = from->mode[r].dst_stride};
        }
    }
    status = lp_map_from_boxes(out, 0, 1, (int32_t)nbox, box, alloc, err);

free_boxes:
    lp_release(alloc, box);
    lp_release(alloc, mode);
    return status;
}

lp_status lp_write_subtract(lp_trace *t, lp_write *write, const lp_map *cut, int64_t cut_shift, bool *gone,
                            lp_error *err)
{
    const lp_alloc *alloc = t->platform.alloc;
    lp_record *r = &write->record;
    const lp_map *rest;
    LP_TRY(lp_map_subtract(&rest, r->map, cut, cut_shift - r->dst_off, alloc, err));
    lp_status status = LP_OK;
    *gone = rest->nbox == 0;
    if (!*gone) {
        int64_t src_off, dst_off;
        status = lp_map_pool_add(&t->shared->maps, rest, &r->map, &src_off, &dst_off, err);
        if (status == LP_OK) {
            r->src_off += src_off;
            r->dst_off += dst_off;
            r->kind = (uint8_t)lp_pooled_kind(r->map, (lp_dtype)r->src_dtype, (lp_dtype)r->dst_dtype);
        }
    }
    lp_map_free(rest, alloc);
    return status;
}

/* ---- trimming ---- */

static int compare_by_address(const void *a, const void *b)
{
    const lp_write *x = a, *y = b;
    if (x->record.dst_off != y->record.dst_off)
        return x->record.dst_off < y->record.dst_off ? -1 : 1;
    return (x->first > y->first) - (x->first < y->first);
}

static int compare_by_time(const void *a, const void *b)
{
    const lp_write *x = a, *y = b;
    return (x->first > y->first) - (x->first < y->first);
}

static bool ends_before(const lp_write *a, const lp_write *b)
{
    return a->record.dst_off + a->record.map->dst_hi <= b->record.dst_off;
}

/* Marks the writes (sorted by time) that share bytes with another one. Undecided counts as sharing. */
static lp_status find_overwrites(lp_trace *t, const lp_write *write, int64_t count, bool *overlaps, int64_t *found,
                                 lp_error *err)
{
    const lp_alloc *alloc = t->platform.alloc;
    *found = 0;
    memset(overlaps, 0, (size_t)count * sizeof *overlaps);
    lp_cover_item *item = lp_allocate(alloc, (size_t)count * sizeof *item);
    if (item == NULL)
        return lp_fail_memory(err);
    for (int64_t i = 0; i < count; i++)
        item[i] = (lp_cover_item){.map = write[i].record.map, .dst_off = write[i].record.dst_off, .tag = (uint32_t)i};
    lp_cover_report report;
    const lp_status status = lp_cover(&report, NULL, item, count, t->build->memo, alloc, err);
    lp_release(alloc, item);
    LP_TRY(status);
    const bool unsure = report.undecided || report.pairs_truncated;
    for (int64_t i = 0; unsure && i < count; i++)
        overlaps[i] = true;
    for (int64_t p = 0; p < report.npair; p++)
        overlaps[report.pair[p].a] = overlaps[report.pair[p].b] = true;
    for (int64_t i = 0; i < count; i++)
        *found += overlaps[i];
    lp_cover_report_free(&report, alloc);
    return LP_OK;
}

/* Cuts out of `w` what each of `later` writes, but for those that take parts of its elements: there both are kept, and
 * get an order like writes of different names. *cut_all: there was none of these. */
static lp_status trim_one_by_one(lp_trace *t, lp_write *w, const lp_writes *later, bool *gone, bool *cut_all,
                                 lp_error *err)
{
    for (int64_t i = 0; i < later->count && !*gone; i++) {
        const lp_record *cut = &later->item[i].record;
        const lp_status status = lp_write_subtract(t, w, cut->map, cut->dst_off, gone, err);
        if (status != LP_OK && status != LP_E_UNSUPPORTED)
            return status;
        *cut_all = *cut_all && status == LP_OK;
    }
    return LP_OK;
}

/* What trim_backwards knows about the overlapping writes that it has kept. */
typedef struct trimming {
    lp_writes apart;       /* that do not overlap each other */
    const lp_map *written; /* their bytes, or NULL */
    lp_writes uncut;       /* of whose elements later ones take parts */
} trimming;

static lp_status trim_overlapping(lp_trace *t, trimming *later, lp_write *w, bool *gone, lp_error *err)
{
    bool cut_all = true;
    lp_status status = LP_OK;
    if (later->written != NULL)
        status = lp_write_subtract(t, w, later->written, 0, gone, err);
    if (status == LP_E_UNSUPPORTED)
        status = trim_one_by_one(t, w, &later->apart, gone, &cut_all, err);
    LP_TRY(status);
    LP_TRY(trim_one_by_one(t, w, &later->uncut, gone, &cut_all, err));
    if (*gone)
        return LP_OK;
    if (!lp_writes_add(cut_all ? &later->apart : &later->uncut, w))
        return lp_fail_memory(err);
    if (cut_all) {
        const lp_map *more;
        LP_TRY(lp_writes_region(t, &more, later->apart.item, later->apart.count, err));
        lp_map_free(later->written, t->platform.alloc);
        later->written = more;
    }
    return LP_OK;
}

/* From the last write back to the first: what is already written later is cut out. `kept` gets the writes that are
 * left, last one first. */
static lp_status trim_backwards(lp_trace *t, const lp_write *write, int64_t count, const bool *overlaps,
                                lp_writes *kept, lp_error *err)
{
    trimming later = {.apart = {.alloc = t->platform.alloc}, .uncut = {.alloc = t->platform.alloc}};
    lp_status status = LP_OK;
    for (int64_t i = count - 1; i >= 0; i--) {
        lp_write w = write[i];
        bool gone = false;
        if (overlaps[i])
            LP_TRY_GOTO(trim_overlapping(t, &later, &w, &gone, err), free_later);
        if (!gone && !lp_writes_add(kept, &w)) {
            status = lp_fail_memory(err);
            goto free_later;
        }
    }

free_later:
    lp_map_free(later.written, t->platform.alloc);
    lp_writes_free(&later.apart);
    lp_writes_free(&later.uncut);
    return status;
}

/* Trims writes [from, count) of one name and destination, which are sorted by time; at the end they still are. */
static lp_status trim_group(lp_trace *t, lp_writes *writes, int64_t from, lp_error *err)
{
    const lp_alloc *alloc = t->platform.alloc;
    lp_write *group = &writes->item[from];
    const int64_t count = writes->count - from;
    bool is_apart = true;
    qsort(group, (size_t)count, sizeof *group, compare_by_address);
    for (int64_t i = 1; i < count && is_apart; i++)
        is_apart = ends_before(&group[i - 1], &group[i]);
    qsort(group, (size_t)count, sizeof *group, compare_by_time);
    if (is_apart)
        return LP_OK;

    bool *overlaps = lp_allocate(alloc, (size_t)count * sizeof *overlaps);
    if (overlaps == NULL)
        return lp_fail_memory(err);
    lp_writes kept = {.alloc = alloc};
    lp_status status;
    int64_t found;
    LP_TRY_GOTO(find_overwrites(t, group, count, overlaps, &found, err), free_overlaps);
    if (found == 0)
        goto free_overlaps;
    if (found > LP_OVERWRITES_MAX) {
        const char *dest = t->build->dest[group->record.dest].name;
        status = lp_fail_at(err, LP_E_LIMIT, dest, -1,
                            "%" PRId64 " writes of one name into '%s' overwrite each other; at most %d are followed",
                            found, dest, LP_OVERWRITES_MAX);
        goto free_overlaps;
    }
    LP_TRY_GOTO(trim_backwards(t, group, count, overlaps, &kept, err), free_overlaps);
    memcpy(group, kept.item, (size_t)kept.count * sizeof *group);
    writes->count = from + kept.count;
    qsort(group, (size_t)kept.count, sizeof *group, compare_by_time);

free_overlaps:
    lp_writes_free(&kept);
    lp_release(alloc, overlaps);
    return status;
}

/* ---- merging ---- */

/* Equal for writes that do the same thing to bytes. */
static int compare_by_deed(const void *a, const void *b)
{
    const lp_write *x = a, *y = b;
    const uint64_t kx[] = {
        x->record.src_dtype, x->record.dst_dtype, (uint64_t)x->record.map->src_elem, (uint64_t)x->record.map->dst_elem,
        x->record.fill_bits, x->record.seq};
    const uint64_t ky[] = {
        y->record.src_dtype, y->record.dst_dtype, (uint64_t)y->record.map->src_elem, (uint64_t)y->record.map->dst_elem,
        y->record.fill_bits, y->record.seq};
    for (size_t i = 0; i < sizeof kx / sizeof *kx; i++)
        if (kx[i] != ky[i])
            return kx[i] < ky[i] ? -1 : 1;
    return 0;
}

/* One map for `count` writes of one deed, into *merged. */
static lp_status merge_set(lp_trace *t, const lp_write *write, int64_t count, lp_write *merged, lp_error *err)
{
    const lp_alloc *alloc = t->platform.alloc;
    const int64_t nbox = count_boxes(write, count);
    lp_box *box = lp_allocate(alloc, (size_t)nbox * sizeof *box);
    if (box == NULL)
        return lp_fail_memory(err);
    int64_t b = 0, last = write[0].last;
    *merged = write[0];
    for (int64_t i = 0; i < count; i++) {
        const lp_record *r = &write[i].record;
        if (write[i].first < merged->first)
            *merged = write[i]; /* the earliest one's provenance is kept */
        if (write[i].last > last)
            last = write[i].last;
        for (int32_t k = 0; k < r->map->nbox; k++, b++) {
            box[b] = r->map->box[k];
            box[b].src_off += r->src_off;
            box[b].dst_off += r->dst_off;
        }
    }
    merged->last = last;
    const lp_map *first = write[0].record.map, *map;
    lp_status status = lp_map_from_boxes(&map, first->src_elem, first->dst_elem, (int32_t)nbox, box, alloc, err);
    lp_release(alloc, box);
    LP_TRY(status);
    lp_record *r = &merged->record;
    status = lp_map_pool_add(&t->shared->maps, map, &r->map, &r->src_off, &r->dst_off, err);
    if (status == LP_OK)
        r->kind = (uint8_t)lp_pooled_kind(r->map, (lp_dtype)r->src_dtype, (lp_dtype)r->dst_dtype);
    lp_map_free(map, alloc);
    return status;
}

/* One pass over writes of one deed: neighbours by address become one as far as the limit of boxes allows. In place. */
static lp_status merge_neighbours(lp_trace *t, lp_write *write, int64_t *count, lp_error *err)
{
    int64_t kept = 0;
    qsort(write, (size_t)*count, sizeof *write, compare_by_address);
    for (int64_t i = 0, end; i < *count; i = end) {
        int64_t boxes = write[i].record.map->nbox;
        for (end = i + 1; end < *count && boxes + write[end].record.map->nbox <= LP_MAP_BOXES_MAX; end++)
            boxes += write[end].record.map->nbox;
        lp_write merged = write[i];
        if (end - i > 1)
            LP_TRY(merge_set(t, &write[i], end - i, &merged, err));
        write[kept++] = merged;
    }
    *count = kept;
    return LP_OK;
}

/* Makes one write of writes of one deed. There may be more calls than boxes in one map: a pass folds them part by part,
 * the next one what is left. When it ends with more than one they stay as they were. */
static lp_status merge_deed(lp_trace *t, lp_write *write, int64_t *count, lp_error *err)
{
    const lp_alloc *alloc = t->platform.alloc;
    const size_t bytes = (size_t)*count * sizeof *write;
    lp_write *copy = lp_allocate(alloc, bytes);
    if (copy == NULL)
        return lp_fail_memory(err);
    memcpy(copy, write, bytes);
    int64_t left = *count, before;
    lp_error why;
    lp_status status;
    do {
        before = left;
        status = merge_neighbours(t, copy, &left, &why);
    } while (status == LP_OK && left > 1 && left < before);
    if (status == LP_OK && left == 1) {
        write[0] = copy[0];
        *count = 1;
    }
    lp_release(alloc, copy);
    if (status == LP_OK || status == LP_E_LIMIT) /* a limit is no error */
        return LP_OK;
    if (err != NULL)
        *err = why;
    return status;
}

lp_status lp_writes_merge(lp_trace *t, lp_writes *writes, int64_t from, lp_error *err)
{
    lp_write *group = &writes->item[from];
    const int64_t count = writes->count - from;
    if (count < 2)
        return LP_OK;
    qsort(group, (size_t)count, sizeof *group, compare_by_deed);
    int64_t kept = 0;
    for (int64_t i = 0, end; i < count; i = end) {
        for (end = i + 1; end < count && compare_by_deed(&group[i], &group[end]) == 0;)
            end++;
        int64_t left = end - i;
        if (left > 1)
            LP_TRY(merge_deed(t, &group[i], &left, err));
        memmove(&group[kept], &group[i], (size_t)left * sizeof *group);
        kept += left;
    }
    writes->count = from + kept;
    return LP_OK;
}

lp_status lp_build_merge(lp_trace *t, lp_writes *pieces, lp_writes *merged, lp_error *err)
{
    const lp_alloc *alloc = t->platform.alloc;
    const lp_scope_build *b = t->build;
    const int64_t count = b->nrecord;
    lp_sort_item *item = lp_allocate(alloc, (size_t)count * 2 * sizeof *item);
    if (item == NULL)
        return lp_fail_memory(err);
    for (int64_t i = 0; i < count; i++) {
        item[i].key = (uint64_t)b->record[i].dest << 32 | b->record[i].name;
        item[i].value = (uint64_t)i;
    }
    lp_sort_by_key(item, item + count, count);

    lp_status status = LP_OK;
    for (int64_t i = 0, end; i < count; i = end) {
        const int64_t first_piece = pieces->count, first_merged = merged->count;
        for (end = i; end < count && item[end].key == item[i].key; end++) {
            const int64_t at = (int64_t)item[end].value;
            const lp_write write = {.record = b->record[at], .first = at, .last = at};
            if (!lp_writes_add(pieces, &write)) {
                status = lp_fail_memory(err);
                goto free_items;
            }
        }
        if (end - i > 1)
            LP_TRY_GOTO(trim_group(t, pieces, first_piece, err), free_items);
        for (int64_t p = first_piece; p < pieces->count; p++)
            if (!lp_writes_add(merged, &pieces->item[p])) {
                status = lp_fail_memory(err);
                goto free_items;
            }
        if (pieces->count - first_piece > 1)
            LP_TRY_GOTO(lp_writes_merge(t, merged, first_merged, err), free_items);
    }

free_items:
    lp_release(alloc, item);
    return status;
}
