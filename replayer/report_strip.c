/* SPDX-License-Identifier: Apache-2.0 */
/* Strips of a report: which source fills how much of each part of one destination. A map may have 10^10 runs, but how
 * many of its bytes lie below an address is a matter of its modes, so nothing is walked and nothing is guessed. */
#include "replayer/report.h"

#include <stdlib.h>

/* Bytes of a box that lie below `end`. Boxes are nested: of each mode, outermost first, all steps but the one that
 * holds `end` are wholly below it or wholly above. */
static int64_t box_below(const lp_box *box, int64_t dst_elem, int64_t end)
{
    const int64_t run = box->run * dst_elem;
    int64_t rest = end - box->dst_off, inner = run, below = 0;
    if (rest <= 0)
        return 0;
    for (int32_t m = 0; m < box->rank; m++)
        inner *= box->mode[m].extent;
    for (int32_t m = 0; m < box->rank; m++) {
        const lp_mode *mode = &box->mode[m];
        const int64_t step = rest / mode->dst_stride;
        if (step >= mode->extent)
            return below + inner;
        inner /= mode->extent;
        below += step * inner;
        rest -= step * mode->dst_stride;
    }
    return below + (rest < run ? rest : run);
}

/* Bytes that a map writes in [lo, hi). */
static int64_t map_between(const lp_map *map, int64_t lo, int64_t hi, int64_t *looks)
{
    int64_t sum = 0;
    if (hi <= map->dst_lo || lo >= map->dst_hi)
        return 0;
    for (int32_t b = 0; b<map->nbox && * looks> 0 && map->box[b].dst_off < hi; b++, (*looks)--)
        sum += box_below(&map->box[b], map->dst_elem, hi) - box_below(&map->box[b], map->dst_elem, lo);
    return sum;
}

/* ---- sources ---- */

/* Whatever writes the destination, in one list: records by place, then refusals, then derives. */
typedef struct writer {
    const lp_map *map; /* NULL: the whole destination */
    int64_t off;
    uint32_t rank; /* the highest one that writes a byte has it */
    uint8_t code;  /* source * 2 + shade */
} writer;

/* Ranks: the engine's own loading below what the plan writes, fills at the beginning below names, names by their
 * recorded order, derives on top. */
enum { RANK_FALLBACK = 1, RANK_BEGIN = 2, RANK_NAME = 3 };

/* What one writer has in one part of the strip. */
typedef struct part {
    int64_t bytes;
    uint32_t rank;
    uint8_t code;
} part;

typedef struct stripper {
    lp_strip *out;
    const lp_report_rows *r;
    const lp_rows *rows;
    uint32_t dest;
    writer *list;
    int64_t count, capacity, records; /* the first `records` are in order of place */
    part *part;
    int64_t part_capacity;
} stripper;

static int source_for(lp_strip *s, lp_strip_kind kind, const char *family, const char *note)
{
    for (int i = 0; i < s->sources; i++)
        if (s->source[i].kind == kind && strcmp(s->source[i].family, family) == 0 &&
            strcmp(s->source[i].note, note) == 0)
            return i;
    if (s->sources == LP_STRIP_SOURCES - 1) { /* the last one is for whatever is left */
        s->source[s->sources] =
            (lp_strip_source){.kind = LP_STRIP_OTHERS, .family = "", .note = "", .provenance = LP_NONE};
        return s->sources++;
    }
    if (s->sources == LP_STRIP_SOURCES)
        return LP_STRIP_SOURCES - 1;
    s->source[s->sources] = (lp_strip_source){.kind = kind, .family = family, .note = note, .provenance = LP_NONE};
    return s->sources++;
}

static lp_status add_writer(stripper *x, const lp_map *map, int64_t off, uint32_t rank, int source, lp_error *err)
{
    if (!lp_grow(x->r->alloc, (void **)&x->list, &x->capacity, x->count + 1, sizeof *x->list))
        return lp_fail_memory(err);
    const int64_t names = x->out->source[source].names; /* so far, this one included */
    const int shade = names > 0 && names % 2 == 0;
    x->list[x->count++] = (writer){.map = map, .off = off, .rank = rank, .code = (uint8_t)(source * 2 + shade)};
    return LP_OK;
}

