/* SPDX-License-Identifier: Apache-2.0 */
/*
 * check, bytes: every logical byte of every destination has exactly one writer. Destinations of one storage whose bytes
 * or writers touch are looked at together, because a tied destination is written through its partner; any other
 * destination is a problem of its own, relative to its first element, so that layers and ranks repeat each other.
 */
#include "traces/check_private.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum { GROUP_WORK_MAX = 1 << 26 }; /* destinations times writers of one group */

typedef enum writer_kind { BY_RECORD, BY_DERIVE, BY_REFUSAL } writer_kind;

/* Something that writes bytes of a destination. */
typedef struct writer {
    writer_kind kind;
    uint32_t row; /* of the scope's records, derives or refusals */
    uint32_t dest;
    const lp_map *map; /* NULL: a refusal of the whole destination */
    int64_t off;       /* of the map, from the destination's first element */
} writer;

/* Where a destination lies; those of one storage whose extents touch are looked at together. */
typedef struct extent {
    const char *storage;
    int64_t lo, hi; /* in the storage: logical bytes and everything that is written through it */
    uint32_t dest;
} extent;

typedef struct cover_pass {
    lp_checker *c;
    const lp_rows *rows;
    writer *writer; /* by destination */
    int64_t writers;
    int64_t *first; /* writers of destination d: first[d] .. first[d + 1] - 1 */
    extent *extent; /* by storage, then lo */
    lp_cover_item *item;
    const writer **item_writer;
    lp_cover_target *target; /* per destination */
    bool *is_nested;
} cover_pass;

/* ---- writers by destination ---- */

static void put_writer(cover_pass *p, int64_t *next, const writer *w)
{
    p->writer[next[w->dest]++] = *w;
}

static lp_status list_writers(cover_pass *p, lp_error *err)
{
    const lp_rows *rows = p->rows;
    int64_t *next = lp_allocate_zero(p->c->alloc, ((size_t)rows->ndest + 1) * sizeof *next);
    p->first = lp_allocate_zero(p->c->alloc, ((size_t)rows->ndest + 1) * sizeof *p->first);
    if (next == NULL || p->first == NULL)
        goto no_memory;
    for (uint32_t i = 0; i < rows->nrecord; i++)
        p->first[rows->record[i].dest + 1]++;
    for (uint32_t i = 0; i < rows->nderive; i++)
        if (rows->derive[i].dest != LP_NONE)
            p->first[rows->derive[i].dest + 1]++;
    for (uint32_t i = 0; i < rows->nrefusal; i++)
        if (rows->refusal[i].dest != LP_NONE)
            p->first[rows->refusal[i].dest + 1]++;
    for (uint32_t d = 0; d < rows->ndest; d++)
        p->first[d + 1] += p->first[d];
    memcpy(next, p->first, ((size_t)rows->ndest + 1) * sizeof *next);
    p->writers = p->first[rows->ndest];
    p->writer = lp_allocate(p->c->alloc, (size_t)p->writers * sizeof *p->writer);
    p->item = lp_allocate(p->c->alloc, ((size_t)p->writers + rows->ndest) * sizeof *p->item);
    p->item_writer = lp_allocate(p->c->alloc, (size_t)p->writers * sizeof *p->item_writer);
    if (p->writer == NULL || p->item == NULL || p->item_writer == NULL)
        goto no_memory;
    for (uint32_t i = 0; i < rows->nrecord; i++) {
        const lp_record *r = &rows->record[i];
        put_writer(p, next, &(writer){BY_RECORD, i, r->dest, r->map, r->dst_off});
    }
    for (uint32_t i = 0; i < rows->nderive; i++)
        if (rows->derive[i].dest != LP_NONE)
            put_writer(p, next, &(writer){BY_DERIVE, i, rows->derive[i].dest, rows->derive[i].map, 0});
    for (uint32_t i = 0; i < rows->nrefusal; i++)
        if (rows->refusal[i].dest != LP_NONE)
            put_writer(p, next, &(writer){BY_REFUSAL, i, rows->refusal[i].dest, rows->refusal[i].map, 0});
    lp_release(p->c->alloc, next);
    return LP_OK;

no_memory:
    lp_release(p->c->alloc, next);
    return lp_fail_memory(err);
}

/* ---- findings ---- */

static uint32_t name_of(const cover_pass *p, const writer *w)
{
    switch (w->kind) {
    case BY_RECORD:
        return p->rows->record[w->row].name;
    case BY_REFUSAL:
        return p->rows->refusal[w->row].name;
    case BY_DERIVE:
        break;
    }
    return LP_NONE;
}

