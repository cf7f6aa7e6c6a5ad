/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The layouts that most kernels read: gate and up rows of the first projection alternate in groups of eight; scale
 * words of the block-scaled formats are stored by column, and in each 128 rows those 32 apart lie side by side.
 */
#include "layouts/layout_private.h"

#define GRAN8_ROWS      HALF, ROWS("g", I(1, 8)), ROWS("i", N(8))
#define SLOT_HALVES     HALF, ROWS("b", I(1, 64)), ROWS("a", N(4)), ROWS("q", N(2)), ROWS("i", N(8))
#define SLOT_ROWS(rows) ROWS("b", rows), ROWS("a", N(4)), ROWS("i", N(32))

/* [E, 2, I/8, 8, c] -> memory (e, g, half, i, c) */
#define L1_WEIGHT(width)                                                                                               \
    .axes = 5, .axis = {EXPERT, GRAN8_ROWS, COLUMNS("c", width)}, .memory_order = {0, 2, 1, 3, 4},                     \
    MATRICES(I(2, 1), width)
#define L2_WEIGHT(width)                                                                                               \
    .axes = 3, .axis = {EXPERT, ROWS("n", H(1, 1)), COLUMNS("c", width)}, .memory_order = {0, 1, 2},                   \
    MATRICES(H(1, 1), width)
/* [E, 2, I/64, 4, 2, 8, w] -> memory (e, w, b, q, half, i, a) */
#define L1_SCALE(width)                                                                                                \
    .axes = 7, .axis = {EXPERT, SLOT_HALVES, COLUMNS("w", width)}, .memory_order = {0, 6, 2, 4, 1, 5, 3},              \
    MATRICES_BY_COLUMN(I(2, 1), width)
/* [E, H/128, 4, 32, w] -> memory (e, w, b, i, a) */
#define L2_SCALE(width)                                                                                                \
    .axes = 5, .axis = {EXPERT, SLOT_ROWS(H(1, 128)), COLUMNS("w", width)}, .memory_order = {0, 4, 1, 3, 2},           \
    MATRICES_BY_COLUMN(H(1, 1), width)

#define MXFP4_KERNELS "fp8_fp4_mega_moe (SM100)"
#define NVFP4_KERNELS "nvfp4_mega_moe, fp4_fp4_mega_moe (SM100)"
#define MXFP8_KERNELS "fp8_fp8_mega_moe (SM100)"
#define BF16_KERNELS  "bf16_mega_moe"
#define BLOCK_KERNELS "fp8_mega_moe (SM90)"

