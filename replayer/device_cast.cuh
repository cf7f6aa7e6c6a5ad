/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cast table on the device, docs/casts.md: every pair, bit for bit what traces/cast.c makes of it. A NaN never goes
 * through the device's own conversions between F32 and F64, which lose its payload.
 */
#ifndef LOADPLAN_DEVICE_CAST_CUH
#define LOADPLAN_DEVICE_CAST_CUH

#include "traces/cast_float.h"
#include "traces/trace.h"

__device__ __forceinline__ bool narrow_kind(int dtype, lp_float_kind &kind)
{
    switch (dtype) {
    case LP_F16:
        kind = LP_KIND_F16;
        return true;
    case LP_BF16:
        kind = LP_KIND_BF16;
        return true;
    case LP_F8_E5M2:
        kind = LP_KIND_E5M2;
        return true;
    case LP_F8_E4M3:
        kind = LP_KIND_E4M3;
        return true;
    case LP_F8_E5M2FNUZ:
        kind = LP_KIND_E5M2FNUZ;
        return true;
    case LP_F8_E4M3FNUZ:
        kind = LP_KIND_E4M3FNUZ;
        return true;
    default:
        return false;
    }
}

__device__ __forceinline__ bool is_signed_integer(int dtype)
{
    return dtype == LP_I8 || dtype == LP_I16 || dtype == LP_I32 || dtype == LP_I64;
}

/* Bits of an integer dtype, BOOL included; 0 for floats. */
__device__ __forceinline__ int integer_bits(int dtype)
{
    switch (dtype) {
    case LP_BOOL:
    case LP_U8:
    case LP_I8:
        return 8;
    case LP_U16:
    case LP_I16:
        return 16;
    case LP_U32:
    case LP_I32:
        return 32;
    case LP_U64:
    case LP_I64:
        return 64;
    default:
        return 0;
    }
}

__device__ __forceinline__ uint64_t f64_of_f32(uint32_t bits)
{
    if ((bits & 0x7fffffffu) > 0x7f800000u)
        return static_cast<uint64_t>(bits >> 31) << 63 | 0x7ff8000000000000u |
               static_cast<uint64_t>(bits & 0x3fffffu) << 29;
    return static_cast<uint64_t>(__double_as_longlong(static_cast<double>(__uint_as_float(bits))));
}

__device__ __forceinline__ uint32_t f32_of_f64(uint64_t bits)
{
    if ((bits & 0x7fffffffffffffffu) > 0x7ff0000000000000u)
        return static_cast<uint32_t>(bits >> 63) << 31 | 0x7fc00000u | static_cast<uint32_t>(bits >> 29 & 0x3fffffu);
    return __float_as_uint(__double2float_rn(__longlong_as_double(static_cast<int64_t>(bits))));
}

/* Truncates towards zero; what does not fit becomes the nearest value that does, and NaN becomes 0. */
__device__ __forceinline__ uint64_t integer_of(double value, bool is_signed, int bits)
{
    if (value != value)
        return 0;
    if (!is_signed) {
        if (value <= 0)
            return 0;
        return value >= ldexp(1.0, bits) ? UINT64_MAX >> (64 - bits) : static_cast<uint64_t>(value);
    }
    const double limit = ldexp(1.0, bits - 1);
    const uint64_t most = UINT64_MAX >> (65 - bits);
    if (value >= limit)
        return most;
    return value <= -limit ? ~most : static_cast<uint64_t>(static_cast<int64_t>(value));
}

/* F32 bits of a float narrower than F64. */
__device__ __forceinline__ uint32_t single_of(uint64_t bits, int from)
{
    lp_float_kind kind;
    const uint32_t low = static_cast<uint32_t>(bits);
    if (from == LP_F8_E8M0)
        return lp_e8m0_widen(low);
    return narrow_kind(from, kind) ? lp_float_widen(low, kind) : low;
}

/* From F32 bits to a float narrower than F64. */
__device__ __forceinline__ uint64_t float_of_single(uint32_t single, int to)
{
    lp_float_kind kind;
    if (to == LP_F8_E8M0)
        return lp_e8m0_narrow(single);
    return narrow_kind(to, kind) ? lp_float_narrow(single, kind) : single;
}

/* `bits` are the element's, zero-extended; of the result the low ones are stored. */
static __device__ __noinline__ uint64_t cast_bits(uint64_t bits, int from, int to)
{
    const int from_integer = integer_bits(from), to_integer = integer_bits(to);
    if (from == LP_BF16 && to == LP_F32)
        return bits << 16; /* whatever the value, as in torch */
    if (from_integer > 0) {
        const int unused = 64 - from_integer;
        if (from == LP_BOOL)
            bits = bits != 0;
        else if (is_signed_integer(from))
            bits = static_cast<uint64_t>(static_cast<int64_t>(bits << unused) >> unused);
        if (to == LP_BOOL)
            return bits != 0;
        if (to_integer > 0)
            return bits;
        const bool is_signed = is_signed_integer(from);
        if (to == LP_F64)
            return static_cast<uint64_t>(
                __double_as_longlong(is_signed ? __ll2double_rn(static_cast<int64_t>(bits)) : __ull2double_rn(bits)));
        return float_of_single(
            __float_as_uint(is_signed ? __ll2float_rn(static_cast<int64_t>(bits)) : __ull2float_rn(bits)), to);
    }
    const uint32_t single = from == LP_F64 ? f32_of_f64(bits) : single_of(bits, from);
    const uint64_t twice = from == LP_F64 ? bits : f64_of_f32(single);
    if (to == LP_BOOL)
        return !(__longlong_as_double(static_cast<int64_t>(twice)) == 0);
    if (to_integer > 0)
        return integer_of(__longlong_as_double(static_cast<int64_t>(twice)), is_signed_integer(to), to_integer);
    return to == LP_F64 ? twice : float_of_single(single, to);
}

#endif
