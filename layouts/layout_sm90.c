/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Layouts of this project's own kernels on Hopper, packed by tiles: 256 rows by 128 columns of K are one piece, so that
 * a whole step of a tile is one copy. In the first projection a tile has 128 gate and 128 up rows, alternating in
 * groups of eight. Scales of a step lie together likewise, row after row, in the order of the checkpoint.
 */
#include "layouts/layout_private.h"

/* [E, 2, I/128, 16, 8, H/128, c] -> memory (e, tile, k, g, half, i, c) */
#define L1_TILES(dtype_width)                                                                                          \
    .axes = 7,                                                                                                         \
    .axis = {EXPERT,                                                                                                   \
             HALF,                                                                                                     \
             ROWS("tile", I(1, 128)),                                                                                  \
             ROWS("g", N(16)),                                                                                         \
             ROWS("i", N(8)),                                                                                          \
             COLUMNS("k", H(1, 128)),                                                                                  \
             COLUMNS("c", N(dtype_width))},                                                                            \
    .memory_order = {0, 2, 5, 3, 1, 4, 6}, .ndim = 4, .dim = {E, I(1, 128), H(1, 128), N(256 * (dtype_width))},        \
    .dim_order = {0, 1, 2, 3}, .slot_dim = 0
/* [E, H/256, 256, I/128, c] -> memory (e, tile, k, n, c) */
#define L2_TILES(dtype_width)                                                                                          \
    .axes = 5,                                                                                                         \
    .axis = {EXPERT, ROWS("tile", H(1, 256)), ROWS("n", N(256)), COLUMNS("k", I(1, 128)),                              \
             COLUMNS("c", N(dtype_width))},                                                                            \
    .memory_order = {0, 1, 3, 2, 4}, .ndim = 4, .dim = {E, H(1, 256), I(1, 128), N(256 * (dtype_width))},              \
    .dim_order = {0, 1, 2, 3}, .slot_dim = 0

#define KERNELS "lp_megamoe (SM90)"

/* clang-format off */
static const lp_layout layouts[] = {
    {"mxfp4_sm90_l1_weight", 1, "FP4 gate and up in tiles of 256 rows x 128 columns, interleaved by 8",
     KERNELS, LP_I8, FP4_BYTES, MULTIPLES(256, 128), L1_TILES(64)},
    {"mxfp4_sm90_l1_scale", 1, "UE8M0 scales of gate and up, one per 32, a word for each row of a tile",
     KERNELS, LP_I32, UE8M0, MULTIPLES(256, 128), L1_TILES(1)},
    {"mxfp4_sm90_l2_weight", 1, "FP4 down in tiles of 256 rows x 128 columns",
     KERNELS, LP_I8, FP4_BYTES, MULTIPLES(256, 128), L2_TILES(64)},
    {"mxfp4_sm90_l2_scale", 1, "UE8M0 scales of down, one per 32, a word for each row of a tile",
     KERNELS, LP_I32, UE8M0, MULTIPLES(256, 128), L2_TILES(1)},

    {"nvfp4_sm90_l1_weight", 1, "FP4 gate and up in tiles of 256 rows x 128 columns, interleaved by 8",
     KERNELS, LP_I8, FP4_BYTES, MULTIPLES(256, 128), L1_TILES(64)},
    {"nvfp4_sm90_l1_scale", 1, "UE4M3 scales of gate and up, one per 16, two words for each row of a tile",
     KERNELS, LP_I32, UE4M3, MULTIPLES(256, 128), L1_TILES(2)},
    {"nvfp4_sm90_l2_weight", 1, "FP4 down in tiles of 256 rows x 128 columns",
     KERNELS, LP_I8, FP4_BYTES, MULTIPLES(256, 128), L2_TILES(64)},
    {"nvfp4_sm90_l2_scale", 1, "UE4M3 scales of down, one per 16, two words for each row of a tile",
     KERNELS, LP_I32, UE4M3, MULTIPLES(256, 128), L2_TILES(2)},
};
/* clang-format on */

const lp_layout_list lp_layouts_sm90 = {layouts, sizeof layouts / sizeof layouts[0]};
