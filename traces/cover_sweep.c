/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sweep over the grid: from the most significant digit down, cut the digit's axis where any piece begins or ends;
 * between two cuts the set of pieces is constant, so that one look at the lower digits answers for all values of this
 * digit. On the lowest digit the pieces that are left share bytes.
 */
#include "traces/cover_private.h"

#include <stdlib.h>

enum { SMALL_SORT = 24 };

static int by_lo(const void *pa, const void *pb)
{
    const lp_cover_entry *a = pa, *b = pb;
    if (a->lo != b->lo)
        return a->lo < b->lo ? -1 : 1;
    return (a->piece > b->piece) - (a->piece < b->piece);
}

static void sort_entries(lp_cover_entry *e, int64_t n)
{
    if (n > SMALL_SORT) {
        qsort(e, (size_t)n, sizeof(*e), by_lo);
        return;
    }
    for (int64_t i = 1; i < n; i++) {
        const lp_cover_entry moving = e[i];
        int64_t j = i;
        for (; j > 0 && by_lo(&e[j - 1], &moving) > 0; j--)
            e[j] = e[j - 1];
        e[j] = moving;
    }
}

static const lp_cover_span *spans_of(const lp_cover_grid *g, uint32_t piece)
{
    return &g->span[(int64_t)piece * g->levels];
}

/* ---- findings of the sweep ---- */

void lp_cover_note_gap(lp_cover_report *r, int64_t lo, int64_t hi)
{
    if (r->gap_lo < 0) {
        r->gap_lo = lo;
        r->gap_hi = hi;
    } else if (lo == r->gap_hi) {
        r->gap_hi = hi;
    } else if (lo < r->gap_lo) {
        r->gap_hi = hi == r->gap_lo ? r->gap_hi : hi;
        r->gap_lo = lo;
    }
}

/* The first address of a piece whose digit `level` starts at `lo`, and how many bytes follow it without a gap. */
static int64_t first_run(const lp_cover_grid *g, uint32_t piece, int level, int64_t lo, int64_t hi, int64_t *bytes)
{
    const lp_cover_span *span = spans_of(g, piece);
    int64_t address = 0;
    bool solid = true;
    *bytes = 1;
    for (int k = 0; k <= level; k++) {
        const int64_t from = k == level ? lo : span[k].lo, to = k == level ? hi : span[k].hi;
        address += from * g->stride[k];
        if (solid)
            *bytes = (to - from) * g->stride[k];
        solid = solid && from == 0 && to == g->radix[k];
    }
    return address;
}

/* Wanted bytes that no item reaches: digits [lo, hi) of `level` and the piece's own digits below. */
static void add_gap(lp_cover_sweep *s, uint32_t piece, int level, int64_t lo, int64_t hi, int64_t base, int64_t times)
{
    const lp_cover_span *span = spans_of(s->grid, piece);
    int64_t count = hi - lo, bytes;
    for (int k = 0; k < level; k++)
        count *= span[k].hi - span[k].lo;
    s->report->uncovered_bytes += count * times;
    const int64_t address = base + first_run(s->grid, piece, level, lo, hi, &bytes);
    lp_cover_note_gap(s->report, address, address + bytes);
}

static void add_outside(lp_cover_sweep *s, uint32_t piece, int level, int64_t lo, int64_t hi, int64_t base)
{
    lp_cover_report *r = s->report;
    int64_t bytes;
    const int64_t address = base + first_run(s->grid, piece, level, lo, hi, &bytes);
    if (r->outside && r->outside_lo <= address)
        return;
    r->outside = true;
    r->outside_lo = address;
    r->outside_hi = address + bytes;
    r->outside_tag = s->grid->piece[piece].tag;
}

static uint64_t pair_hash(uint32_t a, uint32_t b)
{
    const uint32_t pair[2] = {a, b};
    return lp_table_hash(pair, sizeof pair);
}

