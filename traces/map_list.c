/* SPDX-License-Identifier: Apache-2.0 */
/* Lists of boxes, and the map that a list becomes. */
#include "traces/map_private.h"

void lp_boxes_init(lp_boxes *list, int32_t src_elem, int32_t dst_elem, const lp_alloc *alloc)
{
    *list = (lp_boxes){.alloc = alloc, .src_elem = src_elem, .dst_elem = dst_elem};
}

void lp_boxes_free(lp_boxes *list)
{
    lp_release(list->alloc, list->seg);
    lp_release(list->alloc, list->mode);
    lp_boxes_init(list, list->src_elem, list->dst_elem, list->alloc);
}

lp_status lp_boxes_push(lp_boxes *list, const lp_seg *seg, const lp_mode *mode, lp_error *err)
{
    if (list->count >= LP_MAP_RUNS_MAX)
        return lp_fail(err, LP_E_LIMIT, "a byte map falls into more than %d pieces", LP_MAP_RUNS_MAX);
    if (!lp_grow(list->alloc, (void **)&list->seg, &list->capacity, list->count + 1, sizeof *list->seg))
        return lp_fail_memory(err);
    if (seg->rank > 0) {
        if (!lp_grow(list->alloc, (void **)&list->mode, &list->mode_capacity, list->nmode + seg->rank,
                     sizeof *list->mode))
            return lp_fail_memory(err);
        memcpy(list->mode + list->nmode, mode, (size_t)seg->rank * sizeof *mode);
    }
    lp_seg *added = &list->seg[list->count++];
    *added = *seg;
    added->mode = list->nmode;
    list->nmode += seg->rank;
    return LP_OK;
}

lp_status lp_boxes_push_work(lp_boxes *list, const lp_work *w, lp_error *err)
{
    const lp_seg seg = {.src_off = w->src_off, .dst_off = w->dst_off, .run = w->run, .rank = w->rank};
    return lp_boxes_push(list, &seg, w->mode, err);
}

lp_status lp_boxes_add(lp_boxes *list, const lp_work *w, lp_error *err)
{
    lp_work copy;
    bool nested;
    copy.src_off = w->src_off;
    copy.dst_off = w->dst_off;
    copy.run = w->run;
    copy.rank = w->rank;
    memcpy(copy.mode, w->mode, (size_t)w->rank * sizeof *w->mode);
    LP_TRY(lp_work_tidy(&copy, list->src_elem, list->dst_elem, &nested, err));
    if (copy.run == 0)
        return LP_OK;
    const lp_seg seg = {
        .src_off = copy.src_off, .dst_off = copy.dst_off, .run = copy.run, .rank = copy.rank, .tangled = !nested};
    return lp_boxes_push(list, &seg, copy.mode, err);
}

int64_t lp_seg_dst_hi(const lp_boxes *list, const lp_seg *seg)
{
    int64_t hi = seg->dst_off + seg->run * list->dst_elem;
    const lp_mode *mode = lp_seg_modes(list, seg);
    for (int32_t m = 0; m < seg->rank; m++)
        hi += (mode[m].extent - 1) * mode[m].dst_stride;
    return hi;
}

/* ---- maps ---- */

/* One block for the header, the boxes and the modes, in this order. */
static lp_map *allocate(int64_t nbox, int64_t nmode, const lp_alloc *alloc, lp_box **box, lp_mode **mode)
{
    const size_t boxes_at = sizeof(lp_map);
    const size_t modes_at = boxes_at + (size_t)nbox * sizeof(lp_box);
    unsigned char *block = lp_allocate(alloc, modes_at + (size_t)nmode * sizeof(lp_mode));
    if (block == NULL)
        return NULL;
    *box = (void *)(block + boxes_at);
    *mode = (void *)(block + modes_at);
    return (void *)block;
}

static void widen(lp_map *map, const lp_box *box)
{
    lp_span src = {box->src_off, box->src_off + box->run * map->src_elem};
    int64_t dst_hi = box->dst_off + box->run * map->dst_elem, count = box->run;
    for (int32_t m = 0; m < box->rank; m++) {
        const lp_mode mode = box->mode[m];
        const int64_t reach = (mode.extent - 1) * mode.src_stride;
        if (reach < 0)
            src.lo += reach;
        else
            src.hi += reach;
        dst_hi += (mode.extent - 1) * mode.dst_stride;
        count *= mode.extent;
    }
    if (map->src_elem == 0)
        src = (lp_span){0, 0};
    if (map->dst_bytes == 0) {
        map->src_lo = src.lo;
        map->src_hi = src.hi;
        map->dst_lo = box->dst_off;
    }
    if (src.lo < map->src_lo)
        map->src_lo = src.lo;
    if (src.hi > map->src_hi)
        map->src_hi = src.hi;
    map->dst_hi = dst_hi;
    map->dst_bytes += count * map->dst_elem;
}

