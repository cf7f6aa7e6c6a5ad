/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From views to maps: dst.copy_(src) and dst.fill_(value). Both sides of a copy are refined, dimension by dimension, to
 * common extents; where sizes divide, as they nearly always do, that is one box, built without any list.
 */
#include "traces/map_private.h"

/* Addresses are counted in units: bytes, or bits where elements are no whole bytes. */
typedef struct units {
    int32_t bits;               /* of one unit: 8 or 1 */
    int32_t src_elem, dst_elem; /* of the map, in units */
    int64_t run;                /* map elements in one element of the views */
} units;

static lp_status choose_units(units *u, lp_dtype src, lp_dtype dst, lp_error *err)
{
    const int src_bits = lp_dtype_bits(src), dst_bits = lp_dtype_bits(dst);
    const lp_cast_kind kind = src == dst ? LP_CAST_BYTES : lp_cast_kind_of(src, dst);
    if (kind == LP_CAST_BYTES) {
        u->bits = dst_bits % 8 == 0 ? 8 : 1;
        u->src_elem = u->dst_elem = 1;
        u->run = dst_bits / u->bits;
        return LP_OK;
    }
    if (kind == LP_CAST_UNSUPPORTED || src_bits % 8 != 0 || dst_bits % 8 != 0)
        return lp_fail(err, LP_E_UNSUPPORTED, "a copy from %s to %s is no cast that a trace can hold",
                       lp_dtype_name(src), lp_dtype_name(dst));
    u->bits = 8;
    u->src_elem = src_bits / 8;
    u->dst_elem = dst_bits / 8;
    u->run = 1;
    return LP_OK;
}

static lp_status check_broadcast(const lp_view *dst, const lp_view *src, lp_error *err)
{
    if (src->ndim > dst->ndim)
        return lp_fail(err, LP_E_ARGUMENT, "a copy of %d dimensions into %d", src->ndim, dst->ndim);
    for (int d = 0; d < src->ndim; d++) {
        const int64_t wanted = dst->size[dst->ndim - src->ndim + d];
        if (src->size[d] != wanted && src->size[d] != 1)
            return lp_fail(err, LP_E_ARGUMENT, "a copy of size %lld into size %lld in dimension %d",
                           (long long)src->size[d], (long long)wanted, dst->ndim - src->ndim + d);
    }
    return LP_OK;
}

static lp_status check_inside(lp_span touched, int64_t bytes, const char *side, lp_error *err)
{
    if (touched.lo < 0 || touched.hi > bytes)
        return lp_fail(err, LP_E_ARGUMENT, "the %s view touches bytes %lld to %lld of a tensor of %lld bytes", side,
                       (long long)touched.lo, (long long)touched.hi, (long long)bytes);
    return LP_OK;
}

static lp_status not_whole_bytes(lp_error *err, lp_dtype dtype)
{
    return lp_fail(err, LP_E_UNSUPPORTED, "rows of %s are not whole bytes", lp_dtype_name(dtype));
}

static lp_status written_twice(lp_error *err)
{
    return lp_fail(err, LP_E_UNSUPPORTED, "the destination view writes one byte twice");
}

static bool to_unit(int64_t bits, const units *u, int64_t *out)
{
    *out = bits / u->bits;
    return bits % u->bits == 0;
}

/* Appends the modes of one dimension of both sides, refined to common extents, outermost first. False when the extents
 * do not divide each other. */
static bool refine(lp_work *w, const lp_view_mode *dst, int ndst, const lp_view_mode *src, int nsrc)
{
    lp_view_mode x = {1, 0}, y = {1, 0};
    const int32_t first = w->rank;
    while (ndst > 0 || x.extent > 1) {
        if (x.extent == 1)
            x = dst[--ndst];
        if (y.extent == 1)
            y = nsrc > 0 ? src[--nsrc] : (lp_view_mode){x.extent, 0};
        const int64_t step = x.extent < y.extent ? x.extent : y.extent;
        if (x.extent % step != 0 || y.extent % step != 0 || w->rank >= LP_MAP_RANK)
            return false;
        w->mode[w->rank++] = (lp_mode){step, y.stride_bits, x.stride_bits};
        x = (lp_view_mode){x.extent / step, x.stride_bits * step};
        y = (lp_view_mode){y.extent / step, y.stride_bits * step};
    }
    for (int32_t a = first, b = w->rank - 1; a < b; a++, b--) {
        const lp_mode other = w->mode[a];
        w->mode[a] = w->mode[b];
        w->mode[b] = other;
    }
    return true;
}

