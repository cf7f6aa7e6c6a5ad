/* SPDX-License-Identifier: Apache-2.0 */
/* Chains with sizes: extents and strides. What lies where is in chain_places.c. */
#include "layouts/chain_bits.h"
#include "layouts/layout_private.h"

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

/* ---- extents ---- */

/* The axis of dimension d that has no extent yet, or -1. */
static lp_status find_open(const lp_chain *c, int32_t d, const char *name, int32_t *open, lp_error *err)
{
    *open = -1;
    for (int32_t a = 0; a < c->axes; a++) {
        if (c->axis[a].dim != d || c->axis[a].extent != 0)
            continue;
        if (*open >= 0)
            return lp_fail(err, LP_E_ARGUMENT,
                           "%s: the extents of axes '%s' and '%s' are both open: one has to be given", name,
                           c->axis[*open].name, c->axis[a].name);
        *open = a;
    }
    return LP_OK;
}

/* Indices of dimension d that part p counts for each step of axis `open`, or in all when it has no such axis. */
static lp_status part_size(const lp_chain *c, int32_t p, int32_t d, const char *name, int32_t open, int64_t *size,
                           bool *has_open, lp_error *err)
{
    *size = 1;
    *has_open = false;
    for (int32_t i = 0; i < c->part[p].axes; i++) {
        const int32_t a = c->part[p].source[i];
        if (a == open)
            *has_open = true;
        else if (c->axis[a].dim == d && (!lp_mul(*size, c->axis[a].extent, size) || *size > UNITS_MAX))
            return lp_fail(err, LP_E_LIMIT, "%s: the product of its extents is more than 2^56", name);
    }
    return LP_OK;
}

/* Fills the open extent of dimension d, which no bars cut, and its padded size. */
static lp_status resolve_dim(lp_chain_form *form, int32_t d, int64_t size, bool pads, lp_error *err)
{
    lp_chain *const c = &form->chain;
    char name[LP_CHAIN_NAME + 16];
    int32_t open;
    int64_t tile;
    bool has_open;
    dim_text(c, d, name);
    LP_TRY(find_open(c, d, name, &open, err));
    LP_TRY(part_size(c, 0, d, name, open, &tile, &has_open, err));
    const int64_t blocks = size / tile + (size % tile != 0);
    if (open < 0 && (blocks > 1 || (size != tile && !pads)))
        return lp_fail(err, LP_E_ARGUMENT, "%s must be %lld, not %lld", name, (long long)tile, (long long)size);
    if (size % tile != 0 && !pads)
        return lp_fail(err, LP_E_ARGUMENT, "%s must be a multiple of %lld, %lld is not; pad to %lld", name,
                       (long long)tile, (long long)size, (long long)(blocks * tile));
    if (open >= 0)
        c->axis[open].extent = blocks;
    form->padded[d] = blocks * tile; /* at most twice 2^56 */
    return LP_OK;
}

/* The same for the dimension that bars cut, and where its parts begin. */
static lp_status resolve_parts(lp_chain_form *form, int32_t d, int64_t size, lp_error *err)
{
    lp_chain *const c = &form->chain;
    char name[LP_CHAIN_NAME + 16];
    int32_t open;
    int64_t fixed = 0, step = 0, part;
    bool has_open;
    dim_text(c, d, name);
    LP_TRY(find_open(c, d, name, &open, err));
    for (int32_t p = 0; p < c->parts; p++) { /* at most 8 * 2^56 */
        LP_TRY(part_size(c, p, d, name, open, &part, &has_open, err));
        *(has_open ? &step : &fixed) += part;
    }
    if (open < 0 && size != fixed)
        return lp_fail(err, LP_E_ARGUMENT, "%s must be %lld, not %lld", name, (long long)fixed, (long long)size);
    if (open >= 0 && fixed == 0 && size % step != 0)
        return lp_fail(err, LP_E_ARGUMENT, "%s must be a multiple of %lld, %lld is not", name, (long long)step,
                       (long long)size);
    if (open >= 0 && size <= fixed && step == 1)
        return lp_fail(err, LP_E_ARGUMENT, "%s must be more than %lld, %lld is not", name, (long long)fixed,
                       (long long)size);
    if (open >= 0 && (size <= fixed || (size - fixed) % step != 0))
        return lp_fail(err, LP_E_ARGUMENT, "%s must be %lld + a multiple of %lld, %lld is not", name, (long long)fixed,
                       (long long)step, (long long)size);
    if (open >= 0)
        c->axis[open].extent = (size - fixed) / step;
    for (int32_t p = 0; p < c->parts; p++) {
        LP_TRY(part_size(c, p, d, name, -1, &part, &has_open, err));
        form->first[p + 1] = form->first[p] + part;
    }
    form->padded[d] = size;
    return LP_OK;
}