lp_status lp_boxes_build(const lp_map **out, const lp_boxes *list, lp_error *err)
{
    if (list->count > LP_MAP_BOXES_MAX)
        return lp_fail(err, LP_E_LIMIT, "a byte map has %lld boxes, more than %d", (long long)list->count,
                       LP_MAP_BOXES_MAX);
    int64_t nmode = 0;
    for (int64_t i = 0; i < list->count; i++)
        nmode += list->seg[i].rank;
    lp_box *box;
    lp_mode *mode;
    lp_map *map = allocate(list->count, nmode, list->alloc, &box, &mode);
    if (map == NULL)
        return lp_fail_memory(err);
    *map = (lp_map){.src_elem = list->src_elem,
                    .dst_elem = list->dst_elem,
                    .nbox = (int32_t)list->count,
                    .nmode = (int32_t)nmode,
                    .box = box};
    for (int64_t i = 0; i < list->count; i++) {
        const lp_seg *seg = &list->seg[i];
        box[i] = (lp_box){seg->src_off, seg->dst_off, seg->run, seg->rank, mode};
        if (seg->rank > 0)
            memcpy(mode, lp_seg_modes(list, seg), (size_t)seg->rank * sizeof *mode);
        mode += seg->rank;
        widen(map, &box[i]);
    }
    *out = map;
    return LP_OK;
}

lp_status lp_work_build(const lp_map **out, const lp_work *w, int32_t src_elem, int32_t dst_elem, const lp_alloc *alloc,
                        lp_error *err)
{
    lp_box *box;
    lp_mode *mode;
    lp_map *map = allocate(1, w->rank, alloc, &box, &mode);
    if (map == NULL)
        return lp_fail_memory(err);
    *map = (lp_map){.src_elem = src_elem, .dst_elem = dst_elem, .nbox = 1, .nmode = w->rank, .box = box};
    *box = (lp_box){w->src_off, w->dst_off, w->run, w->rank, mode};
    for (int32_t m = 0; m < w->rank; m++)
        mode[m] = w->mode[m];
    widen(map, box);
    *out = map;
    return LP_OK;
}

void lp_map_free(const lp_map *map, const lp_alloc *alloc)
{
    lp_release(alloc, (void *)(uintptr_t)map);
}

lp_status lp_map_shift(const lp_map **out, const lp_map *map, int64_t src_shift, int64_t dst_shift,
                       const lp_alloc *alloc, lp_error *err)
{
    if (map->src_elem == 0)
        src_shift = 0;
    int64_t src_lo, src_hi, dst_lo, dst_hi;
    if (!lp_add(map->src_lo, src_shift, &src_lo) || !lp_add(map->src_hi, src_shift, &src_hi) ||
        !lp_add(map->dst_lo, dst_shift, &dst_lo) || !lp_add(map->dst_hi, dst_shift, &dst_hi) || src_lo < -LP_MAP_FAR ||
        dst_lo < -LP_MAP_FAR || src_hi > LP_MAP_FAR || dst_hi > LP_MAP_FAR)
        return lp_fail(err, LP_E_LIMIT, "the addresses of a byte map do not fit");
    lp_box *box;
    lp_mode *mode;
    lp_map *moved = allocate(map->nbox, map->nmode, alloc, &box, &mode);
    if (moved == NULL)
        return lp_fail_memory(err);
    *moved = *map;
    moved->box = box;
    for (int32_t b = 0; b < map->nbox; b++) {
        box[b] = map->box[b];
        box[b].mode = mode;
        for (int32_t m = 0; m < box[b].rank; m++)
            mode[m] = map->box[b].mode[m];
        mode += box[b].rank;
        box[b].src_off += src_shift;
        box[b].dst_off += dst_shift;
    }
    if (map->nbox > 0) {
        moved->src_lo = src_lo;
        moved->src_hi = src_hi;
        moved->dst_lo = dst_lo;
        moved->dst_hi = dst_hi;
    }
    *out = moved;
    return LP_OK;
}
