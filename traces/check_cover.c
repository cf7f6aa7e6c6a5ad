/* SPDX-License-Identifier: Apache-2.0 */
/*
 * check, bytes: every logical byte of every destination has exactly one writer. Destinations of one storage whose bytes
 * or writers touch are looked at together, because a tied destination is written through its partner; any other
 * destination is a problem of its own, relative to its first element, so that layers and ranks repeat each other.
 */
#include "traces/check_writers.h"

#include <stdlib.h>

enum { GROUP_WORK_MAX = 1 << 26 }; /* destinations times writers of one group */

/* ---- one destination, or several that share bytes ---- */

static bool has_fallback_of_all(const lp_cover_pass *p, uint32_t d)
{
    for (int64_t i = p->first[d]; i < p->first[d + 1]; i++)
        if (p->writer[i].kind == LP_BY_REFUSAL && p->writer[i].map == NULL)
            return true;
    return false;
}

/* Items of the writers of destination d, moved by `shift`; loose where the item only fills gaps, as in another
 * destination: of that, a refusal of all of d leaves the bytes to the engine too. */
static int64_t add_items(lp_cover_pass *p, int64_t count, uint32_t d, int64_t shift, bool loose)
{
    for (int64_t i = p->first[d]; i < p->first[d + 1]; i++) {
        const lp_writer *w = &p->writer[i];
        const lp_map *map = w->map == NULL && loose && p->is_nested[d] ? &p->target[d].map : w->map;
        if (map == NULL)
            continue;
        p->item_writer[count] = w;
        p->item[count] = (lp_cover_item){
            .map = map, .dst_off = w->off + shift, .tag = (uint32_t)count, .loose = loose || w->kind == LP_BY_REFUSAL};
        count++;
    }
    return count;
}

static lp_status report_pairs(lp_cover_pass *p, const lp_cover_report *r, int64_t shift, lp_error *err)
{
    for (int64_t i = 0; i < r->npair; i++) {
        const lp_writer *a = p->item_writer[r->pair[i].a], *b = p->item_writer[r->pair[i].b];
        const int64_t back = shift - p->rows->dest[a->dest].offset;
        LP_TRY(lp_cover_note_pair(p, a, b, r->pair[i].byte_lo + back, r->pair[i].byte_hi + back, err));
    }
    return LP_OK;
}

/* What the sweep of destination d says about gaps and bytes outside; bytes of the report start at `shift`. */
static lp_status report_target(lp_cover_pass *p, uint32_t d, const lp_cover_report *r, int64_t shift, lp_error *err)
{
    const lp_destination *dest = &p->rows->dest[d];
    lp_cover_report local = *r;
    local.gap_lo -= shift;
    local.gap_hi -= shift;
    if (r->outside)
        LP_TRY(lp_cover_note_outside(p, dest, p->item_writer[r->outside_tag], r->outside_lo - shift,
                                     r->outside_hi - shift, err));
    if (r->uncovered_bytes > 0 && !has_fallback_of_all(p, d))
        LP_TRY(lp_cover_note_uncovered(p, dest, &local, err));
    return r->undecided || r->pairs_truncated ? lp_cover_note_undecided(p, dest, err) : LP_OK;
}

/* A destination that no loader may write has no gaps; whatever writes it is a second owner. */
static lp_status check_unloaded(lp_cover_pass *p, uint32_t d, lp_error *err)
{
    for (int64_t i = p->first[d]; i < p->first[d + 1]; i++) {
        const lp_writer *w = &p->writer[i];
        if (w->kind == LP_BY_REFUSAL)
            continue;
        LP_TRY(lp_cover_note_unloaded(p, w, err));
    }
    return LP_OK;
}