static lp_strip_source *count_in(const stripper *x, int source, int64_t bytes, uint32_t provenance)
{
    lp_strip_source *s = &x->out->source[source];
    s->records++;
    s->bytes += bytes;
    if (s->provenance == LP_NONE)
        s->provenance = provenance;
    return s;
}

/* The records of destination `dest`, whose first element lies `shift` bytes behind that of the one that is shown. */
static lp_status list_records(stripper *x, int32_t scope, uint32_t dest, int64_t shift, lp_error *err)
{
    uint32_t count;
    const uint32_t *record = lp_report_records(x->r, scope, dest, &count);
    uint32_t last_name[LP_STRIP_SOURCES];
    memset(last_name, 0xff, sizeof last_name);
    for (uint32_t i = 0; i < count; i++) {
        const lp_record *r = &x->rows->record[record[i]];
        const bool is_begin = r->name == LP_NAME_BEGIN;
        const char *family = is_begin ? "" : x->r->family.text[x->r->name_family[r->name]];
        const int source = source_for(x->out, (lp_strip_kind)r->kind, family, "");
        lp_strip_source *s = count_in(x, source, r->map->dst_bytes, r->provenance);
        s->names += !is_begin && (s->names == 0 || last_name[source] != r->name);
        last_name[source] = r->name;
        const uint32_t rank = is_begin ? RANK_BEGIN : r->seq < LP_NONE / 2 ? RANK_NAME + r->seq : LP_NONE / 2;
        LP_TRY(add_writer(x, r->map, r->dst_off + shift, rank, source, err));
    }
    return LP_OK;
}

static lp_status list_others(stripper *x, uint32_t dest, int64_t shift, lp_error *err)
{
    for (uint32_t i = 0; i < x->rows->nrefusal; i++) {
        const lp_refusal *f = &x->rows->refusal[i];
        if (f->dest != dest || (f->map == NULL && dest != x->dest))
            continue;
        const int source =
            source_for(x->out, LP_STRIP_FALLBACK, x->r->family.text[x->r->name_family[f->name]], f->operation);
        count_in(x, source, f->map != NULL ? f->map->dst_bytes : x->out->bytes, f->provenance)->names++;
        LP_TRY(add_writer(x, f->map, shift, RANK_FALLBACK, source, err));
    }
    for (uint32_t i = 0; i < x->rows->nderive; i++) {
        const lp_derive *d = &x->rows->derive[i];
        if (d->dest != dest)
            continue;
        const int source = source_for(x->out, LP_STRIP_DERIVE, "", "");
        count_in(x, source, d->map->dst_bytes, d->provenance);
        LP_TRY(add_writer(x, d->map, shift, LP_NONE, source, err));
    }
    return LP_OK;
}

/* Who else writes the same memory: the destinations that are tied to this one. */
static lp_status list_shared(stripper *x, int32_t scope, lp_error *err)
{
    const lp_destination *shown = &x->rows->dest[x->dest];
    const lp_report_scope *s = &x->r->scope[scope];
    for (uint32_t i = 0; i < s->shared_count; i++) {
        const uint32_t d = s->shared[i];
        const lp_destination *other = &x->rows->dest[d];
        if (d == x->dest || strcmp(other->storage, shown->storage) != 0)
            continue;
        x->records = 0; /* no longer in order of place */
        LP_TRY(list_records(x, scope, d, other->offset - shown->offset, err));
        LP_TRY(list_others(x, d, other->offset - shown->offset, err));
    }
    return LP_OK;
}

/* ---- one part of the strip ---- */

static int by_rank(const void *pa, const void *pb)
{
    const part *a = pa, *b = pb;
    if (a->rank != b->rank)
        return a->rank > b->rank ? -1 : 1;
    return (a->code > b->code) - (a->code < b->code);
}

/* Bytes of [lo, hi) by code. Where writers overlap, the one of the highest rank has the byte: they are served in that
 * order, as long as there are bytes. */
