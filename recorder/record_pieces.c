/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies from a temporary. The copy itself is a map from the temporary to the destination; cut to the bytes of each
 * piece and composed with the piece's map, it becomes one copy a piece.
 */
#include "recorder/record_private.h"

/* ---- going through a piece ---- */

static bool is_multiple(int64_t value, int64_t of)
{
    return value % of == 0;
}

/* A fill seen through a cast: its value in the other dtype, in the shortest pattern. */
static lp_status cast_pattern(const rec_piece *piece, lp_dtype from, lp_dtype to, uint64_t *bits, int32_t *elem,
                              lp_error *err)
{
    unsigned char bytes[8], value[8] = {0};
    const int32_t pattern = piece->map->dst_elem, size = lp_dtype_bits(to) / 8;
    for (int i = 0; i < lp_dtype_bits(from) / 8; i++)
        bytes[i] = (unsigned char)(piece->fill_bits >> (8 * (i % pattern)));
    if (lp_cast_elements(from, bytes, to, value, 1) != LP_OK)
        return lp_fail(err, LP_E_UNSUPPORTED, "no cast from %s to %s", lp_dtype_name(from), lp_dtype_name(to));
    *elem = size;
    while (*elem > 1 && memcmp(value, value + *elem / 2, (size_t)(*elem / 2)) == 0)
        *elem /= 2;
    *bits = 0;
    for (int32_t i = 0; i < *elem; i++)
        *bits |= (uint64_t)value[i] << (8 * i);
    return LP_OK;
}

/* A fill seen through the copy: the same pattern elsewhere, or its value in another dtype. Whole patterns must be read,
 * from the beginning of one on. */
static lp_status through_fill(lp_recorder *r, const lp_map *part, const rec_piece *piece, lp_dtype from, lp_dtype to,
                              rec_piece *out, lp_error *err)
{
    int32_t elem = piece->map->dst_elem;
    *out = (rec_piece){.fill_bits = piece->fill_bits, .name = piece->name, .flags = piece->flags, .is_fill = true};
    const bool casts = lp_cast_kind_of(from, to) == LP_CAST_VALUES;
    if (casts)
        LP_TRY(cast_pattern(piece, from, to, &out->fill_bits, &elem, err));

    lp_box *box = lp_arena_get(&r->arena, (size_t)part->nbox * sizeof *box);
    lp_mode *mode = lp_arena_get(&r->arena, (size_t)part->nmode * sizeof *mode);
    if (box == NULL || mode == NULL)
        return lp_fail_memory(err);
    for (int32_t b = 0; b < part->nbox; b++) {
        const lp_box *old = &part->box[b];
        bool whole = casts || (is_multiple(old->src_off - piece->map->dst_lo, elem) && is_multiple(old->run, elem));
        box[b] =
            (lp_box){.dst_off = old->dst_off, .run = old->run * part->dst_elem / elem, .rank = old->rank, .mode = mode};
        for (int32_t m = 0; m < old->rank; m++) {
            whole = whole && (casts || is_multiple(old->mode[m].src_stride, elem));
            *mode++ = (lp_mode){.extent = old->mode[m].extent, .dst_stride = old->mode[m].dst_stride};
        }
        if (!whole)
            return lp_fail(err, LP_E_UNSUPPORTED, "copies parts of elements that a fill wrote");
    }
    const lp_map *map = NULL;
    LP_TRY(lp_map_from_boxes(&map, 0, elem, part->nbox, box, r->platform.alloc, err));
    return rec_keep(r, map, &out->map, err);
}

/* A place in elements of `from` bytes as one in elements of `to`; where they are equal it need not be whole elements.
 */
static int64_t scaled(int64_t place, int64_t from, int64_t to)
{
    return from == to ? place : place / from * to;
}

