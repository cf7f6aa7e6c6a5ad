/* SPDX-License-Identifier: Apache-2.0 */
/* The third part of the table of chain_known.c: tiles with room or turned axes, fragments of matrix instructions,
 * blocks taken apart, and accelerators that are no GPUs. */
#include "layouts/layout_private.h"

/* clang-format off */
static const lp_chain_known known[] = {
    /* ---- tiles with room, rotated and interleaved ones ---- */
    {"padded_32x33_32bit", 1, 32, false, "N(r i=32) K(c j=32) -> r c i j=33", "tiles of 32 x 32, rows with room for 33",
     "transposes through shared memory without bank conflicts", "CUDA samples, transpose: tile[32][33]"},
    {"skewed_32x32_32bit", 1, 32, false, "N(r i=32) K(c j=32) -> r c (i j+i)", "tiles of 32 x 32, each row rotated by its number",
     "transposes through shared memory without bank conflicts", "by the name: the rotation that padded_32x33_32bit makes of banks"},
    {"morton_8x8", 1, 8, false, "R(r y=2 u=2 v=2) C(c x=2 s=2 t=2) -> r c (y x u s v t)", "tiles of 8 x 8, bits of row and column in turns",
     "twiddled and Z-order textures", "Morton order, the column's bit lowest"},
    {"cannon_left", 1, 8, false, "I J -> I J-I", "row i rotated to the left by i",
     "Cannon's algorithm, left matrix of blocks", "Cannon's algorithm, initial alignment"},
    {"cannon_right", 1, 8, false, "I J -> I-J J", "column j rotated up by j",
     "Cannon's algorithm, right matrix of blocks", "Cannon's algorithm, initial alignment"},
    {"zigzag_ring", 1, 16, false, "T(h=2 w c) K -> w~h (h c) K",
     "tokens of each rank: a chunk from the front and one from the back; --shape w=RANKS",
     "ring attention and context parallelism of causal models", "ring-flash-attention zigzag; Megatron-LM context parallelism"},
    {"tma_b4x16_p64", 1, 4, false, "C(b k=16) -> b k=32", "16 codes of 4 bits, then room for 16 more",
     "tcgen05 MMA of mixed 8, 6 and 4 bits, shared memory", "PTX ISA, tensor types: .b4x16_p64"},
    {"tma_b6x16_p32", 1, 1, false, "C(b k=96) -> b k=128", "16 codes of 6 bits, then room for 32 bits",
     "tcgen05 MMA of mixed 8, 6 and 4 bits, shared memory", "PTX ISA, tensor types: .b6x16_p32"},
    {"tma_b6p2x16", 1, 1, false, "C(b q=6) -> b q=8", "codes of 6 bits in a byte each",
     "TMA copies of 6-bit codes to shared memory", "PTX ISA, tensor types: .b6p2x16"},

    /* ---- fragments of matrix instructions, registers of a lane side by side ---- */
    {"mma_m16n8k16_a", 1, 16, false, "M(m h=2 g=8) K(k o=2 t=4 p=2) -> m k (g t o h p)", "tiles of 16 x 16, eight values a lane",
     "mma.m16n8k16 of FP16 and BF16, matrix A", "PTX ISA, matrix fragments for mma.m16n8k16"},
    {"mma_m16n8k16_b", 1, 16, false, "K(k o=2 t=4 p=2) N(n g=8) -> k n (g t o p)", "tiles of 16 x 8, four values a lane",
     "mma.m16n8k16 of FP16 and BF16, matrix B", "PTX ISA, matrix fragments for mma.m16n8k16"},
    {"mma_m16n8k32_a", 1, 8, false, "M(m h=2 g=8) K(k o=2 t=4 p=4) -> m k (g t o h p)", "tiles of 16 x 32, sixteen values a lane",
     "mma.m16n8k32 of INT8 and FP8, matrix A", "PTX ISA, matrix fragments for mma.m16n8k32"},
    {"mfma_32x32x8_a", 1, 16, false, "M(m i=32) K(k h=2 p=4) -> m k (h i p)", "tiles of 32 x 8, four values a lane",
     "v_mfma_f32_32x32x8_f16, matrix A", "AMD matrix instruction calculator, CDNA 3"},
    {"wmma_16x16x16_a", 1, 16, false, "M(m i=16) K(k h=2 p=8) -> m k (h i p)", "tiles of 16 x 16, eight values a lane",
     "v_wmma_f32_16x16x16_f16 of RDNA 4, matrix A", "AMD RDNA 4 ISA manual, WMMA"},

    /* ---- blocks taken apart ---- */
    {"gguf_q4_0_soa", 1, 8, false, "B P(d=2 | q=16) -> (B q | B d)", "all codes of Q4_0 blocks, then all scales",
     "llama.cpp on SYCL, Q4_0", "llama.cpp ggml-sycl reorder_qw_q4_0"},
    {"gguf_q4_0_flat", 1, 4, false, "B P(d=4 | i=16 h=2) -> (B h i | B d)", "the codes of Q4_0 blocks in order, then all scales",
     "llama.cpp on OpenCL (Adreno), Q4_0", "llama.cpp ggml-opencl kernel_convert_block_q4_0_noshuffle"},
    {"gguf_q4_k_soa", 1, 8, false, "B P(m=4 | s=12 | q=128) -> (B q | B s | B m)",
     "all codes of Q4_K blocks, then all scales, then all d and dmin",
     "llama.cpp on SYCL, Q4_K", "llama.cpp ggml-sycl reorder_qw_q4_k"},
    {"gguf_q6_k_soa", 1, 8, false, "B P(l=128 | h=64 | s=16 | d=2) -> (B l | B h | B s | B d)",
     "all low halves of Q6_K blocks, then all high ones, then all scales, then all d",
     "llama.cpp on SYCL, Q6_K", "llama.cpp ggml-sycl reorder_qw_q6_k"},

    /* ---- accelerators that are no GPUs ---- */
    {"tpu_8x128_32bit", 1, 32, true, "R(r i=8) C(c j=128) -> r c (i j)", "tiles of 8 x 128",
     "TPUs, F32: T(8,128)", "XLA, tiled layout"},
    {"tpu_8x128_16bit", 1, 16, true, "R(r i=4 p=2) C(c j=128) -> r c (i j p)", "tiles of 8 x 128, two rows in a word",
     "TPUs, BF16: T(8,128)(2,1)", "XLA, tiled layout: repeated tiling"},
    {"tpu_8x128_8bit", 1, 8, true, "R(r i=2 p=4) C(c j=128) -> r c (i j p)", "tiles of 8 x 128, four rows in a word",
     "TPUs, INT8: T(8,128)(4,1)", "XLA, tiled layout: repeated tiling"},
    {"tpu_8x128_4bit", 1, 4, true, "R(r p=8) C(c j=128) -> r c (j p)", "tiles of 8 x 128, eight rows in a word",
     "TPUs, INT4: T(8,128)(8,1)", "XLA, tiled layout: repeated tiling"},
    {"ascend_fractal_z_16bit", 1, 16, true, "N(n i=16) C(c k=16) h w -> c h w n (i k)", "16 x 16 channels, for each place of the kernel",
     "Ascend FRACTAL_Z, convolution weights of 16 bits", "CANN manual, FRACTAL_Z"},
    {"hexagon_8h8w32c", 1, 8, true, "N H(h i=8) W(w j=8) C(c k=32) -> N h w c (i j k)", "blocks of 8 x 8 pixels and 32 channels",
     "Hexagon NPUs, 8 bits", "TVM nhwc-8h8w32c-2d"},
    {"hexagon_8h2w32c2w", 1, 16, true, "N H(h i=8) W(w a=2 b=2) C(c k=32) -> N h w c (i a k b)",
     "blocks of 8 x 4 pixels and 32 channels, two pixels in turns",
     "Hexagon NPUs, FP16", "TVM nhwc-8h2w32c2w-2d"},
};
/* clang-format on */

const lp_chain_list lp_chains_elsewhere = {known, sizeof known / sizeof known[0]};
