/* SPDX-License-Identifier: Apache-2.0 */
/* Two chains as one, and the way back as a chain: by tables of their places, in which the chain is found. */
#include "layouts/layout_private.h"

/* The index of element `flat` of a row-major tensor. */
static void index_of(int64_t flat, int32_t ndim, const int64_t *shape, int64_t *index)
{
    for (int32_t d = ndim - 1; d >= 0; d--) {
        index[d] = flat % shape[d];
        flat /= shape[d];
    }
}

/* `place` says what lies where, and is released. */
static lp_status find(lp_chain *out, int64_t *place, int64_t count, int32_t ndim, const int64_t *shape,
                      const lp_alloc *alloc, lp_error *err)
{
    const lp_status status = lp_chain_identify_parts(out, place, count, ndim, shape, alloc, err);
    lp_release(alloc, place);
    return status;
}

lp_status lp_chain_compose(lp_chain *out, const lp_chain_form *first, const lp_chain_form *second,
                           const lp_alloc *alloc, lp_error *err)
{
    if (second->source_units != first->units)
        return lp_fail(err, LP_E_ARGUMENT, "the first chain makes %lld units, the second takes %lld",
                       (long long)first->units, (long long)second->source_units);
    int64_t *const place = lp_allocate(alloc, (size_t)second->units * sizeof *place);
    if (place == NULL)
        return lp_fail_memory(err);
    for (int64_t k = 0; k < second->units; k++) {
        const int64_t between = lp_chain_element_at(second, k);
        place[k] = between < 0 ? -1 : lp_chain_element_at(first, between);
    }
    return find(out, place, second->units, first->chain.ndim, first->shape, alloc, err);
}

lp_status lp_chain_invert(lp_chain *out, const lp_chain_form *form, const lp_alloc *alloc, lp_error *err)
{
    int64_t index[LP_CHAIN_DIMS];
    if (form->units != form->source_units)
        return lp_fail(err, LP_E_UNSUPPORTED, "no chain drops padding: the way back has %lld units, the result %lld",
                       (long long)form->source_units, (long long)form->units);
    if (form->chain.out_ndim > LP_CHAIN_DIMS)
        return lp_fail(err, LP_E_UNSUPPORTED, "the result has %d dimensions, a chain takes %d",
                       (int)form->chain.out_ndim, (int)LP_CHAIN_DIMS);
    int64_t *const place = lp_allocate(alloc, (size_t)form->units * sizeof *place);
    if (place == NULL)
        return lp_fail_memory(err);
    for (int64_t k = 0; k < form->units; k++) {
        index_of(k, form->chain.ndim, form->shape, index);
        place[k] = lp_chain_locate(form, index);
    }
    return find(out, place, form->units, form->chain.out_ndim, form->out_shape, alloc, err);
}