/* One box in bits, if the extents divide. */
static bool refine_all(lp_work *w, const lp_view *dst, const lp_view *src)
{
    const int lead = dst->ndim - src->ndim;
    w->rank = 0;
    for (int d = 0; d < dst->ndim; d++) {
        const int from = dst->first[d], count = dst->first[d + 1] - from;
        int src_from = 0, src_count = 0;
        if (d >= lead) {
            src_from = src->first[d - lead];
            src_count = src->first[d - lead + 1] - src_from;
        }
        if (!refine(w, dst->mode + from, count, src->mode + src_from, src_count))
            return false;
    }
    return true;
}

/* A view as a box whose other side is the row-major index of its elements (that of `shape`, to which it is broadcast).
 * `as_source`: the index is the destination. */
static lp_status index_box(lp_work *w, const lp_view *v, const lp_view *shape, const units *u, bool as_source,
                           lp_error *err)
{
    int64_t inner = 1, offset = 0;
    lp_mode list[LP_MAP_RANK];
    int count = 0;
    bool whole = to_unit(v->offset_bits, u, &offset);
    for (int d = shape->ndim - 1; d >= 0; d--) {
        const int own = d - (shape->ndim - v->ndim);
        if (own < 0 || v->size[own] != shape->size[d]) {
            if (shape->size[d] > 1)
                list[count++] = (lp_mode){shape->size[d], 0, inner};
            inner *= shape->size[d];
            continue;
        }
        for (int m = v->first[own + 1] - 1; m >= v->first[own]; m--) {
            int64_t stride;
            whole = to_unit(v->mode[m].stride_bits, u, &stride) && whole;
            list[count++] = (lp_mode){v->mode[m].extent, stride, inner};
            inner *= v->mode[m].extent;
        }
    }
    if (!whole)
        return not_whole_bytes(err, v->dtype);
    w->src_off = as_source ? offset : 0;
    w->dst_off = as_source ? 0 : offset;
    w->run = 1;
    w->rank = 0;
    while (count-- > 0) {
        lp_mode mode = list[count];
        if (!as_source)
            mode = (lp_mode){mode.extent, mode.dst_stride, mode.src_stride};
        LP_TRY(lp_work_add(w, mode, err));
    }
    return LP_OK;
}

/* Bits to bytes, in place. */
static lp_status divide_bits(lp_boxes *list, lp_dtype dtype, lp_error *err)
{
    int64_t odd = 0;
    for (int64_t i = 0; i < list->count; i++) {
        lp_seg *seg = &list->seg[i];
        odd |= seg->src_off | seg->dst_off | seg->run;
        seg->src_off /= 8;
        seg->dst_off /= 8;
        seg->run /= 8;
        for (int32_t m = 0; m < seg->rank; m++) {
            lp_mode *mode = &list->mode[seg->mode + m];
            odd |= mode->src_stride | mode->dst_stride;
            mode->src_stride /= 8;
            mode->dst_stride /= 8;
        }
    }
    return odd % 8 != 0 ? not_whole_bytes(err, dtype) : LP_OK;
}

