/* SPDX-License-Identifier: Apache-2.0 */
/* Lists of pieces. */
#include "replayer/sync_piece.h"

#include "replayer/transport_wire.h"

enum { PIECE_BYTES = 36, LINE = 64, ALIGN = 16 };

void lp_pieces_init(lp_pieces *p, const lp_alloc *alloc)
{
    *p = (lp_pieces){.alloc = alloc};
}

void lp_pieces_free(lp_pieces *p)
{
    lp_release(p->alloc, p->piece);
    lp_release(p->alloc, p->frame);
    *p = (lp_pieces){.alloc = p->alloc};
}

lp_status lp_pieces_add(lp_pieces *p, const lp_piece *piece, lp_error *err)
{
    void *items = p->piece;
    if (!lp_grow(p->alloc, &items, &p->capacity, p->count + 1, sizeof *p->piece))
        return lp_fail_memory(err);
    p->piece = items;
    p->piece[p->count++] = *piece;
    p->bytes += lp_piece_bytes(piece);
    return LP_OK;
}

lp_status lp_pieces_add_range(lp_pieces *p, uint32_t name, int64_t lo, int64_t hi, lp_error *err)
{
    lp_piece *last = p->count > 0 ? &p->piece[p->count - 1] : NULL;
    if (last != NULL && last->name == name && last->run > 0 && hi > lo) {
        const int64_t start = last->lo + (last->count - 1) * last->stride;
        if (last->count == 1 && start + last->run == lo) {
            last->run += hi - lo;
            p->bytes += hi - lo;
            return LP_OK;
        }
        const bool repeats = hi - lo == last->run && lo > start && (last->count == 1 || lo - start == last->stride);
        if (repeats) {
            last->stride = lo - start;
            last->count++;
            p->bytes += hi - lo;
            return LP_OK;
        }
    }
    return lp_pieces_add(p, &(lp_piece){.name = name, .lo = lo, .run = hi - lo, .count = 1}, err);
}

lp_status lp_pieces_join(lp_pieces *p, const lp_piece *piece, lp_error *err)
{
    lp_piece *last = p->count > 0 ? &p->piece[p->count - 1] : NULL;
    if (piece->count == 1)
        return lp_pieces_add_range(p, piece->name, piece->lo, piece->lo + piece->run, err);
    if (last == NULL || last->name != piece->name || last->run != piece->run ||
        (last->count > 1 && last->stride != piece->stride) || piece->lo - last->lo != last->count * piece->stride)
        return lp_pieces_add(p, piece, err);
    last->stride = piece->stride;
    last->count += piece->count;
    p->bytes += lp_piece_bytes(piece);
    return LP_OK;
}

lp_status lp_piece_ranges(const lp_piece *piece, lp_ranges *out, lp_error *err)
{
    for (int64_t i = 0; i < piece->count; i++)
        LP_TRY(lp_ranges_add(out, piece->lo + i * piece->stride, piece->lo + i * piece->stride + piece->run, err));
    return LP_OK;
}

/* ---- frames ---- */

typedef struct cutter {
    lp_pieces *out;
    lp_frame_span frame; /* the open one */
    int64_t bucket;
} cutter;

static lp_status close_frame(cutter *c, lp_error *err)
{
    lp_pieces *p = c->out;
    void *items = p->frame;
    if (c->frame.count == 0)
        return LP_OK;
    if (!lp_grow(p->alloc, &items, &p->frame_capacity, p->frame_count + 1, sizeof *p->frame))
        return lp_fail_memory(err);
    p->frame = items;
    p->frame[p->frame_count++] = c->frame;
    c->frame = (lp_frame_span){.first = p->count};
    return LP_OK;
}

static lp_status put_whole(cutter *c, const lp_piece *piece, lp_error *err)
{
    LP_TRY(lp_pieces_add(c->out, piece, err));
    c->frame.count++;
    c->frame.bytes += lp_piece_bytes(piece);
    return LP_OK;
}

/* One run, over as many frames as it takes. */
static lp_status put_run(cutter *c, uint32_t name, int64_t lo, int64_t hi, lp_error *err)
{
    do {
        int64_t end = hi;
        if (hi - lo > c->bucket - c->frame.bytes) {
            end = (lo + c->bucket - c->frame.bytes) / LINE * LINE;
            if (end <= lo && c->frame.bytes > 0) {
                LP_TRY(close_frame(c, err));
                continue;
            }
            if (end <= lo)
                end = lo + c->bucket;
        }
        LP_TRY(put_whole(c, &(lp_piece){.name = name, .lo = lo, .run = end - lo, .count = 1}, err));
        lo = end;
    } while (lo < hi);
    return LP_OK;
}

