/* SPDX-License-Identifier: Apache-2.0 */
/* What follows from a row of the table and sizes: legality, shapes, strides, and the index formula both ways. */
#include "layouts/layout_private.h"

#include <assert.h>

/* Far above every model; keeps messages short and padding free of overflow. */
#define SIZE_MAX_EACH ((int64_t)1 << 40)

static const char size_letter[] = {[LP_SIZE_ONE] = '1', [LP_SIZE_E] = 'E', [LP_SIZE_H] = 'H', [LP_SIZE_I] = 'I'};

static int64_t size_value(lp_size_symbol symbol, const lp_layout_sizes *sizes)
{
    const int64_t value[] = {[LP_SIZE_ONE] = 1,
                             [LP_SIZE_E] = sizes->experts,
                             [LP_SIZE_H] = sizes->hidden,
                             [LP_SIZE_I] = sizes->intermediate};
    return value[symbol];
}

/* Value of an extent; false when it overflows or is not whole. */
static bool extent_value(lp_extent extent, const lp_layout_sizes *sizes, int64_t *out)
{
    int64_t value;
    if (!lp_mul(size_value(extent.symbol, sizes), extent.times, &value) || value % extent.over != 0)
        return false;
    *out = value / extent.over;
    return true;
}

int32_t lp_layout_axis_of(const lp_layout *layout, lp_axis_role role)
{
    for (int32_t a = 0; a < layout->axes; a++)
        if (layout->axis[a].role == role)
            return a;
    return -1;
}

static lp_status check_size(const lp_layout *layout, lp_size_symbol symbol, const lp_layout_sizes *sizes, lp_error *err)
{
    const int64_t value = size_value(symbol, sizes);
    const char letter = size_letter[symbol];
    if (value < 1)
        return lp_fail(err, LP_E_ARGUMENT, "layout '%s': %c must be at least 1, not %lld", layout->id, letter,
                       (long long)value);
    if (value > SIZE_MAX_EACH)
        return lp_fail(err, LP_E_LIMIT, "layout '%s': %c is %lld, the limit is %lld", layout->id, letter,
                       (long long)value, (long long)SIZE_MAX_EACH);
    for (int r = 0; r < LP_LAYOUT_RULES; r++) {
        const int64_t multiple = layout->rule[r].multiple;
        if (layout->rule[r].symbol != symbol || multiple < 2 || value % multiple == 0)
            continue;
        return lp_fail(err, LP_E_ARGUMENT, "layout '%s': %c must be a multiple of %lld, %lld is not; pad to %lld",
                       layout->id, letter, (long long)multiple, (long long)value,
                       (long long)((value + multiple - 1) / multiple * multiple));
    }
    return LP_OK;
}

lp_status lp_layout_resolve(const lp_layout *layout, const lp_layout_sizes *sizes, lp_layout_geometry *out,
                            lp_error *err)
{
    const bool has_experts = lp_layout_axis_of(layout, LP_AXIS_EXPERT) >= 0;
    if (has_experts)
        LP_TRY(check_size(layout, LP_SIZE_E, sizes, err));
    else if (sizes->experts != 0 && sizes->experts != 1)
        return lp_fail(err, LP_E_ARGUMENT, "layout '%s' has no expert dimension: E must be 1, not %lld", layout->id,
                       (long long)sizes->experts);
    LP_TRY(check_size(layout, LP_SIZE_H, sizes, err));
    LP_TRY(check_size(layout, LP_SIZE_I, sizes, err));

    *out = (lp_layout_geometry){.element = lp_dtype_bits(layout->dtype) / 8, .rows = 1, .columns = 1};
    for (int32_t a = 0; a < layout->axes; a++)
        if (!extent_value(layout->axis[a].extent, sizes, &out->extent[a]))
            return lp_fail(err, LP_E_INTERNAL, "layout '%s': axis '%s' has no whole extent", layout->id,
                           layout->axis[a].name);
    int64_t stride = out->element, bits;
    for (int32_t i = layout->axes - 1; i >= 0; i--) {
        const int32_t a = layout->memory_order[i];
        out->stride[a] = stride;
        if (!lp_mul(stride, out->extent[a], &stride) || !lp_mul(stride, 16, &bits))
            return lp_fail(err, LP_E_LIMIT, "layout '%s': a tensor of these sizes does not fit 64 bits", layout->id);
        if (layout->axis[a].role == LP_AXIS_ROW)
            out->rows *= out->extent[a]; /* no more than the product above */
        else if (layout->axis[a].role == LP_AXIS_COLUMN)
            out->columns *= out->extent[a];
    }
    out->bytes = stride;
    return LP_OK;
}