/* Overlaps among all writers of the group, which write through different destinations of one storage. */
static lp_status check_group_pairs(lp_cover_pass *p, const lp_extent *e, int64_t n, lp_error *err)
{
    lp_cover_report r;
    int64_t count = 0;
    for (int64_t i = 0; i < n; i++)
        count = add_items(p, count, e[i].dest, p->rows->dest[e[i].dest].offset, false);
    LP_TRY(lp_cover(&r, NULL, p->item, count, p->c->memo, p->c->alloc, err));
    lp_status status = report_pairs(p, &r, 0, err);
    if (status == LP_OK && (r.undecided || r.pairs_truncated))
        status = lp_cover_note_undecided(p, &p->rows->dest[e[0].dest], err);
    lp_cover_report_free(&r, p->c->alloc);
    return status;
}

static lp_status check_alone(lp_cover_pass *p, const lp_extent *e, lp_error *err)
{
    const uint32_t d = e->dest;
    if (p->rows->dest[d].flags & LP_DEST_NO_LOADER) {
        LP_TRY(check_group_pairs(p, e, 1, err));
        return check_unloaded(p, d, err);
    }
    if (!p->is_nested[d])
        return lp_cover_note_undecided(p, &p->rows->dest[d], err);
    lp_cover_report r;
    const int64_t count = add_items(p, 0, d, 0, false);
    LP_TRY(lp_cover(&r, &p->target[d].map, p->item, count, p->c->memo, p->c->alloc, err));
    lp_status status = report_pairs(p, &r, p->rows->dest[d].offset, err);
    if (status == LP_OK)
        status = report_target(p, d, &r, 0, err);
    lp_cover_report_free(&r, p->c->alloc);
    return status;
}

/* The target of d where element [0, ..., 0] lies at `off`. The boxes are shared, so only one shift is in use at a time.
 */
static lp_status cover_shifted(lp_cover_pass *p, uint32_t d, int64_t off, int64_t count, lp_cover_report *r,
                               lp_error *err)
{
    lp_cover_target *t = &p->target[d];
    t->box.dst_off = off;
    const lp_status status = lp_cover(r, &t->map, p->item, count, p->c->memo, p->c->alloc, err);
    t->box.dst_off = 0;
    return status;
}

static lp_status check_aliases(lp_cover_pass *p, const lp_extent *e, int64_t n, lp_error *err)
{
    lp_cover_report r;
    lp_cover_item *item = p->item;
    int64_t count = 0;
    for (int64_t i = 0; i < n; i++)
        if (p->is_nested[e[i].dest])
            item[count++] = (lp_cover_item){.map = &p->target[e[i].dest].map,
                                            .dst_off = p->rows->dest[e[i].dest].offset,
                                            .tag = e[i].dest,
                                            .brief = true};
    LP_TRY(lp_cover(&r, NULL, item, count, p->c->memo, p->c->alloc, err));
    lp_status status = LP_OK;
    for (int64_t i = 0; i < r.npair && status == LP_OK; i++)
        status = lp_cover_note_alias(p, r.pair[i].a, r.pair[i].b, r.pair[i].byte_lo, r.pair[i].byte_hi, err);
    if (status == LP_OK && (r.undecided || r.pairs_truncated))
        status = lp_cover_note_undecided(p, &p->rows->dest[e[0].dest], err);
    lp_cover_report_free(&r, p->c->alloc);
    return status;
}

static lp_status check_group(lp_cover_pass *p, const lp_extent *e, int64_t n, lp_error *err)
{
    int64_t writers = 0;
    for (int64_t i = 0; i < n; i++)
        writers += p->first[e[i].dest + 1] - p->first[e[i].dest];
    if (writers > 0 && n > GROUP_WORK_MAX / writers)
        return lp_cover_note_undecided(p, &p->rows->dest[e[0].dest], err);
    LP_TRY(check_aliases(p, e, n, err));
    LP_TRY(check_group_pairs(p, e, n, err));
    for (int64_t i = 0; i < n; i++) {
        const uint32_t d = e[i].dest;
        const lp_destination *dest = &p->rows->dest[d];
        if (dest->flags & LP_DEST_NO_LOADER) {
            LP_TRY(check_unloaded(p, d, err));
            continue;
        }
        if (!p->is_nested[d]) {
            LP_TRY(lp_cover_note_undecided(p, dest, err));
            continue;
        }
        int64_t count = 0;
        for (int64_t k = 0; k < n; k++)
            count = add_items(p, count, e[k].dest, p->rows->dest[e[k].dest].offset, k != i);
        lp_cover_report r;
        LP_TRY(cover_shifted(p, d, dest->offset, count, &r, err));
        const lp_status status = report_target(p, d, &r, dest->offset, err);
        lp_cover_report_free(&r, p->c->alloc);
        LP_TRY(status);
    }
    return LP_OK;
}

