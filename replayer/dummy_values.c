/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Values of a dummy load: what the trace says, else small numbers that depend on the destination's name and the
 * element's index only, so that they are equal on every host and for every layout of the same tensor.
 */
#include "replayer/session.h"

/* One step of splitmix64: every index gives an unrelated number. */
static uint64_t scramble(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

static uint64_t seed_of(const char *name)
{
    uint64_t seed = 0;
    for (; *name != '\0'; name++)
        seed = scramble(seed ^ (uint8_t)*name);
    return seed;
}

/* Uniform in [-1/1024, 1/1024), in steps of 2^-33, which F32 holds exactly. */
static float small_number(uint64_t seed, uint64_t index)
{
    const int64_t steps = (int64_t)(scramble(seed ^ index) >> 40) - (1 << 23);
    return (float)steps / 8589934592.0f;
}

typedef struct dummy {
    const lp_destination *dest;
    uint8_t element[8]; /* of a stated value */
    uint64_t seed, index;
    int64_t unit;
    bool is_stated;
} dummy;

static void put(dummy *d, uint8_t *to)
{
    if (d->is_stated) {
        memcpy(to, d->element, (size_t)d->unit);
        return;
    }
    const float value = small_number(d->seed, d->index++);
    if (d->dest->dtype == LP_F32)
        memcpy(to, &value, sizeof value);
    else
        (void)lp_cast_elements(LP_F32, &value, d->dest->dtype, to, 1);
}

static void walk(dummy *d, const lp_form *form, int32_t dim, uint8_t *at)
{
    if (dim == form->ndim) {
        put(d, at);
        return;
    }
    for (int64_t i = 0; i < form->shape[dim]; i++)
        walk(d, form, dim + 1, at + i * form->stride[dim]);
}

static bool is_float(lp_dtype dtype)
{
    return dtype == LP_F16 || dtype == LP_BF16 || dtype == LP_F32 || dtype == LP_F64 || dtype == LP_F8_E4M3 ||
           dtype == LP_F8_E5M2 || dtype == LP_F8_E4M3FNUZ || dtype == LP_F8_E5M2FNUZ;
}

void lp_dummy_fill(const lp_plan *plan, uint32_t dest)
{
    const lp_destination *row = &plan->rows->dest[dest];
    const bool is_alias = (row->flags & LP_DEST_TIED) != 0 && strcmp(row->storage, row->name) != 0;
    dummy d = {.dest = row, .seed = seed_of(row->name), .is_stated = (row->flags & LP_DEST_HAS_DUMMY) != 0};
    lp_form form;
    lp_destination_form(row, &form);
    d.unit = form.unit;
    if (form.bytes == 0 || is_alias || (row->flags & LP_DEST_NO_LOADER) != 0)
        return;
    if (lp_dtype_bits(row->dtype) < 8 || !(d.is_stated || is_float(row->dtype)))
        return; /* integers, and formats that no cast makes, stay zero */
    for (int i = 0; i < 8; i++)
        d.element[i] = (uint8_t)(row->dummy_bits >> (8 * i));
    walk(&d, &form, 0, plan->address[dest]);
}