static const char *describe(const cover_pass *p, const writer *w, char *buffer, size_t bytes)
{
    if (w->kind == BY_DERIVE)
        snprintf(buffer, bytes, "a derive");
    else if (name_of(p, w) == LP_NAME_BEGIN)
        snprintf(buffer, bytes, "a fill at the beginning");
    else
        snprintf(buffer, bytes, "'%s'", lp_check_name(p->c, name_of(p, w)));
    return buffer;
}

static uint32_t provenance_of(const cover_pass *p, const writer *w)
{
    switch (w->kind) {
    case BY_RECORD:
        return p->rows->record[w->row].provenance;
    case BY_DERIVE:
        return p->rows->derive[w->row].provenance;
    case BY_REFUSAL:
        break;
    }
    return p->rows->refusal[w->row].provenance;
}

static lp_status note_undecided(cover_pass *p, const lp_destination *d, lp_error *err)
{
    bool first;
    const lp_note note = lp_check_note(p->c, LP_RULE_UNDECIDED, d->name, "");
    LP_TRY(lp_findings_note(p->c->findings, &note, &first, err));
    return first
               ? lp_findings_text(p->c->findings, err,
                                  "the pieces that write '%s' interleave too finely to be proven disjoint and complete",
                                  d->name)
               : LP_OK;
}

static lp_status note_gap(cover_pass *p, const lp_destination *d, const lp_cover_report *r, lp_error *err)
{
    bool first;
    lp_note note = lp_check_note(p->c, LP_RULE_DEST_UNCOVERED, d->name, "");
    note.byte_lo = r->gap_lo;
    note.byte_hi = r->gap_hi;
    LP_TRY(lp_findings_note(p->c->findings, &note, &first, err));
    if (!first)
        return LP_OK;
    return lp_findings_text(p->c->findings, err,
                            "%" PRId64 " bytes of '%s' are written by nothing, the first are [%" PRId64 ", %" PRId64
                            ")",
                            r->uncovered_bytes, d->name, r->gap_lo, r->gap_hi);
}

static lp_status note_outside(cover_pass *p, const lp_destination *d, const writer *w, int64_t lo, int64_t hi,
                              lp_error *err)
{
    bool first;
    char name[600];
    lp_note note = lp_check_note(p->c, LP_RULE_SHAPE_MISMATCH, d->name, "outside");
    note.byte_lo = lo;
    note.byte_hi = hi;
    lp_check_place(p->c, &note, provenance_of(p, w));
    LP_TRY(lp_findings_note(p->c->findings, &note, &first, err));
    if (!first)
        return LP_OK;
    return lp_findings_text(p->c->findings, err,
                            "%s writes bytes [%" PRId64 ", %" PRId64 ") of '%s', which are no element of it",
                            describe(p, w, name, sizeof name), lo, hi, d->name);
}

/* Two writers share bytes: nothing where their order is known, a warning where it is recorded, else a denial. */
static lp_status note_pair(cover_pass *p, const writer *a, const writer *b, int64_t lo, int64_t hi, lp_error *err)
{
    const lp_rows *rows = p->rows;
    const lp_destination *d = &rows->dest[a->dest];
    if (a->kind == BY_RECORD && b->kind == BY_DERIVE)
        p->c->derive_meets_record[b->row] = true;
    if (b->kind == BY_RECORD && a->kind == BY_DERIVE)
        p->c->derive_meets_record[a->row] = true;
    bool is_ordered = false;
    if (a->kind == BY_RECORD && b->kind == BY_RECORD) {
        const lp_record *x = &rows->record[a->row], *y = &rows->record[b->row];
        if (x->name == LP_NAME_BEGIN || y->name == LP_NAME_BEGIN || x->name == y->name)
            return LP_OK; /* the beginning comes first; the writes of one name keep their order */
        is_ordered = x->seq > 0 && y->seq > 0 && x->seq != y->seq;
    }
    bool first;
    char one[600], other[600];
    lp_note note = lp_check_note(p->c, is_ordered ? LP_RULE_ORDER_DEPENDENT : LP_RULE_DEST_OVERLAP, d->name, "");
    note.byte_lo = lo;
    note.byte_hi = hi;
    lp_check_place(p->c, &note, provenance_of(p, b));
    LP_TRY(lp_findings_note(p->c->findings, &note, &first, err));
    if (!first)
        return LP_OK;
    return lp_findings_text(p->c->findings, err, "%s and %s both write bytes [%" PRId64 ", %" PRId64 ") of '%s': %s",
                            describe(p, a, one, sizeof one), describe(p, b, other, sizeof other), lo, hi, d->name,
                            is_ordered ? "the later one wins, so their recorded order has to be kept"
                                       : "which one wins depends on the order of arrival");
}