lp_status rec_map_as_bytes(lp_recorder *r, const lp_map *cast, int64_t elem, const lp_map **out, lp_error *err)
{
    lp_box *box = lp_arena_get(&r->arena, (size_t)cast->nbox * sizeof *box);
    lp_mode *mode = lp_arena_get(&r->arena, (size_t)cast->nmode * sizeof *mode);
    if (box == NULL || mode == NULL)
        return lp_fail_memory(err);
    for (int32_t b = 0; b < cast->nbox; b++) {
        const lp_box *old = &cast->box[b];
        box[b] = *old;
        box[b].src_off = scaled(old->src_off, cast->src_elem, elem);
        box[b].dst_off = scaled(old->dst_off, cast->dst_elem, elem);
        box[b].run *= elem;
        box[b].mode = mode;
        for (int32_t m = 0; m < old->rank; m++) {
            mode[m] = old->mode[m];
            mode[m].src_stride = scaled(mode[m].src_stride, cast->src_elem, elem);
            mode[m].dst_stride = scaled(mode[m].dst_stride, cast->dst_elem, elem);
        }
        mode += old->rank;
    }
    const lp_map *map = NULL;
    LP_TRY(lp_map_from_boxes(&map, 1, 1, cast->nbox, box, r->platform.alloc, err));
    return rec_keep(r, map, out, err);
}

/* A computed value seen through the copy, which may cast it. */
static lp_status through_value(lp_recorder *r, const lp_map *part, const rec_piece *piece, lp_dtype from, lp_dtype to,
                               rec_piece *out, lp_error *err)
{
    const lp_map *map = NULL;
    if (r->value[piece->name].node.dtype != (uint16_t)from)
        return lp_fail(err, LP_E_UNSUPPORTED, "other bytes of a computed value");
    *out = *piece;
    LP_TRY(lp_map_compose(&map, part, piece->map, r->platform.alloc, err));
    LP_TRY(rec_keep(r, map, &out->map, err));
    if (lp_cast_kind_of(from, to) != LP_CAST_VALUES)
        return LP_OK;
    const int64_t node = rec_cast_value(r, piece->name, to);
    if (node < 0)
        return lp_fail_memory(err);
    out->name = (uint32_t)node;
    return rec_map_as_bytes(r, out->map, out->map->dst_elem, &out->map, err);
}

static lp_status through_piece(lp_recorder *r, const lp_map *part, const rec_piece *piece, lp_dtype from, lp_dtype to,
                               rec_piece *out, lp_error *err)
{
    if (piece->is_fill)
        return through_fill(r, part, piece, from, to, out, err);
    if (piece->is_value)
        return through_value(r, part, piece, from, to, out, err);
    const bool casts = lp_cast_kind_of(from, to) == LP_CAST_VALUES;
    if (casts && piece->src_dtype != 0)
        return lp_fail(err, LP_E_UNSUPPORTED, "casts from %s to %s and then to %s",
                       lp_dtype_name((lp_dtype)piece->src_dtype), lp_dtype_name((lp_dtype)piece->dst_dtype),
                       lp_dtype_name(to));
    *out = *piece;
    if (casts) {
        out->src_dtype = (uint8_t)from;
        out->dst_dtype = (uint8_t)to;
    }
    const lp_map *map = NULL;
    LP_TRY(lp_map_compose(&map, part, piece->map, r->platform.alloc, err));
    return rec_keep(r, map, &out->map, err);
}

