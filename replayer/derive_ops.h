/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the operations of derives do to single values, one source for every backend (docs/derives.md). None may be
 * contracted into a fused multiply-add: compile with -ffp-contract=off (host) and -fmad=false (device).
 */
#ifndef LOADPLAN_DERIVE_OPS_H
#define LOADPLAN_DERIVE_OPS_H

#include "replayer/own_math.h"

#include <math.h>

/* One pair of a reduction. */
LP_HOST_DEVICE static inline float lp_op_combine(unsigned op, float a, float b)
{
    if (op == LP_OP_MAX)
        return lp_f32_maximum(a, b);
    if (op == LP_OP_MIN)
        return lp_f32_minimum(a, b);
    return lp_f32_one_nan(a + b);
}

/* An elementwise operation; operands beyond its arity are not looked at. */
LP_HOST_DEVICE static inline float lp_op_compute(unsigned op, float a, float b, float c)
{
    switch (op) {
    case LP_OP_ADD:
        return lp_f32_one_nan(a + b);
    case LP_OP_SUB:
        return lp_f32_one_nan(a - b);
    case LP_OP_MUL:
        return lp_f32_one_nan(a * b);
    case LP_OP_DIV:
        return lp_f32_one_nan(a / b);
    case LP_OP_NEG:
        return lp_f32_of_bits(lp_f32_bits(a) ^ 0x80000000u);
    case LP_OP_RECIPROCAL:
        return lp_f32_one_nan(1.0f / a);
    case LP_OP_SQRT:
        return lp_f32_one_nan(sqrtf(a));
    case LP_OP_MAXIMUM:
        return lp_f32_maximum(a, b);
    case LP_OP_MINIMUM:
        return lp_f32_minimum(a, b);
    case LP_OP_ABS:
        return lp_f32_of_bits(lp_f32_bits(a) & 0x7fffffffu);
    case LP_OP_WHERE:
        return a != 0.0f ? b : c;
    case LP_OP_OR_IF_ZERO:
        return a == 0.0f ? b : a;
    case LP_OP_GREATER:
        return a > b ? 1.0f : 0.0f;
    case LP_OP_EQUAL:
        return a == b ? 1.0f : 0.0f;
    case LP_OP_EXP:
        return lp_own_exp(a);
    case LP_OP_LOG:
        return lp_own_log(a);
    default:
        return LP_F32_NAN; /* not reachable: traces hold known operations only */
    }
}

/* Equal infinities are close though their distance is not a number; NaN never is. */
LP_HOST_DEVICE static inline bool lp_op_is_close(float a, float b, float tolerance)
{
    const float distance = fabsf(a - b), bound = tolerance * fabsf(b);
    return a == b || distance <= bound;
}

#endif
