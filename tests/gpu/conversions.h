/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All inputs of the conversions that kernels use, one number each, for the device and for the host: what a conversion
 * gives is written by the same function of kernels/ on both sides.
 */
#ifndef CONVERSIONS_H
#define CONVERSIONS_H

#include <stdint.h>

typedef enum conversion {
    CONVERT_MX = 0,   /* highest scale, scale, code: the word of eight such codes to two words of E5M2 */
    CONVERT_NV = 1,   /* scale byte, code: the word of eight such codes to four BF16 pairs */
    CONVERT_WIDE = 2, /* the same for MXFP4 whose scales lie far apart: scale, code; the reference is 120 */
    CONVERT_KINDS = 3
} conversion;

#ifdef __cplusplus
extern "C" {
#endif

/* Every F32 to E4M3 and BF16, by the hardware's pairs and by number_formats.h: result[0] counts what differs, result[1]
 * is an input that does; both on the device, zeroed by the caller. Returns a cudaError_t. */
int conversions_narrow(unsigned long long *result);

/* Four words for each input of `kind`, on the device; and those of one input on the host. */
uint32_t conversions_inputs(conversion kind);
int conversions_decode(uint32_t *out, conversion kind);
void conversions_on_host(conversion kind, uint32_t input, uint32_t out[4]);

#ifdef __cplusplus
}
#endif

#endif
