/* SPDX-License-Identifier: Apache-2.0 */
/* One box: its extent in memory, and the order that every box is brought into. */
#include "traces/map_private.h"

lp_status lp_work_add(lp_work *w, lp_mode mode, lp_error *err)
{
    if (mode.extent == 1)
        return LP_OK;
    if (w->rank >= LP_MAP_RANK)
        return lp_fail(err, LP_E_LIMIT, "a box of a byte map has at most %d strides", LP_MAP_RANK);
    w->mode[w->rank++] = mode;
    return LP_OK;
}

int64_t lp_mode_product(const lp_mode *mode, int32_t rank)
{
    int64_t product = 1;
    for (int32_t m = 0; m < rank; m++)
        if (!lp_mul(product, mode[m].extent, &product))
            return INT64_MAX;
    return product;
}

static void stretch(lp_span *span, int64_t extent, int64_t stride)
{
    const int64_t reach = (extent - 1) * stride;
    if (reach < 0)
        span->lo += reach;
    else
        span->hi += reach;
}

lp_span lp_work_src(const lp_work *w, int32_t src_elem)
{
    lp_span span = {w->src_off, w->src_off + w->run * src_elem};
    for (int32_t m = 0; m < w->rank; m++)
        stretch(&span, w->mode[m].extent, w->mode[m].src_stride);
    return span;
}

lp_span lp_work_dst(const lp_work *w, int32_t dst_elem)
{
    lp_span span = {w->dst_off, w->dst_off + w->run * dst_elem};
    for (int32_t m = 0; m < w->rank; m++)
        stretch(&span, w->mode[m].extent, w->mode[m].dst_stride);
    return span;
}

void lp_work_from_box(lp_work *w, const lp_box *box)
{
    w->src_off = box->src_off;
    w->dst_off = box->dst_off;
    w->run = box->run;
    w->rank = box->rank;
    if (box->rank > 0)
        memcpy(w->mode, box->mode, (size_t)box->rank * sizeof *box->mode);
}

lp_work lp_work_steps(const lp_work *w, int32_t m, int64_t first, int64_t count)
{
    lp_work part = *w;
    part.src_off += first * w->mode[m].src_stride;
    part.dst_off += first * w->mode[m].dst_stride;
    part.mode[m].extent = count;
    if (count == 1) {
        part.rank--;
        memmove(part.mode + m, part.mode + m + 1, (size_t)(part.rank - m) * sizeof *part.mode);
    }
    return part;
}

static bool reaches(int64_t off, int64_t run, int32_t elem, int64_t low, int64_t high)
{
    int64_t bytes, lo, hi;
    return lp_mul(run, elem, &bytes) && lp_add(off, low, &lo) && lp_add(off, high, &hi) && lp_add(hi, bytes, &hi) &&
           lo >= -LP_MAP_FAR && hi <= LP_MAP_FAR;
}

static bool add_reach(int64_t extent, int64_t stride, int64_t *low, int64_t *high)
{
    int64_t reach;
    if (!lp_mul(extent - 1, stride, &reach))
        return false;
    return reach < 0 ? lp_add(*low, reach, low) : lp_add(*high, reach, high);
}

/* Rejects what is no box, drops extents of 1; false in *moves when there is nothing to move. */
static lp_status admit(lp_work *w, int32_t src_elem, int32_t dst_elem, bool *moves, lp_error *err)
{
    int64_t src_low = 0, src_high = 0, dst_low = 0, dst_high = 0;
    bool fits = true;
    int32_t rank = 0;
    *moves = w->run > 0;
    if (w->run < 0)
        return lp_fail(err, LP_E_ARGUMENT, "a box has a run of %lld", (long long)w->run);
    for (int32_t m = 0; m < w->rank; m++) {
        const lp_mode mode = w->mode[m];
        if (mode.extent < 0)
            return lp_fail(err, LP_E_ARGUMENT, "a box has an extent of %lld", (long long)mode.extent);
        if (mode.extent == 0)
            *moves = false;
        if (mode.extent <= 1)
            continue;
        fits = fits && add_reach(mode.extent, mode.dst_stride, &dst_low, &dst_high);
        if (src_elem != 0)
            fits = fits && add_reach(mode.extent, mode.src_stride, &src_low, &src_high);
        w->mode[rank++] = mode;
    }
    w->rank = rank;
    if (*moves && !(fits && reaches(w->dst_off, w->run, dst_elem, dst_low, dst_high) &&
                    (src_elem == 0 || reaches(w->src_off, w->run, src_elem, src_low, src_high))))
        return lp_fail(err, LP_E_LIMIT, "the addresses of a byte map do not fit");
    return LP_OK;
}

/* Merges each mode with what lies inside it where that continues, the innermost with the run. */
static void coalesce(lp_work *w, int32_t src_elem, int32_t dst_elem)
{
    int32_t top = LP_MAP_RANK; /* merged modes gather at the end of the array, innermost last */
    lp_mode kept[LP_MAP_RANK];
    for (int32_t m = w->rank - 1; m >= 0; m--) {
        const lp_mode mode = w->mode[m];
        if (top == LP_MAP_RANK) {
            if (mode.dst_stride == w->run * dst_elem && mode.src_stride == w->run * src_elem) {
                w->run *= mode.extent;
                continue;
            }
        } else if (mode.dst_stride == kept[top].extent * kept[top].dst_stride &&
                   mode.src_stride == kept[top].extent * kept[top].src_stride) {
            kept[top].extent *= mode.extent;
            continue;
        }
        kept[--top] = mode;
    }
    w->rank = LP_MAP_RANK - top;
    for (int32_t m = 0; m < w->rank; m++)
        w->mode[m] = kept[top + m];
}

lp_status lp_work_tidy(lp_work *w, int32_t src_elem, int32_t dst_elem, bool *nested, lp_error *err)
{
    bool moves;
    *nested = true;
    LP_TRY(admit(w, src_elem, dst_elem, &moves, err));
    if (!moves) {
        w->run = 0;
        w->rank = 0;
        return LP_OK;
    }
    if (src_elem == 0)
        w->src_off = 0;
    for (int32_t m = 0; m < w->rank; m++) {
        lp_mode mode = w->mode[m];
        if (mode.dst_stride == 0)
            return lp_fail(err, LP_E_ARGUMENT, "a destination byte is written twice");
        if (src_elem == 0)
            mode.src_stride = 0;
        if (mode.dst_stride < 0) {
            w->dst_off += (mode.extent - 1) * mode.dst_stride;
            w->src_off += (mode.extent - 1) * mode.src_stride;
            mode.dst_stride = -mode.dst_stride;
            mode.src_stride = -mode.src_stride;
        }
        int32_t at = m;
        for (; at > 0 && w->mode[at - 1].dst_stride < mode.dst_stride; at--)
            w->mode[at] = w->mode[at - 1];
        w->mode[at] = mode;
    }
    coalesce(w, src_elem, dst_elem);
    int64_t span = w->run * dst_elem;
    for (int32_t m = w->rank - 1; m >= 0; m--) {
        if (w->mode[m].dst_stride < span)
            *nested = false;
        span += (w->mode[m].extent - 1) * w->mode[m].dst_stride;
    }
    return LP_OK;
}
