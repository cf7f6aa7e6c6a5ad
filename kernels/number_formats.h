/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The numbers that MegaMoE kernels compute with: E2M1, E4M3, UE4M3, E5M2, UE8M0 and BF16 codes to F32 and back, the
 * same bits on host and device. Widening is exact. Narrowing goes to nearest, ties to even, and saturates: kernels
 * quantise by these, so a value beyond the largest finite code (an infinity too) becomes that code; BF16 alone keeps
 * infinities. A NaN stays one where the format has one; E2M1 has none and takes its largest magnitude, as the
 * hardware's conversion does.
 *
 * Signs: -0 keeps its sign in E4M3, E5M2 and BF16. E2M1 code 8 reads as -0; narrowing gives code 0 for what rounds to
 * zero, since both packages whose kernels read FP4 stage -0 as +0.
 */
#ifndef LOADPLAN_NUMBER_FORMATS_H
#define LOADPLAN_NUMBER_FORMATS_H

#include "traces/cast_float.h"

#include <string.h>

#define LP_KIND_E2M1                                                                                                   \
    {                                                                                                                  \
        1, 1, 0x8, 0x7, 0x7, 0x7, 0                                                                                    \
    }
#define LP_KIND_E4M3_SATURATING                                                                                        \
    {                                                                                                                  \
        3, 7, 0x80, 0x7e, 0x7e, 0x7f, 0                                                                                \
    }
#define LP_KIND_E5M2_SATURATING                                                                                        \
    {                                                                                                                  \
        2, 15, 0x80, 0x7b, 0x7b, 0x7f, 0                                                                               \
    }

/* ---- E2M1: 0, 0.5, 1, 1.5, 2, 3, 4, 6 and their negatives; four bits ---- */

LP_HOST_DEVICE static inline float lp_e2m1_value(uint32_t code)
{
    const lp_float_kind kind = LP_KIND_E2M1;
    return lp_f32_of_bits(lp_float_widen(code & 15u, kind));
}

LP_HOST_DEVICE static inline uint32_t lp_e2m1_code(float value)
{
    const lp_float_kind kind = LP_KIND_E2M1;
    const uint32_t code = lp_float_narrow(lp_f32_bits(value), kind);
    return code == 8u ? 0 : code;
}

/* ---- E4M3: largest 448, NaN 0x7f and 0xff, no infinity ---- */

LP_HOST_DEVICE static inline float lp_e4m3_value(uint32_t code)
{
    const lp_float_kind kind = LP_KIND_E4M3_SATURATING;
    return lp_f32_of_bits((code & 0x7fu) == 0x7fu ? (code & 0x80u) << 24 | 0x7fc00000u : lp_float_widen(code, kind));
}

LP_HOST_DEVICE static inline uint32_t lp_e4m3_code(float value)
{
    const lp_float_kind kind = LP_KIND_E4M3_SATURATING;
    return lp_float_narrow(lp_f32_bits(value), kind);
}

/* UE4M3, the block scale of NVFP4: E4M3 of which only codes without the sign bit are used. What is negative, and -0,
 * becomes 0. */
LP_HOST_DEVICE static inline uint32_t lp_ue4m3_code(float value)
{
    return value < 0.0f ? 0 : lp_e4m3_code(value) & 0x7fu;
}

/* ---- E5M2: largest finite 57344; has infinities, which only widening can give ---- */

LP_HOST_DEVICE static inline float lp_e5m2_value(uint32_t code)
{
    const lp_float_kind kind = LP_KIND_E5M2;
    return lp_f32_of_bits(lp_float_widen(code, kind));
}

LP_HOST_DEVICE static inline uint32_t lp_e5m2_code(float value)
{
    const lp_float_kind kind = LP_KIND_E5M2_SATURATING;
    return lp_float_narrow(lp_f32_bits(value), kind);
}

/* ---- UE8M0: 2^(code - 127); 0xff is NaN ---- */

LP_HOST_DEVICE static inline float lp_ue8m0_value(uint32_t code)
{
    return lp_f32_of_bits(lp_e8m0_widen(code));
}

/* The least power of two that is not below `value`, as the quantisers want it: a block divided by it fits. Zero and
 * below become code 0, what no code reaches and NaN become 0xff. */
LP_HOST_DEVICE static inline uint32_t lp_ue8m0_code_above(float value)
{
    const uint32_t bits = lp_f32_bits(value), field = bits >> 23 & 0xffu, mantissa = bits & 0x7fffffu;
    if (field == 0xffu)
        return bits == 0xff800000u ? 0 : 0xffu;
    if (bits >> 31)
        return 0;
    if (field == 0)
        return mantissa > 0x400000u ? 1 : 0; /* 2^-127 itself is a subnormal F32 */
    return field + (mantissa != 0);
}

/* ---- BF16 ---- */

LP_HOST_DEVICE static inline float lp_bf16_value(uint32_t code)
{
    return lp_f32_of_bits((code & 0xffffu) << 16);
}

/* Overflow becomes an infinity here: BF16 has the range of F32, and a rounded result must not look finite. */
LP_HOST_DEVICE static inline uint32_t lp_bf16_code(float value)
{
    const lp_float_kind kind = LP_KIND_BF16;
    return lp_float_narrow(lp_f32_bits(value), kind);
}

#endif
