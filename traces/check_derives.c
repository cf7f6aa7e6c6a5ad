/* SPDX-License-Identifier: Apache-2.0 */
/*
 * check, derives: which derive reads what another writes. The relation must have no cycle, no derive may read its own
 * output, and nothing that is read may be both copied and derived, or a reload would see the derived value.
 */
#include "traces/check_private.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum { EDGES_MAX = 1 << 20, PROBES_MAX = 1 << 24 };

/* The output of a derive in its storage. */
typedef struct output {
    const char *storage;
    int64_t lo, hi, reach; /* reach: the highest hi of this and all earlier outputs of the storage */
    uint32_t derive;
} output;

typedef struct edge {
    uint32_t reader, writer;
} edge;

typedef struct derive_pass {
    lp_checker *c;
    const lp_rows *rows;
    output *output;
    int64_t outputs;
    edge *edge; /* by reader */
    int64_t edges, edge_capacity;
    int64_t probes;
    bool exceeded;
} derive_pass;

static int by_storage(const void *pa, const void *pb)
{
    const output *a = pa, *b = pb;
    const int order = a->storage == b->storage ? 0 : strcmp(a->storage, b->storage);
    if (order != 0)
        return order;
    if (a->lo != b->lo)
        return a->lo < b->lo ? -1 : 1;
    return (a->derive > b->derive) - (a->derive < b->derive);
}

static void list_outputs(derive_pass *p)
{
    const lp_rows *rows = p->rows;
    for (uint32_t i = 0; i < rows->nderive; i++) {
        const lp_derive *d = &rows->derive[i];
        if (d->dest == LP_NONE)
            continue;
        const lp_destination *dest = &rows->dest[d->dest];
        p->output[p->outputs++] = (output){.storage = dest->storage,
                                           .lo = dest->offset + d->map->dst_lo,
                                           .hi = dest->offset + d->map->dst_hi,
                                           .derive = i};
    }
    qsort(p->output, (size_t)p->outputs, sizeof *p->output, by_storage);
    for (int64_t i = 0; i < p->outputs; i++) {
        p->output[i].reach = p->output[i].hi;
        if (i > 0 && strcmp(p->output[i - 1].storage, p->output[i].storage) == 0 &&
            p->output[i - 1].reach > p->output[i].reach)
            p->output[i].reach = p->output[i - 1].reach;
    }
}

/* First output of `storage` that reaches beyond `lo`: reach does not fall within a storage. */
static int64_t first_beyond(const derive_pass *p, const char *storage, int64_t lo)
{
    int64_t from = 0, to = p->outputs;
    while (from < to) {
        const int64_t middle = from + (to - from) / 2;
        const int order = strcmp(p->output[middle].storage, storage);
        if (order < 0 || (order == 0 && p->output[middle].reach <= lo))
            from = middle + 1;
        else
            to = middle;
    }
    return from;
}

/* The bytes that a gather map reads, as a map that writes them: boxes with source and destination exchanged, steps that
 * read the same bytes again dropped. NULL in *out when there is no such map. */
static lp_status region_read(derive_pass *p, const lp_map *map, const lp_map **out, lp_error *err)
{
    const lp_alloc *alloc = p->c->alloc;
    lp_box *box = lp_allocate(alloc, (size_t)map->nbox * sizeof *box);
    lp_mode *mode = lp_allocate(alloc, (size_t)map->nmode * sizeof *mode);
    lp_status status = LP_OK;
    *out = NULL;
    if (box == NULL || mode == NULL) {
        status = lp_fail_memory(err);
        goto free_boxes;
    }
    lp_mode *next = mode;
    for (int32_t b = 0; b < map->nbox; b++) {
        const lp_box *from = &map->box[b];
        box[b] = (lp_box){.dst_off = from->src_off, .run = from->run, .mode = next};
        for (int32_t k = 0; k < from->rank; k++)
            if (from->mode[k].src_stride != 0) {
                *next++ = (lp_mode){.extent = from->mode[k].extent, .dst_stride = from->mode[k].src_stride};
                box[b].rank++;
            }
    }
    lp_error inner;
    status = lp_map_from_boxes(out, 0, 1, map->nbox, box, alloc, &inner);
    if (status == LP_E_MEMORY)
        status = lp_fail_memory(err);
    else if (status != LP_OK)
        status = LP_OK; /* reads bytes twice: the caller goes by the range instead */

free_boxes:
    lp_release(alloc, box);
    lp_release(alloc, mode);
    return status;
}