/* clang-format off */
static const lp_layout layouts[] = {
    {"mxfp4_l1_weight", 1, "FP4 gate and up, rows interleaved by 8",
     MXFP4_KERNELS, LP_I8, FP4_BYTES, MULTIPLES(256, 128),
     L1_WEIGHT(H(1, 2))},
    {"mxfp4_l1_scale", 1, "UE8M0 scales of gate and up, one per 32, four a word, by column, in slots",
     MXFP4_KERNELS, LP_I32, UE8M0, MULTIPLES(256, 128),
     L1_SCALE(H(1, 128))},
    {"mxfp4_l2_weight", 1, "FP4 down, as in the checkpoint",
     MXFP4_KERNELS, LP_I8, FP4_BYTES, MULTIPLES(256, 128),
     L2_WEIGHT(I(1, 2))},
    {"mxfp4_l2_scale", 1, "UE8M0 scales of down, one per 32, four a word, by column, in slots",
     MXFP4_KERNELS, LP_I32, UE8M0, MULTIPLES(256, 128),
     L2_SCALE(I(1, 128))},

    {"nvfp4_l1_weight", 1, "FP4 gate and up, rows interleaved by 8",
     NVFP4_KERNELS, LP_I8, FP4_BYTES, MULTIPLES(256, 128),
     L1_WEIGHT(H(1, 2))},
    {"nvfp4_l1_scale", 1, "UE4M3 scales of gate and up, one per 16, four a word, by column, in slots",
     NVFP4_KERNELS, LP_I32, UE4M3, MULTIPLES(256, 128),
     L1_SCALE(H(1, 64))},
    {"nvfp4_l2_weight", 1, "FP4 down, as in the checkpoint",
     NVFP4_KERNELS, LP_I8, FP4_BYTES, MULTIPLES(256, 128),
     L2_WEIGHT(I(1, 2))},
    {"nvfp4_l2_scale", 1, "UE4M3 scales of down, one per 16, four a word, by column, in slots",
     NVFP4_KERNELS, LP_I32, UE4M3, MULTIPLES(256, 128),
     L2_SCALE(I(1, 64))},

    {"mxfp8_l1_weight", 1, "FP8 gate and up, rows interleaved by 8",
     MXFP8_KERNELS, LP_F8_E4M3, FP8_CODES, MULTIPLES(256, 128),
     L1_WEIGHT(H(1, 1))},
    {"mxfp8_l1_scale", 1, "UE8M0 scales of gate and up, one per 32, four a word, by column, in slots",
     MXFP8_KERNELS, LP_I32, UE8M0, MULTIPLES(256, 128),
     L1_SCALE(H(1, 128))},
    {"mxfp8_l2_weight", 1, "FP8 down, as in the checkpoint",
     MXFP8_KERNELS, LP_F8_E4M3, FP8_CODES, MULTIPLES(256, 128),
     L2_WEIGHT(I(1, 1))},
    {"mxfp8_l2_scale", 1, "UE8M0 scales of down, one per 32, four a word, by column, in slots",
     MXFP8_KERNELS, LP_I32, UE8M0, MULTIPLES(256, 128),
     L2_SCALE(I(1, 128))},

    /* Shared experts: I is the intermediate size of all of them together; no expert dimension. */
    {"mxfp8_shared_l1_weight", 1, "FP8 gate and up of the shared experts, rows interleaved by 8",
     MXFP8_KERNELS, LP_F8_E4M3, FP8_CODES, MULTIPLES(256, 128),
     .axes = 4, .axis = {GRAN8_ROWS, COLUMNS("c", H(1, 1))}, .memory_order = {1, 0, 2, 3},
     .ndim = 2, .dim = {I(2, 1), H(1, 1)}, .dim_order = {0, 1}, .slot_dim = -1},
    {"mxfp8_shared_l1_scale", 1, "UE8M0 scales of gate and up of the shared experts, by column, in slots",
     MXFP8_KERNELS, LP_I32, UE8M0, MULTIPLES(256, 128),
     .axes = 6, .axis = {SLOT_HALVES, COLUMNS("w", H(1, 128))}, .memory_order = {5, 1, 3, 0, 4, 2},
     .ndim = 2, .dim = {I(2, 1), H(1, 128)}, .dim_order = {1, 0}, .slot_dim = -1},
    {"mxfp8_shared_l2_weight", 1, "FP8 down of the shared experts, as in the checkpoint",
     MXFP8_KERNELS, LP_F8_E4M3, FP8_CODES, MULTIPLES(256, 128),
     .axes = 2, .axis = {ROWS("n", H(1, 1)), COLUMNS("c", I(1, 1))}, .memory_order = {0, 1},
     .ndim = 2, .dim = {H(1, 1), I(1, 1)}, .dim_order = {0, 1}, .slot_dim = -1},
    {"mxfp8_shared_l2_scale", 1, "UE8M0 scales of down of the shared experts, by column, in slots",
     MXFP8_KERNELS, LP_I32, UE8M0, MULTIPLES(256, 128),
     .axes = 4, .axis = {SLOT_ROWS(H(1, 128)), COLUMNS("w", I(1, 128))}, .memory_order = {3, 0, 2, 1},
     .ndim = 2, .dim = {H(1, 1), I(1, 128)}, .dim_order = {1, 0}, .slot_dim = -1},

    {"bf16_l1_weight", 1, "BF16 gate and up, rows interleaved by 8",
     BF16_KERNELS, LP_BF16, {LP_BF16}, MULTIPLES(256, 128),
     L1_WEIGHT(H(1, 1))},
    {"bf16_l2_weight", 1, "BF16 down, as in the checkpoint",
     BF16_KERNELS, LP_BF16, {LP_BF16}, MULTIPLES(256, 128),
     L2_WEIGHT(I(1, 1))},

    /* Block scales keep the order of the checkpoint: gate blocks, then up blocks, not interleaved. */
    {"fp8_block128_l1_weight", 1, "FP8 gate and up, rows interleaved by 8",
     BLOCK_KERNELS, LP_F8_E4M3, FP8_CODES, MULTIPLES(512, 256),
     L1_WEIGHT(H(1, 1))},
    {"fp8_block128_l1_scale", 1, "F32 scales of 128 x 128 blocks of gate and up, as in the checkpoint",
     BLOCK_KERNELS, LP_F32, {LP_F32}, MULTIPLES(512, 256),
     .axes = 4, .axis = {EXPERT, HALF, ROWS("b", I(1, 128)), COLUMNS("c", H(1, 128))}, .memory_order = {0, 1, 2, 3},
     MATRICES(I(2, 128), H(1, 128))},
    {"fp8_block128_l2_weight", 1, "FP8 down, as in the checkpoint",
     BLOCK_KERNELS, LP_F8_E4M3, FP8_CODES, MULTIPLES(512, 256),
     L2_WEIGHT(I(1, 1))},
    {"fp8_block128_l2_scale", 1, "F32 scales of 128 x 128 blocks of down, as in the checkpoint",
     BLOCK_KERNELS, LP_F32, {LP_F32}, MULTIPLES(512, 256),
     .axes = 3, .axis = {EXPERT, ROWS("b", H(1, 128)), COLUMNS("c", I(1, 128))}, .memory_order = {0, 1, 2},
     MATRICES(H(1, 128), I(1, 128))},
};
/* clang-format on */

const lp_layout_list lp_layouts_gran8 = {layouts, sizeof layouts / sizeof layouts[0]};
