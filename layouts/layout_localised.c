/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Weights split into two halves of their rows, one for the memory of each die of a two-die GPU. Scales are never split:
 * they keep the layout of the plain form.
 */
#include "layouts/layout_private.h"

/* [E, 2, 2, I/16, 8, c] -> memory (die, e, g, half, i, c); the first half of the interleaved rows is die 0 */
#define L1_WEIGHT(width)                                                                                               \
    .axes = 6, .axis = {EXPERT, HALF, ROWS("die", N(2)), ROWS("g", I(1, 16)), ROWS("i", N(8)), COLUMNS("c", width)},   \
    .memory_order = {2, 0, 3, 1, 4, 5}, .ndim = 4, .dim = {N(2), E, I(1, 1), width}, .dim_order = {0, 1, 2, 3},        \
    .slot_dim = 1
#define L2_WEIGHT(width)                                                                                               \
    .axes = 4, .axis = {EXPERT, ROWS("die", N(2)), ROWS("n", H(1, 2)), COLUMNS("c", width)},                           \
    .memory_order = {1, 0, 2, 3}, .ndim = 4, .dim = {N(2), E, H(1, 2), width}, .dim_order = {0, 1, 2, 3},              \
    .slot_dim = 1

#define FP4_KERNELS  "fp8_fp4_mega_moe with localised weights (SM100)"
#define FP8_KERNELS  "fp8_fp8_mega_moe with localised weights (SM100)"
#define BF16_KERNELS "bf16_mega_moe with localised weights (SM100)"

/* clang-format off */
static const lp_layout layouts[] = {
    {"mxfp4_localised_l1_weight", 1, "FP4 gate and up, rows interleaved by 8, a half for each die",
     FP4_KERNELS, LP_I8, FP4_BYTES, MULTIPLES(512, 256),
     L1_WEIGHT(H(1, 2))},
    {"mxfp4_localised_l2_weight", 1, "FP4 down, a half of the rows for each die",
     FP4_KERNELS, LP_I8, FP4_BYTES, MULTIPLES(512, 256),
     L2_WEIGHT(I(1, 2))},
    {"mxfp8_localised_l1_weight", 1, "FP8 gate and up, rows interleaved by 8, a half for each die",
     FP8_KERNELS, LP_F8_E4M3, FP8_CODES, MULTIPLES(512, 256),
     L1_WEIGHT(H(1, 1))},
    {"mxfp8_localised_l2_weight", 1, "FP8 down, a half of the rows for each die",
     FP8_KERNELS, LP_F8_E4M3, FP8_CODES, MULTIPLES(512, 256),
     L2_WEIGHT(I(1, 1))},
    {"bf16_localised_l1_weight", 1, "BF16 gate and up, rows interleaved by 8, a half for each die",
     BF16_KERNELS, LP_BF16, {LP_BF16}, MULTIPLES(512, 256),
     L1_WEIGHT(H(1, 1))},
    {"bf16_localised_l2_weight", 1, "BF16 down, a half of the rows for each die",
     BF16_KERNELS, LP_BF16, {LP_BF16}, MULTIPLES(512, 256),
     L2_WEIGHT(I(1, 1))},
};
/* clang-format on */

const lp_layout_list lp_layouts_localised = {layouts, sizeof layouts / sizeof layouts[0]};
