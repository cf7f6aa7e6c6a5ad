/* SPDX-License-Identifier: Apache-2.0 */
/* Values of a dummy load, docs/replay.md: one formula for host and device. */
#ifndef LOADPLAN_DUMMY_VALUES_H
#define LOADPLAN_DUMMY_VALUES_H

#include "replayer/plan.h"

/* What one destination gets. */
typedef struct lp_dummy {
    lp_form form;
    uint8_t *data; /* element [0, ..., 0] */
    lp_dtype dtype;
    uint64_t seed;
    uint64_t element; /* of a stated value, its low bytes */
    bool is_stated;
} lp_dummy;

/* False for a destination that stays zero. */
bool lp_dummy_of(const lp_plan *plan, uint32_t dest, lp_dummy *out);

/* One step of splitmix64: every index gives an unrelated number. */
LP_HOST_DEVICE static inline uint64_t lp_dummy_scramble(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

/* Uniform in [-1/1024, 1/1024), in steps of 2^-33, which F32 holds exactly. */
LP_HOST_DEVICE static inline float lp_dummy_number(uint64_t seed, uint64_t index)
{
    const int64_t steps = (int64_t)(lp_dummy_scramble(seed ^ index) >> 40) - (1 << 23);
    return (float)steps / 8589934592.0f;
}

#endif
