/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Layouts of public kernels as chains: scales, values of whole bytes, rows, and bytes and words of CPUs and other
 * accelerators; codes of less than a byte, and packets, are in chain_known_codes.c. Each was written down from the
 * public code or manual named in its last field; tests/python/chain_numpy.py composes the same orders step by step from
 * those.
 *
 * K is the dimension of the products, N that of the results (M: rows of gate, then rows of up), G groups of K.
 */
#include "layouts/layout_private.h"

/* clang-format off */
static const lp_chain_known known[] = {
    /* ---- block scales, one byte each ---- */
    {"scale_128x4", 1, 8, true, "N(r a=4 i=32) K(c k=4) -> r c (i a k)",
     "block scales in tiles of 128 x 4, four rows 32 apart side by side",
     "cuBLASLt VEC16_UE4M3 and VEC32_UE8M0, CUTLASS block-scaled (SM100, SM120), FlashInfer and TRT-LLM 128x4, torchao, "
     "triton_kernels GFX1250_SCALE",
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
     "AITER a4w4 (gfx950), hipBLASLt MX pre-swizzle; triton_kernels CDNA4_SCALE (rows a multiple of 32)",
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
    {"amd_32x32_8bit", 1, 8, false, "N(b i=32) K(c h=2 k=16) -> b c (h i k)",
     "tiles of 32 x 32 by lane of a matrix core, sixteen bytes a lane",
     "AITER pre-shuffle, layout (32, 16)",
     "AITER shuffle_weight"},

    /* ---- shared memory as TMA writes it, for copies in bulk ---- */
    {"swizzle_128b", 1, 8, false, "N(r a=8) K(b c=8 v=16) -> b r (a c^a v)", "rows of 128 bytes, chunks of 16 turned by the row",
     "wgmma and tcgen05 K-major tiles of 128 bytes, SWIZZLE_128B", "PTX ISA, swizzling modes; CUTLASS Swizzle<3,4,3>"},
    {"swizzle_64b", 1, 8, false, "N(r a=4 s=2) K(b c=4 v=16) -> b r (a s c^a v)", "rows of 64 bytes, chunks of 16 turned by pairs of rows",
     "wgmma and tcgen05 K-major tiles of 64 bytes, SWIZZLE_64B", "PTX ISA, swizzling modes; CUTLASS Swizzle<2,4,3>"},
    {"swizzle_32b", 1, 8, false, "N(r a=2 s=4) K(b c=2 v=16) -> b r (a s c^a v)", "rows of 32 bytes, chunks of 16 turned by fours of rows",
     "wgmma and tcgen05 K-major tiles of 32 bytes, SWIZZLE_32B", "PTX ISA, swizzling modes; CUTLASS Swizzle<1,4,3>"},

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
    {"trtllm_up_gate_rows_32", 1, 8, false, "M(p=2 b i=8 o=2) K -> (b o ~p i) K", "up_gate, then trtllm_gated_rows_32",
     "TRT-LLM-gen fused gated MoE, from w1, then w3", "vLLM, w3 before w1 for TRT-LLM-gen kernels; as trtllm_gated_rows_32"},
    {"trtllm_scale_rows_32", 1, 8, false, "N(r a=4 i=8 p=4) K(c k=4) -> r c (p i a k)", "scales: trtllm_rows_32, then scale_128x4",
     "TRT-LLM-gen, epilogue tiles of M a multiple of 128", "FlashInfer shuffle_matrix_sf_a"},
    {"trtllm_scale_gated_rows_32", 1, 8, false, "M(p=2 r a=4 i=8 o=2) K(c k=4) -> r c (o p i a k)",
     "scales: trtllm_gated_rows_32, then scale_128x4",
     "TRT-LLM-gen fused gated MoE", "FlashInfer reorder_rows_for_gated_act_gemm, shuffle_matrix_sf_a"},
    {"block_major_k", 1, 8, false, "N K(b k=128) -> b N k", "128 bytes of K of all rows together",
     "TRT-LLM-gen BlockMajorK", "FlashInfer convert_to_block_layout"},
    {"trtllm_block_major_rows_32", 1, 8, false, "N(b i=8 p=4) K(c k=128) -> c (b p i) k",
     "trtllm_rows_32, then block_major_k",
     "TRT-LLM-gen MXINT4 and BF16 MoE, BlockMajorK", "FlashInfer shuffle_matrix_a, convert_to_block_layout"},
    {"rope_pairs_to_halves", 1, 16, false, "N(h d p=2) K -> (h p d) K",
     "rows of a rotary head: pairs side by side become halves; --shape h=HEADS",
     "Hugging Face Llama from Meta checkpoints", "transformers convert_llama_weights_to_hf"},
    {"rope_halves_to_pairs", 1, 16, false, "N(h p=2 d) K -> (h d p) K",
     "rows of a rotary head: halves become pairs side by side; --shape h=HEADS",
     "GGUF and GPT-J style rotary kernels", "llama.cpp convert_hf_to_gguf"},
    {"qkv_groups", 1, 16, false, "R(g n d | g d | g d) K -> g (n d | d | d) K",
     "query, key and value rows one behind the other become groups of query heads, a key head, a value head; --shape n=,d=",
     "Megatron-LM and NeMo linear_qkv, InternLM2 wqkv, Falcon", "Megatron-LM, converters of linear_qkv"},
    {"qkv_from_groups", 1, 16, false, "G R(n d | d | d) K -> (G n d | G d | G d) K",
     "qkv_groups turned back; --shape d=",
     "fused qkv of vLLM, SGLang and TRT-LLM", "Megatron-LM, converters of linear_qkv"},
    {"qkvz_from_groups", 1, 16, false, "G R(d | d | n v | n v) K -> (G d | G d | G n v | G n v) K",
     "query, key, value and gate rows of each key head become all of each kind; --shape d=,v=",
     "kernels of Qwen3-Next's linear attention", "transformers Qwen3NextGatedDeltaNet, fix_query_key_value_ordering"},
    {"qkv_from_heads", 1, 16, false, "R(h s=3 d) K -> (s h d) K",
     "query, key and value rows of each head: all queries first; --shape d=WIDTH",
     "fused qkv of vLLM and SGLang, from GPT-NeoX and BLOOM", "Hugging Face GPTNeoXAttention; vLLM gpt_neox load_weights"},
    {"paged_key_16bit", 1, 16, false, "B T H D(d x=8) -> B H d T x", "keys of a page, 16 bytes of a token side by side",
     "vLLM paged attention, 16-bit keys", "vLLM reshape_and_cache"},
    {"kv_heads_first", 1, 16, false, "P T H D -> P H T D", "pages of tokens (NHD) as pages of heads (HND)",
     "FlashInfer and TRT-LLM caches, HND", "FlashInfer, KV-cache layout"},
    {"paged_value_aiter_16bit", 1, 16, false, "B T(t x=8) H D -> B H t D x", "paged values: eight tokens of a column side by side",
     "AITER paged attention, 16-bit values", "vLLM rocm_aiter_fa, reshape_and_cache_shuffle"},

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
    {"sglang_amx_16bit", 1, 16, false, "N(b i=32) K(k p=2) -> b k i p", "32 rows, pairs of K side by side",
     "SGLang CPU products, BF16 and FP16", "SGLang convert_weight_packed, pack_vnni"},
    {"sglang_amx_fp8", 1, 8, false, "N(b i=32) K(k p=2) -> b k i p", "32 rows, pairs of K side by side",
     "SGLang CPU products, FP8", "SGLang convert_weight_packed, pack_vnni"},
    {"kt_amx_16bit", 1, 16, false, "N(b n=8 h=2 i=16) K(q k w=16 v=2) -> b q n k (h w i v)",
     "blocks of 256 rows, in them tiles of 32 x 32, words of two; --shape k=STEPS of 32 in a block of K",
     "KTransformers AMX products, BF16", "kt-kernel BufferB, transpose_16x16_32bit"},
    {"kt_amx_8bit", 1, 8, false, "N(b n=8 h=2 i=16) K(q k w=16 v=4) -> b q n k (h w i v)",
     "blocks of 256 rows, in them tiles of 32 x 64, words of four; --shape k=STEPS of 64 in a block of K",
     "KTransformers AMX products, INT8", "kt-kernel BufferB, transpose_16x16_32bit"},
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
    {"onednn_OIhw16i16o2i", 1, 16, true, "O(p o=16) I(q a=16 b=2) h w -> p q h w (a o b)",
     "channels in tiles of 32 x 16, pairs of inputs together",
     "oneDNN convolution on AMX, BF16: ABcd16b16a2b", "oneDNN memory formats"},
    {"onednn_nChw16c", 1, 32, true, "n C(q c=16) h w -> n q h w c",
     "16 channels side by side", "oneDNN, OpenVINO, TVM NCHW16c", "oneDNN format tags"},
    {"onednn_nChw8c", 1, 32, true, "n C(q c=8) h w -> n q h w c",
     "8 channels side by side", "oneDNN, OpenVINO, TVM NCHW8c", "oneDNN format tags"},
    {"tensorrt_chw32", 1, 8, true, "n C(q c=32) h w -> n q h w c", "32 channels of a pixel together",
     "TensorRT kCHW32, INT8", "TensorRT TensorFormat"},
    {"tensorrt_hwc8", 1, 16, true, "n C(q c=8) h w -> n h w (q c)", "channels last, padded to eight",
     "TensorRT kHWC8, FP16", "TensorRT TensorFormat"},
    {"ascend_nz_16bit", 1, 16, true, "N(n i=16) K(k c=16) -> k n i c",
     "fractals of 16 x 16, by column", "Ascend FRACTAL_NZ, 16 bits", "CANN manual, FRACTAL_NZ"},
    {"ascend_nz_8bit", 1, 8, true, "N(n i=16) K(k c=32) -> k n i c",
     "fractals of 16 x 32, by column", "Ascend FRACTAL_NZ, 8 bits", "CANN manual, FRACTAL_NZ"},
    {"ascend_nz_4bit", 1, 4, true, "N(n i=16) K(k c=64) -> k n i c", "columns of tiles of 16 x 64",
     "Ascend FRACTAL_NZ, 4 bits", "CANN manual, FRACTAL_NZ: 32 bytes a row of a tile"},
    {"tenstorrent_tile_16bit", 1, 16, true, "R(t f=2 i=16) C(u g=2 c=16) -> t u (f g i c)",
     "tiles of 32 x 32 in four faces", "TT-Metalium TILE_LAYOUT, BF16", "TT-Metalium manual, tiles and faces"},
};
/* clang-format on */

static const lp_chain_list *const lists[] = {&(const lp_chain_list){known, sizeof known / sizeof known[0]},
                                             &lp_chains_of_codes, &lp_chains_elsewhere};

enum { LISTS = sizeof lists / sizeof lists[0] };

int32_t lp_chain_known_count(void)
{
    int32_t count = 0;
    for (int i = 0; i < LISTS; i++)
        count += lists[i]->count;
    return count;
}

const lp_chain_known *lp_chain_known_at(int32_t index)
{
    for (int i = 0; i < LISTS && index >= 0; index -= lists[i++]->count)
        if (index < lists[i]->count)
            return &lists[i]->chain[index];
    return NULL;
}

const lp_chain_known *lp_chain_known_find(const char *id)
{
    for (int32_t i = 0; i < lp_chain_known_count(); i++) {
        const lp_chain_known *const one = lp_chain_known_at(i);
        if (one != NULL && strcmp(one->id, id) == 0)
            return one;
    }
    return NULL;
}
