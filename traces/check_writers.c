/* SPDX-License-Identifier: Apache-2.0 */
/* check, bytes: who writes a destination, and the sentences about writers that meet, miss or go astray. */
#include "traces/check_writers.h"

#include "traces/map_parts.h"

#include <inttypes.h>
#include <stdio.h>

/* ---- writers by destination ---- */

static void put_writer(lp_cover_pass *p, int64_t *next, const lp_writer *w)
{
    p->writer[next[w->dest]++] = *w;
}

lp_status lp_cover_list_writers(lp_cover_pass *p, lp_error *err)
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
        put_writer(p, next, &(lp_writer){LP_BY_RECORD, i, r->dest, r->map, r->dst_off});
    }
    for (uint32_t i = 0; i < rows->nderive; i++)
        if (rows->derive[i].dest != LP_NONE)
            put_writer(p, next, &(lp_writer){LP_BY_DERIVE, i, rows->derive[i].dest, rows->derive[i].map, 0});
    for (uint32_t i = 0; i < rows->nrefusal; i++)
        if (rows->refusal[i].dest != LP_NONE)
            put_writer(p, next, &(lp_writer){LP_BY_REFUSAL, i, rows->refusal[i].dest, rows->refusal[i].map, 0});
    lp_release(p->c->alloc, next);
    return LP_OK;

no_memory:
    lp_release(p->c->alloc, next);
    return lp_fail_memory(err);
}

/* ---- findings ---- */

static uint32_t name_of(const lp_cover_pass *p, const lp_writer *w)
{
    switch (w->kind) {
    case LP_BY_RECORD:
        return p->rows->record[w->row].name;
    case LP_BY_REFUSAL:
        return p->rows->refusal[w->row].name;
    case LP_BY_DERIVE:
        break;
    }
    return LP_NONE;
}

static const char *describe(const lp_cover_pass *p, const lp_writer *w, char *buffer, size_t bytes)
{
    if (w->kind == LP_BY_DERIVE)
        snprintf(buffer, bytes, "a derive");
    else if (name_of(p, w) == LP_NAME_BEGIN)
        snprintf(buffer, bytes, "a fill at the beginning");
    else
        snprintf(buffer, bytes, "'%s'", lp_check_name(p->c, name_of(p, w)));
    return buffer;
}

static uint32_t provenance_of(const lp_cover_pass *p, const lp_writer *w)
{
    switch (w->kind) {
    case LP_BY_RECORD:
        return p->rows->record[w->row].provenance;
    case LP_BY_DERIVE:
        return p->rows->derive[w->row].provenance;
    case LP_BY_REFUSAL:
        break;
    }
    return p->rows->refusal[w->row].provenance;
}

lp_status lp_cover_note_undecided(lp_cover_pass *p, const lp_destination *d, lp_error *err)
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

lp_status lp_cover_note_uncovered(lp_cover_pass *p, const lp_destination *d, const lp_cover_report *r, lp_error *err)
{
    bool first;
    lp_note note = lp_check_note(p->c, LP_RULE_DEST_UNCOVERED, d->name, "");
    note.byte_lo = r->gap_lo;
    note.byte_hi = r->gap_hi;
    LP_TRY(lp_findings_note(p->c->findings, &note, &first, err));
    if (!first)
        return LP_OK;
    return lp_findings_text(p->c->findings, err,
                            "%s%" PRId64 " bytes of '%s' are written by nothing, the first are [%" PRId64 ", %" PRId64
                            ")",
                            r->undecided ? "at least " : "", r->uncovered_bytes, d->name, r->gap_lo, r->gap_hi);
}

lp_status lp_cover_note_outside(lp_cover_pass *p, const lp_destination *d, const lp_writer *w, int64_t lo, int64_t hi,
                                lp_error *err)
{
    bool first;
    char name[600];
    lp_note note = lp_check_note(p->c, LP_RULE_SHAPE_MISMATCH, d->name, "outside");
    note.byte_lo = lo;
    note.byte_hi = hi;
    note.map = w->map;
    lp_check_place(p->c, &note, provenance_of(p, w));
    LP_TRY(lp_findings_note(p->c->findings, &note, &first, err));
    if (!first)
        return LP_OK;
    return lp_findings_text(p->c->findings, err,
                            "%s writes bytes [%" PRId64 ", %" PRId64 ") of '%s', which are no element of it",
                            describe(p, w, name, sizeof name), lo, hi, d->name);
}

