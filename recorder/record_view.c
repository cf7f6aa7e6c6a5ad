/* SPDX-License-Identifier: Apache-2.0 */
/* View operations on tensors: the geometry is that of lp_view, what is added is the place of a misuse. */
#include "recorder/record_private.h"

/* What cannot be said about a tensor as it lies can be said about a dense copy of it: so torch does for a reshape that
 * cuts across strides, and so do we, too, for the narrowing of a dimension that a reshape had made of several. A
 * destination has no such way out: what is written to a copy does not reach it. */
static bool needs_copy(lp_tensor t, lp_status status)
{
    return status == LP_E_UNSUPPORTED && (t.kind == LP_TENSOR_SOURCE || t.kind == LP_TENSOR_TEMPORARY);
}

/* The shape that every view operation has: nothing on invalid tensors, a second try on a copy, the place on failure.
 * `call` is an lp_view function that changes t.view. */
#define VIEW_OPERATION(call)                                                                                           \
    do {                                                                                                               \
        lp_error err;                                                                                                  \
        if (!lp_is_valid(t))                                                                                           \
            return t;                                                                                                  \
        lp_status status = (call);                                                                                     \
        if (needs_copy(t, status)) {                                                                                   \
            t = lp_clone_at(file, line, t);                                                                            \
            status = lp_is_valid(t) ? (call) : LP_OK;                                                                  \
        }                                                                                                              \
        return status == LP_OK ? t : rec_misuse_error(file, line, t.recorder, &err);                                   \
    } while (0)

lp_tensor lp_narrow_at(const char *file, int line, lp_tensor t, int dim, int64_t start, int64_t length)
{
    VIEW_OPERATION(lp_view_narrow(&t.view, dim, start, length, &err));
}

lp_tensor lp_select_at(const char *file, int line, lp_tensor t, int dim, int64_t index)
{
    VIEW_OPERATION(lp_view_select(&t.view, dim, index, &err));
}

lp_tensor lp_slice_at(const char *file, int line, lp_tensor t, int dim, int64_t start, int64_t stop, int64_t step)
{
    VIEW_OPERATION(lp_view_slice(&t.view, dim, start, stop, step, &err));
}

lp_tensor lp_split_at(const char *file, int line, lp_tensor t, int dim, int64_t part_size, int64_t index)
{
    VIEW_OPERATION(lp_view_split(&t.view, dim, part_size, index, &err));
}

lp_tensor lp_chunk_at(const char *file, int line, lp_tensor t, int dim, int64_t chunks, int64_t index)
{
    VIEW_OPERATION(lp_view_chunk(&t.view, dim, chunks, index, &err));
}

lp_tensor lp_permute_at(const char *file, int line, lp_tensor t, int ndim, const int *dims)
{
    VIEW_OPERATION(lp_view_permute(&t.view, ndim, dims, &err));
}

lp_tensor lp_transpose_at(const char *file, int line, lp_tensor t, int a, int b)
{
    VIEW_OPERATION(lp_view_transpose(&t.view, a, b, &err));
}

lp_tensor lp_t_at(const char *file, int line, lp_tensor t)
{
    VIEW_OPERATION(lp_view_t(&t.view, &err));
}

lp_tensor lp_reverse_dims_at(const char *file, int line, lp_tensor t)
{
    VIEW_OPERATION(lp_view_reverse_dims(&t.view, &err));
}

lp_tensor lp_movedim_at(const char *file, int line, lp_tensor t, int from, int to)
{
    VIEW_OPERATION(lp_view_movedim(&t.view, from, to, &err));
}

lp_tensor lp_squeeze_at(const char *file, int line, lp_tensor t, int dim)
{
    VIEW_OPERATION(lp_view_squeeze(&t.view, dim, &err));
}

lp_tensor lp_squeeze_all_at(const char *file, int line, lp_tensor t)
{
    VIEW_OPERATION(lp_view_squeeze_all(&t.view, &err));
}