lp_status lp_layout_check(const lp_layout *layout, const lp_layout_sizes *sizes, lp_error *err)
{
    lp_layout_geometry geometry;
    return lp_layout_resolve(layout, sizes, &geometry, err);
}

lp_status lp_layout_describe(const lp_layout *layout, const lp_layout_sizes *sizes, lp_layout_shape *out, lp_error *err)
{
    lp_layout_geometry geometry;
    LP_TRY(lp_layout_resolve(layout, sizes, &geometry, err));
    lp_layout_shape shape = {.dtype = layout->dtype, .ndim = layout->ndim, .slot_dim = layout->slot_dim};
    int64_t stride = geometry.element;
    for (int32_t i = layout->ndim - 1; i >= 0; i--) {
        const int32_t d = layout->dim_order[i];
        if (!extent_value(layout->dim[d], sizes, &shape.shape[d]) || !lp_mul(stride, shape.shape[d], &shape.bytes))
            return lp_fail(err, LP_E_INTERNAL, "layout '%s': dimension %d has no whole extent", layout->id, (int)d);
        shape.stride[d] = stride;
        stride = shape.bytes;
    }
    if (layout->slot_dim >= 0)
        shape.slot_stride = shape.stride[layout->slot_dim];
    *out = shape;
    return LP_OK;
}

bool lp_layout_takes(const lp_layout *layout, lp_shard shard)
{
    return (lp_layout_axis_of(layout, LP_AXIS_HALF) < 0) == (shard == LP_SHARD_DOWN);
}

static lp_status check_shard(const lp_layout *layout, lp_shard shard, lp_error *err)
{
    if (shard < LP_SHARD_GATE || shard > LP_SHARD_ALTERNATING)
        return lp_fail(err, LP_E_ARGUMENT, "no checkpoint tensor has number %d", (int)shard);
    if (!lp_layout_takes(layout, shard))
        return lp_fail(err, LP_E_ARGUMENT, "layout '%s' takes %s", layout->id,
                       shard == LP_SHARD_DOWN ? "gate and up, not down" : "down, not gate or up");
    return LP_OK;
}

lp_status lp_layout_source_shape(const lp_layout *layout, const lp_layout_sizes *sizes, lp_shard shard, lp_dtype dtype,
                                 int64_t shape[2], lp_error *err)
{
    lp_layout_geometry geometry;
    LP_TRY(check_shard(layout, shard, err));
    LP_TRY(lp_layout_resolve(layout, sizes, &geometry, err));
    char wanted[64];
    size_t used = 0;
    wanted[0] = '\0';
    for (int i = 0; i < LP_LAYOUT_SOURCES && layout->source[i] != LP_DTYPE_NONE; i++) {
        const char *const name = lp_dtype_name(layout->source[i]);
        if (layout->source[i] == dtype) {
            shape[0] = geometry.rows * (shard == LP_SHARD_GATE_UP || shard == LP_SHARD_ALTERNATING ? 2 : 1);
            shape[1] = geometry.columns * geometry.element * 8 / lp_dtype_bits(dtype);
            return LP_OK;
        }
        if (used + strlen(name) + 5 < sizeof wanted) {
            if (used > 0) {
                memcpy(wanted + used, " or ", 4);
                used += 4;
            }
            memcpy(wanted + used, name, strlen(name) + 1);
            used += strlen(name);
        }
    }
    return lp_fail(err, LP_E_ARGUMENT, "layout '%s' wants %s, not %s", layout->id, wanted, lp_dtype_name(dtype));
}