static lp_status divide(stripper *x, int64_t lo, int64_t hi, int64_t *looks, int64_t bytes[LP_STRIP_CODES],
                        lp_error *err)
{
    int64_t left = hi - lo, parts = 0;
    memset(bytes, 0, LP_STRIP_CODES * sizeof *bytes);
    for (int64_t i = 0; i<x->count && * looks> 0; i++, (*looks)--) {
        const writer *w = &x->list[i];
        if (i < x->records && w->off >= hi) { /* the first byte of a map is its lowest: no later record is here */
            i = x->records - 1;
            continue;
        }
        const int64_t here = w->map != NULL ? map_between(w->map, lo - w->off, hi - w->off, looks) : hi - lo;
        if (here == 0)
            continue;
        if (!lp_grow(x->r->alloc, (void **)&x->part, &x->part_capacity, parts + 1, sizeof *x->part))
            return lp_fail_memory(err);
        x->part[parts++] = (part){.bytes = here, .rank = w->rank, .code = w->code};
    }
    if (parts > 1)
        qsort(x->part, (size_t)parts, sizeof *x->part, by_rank);
    for (int64_t i = 0; i < parts; i++) {
        const int64_t taken = x->part[i].bytes < left ? x->part[i].bytes : left;
        bytes[x->part[i].code] += taken;
        left -= taken;
    }
    bytes[2 * (*looks > 0 ? 0 : source_for(x->out, LP_STRIP_OTHERS, "", ""))] += left; /* source 0 is nothing */
    return LP_OK;
}

/* Heights by code that add up to LP_STRIP_UNITS: the edges between them are rounded, so that no error adds up. */
static void scale(lp_strip_bin *bin, const int64_t bytes[LP_STRIP_CODES], int64_t whole)
{
    int64_t sum = 0;
    int edge = 0;
    for (int c = 0; c < LP_STRIP_CODES; c++) {
        sum += bytes[c];
        const int next = (int)((double)sum / (double)whole * LP_STRIP_UNITS + 0.5);
        bin->units[c] = (uint8_t)(next - edge);
        edge = next;
    }
}

lp_status lp_report_strip(lp_strip *out, const lp_report_rows *r, int32_t scope, uint32_t index, int64_t *looks,
                          lp_error *err)
{
    stripper x = {.out = out, .r = r, .rows = r->scope[scope].rows, .dest = index};
    *out = (lp_strip){.bytes = lp_report_span(&x.rows->dest[index])};
    source_for(out, LP_STRIP_NOTHING, "", "");
    lp_status status = list_records(&x, scope, index, 0, err);
    x.records = x.count;
    if (status == LP_OK)
        status = list_others(&x, index, 0, err);
    if (status == LP_OK)
        status = list_shared(&x, scope, err);
    if (status == LP_OK)
        out->bins = (int32_t)(out->bytes < LP_STRIP_BINS ? out->bytes : LP_STRIP_BINS);
    for (int32_t b = 0; status == LP_OK && b < out->bins; b++) {
        const int64_t share = out->bytes / out->bins, rest = out->bytes % out->bins;
        const int64_t lo = b * share + (b < rest ? b : rest), hi = lo + share + (b < rest);
        int64_t bytes[LP_STRIP_CODES];
        status = divide(&x, lo, hi, looks, bytes, err);
        if (status == LP_OK)
            scale(&out->bin[b], bytes, hi - lo);
    }
    for (int i = 0; i < out->sources; i++)
        out->source[i].colour = i;
    lp_release(r->alloc, x.part);
    lp_release(r->alloc, x.list);
    return status;
}

void lp_report_strip_recolour(lp_strip *s, const lp_strip *like)
{
    int next = like->sources;
    for (int i = 0; i < s->sources; i++) {
        int same = 0;
        while (same < like->sources &&
               (strcmp(s->source[i].family, like->source[same].family) != 0 ||
                (s->source[i].family[0] == '\0' && s->source[i].kind != like->source[same].kind)))
            same++;
        s->source[i].colour = same < like->sources ? like->source[same].colour : next++;
    }
}
