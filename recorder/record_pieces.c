/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies from a temporary. The copy itself is a map from the temporary to the destination; cut to the bytes of each
 * piece and composed with the piece's map, it becomes one copy a piece.
 */
#include "recorder/record_private.h"

/* Takes ownership of a fresh map in the name of the scope. */
static lp_status keep(lp_recorder *r, const lp_map *map, const lp_map **out, lp_error *err)
{
    *out = rec_own(r, map);
    return *out != NULL ? LP_OK : lp_fail_memory(err);
}

/* The part of `copy` that reads what `piece` wrote. */
static lp_status cut_to_piece(lp_recorder *r, const lp_map *copy, const lp_map *piece, const lp_map **out,
                              lp_error *err)
{
    const lp_alloc *alloc = r->platform.alloc;
    const lp_map *part = NULL;
    *out = NULL;
    if (copy->src_lo >= piece->dst_hi || piece->dst_lo >= copy->src_hi)
        return LP_OK;
    if (piece->dst_bytes == piece->dst_hi - piece->dst_lo) { /* no gaps: an interval decides */
        if (copy->src_lo >= piece->dst_lo && copy->src_hi <= piece->dst_hi) {
            *out = copy;
            return LP_OK;
        }
        LP_TRY(lp_map_source_range(&part, copy, piece->dst_lo, piece->dst_hi, alloc, err));
        return keep(r, part, out, err);
    }
    /* Seen from the other side, the bytes that are read are destinations, and can be intersected with the piece's. */
    const lp_map *back = NULL, *common = NULL;
    LP_TRY(lp_map_inverse(&back, copy, alloc, err));
    lp_status status = lp_map_intersect(&common, back, piece, 0, alloc, err);
    lp_map_free(back, alloc);
    if (status != LP_OK)
        return status;
    status = lp_map_inverse(&part, common, alloc, err);
    lp_map_free(common, alloc);
    return status == LP_OK ? keep(r, part, out, err) : status;
}

static bool is_multiple(int64_t value, int64_t of)
{
    return value % of == 0;
}

/* The destinations of `part`, as a fill by patterns of `elem` bytes; they must be read in whole patterns. */
static lp_status fill_of(lp_recorder *r, const lp_map *part, int64_t pattern_start, int32_t elem, const lp_map **out,
                         lp_error *err)
{
    lp_box *box = lp_arena_get(&r->arena, (size_t)part->nbox * sizeof *box);
    lp_mode *mode = lp_arena_get(&r->arena, (size_t)part->nmode * sizeof *mode);
    if (box == NULL || mode == NULL)
        return lp_fail_memory(err);
    for (int32_t b = 0; b < part->nbox; b++) {
        const lp_box *from = &part->box[b];
        bool whole = is_multiple(from->src_off - pattern_start, elem) && is_multiple(from->run, elem);
        box[b] = (lp_box){.dst_off = from->dst_off, .run = from->run / elem, .rank = from->rank, .mode = mode};
        for (int32_t m = 0; m < from->rank; m++) {
            whole = whole && is_multiple(from->mode[m].src_stride, elem);
            *mode++ = (lp_mode){.extent = from->mode[m].extent, .dst_stride = from->mode[m].dst_stride};
        }
        if (!whole)
            return lp_fail(err, LP_E_UNSUPPORTED, "copies parts of elements that a fill wrote");
    }
    const lp_map *map = NULL;
    LP_TRY(lp_map_from_boxes(&map, 0, elem, part->nbox, box, r->platform.alloc, err));
    return keep(r, map, out, err);
}