/* The places of steps that lists put in order. */
static void invert_lists(lp_chain_form *form)
{
    const lp_chain *const c = &form->chain;
    for (int32_t j = 0; j < c->joints; j++) {
        const int32_t first = c->joint[j].list_end - c->joint[j].steps;
        for (int32_t s = 0; s < c->joint[j].steps; s++)
            form->where[first + c->list[first + s]] = (uint8_t)s;
    }
    for (int32_t p = 0; p < c->parts; p++)
        for (int32_t i = 0; i < c->part[p].axes; i++) {
            const lp_chain_place *const place = &c->part[p].memory[i];
            const int32_t steps = place->list_end > 0 ? (int32_t)c->axis[place->axis].extent : 0;
            const int32_t first = place->list_end - steps;
            for (int32_t s = 0; s < steps; s++)
                form->where[first + c->list[first + s]] = (uint8_t)s;
        }
}

/* That what is swizzled stays inside its axis. */
static lp_status check_swizzles(const lp_chain *c, lp_error *err)
{
    for (int32_t p = 0; p < c->parts; p++)
        for (int32_t i = 0; i < c->part[p].axes; i++) {
            const lp_chain_place *const place = &c->part[p].memory[i];
            const lp_chain_axis *const axis = &c->axis[place->axis];
            if (place->swizzle != 0 && (axis->extent & (axis->extent - 1)) != 0)
                return lp_fail(err, LP_E_ARGUMENT, "axis '%s' is swizzled and must have a power of 2 steps, not %lld",
                               axis->name, (long long)axis->extent);
            for (int32_t a = 0; a < c->axes; a++)
                if ((place->swizzle >> a & 1) != 0 && c->axis[a].extent > axis->extent)
                    return lp_fail(err, LP_E_ARGUMENT,
                                   "axis '%s' swizzles '%s' and must have at most its %lld steps, not %lld: split it",
                                   c->axis[a].name, axis->name, (long long)axis->extent, (long long)c->axis[a].extent);
        }
    return LP_OK;
}

/* Which places exclusive-or to the digit of each axis of part p: the inverse, over bits, of which digits exclusive-or
 * to the place of each axis. One inverse does for all bits: an axis without a bit is turned by none that has it. */
static lp_status undo_swizzles(lp_chain_form *form, int32_t p, lp_error *err)
{
    const lp_chain *const c = &form->chain;
    uint64_t row[LP_CHAIN_AXES], inverse[LP_CHAIN_AXES];
    for (int32_t a = 0; a < c->axes; a++)
        row[a] = (uint64_t)1 << a;
    for (int32_t i = 0; i < c->part[p].axes; i++)
        row[c->part[p].memory[i].axis] |= c->part[p].memory[i].swizzle;
    const int32_t lost = lp_bits_invert(c->axes, row, inverse);
    if (lost >= 0)
        return lp_fail(err, LP_E_ARGUMENT, "the swizzles around axis '%s' give two elements one place",
                       c->axis[lost].name);
    for (int32_t a = 0; a < c->axes; a++)
        form->undo[p][a] = (uint32_t)inverse[a];
    return LP_OK;
}

