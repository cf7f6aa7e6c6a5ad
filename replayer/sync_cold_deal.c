/* SPDX-License-Identifier: Apache-2.0 */
/* Deals shared names out: the union of what is needed is one stream, of which each rank reads an even share, in chunks,
 * and sends to each rank that needs some of a chunk its pieces. */
#include "replayer/sync_cold_maker.h"

static int64_t share_begin(const lp_cold_maker *m, int32_t reader)
{
    const int64_t part = m->stream / m->needs->ranks, rest = m->stream % m->needs->ranks;
    return part * reader + (reader < rest ? reader : rest);
}

static int32_t reader_of(const lp_cold_maker *m, int64_t position)
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
static lp_status add_stretch(lp_cold_maker *m, int32_t reader, int64_t chunk, uint32_t name, int64_t lo, int64_t hi,
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

static lp_status deal_out(lp_cold_maker *m, uint32_t name, int64_t lo, int64_t hi, lp_error *err)
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

lp_status lp_cold_deal_out(lp_cold_maker *m, lp_error *err)
{
    lp_status status = LP_OK;
    lp_cold_needs_again(m);
    for (uint32_t name = 0; name < lp_checkpoint_count(m->needs->catalogue) && status == LP_OK; name++) {
        lp_ranges all;
        int64_t total;
        if (!m->out->is_shared[name])
            continue;
        lp_ranges_init(&all, m->needs->alloc);
        status = lp_cold_needs_of(m, name, &all, &total, err);
        m->out->costs.bytes_exchanged += total;
        for (int64_t i = 0; i < all.count && status == LP_OK; i++)
            status = deal_out(m, name, all.item[i].lo, all.item[i].hi, err);
        lp_ranges_free(&all);
    }
    return status == LP_OK ? close_frames(m->out, err) : status;
}
