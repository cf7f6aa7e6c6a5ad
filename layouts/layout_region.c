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

/* The region in units of `unit`: the layout's dtype, or the bytes of it. */
static lp_status build(const lp_layout *layout, const lp_layout_sizes *sizes, lp_shard shard, int64_t expert,
                       lp_dtype unit, lp_view *out, lp_error *err)
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
    lp_view_start(&v, unit, off * 8);
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
    const int64_t unit_bytes = lp_dtype_bits(unit) / 8;
    LP_TRY(lp_view_add_dim(&v, g.columns * (g.element / unit_bytes), err));
    LP_TRY(add_axes(&v, layout, &g, LP_AXIS_COLUMN, err));
    LP_TRY(lp_view_add_mode(&v, g.element / unit_bytes, lp_dtype_bits(unit), err));
    lp_view_seal(&v);
    *out = v;
    return LP_OK;
}

lp_status lp_layout_region(const lp_layout *layout, const lp_layout_sizes *sizes, lp_shard shard, int64_t expert,
                           lp_view *region, lp_view *source, lp_error *err)
{
    lp_view v;
    LP_TRY(build(layout, sizes, shard, expert, layout->dtype, &v, err));
    if (source != NULL)
        LP_TRY(lp_view_contiguous(source, v.dtype, v.ndim, v.size, err));
    *region = v;
    return LP_OK;
}

lp_status lp_layout_region_blocks(const lp_layout *layout, const lp_layout_sizes *sizes, lp_shard shard, int64_t expert,
                                  int64_t source_rows, int64_t source_columns, lp_view *region, lp_view *source,
                                  lp_error *err)
{
    lp_view v, s;
    if (layout->dtype != LP_I32 || lp_dtype_bits(layout->source[0]) != 8)
        return lp_fail(err, LP_E_ARGUMENT, "layout '%s' holds no scale words", layout->id);
    if (expert < 0)
        return lp_fail(err, LP_E_ARGUMENT, "layout '%s': block scales go in expert by expert", layout->id);
    LP_TRY(build(layout, sizes, shard, expert, LP_U8, &v, err));
    if (source_rows < 1 || source_columns < 1 || v.size[0] % source_rows != 0 || v.size[1] % source_columns != 0)
        return lp_fail(err, LP_E_ARGUMENT, "layout '%s': %lld x %lld scales do not divide its %lld x %lld", layout->id,
                       (long long)source_rows, (long long)source_columns, (long long)v.size[0], (long long)v.size[1]);
    lp_view_start(&s, LP_U8, 0);
    LP_TRY(lp_view_add_dim(&s, v.size[0], err));
    LP_TRY(lp_view_add_mode(&s, source_rows, source_columns * 8, err));
    LP_TRY(lp_view_add_mode(&s, v.size[0] / source_rows, 0, err));
    LP_TRY(lp_view_add_dim(&s, v.size[1], err));
    LP_TRY(lp_view_add_mode(&s, source_columns, 8, err));
    LP_TRY(lp_view_add_mode(&s, v.size[1] / source_columns, 0, err));
    lp_view_seal(&s);
    *region = v;
    *source = s;
    return LP_OK;
}
