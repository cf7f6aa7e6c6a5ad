/* SPDX-License-Identifier: Apache-2.0 */
/* View operations that move, add and remove whole dimensions, and view(dtype). */
#include "traces/view_private.h"

lp_status lp_view_permute(lp_view *v, int ndim, const int *dims, lp_error *err)
{
    if (ndim != v->ndim)
        return lp_fail(err, LP_E_ARGUMENT, "permute names %d dimensions of a view of %d", ndim, v->ndim);
    lp_view out;
    unsigned seen = 0;
    lp_view_start(&out, v->dtype, v->offset_bits);
    for (int i = 0; i < ndim; i++) {
        int dim;
        LP_TRY(lp_view_dim(v, dims[i], &dim, err));
        if (seen & (1u << dim))
            return lp_fail(err, LP_E_ARGUMENT, "permute names dimension %d twice", dim);
        seen |= 1u << dim;
        LP_TRY(lp_view_copy_dim(&out, v, dim, err));
    }
    *v = out;
    return LP_OK;
}

lp_status lp_view_transpose(lp_view *v, int a, int b, lp_error *err)
{
    LP_TRY(lp_view_dim(v, a, &a, err));
    LP_TRY(lp_view_dim(v, b, &b, err));
    if (a == b)
        return LP_OK;
    int dims[LP_VIEW_DIMS];
    for (int d = 0; d < v->ndim; d++)
        dims[d] = d == a ? b : d == b ? a : d;
    return lp_view_permute(v, v->ndim, dims, err);
}

lp_status lp_view_t(lp_view *v, lp_error *err)
{
    if (v->ndim > 2)
        return lp_fail(err, LP_E_ARGUMENT, "t() takes at most 2 dimensions, and this view has %d", v->ndim);
    return v->ndim < 2 ? LP_OK : lp_view_transpose(v, 0, 1, err);
}

lp_status lp_view_reverse_dims(lp_view *v, lp_error *err)
{
    int dims[LP_VIEW_DIMS];
    for (int d = 0; d < v->ndim; d++)
        dims[d] = v->ndim - 1 - d;
    return lp_view_permute(v, v->ndim, dims, err);
}

lp_status lp_view_movedim(lp_view *v, int from, int to, lp_error *err)
{
    LP_TRY(lp_view_dim(v, from, &from, err));
    LP_TRY(lp_view_dim(v, to, &to, err));
    int dims[LP_VIEW_DIMS];
    int next = 0;
    for (int d = 0; d < v->ndim; d++) {
        if (d == to) {
            dims[d] = from;
            continue;
        }
        if (next == from)
            next++;
        dims[d] = next++;
    }
    return lp_view_permute(v, v->ndim, dims, err);
}

static lp_status drop_unit_dims(lp_view *v, int only, lp_error *err)
{
    lp_view out;
    lp_view_start(&out, v->dtype, v->offset_bits);
    for (int d = 0; d < v->ndim; d++)
        if (v->size[d] != 1 || (only >= 0 && d != only))
            LP_TRY(lp_view_copy_dim(&out, v, d, err));
    *v = out;
    return LP_OK;
}

lp_status lp_view_squeeze(lp_view *v, int dim, lp_error *err)
{
    LP_TRY(lp_view_dim(v, dim, &dim, err));
    return drop_unit_dims(v, dim, err);
}

lp_status lp_view_squeeze_all(lp_view *v, lp_error *err)
{
    return drop_unit_dims(v, -1, err);
}

lp_status lp_view_unsqueeze(lp_view *v, int dim, lp_error *err)
{
    if (dim < -(v->ndim + 1) || dim > v->ndim)
        return lp_fail(err, LP_E_ARGUMENT, "dimension %d is out of range to unsqueeze a view of %d dimensions", dim,
                       v->ndim);
    if (dim < 0)
        dim += v->ndim + 1;
    lp_view out;
    lp_view_start(&out, v->dtype, v->offset_bits);
    for (int d = 0; d <= v->ndim; d++) {
        if (d == dim)
            LP_TRY(lp_view_add_dim(&out, 1, err));
        if (d < v->ndim)
            LP_TRY(lp_view_copy_dim(&out, v, d, err));
    }
    *v = out;
    return LP_OK;
}