static lp_status overlaps(derive_pass *p, const lp_derive_input *input, const lp_derive *writer, bool *yes,
                          lp_error *err)
{
    const lp_map *region;
    LP_TRY(region_read(p, input->map, &region, err));
    *yes = true; /* ranges meet; without an exact region that has to do, and denying is the safe side */
    if (region == NULL)
        return LP_OK;
    const lp_cover_item item[] = {
        {.map = region, .dst_off = p->rows->dest[input->index].offset, .tag = 0, .brief = true},
        {.map = writer->map, .dst_off = p->rows->dest[writer->dest].offset, .tag = 1, .brief = true}};
    lp_cover_report r;
    const lp_status status = lp_cover(&r, NULL, item, 2, p->c->memo, p->c->alloc, err);
    lp_map_free(region, p->c->alloc);
    LP_TRY(status);
    *yes = r.npair > 0 || r.undecided;
    lp_cover_report_free(&r, p->c->alloc);
    return LP_OK;
}

static lp_status add_edges(derive_pass *p, uint32_t reader, const lp_derive_input *input, lp_error *err)
{
    const lp_destination *from = &p->rows->dest[input->index];
    const int64_t lo = from->offset + input->map->src_lo, hi = from->offset + input->map->src_hi;
    for (int64_t i = first_beyond(p, from->storage, lo); i < p->outputs; i++) {
        const output *o = &p->output[i];
        if (o->lo >= hi || strcmp(o->storage, from->storage) != 0)
            break;
        if (++p->probes > PROBES_MAX || p->edges >= EDGES_MAX) {
            p->exceeded = true;
            return LP_OK;
        }
        bool yes = false;
        if (o->hi > lo)
            LP_TRY(overlaps(p, input, &p->rows->derive[o->derive], &yes, err));
        if (!yes)
            continue;
        if (!lp_grow(p->c->alloc, (void **)&p->edge, &p->edge_capacity, p->edges + 1, sizeof *p->edge))
            return lp_fail_memory(err);
        p->edge[p->edges++] = (edge){reader, o->derive};
    }
    return LP_OK;
}

/* ---- findings ---- */

static const char *subject_of(const derive_pass *p, uint32_t derive)
{
    const lp_derive *d = &p->rows->derive[derive];
    if (d->dest != LP_NONE)
        return p->rows->dest[d->dest].name;
    return d->ninput > 0 && !d->input[0].staged ? p->rows->dest[d->input[0].index].name : "a check";
}

static lp_status note_derive(derive_pass *p, lp_rule_number rule, const char *what, const edge *e, const char *format,
                             lp_error *err)
{
    bool first;
    const char *reader = subject_of(p, e->reader), *writer = subject_of(p, e->writer);
    lp_note note = lp_check_note(p->c, rule, reader, what);
    const lp_derive *w = &p->rows->derive[e->writer];
    note.byte_lo = w->map->dst_lo;
    note.byte_hi = w->map->dst_hi;
    note.map = w->map;
    lp_check_place(p->c, &note, p->rows->derive[e->reader].provenance);
    LP_TRY(lp_findings_note(p->c->findings, &note, &first, err));
    return first ? lp_findings_text(p->c->findings, err, "the derive of '%s' reads '%s', %s", reader, writer, format)
                 : LP_OK;
}

static lp_status judge_edges(derive_pass *p, lp_error *err)
{
    for (int64_t i = 0; i < p->edges; i++) {
        const edge *e = &p->edge[i];
        if (e->reader == e->writer)
            LP_TRY(note_derive(p, LP_RULE_DERIVE_NOT_IDEMPOTENT, "own", e,
                               "which is its own output: a second run gives something else", err));
        else if (p->c->derive_meets_record[e->writer])
            LP_TRY(note_derive(p, LP_RULE_DERIVE_NOT_IDEMPOTENT, "copied", e,
                               "which is copied first and derived afterwards: a reload reads either value", err));
    }
    return LP_OK;
}

/* Takes away, again and again, derives before which none of those stands that are left. A writer stands before its
 * readers; the other way round when `backwards`. */
