/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The layouts of kernels with FP4 activations that pack two neighbouring output columns in one thread: per 16 rows even
 * gate, even up, odd gate, odd up. Neither shape nor dtype tells them from the others: the id does.
 */
#include "layouts/layout_private.h"

/* [E, 2, I/16, 8, 2, c] -> memory (e, g, odd, half, i, c) */
#define L1_WEIGHT                                                                                                      \
    .axes = 6, .axis = {EXPERT, HALF, ROWS("g", I(1, 16)), ROWS("i", N(8)), ROWS("odd", N(2)), COLUMNS("c", H(1, 2))}, \
    .memory_order = {0, 2, 4, 1, 3, 5}, MATRICES(I(2, 1), H(1, 2))
/* [E, 2, I/64, 4, 8, 2, w] -> memory (e, w, b, odd, half, i, a) */
#define L1_SCALE(width)                                                                                                \
    .axes = 7,                                                                                                         \
    .axis =                                                                                                            \
        {EXPERT, HALF, ROWS("b", I(1, 64)), ROWS("a", N(4)), ROWS("i", N(8)), ROWS("odd", N(2)), COLUMNS("w", width)}, \
    .memory_order = {0, 6, 2, 5, 1, 4, 3}, MATRICES_BY_COLUMN(I(2, 1), width)
#define L2_WEIGHT                                                                                                      \
    .axes = 3, .axis = {EXPERT, ROWS("n", H(1, 1)), COLUMNS("c", I(1, 2))}, .memory_order = {0, 1, 2},                 \
    MATRICES(H(1, 1), I(1, 2))
#define L2_SCALE(width)                                                                                                \
    .axes = 5, .axis = {EXPERT, ROWS("b", H(1, 128)), ROWS("a", N(4)), ROWS("i", N(32)), COLUMNS("w", width)},         \
    .memory_order = {0, 4, 1, 3, 2}, MATRICES_BY_COLUMN(H(1, 1), width)

#define MXFP4_KERNELS "mega_moe, mma_type mxf4xmxf4 (SM100)"
#define NVFP4_KERNELS "mega_moe, mma_type nvfp4xnvfp4 (SM100)"

/* clang-format off */
static const lp_layout layouts[] = {
    {"mxfp4_packed_l1_weight", 1, "FP4 gate and up, rows in packed order",
     MXFP4_KERNELS, LP_I8, FP4_BYTES, MULTIPLES(256, 256),
     L1_WEIGHT},
    {"mxfp4_packed_l1_scale", 1, "UE8M0 scales of gate and up in packed order, by column, in slots",
     MXFP4_KERNELS, LP_I32, UE8M0, MULTIPLES(256, 256),
     L1_SCALE(H(1, 128))},
    {"mxfp4_packed_l2_weight", 1, "FP4 down, as in the checkpoint",
     MXFP4_KERNELS, LP_I8, FP4_BYTES, MULTIPLES(256, 256),
     L2_WEIGHT},
    {"mxfp4_packed_l2_scale", 1, "UE8M0 scales of down, one per 32, four a word, by column, in slots",
     MXFP4_KERNELS, LP_I32, UE8M0, MULTIPLES(256, 256),
     L2_SCALE(I(1, 128))},

    {"nvfp4_packed_l1_weight", 1, "FP4 gate and up, rows in packed order",
     NVFP4_KERNELS, LP_I8, FP4_BYTES, MULTIPLES(256, 256),
     L1_WEIGHT},
    {"nvfp4_packed_l1_scale", 1, "UE4M3 scales of gate and up in packed order, by column, in slots",
     NVFP4_KERNELS, LP_I32, UE4M3, MULTIPLES(256, 256),
     L1_SCALE(H(1, 64))},
    {"nvfp4_packed_l2_weight", 1, "FP4 down, as in the checkpoint",
     NVFP4_KERNELS, LP_I8, FP4_BYTES, MULTIPLES(256, 256),
     L2_WEIGHT},
    {"nvfp4_packed_l2_scale", 1, "UE4M3 scales of down, one per 16, four a word, by column, in slots",
     NVFP4_KERNELS, LP_I32, UE4M3, MULTIPLES(256, 256),
     L2_SCALE(I(1, 64))},
};
/* clang-format on */

const lp_layout_list lp_layouts_packed = {layouts, sizeof layouts / sizeof layouts[0]};
