/* SPDX-License-Identifier: Apache-2.0 */
/* Units of a tensor to the places that a chain gives them, and back. */
#include "layouts/layout_private.h"

/* Unit `to` of one buffer becomes unit `from` of the other. */
static inline void move_unit(unsigned char *out, int64_t to, const unsigned char *in, int64_t from, int bits)
{
    if (bits == 8)
        out[to] = in[from];
    else if (bits > 8)
        memcpy(out + to * (bits / 8), in + from * (bits / 8), (size_t)bits / 8);
    else {
        const int per_byte = 8 / bits, mask = (1 << bits) - 1, shift = (int)(to % per_byte) * bits;
        const int value = in[from / per_byte] >> (int)(from % per_byte) * bits & mask;
        out[to / per_byte] = (unsigned char)((out[to / per_byte] & ~(mask << shift)) | value << shift);
    }
}

/* How far the last dimension can be walked from `index` in even steps: along its innermost axis, which no swizzle,
 * rotation or list may touch, inside one part. */
static int64_t even_run(const lp_chain_form *form, const int64_t *index, int64_t *stride)
{
    const lp_chain *const c = &form->chain;
    const int32_t d = c->ndim - 1, p = lp_chain_part_at(form, index);
    const lp_chain_part *const part = &c->part[p];
    const int32_t last = part->source[part->axes - 1];
    const int64_t begin = d == c->split_dim ? form->first[p] : 0;
    const int64_t left = form->shape[d] - index[d], extent = c->axis[last].extent;
    *stride = form->stride[p][last];
    if ((lp_chain_joint_axes(c, p) >> last & 1) != 0)
        return 1;
    for (int32_t i = 0; i < part->axes; i++) {
        const lp_chain_place *const place = &part->memory[i];
        const uint32_t turns = lp_chain_turns(place);
        if ((turns >> last & 1) != 0 || (place->axis == last && (turns != 0 || place->list_end > 0)))
            return 1;
        if (place->axis == last && place->backwards)
            *stride = -*stride;
    }
    const int64_t run = extent - (index[d] - begin) % extent;
    return left < run ? left : run;
}

/* Visits the source in its order. */
static lp_status move_all(const lp_chain_form *form, int unit_bits, const void *in, void *out, bool undo, lp_error *err)
{
    if (unit_bits < 1 || unit_bits > 64 || (unit_bits & (unit_bits - 1)) != 0)
        return lp_fail(err, LP_E_ARGUMENT, "units have 1, 2, 4, 8, 16, 32 or 64 bits, not %d", unit_bits);
    if (form->units * unit_bits % 8 != 0 || form->source_units * unit_bits % 8 != 0)
        return lp_fail(err, LP_E_ARGUMENT, "%lld units of %d bits are no whole bytes",
                       (long long)(form->source_units * unit_bits % 8 != 0 ? form->source_units : form->units),
                       unit_bits);
    const int32_t inner = form->chain.ndim - 1;
    int64_t index[LP_CHAIN_DIMS] = {0};
    for (int64_t i = 0; i < form->source_units;) {
        int64_t stride;
        const int64_t run = even_run(form, index, &stride), off = lp_chain_locate(form, index);
        for (int64_t k = 0; k < run; k++) {
            if (undo)
                move_unit(out, i + k, in, off + k * stride, unit_bits);
            else
                move_unit(out, off + k * stride, in, i + k, unit_bits);
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
    if (form->units != form->source_units && unit_bits >= 1 && unit_bits <= 64)
        memset(result, 0, (size_t)(form->units * unit_bits / 8));
    return move_all(form, unit_bits, source, result, false, err);
}

lp_status lp_chain_undo(const lp_chain_form *form, int unit_bits, const void *result, void *source, lp_error *err)
{
    return move_all(form, unit_bits, result, source, true, err);
}