static lp_status put_piece(cutter *c, lp_piece piece, lp_error *err)
{
    while (piece.count > 0) {
        const int64_t room = c->bucket - c->frame.bytes;
        int64_t fit = piece.run == 0 ? piece.count : room / piece.run;
        if (fit > piece.count)
            fit = piece.count;
        if (fit > 0) {
            lp_piece part = piece;
            part.count = fit;
            part.stride = fit > 1 ? piece.stride : 0;
            LP_TRY(put_whole(c, &part, err));
        } else {
            LP_TRY(put_run(c, piece.name, piece.lo, piece.lo + piece.run, err));
            fit = 1;
        }
        piece.lo += fit * piece.stride;
        piece.count -= fit;
    }
    return LP_OK;
}

lp_status lp_pieces_cut(lp_pieces *p, int64_t bucket, lp_error *err)
{
    lp_pieces out;
    lp_pieces_init(&out, p->alloc);
    cutter c = {.out = &out, .bucket = bucket};
    lp_status status = LP_OK;
    for (int64_t i = 0; i < p->count && status == LP_OK; i++)
        status = put_piece(&c, p->piece[i], err);
    if (status == LP_OK)
        status = close_frame(&c, err);
    if (status != LP_OK) {
        lp_pieces_free(&out);
        return status;
    }
    lp_pieces_free(p);
    *p = out;
    return LP_OK;
}

static bool is_aligned(const lp_piece *p)
{
    return lp_piece_bytes(p) % ALIGN == 0;
}

lp_status lp_pieces_align(lp_pieces *p, lp_error *err)
{
    lp_piece *sorted = lp_allocate(p->alloc, ((size_t)p->count + 1) * sizeof *sorted);
    int64_t at = 0;
    if (sorted == NULL)
        return lp_fail_memory(err);
    for (int64_t f = 0; f < p->frame_count; f++)
        for (int turn = 0; turn < 2; turn++)
            for (int64_t i = p->frame[f].first; i < p->frame[f].first + p->frame[f].count; i++)
                if (is_aligned(&p->piece[i]) == (turn == 0))
                    sorted[at++] = p->piece[i];
    lp_release(p->alloc, p->piece);
    p->piece = sorted;
    p->capacity = p->count + 1;
    return LP_OK;
}

/* ---- on the wire ---- */

lp_status lp_pieces_put(const lp_pieces *p, lp_text *out, lp_error *err)
{
    for (int64_t i = 0; i < p->count; i++) {
        uint8_t row[PIECE_BYTES];
        const lp_piece *piece = &p->piece[i];
        lp_wire_put_u32(row, piece->name);
        lp_wire_put_i64(row + 4, piece->lo);
        lp_wire_put_i64(row + 12, piece->run);
        lp_wire_put_i64(row + 20, piece->stride);
        lp_wire_put_i64(row + 28, piece->count);
        lp_text_add(out, (const char *)row, sizeof row);
    }
    return out->failed ? lp_fail_memory(err) : LP_OK;
}

/* Whether all runs lie in the tensor and none touches bytes twice. */
static bool is_sound(const lp_piece *p, const lp_checkpoint *catalogue)
{
    int64_t span;
    if (p->name >= lp_checkpoint_count(catalogue))
        return false;
    const int64_t bytes = lp_checkpoint_at(catalogue, p->name)->bytes;
    if (p->lo < 0 || p->run < 0 || p->count < 1 || p->lo > bytes || p->run > bytes)
        return false;
    if (p->count == 1)
        return p->stride == 0 && p->run <= bytes - p->lo;
    return p->run > 0 && p->stride > p->run && lp_mul(p->count - 1, p->stride, &span) && lp_add(span, p->run, &span) &&
           span <= bytes - p->lo;
}

lp_status lp_pieces_get(lp_pieces *p, const uint8_t *data, int64_t bytes, const lp_checkpoint *catalogue, lp_error *err)
{
    if (bytes % PIECE_BYTES != 0)
        return lp_fail(err, LP_E_CORRUPT, "a list of pieces of %lld bytes", (long long)bytes);
    for (int64_t off = 0; off < bytes; off += PIECE_BYTES) {
        const lp_piece piece = {.name = lp_wire_get_u32(data + off),
                                .lo = lp_wire_get_i64(data + off + 4),
                                .run = lp_wire_get_i64(data + off + 12),
                                .stride = lp_wire_get_i64(data + off + 20),
                                .count = lp_wire_get_i64(data + off + 28)};
        if (!is_sound(&piece, catalogue))
            return lp_fail(err, LP_E_CORRUPT, "piece %lld of a list lies outside of its tensor",
                           (long long)(off / PIECE_BYTES));
        int64_t total;
        if (!lp_add(p->bytes, lp_piece_bytes(&piece), &total))
            return lp_fail(err, LP_E_CORRUPT, "a list of pieces has more bytes than can be counted");
        LP_TRY(lp_pieces_add(p, &piece, err));
    }
    return LP_OK;
}
