/* SPDX-License-Identifier: Apache-2.0 */
/*
 * E4M3 codes with a power of two for 32 columns, the numbers of MXFP8, as BF16 values. A code has four significant
 * bits, so its value times 2^n is exact there as long as BF16 has its exponent; below, it is rounded once.
 */
#ifndef LOADPLAN_E4M3_CODES_CUH
#define LOADPLAN_E4M3_CODES_CUH

#include "kernels/number_formats.h"
#include "kernels/w4_codes.cuh"

#include <cuda_fp16.h>

/*
 * Place of column k of a block of 128 in the order of K of products. A matrix load of 8 rows by 16 bytes gives a thread
 * four codes that lie together. The first and third, and the second and fourth, are pairs, so that each is where it has
 * to be in its half of a word; a first operand in registers holds pairs 2 q and 2 q + 8 of 16 in lane q of four.
 */
__host__ __device__ inline int e4m3_place(int k)
{
    return k / 16 * 16 + k % 16 / 4 * 2 + k % 2 * 8 + k / 2 % 2;
}

/* Pairs of eight columns, those of even numbers and those of odd ones, from BF16 values as they lie. */
__device__ __forceinline__ uint2 e4m3_even(uint4 v)
{
    return make_uint2(__byte_perm(v.x, v.y, 0x5410), __byte_perm(v.z, v.w, 0x5410));
}
__device__ __forceinline__ uint2 e4m3_odd(uint4 v)
{
    return make_uint2(__byte_perm(v.x, v.y, 0x7632), __byte_perm(v.z, v.w, 0x7632));
}

/* ---- weights ---- */

/* Scales up to this one are one factor; the largest magnitude of a code that is a number, as e4m3_decode has it. */
constexpr uint32_t E4M3_MOST_SCALE = 134, E4M3_MOST = 0x07e0;

/* BF16 pair of 2^120 times the value of an UE8M0 code, at most E4M3_MOST_SCALE. */
W4_CODE uint32_t e4m3_scale(uint32_t code)
{
    return code * 0x00800080u + (120u << 7) * 0x00010001u;
}

/*
 * The four codes of a word. Shifted, the seven bits below a sign are BF16 bits of 2^-120 of the magnitude, subnormal
 * ones included. `most`: the largest magnitudes so far; a NaN among codes is more than E4M3_MOST there.
 */
W4_CODE void e4m3_decode(uint32_t word, uint32_t scale, uint32_t &even, uint32_t &odd, uint32_t &most)
{
    const uint32_t u = word * 16 & 0x07f007f0u, v = word >> 4 & 0x07f007f0u;
    most = __vimax3_u16x2(most, u, v);
    even = w4_multiply_pair(u | (word * 256 & 0x80008000u), scale);
    odd = w4_multiply_pair(v | (word & 0x80008000u), scale);
}

/* The same pair of two words: that of odd codes of words shifted left by `shift`, 0 or 8. */
W4_CODE void e4m3_decode_pairs(uint32_t word, uint32_t other, int shift, uint32_t scale, uint32_t &first,
                               uint32_t &second, uint32_t &most)
{
    const uint32_t a = word << shift, b = other << shift;
    const uint32_t u = a >> 4 & 0x07f007f0u, v = b >> 4 & 0x07f007f0u;
    most = __vimax3_u16x2(most, u, v);
    first = w4_multiply_pair(u | (a & 0x80008000u), scale);
    second = w4_multiply_pair(v | (b & 0x80008000u), scale);
}

/* Codes among which there is a NaN, and scales above E4M3_MOST_SCALE, are to be decoded by e4m3_any_pair instead. */
W4_CODE bool e4m3_has_nan(uint32_t most)
{
    return (most & 0xffff) > E4M3_MOST || most >> 16 > E4M3_MOST;
}
W4_CODE bool e4m3_is_odd(uint32_t most, uint32_t scale_code)
{
    return e4m3_has_nan(most) || scale_code > E4M3_MOST_SCALE;
}

/* The same of a word of four scale codes; E4M3_MOST_SCALE itself counts as far. */
W4_CODE bool e4m3_has_far(uint32_t scale_codes)
{
    return ((scale_codes >> 1 & 0x7f7f7f7fu) + (128 - E4M3_MOST_SCALE / 2) * 0x01010101u & 0x80808080u) != 0;
}

__device__ __forceinline__ uint32_t e4m3_pair_of(float low, float high)
{
    uint32_t v;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(v) : "f"(high), "f"(low));
    return v;
}

/* Two codes times any scale; NaN where either is one. */
__device__ __forceinline__ uint32_t e4m3_any_pair(uint32_t codes, float scale)
{
    uint32_t halves;
    const uint16_t two = static_cast<uint16_t>(codes);
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"(two));
    const float2 value = __half22float2(reinterpret_cast<const __half2 &>(halves));
    return e4m3_pair_of(value.x * scale, value.y * scale);
}

/* ---- tokens and h: rounded to that format, and kept as BF16 ---- */

/* UE8M0 code of the least power of two that is not below most / 448, 448 being 7/4 * 2^8. From 1 on, which has an
 * inverse; a largest magnitude of FP32 gives 247. */
W4_CODE uint32_t e4m3_scale_above(float most)
{
    return max((lp_f32_bits(most) + 0x1fffffu) >> 23, 9u) - 8;
}

/* Codes of two values with a scale of e4m3_scale_above; `low` in the low byte. */
__device__ __forceinline__ uint32_t e4m3_codes_of(float low, float high, uint32_t scale_code)
{
    const float inverse = __uint_as_float((254u - scale_code) << 23);
    uint16_t codes;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(codes) : "f"(high * inverse), "f"(low * inverse));
    return codes;
}

/* The same values, rounded. */
__device__ __forceinline__ uint32_t e4m3_rounded(float low, float high, uint32_t scale_code)
{
    return e4m3_any_pair(e4m3_codes_of(low, high, scale_code), __uint_as_float(scale_code << 23));
}

/* Of a word of codes: those of even numbers, or of odd ones; times any scale. */
__device__ __forceinline__ uint32_t e4m3_any_even(uint32_t word, float scale)
{
    return e4m3_any_pair(__byte_perm(word, 0, 0x0020), scale);
}
__device__ __forceinline__ uint32_t e4m3_any_odd(uint32_t word, float scale)
{
    return e4m3_any_pair(__byte_perm(word, 0, 0x0031), scale);
}

/* Eight codes, times a scale. */
__device__ __forceinline__ uint4 e4m3_values(uint2 codes, float scale)
{
    return make_uint4(e4m3_any_pair(codes.x, scale), e4m3_any_pair(codes.x >> 16, scale), e4m3_any_pair(codes.y, scale),
                      e4m3_any_pair(codes.y >> 16, scale));
}

/* The largest of a token's values that a scale may be for: of x, as SM100 kernels round it. */
constexpr float E4M3_LEAST_X = 1e-4f;

#endif