/* ---- one destination, or several that share bytes ---- */

static bool has_fallback_of_all(const cover_pass *p, uint32_t d)
{
    for (int64_t i = p->first[d]; i < p->first[d + 1]; i++)
        if (p->writer[i].kind == BY_REFUSAL && p->writer[i].map == NULL)
            return true;
    return false;
}

/* Items of the writers of destination d, moved by `shift`; loose where the item only fills gaps. */
static int64_t add_items(cover_pass *p, int64_t count, uint32_t d, int64_t shift, bool loose)
{
    for (int64_t i = p->first[d]; i < p->first[d + 1]; i++) {
        const writer *w = &p->writer[i];
        if (w->map == NULL)
            continue;
        p->item_writer[count] = w;
        p->item[count] = (lp_cover_item){
            .map = w->map, .dst_off = w->off + shift, .tag = (uint32_t)count, .loose = loose || w->kind == BY_REFUSAL};
        count++;
    }
    return count;
}

static lp_status report_pairs(cover_pass *p, const lp_cover_report *r, int64_t shift, lp_error *err)
{
    for (int64_t i = 0; i < r->npair; i++) {
        const writer *a = p->item_writer[r->pair[i].a], *b = p->item_writer[r->pair[i].b];
        const int64_t back = shift - p->rows->dest[a->dest].offset;
        LP_TRY(note_pair(p, a, b, r->pair[i].byte_lo + back, r->pair[i].byte_hi + back, err));
    }
    return LP_OK;
}

/* What the sweep of destination d says about gaps and bytes outside; bytes of the report start at `shift`. */
static lp_status report_target(cover_pass *p, uint32_t d, const lp_cover_report *r, int64_t shift, lp_error *err)
{
    const lp_destination *dest = &p->rows->dest[d];
    lp_cover_report local = *r;
    local.gap_lo -= shift;
    local.gap_hi -= shift;
    if (r->outside)
        LP_TRY(
            note_outside(p, dest, p->item_writer[r->outside_tag], r->outside_lo - shift, r->outside_hi - shift, err));
    if (r->uncovered_bytes > 0 && !has_fallback_of_all(p, d))
        LP_TRY(note_gap(p, dest, &local, err));
    return r->undecided || r->pairs_truncated ? note_undecided(p, dest, err) : LP_OK;
}

/* A destination that no loader may write has no gaps; whatever writes it is a second owner. */
static lp_status check_unloaded(cover_pass *p, uint32_t d, lp_error *err)
{
    const lp_destination *dest = &p->rows->dest[d];
    for (int64_t i = p->first[d]; i < p->first[d + 1]; i++) {
        const writer *w = &p->writer[i];
        if (w->kind == BY_REFUSAL)
            continue;
        bool first;
        char name[600];
        lp_note note = lp_check_note(p->c, LP_RULE_DEST_OVERLAP, dest->name, "no loader");
        note.byte_lo = w->off + w->map->dst_lo;
        note.byte_hi = w->off + w->map->dst_hi;
        lp_check_place(p->c, &note, provenance_of(p, w));
        LP_TRY(lp_findings_note(p->c->findings, &note, &first, err));
        if (first)
            LP_TRY(lp_findings_text(p->c->findings, err, "%s writes '%s', which is declared to have no loader bytes",
                                    describe(p, w, name, sizeof name), dest->name));
    }
    return LP_OK;
}