void rec_copy_pieces(const char *file, int line, lp_tensor dst, lp_tensor src)
{
    lp_recorder *r = dst.recorder;
    const lp_dtype from = src.view.dtype, to = dst.view.dtype;
    const lp_map *made = NULL, *copy = NULL;
    lp_error err;
    lp_status status = lp_map_copy(&made, &dst.view, rec_memory_bytes(r, &dst), &src.view, rec_memory_bytes(r, &src),
                                   r->platform.alloc, &err);
    if (status == LP_OK)
        status = rec_keep(r, made, &copy, &err);
    uint8_t flags = src.flags;
    if (src.cast_to == 0 && lp_cast_kind_of(from, to) == LP_CAST_VALUES)
        flags |= LP_PROV_IMPLICIT_CAST;

    int64_t copied_bytes = 0;
    /* By index: a copy into another temporary may move the array of temporaries. */
    for (int64_t i = 0; status == LP_OK && i < r->temporary[src.base].count; i++) {
        const rec_piece piece = r->temporary[src.base].piece[i];
        const lp_map *part = NULL;
        rec_piece through;
        status = rec_cut_to_piece(r, copy, piece.map, &part, &err);
        if (status != LP_OK || part == NULL || part->nbox == 0)
            continue;
        status = through_piece(r, part, &piece, from, to, &through, &err);
        if (status != LP_OK)
            continue;
        copied_bytes += part->dst_bytes;
        through.flags |= flags;
        if (through.is_value && dst.kind == LP_TENSOR_DEST)
            status = rec_place_value(file, line, dst, through.name, through.map, through.flags, true, &err);
        else
            rec_put(file, line, r, &dst, &through, 0, 0);
    }
    if (status != LP_OK)
        rec_copy_failed(file, line, dst, src, &err);
    else if (copied_bytes != copy->dst_bytes)
        rec_misuse(file, line, r, LP_E_MISUSE, "a copy of %lld bytes that nothing was written to",
                   (long long)(copy->dst_bytes - copied_bytes));
}

/* ---- reading what one name put together ---- */

typedef struct gathering {
    const lp_alloc *alloc;
    lp_box *box;
    int64_t boxes, capacity;
} gathering;

static lp_status take_boxes(gathering *g, const lp_map *map, lp_error *err)
{
    if (!lp_grow(g->alloc, (void **)&g->box, &g->capacity, g->boxes + map->nbox, sizeof *g->box))
        return lp_fail_memory(err);
    memcpy(g->box + g->boxes, map->box, (size_t)map->nbox * sizeof *g->box);
    g->boxes += map->nbox;
    return LP_OK;
}

lp_status rec_through_pieces(lp_recorder *r, int64_t temporary, const lp_map *gather, rec_piece *out, lp_error *err)
{
    gathering g = {.alloc = r->platform.alloc};
    const rec_temporary *t = &r->temporary[temporary];
    lp_status status = LP_OK;
    int64_t bytes = 0;
    bool is_one = true;
    for (int64_t i = 0; i < t->count && status == LP_OK && is_one; i++) {
        const rec_piece *piece = &t->piece[i];
        const lp_map *part = NULL, *through = NULL;
        status = rec_cut_to_piece(r, gather, piece->map, &part, err);
        if (status != LP_OK || part == NULL || part->nbox == 0)
            continue;
        is_one = !piece->is_fill && !piece->is_value &&
                 (bytes == 0 || (out->name == piece->name && out->src_dtype == piece->src_dtype &&
                                 out->dst_dtype == piece->dst_dtype));
        if (!is_one)
            break;
        *out = *piece;
        bytes += part->dst_bytes;
        status = lp_map_compose(&through, part, piece->map, g.alloc, err);
        if (status == LP_OK)
            status = rec_keep(r, through, &through, err);
        if (status == LP_OK)
            status = take_boxes(&g, through, err);
    }
    const lp_map *map = NULL;
    if (status == LP_OK && (!is_one || bytes != gather->dst_bytes || g.boxes > REC_PIECES_MAX))
        status = lp_fail(err, LP_E_UNSUPPORTED, "computes on a tensor that was put together");
    const int32_t from = status == LP_OK && out->src_dtype != 0 ? lp_dtype_bits((lp_dtype)out->src_dtype) / 8 : 1;
    const int32_t to = status == LP_OK && out->src_dtype != 0 ? lp_dtype_bits((lp_dtype)out->dst_dtype) / 8 : 1;
    if (status == LP_OK)
        status = lp_map_from_boxes(&map, from, to, (int32_t)g.boxes, g.box, g.alloc, err);
    lp_release(g.alloc, g.box);
    return status == LP_OK ? rec_keep(r, map, &out->map, err) : status;
}