static lp_status build_checked(const lp_map **out, lp_boxes *list, const units *u, lp_dtype dtype, int64_t dst_bytes,
                               int64_t src_bytes, lp_error *err)
{
    const lp_map *map;
    const lp_status canon = lp_boxes_canon(list, err);
    /* What is wrong with the boxes is wrong with the destination view. */
    if (canon == LP_E_ARGUMENT)
        return written_twice(err);
    LP_TRY(canon);
    if (u->bits == 1)
        LP_TRY(divide_bits(list, dtype, err));
    LP_TRY(lp_boxes_build(&map, list, err));
    lp_status status = check_inside((lp_span){map->dst_lo, map->dst_hi}, dst_bytes, "destination", err);
    if (status == LP_OK && map->src_elem != 0)
        status = check_inside((lp_span){map->src_lo, map->src_hi}, src_bytes, "source", err);
    if (status != LP_OK) {
        lp_map_free(map, list->alloc);
        return status;
    }
    *out = map;
    return LP_OK;
}

/* Extents that do not divide: the two sides are chained through the index of their elements, which cuts them. */
static lp_status copy_by_index(const lp_map **out, const lp_view *dst, int64_t dst_bytes, const lp_view *src,
                               int64_t src_bytes, const units *u, const lp_alloc *alloc, lp_error *err)
{
    lp_work outer, inner;
    bool nested;
    lp_boxes elements, list;
    lp_boxes_init(&elements, u->src_elem, u->dst_elem, alloc);
    lp_boxes_init(&list, u->src_elem, u->dst_elem, alloc);
    lp_status status;
    LP_TRY_GOTO(index_box(&inner, src, dst, u, true, err), release);
    LP_TRY_GOTO(index_box(&outer, dst, dst, u, false, err), release);
    LP_TRY_GOTO(lp_work_tidy(&inner, u->src_elem * (int32_t)u->run, 1, &nested, err), release);
    for (int32_t m = 0; m < outer.rank; m++) {
        if (outer.mode[m].dst_stride == 0) {
            status = written_twice(err);
            goto release;
        }
    }
    /* Elements of the views are the units of the chain; absorbing them comes after. */
    elements.src_elem *= (int32_t)u->run;
    elements.dst_elem *= (int32_t)u->run;
    lp_chain chain = {.out = &elements, .unit = 1, .work = LP_MAP_RUNS_MAX};
    LP_TRY_GOTO(lp_chain_box(&chain, &outer, &inner, err), release);
    for (int64_t i = 0; i < elements.count; i++) {
        lp_work w = {.rank = 0};
        const lp_seg *seg = &elements.seg[i];
        w.src_off = seg->src_off;
        w.dst_off = seg->dst_off;
        w.run = seg->run * u->run;
        for (int32_t m = 0; m < seg->rank; m++)
            LP_TRY_GOTO(lp_work_add(&w, elements.mode[seg->mode + m], err), release);
        LP_TRY_GOTO(lp_boxes_add(&list, &w, err), release);
    }
    status = build_checked(out, &list, u, dst->dtype, dst_bytes, src_bytes, err);
release:
    lp_boxes_free(&elements);
    lp_boxes_free(&list);
    return status;
}

/* The box `w`, still in bits, as a map. */
static lp_status build_box(const lp_map **out, lp_work *w, const units *u, lp_dtype dtype, int64_t dst_bytes,
                           int64_t src_bytes, const lp_alloc *alloc, lp_error *err)
{
    bool whole = to_unit(w->src_off, u, &w->src_off);
    whole = to_unit(w->dst_off, u, &w->dst_off) && whole;
    for (int32_t m = 0; m < w->rank; m++) {
        lp_mode *mode = &w->mode[m];
        if (mode->dst_stride == 0)
            return written_twice(err);
        whole = to_unit(mode->src_stride, u, &mode->src_stride) && whole;
        whole = to_unit(mode->dst_stride, u, &mode->dst_stride) && whole;
    }
    if (!whole)
        return not_whole_bytes(err, dtype);
    bool nested;
    LP_TRY(lp_work_tidy(w, u->src_elem, u->dst_elem, &nested, err));
    if (nested && u->bits == 8) {
        LP_TRY(check_inside(lp_work_dst(w, u->dst_elem), dst_bytes, "destination", err));
        if (u->src_elem != 0)
            LP_TRY(check_inside(lp_work_src(w, u->src_elem), src_bytes, "source", err));
        return lp_work_build(out, w, u->src_elem, u->dst_elem, alloc, err);
    }
    lp_boxes list;
    lp_boxes_init(&list, u->src_elem, u->dst_elem, alloc);
    lp_status status = lp_boxes_add(&list, w, err);
    if (status == LP_OK)
        status = build_checked(out, &list, u, dtype, dst_bytes, src_bytes, err);
    lp_boxes_free(&list);
    return status;
}

