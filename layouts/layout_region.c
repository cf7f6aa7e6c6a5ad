/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Regions: a checkpoint tensor's place in a layout, as a view. Each dimension of the view is the list of the axes that
 * split it, so that the view has the checkpoint tensor's own shape and further narrowing (a tensor-parallel share of
 * the rows, say) works on both sides alike.
 */
#include "layouts/layout_private.h"
#include "traces/view_private.h"

static lp_status add_axes(lp_view *v, const lp_layout *layout, const lp_layout_geometry *g, lp_axis_role role,
                          lp_error *err)
{
    for (int32_t a = 0; a < layout->axes; a++)
        if (layout->axis[a].role == role)
            LP_TRY(lp_view_add_mode(v, g->extent[a], g->stride[a] * 8, err));
    return LP_OK;
}

lp_status lp_layout_region(const lp_layout *layout, const lp_layout_sizes *sizes, lp_shard shard, int64_t expert,
                           lp_view *region, lp_view *source, lp_error *err)
{
    lp_layout_geometry g;
    int64_t shape[2];
    LP_TRY(lp_layout_source_shape(layout, sizes, shard, layout->source[0], shape, err)); /* checks the shard */
    LP_TRY(lp_layout_resolve(layout, sizes, &g, err));
    const int32_t expert_axis = lp_layout_axis_of(layout, LP_AXIS_EXPERT);
    const int64_t experts = expert_axis < 0 ? 1 : g.extent[expert_axis];
    if (expert < -1 || expert >= experts)
        return lp_fail(err, LP_E_ARGUMENT, "layout '%s': expert %lld is outside its %lld experts", layout->id,
                       (long long)expert, (long long)experts);
    const int64_t expert_stride = expert_axis < 0 ? 0 : g.stride[expert_axis];

    /* The offset is that of the first row: a gate row, unless the tensor is up alone. */
    int64_t off = expert > 0 ? expert * expert_stride : 0, half_stride = 0;
    const int32_t half_axis = lp_layout_axis_of(layout, LP_AXIS_HALF);
    if (half_axis >= 0) {
        half_stride = layout->up_first ? -g.stride[half_axis] : g.stride[half_axis];
        off += (shard == LP_SHARD_UP) != layout->up_first ? g.stride[half_axis] : 0;
    }
    lp_view v;
    lp_view_start(&v, layout->dtype, off * 8);
    if (expert < 0) {
        LP_TRY(lp_view_add_dim(&v, experts, err));
        LP_TRY(lp_view_add_mode(&v, experts, expert_stride * 8, err));
    }
    LP_TRY(lp_view_add_dim(&v, shape[0], err));
    if (shard == LP_SHARD_GATE_UP)
        LP_TRY(lp_view_add_mode(&v, 2, half_stride * 8, err));
    LP_TRY(add_axes(&v, layout, &g, LP_AXIS_ROW, err));
    if (shard == LP_SHARD_ALTERNATING)
        LP_TRY(lp_view_add_mode(&v, 2, half_stride * 8, err));
    LP_TRY(lp_view_add_dim(&v, g.columns, err));
    LP_TRY(add_axes(&v, layout, &g, LP_AXIS_COLUMN, err));
    lp_view_seal(&v);

    if (source != NULL)
        LP_TRY(lp_view_contiguous(source, v.dtype, v.ndim, v.size, err));
    *region = v;
    return LP_OK;
}
