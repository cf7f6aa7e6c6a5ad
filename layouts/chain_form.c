/* SPDX-License-Identifier: Apache-2.0 */
/* Chains with sizes: extents and strides, places both ways, bytes both ways, and the result as a view. */
#include "layouts/layout_private.h"
#include "traces/view_private.h"

/* Leaves room for 64 bits a unit and for sums of two addresses. */
#define UNITS_MAX ((int64_t)1 << 56)

static const char *dim_text(const lp_chain *chain, int32_t d, char buffer[LP_CHAIN_NAME + 16])
{
    lp_layout_writer w = lp_layout_writer_start(buffer, LP_CHAIN_NAME + 16);
    if (chain->dim_name[d][0] != '\0')
        lp_layout_put(&w, "%s", chain->dim_name[d]);
    else
        lp_layout_put(&w, "dimension %d", (int)d);
    return buffer;
}

/* Fills the open extent of dimension d and its padded size. */
static lp_status resolve_dim(lp_chain_form *form, int32_t d, int64_t size, bool pads, lp_error *err)
{
    lp_chain *const c = &form->chain;
    char name[LP_CHAIN_NAME + 16];
    int32_t open = -1;
    int64_t tile = 1;
    dim_text(c, d, name);
    for (int32_t a = 0; a < c->axes; a++) {
        if (c->axis[a].dim != d)
            continue;
        if (c->axis[a].extent == 0 && open >= 0)
            return lp_fail(err, LP_E_ARGUMENT, "%s: the extents of axes '%s' and '%s' are both open", name,
                           c->axis[open].name, c->axis[a].name);
        if (c->axis[a].extent == 0)
            open = a;
        else if (!lp_mul(tile, c->axis[a].extent, &tile) || tile > UNITS_MAX)
            return lp_fail(err, LP_E_LIMIT, "%s: the product of its extents is more than 2^56", name);
    }
    if (size < 1 || size > UNITS_MAX)
        return lp_fail(err, size < 1 ? LP_E_ARGUMENT : LP_E_LIMIT, "%s must be from 1 to 2^56, not %lld", name,
                       (long long)size);
    const int64_t blocks = size / tile + (size % tile != 0);
    if (open < 0 && (blocks > 1 || (size != tile && !pads)))
        return lp_fail(err, LP_E_ARGUMENT, "%s must be %lld, not %lld", name, (long long)tile, (long long)size);
    if (size % tile != 0 && !pads)
        return lp_fail(err, LP_E_ARGUMENT, "%s must be a multiple of %lld, %lld is not; pad to %lld", name,
                       (long long)tile, (long long)size, (long long)(blocks * tile));
    if (open >= 0)
        c->axis[open].extent = blocks;
    form->shape[d] = size;
    form->padded[d] = blocks * tile; /* at most twice 2^56 */
    return LP_OK;
}

lp_status lp_chain_resolve(lp_chain_form *out, const lp_chain *chain, const int64_t *shape, bool pads, lp_error *err)
{
    lp_chain_form form = {.chain = *chain, .source_units = 1, .units = 1};
    for (int32_t d = 0; d < chain->ndim; d++) {
        LP_TRY(resolve_dim(&form, d, shape[d], pads, err));
        if (!lp_mul(form.source_units, form.shape[d], &form.source_units) ||
            !lp_mul(form.units, form.padded[d], &form.units) || form.units > UNITS_MAX)
            return lp_fail(err, LP_E_LIMIT, "a tensor of more than 2^56 elements");
    }
    int64_t stride = 1;
    for (int32_t d = chain->out_ndim - 1; d >= 0; d--) {
        form.out_shape[d] = 1;
        for (int32_t i = chain->out_first[d + 1] - 1; i >= chain->out_first[d]; i--) {
            const int32_t a = chain->memory_order[i];
            form.stride[a] = stride;
            stride *= form.chain.axis[a].extent;
            form.out_shape[d] *= form.chain.axis[a].extent;
        }
    }
    *out = form;
    return LP_OK;
}

/* ---- places ---- */

int64_t lp_chain_locate(const lp_chain_form *form, const int64_t *index)
{
    int64_t off = 0, rest = 0;
    int32_t dim = -1;
    for (int32_t a = form->chain.axes - 1; a >= 0; a--) {
        const lp_chain_axis *const axis = &form->chain.axis[a];
        if (axis->dim != dim)
            rest = index[dim = axis->dim];
        const int64_t step = rest % axis->extent;
        off += form->stride[a] * (axis->backwards ? axis->extent - 1 - step : step);
        rest /= axis->extent;
    }
    return off;
}

