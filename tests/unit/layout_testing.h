/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the tests of layouts: the vectors' input bytes, and addresses of views worked out one by one. */
#ifndef LOADPLAN_LAYOUT_TESTING_H
#define LOADPLAN_LAYOUT_TESTING_H

#include "layouts/layout.h"

#include <stdint.h>

/* Byte i of an input of the vectors: the formula that the file states. */
static inline uint8_t formula_byte(uint32_t i, uint32_t seed)
{
    uint32_t x = i + seed;
    x ^= x >> 16;
    x *= 0x7feb352du;
    x ^= x >> 15;
    x *= 0x846ca68bu;
    x ^= x >> 16;
    return (uint8_t)(x & 255u);
}

/* Byte offset of an element of a view, by its modes. */
static inline int64_t view_byte(const lp_view *v, const int64_t *index)
{
    int64_t bits = v->offset_bits;
    for (int d = 0; d < v->ndim; d++) {
        int64_t rest = index[d];
        for (int m = v->first[d + 1] - 1; m >= v->first[d]; m--) {
            bits += rest % v->mode[m].extent * v->mode[m].stride_bits;
            rest /= v->mode[m].extent;
        }
    }
    return bits / 8;
}

#endif
