/* SPDX-License-Identifier: Apache-2.0 */
/* Writes: copies of checkpoint tensors, and fills. Copies of anything else go on to record_pieces.c and
 * record_derive.c. */
#include "recorder/record_private.h"

void rec_add_write(lp_recorder *r, const rec_write *w)
{
    if (r->write_count >= LP_NONE - 1 ||
        !lp_grow(r->platform.alloc, (void **)&r->write, &r->write_capacity, r->write_count + 1, sizeof *r->write)) {
        rec_no_memory(r);
        return;
    }
    rec_destination *dest = &r->dest[w->dest];
    r->write[r->write_count] = *w;
    r->write[r->write_count].previous = dest->last_write;
    dest->last_write = (uint32_t)r->write_count++;
}

void rec_put(const char *file, int line, lp_recorder *r, const lp_tensor *dst, const rec_piece *piece, int64_t src_off,
             int64_t dst_off)
{
    lp_error err;
    if (dst->kind == LP_TENSOR_DEST) {
        const bool comes_first = piece->is_fill && piece->name == LP_NAME_BEGIN;
        lp_status status = rec_leave_readers(file, line, r, dst->base, piece->map, dst_off, &err);
        if (status == LP_OK && (comes_first || r->dest[dst->base].is_computed))
            status = rec_trim_writes(r, dst->base, piece->map, dst_off, !comes_first, &err);
        if (status != LP_OK) {
            rec_misuse_error(file, line, r, &err);
            return;
        }
        const rec_write w = {.map = piece->map,
                             .src_off = src_off,
                             .dst_off = dst_off,
                             .fill_bits = piece->fill_bits,
                             .name = piece->name,
                             .dest = dst->base,
                             .provenance = rec_provenance(r, file, line, piece->flags),
                             .kind = REC_BYTES,
                             .src_dtype = piece->src_dtype,
                             .dst_dtype = piece->dst_dtype};
        rec_add_write(r, &w);
        return;
    }
    rec_piece moved = *piece;
    if (src_off != 0 || dst_off != 0) {
        const lp_map *map = NULL;
        if (lp_map_shift(&map, piece->map, src_off, dst_off, r->platform.alloc, &err) != LP_OK) {
            rec_misuse_error(file, line, r, &err);
            return;
        }
        moved.map = rec_own(r, map);
        if (moved.map == NULL)
            return;
    }
    if (rec_write_piece(r, dst->base, &moved, &err) != LP_OK)
        rec_misuse_error(file, line, r, &err);
}

void rec_copy_failed(const char *file, int line, lp_tensor dst, lp_tensor src, const lp_error *err)
{
    lp_recorder *r = dst.recorder;
    if (err->code == LP_E_UNSUPPORTED || err->code == LP_E_LIMIT)
        rec_refuse_tensor(file, line, src, dst, "copy_", lp_name(r, "%s", err->text));
    else
        rec_misuse_error(file, line, r, err);
}

static void copy_source(const char *file, int line, lp_recorder *r, const lp_tensor *dst, const lp_tensor *src)
{
    const lp_dtype from = src->view.dtype, to = dst->view.dtype;
    rec_piece piece = {.name = src->base, .flags = src->flags};
    int64_t src_off, dst_off;
    lp_error err;
    const lp_status status = rec_map_copy(r, &dst->view, rec_memory_bytes(r, dst), &src->view, rec_memory_bytes(r, src),
                                          &piece.map, &src_off, &dst_off, &err);
    if (status != LP_OK) {
        rec_copy_failed(file, line, *dst, *src, &err);
        return;
    }
    if (piece.map->nbox == 0)
        return;
    if (lp_cast_kind_of(from, to) == LP_CAST_VALUES) {
        piece.src_dtype = (uint8_t)from;
        piece.dst_dtype = (uint8_t)to;
        if (src->cast_to == 0)
            piece.flags |= LP_PROV_IMPLICIT_CAST;
    }
    rec_put(file, line, r, dst, &piece, src_off, dst_off);
}

/* Whether writes into t mean anything. */
static bool is_writable(const char *file, int line, lp_recorder *r, const lp_tensor *t, const char *operation)
{
    switch ((lp_tensor_kind)t->kind) {
    case LP_TENSOR_DEST: {
        const lp_destination *row = &r->dest[t->base].row;
        if (row->flags & LP_DEST_NO_LOADER) {
            rec_misuse(file, line, r, LP_E_MISUSE, "%s into '%s', which no loader writes", operation, row->name);
            return false;
        }
        if (t->cast_to != 0)
            break;
        return true;
    }
    case LP_TENSOR_TEMPORARY:
        if (t->cast_to != 0)
            break;
        return true;
    case LP_TENSOR_SOURCE:
    case LP_TENSOR_INVALID:
    case LP_TENSOR_VALUE:
    case LP_TENSOR_BEGIN:
        break;
    }
    rec_misuse(file, line, r, LP_E_MISUSE, "%s into something that is not a destination", operation);
    return false;
}

