/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How the ranks of a cold start share the reading. Names whose bytes no two ranks need are read by the rank that needs
 * them. Of the others, each byte is read once by one rank and sent to those that need it: the union of what is needed
 * is one stream, dealt out evenly, in chunks. Where the exchange costs more than reading again, a name is read by every
 * rank, as long as all such reading together stays below a twentieth of the union. Where all shared names together do,
 * as of models that are experts for the most part, nothing is exchanged: each rank then loads as if it were alone.
 *
 * Every rank computes all of this from the trace, so there is nothing to agree on but the trace.
 */
#include "replayer/sync_world.h"

#include <stdlib.h>

enum { MARGIN = 20 }; /* a twentieth */

typedef struct name_cost {
    uint32_t name;
    int64_t total, all; /* bytes that ranks need, together and as a union */
} name_cost;

typedef struct maker {
    const lp_world_bytes *needs;
    lp_cold_world *out;
    int64_t bucket;
    /* Of the name at hand: ranks with equal needs are one class, as replicas are. */
    int32_t *class_of; /* by rank; -1: it needs nothing */
    int64_t *members;  /* by class */
    int32_t classes;
    lp_ranges *range; /* by class */
    lp_pieces *part;  /* by class: what it needs of a stretch */
    int64_t *cursor;  /* by rank */
    int64_t position; /* in the stream of shared names */
    int64_t stream;   /* its bytes */
} maker;

static bool same_pieces(const lp_piece *a, const lp_piece *b, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        if (a[i].lo != b[i].lo || a[i].run != b[i].run || a[i].stride != b[i].stride || a[i].count != b[i].count)
            return false;
    return true;
}

/* The class of a rank's pieces, old or new. */
static lp_status classify(maker *m, int32_t rank, const lp_piece *piece, int64_t count, const lp_piece **of_class,
                          int64_t *of_class_count, lp_error *err)
{
    for (int32_t k = 0; k < m->classes; k++)
        if (of_class_count[k] == count && same_pieces(of_class[k], piece, count)) {
            m->class_of[rank] = k;
            m->members[k]++;
            return LP_OK;
        }
    const int32_t k = m->classes++;
    lp_ranges *r = &m->range[k];
    m->class_of[rank] = k;
    m->members[k] = 1;
    of_class[k] = piece;
    of_class_count[k] = count;
    r->count = r->bytes = 0;
    for (int64_t i = 0; i < count; i++)
        LP_TRY(lp_piece_ranges(&piece[i], r, err));
    lp_ranges_normalise(r);
    return LP_OK;
}

static lp_status expand(maker *m, uint32_t name, lp_ranges *all, int64_t *total, lp_error *err)
{
    const lp_alloc *alloc = m->needs->alloc;
    const lp_piece **of_class = lp_allocate(alloc, (size_t)m->needs->ranks * sizeof *of_class);
    int64_t *of_class_count = lp_allocate(alloc, (size_t)m->needs->ranks * sizeof *of_class_count);
    lp_status status = of_class == NULL || of_class_count == NULL ? lp_fail_memory(err) : LP_OK;
    *total = 0;
    m->classes = 0;
    for (int32_t i = 0; i < m->needs->ranks && status == LP_OK; i++) {
        int64_t count;
        const lp_piece *p = lp_world_pieces(m->needs, i, name, &m->cursor[i], &count);
        m->class_of[i] = -1;
        if (count > 0)
            status = classify(m, i, p, count, of_class, of_class_count, err);
    }
    for (int32_t k = 0; k < m->classes && status == LP_OK; k++) {
        *total += m->range[k].bytes * m->members[k];
        for (int64_t i = 0; i < m->range[k].count && status == LP_OK; i++)
            status = lp_ranges_add(all, m->range[k].item[i].lo, m->range[k].item[i].hi, err);
    }
    lp_ranges_normalise(all);
    lp_release(alloc, (void *)of_class);
    lp_release(alloc, of_class_count);
    return status;
}

static void rewind_names(maker *m)
{
    for (int32_t i = 0; i < m->needs->ranks; i++)
        m->cursor[i] = 0;
}

/* ---- the choice ---- */

static int by_excess(const void *a, const void *b)
{
    const name_cost *x = a, *y = b;
    const int64_t d = (x->total - x->all) - (y->total - y->all);
    return d != 0 ? (d < 0 ? -1 : 1) : x->name < y->name ? -1 : x->name > y->name;
}

