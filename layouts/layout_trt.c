/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The TRT-LLM / FlashInfer order, as kernels with weight_layout 'trtllm' read it: up before gate, scales by blocks of
 * 128 rows, and rows of the second projection shuffled too. The tensors are declared row-major; their bytes are not.
 */
#include "layouts/layout_private.h"

#define NVFP4_KERNELS "nvfp4_mega_moe, weight_layout trtllm (SM100)"
#define BF16_KERNELS  "bf16_mega_moe, weight_layout trtllm"

/* clang-format off */
static const lp_layout layouts[] = {
    {"nvfp4_trt_l1_weight", 1, "FP4 gate and up, rows in packed order with up first",
     NVFP4_KERNELS, LP_I8, FP4_BYTES, MULTIPLES(256, 256),
     .axes = 6, .axis = {EXPERT, HALF, ROWS("g", I(1, 16)), ROWS("i", N(8)), ROWS("odd", N(2)), COLUMNS("c", H(1, 2))},
     .memory_order = {0, 2, 4, 1, 3, 5}, .up_first = true, MATRICES(I(2, 1), H(1, 2))},
    {"nvfp4_trt_l1_scale", 1, "UE4M3 scales of gate and up, four a word, by blocks of 128 rows, up first",
     NVFP4_KERNELS, LP_I32, UE4M3, MULTIPLES(256, 256),
     .axes = 7, .axis = {EXPERT, HALF, ROWS("b", I(1, 64)), ROWS("a", N(4)), ROWS("i", N(8)), ROWS("odd", N(2)),
                        COLUMNS("w", H(1, 64))},
     .memory_order = {0, 2, 6, 5, 1, 4, 3}, .up_first = true, MATRICES(I(2, 1), H(1, 64))},
    {"nvfp4_trt_l2_weight", 1, "FP4 down, each 32 rows as a transposed 8 x 4",
     NVFP4_KERNELS, LP_I8, FP4_BYTES, MULTIPLES(256, 256),
     .axes = 5, .axis = {EXPERT, ROWS("g", H(1, 32)), ROWS("i", N(8)), ROWS("j", N(4)), COLUMNS("c", I(1, 2))},
     .memory_order = {0, 1, 3, 2, 4}, MATRICES(H(1, 1), I(1, 2))},
    {"nvfp4_trt_l2_scale", 1, "UE4M3 scales of down, four a word, by blocks of 128 rows",
     NVFP4_KERNELS, LP_I32, UE4M3, MULTIPLES(256, 256),
     .axes = 6, .axis = {EXPERT, ROWS("b", H(1, 128)), ROWS("a", N(4)), ROWS("i", N(8)), ROWS("j", N(4)),
                        COLUMNS("w", I(1, 64))},
     .memory_order = {0, 1, 5, 4, 3, 2}, MATRICES(H(1, 1), I(1, 64))},

    {"bf16_trt_l1_weight", 1, "BF16 gate and up by columns of 64, rows shuffled by 32, up first",
     BF16_KERNELS, LP_BF16, {LP_BF16}, MULTIPLES(256, 128),
     .axes = 8, .axis = {EXPERT, HALF, ROWS("g", I(1, 16)), ROWS("p", N(2)), ROWS("i", N(4)), ROWS("odd", N(2)),
                        COLUMNS("k", H(1, 64)), COLUMNS("c", N(64))},
     .memory_order = {0, 6, 2, 5, 1, 3, 4, 7}, .up_first = true, MATRICES(I(2, 1), H(1, 1))},
    {"bf16_trt_l2_weight", 1, "BF16 down by columns of 64, each 32 rows as a transposed 8 x 4",
     BF16_KERNELS, LP_BF16, {LP_BF16}, MULTIPLES(256, 128),
     .axes = 6, .axis = {EXPERT, ROWS("g", H(1, 32)), ROWS("i", N(8)), ROWS("j", N(4)), COLUMNS("k", I(1, 64)),
                        COLUMNS("c", N(64))},
     .memory_order = {0, 4, 1, 3, 2, 5}, MATRICES(H(1, 1), I(1, 1))},
};
/* clang-format on */

const lp_layout_list lp_layouts_trt = {layouts, sizeof layouts / sizeof layouts[0]};
