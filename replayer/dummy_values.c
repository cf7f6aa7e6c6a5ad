/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Values of a dummy load: what the trace says, else small numbers that depend on the destination's name and the
 * element's index only, so that they are equal on every host and for every layout of the same tensor.
 */
#include "replayer/dummy_values.h"
#include "replayer/session.h"

static uint64_t seed_of(const char *name)
{
    uint64_t seed = 0;
    for (; *name != '\0'; name++)
        seed = lp_dummy_scramble(seed ^ (uint8_t)*name);
    return seed;
}

static bool is_float(lp_dtype dtype)
{
    return dtype == LP_F16 || dtype == LP_BF16 || dtype == LP_F32 || dtype == LP_F64 || dtype == LP_F8_E4M3 ||
           dtype == LP_F8_E5M2 || dtype == LP_F8_E4M3FNUZ || dtype == LP_F8_E5M2FNUZ;
}

bool lp_dummy_of(const lp_plan *plan, uint32_t dest, lp_dummy *out)
{
    const lp_destination *row = &plan->rows->dest[dest];
    const bool is_alias = (row->flags & LP_DEST_TIED) != 0 && strcmp(row->storage, row->name) != 0;
    *out = (lp_dummy){.data = plan->address[dest],
                      .dtype = row->dtype,
                      .seed = seed_of(row->name),
                      .element = row->dummy_bits,
                      .is_stated = (row->flags & LP_DEST_HAS_DUMMY) != 0};
    lp_destination_form(row, &out->form);
    if (out->form.bytes == 0 || is_alias || (row->flags & LP_DEST_NO_LOADER) != 0)
        return false;
    /* integers, and formats that no cast makes, stay zero */
    return lp_dtype_bits(row->dtype) >= 8 && (out->is_stated || is_float(row->dtype));
}

static void put(const lp_dummy *d, uint64_t *index, uint8_t *to)
{
    if (d->is_stated) {
        memcpy(to, &d->element, (size_t)d->form.unit); /* little endian hosts only, as everywhere */
        return;
    }
    const float value = lp_dummy_number(d->seed, (*index)++);
    if (d->dtype == LP_F32)
        memcpy(to, &value, sizeof value);
    else
        (void)lp_cast_elements(LP_F32, &value, d->dtype, to, 1);
}

static void walk(const lp_dummy *d, uint64_t *index, int32_t dim, uint8_t *at)
{
    if (dim == d->form.ndim) {
        put(d, index, at);
        return;
    }
    for (int64_t i = 0; i < d->form.shape[dim]; i++)
        walk(d, index, dim + 1, at + i * d->form.stride[dim]);
}

void lp_dummy_fill(const lp_plan *plan, uint32_t dest)
{
    lp_dummy d;
    uint64_t index = 0;
    if (lp_dummy_of(plan, dest, &d))
        walk(&d, &index, 0, d.data);
}
