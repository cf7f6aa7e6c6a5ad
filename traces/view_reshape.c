/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reshape, flatten and unflatten: the modes of all dimensions form one list, which is cut anew at the bounds of the new
 * shape. A mode may be split where the sizes divide; where they do not, the new dimension cuts across strides.
 */
#include "traces/view_private.h"

#include <assert.h>

static lp_status fail_reshape(const lp_view *v, int ndim, const int64_t *shape, const char *why, lp_error *err)
{
    char old_text[128], new_text[128];
    return lp_fail(err, LP_E_ARGUMENT, "cannot reshape %s to %s: %s",
                   lp_view_shape_text(old_text, sizeof old_text, v->ndim, v->size),
                   lp_view_shape_text(new_text, sizeof new_text, ndim, shape), why);
}

/* Replaces a -1 in the shape and checks the number of elements. */
static lp_status resolve_shape(const lp_view *v, int ndim, const int64_t *shape, int64_t *out, lp_error *err)
{
    char text[128];
    if (ndim < 0)
        return lp_fail(err, LP_E_ARGUMENT, "a view cannot have %d dimensions", ndim);
    if (ndim > LP_VIEW_DIMS)
        return lp_fail(err, LP_E_LIMIT, "%d dimensions, and a view has at most %d", ndim, LP_VIEW_DIMS);
    const int64_t count = lp_view_count(v);
    int64_t known = 1;
    int open = -1;
    bool zero = false, fits = true;
    for (int d = 0; d < ndim; d++) {
        out[d] = shape[d];
        if (shape[d] == -1 && open < 0)
            open = d;
        else if (shape[d] < 0)
            return lp_fail(err, LP_E_ARGUMENT, "cannot reshape to %s: dimension %d is negative",
                           lp_view_shape_text(text, sizeof text, ndim, shape), d);
        else if (shape[d] == 0)
            zero = true;
        else
            fits = fits && lp_mul(known, shape[d], &known);
    }
    if (zero)
        known = 0;
    if (open >= 0 && known > 0 && fits) {
        out[open] = count / known;
        known *= out[open];
    }
    if (open >= 0 && zero)
        return fail_reshape(v, ndim, shape, "-1 can be any size here", err);
    if ((!fits && !zero) || known != count)
        return fail_reshape(v, ndim, shape, "the number of elements differs", err);
    return LP_OK;
}

/* All modes as one coalesced list, outermost first. */
static int join_modes(const lp_view *v, lp_view_mode *list)
{
    int count = 0;
    for (int m = 0; m < v->nmode; m++) {
        const lp_view_mode mode = v->mode[m];
        int64_t reach;
        if (count > 0 && lp_mul(mode.extent, mode.stride_bits, &reach) && list[count - 1].stride_bits == reach)
            list[count - 1] = (lp_view_mode){list[count - 1].extent * mode.extent, mode.stride_bits};
        else
            list[count++] = mode;
    }
    return count;
}

lp_status lp_view_reshape(lp_view *v, int ndim, const int64_t *shape, lp_error *err)
{
    int64_t size[LP_VIEW_DIMS];
    LP_TRY(resolve_shape(v, ndim, shape, size, err));

    /* Cut the list from its innermost end; pieces are collected innermost first. */
    lp_view_mode list[LP_VIEW_MODES], piece[LP_VIEW_MODES + LP_VIEW_DIMS];
    int pieces_of[LP_VIEW_DIMS] = {0};
    int count = join_modes(v, list), pieces = 0;
    const bool empty = lp_view_is_empty(v);
    for (int d = ndim - 1; d >= 0 && !empty; d--) {
        int64_t wanted = size[d];
        while (wanted > 1) {
            assert(count > 0); /* there are as many elements as before */
            lp_view_mode *inner = &list[count - 1];
            const int64_t taken = inner->extent < wanted ? inner->extent : wanted;
            if (inner->extent % taken != 0 || wanted % taken != 0) {
                char old_text[128], new_text[128];
                return lp_fail(err, LP_E_UNSUPPORTED, "cannot reshape %s to %s: dimension %d cuts across strides",
                               lp_view_shape_text(old_text, sizeof old_text, v->ndim, v->size),
                               lp_view_shape_text(new_text, sizeof new_text, ndim, size), d);
            }
            piece[pieces++] = (lp_view_mode){taken, inner->stride_bits};
            pieces_of[d]++;
            wanted /= taken;
            inner->extent /= taken;
            inner->stride_bits *= taken;
            if (inner->extent == 1)
                count--;
        }
    }

    lp_view out;
    lp_view_start(&out, v->dtype, v->offset_bits);
    for (int d = 0; d < ndim; d++) {
        LP_TRY(lp_view_add_dim(&out, size[d], err));
        for (int i = 0; i < pieces_of[d]; i++) {
            pieces--;
            LP_TRY(lp_view_add_mode(&out, piece[pieces].extent, piece[pieces].stride_bits, err));
        }
    }
    *v = out;
    return LP_OK;
}

