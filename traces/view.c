/* SPDX-License-Identifier: Apache-2.0 */
/* Views: how they are made, what is asked of them, and how results of operations are built up. */
#include "traces/view_private.h"

#include <stdio.h>

/* ---- building ---- */

void lp_view_start(lp_view *out, lp_dtype dtype, int64_t offset_bits)
{
    out->dtype = dtype;
    out->ndim = 0;
    out->nmode = 0;
    out->first[0] = 0;
    out->offset_bits = offset_bits;
}

lp_status lp_view_add_dim(lp_view *out, int64_t size, lp_error *err)
{
    if (out->ndim >= LP_VIEW_DIMS)
        return lp_fail(err, LP_E_LIMIT, "a view has at most %d dimensions", LP_VIEW_DIMS);
    out->size[out->ndim] = size;
    out->ndim = (int8_t)(out->ndim + 1);
    out->first[out->ndim] = out->nmode;
    return LP_OK;
}

lp_status lp_view_add_mode(lp_view *out, int64_t extent, int64_t stride_bits, lp_error *err)
{
    if (extent <= 1)
        return LP_OK;
    if (out->nmode > out->first[out->ndim - 1]) {
        lp_view_mode *outer = &out->mode[out->nmode - 1];
        int64_t reach;
        if (lp_mul(extent, stride_bits, &reach) && outer->stride_bits == reach) {
            outer->extent *= extent;
            outer->stride_bits = stride_bits;
            return LP_OK;
        }
    }
    if (out->nmode >= LP_VIEW_MODES)
        return lp_fail(err, LP_E_LIMIT, "a view has at most %d strides", LP_VIEW_MODES);
    out->mode[out->nmode] = (lp_view_mode){.extent = extent, .stride_bits = stride_bits};
    out->nmode = (int8_t)(out->nmode + 1);
    out->first[out->ndim] = out->nmode;
    return LP_OK;
}

lp_status lp_view_copy_dim(lp_view *out, const lp_view *from, int dim, lp_error *err)
{
    LP_TRY(lp_view_add_dim(out, from->size[dim], err));
    for (int m = from->first[dim]; m < from->first[dim + 1]; m++)
        LP_TRY(lp_view_add_mode(out, from->mode[m].extent, from->mode[m].stride_bits, err));
    return LP_OK;
}

void lp_view_seal(lp_view *out)
{
    for (int d = 0; d < out->ndim; d++) {
        if (out->size[d] == 0) {
            out->nmode = 0;
            memset(out->first, 0, sizeof out->first);
            return;
        }
    }
}

lp_status lp_view_dim(const lp_view *v, int dim, int *out, lp_error *err)
{
    const int count = v->ndim > 0 ? v->ndim : 1;
    if (dim < -count || dim >= count)
        return lp_fail(err, LP_E_ARGUMENT, "dimension %d is out of range for a view of %d dimensions", dim, v->ndim);
    *out = dim < 0 ? dim + count : dim;
    return LP_OK;
}

/* True when every address of the view lies inside +-LP_VIEW_FAR bits. */
static bool is_in_range(const lp_view *v)
{
    int64_t low = v->offset_bits, high = v->offset_bits;
    for (int m = 0; m < v->nmode; m++) {
        int64_t reach;
        if (!lp_mul(v->mode[m].extent - 1, v->mode[m].stride_bits, &reach))
            return false;
        if (!(reach < 0 ? lp_add(low, reach, &low) : lp_add(high, reach, &high)))
            return false;
    }
    return low >= -LP_VIEW_FAR && high <= LP_VIEW_FAR;
}

const char *lp_view_shape_text(char *buffer, size_t buffer_bytes, int ndim, const int64_t *size)
{
    size_t used = 0;
    buffer[0] = '\0';
    for (int d = 0; d <= ndim; d++) {
        char piece[32];
        const char *lead = d == 0 ? "[" : d < ndim ? ", " : "";
        if (d < ndim)
            snprintf(piece, sizeof piece, "%s%lld", lead, (long long)size[d]);
        else
            snprintf(piece, sizeof piece, "%s]", ndim == 0 ? "[" : "");
        const size_t bytes = strlen(piece);
        if (used + bytes + 1 > buffer_bytes)
            break;
        memcpy(buffer + used, piece, bytes + 1);
        used += bytes;
    }
    return buffer;
}

/* ---- making ---- */

static lp_status check_shape(lp_dtype dtype, int ndim, const int64_t *shape, lp_error *err)
{
    if (lp_dtype_bits(dtype) == 0)
        return lp_fail(err, LP_E_ARGUMENT, "dtype %d does not exist", (int)dtype);
    if (ndim < 0)
        return lp_fail(err, LP_E_ARGUMENT, "a view cannot have %d dimensions", ndim);
    if (ndim > LP_VIEW_DIMS)
        return lp_fail(err, LP_E_LIMIT, "%d dimensions, and a view has at most %d", ndim, LP_VIEW_DIMS);
    for (int d = 0; d < ndim; d++)
        if (shape[d] < 0)
            return lp_fail(err, LP_E_ARGUMENT, "dimension %d has the negative size %lld", d, (long long)shape[d]);
    return LP_OK;
}

