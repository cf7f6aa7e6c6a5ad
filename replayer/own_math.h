/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Arithmetic of derives that every backend shares: exp and log of our own, NaN in one form, and the comparisons that
 * reductions use. Each double operation rounds once and none may be contracted into a fused multiply-add: compile with
 * -ffp-contract=off (host) and -fmad=false (device).
 */
#ifndef LOADPLAN_OWN_MATH_H
#define LOADPLAN_OWN_MATH_H

#include "traces/cast_float.h"

#include <stdint.h>
#include <string.h>

LP_HOST_DEVICE static inline double lp_f64_of_bits(uint64_t bits)
{
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

#define LP_F32_NAN      lp_f32_of_bits(0x7fc00000u)
#define LP_F32_INFINITY lp_f32_of_bits(0x7f800000u)

/* Processors differ in the sign and payload of the NaN that an operation makes: all results have this one. */
LP_HOST_DEVICE static inline float lp_f32_one_nan(float value)
{
    return value != value ? LP_F32_NAN : value;
}

/* NaN wins; -0 is below +0. */
LP_HOST_DEVICE static inline float lp_f32_maximum(float a, float b)
{
    if (a != a || b != b)
        return LP_F32_NAN;
    if (a == b)
        return lp_f32_of_bits(lp_f32_bits(a) & lp_f32_bits(b)); /* differ in the sign of zero at most */
    return a > b ? a : b;
}

LP_HOST_DEVICE static inline float lp_f32_minimum(float a, float b)
{
    if (a != a || b != b)
        return LP_F32_NAN;
    if (a == b)
        return lp_f32_of_bits(lp_f32_bits(a) | lp_f32_bits(b));
    return a < b ? a : b;
}

/* exp(x) = 2^k * exp(r), r = x - k ln 2 in [-0.35, 0.35], by the Taylor polynomial of degree 11 in double: its error
 * (2^-52) is far below half an ulp of single, so that only the last rounding counts. */
LP_HOST_DEVICE static inline float lp_own_exp(float x)
{
    if (x != x)
        return LP_F32_NAN;
    if (x > 89.0f)
        return LP_F32_INFINITY;
    if (x < -104.0f)
        return 0.0f;
    const double shift = 6755399441055744.0; /* 1.5 * 2^52: adding it rounds to an integer */
    const double ln2_high = 0x1.62e42fee00000p-1, ln2_low = 0x1.a39ef35793c76p-33;
    const double k = ((double)x * 0x1.71547652b82fep+0 + shift) - shift;
    const double r = ((double)x - k * ln2_high) - k * ln2_low;
    double p = 1.0 / 39916800.0;
    p = p * r + 1.0 / 3628800.0;
    p = p * r + 1.0 / 362880.0;
    p = p * r + 1.0 / 40320.0;
    p = p * r + 1.0 / 5040.0;
    p = p * r + 1.0 / 720.0;
    p = p * r + 1.0 / 120.0;
    p = p * r + 1.0 / 24.0;
    p = p * r + 1.0 / 6.0;
    p = p * r + 0.5;
    p = p * r + 1.0;
    p = p * r + 1.0;
    return (float)(p * lp_f64_of_bits((uint64_t)((int64_t)k + 1023) << 52));
}

/* log(x) = e ln 2 + log(m), m in [0.7, 1.42), with log(m) = 2 atanh(f), f = (m - 1) / (m + 1), |f| < 0.18. */
LP_HOST_DEVICE static inline float lp_own_log(float x)
{
    if (x != x || x < 0.0f)
        return LP_F32_NAN;
    if (x == 0.0f)
        return -LP_F32_INFINITY;
    if (x == LP_F32_INFINITY)
        return x;
    const double value = (double)x; /* normal in double also where x is subnormal */
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    int64_t e = (int64_t)(bits >> 52) - 1023;
    double m = lp_f64_of_bits((bits & 0xfffffffffffffu) | 0x3ff0000000000000u);
    if (m > 0x1.6a09e667f3bcdp+0) {
        m = m * 0.5;
        e++;
    }
    const double f = (m - 1.0) / (m + 1.0);
    const double s = f * f;
    double p = 1.0 / 21.0;
    p = p * s + 1.0 / 19.0;
    p = p * s + 1.0 / 17.0;
    p = p * s + 1.0 / 15.0;
    p = p * s + 1.0 / 13.0;
    p = p * s + 1.0 / 11.0;
    p = p * s + 1.0 / 9.0;
    p = p * s + 1.0 / 7.0;
    p = p * s + 1.0 / 5.0;
    p = p * s + 1.0 / 3.0;
    p = p * s + 1.0;
    return (float)((double)e * 0x1.62e42fefa39efp-1 + 2.0 * f * p);
}

#endif