lp_status lp_view_flatten(lp_view *v, int first_dim, int last_dim, lp_error *err)
{
    if (v->ndim == 0) {
        LP_TRY(lp_view_dim(v, first_dim, &first_dim, err));
        LP_TRY(lp_view_dim(v, last_dim, &last_dim, err));
        return lp_view_reshape(v, 1, (int64_t[]){1}, err);
    }
    LP_TRY(lp_view_dim(v, first_dim, &first_dim, err));
    LP_TRY(lp_view_dim(v, last_dim, &last_dim, err));
    if (first_dim > last_dim)
        return lp_fail(err, LP_E_ARGUMENT, "flatten from dimension %d to %d", first_dim, last_dim);
    int64_t shape[LP_VIEW_DIMS], flat = 1;
    bool is_empty = false, fits = true;
    for (int d = first_dim; d <= last_dim; d++) {
        is_empty = is_empty || v->size[d] == 0;
        fits = fits && lp_mul(flat, v->size[d], &flat);
    }
    if (!is_empty && !fits)
        return lp_fail(err, LP_E_LIMIT, "the size of a flattened dimension does not fit 64 bits");
    int ndim = 0;
    for (int d = 0; d < first_dim; d++)
        shape[ndim++] = v->size[d];
    shape[ndim++] = is_empty ? 0 : flat;
    for (int d = last_dim + 1; d < v->ndim; d++)
        shape[ndim++] = v->size[d];
    return lp_view_reshape(v, ndim, shape, err);
}

lp_status lp_view_unflatten(lp_view *v, int dim, int ndim, const int64_t *sizes, lp_error *err)
{
    if (v->ndim == 0)
        return lp_fail(err, LP_E_ARGUMENT, "unflatten of a view without dimensions");
    LP_TRY(lp_view_dim(v, dim, &dim, err));
    if (ndim < 1)
        return lp_fail(err, LP_E_ARGUMENT, "unflatten into no dimensions");
    if (ndim > LP_VIEW_DIMS - (v->ndim - 1))
        return lp_fail(err, LP_E_LIMIT, "%d more dimensions than %d, and a view has at most %d", ndim, v->ndim - 1,
                       LP_VIEW_DIMS);

    /* The sizes are judged against this dimension alone, so that a zero elsewhere does not hide a mistake. */
    lp_view one;
    int64_t resolved[LP_VIEW_DIMS];
    lp_view_start(&one, v->dtype, 0);
    LP_TRY(lp_view_add_dim(&one, v->size[dim], err));
    LP_TRY(resolve_shape(&one, ndim, sizes, resolved, err));

    int64_t shape[LP_VIEW_DIMS];
    int total = 0;
    for (int d = 0; d < v->ndim; d++) {
        if (d != dim) {
            shape[total++] = v->size[d];
            continue;
        }
        for (int i = 0; i < ndim; i++)
            shape[total++] = resolved[i];
    }
    return lp_view_reshape(v, total, shape, err);
}