static lp_status build_empty(const lp_map **out, const units *u, const lp_alloc *alloc, lp_error *err)
{
    lp_boxes list;
    lp_boxes_init(&list, u->src_elem, u->dst_elem, alloc);
    return lp_boxes_build(out, &list, err);
}

lp_status lp_map_copy(const lp_map **out, const lp_view *dst, int64_t dst_bytes, const lp_view *src, int64_t src_bytes,
                      const lp_alloc *alloc, lp_error *err)
{
    units u;
    lp_work w;
    LP_TRY(choose_units(&u, src->dtype, dst->dtype, err));
    LP_TRY(check_broadcast(dst, src, err));
    if (lp_view_is_empty(dst))
        return build_empty(out, &u, alloc, err);
    if (!refine_all(&w, dst, src))
        return copy_by_index(out, dst, dst_bytes, src, src_bytes, &u, alloc, err);
    w.src_off = src->offset_bits;
    w.dst_off = dst->offset_bits;
    w.run = u.run;
    return build_box(out, &w, &u, dst->dtype, dst_bytes, src_bytes, alloc, err);
}

/* ---- fill ---- */

static uint64_t low_bytes(uint64_t value, int bytes)
{
    return bytes >= 8 ? value : value & (((uint64_t)1 << (8 * bytes)) - 1);
}

static int shortest_period(uint64_t pattern, int bytes)
{
    while (bytes > 1) {
        const int half = bytes / 2;
        if (low_bytes(pattern, half) != low_bytes(pattern >> (8 * half), half))
            break;
        bytes = half;
    }
    return bytes;
}

lp_status lp_map_fill(const lp_map **out, uint64_t *reduced, const lp_view *dst, int64_t dst_bytes, uint64_t pattern,
                      int pattern_bytes, const lp_alloc *alloc, lp_error *err)
{
    if (pattern_bytes != 1 && pattern_bytes != 2 && pattern_bytes != 4 && pattern_bytes != 8)
        return lp_fail(err, LP_E_ARGUMENT, "a fill with a pattern of %d bytes", pattern_bytes);
    const int bits = lp_dtype_bits(dst->dtype);
    if (bits % 8 == 0 && bits != pattern_bytes * 8)
        return lp_fail(err, LP_E_ARGUMENT, "a fill of %s with a pattern of %d bytes", lp_dtype_name(dst->dtype),
                       pattern_bytes);
    const int period = shortest_period(low_bytes(pattern, pattern_bytes), pattern_bytes);
    if (bits % 8 != 0 && period != 1)
        return lp_fail(err, LP_E_UNSUPPORTED, "a fill of %s with a pattern of %d bytes", lp_dtype_name(dst->dtype),
                       pattern_bytes);
    /* Below a byte the pattern is one byte and counts bit by bit, until build_checked makes bytes of it. */
    const units u = {.bits = bits % 8 == 0 ? 8 : 1,
                     .src_elem = 0,
                     .dst_elem = period,
                     .run = bits % 8 == 0 ? pattern_bytes / period : bits};
    lp_work w;
    w.rank = 0;
    w.src_off = 0;
    w.dst_off = dst->offset_bits;
    w.run = u.run;
    if (lp_view_is_empty(dst)) {
        LP_TRY(build_empty(out, &u, alloc, err));
    } else {
        for (int m = 0; m < dst->nmode; m++)
            LP_TRY(lp_work_add(&w, (lp_mode){dst->mode[m].extent, 0, dst->mode[m].stride_bits}, err));
        LP_TRY(build_box(out, &w, &u, dst->dtype, dst_bytes, 0, alloc, err));
    }
    *reduced = low_bytes(pattern, period);
    return LP_OK;
}
