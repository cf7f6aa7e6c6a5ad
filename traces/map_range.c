/* SPDX-License-Identifier: Apache-2.0 */
/* The part of a map whose sources lie in a range: what a push of some bytes of a tensor writes. */
#include "traces/map_private.h"

/* Nothing but the run depends on the source address. */
static lp_status clip_run(lp_boxes *out, const lp_work *w, int64_t lo, int64_t hi, lp_error *err)
{
    const int64_t elem = out->src_elem;
    const int64_t first = lp_clamp(lp_ceil_div(lo - w->src_off, elem), 0, w->run);
    const int64_t end = lp_clamp(lp_floor_div(hi - w->src_off, elem), 0, w->run);
    const int64_t first_touched = lp_clamp(lp_floor_div(lo - w->src_off, elem), 0, w->run);
    const int64_t end_touched = lp_clamp(lp_ceil_div(hi - w->src_off, elem), 0, w->run);
    if (first_touched != first || end_touched != end)
        return lp_fail(err, LP_E_UNSUPPORTED, "a range of source bytes cuts an element of a cast");
    if (first >= end)
        return LP_OK;
    lp_work part = *w;
    part.src_off += first * elem;
    part.dst_off += first * out->dst_elem;
    part.run = end - first;
    return lp_boxes_add(out, &part, err);
}

lp_status lp_work_source_range(lp_boxes *out, const lp_work *w, int64_t lo, int64_t hi, int64_t *work, lp_error *err)
{
    const lp_span all = lp_work_src(w, out->src_elem);
    if (all.hi <= lo || all.lo >= hi)
        return LP_OK;
    if (all.lo >= lo && all.hi <= hi)
        return lp_boxes_add(out, w, err);
    if ((*work)-- <= 0)
        return lp_fail(err, LP_E_LIMIT, "a source range falls into more than %d pieces", LP_MAP_RUNS_MAX);
    int32_t m = -1;
    int64_t step = 0;
    for (int32_t i = 0; i < w->rank; i++) {
        const int64_t own = w->mode[i].src_stride < 0 ? -w->mode[i].src_stride : w->mode[i].src_stride;
        if (own > step) {
            step = own;
            m = i;
        }
    }
    if (m < 0)
        return clip_run(out, w, lo, hi, err);
    if (w->mode[m].src_stride < 0) {
        lp_work flipped = *w;
        lp_mode *mode = &flipped.mode[m];
        flipped.src_off += (mode->extent - 1) * mode->src_stride;
        flipped.dst_off += (mode->extent - 1) * mode->dst_stride;
        mode->src_stride = -mode->src_stride;
        mode->dst_stride = -mode->dst_stride;
        return lp_work_source_range(out, &flipped, lo, hi, work, err);
    }
    /* Steps that lie inside go together; those that cross a bound are looked at one by one. */
    const int64_t extent = w->mode[m].extent;
    const lp_span one = {all.lo, all.hi - (extent - 1) * step};
    const int64_t touched = lp_clamp(lp_floor_div(lo - one.hi, step) + 1, 0, extent);
    const int64_t touched_end = lp_clamp(lp_ceil_div(hi - one.lo, step), touched, extent);
    const int64_t inside = lp_clamp(lp_ceil_div(lo - one.lo, step), touched, touched_end);
    const int64_t inside_end = lp_clamp(lp_floor_div(hi - one.hi, step) + 1, inside, touched_end);
    for (int64_t i = touched; i < inside; i++) {
        const lp_work part = lp_work_steps(w, m, i, 1);
        LP_TRY(lp_work_source_range(out, &part, lo, hi, work, err));
    }
    if (inside_end > inside) {
        const lp_work part = lp_work_steps(w, m, inside, inside_end - inside);
        LP_TRY(lp_boxes_add(out, &part, err));
    }
    for (int64_t i = inside_end; i < touched_end; i++) {
        const lp_work part = lp_work_steps(w, m, i, 1);
        LP_TRY(lp_work_source_range(out, &part, lo, hi, work, err));
    }
    return LP_OK;
}

lp_status lp_map_source_range(const lp_map **out, const lp_map *map, int64_t lo, int64_t hi, const lp_alloc *alloc,
                              lp_error *err)
{
    lp_boxes list;
    int64_t work = LP_MAP_RUNS_MAX;
    lp_boxes_init(&list, map->src_elem, map->dst_elem, alloc);
    if (map->src_elem == 0)
        return lp_fail(err, LP_E_ARGUMENT, "a fill has no source range");
    const int64_t low = lp_clamp(lo, -LP_MAP_FAR, LP_MAP_FAR), high = lp_clamp(hi, -LP_MAP_FAR, LP_MAP_FAR);
    lp_status status = LP_OK;
    for (int32_t b = 0; b < map->nbox && low < high && status == LP_OK; b++) {
        lp_work w;
        lp_work_from_box(&w, &map->box[b]);
        status = lp_work_source_range(&list, &w, low, high, &work, err);
    }
    if (status == LP_OK)
        status = lp_boxes_finish(out, &list, err);
    lp_boxes_free(&list);
    return status;
}
