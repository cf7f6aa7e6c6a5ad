/* SPDX-License-Identifier: Apache-2.0 */
/*
 * 4-bit codes to operands of the matrix unit, exactly.
 *
 * A word holds eight E2M1 codes, the lowest nibble first. Its values times its block scale become
 *   MXFP4  eight E5M2 bytes: E2M1 has one bit of mantissa, so a code times 2^d stays exact for d = -13..13 about the
 *          row's reference exponent, which goes into the sum's factor at the end;
 *   NVFP4  four BF16 pairs of 2^-8 * code * scale: at most six significant bits.
 */
#ifndef LOADPLAN_W4_CODES_CUH
#define LOADPLAN_W4_CODES_CUH

#include "kernels/number_formats.h"

/* On the host the two instructions are spelled out, so that a test without a GPU goes through all codes and scales
 * (tests/gpu/w4_codes_test.cu). */
#define W4_CODE __host__ __device__ __forceinline__

/* The intrinsic masks the selector first; this does not. */
W4_CODE uint32_t w4_permute(uint32_t x, uint32_t y, uint32_t selector)
{
#ifdef __CUDA_ARCH__
    uint32_t r;
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(r) : "r"(x), "r"(y), "r"(selector));
    return r;
#else
    uint32_t r = 0;
    for (int i = 0; i < 4; i++) {
        const uint32_t s = selector >> 4 * i & 15, byte = (s & 4 ? y : x) >> 8 * (s & 3) & 255;
        r |= (s & 8 ? (byte >> 7) * 255 : byte) << 8 * i;
    }
    return r;
#endif
}

/* ---- MXFP4 ---- */

enum { W4_SPAN = 26 }; /* exponents from the lowest to the highest scale that a row may have */

/* E5M2 bytes of the magnitudes 0, .5, 1, 1.5 and of 2, 3, 4, 6; a scale adds 4 times its exponent to each but the 0. */
W4_CODE uint32_t w4_magnitudes_low(uint32_t scale, uint32_t reference)
{
    return scale * 0x04040400u + (0x3e3c3800u - reference * 0x04040400u);
}
W4_CODE uint32_t w4_magnitudes_high(uint32_t scale, uint32_t reference)
{
    return scale * 0x04040404u + (0x46444240u - reference * 0x04040404u);
}

/* first: codes 0..3, second: codes 4..7. A code without its sign is the selector of its magnitude. */
W4_CODE void w4_decode_mx(uint32_t word, uint32_t low, uint32_t high, uint32_t &first, uint32_t &second)
{
    const uint32_t selector = word & 0x77777777u, shifted = word << 4;
    first = w4_permute(low, high, selector) | (w4_permute(word, shifted, 0x1504) & 0x80808080u);
    second = w4_permute(low, high, selector >> 16) | (w4_permute(word, shifted, 0x3726) & 0x80808080u);
}

/* Codes 0..3 alone, of the lower half of a word. */
W4_CODE uint32_t w4_decode_mx_half(uint32_t word, uint32_t low, uint32_t high)
{
    return w4_permute(low, high, word & 0x7777u) | (w4_permute(word, word << 4, 0x1504) & 0x80808080u);
}

/* Highest scale byte of a row's first steps -> the reference that leaves most room below it. */
W4_CODE uint32_t w4_reference(uint32_t highest)
{
    return min(max(static_cast<int>(highest) - 6, 13), 241);
}

/* The same as BF16: with a code's 2^-126 (below) the product is code * 2^(scale - reference) * 2^-63. */
enum { W4_WIDE_SPAN = 120 };
W4_CODE uint32_t w4_scale_mx(uint32_t scale, uint32_t reference)
{
    return (scale - reference + 190) * 0x00800080u;
}
__device__ __forceinline__ float w4_wide_factor(uint32_t reference)
{
    return __uint_as_float(reference << 23);
}

/* ---- NVFP4 ---- */

W4_CODE uint32_t w4_multiply_pair(uint32_t x, uint32_t y)
{
#ifdef __CUDA_ARCH__
    uint32_t r;
    asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(r) : "r"(x), "r"(y));
    return r;
#else
    return lp_bf16_code(lp_bf16_value(x) * lp_bf16_value(y)) |
           lp_bf16_code(lp_bf16_value(x >> 16) * lp_bf16_value(y >> 16)) << 16;
#endif
}

/* UE4M3 byte -> BF16 pair of scale * 2^118: its bits, seen as BF16, are scale * 2^-120, subnormal ones included. */
W4_CODE uint32_t w4_scale_nv(uint32_t byte)
{
    return w4_multiply_pair(w4_multiply_pair(byte * 0x00100010u, 0x7f007f00u), 0x77007700u);
}

/* Two UE4M3 bytes, the first one the lower, to a pair of what w4_scale_nv makes of each: in half the instructions. */
W4_CODE uint32_t w4_two_scales_nv(uint32_t bytes)
{
    const uint32_t apart = w4_permute(bytes, 0, 0x4140) << 4;
    return w4_multiply_pair(w4_multiply_pair(apart, 0x7f007f00u), 0x77007700u);
}

/* Of two such pairs, the larger ones. Bytes with a sign or a NaN become larger than all others. */
W4_CODE uint32_t w4_larger_scales(uint32_t x, uint32_t y)
{
#ifdef __CUDA_ARCH__
    uint32_t r;
    asm("max.bf16x2 %0, %1, %2;" : "=r"(r) : "r"(x), "r"(y));
    return r;
#else
    return max(x & 0xffffu, y & 0xffffu) | max(x >> 16, y >> 16) << 16;
#endif
}
W4_CODE bool w4_is_rare_scale(uint32_t pair)
{
    constexpr uint32_t LARGEST = 0x7ee0; /* of 448 */
    return (pair & 0xffffu) > LARGEST || pair >> 16 > LARGEST;
}

/* One of a pair twice. A multiplication takes it from where it is. */
W4_CODE uint32_t w4_twice(uint32_t pair, int half)
{
#ifdef __CUDA_ARCH__
    uint32_t r;
    if (half == 0)
        asm("{\n.reg .b16 x, y;\nmov.b32 {x, y}, %1;\nmov.b32 %0, {x, x};\n}" : "=r"(r) : "r"(pair));
    else
        asm("{\n.reg .b16 x, y;\nmov.b32 {x, y}, %1;\nmov.b32 %0, {y, y};\n}" : "=r"(r) : "r"(pair));
    return r;
#else
    return (pair >> 16 * half & 0xffffu) * 0x00010001u;
#endif
}

/* Codes 0 and 4 of a word alone; see below. */
W4_CODE uint32_t w4_decode_pair(uint32_t word, uint32_t scale)
{
    return w4_multiply_pair(((word & 0x000f000fu) * 0x1040u) & 0x81c081c0u, scale);
}

/* pair[i]: codes i and i + 4. One multiplication moves sign and magnitude of a nibble to their places, value * 2^-126.
 */
W4_CODE void w4_decode_nv(uint32_t word, uint32_t scale, uint32_t (&pair)[4])
{
    const uint32_t upper = word >> 8;
    pair[0] = w4_multiply_pair(((word & 0x000f000fu) * 0x1040u) & 0x81c081c0u, scale);
    pair[1] = w4_multiply_pair(((word & 0x00f000f0u) * 0x0104u) & 0x81c081c0u, scale);
    pair[2] = w4_multiply_pair(((upper & 0x000f000fu) * 0x1040u) & 0x81c081c0u, scale);
    pair[3] = w4_multiply_pair(((upper & 0x00f000f0u) * 0x0104u) & 0x81c081c0u, scale);
}

#endif
