/* SPDX-License-Identifier: Apache-2.0 */
/*
 * View operations that take a part: narrow, select, slice, split, chunk, diagonal. All of them pick an arithmetic
 * progression of indices out of a dimension, which take_modes turns into modes.
 */
#include "traces/view_private.h"

/*
 * A dimension of several modes is a mixed-radix number: index = digit * inner + rest. A progression of indices is a
 * list of modes when, digit by digit from the outside, it keeps to one digit, steps by whole digits, or fills every
 * digit in the same way. Appends the modes that visit start, start + step, ... (count of them, step > 0) of dimension
 * `dim` to the last dimension of *out, and adds the address of the first to its offset. LP_E_UNSUPPORTED when they cut
 * across strides; `verb` is for the error text.
 */
static lp_status take_modes(lp_view *out, const lp_view *v, int dim, int64_t start, int64_t step, int64_t count,
                            const char *verb, lp_error *err)
{
    int64_t inner = v->size[dim];
    if (count == 1)
        step = 1;
    for (int m = v->first[dim]; m < v->first[dim + 1]; m++) {
        const int64_t extent = v->mode[m].extent, stride = v->mode[m].stride_bits;
        inner /= extent;
        const int64_t digit = start / inner, rest = start % inner;
        const int64_t last = start + (count - 1) * step;
        out->offset_bits += digit * stride;
        start = rest;
        if (last / inner == digit)
            continue;
        if (step % inner == 0) {
            LP_TRY(lp_view_add_mode(out, count, stride * (step / inner), err));
            count = 1;
            step = 1;
            continue;
        }
        if (inner % step != 0 || rest >= step || count % (inner / step) != 0)
            return lp_fail(err, LP_E_UNSUPPORTED, "%s of dimension %d cuts across strides", verb, dim);
        LP_TRY(lp_view_add_mode(out, count / (inner / step), stride, err));
        count = inner / step;
    }
    return LP_OK;
}

/* Replaces dimension `dim` by the `count` indices start, start + step, ...; keep = false removes the dimension. */
static lp_status take(lp_view *v, int dim, int64_t start, int64_t step, int64_t count, bool keep, const char *verb,
                      lp_error *err)
{
    lp_view out;
    lp_view_start(&out, v->dtype, v->offset_bits);
    const bool empty = count == 0 || lp_view_is_empty(v);
    for (int d = 0; d < v->ndim; d++) {
        if (d != dim) {
            LP_TRY(lp_view_copy_dim(&out, v, d, err));
        } else if (keep) {
            LP_TRY(lp_view_add_dim(&out, count, err));
            const bool backwards = step < 0;
            const int first = out.nmode;
            if (!empty)
                LP_TRY(take_modes(&out, v, d, backwards ? start + (count - 1) * step : start, backwards ? -step : step,
                                  count, verb, err));
            /* Backwards is the same progression with every digit counted down. */
            for (int m = first; backwards && m < out.nmode; m++) {
                out.offset_bits += (out.mode[m].extent - 1) * out.mode[m].stride_bits;
                out.mode[m].stride_bits = -out.mode[m].stride_bits;
            }
        } else if (!empty) {
            /* One index has no modes, so no dimension needs to be open for it. */
            LP_TRY(take_modes(&out, v, d, start, 1, 1, verb, err));
        }
    }
    lp_view_seal(&out);
    *v = out;
    return LP_OK;
}

static lp_status real_dim(const lp_view *v, int dim, int *out, const char *verb, lp_error *err)
{
    if (v->ndim == 0)
        return lp_fail(err, LP_E_ARGUMENT, "%s of a view without dimensions", verb);
    return lp_view_dim(v, dim, out, err);
}

lp_status lp_view_narrow(lp_view *v, int dim, int64_t start, int64_t length, lp_error *err)
{
    LP_TRY(real_dim(v, dim, &dim, "narrow", err));
    const int64_t size = v->size[dim];
    const int64_t from = start < 0 && start >= -size ? start + size : start;
    if (from < 0 || length < 0 || from > size || length > size - from)
        return lp_fail(err, LP_E_ARGUMENT, "narrow of dimension %d at %lld by %lld exceeds its size %lld", dim,
                       (long long)start, (long long)length, (long long)size);
    return take(v, dim, from, 1, length, true, "narrow", err);
}

lp_status lp_view_select(lp_view *v, int dim, int64_t index, lp_error *err)
{
    LP_TRY(real_dim(v, dim, &dim, "select", err));
    const int64_t size = v->size[dim];
    if (index < -size || index >= size)
        return lp_fail(err, LP_E_ARGUMENT, "index %lld is out of range for dimension %d of size %lld", (long long)index,
                       dim, (long long)size);
    return take(v, dim, index < 0 ? index + size : index, 1, 1, false, "select", err);
}

static int64_t clip_bound(int64_t bound, int64_t size, int64_t low, int64_t high)
{
    if (bound < 0)
        bound += size;
    return bound < low ? low : bound > high ? high : bound;
}

