/* SPDX-License-Identifier: Apache-2.0 */
/* Refusals: which names a tensor reads, and what becomes of them. */
#include "recorder/record_private.h"

static void names_of_value(lp_recorder *r, uint32_t root, rec_each_name each, void *context);

static void names_of_pieces(lp_recorder *r, int64_t temporary, rec_each_name each, void *context)
{
    for (int64_t i = 0; i < r->temporary[temporary].count; i++) {
        const rec_piece piece = r->temporary[temporary].piece[i];
        if (piece.is_value)
            names_of_value(r, piece.name, each, context);
        else if (piece.name != LP_NAME_BEGIN)
            each(r, piece.name, context);
    }
}

/* Names that bytes between lo and hi of a destination were copied or computed from. */
static void names_of_destination(lp_recorder *r, uint32_t dest, int64_t lo, int64_t hi, rec_each_name each,
                                 void *context)
{
    for (uint32_t i = r->dest[dest].last_write; i != LP_NONE; i = r->write[i].previous) {
        const rec_write *w = &r->write[i];
        if (w->map->dst_lo + w->dst_off >= hi || lo >= w->map->dst_hi + w->dst_off)
            continue;
        if (w->kind == REC_BYTES && w->name != LP_NAME_BEGIN)
            each(r, w->name, context);
        if (w->kind == REC_DERIVE && !r->derive[w->name].is_visited) {
            const uint32_t derive = w->name;
            r->derive[derive].is_visited = true;
            names_of_value(r, r->derive[derive].root, each, context);
            r->derive[derive].is_visited = false;
        }
    }
}

static void names_of_value(lp_recorder *r, uint32_t root, rec_each_name each, void *context)
{
    lp_derive flat = {0};
    if (rec_flatten_value(r, root, &flat, NULL) != LP_OK) {
        rec_no_memory(r);
        return;
    }
    for (uint32_t i = 0; i < flat.ninput; i++) {
        const lp_derive_input *input = &flat.input[i];
        if (input->staged)
            each(r, input->index, context);
        else
            names_of_destination(r, input->index, input->map->src_lo, input->map->src_hi, each, context);
    }
}

/* The bytes that a view spans: an interval that holds all of them. */
static void span_of(const lp_view *v, int64_t *lo, int64_t *hi)
{
    int64_t low = v->offset_bits, high = v->offset_bits + lp_dtype_bits(v->dtype);
    for (int m = 0; m < v->nmode; m++) {
        const int64_t reach = (v->mode[m].extent - 1) * v->mode[m].stride_bits;
        if (reach < 0)
            low += reach;
        else
            high += reach;
    }
    *lo = low / 8;
    *hi = (high + 7) / 8;
}

void rec_names_of(lp_recorder *r, lp_tensor t, rec_each_name each, void *context)
{
    int64_t lo, hi;
    switch ((lp_tensor_kind)t.kind) {
    case LP_TENSOR_SOURCE:
        each(r, t.base, context);
        break;
    case LP_TENSOR_TEMPORARY:
        names_of_pieces(r, t.base, each, context);
        break;
    case LP_TENSOR_DEST:
        span_of(&t.view, &lo, &hi);
        names_of_destination(r, t.base, lo, hi, each, context);
        break;
    case LP_TENSOR_VALUE:
        names_of_value(r, t.base, each, context);
        break;
    case LP_TENSOR_INVALID:
    case LP_TENSOR_BEGIN:
        break;
    }
}

/* ---- refusing ---- */

typedef struct refusing {
    lp_tensor dst;
    const lp_map *region; /* of dst, or NULL */
    const char *operation, *reason;
    uint32_t provenance;
    int64_t count;
} refusing;

