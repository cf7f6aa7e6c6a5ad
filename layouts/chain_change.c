/* SPDX-License-Identifier: Apache-2.0 */
/* Chains that change before they get their sizes: extents that come later, and stacks of tensors. */
#include "layouts/layout_private.h"

int32_t lp_chain_axis_named(const lp_chain *chain, const char *name)
{
    for (int32_t a = 0; a < chain->axes; a++)
        if (strcmp(chain->axis[a].name, name) == 0)
            return a;
    return -1;
}

static lp_status no_axis(const lp_chain *chain, const char *name, lp_error *err)
{
    char names[LP_CHAIN_AXES * (LP_CHAIN_NAME + 2)] = "none";
    lp_layout_writer w = lp_layout_writer_start(names, sizeof names);
    for (int32_t a = 0; a < chain->axes; a++)
        lp_layout_put(&w, "%s%s", a == 0 ? "" : ", ", chain->axis[a].name);
    return lp_fail(err, LP_E_ARGUMENT, "the chain has no axis '%s', only %s", name, names);
}

lp_status lp_chain_set(lp_chain *chain, const char *name, int64_t extent, lp_error *err)
{
    const int32_t a = lp_chain_axis_named(chain, name);
    if (a < 0)
        return no_axis(chain, name, err);
    if (extent < 1)
        return lp_fail(err, LP_E_ARGUMENT, "axis '%s' must have at least 1 step, not %lld", name, (long long)extent);
    if (chain->axis[a].extent != 0 && chain->axis[a].extent != extent)
        return lp_fail(err, LP_E_ARGUMENT, "axis '%s' has %lld steps, not %lld", name, (long long)chain->axis[a].extent,
                       (long long)extent);
    chain->axis[a].extent = extent;
    return LP_OK;
}

/* ---- stacked tensors ---- */

/* Axis 0 goes before the others, which count one more from now on. */
static void stack_part(lp_chain_part *part, int32_t out_ndim)
{
    for (int32_t i = part->axes; i > 0; i--) {
        part->source[i] = (int8_t)(part->source[i - 1] + 1);
        part->memory[i] = part->memory[i - 1];
        part->memory[i].axis++;
        part->memory[i].swizzle <<= 1;
        part->memory[i].plus <<= 1;
        part->memory[i].minus <<= 1;
        part->memory[i].flip <<= 1;
    }
    for (int32_t d = out_ndim + 1; d > 0; d--)
        part->out_first[d] = (int8_t)(part->out_first[d - 1] + 1);
    part->source[0] = 0;
    part->memory[0] = (lp_chain_place){0};
    part->out_first[0] = 0;
    part->axes++;
}

lp_status lp_chain_stack(lp_chain *chain, const char *name, lp_error *err)
{
    lp_chain c = *chain;
    const size_t letters = strlen(name);
    if (letters == 0 || letters >= LP_CHAIN_NAME || lp_chain_axis_named(chain, name) >= 0)
        return lp_fail(err, LP_E_ARGUMENT, "a stack cannot have the name '%s'", name);
    if (c.axes == LP_CHAIN_AXES || c.ndim == LP_CHAIN_DIMS)
        return lp_fail(err, LP_E_LIMIT, "the chain has no room for a stack");
    for (int32_t a = c.axes; a > 0; a--) {
        c.axis[a] = c.axis[a - 1];
        c.axis[a].dim++;
    }
    for (int32_t j = 0; j < c.joints; j++)
        for (int32_t i = 0; i < c.joint[j].axes; i++)
            c.joint[j].axis[i]++;
    for (int32_t d = c.ndim; d > 0; d--)
        memcpy(c.dim_name[d], c.dim_name[d - 1], LP_CHAIN_NAME);
    for (int32_t p = 0; p < c.parts; p++)
        stack_part(&c.part[p], c.out_ndim);
    for (int32_t d = c.out_ndim; d > 0; d--) /* axes are left over, so dimensions are too */
        c.room[d] = c.room[d - 1];
    c.room[0] = 0;
    c.axis[0] = (lp_chain_axis){.dim = 0};
    memset(c.dim_name[0], 0, LP_CHAIN_NAME);
    memcpy(c.axis[0].name, name, letters);
    memcpy(c.dim_name[0], name, letters);
    c.axes++;
    c.ndim++;
    c.out_ndim++;
    if (c.parts > 1) {
        c.split_dim++;
        c.split_out++;
    }
    *chain = c;
    return LP_OK;
}