/* Where half 0 or 1 lies. */
static int64_t half_off(const lp_layout *layout, const lp_layout_geometry *g, int half)
{
    const int32_t a = lp_layout_axis_of(layout, LP_AXIS_HALF);
    return a < 0 ? 0 : g->stride[a] * (layout->up_first ? 1 - half : half);
}

lp_status lp_layout_locate(const lp_layout *layout, const lp_layout_sizes *sizes, const lp_layout_place *place,
                           int64_t *off, lp_error *err)
{
    lp_layout_geometry g;
    LP_TRY(check_shard(layout, place->shard, err));
    LP_TRY(lp_layout_resolve(layout, sizes, &g, err));
    int64_t row = place->row, half = place->shard == LP_SHARD_UP;
    int64_t rows = g.rows;
    if (place->shard == LP_SHARD_GATE_UP || place->shard == LP_SHARD_ALTERNATING)
        rows *= 2;
    const int32_t expert_axis = lp_layout_axis_of(layout, LP_AXIS_EXPERT);
    const int64_t experts = expert_axis < 0 ? 1 : g.extent[expert_axis];
    if (place->expert < 0 || place->expert >= experts || row < 0 || row >= rows || place->byte < 0 ||
        place->byte >= g.columns * g.element)
        return lp_fail(err, LP_E_ARGUMENT, "layout '%s': no byte %lld in row %lld of expert %lld", layout->id,
                       (long long)place->byte, (long long)row, (long long)place->expert);
    if (place->shard == LP_SHARD_GATE_UP) {
        half = row / g.rows;
        row %= g.rows;
    } else if (place->shard == LP_SHARD_ALTERNATING) {
        half = row % 2;
        row /= 2;
    }
    int64_t result = half_off(layout, &g, (int)half) + place->byte % g.element, column = place->byte / g.element;
    if (expert_axis >= 0)
        result += place->expert * g.stride[expert_axis];
    for (int32_t a = layout->axes - 1; a >= 0; a--) {
        int64_t *const rest = layout->axis[a].role == LP_AXIS_ROW      ? &row
                              : layout->axis[a].role == LP_AXIS_COLUMN ? &column
                                                                       : NULL;
        if (rest == NULL)
            continue;
        result += *rest % g.extent[a] * g.stride[a];
        *rest /= g.extent[a];
    }
    *off = result;
    return LP_OK;
}

lp_status lp_layout_origin(const lp_layout *layout, const lp_layout_sizes *sizes, int64_t off, lp_layout_place *place,
                           lp_error *err)
{
    lp_layout_geometry g;
    LP_TRY(lp_layout_resolve(layout, sizes, &g, err));
    if (off < 0 || off >= g.bytes)
        return lp_fail(err, LP_E_ARGUMENT, "layout '%s': offset %lld is outside its %lld bytes", layout->id,
                       (long long)off, (long long)g.bytes);
    lp_layout_place result = {.shard = LP_SHARD_DOWN};
    int64_t column = 0;
    for (int32_t a = 0; a < layout->axes; a++) {
        assert(g.stride[a] > 0 && g.extent[a] > 0); /* the order in memory names every axis */
        const int64_t index = off / g.stride[a] % g.extent[a];
        switch (layout->axis[a].role) {
        case LP_AXIS_EXPERT:
            result.expert = index;
            break;
        case LP_AXIS_HALF:
            result.shard = (index == 1) != layout->up_first ? LP_SHARD_UP : LP_SHARD_GATE;
            break;
        case LP_AXIS_ROW:
            result.row = result.row * g.extent[a] + index;
            break;
        case LP_AXIS_COLUMN:
            column = column * g.extent[a] + index;
            break;
        }
    }
    result.byte = column * g.element + off % g.element;
    *place = result;
    return LP_OK;
}
