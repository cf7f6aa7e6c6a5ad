/* SPDX-License-Identifier: Apache-2.0 */
/* Single elements through the cast table, by their bits. */
#ifndef LOADPLAN_CAST_TESTING_H
#define LOADPLAN_CAST_TESTING_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "traces/trace.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static inline uint32_t f32_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float f32_of(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline uint32_t cast_to_f32_bits(lp_dtype from, uint32_t code)
{
    uint32_t out = 0xa5a5a5a5u;
    assert_int_equal(lp_cast_elements(from, &code, LP_F32, &out, 1), LP_OK);
    return out;
}

static inline uint32_t cast_from_f32(lp_dtype to, float value)
{
    uint32_t out = 0;
    assert_int_equal(lp_cast_elements(LP_F32, &value, to, &out, 1), LP_OK);
    return out;
}

#endif
