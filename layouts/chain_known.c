/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Layouts of public kernels as chains. Each was written down from the public code or manual named in its last field;
 * tests/python/chain_numpy.py composes the same orders step by step from those.
 *
 * K is the dimension of the products, N that of the results (M: rows of gate, then rows of up), G groups of K.
 */
#include "layouts/layout_private.h"

/* clang-format off */
static const lp_chain_known known[] = {
    /* ---- block scales, one byte each ---- */
    {"scale_128x4", 1, 8, true, "N(r a=4 i=32) K(c k=4) -> r c (i a k)",
     "block scales in tiles of 128 x 4, four rows 32 apart side by side",
     "cuBLASLt VEC16_UE4M3 and VEC32_UE8M0, CUTLASS block-scaled (SM100, SM120), FlashInfer and TRT-LLM 128x4, torchao",
     "cuBLAS manual, 1D block scaling factors layout; CUTLASS Sm1xxBlockScaledConfig; torchao to_blocked"},
    {"scale_8x4", 1, 8, true, "N(r i=8) K(c k=4) -> r c (i k)",
     "block scales in tiles of 8 x 4",
     "TRT-LLM and FlashInfer 8x4, few rows",
     "FlashInfer SfLayout.layout_8x4"},
    {"scale_blackwell_triton", 1, 8, true, "N(r a=4 i=32) K(c h=2 k=4) -> r (c h) (i a k)",
     "scale_128x4, columns padded to 8",
     "triton_kernels BLACKWELL_SCALE (gpt-oss)",
     "triton_kernels BlackwellMXScaleLayout"},
    {"scale_hopper_triton_w8", 1, 8, true, "N(m a=2 w=8 b=2 i=8) K(k c=2) -> (m w) (k a i c b)",
     "block scales by warp and lane of an mma, eight warps",
     "triton_kernels HOPPER_SCALE, num_warps 8 (gpt-oss)",
     "triton_kernels HopperMXScaleLayout"},
    {"scale_hopper_triton_w4", 1, 8, true, "N(m a=2 w=4 b=2 i=8) K(k c=2) -> (m w) (k a i c b)",
     "block scales by warp and lane of an mma, four warps",
     "triton_kernels HOPPER_SCALE, num_warps 4",
     "triton_kernels HopperMXScaleLayout"},
    {"scale_by_column_ue8m0", 1, 8, true, "N(b a=4) K(w k=4) -> w (b a) k",
     "UE8M0 scales, four of a row in a word, words by column, columns of whole 16 bytes",
     "DeepGEMM (SM100)",
     "DeepGEMM get_mn_major_tma_aligned_packed_ue8m0_tensor"},
    {"scale_by_column_f32", 1, 32, true, "N(b a=4) K -> K (b a)",
     "F32 scales by column, columns of whole 16 bytes",
     "DeepGEMM (SM90), scales of activations and of rows",
     "DeepGEMM get_mn_major_tma_aligned_tensor"},
    {"scale_utccp", 1, 8, true, "N(b a=4 i=32) K(w k=4) -> w (b i a) k",
     "UE8M0 words by column, in slots: in 128 rows those 32 apart side by side",
     "DeepGEMM UTCCP (SM100); one matrix of the scales of the mega MoE layouts",
     "DeepGEMM, utccp transpose of scale factors"},
    {"scale_aiter", 1, 8, true, "N(q p=8 b=2 i=16) K(c h=2 k=4) -> (q p) c (k i h b)",
     "UE8M0 scales in tiles of 32 x 8 by lane of an MFMA; rows padded to 256",
     "AITER a4w4 (gfx950), hipBLASLt MX pre-swizzle",
     "AITER e8m0_shuffle"},
    {"scale_aiter_gate_up", 1, 8, false, "M(p=2 n i=16) K(c h=2 k=4) -> n c (k i h p)",
     "scales of gate and up, a gate and an up byte side by side",
     "AITER a16w4, gate and up interleaved",
     "AITER shuffle_scale_a16w4"},

    /* ---- weights of 8 and 16 bits: matrix cores of AMD ---- */
    {"amd_16x32_8bit", 1, 8, false, "N(b i=16) K(c h=2 k=16) -> b c (h i k)",
     "FP8, INT8 or two FP4 a byte: tiles of 16 rows x 32 bytes, 16 bytes a lane",
     "AITER and CK pre-shuffle, layout (16, 16)",
     "AITER shuffle_weight"},
    {"amd_16x32_16bit", 1, 16, false, "N(b i=16) K(c h=4 k=8) -> b c (h i k)",
     "BF16 or FP16: tiles of 16 rows x 32 columns, 16 bytes a lane",
     "AITER and CK pre-shuffle, layout (16, 16); hipBLASLt ORDER_COL16_4R8",
     "AITER shuffle_weight; hipBLASLt manual, hipblasLtOrder_t"},
    {"amd_16x64_8bit", 1, 8, false, "N(b i=16) K(c h=4 k=16) -> b c (h i k)",
     "FP8 or two FP4 a byte: tiles of 16 rows x 64 bytes, 16 bytes a lane",
     "hipBLASLt ORDER_COL16_4R16 (FP8) and ORDER_COL16_4R32 (FP4), AITER a16w4",
     "hipBLASLt manual, hipblasLtOrder_t; AITER shuffle_weight_a16w4"},
    {"amd_16x64_gate_up", 1, 8, false, "M(p=2 b i=16) K(c h=4 k=16) -> (b p) c (h i k)",
     "amd_16x64_8bit, 16 rows of gate and of up in turns",
     "AITER a16w4, gate and up interleaved",
     "AITER shuffle_weight_a16w4"},

    /* ---- rows of gate and up, rows in the order of an epilogue ---- */
    {"gate_up_by_1", 1, 8, false, "M(p=2 b) K -> (b p) K", "a row of gate, its row of up",
     "gpt-oss, TRT-LLM gated activation (before the rows are shuffled)",
     "FlashInfer reorder_rows_for_gated_act_gemm"},
    {"gate_up_by_8", 1, 8, false, "M(p=2 b i=8) K -> (b p i) K", "8 rows of gate, 8 of up",
     "DeepGEMM mega MoE; TRT-LLM gated rows in shuffle blocks of 16",
     "DeepGEMM mega MoE weight transform"},
    {"gate_up_by_16", 1, 8, false, "M(p=2 b i=16) K -> (b p i) K", "16 rows of gate, 16 of up",
     "AITER and CK fused MoE", "AITER shuffle_weight, gate_up"},
    {"gate_up_by_32", 1, 8, false, "M(p=2 b i=32) K -> (b p i) K", "32 rows of gate, 32 of up",
     "fused gated epilogues of 64 columns", "by the name: no public order known to us"},
    {"gate_up_by_64", 1, 8, false, "M(p=2 b i=64) K -> (b p i) K", "64 rows of gate, 64 of up",
     "fused gated epilogues of 128 columns", "by the name: no public order known to us"},
    {"gate_up_by_128", 1, 8, false, "M(p=2 b i=128) K -> (b p i) K", "128 rows of gate, 128 of up",
     "fused gated epilogues of 256 columns", "by the name: no public order known to us"},
    {"up_gate", 1, 8, false, "M(p=2 b) K -> (~p b) K", "up before gate",
     "FlashInfer and TRT-LLM CUTLASS fused MoE (w3, then w1)", "vLLM, FlashInfer weight preparation of w13"},
    {"trtllm_rows_16", 1, 8, false, "N(b i=8 p=2) K -> (b p i) K", "in 16 rows even ones before odd ones",
     "TRT-LLM-gen, epilogue tiles of M not a multiple of 128", "FlashInfer shuffle_matrix_a, srcToDstBlk16RowMap"},
    {"trtllm_rows_32", 1, 8, false, "N(b i=8 p=4) K -> (b p i) K", "32 rows as a transposed 8 x 4",
     "TRT-LLM-gen, epilogue tiles of M a multiple of 128", "FlashInfer shuffle_matrix_a, srcToDstBlk32RowMap"},
    {"trtllm_gated_rows_32", 1, 8, false, "M(p=2 b i=8 o=2) K -> (b o p i) K", "gate_up_by_1, then trtllm_rows_32",
     "TRT-LLM-gen fused gated MoE", "FlashInfer reorder_rows_for_gated_act_gemm, shuffle_matrix_a"},
    {"block_major_k", 1, 8, false, "N K(b k=128) -> b N k", "128 bytes of K of all rows together",
     "TRT-LLM-gen BlockMajorK", "FlashInfer convert_to_block_layout"},
    {"rope_pairs_to_halves", 1, 16, false, "N(h d p=2) K -> (h p d) K",
     "rows of a rotary head: pairs side by side become halves; --shape h=HEADS",
     "Hugging Face Llama from Meta checkpoints", "transformers convert_llama_weights_to_hf"},
    {"rope_halves_to_pairs", 1, 16, false, "N(h p=2 d) K -> (h d p) K",
     "rows of a rotary head: halves become pairs side by side; --shape h=HEADS",
     "GGUF and GPT-J style rotary kernels", "llama.cpp convert_hf_to_gguf"},
    {"paged_key_16bit", 1, 16, false, "B T H D(d x=8) -> B H d T x", "keys of a page, 16 bytes of a token side by side",
     "vLLM paged attention, 16-bit keys", "vLLM reshape_and_cache"},

    /* ---- 4-bit weights ---- */
    {"gptq_int4", 1, 4, false, "K(b k=8) N -> b N k", "eight codes of a column in a word",
     "GPTQ checkpoints (qweight)", "AutoGPTQ, GPTQModel pack"},
    {"gptq_int8", 1, 8, false, "K(b k=4) N -> b N k", "four codes of a column in a word",
     "GPTQ checkpoints of 8 bits", "AutoGPTQ, GPTQModel pack"},
    {"awq_int4", 1, 4, false, "K N(b q=4 h=2) -> K b (h q)", "eight codes of a row in a word, even ones first",
     "AWQ GEMM (qweight, qzeros)", "AutoAWQ order map 0 2 4 6 1 3 5 7"},
    {"awq_gemv_fast", 1, 4, false, "N(n r=4) K(s d=2 a=4 b=4 p=2) -> n (s r d b p a)", "four rows by 64 columns, in words",
     "llm-awq and AutoAWQ GEMVFast, HQQ FT", "llm-awq pack_intweight, interleave 4, kstride 64"},
    {"exllama_int4", 1, 4, false, "B N k(q=4 h=2) -> B N (h q)", "words of gptq_int4, even codes first",
     "ExLlama v2 and vLLM gptq kernels, after sorting by g_idx", "ExLlamaV2 shuffle_4bit_8"},
    {"marlin_int4", 1, 4, false, "B(t r=2) N(n j=4 b=2 c=8) k(l=4 s=2) -> t (n c l j s b r)",
     "words of gptq_int4 into tiles of 16 x 64 by lane of an mma",
     "GPTQ-Marlin", "vLLM get_weight_perm(4), gptq_marlin_repack"},
    {"marlin_int4_awq", 1, 4, false, "K(t r=2 l=4 s=2) W(n j=4 b=2) x(h=2 q=4) -> t (n q h l j s b r)",
     "words of awq_int4 into tiles of 16 x 64 by lane of an mma",
     "AWQ-Marlin", "vLLM get_weight_perm(4), awq_marlin_repack"},
    {"marlin_fp4", 1, 4, false, "N(n j=4 b=2 c=8) K(t r=2 l=4 s=2) -> t (n c l j s b r)",
     "packed FP4 rows into the tiles of marlin_int4",
     "Marlin MXFP4 and NVFP4 weights", "vLLM prepare_fp4_layer_for_marlin"},
    {"marlin_int8", 1, 8, false, "B(t r=2 u=2) N(n j=4 b=2 c=8) k(v=2 s=2) -> t (n c u v j b s r)",
     "words of gptq_int8 into tiles of 16 x 64 by lane of an mma",
     "GPTQ-Marlin of 8 bits", "vLLM get_weight_perm(8), gptq_marlin_repack"},
    {"marlin_fp8", 1, 8, false, "N(n j=4 b=2 c=8) K(t r=2 u=2 v=2 s=2) -> t (n c u v j b s r)",
     "FP8 rows into the tiles of marlin_int8",
     "Marlin FP8 weights", "vLLM prepare_fp8_layer_for_marlin"},
    {"marlin_scale", 1, 16, false, "G N(b j=8 i=8) -> G (b i j)", "scales of groups: 64 columns as a transposed 8 x 8",
     "Marlin, more than one group", "vLLM get_scale_perms, scale_perm"},
    {"marlin_scale_channel", 1, 16, false, "G N(b h=4 i=4 l=2) -> G (b i h l)", "scales of channels, and biases",
     "Marlin, one group; bias", "vLLM get_scale_perms, scale_perm_single"},
    {"marlin_scale_mxfp4", 1, 8, false, "N(b h=2 p=2 q=2 i=8) G -> G (b i h q p)",
     "UE8M0 scales, transposed, marlin_scale, then 0 2 1 3 in every four",
     "Marlin MXFP4 with 16-bit activations", "vLLM mxfp4_marlin_process_scales"},
    {"marlin_zero_int4", 1, 4, false, "G N(b q=4 h=2 i=8) -> G (b i h q)", "zero points, one code a column",
     "Marlin with zero points", "vLLM marlin_zero_points"},
    {"tinygemm_int4_8", 1, 4, false, "N(n i=8) K(o p=4 t=2 r=2 l=4 s=2) -> n o (i l) (p s t r)",
     "codes by lane of an mma, eight tiles of 16 columns",
     "torch _weight_int4pack_mm, innerKTiles 8 (torchao tinygemm)", "torchao unpack_int4_packed"},
    {"tinygemm_int4_4", 1, 4, false, "N(n i=8) K(o p=2 t=2 r=2 l=4 s=2) -> n o (i l) (p s t r)",
     "codes by lane of an mma, four tiles of 16 columns",
     "torch _weight_int4pack_mm, innerKTiles 4", "torchao unpack_int4_packed"},
    {"tinygemm_int4_2", 1, 4, false, "N(n i=8) K(o t=2 r=2 l=4 s=2) -> n o (i l) (s t r)",
     "codes by lane of an mma, two tiles of 16 columns",
     "torch _weight_int4pack_mm, innerKTiles 2", "torchao unpack_int4_packed"},
    {"int4pack_cpu_64", 1, 4, false, "N(n h=2 j=32) K -> n K (j h)", "64 rows: row j in the low half, j + 32 in the high",
     "torch _weight_int4pack_mm_for_cpu, AVX-512", "PyTorch int4mm_kernel.cpp"},
    {"int4pack_cpu_32", 1, 4, false, "N(n h=2 j=16) K -> n K (j h)", "32 rows: row j in the low half, j + 16 in the high",
     "torch _weight_int4pack_mm_for_cpu, AVX2", "PyTorch int4mm_kernel.cpp"},
    {"qserve_int4", 1, 4, false, "N(n a=2 b=2 i=8) K(c e=2 d=4 f=4) -> n c (i d e b f a)",
     "32 x 32 codes by lane, rows 16 apart in one byte",
     "QServe W4A8", "OmniServe W4A8 linear, from_linear"},
    {"qserve_scale", 1, 8, false, "N(b j=4 i=8) G -> G (b i j)", "scales and zeros of groups, transposed, 32 columns as 8 x 4",
     "QServe W4A8 by groups", "OmniServe W4A8 linear, from_linear"},
    {"hqq_int4", 1, 4, false, "R(h=2 r) C -> r C ~h", "the first half of the rows in the high halves of bytes",
     "HQQ 4 bits", "HQQ BitPack.pack_4bit_u8"},
    {"high_nibble_first", 1, 4, false, "C(b h=2) -> b ~h", "the first code of a byte in its high half",
     "bitsandbytes NF4 and FP4; torch's own input of _convert_weight_to_int4pack", "bitsandbytes quantize_4bit"},
    {"triton_hopper_mxfp4", 1, 8, false, "N(m w=2 t=4 s=2) K(k a=4 b=2 c=4) -> (m t) (k s c a b w)",
     "bytes of FP4 by lane of an mma; newer versions exchange bits inside words afterwards",
     "triton_kernels HOPPER_VALUE, mma version 3, the bytes only", "triton_kernels HopperMXValueLayout"},

    /* ---- 2:4 sparse ---- */
    {"sparse_meta_16bit", 1, 16, false, "M(r e=8 d=2 c=2 b=2) C(c0 x=2) -> c0 (r c e b x d)", "metadata words of a 2:4 sparse matrix",
     "CUTLASS SM80 sparse GEMM of 16-bit values, torch semi-structured, Sparse-Marlin", "CUTLASS reorder_meta, ColumnMajorInterleaved<2>"},
    {"sparse_meta_32bit", 1, 32, false, "M(r e=8 d=2 c=2 b=2) C(c0 x=2) -> c0 (r c e b x d)", "metadata words of a 2:4 sparse matrix",
     "CUTLASS SM80 sparse GEMM of 8-bit values, torch semi-structured", "CUTLASS reorder_meta, ColumnMajorInterleaved<2>"},

    /* ---- cuBLASLt's orders for INT8 ---- */
    {"cublaslt_col32", 1, 8, true, "R C(b c=32) -> b R c", "32 columns of all rows together",
     "cuBLASLt ORDER_COL32 (INT8)", "cuBLASLt header, cublasLtOrder_t"},
    {"cublaslt_col4_4r2_8c", 1, 8, true, "R(t q=4 p=2) C(b e=4 r=2 c=4) -> b t (p e r q c)", "tiles of 8 x 32, even rows before odd ones",
     "cuBLASLt ORDER_COL4_4R2_8C (INT8, Turing)", "cuBLASLt header; FasterTransformer index functions"},
    {"cublaslt_col32_2r_4r4", 1, 8, true, "R(t a=4 q=4 p=2) C(b c=32) -> b t (q a p c)", "tiles of 32 x 32",
     "cuBLASLt ORDER_COL32_2R_4R4 (INT8, Ampere)", "cuBLASLt header, cublasLtOrder_t"},

    /* ---- CPUs and other accelerators ---- */
    {"vnni_16bit", 1, 16, true, "K(b k=2) N -> b N k",
     "pairs of K side by side", "AMX and AVX512_BF16 products", "oneDNN tags with inner 2a"},
    {"vnni_8bit", 1, 8, true, "K(b k=4) N -> b N k", "fours of K side by side", "AMX and VNNI products", "oneDNN tags with inner 4a"},
    {"onednn_BA16a64b2a", 1, 16, true, "K(t s=16 k=2) N(n c=64) -> n t (s c k)",
     "tiles of 32 x 64, pairs of K", "oneDNN matmul weights, BF16", "oneDNN format tags"},
    {"onednn_BA16a64b4a", 1, 8, true, "K(t s=16 k=4) N(n c=64) -> n t (s c k)",
     "tiles of 64 x 64, fours of K", "oneDNN matmul weights, INT8", "oneDNN format tags"},
    {"onednn_OIhw16i16o", 1, 32, true, "O(p o=16) I(q i=16) h w -> p q h w (i o)",
     "blocks of 16 x 16 channels", "oneDNN convolution, F32", "oneDNN format tags"},
    {"onednn_OIhw8i16o2i", 1, 16, true, "O(p o=16) I(q a=8 b=2) h w -> p q h w (a o b)",
     "blocks of 16 x 16 channels, pairs", "oneDNN convolution, BF16", "oneDNN format tags"},
    {"onednn_OIhw4i16o4i", 1, 8, true, "O(p o=16) I(q a=4 b=4) h w -> p q h w (a o b)",
     "blocks of 16 x 16 channels, fours", "oneDNN convolution, INT8", "oneDNN format tags"},
    {"onednn_nChw16c", 1, 32, true, "n C(q c=16) h w -> n q h w c",
     "16 channels side by side", "oneDNN, OpenVINO, TVM NCHW16c", "oneDNN format tags"},
    {"onednn_nChw8c", 1, 32, true, "n C(q c=8) h w -> n q h w c",
     "8 channels side by side", "oneDNN, OpenVINO, TVM NCHW8c", "oneDNN format tags"},
    {"ascend_nz_16bit", 1, 16, true, "N(n i=16) K(k c=16) -> k n i c",
     "fractals of 16 x 16, by column", "Ascend FRACTAL_NZ, 16 bits", "CANN manual, FRACTAL_NZ"},
    {"ascend_nz_8bit", 1, 8, true, "N(n i=16) K(k c=32) -> k n i c",
     "fractals of 16 x 32, by column", "Ascend FRACTAL_NZ, 8 bits", "CANN manual, FRACTAL_NZ"},
    {"tenstorrent_tile_16bit", 1, 16, true, "R(t f=2 i=16) C(u g=2 c=16) -> t u (f g i c)",
     "tiles of 32 x 32 in four faces", "TT-Metalium TILE_LAYOUT, BF16", "TT-Metalium manual, tiles and faces"},
};
/* clang-format on */

int32_t lp_chain_known_count(void)
{
    return (int32_t)(sizeof known / sizeof known[0]);
}

const lp_chain_known *lp_chain_known_at(int32_t index)
{
    return index < 0 || index >= lp_chain_known_count() ? NULL : &known[index];
}

const lp_chain_known *lp_chain_known_find(const char *id)
{
    for (int32_t i = 0; i < lp_chain_known_count(); i++)
        if (strcmp(known[i].id, id) == 0)
            return &known[i];
    return NULL;
}