static lp_status measure(maker *m, name_cost *cost, int64_t *count, lp_error *err)
{
    lp_cold_costs *c = &m->out->costs;
    rewind_names(m);
    for (uint32_t name = 0; name < lp_checkpoint_count(m->needs->catalogue); name++) {
        lp_ranges all;
        int64_t total;
        lp_ranges_init(&all, m->needs->alloc);
        const lp_status status = expand(m, name, &all, &total, err);
        const int64_t bytes = all.bytes;
        lp_ranges_free(&all);
        LP_TRY(status);
        m->out->needed[name] = total;
        m->out->once[name] = bytes;
        c->names += total > 0;
        c->bytes_needed += total;
        c->bytes_union += bytes;
        if (total > bytes)
            cost[(*count)++] = (name_cost){.name = name, .total = total, .all = bytes};
        else
            c->bytes_own += bytes;
    }
    return LP_OK;
}

/* What the two ways take, by rates of the storage that all ranks read from and of the link of one rank. */
static bool reading_again_is_cheaper(const name_cost *n, int32_t ranks, const lp_cold_rates *r)
{
    const double own = (double)n->total / (double)r->storage;
    const double exchange = (double)(n->total - n->all) / (double)ranks / (double)r->link;
    return own < (double)n->all / (double)r->storage + exchange + (double)r->message_ns * 1e-9;
}

static lp_status choose(maker *m, const lp_cold_rates *rates, lp_error *err)
{
    const int64_t names = lp_checkpoint_count(m->needs->catalogue);
    lp_cold_costs *c = &m->out->costs;
    int64_t count = 0, excess = 0;
    name_cost *cost = lp_allocate(m->needs->alloc, ((size_t)names + 1) * sizeof *cost);
    if (cost == NULL)
        return lp_fail_memory(err);
    const lp_status status = measure(m, cost, &count, err);
    if (status == LP_OK && count > 0)
        qsort(cost, (size_t)count, sizeof *cost, by_excess);
    const bool is_apart = c->bytes_needed - c->bytes_union <= c->bytes_union / MARGIN;
    for (int64_t i = 0; i < count && status == LP_OK; i++) {
        const int64_t more = cost[i].total - cost[i].all;
        if (is_apart ||
            (excess + more <= c->bytes_union / MARGIN && reading_again_is_cheaper(&cost[i], m->needs->ranks, rates))) {
            excess += more;
            c->bytes_own += cost[i].total;
            continue;
        }
        m->out->is_shared[cost[i].name] = true;
        c->names_shared++;
        c->bytes_shared += cost[i].all;
    }
    c->bytes_read = c->bytes_own + c->bytes_shared;
    m->stream = c->bytes_shared;
    lp_release(m->needs->alloc, cost);
    return status;
}

/* ---- shares, chunks and pieces ---- */

static int64_t share_begin(const maker *m, int32_t reader)
{
    const int64_t part = m->stream / m->needs->ranks, rest = m->stream % m->needs->ranks;
    return part * reader + (reader < rest ? reader : rest);
}