lp_status lp_view_slice(lp_view *v, int dim, int64_t start, int64_t stop, int64_t step, lp_error *err)
{
    LP_TRY(real_dim(v, dim, &dim, "slice", err));
    if (step == 0)
        return lp_fail(err, LP_E_ARGUMENT, "slice with step 0");
    if (step < -INT64_MAX)
        step = -INT64_MAX;
    const int64_t size = v->size[dim];
    const bool up = step > 0;
    const int64_t low = up ? 0 : -1, high = up ? size : size - 1;
    const int64_t from = start == LP_SLICE_END ? (up ? low : high) : clip_bound(start, size, low, high);
    const int64_t to = stop == LP_SLICE_END ? (up ? high : low) : clip_bound(stop, size, low, high);
    const int64_t distance = up ? to - from : from - to;
    const int64_t stride = up ? step : -step;
    const int64_t count = distance <= 0 ? 0 : (distance - 1) / stride + 1;
    return take(v, dim, from, count > 1 ? step : 1, count, true, "slice", err);
}

lp_status lp_view_split(lp_view *v, int dim, int64_t part_size, int64_t index, lp_error *err)
{
    LP_TRY(real_dim(v, dim, &dim, "split", err));
    const int64_t size = v->size[dim];
    if (part_size < 0 || (part_size == 0 && size != 0))
        return lp_fail(err, LP_E_ARGUMENT, "split into parts of %lld", (long long)part_size);
    const int64_t parts = size == 0 ? 1 : (size - 1) / part_size + 1;
    if (index < 0 || index >= parts)
        return lp_fail(err, LP_E_ARGUMENT, "part %lld of a split into %lld", (long long)index, (long long)parts);
    const int64_t start = index * part_size;
    const int64_t length = size - start < part_size ? size - start : part_size;
    return take(v, dim, start, 1, length, true, "split", err);
}

lp_status lp_view_chunk(lp_view *v, int dim, int64_t chunks, int64_t index, lp_error *err)
{
    LP_TRY(real_dim(v, dim, &dim, "chunk", err));
    const int64_t size = v->size[dim];
    if (chunks <= 0)
        return lp_fail(err, LP_E_ARGUMENT, "chunk into %lld parts", (long long)chunks);
    if (size > 0)
        return lp_view_split(v, dim, (size - 1) / chunks + 1, index, err);
    /* torch hands out all the chunks of nothing */
    if (index < 0 || index >= chunks)
        return lp_fail(err, LP_E_ARGUMENT, "part %lld of a chunk into %lld", (long long)index, (long long)chunks);
    return take(v, dim, 0, 1, 0, true, "chunk", err);
}

/* Appends to the last dimension of *out the modes that step through two lists of modes at once, innermost first. */
static lp_status add_both(lp_view *out, const lp_view *a, const lp_view *b, lp_error *err)
{
    lp_view_mode joint[2 * LP_VIEW_MODES];
    int count = 0, i = a->nmode - 1, j = b->nmode - 1;
    lp_view_mode x = {1, 0}, y = {1, 0};
    for (;;) {
        if (x.extent == 1 && i >= 0)
            x = a->mode[i--];
        if (y.extent == 1 && j >= 0)
            y = b->mode[j--];
        const int64_t step = x.extent < y.extent ? x.extent : y.extent;
        if (step == 1)
            break;
        if (x.extent % step != 0 || y.extent % step != 0)
            return lp_fail(err, LP_E_UNSUPPORTED, "diagonal cuts across strides");
        joint[count++] = (lp_view_mode){step, x.stride_bits + y.stride_bits};
        x = (lp_view_mode){x.extent / step, x.stride_bits * step};
        y = (lp_view_mode){y.extent / step, y.stride_bits * step};
    }
    while (count-- > 0)
        LP_TRY(lp_view_add_mode(out, joint[count].extent, joint[count].stride_bits, err));
    return LP_OK;
}

lp_status lp_view_diagonal(lp_view *v, int64_t offset, int dim1, int dim2, lp_error *err)
{
    LP_TRY(real_dim(v, dim1, &dim1, "diagonal", err));
    LP_TRY(real_dim(v, dim2, &dim2, "diagonal", err));
    if (dim1 == dim2)
        return lp_fail(err, LP_E_ARGUMENT, "diagonal of dimension %d with itself", dim1);
    const int64_t rows = v->size[dim1], columns = v->size[dim2];
    const int64_t row = offset < 0 ? -(offset < -rows ? -rows : offset) : 0;
    const int64_t column = offset > 0 ? (offset > columns ? columns : offset) : 0;
    const int64_t size = rows - row < columns - column ? rows - row : columns - column;
    lp_view out;
    lp_view_start(&out, v->dtype, v->offset_bits);
    for (int d = 0; d < v->ndim; d++)
        if (d != dim1 && d != dim2)
            LP_TRY(lp_view_copy_dim(&out, v, d, err));
    LP_TRY(lp_view_add_dim(&out, size, err));
    if (size > 0 && !lp_view_is_empty(v)) {
        lp_view along[2];
        for (int i = 0; i < 2; i++) {
            lp_view_start(&along[i], v->dtype, 0);
            LP_TRY(lp_view_add_dim(&along[i], size, err));
            LP_TRY(take_modes(&along[i], v, i == 0 ? dim1 : dim2, i == 0 ? row : column, 1, size, "diagonal", err));
            out.offset_bits += along[i].offset_bits;
        }
        LP_TRY(add_both(&out, &along[0], &along[1], err));
    }
    lp_view_seal(&out);
    *v = out;
    return LP_OK;
}