static lp_status check_alone(cover_pass *p, uint32_t d, lp_error *err)
{
    if (p->rows->dest[d].flags & LP_DEST_NO_LOADER)
        return check_unloaded(p, d, err);
    if (!p->is_nested[d])
        return note_undecided(p, &p->rows->dest[d], err);
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
static lp_status cover_shifted(cover_pass *p, uint32_t d, int64_t off, int64_t count, lp_cover_report *r, lp_error *err)
{
    lp_cover_target *t = &p->target[d];
    t->box.dst_off = off;
    const lp_status status = lp_cover(r, &t->map, p->item, count, p->c->memo, p->c->alloc, err);
    t->box.dst_off = 0;
    return status;
}

static lp_status note_alias(cover_pass *p, uint32_t a, uint32_t b, int64_t lo, int64_t hi, lp_error *err)
{
    const lp_destination *x = &p->rows->dest[a], *y = &p->rows->dest[b];
    if ((x->flags | y->flags) & LP_DEST_TIED)
        return LP_OK;
    bool first;
    lp_note note = lp_check_note(p->c, LP_RULE_DEST_ALIAS, y->name, "");
    note.byte_lo = lo - y->offset;
    note.byte_hi = hi - y->offset;
    LP_TRY(lp_findings_note(p->c->findings, &note, &first, err));
    if (!first)
        return LP_OK;
    LP_TRY(lp_findings_text(p->c->findings, err,
                            "'%s' and '%s' share bytes [%" PRId64 ", %" PRId64 ") of storage '%s' and declare no tie",
                            x->name, y->name, lo, hi, y->storage));
    return lp_findings_hint(p->c->findings, "declare the tie, or give each its own storage", err);
}

static lp_status check_aliases(cover_pass *p, const extent *e, int64_t n, lp_error *err)
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
        status = note_alias(p, r.pair[i].a, r.pair[i].b, r.pair[i].byte_lo, r.pair[i].byte_hi, err);
    if (status == LP_OK && (r.undecided || r.pairs_truncated))
        status = note_undecided(p, &p->rows->dest[e[0].dest], err);
    lp_cover_report_free(&r, p->c->alloc);
    return status;
}

/* Overlaps among all writers of the group, which write through different destinations of one storage. */
static lp_status check_group_pairs(cover_pass *p, const extent *e, int64_t n, lp_error *err)
{
    lp_cover_report r;
    int64_t count = 0;
    for (int64_t i = 0; i < n; i++)
        count = add_items(p, count, e[i].dest, p->rows->dest[e[i].dest].offset, false);
    LP_TRY(lp_cover(&r, NULL, p->item, count, p->c->memo, p->c->alloc, err));
    lp_status status = report_pairs(p, &r, 0, err);
    if (status == LP_OK && (r.undecided || r.pairs_truncated))
        status = note_undecided(p, &p->rows->dest[e[0].dest], err);
    lp_cover_report_free(&r, p->c->alloc);
    return status;
}

static lp_status check_group(cover_pass *p, const extent *e, int64_t n, lp_error *err)
{
    int64_t writers = 0;
    for (int64_t i = 0; i < n; i++)
        writers += p->first[e[i].dest + 1] - p->first[e[i].dest];
    if (writers > 0 && n > GROUP_WORK_MAX / writers)
        return note_undecided(p, &p->rows->dest[e[0].dest], err);
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
            LP_TRY(note_undecided(p, dest, err));
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
    const extent *a = pa, *b = pb;
    const int order = a->storage == b->storage ? 0 : strcmp(a->storage, b->storage);
    if (order != 0)
        return order;
    if (a->lo != b->lo)
        return a->lo < b->lo ? -1 : 1;
    return (a->dest > b->dest) - (a->dest < b->dest);
}

/* Ranges were checked when the rows were read: sums of offsets inside a storage do not overflow. */
static lp_status list_extents(cover_pass *p, lp_error *err)
{
    const lp_rows *rows = p->rows;
    for (uint32_t d = 0; d < rows->ndest; d++) {
        const lp_destination *dest = &rows->dest[d];
        const lp_status status = lp_cover_target_of(&p->target[d], dest, err);
        if (status != LP_OK && status != LP_E_UNSUPPORTED)
            return status;
        p->is_nested[d] = status == LP_OK;
        extent e = {.storage = dest->storage, .lo = dest->offset, .hi = dest->offset, .dest = d};
        e.hi += p->is_nested[d] ? p->target[d].map.dst_hi : dest->storage_bytes - dest->offset;
        for (int64_t i = p->first[d]; i < p->first[d + 1]; i++) {
            const writer *w = &p->writer[i];
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

static lp_status check_groups(cover_pass *p, lp_error *err)
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
            LP_TRY(check_alone(p, p->extent[i].dest, err));
        else
            LP_TRY(check_group(p, &p->extent[i], end - i, err));
    }
    return LP_OK;
}

lp_status lp_check_cover(lp_checker *c, lp_error *err)
{
    cover_pass p = {.c = c, .rows = c->rows};
    const size_t n = c->rows->ndest;
    lp_status status;
    p.extent = lp_allocate(c->alloc, n * sizeof *p.extent);
    p.target = lp_allocate(c->alloc, n * sizeof *p.target);
    p.is_nested = lp_allocate(c->alloc, n * sizeof *p.is_nested);
    if (p.extent == NULL || p.target == NULL || p.is_nested == NULL) {
        status = lp_fail_memory(err);
        goto free_pass;
    }
    LP_TRY_GOTO(list_writers(&p, err), free_pass);
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