lp_tensor lp_copy_at(const char *file, int line, lp_tensor dst, lp_tensor src)
{
    lp_recorder *r = dst.recorder != NULL ? dst.recorder : src.recorder;
    if (r == NULL || !rec_usable(file, line, r, &dst) || !rec_usable(file, line, r, &src))
        return dst;
    if (dst.kind == LP_TENSOR_SOURCE) {
        rec_refuse_tensor(file, line, dst, rec_invalid(r), "copy_", "writes to a checkpoint tensor");
        return dst;
    }
    if (!is_writable(file, line, r, &dst, "a copy"))
        return dst;
    const bool casts_twice = src.cast_to != 0 && src.cast_to != dst.view.dtype;
    bool computed = false;
    int64_t temporary;
    switch ((lp_tensor_kind)src.kind) {
    case LP_TENSOR_SOURCE:
        temporary = rec_shadow(r, src.base, false);
        break;
    case LP_TENSOR_TEMPORARY:
        temporary = src.base;
        break;
    case LP_TENSOR_DEST:
        temporary = rec_written(r, src.base, &computed);
        break;
    case LP_TENSOR_VALUE:
        computed = true;
        temporary = -1;
        break;
    case LP_TENSOR_INVALID:
    case LP_TENSOR_BEGIN:
    default:
        rec_misuse(file, line, r, LP_E_MISUSE, "a copy of something that is not a tensor");
        return dst;
    }
    if (r->misuse.code != LP_OK)
        return dst;
    if (computed || casts_twice) {
        rec_copy_value(file, line, dst, src, true);
    } else if (temporary >= 0) {
        src.kind = LP_TENSOR_TEMPORARY;
        src.base = (uint32_t)temporary;
        rec_copy_pieces(file, line, dst, src);
    } else {
        copy_source(file, line, r, &dst, &src);
    }
    return dst;
}

/* ---- fills ---- */

typedef struct one_name {
    uint32_t name;
    int64_t count;
} one_name;

static void take_name(lp_recorder *r, uint32_t name, void *context)
{
    (void)r;
    one_name *one = context;
    if (one->count == 0 || one->name != name)
        one->count++;
    one->name = name;
}

/* The one name that a trigger stands for. */
static bool find_trigger(const char *file, int line, lp_recorder *r, lp_tensor trigger, uint32_t *name)
{
    if (trigger.kind == LP_TENSOR_BEGIN) {
        *name = LP_NAME_BEGIN;
        return true;
    }
    if (!rec_usable(file, line, r, &trigger))
        return false;
    one_name one = {.count = 0};
    rec_names_of(r, trigger, take_name, &one);
    if (one.count != 1) {
        rec_misuse(file, line, r, LP_E_MISUSE, "a fill is triggered by exactly one checkpoint tensor");
        return false;
    }
    *name = one.name;
    return true;
}

/* Elements of less than a byte are filled as the bytes that they make: of two equal codes, or of zeros. */
static bool fill_whole_bytes(lp_tensor *into, uint64_t *bits, lp_error *err)
{
    const lp_dtype dtype = into->view.dtype;
    if (lp_dtype_bits(dtype) % 8 == 0)
        return true;
    if (dtype == LP_F4) {
        *bits = (*bits & 15) * 0x11;
    } else if (*bits != 0) {
        lp_fail(err, LP_E_UNSUPPORTED, "a fill of %s by anything but 0", lp_dtype_name(dtype));
        return false;
    }
    return lp_view_dtype(&into->view, LP_U8, err) == LP_OK;
}

lp_tensor lp_fill_at(const char *file, int line, lp_tensor dst, uint64_t bits, lp_tensor trigger)
{
    lp_recorder *r = dst.recorder != NULL ? dst.recorder : trigger.recorder;
    if (r == NULL || !rec_usable(file, line, r, &dst))
        return dst;
    rec_piece piece = {.is_fill = true};
    lp_tensor into = dst;
    if (dst.kind == LP_TENSOR_SOURCE) {
        const int64_t shadow = rec_shadow(r, dst.base, true);
        if (shadow < 0)
            return dst;
        piece.name = dst.base;
        into.kind = LP_TENSOR_TEMPORARY;
        into.base = (uint32_t)shadow;
    } else if (!is_writable(file, line, r, &dst, "a fill") || !find_trigger(file, line, r, trigger, &piece.name)) {
        return dst;
    }
    lp_error err;
    if (!fill_whole_bytes(&into, &bits, &err)) {
        rec_misuse_error(file, line, r, &err);
        return dst;
    }
    const int element_bits = lp_dtype_bits(into.view.dtype);
    const lp_map *map = NULL;
    if (lp_map_fill(&map, &piece.fill_bits, &into.view, rec_memory_bytes(r, &into), bits, element_bits / 8,
                    r->platform.alloc, &err) != LP_OK) {
        rec_misuse_error(file, line, r, &err);
        return dst;
    }
    piece.map = rec_own(r, map);
    if (piece.map != NULL && piece.map->nbox > 0)
        rec_put(file, line, r, &into, &piece, 0, 0);
    return dst;
}

lp_tensor lp_zero_at(const char *file, int line, lp_tensor dst, lp_tensor trigger)
{
    return lp_fill_at(file, line, dst, 0, trigger);
}