static lp_status peel(const derive_pass *p, bool backwards, bool *is_left, lp_error *err)
{
    const uint32_t n = p->rows->nderive;
    const lp_alloc *alloc = p->c->alloc;
    uint32_t *waits = lp_allocate_zero(alloc, n * sizeof *waits), *queue = lp_allocate(alloc, n * sizeof *queue);
    int64_t *first = lp_allocate_zero(alloc, ((size_t)n + 2) * sizeof *first); /* in `later`, of each derive */
    uint32_t *later = lp_allocate(alloc, (size_t)p->edges * sizeof *later);
    lp_status status = LP_OK;
    if (waits == NULL || queue == NULL || first == NULL || later == NULL) {
        status = lp_fail_memory(err);
        goto free_graph;
    }
    for (int64_t i = 0; i < p->edges; i++)
        first[(backwards ? p->edge[i].reader : p->edge[i].writer) + 2]++;
    for (uint32_t d = 0; d <= n; d++)
        first[d + 1] += first[d];
    for (int64_t i = 0; i < p->edges; i++) {
        const edge e = p->edge[i];
        const uint32_t before = backwards ? e.reader : e.writer, after = backwards ? e.writer : e.reader;
        later[first[before + 1]++] = after;
        waits[after] += before != after && is_left[before];
    }
    uint32_t queued = 0;
    for (uint32_t d = 0; d < n; d++)
        if (is_left[d] && waits[d] == 0)
            queue[queued++] = d;
    for (uint32_t done = 0; done < queued; done++) {
        const uint32_t gone = queue[done];
        is_left[gone] = false;
        for (int64_t i = first[gone]; i < first[gone + 1]; i++)
            if (later[i] != gone && is_left[later[i]] && --waits[later[i]] == 0)
                queue[queued++] = later[i];
    }

free_graph:
    lp_release(alloc, waits);
    lp_release(alloc, queue);
    lp_release(alloc, first);
    lp_release(alloc, later);
    return status;
}

/* What is left after peeling from both ends lies on a cycle, or between two. */
static lp_status find_cycles(derive_pass *p, lp_error *err)
{
    const uint32_t n = p->rows->nderive;
    bool *is_left = lp_allocate(p->c->alloc, n * sizeof *is_left);
    lp_status status;
    if (is_left == NULL)
        return lp_fail_memory(err);
    for (uint32_t d = 0; d < n; d++)
        is_left[d] = true;
    LP_TRY_GOTO(peel(p, false, is_left, err), free_left);
    LP_TRY_GOTO(peel(p, true, is_left, err), free_left);
    for (int64_t i = 0; i < p->edges; i++) {
        const edge *e = &p->edge[i];
        if (e->reader != e->writer && is_left[e->reader] && is_left[e->writer])
            LP_TRY_GOTO(
                note_derive(p, LP_RULE_DERIVE_CYCLE, "", e, "which waits for it in turn: neither can run first", err),
                free_left);
    }

free_left:
    lp_release(p->c->alloc, is_left);
    return status;
}

lp_status lp_check_derives(lp_checker *c, lp_error *err)
{
    derive_pass p = {.c = c, .rows = c->rows};
    lp_status status = LP_OK;
    if (c->rows->nderive == 0)
        return LP_OK;
    p.output = lp_allocate(c->alloc, c->rows->nderive * sizeof *p.output);
    if (p.output == NULL)
        return lp_fail_memory(err);
    list_outputs(&p);
    for (uint32_t i = 0; i < c->rows->nderive && !p.exceeded; i++)
        for (uint32_t k = 0; k < c->rows->derive[i].ninput && !p.exceeded; k++)
            if (!c->rows->derive[i].input[k].staged)
                LP_TRY_GOTO(add_edges(&p, i, &c->rows->derive[i].input[k], err), free_pass);
    LP_TRY_GOTO(judge_edges(&p, err), free_pass);
    LP_TRY_GOTO(find_cycles(&p, err), free_pass);
    if (p.exceeded) {
        bool first;
        const lp_note note = lp_check_note(c, LP_RULE_UNDECIDED, subject_of(&p, 0), "derives");
        LP_TRY_GOTO(lp_findings_note(c->findings, &note, &first, err), free_pass);
        if (first)
            LP_TRY_GOTO(
                lp_findings_text(c->findings, err, "too many derives of rank %" PRId32 " read each other", c->rank),
                free_pass);
    }

free_pass:
    lp_release(c->alloc, p.output);
    lp_release(c->alloc, p.edge);
    return status;
}