static int32_t reader_of(const maker *m, int64_t position)
{
    int32_t low = 0, high = m->needs->ranks; /* the last one that begins at or before the position */
    while (high - low > 1) {
        const int32_t middle = low + (high - low) / 2;
        if (share_begin(m, middle) <= position)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* Frames of a list are opened up to `chunk`; those in between stay empty. */
static lp_status open_frame(lp_pieces *p, int64_t chunk, lp_error *err)
{
    void *items = p->frame;
    if (!lp_grow(p->alloc, &items, &p->frame_capacity, chunk + 1, sizeof *p->frame))
        return lp_fail_memory(err);
    p->frame = items;
    while (p->frame_count <= chunk)
        p->frame[p->frame_count++] = (lp_frame_span){.first = p->count};
    return LP_OK;
}

static lp_status add_to_frame(lp_pieces *p, int64_t chunk, const lp_piece *piece, int64_t count, lp_error *err)
{
    LP_TRY(open_frame(p, chunk, err));
    lp_frame_span *f = &p->frame[chunk];
    for (int64_t i = 0; i < count; i++) {
        /* A piece must not continue one of an earlier frame. */
        LP_TRY(f->count == 0 ? lp_pieces_add(p, &piece[i], err) : lp_pieces_join(p, &piece[i], err));
        f->count = p->count - f->first;
        f->bytes += lp_piece_bytes(&piece[i]);
    }
    return LP_OK;
}

/* What a class needs of a stretch. */
static lp_status find_common(lp_pieces *out, uint32_t name, const lp_ranges *r, int64_t lo, int64_t hi, lp_error *err)
{
    int64_t low = 0, high = r->count; /* the first range that ends behind lo */
    out->count = out->bytes = 0;
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        if (r->item[middle].hi <= lo)
            low = middle + 1;
        else
            high = middle;
    }
    for (; low < r->count && r->item[low].lo < hi; low++)
        LP_TRY(lp_pieces_add_range(out, name, r->item[low].lo > lo ? r->item[low].lo : lo,
                                   r->item[low].hi < hi ? r->item[low].hi : hi, err));
    return LP_OK;
}

/* A stretch of one chunk of one reader. */
static lp_status add_stretch(maker *m, int32_t reader, int64_t chunk, uint32_t name, int64_t lo, int64_t hi,
                             lp_error *err)
{
    lp_cold_world *c = m->out;
    if (c->rank < 0)
        return LP_OK;
    const int32_t mine = m->class_of[c->rank];
    if (reader == c->rank) {
        const lp_piece all = {.name = name, .lo = lo, .run = hi - lo, .count = 1};
        LP_TRY(add_to_frame(&c->read, chunk, &all, 1, err));
        for (int32_t k = 0; k < m->classes; k++)
            LP_TRY(find_common(&m->part[k], name, &m->range[k], lo, hi, err));
        for (int32_t j = 0; j < c->ranks; j++)
            if (m->class_of[j] >= 0)
                LP_TRY(
                    add_to_frame(&c->out[j], chunk, m->part[m->class_of[j]].piece, m->part[m->class_of[j]].count, err));
    } else if (mine >= 0) {
        LP_TRY(find_common(&m->part[mine], name, &m->range[mine], lo, hi, err));
    }
    if (mine >= 0)
        LP_TRY(add_to_frame(&c->in[reader], chunk, m->part[mine].piece, m->part[mine].count, err));
    return LP_OK;
}

static lp_status deal_out(maker *m, uint32_t name, int64_t lo, int64_t hi, lp_error *err)
{
    while (lo < hi) {
        const int32_t reader = reader_of(m, m->position);
        const int64_t begin = share_begin(m, reader), chunk = (m->position - begin) / m->bucket;
        int64_t end = begin + (chunk + 1) * m->bucket;
        if (end > share_begin(m, reader + 1))
            end = share_begin(m, reader + 1);
        const int64_t bytes = end - m->position < hi - lo ? end - m->position : hi - lo;
        m->out->chunks[reader] = chunk + 1;
        LP_TRY(add_stretch(m, reader, chunk, name, lo, lo + bytes, err));
        m->position += bytes;
        lo += bytes;
    }
    return LP_OK;
}

static lp_status deal_out_all(maker *m, lp_error *err)
{
    lp_status status = LP_OK;
    rewind_names(m);
    for (uint32_t name = 0; name < lp_checkpoint_count(m->needs->catalogue) && status == LP_OK; name++) {
        lp_ranges all;
        int64_t total;
        if (!m->out->is_shared[name])
            continue;
        lp_ranges_init(&all, m->needs->alloc);
        status = expand(m, name, &all, &total, err);
        m->out->costs.bytes_exchanged += total;
        for (int64_t i = 0; i < all.count && status == LP_OK; i++)
            status = deal_out(m, name, all.item[i].lo, all.item[i].hi, err);
        lp_ranges_free(&all);
    }
    return status;
}

/* Every list has a frame for every chunk of its reader. */
static lp_status close_frames(lp_cold_world *c, lp_error *err)
{
    for (int32_t i = 0; i < c->ranks && c->rank >= 0; i++) {
        if (c->chunks[i] > 0)
            LP_TRY(open_frame(&c->in[i], c->chunks[i] - 1, err));
        if (c->chunks[c->rank] > 0)
            LP_TRY(open_frame(&c->out[i], c->chunks[c->rank] - 1, err));
    }
    return LP_OK;
}

static lp_status allocate(lp_cold_world *c, maker *m, lp_error *err)
{
    const size_t ranks = (size_t)c->ranks + 1;
    c->out = lp_allocate_zero(c->alloc, ranks * sizeof *c->out);
    c->in = lp_allocate_zero(c->alloc, ranks * sizeof *c->in);
    c->chunks = lp_allocate_zero(c->alloc, ranks * sizeof *c->chunks);
    const size_t names = (size_t)lp_checkpoint_count(m->needs->catalogue) + 1;
    c->is_shared = lp_allocate_zero(c->alloc, names);
    c->needed = lp_allocate_zero(c->alloc, names * sizeof *c->needed);
    c->once = lp_allocate_zero(c->alloc, names * sizeof *c->once);
    m->range = lp_allocate_zero(c->alloc, ranks * sizeof *m->range);
    m->part = lp_allocate_zero(c->alloc, ranks * sizeof *m->part);
    m->class_of = lp_allocate_zero(c->alloc, ranks * sizeof *m->class_of);
    m->members = lp_allocate_zero(c->alloc, ranks * sizeof *m->members);
    m->cursor = lp_allocate_zero(c->alloc, ranks * sizeof *m->cursor);
    if (c->out == NULL || c->in == NULL || c->chunks == NULL || c->is_shared == NULL || c->needed == NULL ||
        c->once == NULL || m->range == NULL || m->cursor == NULL)
        return lp_fail_memory(err);
    for (int32_t i = 0; i < c->ranks; i++) {
        lp_pieces_init(&c->out[i], c->alloc);
        lp_pieces_init(&c->in[i], c->alloc);
        lp_ranges_init(&m->range[i], c->alloc);
        lp_pieces_init(&m->part[i], c->alloc);
    }
    return LP_OK;
}

lp_status lp_cold_world_make(lp_cold_world *out, const lp_world_bytes *needs, int32_t rank, int64_t bucket,
                             const lp_cold_rates *rates, lp_error *err)
{
    static const lp_cold_rates usual = {.storage = 2000000000, .link = 50000000000, .message_ns = 20000};
    maker m = {.needs = needs, .out = out, .bucket = bucket};
    *out = (lp_cold_world){.alloc = needs->alloc, .rank = rank, .ranks = needs->ranks};
    lp_pieces_init(&out->read, needs->alloc);
    lp_status status = allocate(out, &m, err);
    if (status == LP_OK)
        status = choose(&m, rates == NULL ? &usual : rates, err);
    if (status == LP_OK)
        status = deal_out_all(&m, err);
    if (status == LP_OK)
        status = close_frames(out, err);
    for (int32_t i = 0; m.range != NULL && i < needs->ranks; i++)
        lp_ranges_free(&m.range[i]);
    for (int32_t i = 0; m.part != NULL && i < needs->ranks; i++)
        lp_pieces_free(&m.part[i]);
    lp_release(needs->alloc, m.range);
    lp_release(needs->alloc, m.part);
    lp_release(needs->alloc, m.class_of);
    lp_release(needs->alloc, m.members);
    lp_release(needs->alloc, m.cursor);
    if (status != LP_OK)
        lp_cold_world_free(out);
    return status;
}

void lp_cold_world_free(lp_cold_world *c)
{
    for (int32_t i = 0; i < c->ranks; i++) {
        if (c->out != NULL)
            lp_pieces_free(&c->out[i]);
        if (c->in != NULL)
            lp_pieces_free(&c->in[i]);
    }
    lp_pieces_free(&c->read);
    lp_release(c->alloc, c->out);
    lp_release(c->alloc, c->in);
    lp_release(c->alloc, c->chunks);
    lp_release(c->alloc, c->is_shared);
    lp_release(c->alloc, c->needed);
    lp_release(c->alloc, c->once);
    *c = (lp_cold_world){.alloc = c->alloc};
}

lp_status lp_explain_cold(lp_cold_costs *out, const lp_trace *trace, const lp_cold_rates *rates,
                          const lp_platform *platform, lp_error *err)
{
    lp_world_bytes needs;
    lp_cold_world world;
    LP_TRY(lp_world_bytes_make(&needs, trace, false, platform, err));
    const lp_status status = lp_cold_world_make(&world, &needs, -1, INT64_MAX / 4, rates, err);
    if (status == LP_OK) {
        *out = world.costs;
        lp_cold_world_free(&world);
    }
    lp_world_bytes_free(&needs);
    return status;
}