static bool grow_pair_table(lp_cover_sweep *s)
{
    const int64_t size = s->pair_table_size ? s->pair_table_size * 2 : 64;
    uint32_t *table = lp_allocate_zero(s->alloc, (size_t)size * sizeof(*table));
    if (!table)
        return false;
    for (int64_t i = 0; i < s->report->npair; i++) {
        uint64_t at = pair_hash(s->report->pair[i].a, s->report->pair[i].b) & (uint64_t)(size - 1);
        while (table[at])
            at = (at + 1) & (uint64_t)(size - 1);
        table[at] = (uint32_t)i + 1;
    }
    lp_release(s->alloc, s->pair_table);
    s->pair_table = table;
    s->pair_table_size = size;
    return true;
}

/* Two pieces that share bytes [lo, hi). */
static lp_status add_pair(lp_cover_sweep *s, uint32_t x, uint32_t y, int64_t lo, int64_t hi, lp_error *err)
{
    lp_cover_report *r = s->report;
    const uint32_t tag_x = s->grid->piece[x].tag, tag_y = s->grid->piece[y].tag;
    if (tag_x == tag_y) {
        s->same_tag_overlap = true;
        return LP_OK;
    }
    const uint32_t a = tag_x < tag_y ? tag_x : tag_y, b = tag_x < tag_y ? tag_y : tag_x;
    if ((r->npair + 1) * 2 > s->pair_table_size && !grow_pair_table(s))
        return lp_fail_memory(err);
    const uint64_t mask = (uint64_t)(s->pair_table_size - 1);
    uint64_t at = pair_hash(a, b) & mask;
    for (; s->pair_table[at]; at = (at + 1) & mask) {
        lp_cover_pair *known = &r->pair[s->pair_table[at] - 1];
        if (known->a == a && known->b == b) {
            if (lo < known->byte_lo) {
                known->byte_lo = lo;
                known->byte_hi = hi;
            }
            return LP_OK;
        }
    }
    if (r->npair >= LP_COVER_PAIRS_MAX) {
        r->pairs_truncated = true;
        return LP_OK;
    }
    if (!lp_grow(s->alloc, (void **)&r->pair, &s->pair_capacity, r->npair + 1, sizeof(*r->pair)))
        return lp_fail_memory(err);
    r->pair[r->npair++] = (lp_cover_pair){a, b, lo, hi};
    s->pair_table[at] = (uint32_t)r->npair;
    return LP_OK;
}

/* ---- the sweep ---- */

typedef struct census {
    int64_t strict, loose, wanted;
    bool one_item; /* all strict pieces are of one item, which cannot overlap itself */
} census;

static census count_classes(const lp_cover_grid *g, const uint32_t *id, int64_t n)
{
    census c = {.one_item = true};
    uint32_t item = 0;
    for (int64_t i = 0; i < n; i++) {
        const lp_cover_piece *p = &g->piece[id[i]];
        if (p->class == LP_COVER_WANTED) {
            c.wanted++;
        } else if (p->class == LP_COVER_LOOSE) {
            c.loose++;
        } else {
            if (c.strict++ == 0)
                item = p->item;
            else if (p->item != item)
                c.one_item = false;
        }
    }
    return c;
}

/* True when two pieces have the same digits from `level` down. */
static bool same_below(const lp_cover_grid *g, uint32_t x, uint32_t y, int level)
{
    return memcmp(spans_of(g, x), spans_of(g, y), (size_t)(level + 1) * sizeof(lp_cover_span)) == 0;
}

/* Settles digits [lo, hi) of `level`, between two cuts, where that needs no look at lower digits. The pieces are those
 * of `id`; on level 0 everything is settled here. */
static bool settle(lp_cover_sweep *s, const uint32_t *id, int64_t n, int level, int64_t lo, int64_t hi, int64_t base,
                   int64_t times)
{
    const lp_cover_grid *g = s->grid;
    const census c = count_classes(g, id, n);
    if (c.strict == 0 && c.loose == 0) {
        for (int64_t i = 0; i < n; i++)
            add_gap(s, id[i], level, lo, hi, base, times);
        return true;
    }
    if (s->has_target && c.wanted == 0)
        for (int64_t i = 0; i < n; i++)
            if (g->piece[id[i]].class == LP_COVER_STRICT)
                add_outside(s, id[i], level, lo, hi, base);
    if (level == 0)
        return true;
    if (c.wanted == 0)
        return c.one_item;
    return n == 2 && c.wanted == 1 && same_below(g, id[0], id[1], level - 1);
}