/* A fill seen through the copy: the same pattern elsewhere, or its value in another dtype. */
static lp_status through_fill(lp_recorder *r, const lp_map *part, const rec_piece *piece, lp_dtype from, lp_dtype to,
                              rec_piece *out, lp_error *err)
{
    *out = (rec_piece){.fill_bits = piece->fill_bits, .name = piece->name, .flags = piece->flags, .is_fill = true};
    const int32_t pattern = piece->map->dst_elem;
    if (part->src_elem == 1 && part->dst_elem == 1)
        return fill_of(r, part, piece->map->dst_lo, pattern, &out->map, err);
    /* A cast: elements of `from`, whose bytes repeat the pattern. */
    unsigned char bytes[8], value[8] = {0};
    const int size = lp_dtype_bits(from) / 8;
    for (int i = 0; i < size; i++)
        bytes[i] = (unsigned char)(piece->fill_bits >> (8 * (i % pattern)));
    LP_TRY(lp_cast_elements(from, bytes, to, value, 1));
    out->fill_bits = 0;
    for (int i = 0; i < lp_dtype_bits(to) / 8; i++)
        out->fill_bits |= (uint64_t)value[i] << (8 * i);
    lp_box *box = lp_arena_copy(&r->arena, part->box, (size_t)part->nbox * sizeof *box);
    lp_mode *mode = lp_arena_get(&r->arena, (size_t)part->nmode * sizeof *mode);
    if (box == NULL || mode == NULL)
        return lp_fail_memory(err);
    for (int32_t b = 0; b < part->nbox; b++) {
        box[b].src_off = 0;
        for (int32_t m = 0; m < box[b].rank; m++)
            mode[m] = (lp_mode){.extent = box[b].mode[m].extent, .dst_stride = box[b].mode[m].dst_stride};
        box[b].mode = mode;
        mode += box[b].rank;
    }
    const lp_map *map = NULL;
    LP_TRY(lp_map_from_boxes(&map, 0, part->dst_elem, part->nbox, box, r->platform.alloc, err));
    return keep(r, map, &out->map, err);
}

static lp_status through_piece(lp_recorder *r, const lp_map *part, const rec_piece *piece, lp_dtype from, lp_dtype to,
                               rec_piece *out, lp_error *err)
{
    if (piece->is_fill)
        return through_fill(r, part, piece, from, to, out, err);
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
    return keep(r, map, &out->map, err);
}

void rec_copy_pieces(const char *file, int line, lp_tensor dst, lp_tensor src)
{
    lp_recorder *r = dst.recorder;
    const lp_dtype from = src.view.dtype, to = dst.view.dtype;
    const lp_map *made = NULL, *copy = NULL;
    lp_error err;
    lp_status status = lp_map_copy(&made, &dst.view, rec_memory_bytes(r, dst), &src.view, rec_memory_bytes(r, src),
                                   r->platform.alloc, &err);
    if (status == LP_OK)
        status = keep(r, made, &copy, &err);
    uint8_t flags = src.flags;
    if (src.cast_to == 0 && lp_cast_kind_of(from, to) == LP_CAST_VALUES)
        flags |= LP_PROV_IMPLICIT_CAST;

    int64_t copied_bytes = 0;
    /* By index: a copy into another temporary may move the array of temporaries. */
    for (int64_t i = 0; status == LP_OK && i < r->temporary[src.base].count; i++) {
        const rec_piece piece = r->temporary[src.base].piece[i];
        const lp_map *part = NULL;
        rec_piece through;
        status = cut_to_piece(r, copy, piece.map, &part, &err);
        if (status != LP_OK || part == NULL || part->nbox == 0)
            continue;
        status = through_piece(r, part, &piece, from, to, &through, &err);
        if (status != LP_OK)
            continue;
        copied_bytes += part->dst_bytes;
        through.flags |= flags;
        rec_put(file, line, dst, &through, 0, 0);
    }
    if (status != LP_OK)
        rec_copy_failed(file, line, dst, src, &err);
    else if (copied_bytes != copy->dst_bytes)
        rec_misuse(file, line, r, LP_E_MISUSE, "a copy of %lld bytes that nothing was written to",
                   (long long)(copy->dst_bytes - copied_bytes));
}
