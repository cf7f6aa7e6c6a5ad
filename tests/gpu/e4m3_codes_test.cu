/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The decoding of E4M3 codes times powers of two, on the host: every code in every place of a word, with every scale
 * that is one factor, against the definition of the formats; and how scales, NaN and places are found. No GPU is
 * needed.
 */
#include "gpu_check.h"
#include "kernels/e4m3_codes.cuh"

#include <math.h>
#include <stdio.h>

/* Without a NaN among them. */
static const uint32_t others[] = {0x00000000u, 0x7e7efefeu, 0x01fe80c3u};

static uint32_t word_with(uint32_t code, int p, uint32_t other)
{
    return (other & ~(255u << 8 * p)) | code << 8 * p;
}

/* Codes 0 and 2 are the even pair, 1 and 3 the odd one. */
static long codes()
{
    long checks = 0;
    for (uint32_t scale = 0; scale <= E4M3_MOST_SCALE; scale++)
        for (uint32_t code = 0; code < 256; code++)
            for (int p = 0; p < 4; p++) {
                const uint32_t word = word_with(code, p, others[p % 3]);
                uint32_t pair[2], most = 0, first, second, ignored = 0;
                e4m3_decode(word, e4m3_scale(scale), pair[0], pair[1], most);
                const bool is_nan = (code & 127) == 127;
                CHECK(e4m3_has_nan(most) == is_nan && e4m3_is_odd(most, scale) == is_nan, "code %02x: most %08x", code,
                      most);
                e4m3_decode_pairs(word, word, p % 2 == 0 ? 8 : 0, e4m3_scale(scale), first, second, ignored);
                CHECK(first == pair[p % 2] && second == first, "pair of code %02x in place %d", code, p);
                checks++;
                if (is_nan)
                    continue;
                const uint32_t got = pair[p % 2] >> p / 2 * 16 & 0xffff;
                const uint32_t want = lp_bf16_code(ldexpf(lp_e4m3_value(code), static_cast<int>(scale) - 127));
                CHECK(got == want, "code %02x in place %d, scale %u: %04x, not %04x", code, p, scale, got, want);
            }
    return checks;
}

static long far_scales()
{
    long checks = 0;
    for (uint32_t scale = 0; scale < 256; scale++)
        for (int p = 0; p < 4; p++, checks++) {
            const uint32_t word = word_with(scale, p, 0x7f007f80u);
            CHECK(e4m3_has_far(word) == (scale >= E4M3_MOST_SCALE), "scale %u in place %d", scale, p);
            CHECK(e4m3_is_odd(0, scale) == (scale > E4M3_MOST_SCALE), "scale %u", scale);
        }
    return checks;
}

/* The least power of two that is not below most / 448, and has an inverse. */
static long scales_above()
{
    static const uint32_t mantissas[] = {0, 1, 0x5fffff, 0x600000, 0x600001, 0x7fffff};
    long checks = 0;
    for (uint32_t exponent = 0; exponent < 255; exponent++)
        for (uint32_t mantissa : mantissas) {
            const float most = lp_f32_of_bits(exponent << 23 | mantissa);
            const uint32_t got = e4m3_scale_above(most), want = lp_ue8m0_code_above(most / 448.0f);
            CHECK(got == (want > 0 ? want : 1), "%a: %u, not %u", static_cast<double>(most), got, want);
            checks++;
        }
    return checks;
}

/* Lane q of four has columns 4 q to 4 q + 3 of 16; its even ones are places 2 q, its odd ones 8 + 2 q, and the next. */
static long places()
{
    long checks = 0;
    for (int k = 0; k < 128; k++, checks++) {
        const int q = k % 16 / 4, t = k % 4;
        CHECK(e4m3_place(k) == k / 16 * 16 + t % 2 * 8 + 2 * q + t / 2, "column %d", k);
    }
    return checks;
}

int main()
{
    const long checks = codes() + far_scales() + scales_above() + places();
    printf("%ld checks: ok\n", checks);
    return 0;
}