/* ---- strides ---- */

/* Steps of dimension d of the result that part p takes. */
static int64_t out_extent(const lp_chain *c, int32_t p, int32_t d)
{
    int64_t extent = 1;
    for (int32_t i = c->part[p].out_first[d]; i < c->part[p].out_first[d + 1]; i++)
        extent *= c->axis[c->part[p].memory[i].axis].extent;
    return extent;
}

/* Steps that all axes of dimension d of the result make, and where its parts begin. */
static int64_t fill_out(lp_chain_form *form, int32_t d)
{
    const lp_chain *const c = &form->chain;
    if (d != c->split_out)
        return out_extent(c, 0, d);
    int64_t filled = 0;
    for (int32_t k = 0; k < c->parts; k++) {
        const int32_t p = c->out_order[k];
        form->out_first[p] = filled;
        filled += out_extent(c, p, d);
        form->out_end[p] = filled;
    }
    return filled;
}

/* From the innermost dimension of the result on. What axes fill is at most 2^56, and so is what there is room for. */
static lp_status set_strides(lp_chain_form *form, lp_error *err)
{
    const lp_chain *const c = &form->chain;
    int64_t below = 1;
    for (int32_t d = c->out_ndim - 1; d >= 0; d--) {
        const int64_t filled = fill_out(form, d);
        if (c->room[d] != 0 && c->room[d] < filled)
            return lp_fail(err, LP_E_ARGUMENT, "dimension %d of the result has %lld steps and room for %lld only",
                           (int)d, (long long)filled, (long long)c->room[d]);
        form->out_shape[d] = c->room[d] != 0 ? c->room[d] : filled;
        if (!lp_mul(below, form->out_shape[d], &form->units) || form->units > UNITS_MAX)
            return lp_fail(err, LP_E_LIMIT, "a result of more than 2^56 elements");
        for (int32_t p = 0; p < c->parts; p++) {
            const lp_chain_part *const part = &c->part[p];
            int64_t stride = below;
            for (int32_t i = part->out_first[d + 1] - 1; i >= part->out_first[d]; i--) {
                form->stride[p][part->memory[i].axis] = stride;
                stride *= c->axis[part->memory[i].axis].extent;
            }
        }
        if (d == c->split_out)
            form->split_stride = below;
        below = form->units;
    }
    return LP_OK;
}

lp_status lp_chain_resolve(lp_chain_form *out, const lp_chain *chain, const int64_t *shape, bool pads, lp_error *err)
{
    lp_chain_form form = {.chain = *chain, .source_units = 1, .split_stride = 1};
    int64_t padded = 1;
    for (int32_t d = 0; d < chain->ndim; d++) {
        char name[LP_CHAIN_NAME + 16];
        if (shape[d] < 1 || shape[d] > UNITS_MAX)
            return lp_fail(err, shape[d] < 1 ? LP_E_ARGUMENT : LP_E_LIMIT, "%s must be from 1 to 2^56, not %lld",
                           dim_text(chain, d, name), (long long)shape[d]);
        form.shape[d] = shape[d];
        LP_TRY(d == chain->split_dim ? resolve_parts(&form, d, shape[d], err)
                                     : resolve_dim(&form, d, shape[d], pads, err));
        if (!lp_mul(form.source_units, form.shape[d], &form.source_units) || !lp_mul(padded, form.padded[d], &padded) ||
            padded > UNITS_MAX)
            return lp_fail(err, LP_E_LIMIT, "a tensor of more than 2^56 elements");
    }
    LP_TRY(check_swizzles(&form.chain, err));
    LP_TRY(lp_chain_check_joints(&form.chain, err));
    for (int32_t p = 0; p < chain->parts; p++)
        LP_TRY(undo_swizzles(&form, p, err));
    invert_lists(&form);
    LP_TRY(set_strides(&form, err));
    *out = form;
    return LP_OK;
}