/* ---- groups ---- */

static int by_storage(const void *pa, const void *pb)
{
    const lp_extent *a = pa, *b = pb;
    const int order = a->storage == b->storage ? 0 : strcmp(a->storage, b->storage);
    if (order != 0)
        return order;
    if (a->lo != b->lo)
        return a->lo < b->lo ? -1 : 1;
    return (a->dest > b->dest) - (a->dest < b->dest);
}

/* Ranges were checked when the rows were read: sums of offsets inside a storage do not overflow. */
static lp_status list_extents(lp_cover_pass *p, lp_error *err)
{
    const lp_rows *rows = p->rows;
    for (uint32_t d = 0; d < rows->ndest; d++) {
        const lp_destination *dest = &rows->dest[d];
        const lp_status status = lp_cover_target_of(&p->target[d], dest, err);
        if (status != LP_OK && status != LP_E_UNSUPPORTED)
            return status;
        p->is_nested[d] = status == LP_OK;
        lp_extent e = {.storage = dest->storage, .lo = dest->offset, .hi = dest->offset, .dest = d};
        e.hi += p->is_nested[d] ? p->target[d].map.dst_hi : dest->storage_bytes - dest->offset;
        for (int64_t i = p->first[d]; i < p->first[d + 1]; i++) {
            const lp_writer *w = &p->writer[i];
            if (w->map == NULL)
                continue;
            const int64_t lo = dest->offset + w->off + w->map->dst_lo, hi = dest->offset + w->off + w->map->dst_hi;
            e.lo = lo < e.lo ? lo : e.lo;
            e.hi = hi > e.hi ? hi : e.hi;
        }
        p->extent[d] = e;
    }
    qsort(p->extent, rows->ndest, sizeof *p->extent, by_storage);
    return LP_OK;
}

static lp_status check_groups(lp_cover_pass *p, lp_error *err)
{
    const uint32_t n = p->rows->ndest;
    for (uint32_t i = 0, end; i < n; i = end) {
        int64_t hi = p->extent[i].hi;
        for (end = i + 1; end < n && p->extent[end].lo < hi; end++) {
            if (strcmp(p->extent[end].storage, p->extent[i].storage) != 0)
                break;
            hi = p->extent[end].hi > hi ? p->extent[end].hi : hi;
        }
        if (end - i == 1)
            LP_TRY(check_alone(p, &p->extent[i], err));
        else
            LP_TRY(check_group(p, &p->extent[i], end - i, err));
    }
    return LP_OK;
}

lp_status lp_check_cover(lp_checker *c, lp_error *err)
{
    lp_cover_pass p = {.c = c, .rows = c->rows};
    const size_t n = c->rows->ndest;
    lp_status status;
    p.extent = lp_allocate(c->alloc, n * sizeof *p.extent);
    p.target = lp_allocate(c->alloc, n * sizeof *p.target);
    p.is_nested = lp_allocate(c->alloc, n * sizeof *p.is_nested);
    if (p.extent == NULL || p.target == NULL || p.is_nested == NULL) {
        status = lp_fail_memory(err);
        goto free_pass;
    }
    LP_TRY_GOTO(lp_cover_list_writers(&p, err), free_pass);
    LP_TRY_GOTO(list_extents(&p, err), free_pass);
    LP_TRY_GOTO(check_groups(&p, err), free_pass);

free_pass:
    lp_release(c->alloc, p.writer);
    lp_release(c->alloc, p.first);
    lp_release(c->alloc, p.item);
    lp_release(c->alloc, p.item_writer);
    lp_release(c->alloc, p.extent);
    lp_release(c->alloc, p.target);
    lp_release(c->alloc, p.is_nested);
    return status;
}