/* Whether two records of one name do the same to every byte that they share. */
static lp_status do_the_same(const lp_cover_pass *p, const lp_record *x, const lp_record *y, bool *same, lp_error *err)
{
    const lp_destination *to_x = &p->rows->dest[x->dest], *to_y = &p->rows->dest[y->dest];
    *same = false;
    if (x->name != y->name || x->src_dtype != y->src_dtype || x->dst_dtype != y->dst_dtype ||
        x->fill_bits != y->fill_bits || x->map->src_elem != y->map->src_elem || x->map->dst_elem != y->map->dst_elem)
        return LP_OK;
    return lp_maps_agree(same, &(lp_placed_map){x->map, x->src_off, to_x->offset + x->dst_off},
                         &(lp_placed_map){y->map, y->src_off, to_y->offset + y->dst_off}, p->c->alloc, err);
}

/* Two writers share bytes: nothing where their order is known, a warning where it is recorded, else a denial. */
lp_status lp_cover_note_pair(lp_cover_pass *p, const lp_writer *a, const lp_writer *b, int64_t lo, int64_t hi,
                             lp_error *err)
{
    const lp_rows *rows = p->rows;
    const lp_destination *d = &rows->dest[a->dest];
    if (a->kind == LP_BY_RECORD && b->kind == LP_BY_DERIVE)
        p->c->derive_meets_record[b->row] = true;
    if (b->kind == LP_BY_RECORD && a->kind == LP_BY_DERIVE)
        p->c->derive_meets_record[a->row] = true;
    bool is_ordered = false;
    if (a->kind == LP_BY_RECORD && b->kind == LP_BY_RECORD) {
        const lp_record *x = &rows->record[a->row], *y = &rows->record[b->row];
        bool is_same;
        const bool begin = x->name == LP_NAME_BEGIN;
        if (begin != (y->name == LP_NAME_BEGIN))
            return LP_OK; /* the beginning comes first */
        LP_TRY(do_the_same(p, x, y, &is_same, err));
        is_ordered = !begin && x->seq > 0 && y->seq > 0 && x->seq != y->seq;
        if (is_same || (is_ordered && x->name == y->name))
            return LP_OK;
    }
    bool first;
    char one[600], other[600];
    lp_note note = lp_check_note(p->c, is_ordered ? LP_RULE_ORDER_DEPENDENT : LP_RULE_DEST_OVERLAP, d->name, "");
    note.byte_lo = lo;
    note.byte_hi = hi;
    note.map = b->map;
    lp_check_place(p->c, &note, provenance_of(p, b));
    LP_TRY(lp_findings_note(p->c->findings, &note, &first, err));
    if (!first)
        return LP_OK;
    return lp_findings_text(p->c->findings, err, "%s and %s both write bytes [%" PRId64 ", %" PRId64 ") of '%s': %s",
                            describe(p, a, one, sizeof one), describe(p, b, other, sizeof other), lo, hi, d->name,
                            is_ordered ? "the later one wins, so their recorded order has to be kept"
                                       : "which one wins depends on the order of arrival");
}

lp_status lp_cover_note_alias(lp_cover_pass *p, uint32_t a, uint32_t b, int64_t lo, int64_t hi, lp_error *err)
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

lp_status lp_cover_note_unloaded(lp_cover_pass *p, const lp_writer *w, lp_error *err)
{
    bool first;
    char name[600];
    const lp_destination *dest = &p->rows->dest[w->dest];
    lp_note note = lp_check_note(p->c, LP_RULE_DEST_OVERLAP, dest->name, "no loader");
    note.byte_lo = w->off + w->map->dst_lo;
    note.byte_hi = w->off + w->map->dst_hi;
    note.map = w->map;
    lp_check_place(p->c, &note, provenance_of(p, w));
    LP_TRY(lp_findings_note(p->c->findings, &note, &first, err));
    if (!first)
        return LP_OK;
    return lp_findings_text(p->c->findings, err, "%s writes '%s', which is declared to have no loader bytes",
                            describe(p, w, name, sizeof name), dest->name);
}
