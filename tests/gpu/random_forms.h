/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors of any unit and any strides, and their logical bytes in order: for tests of the value digest. */
#ifndef RANDOM_FORMS_H
#define RANDOM_FORMS_H

#include "random_plans.h"
#include "replayer/plan.h"

enum { FORM_ARENA_BYTES = 8 << 20, FORM_LOGICAL_BYTES = 1 << 20 };

static inline void random_form(uint64_t *state, lp_form *form)
{
    static const int64_t units[] = {1, 1, 2, 4, 4, 8, 16, 32, 3, 12};
    static const int64_t extents[] = {1, 2, 3, 4, 5, 8, 8, 16, 32, 64, 7, 100};
    int order[4];
    *form = (lp_form){.unit = units[random_below(state, sizeof units / sizeof units[0])],
                      .ndim = (int32_t)random_below(state, 5)};
    form->bytes = form->unit;
    for (int d = 0; d < form->ndim; d++) {
        int64_t extent = extents[random_below(state, sizeof extents / sizeof extents[0])];
        if (form->bytes * extent > FORM_LOGICAL_BYTES / 4)
            extent = 1;
        form->shape[d] = extent;
        form->bytes *= extent;
        order[d] = d;
    }
    if (random_below(state, 3) > 0)
        for (int d = form->ndim - 1; d > 0; d--) {
            const int j = (int)random_below(state, d + 1), swap = order[d];
            order[d] = order[j];
            order[j] = swap;
        }
    int64_t stride = form->unit;
    for (int i = form->ndim - 1; i >= 0; i--) {
        if (random_below(state, 6) == 0)
            stride += form->unit * random_below(state, 4);
        form->stride[order[i]] = stride;
        stride *= form->shape[order[i]];
    }
    form->span = stride;
}

/* Logical bytes in row-major order. */
static inline void gather(const lp_form *form, const uint8_t *data, uint8_t *out)
{
    for (int64_t i = 0; i < form->bytes / form->unit; i++) {
        int64_t index = i, off = 0;
        for (int d = form->ndim - 1; d >= 0; d--) {
            off += index % form->shape[d] * form->stride[d];
            index /= form->shape[d];
        }
        memcpy(out + i * form->unit, data + off, (size_t)form->unit);
    }
}

#endif