/* Elements of a shape; false when they do not fit int64. A zero anywhere makes it 0, whatever the others are. */
static bool count_elements(int ndim, const int64_t *shape, int64_t *out)
{
    int64_t count = 1;
    for (int d = 0; d < ndim; d++) {
        if (shape[d] == 0) {
            *out = 0;
            return true;
        }
    }
    for (int d = 0; d < ndim; d++)
        if (!lp_mul(count, shape[d], &count))
            return false;
    *out = count;
    return true;
}

lp_status lp_view_contiguous(lp_view *out, lp_dtype dtype, int ndim, const int64_t *shape, lp_error *err)
{
    LP_TRY(check_shape(dtype, ndim, shape, err));
    int64_t count, bits = lp_dtype_bits(dtype);
    if (!count_elements(ndim, shape, &count) || !lp_mul(count, bits, &bits) || bits > LP_VIEW_FAR)
        return lp_fail(err, LP_E_LIMIT, "the size of a tensor does not fit 64 bits");
    lp_view v;
    lp_view_start(&v, dtype, 0);
    for (int d = 0; d < ndim; d++) {
        LP_TRY(lp_view_add_dim(&v, shape[d], err));
        if (count > 0) {
            bits /= shape[d];
            LP_TRY(lp_view_add_mode(&v, shape[d], bits, err));
        }
    }
    lp_view_seal(&v);
    *out = v;
    return LP_OK;
}

/* Shape and strides in units of `unit_bits`; common to lp_view_strided and lp_view_as_strided. */
static lp_status from_strides(lp_view *out, lp_dtype dtype, int ndim, const int64_t *shape, const int64_t *stride,
                              int64_t offset, int64_t unit_bits, lp_error *err)
{
    int64_t count, start;
    if (!count_elements(ndim, shape, &count) || !lp_mul(offset, unit_bits, &start))
        return lp_fail(err, LP_E_LIMIT, "the size of a tensor does not fit 64 bits");
    lp_view v;
    lp_view_start(&v, dtype, start);
    for (int d = 0; d < ndim; d++) {
        LP_TRY(lp_view_add_dim(&v, shape[d], err));
        if (count == 0 || shape[d] == 1)
            continue;
        int64_t bits;
        if (!lp_mul(stride[d], unit_bits, &bits))
            return lp_fail(err, LP_E_LIMIT, "the stride of dimension %d does not fit 64 bits", d);
        LP_TRY(lp_view_add_mode(&v, shape[d], bits, err));
    }
    lp_view_seal(&v);
    if (!is_in_range(&v))
        return lp_fail(err, LP_E_LIMIT, "the addresses of a view do not fit 64 bits");
    *out = v;
    return LP_OK;
}

lp_status lp_view_strided(lp_view *out, lp_dtype dtype, int ndim, const int64_t *shape, const int64_t *stride,
                          int64_t offset, lp_error *err)
{
    LP_TRY(check_shape(dtype, ndim, shape, err));
    if (lp_dtype_bits(dtype) % 8 != 0)
        return lp_fail(err, LP_E_ARGUMENT, "strides in bytes need a dtype of whole bytes, and %s has %d bits",
                       lp_dtype_name(dtype), lp_dtype_bits(dtype));
    return from_strides(out, dtype, ndim, shape, stride, offset, 8, err);
}

lp_status lp_view_as_strided(lp_view *v, int ndim, const int64_t *shape, const int64_t *stride_elements,
                             int64_t offset_elements, lp_error *err)
{
    LP_TRY(check_shape(v->dtype, ndim, shape, err));
    if (offset_elements < 0)
        return lp_fail(err, LP_E_ARGUMENT, "as_strided with the negative offset %lld", (long long)offset_elements);
    for (int d = 0; d < ndim; d++)
        if (stride_elements[d] < 0)
            return lp_fail(err, LP_E_ARGUMENT, "as_strided with the negative stride %lld in dimension %d",
                           (long long)stride_elements[d], d);
    return from_strides(v, v->dtype, ndim, shape, stride_elements, offset_elements, lp_dtype_bits(v->dtype), err);
}

/* ---- asking ---- */

int64_t lp_view_count(const lp_view *v)
{
    int64_t count = 1;
    return count_elements(v->ndim, v->size, &count) ? count : INT64_MAX;
}

bool lp_view_is_empty(const lp_view *v)
{
    for (int d = 0; d < v->ndim; d++)
        if (v->size[d] == 0)
            return true;
    return false;
}

bool lp_view_is_contiguous(const lp_view *v)
{
    int64_t expected = lp_dtype_bits(v->dtype);
    for (int m = v->nmode - 1; m >= 0; m--) {
        if (v->mode[m].stride_bits != expected)
            return false;
        if (!lp_mul(expected, v->mode[m].extent, &expected))
            return false;
    }
    return true;
}
