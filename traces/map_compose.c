/* SPDX-License-Identifier: Apache-2.0 */
/* Composition and inverse: operations on maps, not on the operations that made them. */
#include "traces/map_private.h"

/* A byte map whose runs are counted in elements of `unit` bytes. */
static lp_status in_elements(lp_work *w, int32_t unit, lp_error *err)
{
    if (w->run % unit != 0)
        return lp_fail(err, LP_E_UNSUPPORTED, "a byte map cuts elements of a cast or a fill");
    w->run /= unit;
    return LP_OK;
}

static bool moves_bytes(const lp_map *map)
{
    return map->src_elem == 1 && map->dst_elem == 1;
}

/* First box of `map` whose destination ends behind `at`. */
static int32_t find_box(const lp_map *map, int64_t at)
{
    int32_t lo = 0, hi = map->nbox;
    while (lo < hi) {
        const int32_t middle = lo + (hi - lo) / 2;
        const lp_box *box = &map->box[middle];
        int64_t end = box->dst_off + box->run * map->dst_elem;
        for (int32_t m = 0; m < box->rank; m++)
            end += (box->mode[m].extent - 1) * box->mode[m].dst_stride;
        if (end <= at)
            lo = middle + 1;
        else
            hi = middle;
    }
    return lo;
}

/* One box of outer (in elements of chain->unit) after all of inner. */
static lp_status chain_map(lp_chain *chain, const lp_work *outer, const lp_map *inner, lp_error *err)
{
    const int32_t unit = chain->unit;
    const lp_span reads = lp_work_src(outer, unit);
    const bool regroup = inner->dst_elem != unit;
    for (int32_t b = find_box(inner, reads.lo); b < inner->nbox && inner->box[b].dst_off < reads.hi; b++) {
        lp_work w;
        lp_work_from_box(&w, &inner->box[b]);
        if (regroup)
            LP_TRY(in_elements(&w, unit, err));
        const lp_span writes = lp_work_dst(&w, unit);
        if (writes.lo <= reads.lo && reads.hi <= writes.hi)
            return lp_chain_box(chain, outer, &w, err);
        lp_boxes part;
        lp_boxes_init(&part, unit, chain->out->dst_elem, chain->out->alloc);
        lp_status status = lp_work_source_range(&part, outer, writes.lo, writes.hi, &chain->work, err);
        for (int64_t i = 0; i < part.count && status == LP_OK; i++) {
            const lp_seg *seg = &part.seg[i];
            const lp_box box = {seg->src_off, seg->dst_off, seg->run, seg->rank, lp_seg_modes(&part, seg)};
            lp_work piece;
            lp_work_from_box(&piece, &box);
            status = lp_chain_box(chain, &piece, &w, err);
        }
        lp_boxes_free(&part);
        LP_TRY(status);
    }
    return LP_OK;
}

static int64_t bytes_of(const lp_boxes *list)
{
    int64_t bytes = 0;
    for (int64_t i = 0; i < list->count; i++)
        bytes +=
            list->seg[i].run * list->dst_elem * lp_mode_product(lp_seg_modes(list, &list->seg[i]), list->seg[i].rank);
    return bytes;
}

lp_status lp_map_compose(const lp_map **out, const lp_map *outer, const lp_map *inner, const lp_alloc *alloc,
                         lp_error *err)
{
    if (outer->src_elem == 0)
        return lp_fail(err, LP_E_UNSUPPORTED, "a fill reads nothing, so nothing comes before it");
    if (!moves_bytes(outer) && !moves_bytes(inner))
        return lp_fail(err, LP_E_UNSUPPORTED, "two casts in a row are no byte map");
    /* The one that is not made of bytes gives the unit; the elements of the result follow it. */
    const int32_t unit = moves_bytes(inner) ? outer->src_elem : inner->dst_elem;
    const int32_t src_elem = moves_bytes(inner) ? unit : inner->src_elem;
    const int32_t dst_elem = moves_bytes(outer) ? unit : outer->dst_elem;
    lp_boxes list;
    lp_boxes_init(&list, src_elem, dst_elem, alloc);
    lp_chain chain = {.out = &list, .unit = unit, .work = LP_MAP_RUNS_MAX};
    lp_status status = LP_OK;
    for (int32_t b = 0; b < outer->nbox; b++) {
        lp_work w;
        lp_work_from_box(&w, &outer->box[b]);
        if (outer->src_elem != unit)
            LP_TRY_GOTO(in_elements(&w, unit, err), release);
        LP_TRY_GOTO(chain_map(&chain, &w, inner, err), release);
    }
    if (bytes_of(&list) != outer->dst_bytes) {
        status = lp_fail(err, LP_E_ARGUMENT, "a byte map reads bytes that the one before it does not write");
        goto release;
    }
    status = lp_boxes_finish(out, &list, err);
release:
    lp_boxes_free(&list);
    return status;
}

lp_status lp_map_inverse(const lp_map **out, const lp_map *map, const lp_alloc *alloc, lp_error *err)
{
    if (!moves_bytes(map))
        return lp_fail(err, LP_E_UNSUPPORTED, "a cast or a fill has no inverse");
    lp_boxes list;
    lp_boxes_init(&list, 1, 1, alloc);
    lp_status status = LP_OK;
    for (int32_t b = 0; b < map->nbox && status == LP_OK; b++) {
        const lp_box *box = &map->box[b];
        lp_work w = {.src_off = box->dst_off, .dst_off = box->src_off, .run = box->run};
        for (int32_t m = 0; m < box->rank && status == LP_OK; m++)
            status =
                lp_work_add(&w, (lp_mode){box->mode[m].extent, box->mode[m].dst_stride, box->mode[m].src_stride}, err);
        if (status == LP_OK)
            status = lp_boxes_add(&list, &w, err);
    }
    if (status == LP_OK)
        status = lp_boxes_finish(out, &list, err);
    lp_boxes_free(&list);
    /* What is written twice here is read twice there. */
    if (status == LP_E_ARGUMENT)
        return lp_fail(err, LP_E_UNSUPPORTED, "a map that reads a byte twice has no inverse");
    return status;
}