lp_status lp_view_expand(lp_view *v, int ndim, const int64_t *shape, lp_error *err)
{
    if (ndim < v->ndim)
        return lp_fail(err, LP_E_ARGUMENT, "expand to %d dimensions of a view of %d", ndim, v->ndim);
    const int lead = ndim - v->ndim;
    int64_t count = 1;
    lp_view out;
    lp_view_start(&out, v->dtype, v->offset_bits);
    for (int d = 0; d < ndim; d++) {
        const int64_t old = d < lead ? 1 : v->size[d - lead];
        int64_t size = shape[d];
        if (size == -1 && d >= lead)
            size = old;
        if (size < 0)
            return lp_fail(err, LP_E_ARGUMENT, "expand to the size %lld in dimension %d", (long long)shape[d], d);
        if (size != old && old != 1)
            return lp_fail(err, LP_E_ARGUMENT, "expand of dimension %d from %lld to %lld: only an extent of 1 expands",
                           d, (long long)old, (long long)size);
        if (size > 0 && !lp_mul(count, size, &count))
            return lp_fail(err, LP_E_LIMIT, "the size of an expanded view does not fit 64 bits");
        if (size == old && d >= lead) {
            LP_TRY(lp_view_copy_dim(&out, v, d - lead, err));
            continue;
        }
        LP_TRY(lp_view_add_dim(&out, size, err));
        LP_TRY(lp_view_add_mode(&out, size, 0, err));
    }
    lp_view_seal(&out);
    *v = out;
    return LP_OK;
}

/* ---- view(dtype) ---- */

/* Where elements do not divide into the new ones, runs of them must: the innermost mode is contiguous and holds a whole
 * number of new elements, and every row starts where a new element may start. */
static lp_status regroup_elements(const lp_view *v, lp_view *out, int64_t old_bits, int64_t new_bits, lp_error *err)
{
    const int last = v->ndim - 1, inner = v->first[last + 1] - 1;
    const bool has_mode = v->first[last + 1] > v->first[last];
    const int64_t extent = has_mode ? v->mode[inner].extent : 1;
    const int64_t align = new_bits < 8 ? 8 : new_bits;
    int64_t run_bits, size_bits;
    if (!lp_mul(v->size[last], old_bits, &size_bits) || !lp_mul(extent, old_bits, &run_bits))
        return lp_fail(err, LP_E_LIMIT, "the size of a view does not fit 64 bits");
    if (size_bits % new_bits != 0)
        return lp_fail(err, LP_E_ARGUMENT, "view(%s): %lld elements of %s in the last dimension are not whole elements",
                       lp_dtype_name(out->dtype), (long long)v->size[last], lp_dtype_name(v->dtype));
    if ((has_mode && v->mode[inner].stride_bits != old_bits) || run_bits % new_bits != 0)
        return lp_fail(err, LP_E_UNSUPPORTED, "view(%s): the last dimension is not contiguous",
                       lp_dtype_name(out->dtype));
    bool aligned = v->offset_bits % align == 0;
    for (int m = 0; m < v->nmode; m++)
        if (!has_mode || m != inner)
            aligned = aligned && v->mode[m].stride_bits % align == 0;
    if (!aligned)
        return lp_fail(err, LP_E_UNSUPPORTED, "view(%s): offset or strides are not multiples of %lld bits",
                       lp_dtype_name(out->dtype), (long long)align);
    for (int d = 0; d < last; d++)
        LP_TRY(lp_view_copy_dim(out, v, d, err));
    LP_TRY(lp_view_add_dim(out, size_bits / new_bits, err));
    for (int m = v->first[last]; has_mode && m < inner; m++)
        LP_TRY(lp_view_add_mode(out, v->mode[m].extent, v->mode[m].stride_bits, err));
    return lp_view_add_mode(out, run_bits / new_bits, new_bits, err);
}

lp_status lp_view_dtype(lp_view *v, lp_dtype dtype, lp_error *err)
{
    const int64_t old_bits = lp_dtype_bits(v->dtype), new_bits = lp_dtype_bits(dtype);
    if (new_bits == 0)
        return lp_fail(err, LP_E_ARGUMENT, "dtype %d does not exist", (int)dtype);
    if (old_bits == new_bits) {
        v->dtype = dtype;
        return LP_OK;
    }
    if (v->ndim == 0)
        return lp_fail(err, LP_E_ARGUMENT, "view(%s) of another width needs a dimension", lp_dtype_name(dtype));
    const int last = v->ndim - 1;
    lp_view out;
    lp_view_start(&out, dtype, v->offset_bits);
    if (lp_view_is_empty(v)) {
        int64_t size_bits;
        if (!lp_mul(v->size[last], old_bits, &size_bits) || size_bits % new_bits != 0)
            return lp_fail(err, LP_E_ARGUMENT, "view(%s): the last dimension is not whole elements",
                           lp_dtype_name(dtype));
        for (int d = 0; d <= last; d++)
            LP_TRY(lp_view_add_dim(&out, d < last ? v->size[d] : size_bits / new_bits, err));
    } else if (old_bits % new_bits == 0) {
        const int64_t parts = old_bits / new_bits;
        for (int d = 0; d <= last; d++)
            LP_TRY(lp_view_copy_dim(&out, v, d, err));
        if (!lp_mul(v->size[last], parts, &out.size[last]))
            return lp_fail(err, LP_E_LIMIT, "the size of a view does not fit 64 bits");
        LP_TRY(lp_view_add_mode(&out, parts, new_bits, err));
    } else {
        LP_TRY(regroup_elements(v, &out, old_bits, new_bits, err));
    }
    *v = out;
    return LP_OK;
}