bool lp_chain_origin(const lp_chain_form *form, int64_t off, int64_t *index)
{
    for (int32_t d = 0; d < form->chain.ndim; d++)
        index[d] = 0;
    for (int32_t a = 0; a < form->chain.axes; a++) {
        const lp_chain_axis *const axis = &form->chain.axis[a];
        const int64_t step = off / form->stride[a] % axis->extent;
        index[axis->dim] = index[axis->dim] * axis->extent + (axis->backwards ? axis->extent - 1 - step : step);
    }
    for (int32_t d = 0; d < form->chain.ndim; d++)
        if (index[d] >= form->shape[d])
            return false;
    return true;
}

/* ---- bytes ---- */

/* Unit `to` of one buffer becomes unit `from` of the other. */
static inline void move_unit(unsigned char *out, int64_t to, const unsigned char *in, int64_t from, int bytes)
{
    if (bytes == 1)
        out[to] = in[from];
    else if (bytes > 1)
        memcpy(out + to * bytes, in + from * bytes, (size_t)bytes);
    else {
        const int value = in[from / 2] >> (int)(from % 2) * 4 & 15, shift = (int)(to % 2) * 4;
        out[to / 2] = (unsigned char)((out[to / 2] & ~(15 << shift)) | value << shift);
    }
}

/* Visits the source in its order. The last dimension is walked by its innermost axis. */
static lp_status move_all(const lp_chain_form *form, int unit_bits, const void *in, void *out, bool undo, lp_error *err)
{
    const bool known = unit_bits == 4 || unit_bits == 8 || unit_bits == 16 || unit_bits == 32 || unit_bits == 64;
    if (!known)
        return lp_fail(err, LP_E_ARGUMENT, "units have 4, 8, 16, 32 or 64 bits, not %d", unit_bits);
    if (unit_bits == 4 && (form->units % 2 != 0 || form->source_units % 2 != 0))
        return lp_fail(err, LP_E_ARGUMENT, "an odd number of units of 4 bits");
    const int bytes = unit_bits / 8;
    const lp_chain_axis *const last = &form->chain.axis[form->chain.axes - 1];
    const int64_t stride = form->stride[form->chain.axes - 1] * (last->backwards ? -1 : 1);
    const int32_t inner = form->chain.ndim - 1;
    int64_t index[LP_CHAIN_DIMS] = {0};
    for (int64_t i = 0; i < form->source_units;) {
        const int64_t left = form->shape[inner] - index[inner], run = left < last->extent ? left : last->extent;
        const int64_t off = lp_chain_locate(form, index);
        for (int64_t k = 0; k < run; k++) {
            if (undo)
                move_unit(out, i + k, in, off + k * stride, bytes);
            else
                move_unit(out, off + k * stride, in, i + k, bytes);
        }
        i += run;
        index[inner] += run;
        for (int32_t d = inner; d > 0 && index[d] == form->shape[d]; d--) {
            index[d] = 0;
            index[d - 1]++;
        }
    }
    return LP_OK;
}

lp_status lp_chain_apply(const lp_chain_form *form, int unit_bits, const void *source, void *result, lp_error *err)
{
    if (form->units != form->source_units && unit_bits >= 4 && unit_bits <= 64)
        memset(result, 0, (size_t)(form->units * unit_bits / 8));
    return move_all(form, unit_bits, source, result, false, err);
}

lp_status lp_chain_undo(const lp_chain_form *form, int unit_bits, const void *result, void *source, lp_error *err)
{
    return move_all(form, unit_bits, result, source, true, err);
}

/* ---- the result as a view ---- */

lp_status lp_chain_region(const lp_chain_form *form, lp_dtype dtype, lp_view *out, lp_error *err)
{
    const int bits = lp_dtype_bits(dtype);
    if (bits < 8)
        return lp_fail(err, LP_E_UNSUPPORTED, "elements of %d bits are not copied one by one", bits);
    lp_view v;
    int64_t off = 0;
    for (int32_t a = 0; a < form->chain.axes; a++)
        if (form->chain.axis[a].backwards)
            off += form->stride[a] * (form->chain.axis[a].extent - 1);
    lp_view_start(&v, dtype, off * bits);
    for (int32_t a = 0, d = -1; a < form->chain.axes; a++) {
        const lp_chain_axis *const axis = &form->chain.axis[a];
        for (; d < axis->dim; d++)
            LP_TRY(lp_view_add_dim(&v, form->padded[d + 1], err));
        LP_TRY(lp_view_add_mode(&v, axis->extent, form->stride[a] * bits * (axis->backwards ? -1 : 1), err));
    }
    lp_view_seal(&v);
    for (int32_t d = 0; d < form->chain.ndim; d++)
        if (form->shape[d] != form->padded[d])
            LP_TRY(lp_view_narrow(&v, d, 0, form->shape[d], err));
    *out = v;
    return LP_OK;
}
