/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Conversions between F32 and the narrower float kinds, on bit patterns, with integers only: every host and device
 * gives equal bits, NaNs included. One pair of routines serves F16, BF16 and the four F8 kinds with a sign; a kind is
 * a row of numbers. F8_E8M0 has no sign and no mantissa and has its own pair. docs/casts.md states the results.
 */
#ifndef LOADPLAN_CAST_FLOAT_H
#define LOADPLAN_CAST_FLOAT_H

#include "traces/trace.h"

#include <string.h>

/* A code is sign, exponent field, `mantissa` bits. Codes above `largest` (sign removed) are infinities and NaNs. */
typedef struct lp_float_kind {
    int mantissa;      /* stored bits */
    int bias;          /* of the exponent field */
    uint32_t sign;     /* mask of the sign bit */
    uint32_t largest;  /* code of the largest finite value */
    uint32_t overflow; /* code that a value beyond `largest` and an infinity become */
    uint32_t nan;      /* code of NaN */
    int one_zero;      /* FNUZ: no negative zero; NaN has its code, and is sign with all else zero */
} lp_float_kind;

#define LP_KIND_F16                                                                                                    \
    {                                                                                                                  \
        10, 15, 0x8000, 0x7bff, 0x7c00, 0x7e00, 0                                                                      \
    }
#define LP_KIND_BF16                                                                                                   \
    {                                                                                                                  \
        7, 127, 0x8000, 0x7f7f, 0x7f80, 0x7fc0, 0                                                                      \
    }
#define LP_KIND_E5M2                                                                                                   \
    {                                                                                                                  \
        2, 15, 0x80, 0x7b, 0x7c, 0x7f, 0                                                                               \
    }
#define LP_KIND_E4M3                                                                                                   \
    {                                                                                                                  \
        3, 7, 0x80, 0x7e, 0x7f, 0x7f, 0                                                                                \
    }
#define LP_KIND_E5M2FNUZ                                                                                               \
    {                                                                                                                  \
        2, 16, 0x80, 0x7f, 0x80, 0x80, 1                                                                               \
    }
#define LP_KIND_E4M3FNUZ                                                                                               \
    {                                                                                                                  \
        3, 8, 0x80, 0x7f, 0x80, 0x80, 1                                                                                \
    }

LP_HOST_DEVICE static inline uint32_t lp_f32_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

LP_HOST_DEVICE static inline float lp_f32_of_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* value >> shift, to nearest, ties to even; 1 <= shift <= 31. */
LP_HOST_DEVICE static inline uint32_t lp_shift_nearest_even(uint32_t value, int shift)
{
    const uint32_t kept = value >> shift, rest = value & ((1u << shift) - 1), half = 1u << (shift - 1);
    return kept + (rest > half || (rest == half && (kept & 1)) ? 1 : 0);
}

/* Bits of an F32 to a code of `kind`: to nearest, ties to even. */
LP_HOST_DEVICE static inline uint32_t lp_float_narrow(uint32_t bits, lp_float_kind kind)
{
    const uint32_t sign = bits >> 31 ? kind.sign : 0, magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u)
        return kind.nan | sign;
    if (magnitude == 0x7f800000u)
        return kind.overflow | sign;

    const int field = (int)(magnitude >> 23), exponent = (field > 0 ? field : 1) - 127 + kind.bias;
    const uint32_t significand = (magnitude & 0x7fffffu) | (field > 0 ? 0x800000u : 0);
    /* Below the smallest normal value of the kind each step of the exponent costs a bit; 25 leave nothing. */
    int shift = 23 - kind.mantissa + (exponent < 1 ? 1 - exponent : 0);
    if (shift > 25)
        shift = 25;
    /* The leading bit of a normal significand adds one to the exponent field, and so does a carry of the rounding. */
    const uint32_t base = (uint32_t)(exponent < 1 ? 0 : exponent - 1) << kind.mantissa;
    const uint32_t code = base + lp_shift_nearest_even(significand, shift);
    if (code > kind.largest)
        return kind.overflow | sign;
    return kind.one_zero && code == 0 ? 0 : code | sign;
}

/* A code of `kind` to the bits of an F32: exact. A NaN keeps its sign and its mantissa bits on the left, and is quiet.
 */
LP_HOST_DEVICE static inline uint32_t lp_float_widen(uint32_t code, lp_float_kind kind)
{
    if (kind.one_zero && code == kind.nan)
        return 0x7fc00000u;
    const uint32_t sign = code & kind.sign ? 0x80000000u : 0, magnitude = code & (kind.sign - 1);
    uint32_t mantissa = magnitude & ((1u << kind.mantissa) - 1);
    if (magnitude > kind.largest) {
        const int is_infinity = magnitude == kind.overflow && kind.overflow != kind.nan;
        return sign | 0x7f800000u | (is_infinity ? 0 : 0x400000u | mantissa << (23 - kind.mantissa));
    }
    int field = (int)(magnitude >> kind.mantissa);
    if (field == 0) {
        if (mantissa == 0)
            return sign;
        if (kind.bias == 127)
            return sign | mantissa << (23 - kind.mantissa); /* subnormal on both sides */
        for (field = 1; mantissa >> kind.mantissa == 0; field--)
            mantissa <<= 1;
        mantissa &= (1u << kind.mantissa) - 1;
    }
    return sign | (uint32_t)(field - kind.bias + 127) << 23 | mantissa << (23 - kind.mantissa);
}

/* F8_E8M0: 2^(code - 127); 0xff is NaN. The sign is ignored; to the nearer power of two, measured by the value and not
 * by its logarithm, ties up; zero and what is too small become 2^-127; infinities, NaN and overflow become NaN. */
LP_HOST_DEVICE static inline uint32_t lp_e8m0_narrow(uint32_t bits)
{
    const uint32_t field = bits >> 23 & 0xffu, mantissa = bits & 0x7fffffu;
    if (field == 0xffu)
        return 0xffu;
    if (field == 0)
        return mantissa > 0x400000u ? 1 : 0; /* 2^-127 itself is a subnormal F32 */
    return field + (mantissa >= 0x400000u ? 1 : 0);
}

LP_HOST_DEVICE static inline uint32_t lp_e8m0_widen(uint32_t code)
{
    if (code == 0)
        return 0x00400000u;
    return code == 0xffu ? 0x7fc00000u : code << 23;
}

#endif