/* On the lowest digit: the newcomer shares bytes with every strict piece that is active. */
static lp_status meet(lp_cover_sweep *s, const uint32_t *active, int64_t n, uint32_t newcomer, int64_t base,
                      lp_error *err)
{
    const lp_cover_grid *g = s->grid;
    if (g->piece[newcomer].class != LP_COVER_STRICT)
        return LP_OK;
    const lp_cover_span mine = spans_of(g, newcomer)[0];
    s->work_left -= n;
    for (int64_t i = 0; i < n; i++) {
        if (g->piece[active[i]].class != LP_COVER_STRICT)
            continue;
        const int64_t end = spans_of(g, active[i])[0].hi;
        LP_TRY(add_pair(s, active[i], newcomer, base + mine.lo, base + (end < mine.hi ? end : mine.hi), err));
    }
    return LP_OK;
}

/* Pieces `id` agree in all digits above `level`, which make the address `base` and stand for `times` such places. */
static lp_status sweep_level(lp_cover_sweep *s, int level, const uint32_t *id, int64_t n, int64_t base, int64_t times,
                             lp_error *err)
{
    const lp_cover_grid *g = s->grid;
    lp_cover_entry *e = s->entry + level * g->npiece;
    uint32_t *active = s->active + level * g->npiece;
    for (int64_t i = 0; i < n; i++) {
        const lp_cover_span span = spans_of(g, id[i])[level];
        e[i] = (lp_cover_entry){span.lo, span.hi, id[i]};
    }
    sort_entries(e, n);
    s->work_left -= n > SMALL_SORT ? n * 4 : n; /* what sorting costs, roughly */
    int64_t next = 0, nactive = 0, lo = e[0].lo;
    while (next < n || nactive > 0) {
        if (nactive == 0)
            lo = e[next].lo;
        for (; next < n && e[next].lo == lo && s->work_left >= 0; next++) {
            if (level == 0)
                LP_TRY(meet(s, active, nactive, e[next].piece, base, err));
            active[nactive++] = e[next].piece;
        }
        int64_t hi = next < n ? e[next].lo : INT64_MAX;
        for (int64_t i = 0; i < nactive; i++) {
            const int64_t end = spans_of(g, active[i])[level].hi;
            hi = end < hi ? end : hi;
        }
        s->work_left -= nactive;
        if (s->work_left < 0) {
            s->report->undecided = true;
            return LP_OK;
        }
        if (!settle(s, active, nactive, level, lo, hi, base, times))
            LP_TRY(sweep_level(s, level - 1, active, nactive, base + lo * g->stride[level], times * (hi - lo), err));
        int64_t kept = 0;
        for (int64_t i = 0; i < nactive; i++)
            if (spans_of(g, active[i])[level].hi > hi)
                active[kept++] = active[i];
        nactive = kept;
        lo = hi;
    }
    return LP_OK;
}

lp_status lp_cover_sweep_grid(lp_cover_sweep *s, lp_error *err)
{
    const lp_cover_grid *g = s->grid;
    if (g->npiece == 0)
        return LP_OK;
    const int64_t room = g->npiece * g->levels + g->npiece;
    if (!lp_grow(s->alloc, (void **)&s->entry, &s->entry_capacity, room, sizeof(*s->entry)) ||
        !lp_grow(s->alloc, (void **)&s->active, &s->active_capacity, room, sizeof(*s->active)))
        return lp_fail_memory(err);
    uint32_t *all = s->active + g->npiece * g->levels;
    for (int64_t i = 0; i < g->npiece; i++)
        all[i] = (uint32_t)i;
    return sweep_level(s, g->levels - 1, all, g->npiece, g->base, 1, err);
}