lp_tensor lp_unsqueeze_at(const char *file, int line, lp_tensor t, int dim)
{
    VIEW_OPERATION(lp_view_unsqueeze(&t.view, dim, &err));
}

lp_tensor lp_expand_at(const char *file, int line, lp_tensor t, int ndim, const int64_t *shape)
{
    VIEW_OPERATION(lp_view_expand(&t.view, ndim, shape, &err));
}

lp_tensor lp_diagonal_at(const char *file, int line, lp_tensor t, int64_t offset, int dim1, int dim2)
{
    VIEW_OPERATION(lp_view_diagonal(&t.view, offset, dim1, dim2, &err));
}

lp_tensor lp_as_strided_at(const char *file, int line, lp_tensor t, int ndim, const int64_t *shape,
                           const int64_t *stride_elements, int64_t offset_elements)
{
    VIEW_OPERATION(lp_view_as_strided(&t.view, ndim, shape, stride_elements, offset_elements, &err));
}

lp_tensor lp_unflatten_at(const char *file, int line, lp_tensor t, int dim, int ndim, const int64_t *sizes)
{
    VIEW_OPERATION(lp_view_unflatten(&t.view, dim, ndim, sizes, &err));
}

lp_tensor lp_reshape_at(const char *file, int line, lp_tensor t, int ndim, const int64_t *shape)
{
    VIEW_OPERATION(lp_view_reshape(&t.view, ndim, shape, &err));
}

lp_tensor lp_flatten_at(const char *file, int line, lp_tensor t, int first_dim, int last_dim)
{
    VIEW_OPERATION(lp_view_flatten(&t.view, first_dim, last_dim, &err));
}

lp_tensor lp_reinterpret_at(const char *file, int line, lp_tensor t, lp_dtype dtype)
{
    if (!lp_is_valid(t))
        return t;
    /* The bytes of a cast exist only once the cast is done. */
    if (t.cast_to != 0)
        t = lp_clone_at(file, line, t);
    VIEW_OPERATION(lp_view_dtype(&t.view, dtype, &err));
}

lp_tensor lp_with_view_at(const char *file, int line, lp_tensor t, const lp_view *view)
{
    if (!lp_is_valid(t))
        return t;
    if (t.cast_to != 0 && view->dtype != t.view.dtype)
        return rec_misuse(file, line, t.recorder, LP_E_MISUSE, "a view of another dtype over a cast");
    t.view = *view;
    return t;
}

/* A cast stays pending as long as only views follow: geometry does not depend on the dtype, and a copy of it is then
 * one cast record. */
lp_tensor lp_to_at(const char *file, int line, lp_tensor t, lp_dtype dtype)
{
    if (!lp_is_valid(t))
        return t;
    const lp_dtype from = lp_dtype_of(t);
    if (from == dtype)
        return t;
    switch (lp_cast_kind_of(from, dtype)) {
    case LP_CAST_BYTES:
        return lp_reinterpret_at(file, line, t, dtype);
    case LP_CAST_VALUES:
        break;
    case LP_CAST_UNSUPPORTED:
    default:
        rec_refuse_tensor(file, line, t, rec_invalid(t.recorder), "to",
                          lp_name(t.recorder, "no cast from %s to %s", lp_dtype_name(from), lp_dtype_name(dtype)));
        return t; /* so that a copy of it still says where the name would have gone */
    }
    if (t.cast_to != 0) { /* a second cast: of the first one's value */
        t = rec_value_tensor(file, line, t.recorder, rec_value_of(file, line, t), t.view.ndim, t.view.size);
        if (!lp_is_valid(t))
            return t;
    }
    t.cast_to = (uint16_t)dtype;
    return t;
}

lp_tensor lp_to_f32_at(const char *file, int line, lp_tensor t)
{
    return lp_to_at(file, line, t, LP_F32);
}