static void refuse_name(lp_recorder *r, uint32_t name, void *context)
{
    refusing *f = context;
    f->count++;
    /* A name is refused once for each place where it would have gone; more of the same adds nothing. */
    const bool nowhere = f->region == NULL;
    if (nowhere && (r->name_flags[name] & REC_NAME_REFUSED))
        return;
    if (!lp_grow(r->platform.alloc, (void **)&r->refusal, &r->refusal_capacity, r->refusal_count + 1,
                 sizeof *r->refusal) ||
        !rec_mark_name(r, name, REC_NAME_REFUSED)) {
        rec_no_memory(r);
        return;
    }
    r->refusal[r->refusal_count++] = (rec_refusal){.name = name,
                                                   .dest = nowhere ? LP_NONE : f->dst.base,
                                                   .map = f->region,
                                                   .operation = f->operation,
                                                   .reason = f->reason,
                                                   .provenance = f->provenance};
}

/* A refused name that would have gone on through a temporary keeps its place there, as a fill that it triggers: what it
 * then writes is known to be a fallback. */
static void hold_place(lp_recorder *r, uint32_t name, void *context)
{
    refusing *f = context;
    lp_error err;
    if (f->region == NULL)
        return;
    const rec_piece piece = {.map = f->region, .name = name, .is_fill = true};
    if (rec_write_piece(r, f->dst.base, &piece, &err) != LP_OK)
        rec_misuse_error(__FILE__, __LINE__, r, &err);
    f->region = NULL;
}

static const lp_map *region_of(const char *file, int line, lp_tensor dst)
{
    lp_recorder *r = dst.recorder;
    const lp_map *map = NULL;
    uint64_t reduced;
    lp_error err;
    const int bits = lp_dtype_bits(dst.view.dtype);
    const lp_status status = lp_map_fill(&map, &reduced, &dst.view, rec_memory_bytes(r, &dst), 0,
                                         bits % 8 == 0 ? bits / 8 : 1, r->platform.alloc, &err);
    if (status == LP_E_UNSUPPORTED)
        return NULL; /* parts of bytes: a region that no map can say */
    if (status != LP_OK) {
        rec_misuse_error(file, line, r, &err);
        return NULL;
    }
    map = rec_own(r, map);
    return map != NULL && map->nbox > 0 ? map : NULL;
}

void rec_refuse_tensor(const char *file, int line, lp_tensor t, lp_tensor dst, const char *operation,
                       const char *reason)
{
    lp_recorder *r = t.recorder;
    refusing f = {.dst = dst, .operation = operation, .reason = reason, .provenance = rec_provenance(r, file, line, 0)};
    const bool into_temporary = dst.kind == LP_TENSOR_TEMPORARY;
    if (dst.kind == LP_TENSOR_DEST)
        f.region = region_of(file, line, dst);
    rec_names_of(r, t, refuse_name, &f);
    lp_error err;
    if (f.region != NULL && rec_leave_readers(file, line, r, dst.base, f.region, 0, &err) != LP_OK)
        rec_misuse_error(file, line, r, &err);
    if (f.count == 0) {
        rec_misuse(file, line, r, LP_E_MISUSE, "%s: %s, before any checkpoint tensor is in it", operation, reason);
    } else if (into_temporary) {
        f.region = region_of(file, line, dst);
        rec_names_of(r, t, hold_place, &f);
    }
}

lp_tensor rec_refused_value(const char *file, int line, lp_tensor t, int ndim, const int64_t *shape)
{
    const lp_tensor made = lp_empty_at(file, line, t.recorder, LP_F32, ndim, shape);
    if (lp_is_valid(made))
        rec_refuse_tensor(file, line, t, made, "compute", "computes on a refused value");
    return made;
}

double lp_host_read_at(const char *file, int line, const char *operation, lp_tensor t)
{
    if (lp_is_valid(t) && rec_usable(file, line, t.recorder, &t))
        rec_refuse_tensor(file, line, t, rec_invalid(t.recorder), operation, "reads a value on the host");
    return 0.0;
}

void lp_refuse_at(const char *file, int line, lp_tensor t, const char *operation, const char *reason)
{
    lp_recorder *r = t.recorder;
    if (lp_is_valid(t) && rec_usable(file, line, r, &t))
        rec_refuse_tensor(file, line, t, rec_invalid(r), lp_name(r, "%s", operation), lp_name(r, "%s", reason));
}
