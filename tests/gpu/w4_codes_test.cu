/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The decoding of 4-bit codes, on the host: every code in every place of a word, with every scale and every reference
 * that a row may have, against the definition of the formats. No GPU is needed; what the two instructions of the device
 * do is spelled out in kernels/w4_codes.cuh, and tests/gpu/test_conversions.c compares them where there is one.
 */
#include "gpu_check.h"
#include "kernels/w4_codes.cuh"

#include <math.h>
#include <stdio.h>

/* Of an E2M1 code, by the definition of the format. */
static double e2m1(uint32_t code)
{
    static const double magnitude[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
    return code & 8 ? -magnitude[code & 7] : magnitude[code & 7];
}

/* A word with `code` in place p and other codes beside it. */
static uint32_t word_with(uint32_t code, int p, uint32_t others)
{
    return (others & ~(15u << 4 * p)) | code << 4 * p;
}

/* The same value, and the sign of a zero too. */
static bool same(double a, double b)
{
    return a == b && signbit(a) == signbit(b);
}

static const uint32_t others[] = {0x00000000u, 0xffffffffu, 0x89abcdefu};

/* E5M2 bytes in units of the reference: first holds codes 0 to 3, second 4 to 7. */
static long mx_codes()
{
    long checks = 0;
    for (uint32_t highest = 0; highest < 255; highest++) {
        const uint32_t reference = w4_reference(highest);
        CHECK(reference >= 13 && reference <= 241, "reference %u of %u", reference, highest);
        for (uint32_t scale = 0; scale < 255; scale++) {
            if (scale + 13u - reference > W4_SPAN)
                continue; /* a far row: decoded apart */
            const uint32_t low = w4_magnitudes_low(scale, reference), high = w4_magnitudes_high(scale, reference);
            const double factor = ldexp(1, static_cast<int>(reference) - 127);
            const double s = ldexp(1, static_cast<int>(scale) - 127);
            for (uint32_t code = 0; code < 16; code++)
                for (int p = 0; p < 8; p++) {
                    uint32_t part[2];
                    w4_decode_mx(word_with(code, p, others[p % 3]), low, high, part[0], part[1]);
                    const uint32_t byte = part[p / 4] >> p % 4 * 8 & 255;
                    const uint32_t half = word_with(code, p, others[p % 3]) >> p / 4 * 16;
                    CHECK(w4_decode_mx_half(half, low, high) == part[p / 4], "half of code %u in place %d", code, p);
                    CHECK(same(lp_e5m2_value(byte) * factor, e2m1(code) * s),
                          "code %u in place %d, scale %u, reference %u: byte %02x", code, p, scale, reference, byte);
                    checks++;
                }
        }
    }
    return checks;
}

/* Value of code p of a word: pair[p % 4], low half for the first four. */
static double of_pair(const uint32_t (&pair)[4], int p)
{
    return lp_bf16_value(pair[p % 4] >> p / 4 * 16);
}

/* BF16 pairs for rows whose scales lie further apart. */
static long wide_codes()
{
    long checks = 0;
    const int half = W4_WIDE_SPAN / 2;
    for (int d = -half; d <= half; d++)
        for (uint32_t code = 0; code < 16; code++)
            for (int p = 0; p < 8; p++) {
                uint32_t pair[4];
                w4_decode_nv(word_with(code, p, others[p % 3]), w4_scale_mx(static_cast<uint32_t>(120 + d), 120), pair);
                CHECK(same(of_pair(pair, p), ldexp(e2m1(code), d - 63)), "code %u in place %d, %d from the reference",
                      code, p, d);
                checks++;
            }
    return checks;
}

/* NVFP4: 2^-8 times code times scale, for every finite scale. */
static long nv_codes()
{
    long checks = 0;
    for (uint32_t byte = 0; byte < 0x7f; byte++) {
        const uint32_t scale = w4_scale_nv(byte), field = byte >> 3;
        const double value = field ? ldexp(8 + (byte & 7), static_cast<int>(field) - 10) : ldexp(byte, -9);
        CHECK((scale & 0xffff) == scale >> 16 && lp_bf16_value(scale) == ldexp(value, 118), "scale byte %02x", byte);
        for (uint32_t code = 0; code < 16; code++)
            for (int p = 0; p < 8; p++) {
                uint32_t pair[4];
                w4_decode_nv(word_with(code, p, others[p % 3]), scale, pair);
                CHECK(same(of_pair(pair, p), ldexp(e2m1(code) * value, -8)), "code %u in place %d, scale byte %02x",
                      code, p, byte);
                const uint32_t shifted = word_with(code, p, others[p % 3]) >> p % 4 * 4;
                CHECK(w4_decode_pair(shifted, scale) == pair[p % 4], "pair of code %u in place %d", code, p);
                checks++;
            }
    }
    return checks;
}

/* Two scales at once, of any bytes: each as alone, whatever the other is, and signs and NaN found by their size. */
static long nv_scale_pairs()
{
    long checks = 0;
    for (uint32_t bytes = 0; bytes < 0x10000; bytes++) {
        const uint32_t byte[2] = {bytes & 255, bytes >> 8}, pair = w4_two_scales_nv(bytes);
        const bool is_rare = byte[0] > 0x7e || byte[1] > 0x7e;
        for (int half = 0; half < 2; half++)
            CHECK(w4_twice(pair, half) == w4_scale_nv(byte[half]), "scale byte %d of %04x", half, bytes);
        CHECK(w4_is_rare_scale(pair) == is_rare, "bytes %04x", bytes);
        const uint32_t other = w4_two_scales_nv(0x7e00 | (bytes & 0x7f));
        CHECK(w4_is_rare_scale(w4_larger_scales(other, pair)) == (is_rare || (bytes & 0x7f) > 0x7e) &&
                  w4_larger_scales(other, pair) == w4_larger_scales(pair, other),
              "bytes %04x beside others", bytes);
        checks++;
    }
    return checks;
}

int main()
{
    const long mx = mx_codes(), wide = wide_codes(), nv = nv_codes(), pairs = nv_scale_pairs();
    printf("codes by scales and places: %ld of MXFP4, %ld of distant scales, %ld of NVFP4, %ld pairs of its scales\n",
           mx, wide, nv, pairs);
    return 0;
}
