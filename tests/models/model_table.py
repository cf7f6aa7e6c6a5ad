# SPDX-License-Identifier: Apache-2.0
"""The published models that built-in loaders are tested on: what of their config.json loaders read, and what the small
copies of them change."""
import model_shapes as shapes
from model_shapes import Model


def config(architecture, model_type, **more):
    return {"architectures": [architecture], "model_type": model_type, **more}


def decoder(architecture, model_type, layers, hidden, intermediate, heads, kv_heads, vocab, **more):
    return config(architecture, model_type, num_hidden_layers=layers, hidden_size=hidden, intermediate_size=intermediate,
                  num_attention_heads=heads, num_key_value_heads=kv_heads, vocab_size=vocab, **more)


def nested(architecture, model_type, text):
    return {"architectures": [architecture], "model_type": model_type, "text_config": text}


SMALL = dict(num_hidden_layers=2, hidden_size=64, intermediate_size=96, num_attention_heads=8, num_key_value_heads=2, vocab_size=259)
SMALL_HEADS = dict(SMALL, head_dim=16)
SMALL_QWEN_MOE = dict(SMALL_HEADS, num_experts=8, moe_intermediate_size=32)
NVFP4_MOE = dict(SMALL_HEADS, num_experts=4, moe_intermediate_size=256, hidden_size=256)
SMALL_LATENT = dict(num_hidden_layers=2, hidden_size=256, intermediate_size=512, moe_intermediate_size=256, num_attention_heads=4,
                    kv_lora_rank=128, q_lora_rank=128, qk_nope_head_dim=64, qk_rope_head_dim=64, v_head_dim=64, vocab_size=259,
                    n_routed_experts=8, first_k_dense_replace=1)
SMALL_LATENT_LITE = dict(SMALL_LATENT, q_lora_rank=None)

DEEPSEEK_V3 = config("DeepseekV3ForCausalLM", "deepseek_v3", num_hidden_layers=61, hidden_size=7168, intermediate_size=18432,
                     moe_intermediate_size=2048, n_routed_experts=256, n_shared_experts=1, first_k_dense_replace=3,
                     num_attention_heads=128, num_key_value_heads=128, q_lora_rank=1536, kv_lora_rank=512, qk_nope_head_dim=128,
                     qk_rope_head_dim=64, v_head_dim=128, num_nextn_predict_layers=1, vocab_size=129280)
DEEPSEEK_R1 = {k: v for k, v in DEEPSEEK_V3.items() if k != "num_nextn_predict_layers"}
GEMMA3_TEXT = decoder("", "gemma3_text", 34, 2560, 10240, 8, 4, 262208, head_dim=256, tie_word_embeddings=True)
QWEN3_MOE = decoder("Qwen3MoeForCausalLM", "qwen3_moe", 48, 2048, 6144, 32, 4, 151936, head_dim=128, num_experts=128,
                    moe_intermediate_size=768)
LLAMA_8B = decoder("LlamaForCausalLM", "llama", 32, 4096, 14336, 32, 8, 128256)
GPT_OSS = decoder("GptOssForCausalLM", "gpt_oss", 24, 2880, 2880, 64, 8, 201088, head_dim=64, num_local_experts=32)
SMALL_GPT_OSS = dict(SMALL_HEADS, intermediate_size=128, num_local_experts=4)


LLAMA4_TEXT = dict(decoder("", "llama4_text", 48, 5120, 8192, 40, 8, 202048, head_dim=128, num_local_experts=16,
                           intermediate_size_mlp=16384, interleave_moe_layer_step=1))
MAVERICK_SMALL = dict(LLAMA4_TEXT, **SMALL_HEADS, num_local_experts=4, intermediate_size_mlp=128, interleave_moe_layer_step=2)
QWEN3_VL_TEXT = dict(decoder("", "qwen3_vl_moe_text", 48, 2048, 6144, 32, 4, 151936, head_dim=128, num_experts=128,
                             moe_intermediate_size=768))

MODELS = [
    # ---- dense ----
    Model("Llama-3.1-8B", "dense", LLAMA_8B, SMALL, shapes.llama, 8_030_261_248, (1, 2, 4)),
    Model("Llama-3.1-8B FP8 ModelOpt", "dense", LLAMA_8B, SMALL, lambda c: shapes.llama(c, kind=shapes.modelopt_fp8)),
    Model("Llama-3.1-8B NVFP4 ModelOpt", "dense", LLAMA_8B, SMALL, lambda c: shapes.llama(c, kind=shapes.modelopt_nvfp4)),
    Model("Llama-3.1-8B NVFP4 compressed-tensors", "dense", LLAMA_8B, SMALL,
          lambda c: shapes.llama(c, kind=shapes.compressed_nvfp4)),
    Model("Llama-3.1-8B FP8-dynamic compressed-tensors", "dense", LLAMA_8B, SMALL,
          lambda c: shapes.llama(c, kind=shapes.compressed_fp8)),
    Model("Llama-3.1-8B W4A16 compressed-tensors", "dense", LLAMA_8B, dict(SMALL, intermediate_size=128),
          lambda c: shapes.llama(c, kind=shapes.compressed_w4a16)),
    Model("Mistral-7B-v0.3", "dense", decoder("MistralForCausalLM", "mistral", 32, 4096, 14336, 32, 8, 32768), SMALL,
          shapes.llama, 7_248_023_552),
    Model("Qwen2.5-7B", "dense", decoder("Qwen2ForCausalLM", "qwen2", 28, 3584, 18944, 28, 4, 152064), SMALL,
          lambda c: shapes.llama(c, qkv_bias=True), 7_615_616_512, (1, 2, 4), full_tp=4),
    Model("Qwen3-8B", "dense", decoder("Qwen3ForCausalLM", "qwen3", 36, 4096, 12288, 32, 8, 151936, head_dim=128),
          SMALL_HEADS, lambda c: shapes.llama(c, norms_of_heads=True), 8_190_735_360),
    Model("gemma-7b", "dense", decoder("GemmaForCausalLM", "gemma", 28, 3072, 24576, 16, 16, 256000, head_dim=256,
                                       tie_word_embeddings=True),
          dict(SMALL_HEADS, num_key_value_heads=8), shapes.llama, 8_537_680_896),
    Model("gemma-2-9b", "dense", decoder("Gemma2ForCausalLM", "gemma2", 42, 3584, 14336, 16, 8, 256000, head_dim=256,
                                         tie_word_embeddings=True),
          SMALL_HEADS, lambda c: shapes.llama(c, norms=shapes.GEMMA_NORMS), 9_241_705_984),
    Model("gemma-3-1b", "dense", decoder("Gemma3ForCausalLM", "gemma3_text", 26, 1152, 6912, 4, 1, 262144, head_dim=256,
                                         tie_word_embeddings=True),
          dict(SMALL_HEADS, num_attention_heads=4, num_key_value_heads=1),
          lambda c: shapes.llama(c, norms=shapes.GEMMA_NORMS, norms_of_heads=True), 999_885_952, full_tp=4),
    Model("gemma-3-4b", "dense", dict(nested("Gemma3ForConditionalGeneration", "gemma3", GEMMA3_TEXT),
                                      vision_config=dict(hidden_size=1152, intermediate_size=4304, num_hidden_layers=27,
                                                         patch_size=14, image_size=896)),
          {"text_config": dict(GEMMA3_TEXT, **SMALL_HEADS),
           "vision_config": dict(hidden_size=24, intermediate_size=40, num_hidden_layers=3, patch_size=4, image_size=8)},
          shapes.gemma3_with_images, 4_300_079_472, full_tp=4, rest="decline"),
    Model("granite-3.1-8b", "dense", decoder("GraniteForCausalLM", "granite", 40, 4096, 12800, 32, 8, 49155,
                                             tie_word_embeddings=True),
          SMALL, shapes.llama, 8_170_848_256),
    Model("SmolLM3-3B", "dense", decoder("SmolLM3ForCausalLM", "smollm3", 36, 2048, 11008, 16, 4, 128256,
                                         tie_word_embeddings=True),
          SMALL, shapes.llama, 3_075_098_624, full_tp=4),
    Model("c4ai-command-r-v01", "dense", decoder("CohereForCausalLM", "cohere", 40, 8192, 22528, 64, 64, 256000,
                                                 tie_word_embeddings=True),
          dict(SMALL, num_key_value_heads=8), shapes.cohere, 34_980_831_232),
    Model("Minitron-8B", "dense", decoder("NemotronForCausalLM", "nemotron", 32, 4096, 16384, 48, 8, 256000, head_dim=128),
          SMALL_HEADS, shapes.nemotron, 0),
    Model("OLMo-2-1124-7B", "dense", decoder("Olmo2ForCausalLM", "olmo2", 32, 4096, 11008, 32, 32, 100352),
          dict(SMALL, num_key_value_heads=8), shapes.olmo2, 7_298_617_344),
    Model("Phi-3-mini-4k", "dense", decoder("Phi3ForCausalLM", "phi3", 32, 3072, 8192, 32, 32, 32064), SMALL,
          shapes.phi3, 3_821_079_552, (1, 2, 4)),
    Model("GLM-4-9B-0414", "dense", decoder("Glm4ForCausalLM", "glm4", 40, 4096, 13696, 32, 2, 151552, head_dim=128),
          SMALL_HEADS, shapes.glm4, 9_400_279_040, (1, 4)),
    Model("phi-2", "dense", decoder("PhiForCausalLM", "phi", 32, 2560, 10240, 32, 32, 51200),
          dict(SMALL, num_key_value_heads=8), shapes.phi2, 2_779_683_840),
    Model("starcoder2-3b", "dense", decoder("Starcoder2ForCausalLM", "starcoder2", 30, 3072, 12288, 24, 2, 49152,
                                            tie_word_embeddings=True),
          SMALL, shapes.starcoder2, 3_030_371_328),
    # ---- experts ----
    Model("Mixtral-8x7B-v0.1", "moe", decoder("MixtralForCausalLM", "mixtral", 32, 4096, 14336, 32, 8, 32000,
                                              num_local_experts=8),
          dict(SMALL, num_local_experts=4), shapes.mixtral, 46_702_792_704, (1, 2), (2, 4), ((4, 2),)),
    Model("Phi-3.5-MoE", "moe", decoder("PhiMoEForCausalLM", "phimoe", 32, 4096, 6400, 32, 8, 32064, num_local_experts=16),
          dict(SMALL, num_local_experts=4), lambda c: shapes.mixtral(c, bias=True), 41_873_153_344, (1, 2), (2,)),
    Model("MiniMax-M2", "moe", decoder("MiniMaxM2ForCausalLM", "minimax_m2", 62, 3072, 1536, 48, 8, 200064, head_dim=128,
                                       num_local_experts=256),
          dict(SMALL, hidden_size=128, head_dim=128, num_attention_heads=4, intermediate_size=256, num_local_experts=4),
          lambda c: shapes.mixtral(c, shapes.block_fp8, correction=True, norms=True), 228_703_644_928, (1, 2), (2,), full_tp=4),
    Model("Qwen1.5-MoE-A2.7B", "moe", decoder("Qwen2MoeForCausalLM", "qwen2_moe", 24, 2048, 5632, 16, 16, 151936, num_experts=60,
                                              moe_intermediate_size=1408, shared_expert_intermediate_size=5632),
          dict(SMALL, num_experts=6, moe_intermediate_size=32, shared_expert_intermediate_size=128),
          lambda c: shapes.qwen_moe(c, qkv_bias=True), 14_315_784_192, (1, 2), (3,)),
    Model("Qwen3-30B-A3B", "moe", QWEN3_MOE, SMALL_QWEN_MOE, lambda c: shapes.qwen_moe(c, norms=True), 30_532_122_624, (1, 2),
          (2, 8), full_tp=4),
    Model("Qwen3-30B-A3B FP8", "moe", QWEN3_MOE, dict(SMALL_HEADS, num_experts=4, moe_intermediate_size=256, hidden_size=128),
          lambda c: shapes.qwen_moe(c, shapes.block_fp8, norms=True), 0, (1, 2), (2,), full_tp=2),
    Model("Qwen3-30B-A3B FP8 ModelOpt", "moe", QWEN3_MOE, SMALL_QWEN_MOE,
          lambda c: shapes.qwen_moe(c, shapes.modelopt_fp8, norms=True), 0, (1, 2), (2,), full_tp=4),
    Model("Qwen3-30B-A3B FP8-dynamic compressed-tensors", "moe", QWEN3_MOE, SMALL_QWEN_MOE,
          lambda c: shapes.qwen_moe(c, shapes.compressed_fp8, norms=True), 0, (1, 2), (2,), full_tp=4),
    Model("Qwen3-30B-A3B NVFP4 compressed-tensors", "megamoe", QWEN3_MOE, NVFP4_MOE,
          lambda c: shapes.qwen_moe(c, shapes.compressed_nvfp4, norms=True), 0, (1,), (2,), full_tp=1,
          loader_small="moe"),
    Model("Qwen3-30B-A3B NVFP4 compressed-tensors, kernel layouts", "megamoe", QWEN3_MOE, NVFP4_MOE,
          lambda c: shapes.qwen_moe(c, shapes.compressed_nvfp4, norms=True), 0, (1, 2), (2,), full_tp=2),
    Model("DeepSeek-R1 NVFP4 ModelOpt, kernel layouts", "megamoe", DEEPSEEK_R1, dict(SMALL_LATENT, n_routed_experts=4),
          lambda c: shapes.deepseek(c, shapes.modelopt_nvfp4, shapes.linear), 0, (1, 2), (2,)),
    Model("Qwen3-30B-A3B W4A16 compressed-tensors", "moe", QWEN3_MOE, dict(SMALL_QWEN_MOE, moe_intermediate_size=64),
          lambda c: shapes.qwen_moe(c, shapes.compressed_w4a16, norms=True), 0, (1, 2), (2,), full_tp=4),
    Model("Qwen3-Next-80B-A3B", "moe", decoder("Qwen3NextForCausalLM", "qwen3_next", 48, 2048, 5120, 16, 2, 151936, head_dim=256,
                                               num_experts=512, moe_intermediate_size=512, shared_expert_intermediate_size=512,
                                               linear_num_key_heads=16, linear_num_value_heads=32, linear_key_head_dim=128,
                                               linear_value_head_dim=128, linear_conv_kernel_dim=4, full_attention_interval=4),
          dict(SMALL_QWEN_MOE, num_experts=4, shared_expert_intermediate_size=32, linear_num_key_heads=4,
               linear_num_value_heads=8, linear_key_head_dim=4, linear_value_head_dim=6, full_attention_interval=2),
          shapes.qwen3_next, 81_324_862_720, (1, 2, 4), (2,)),
    Model("Qwen3-VL-30B-A3B (text)", "moe", nested("Qwen3VLMoeForConditionalGeneration", "qwen3_vl_moe", QWEN3_VL_TEXT),
          {"text_config": dict(QWEN3_VL_TEXT, **SMALL_QWEN_MOE)}, shapes.qwen3_vl_moe, 30_532_122_624, (1, 2), (2,), full_tp=4),
    Model("DeepSeek-V2-Lite", "moe", config("DeepseekV2ForCausalLM", "deepseek_v2", num_hidden_layers=27, hidden_size=2048,
                                            intermediate_size=10944, moe_intermediate_size=1408, n_routed_experts=64,
                                            n_shared_experts=2, first_k_dense_replace=1, num_attention_heads=16,
                                            num_key_value_heads=16, q_lora_rank=None, kv_lora_rank=512, qk_nope_head_dim=128,
                                            qk_rope_head_dim=64, v_head_dim=128, vocab_size=102400),
          SMALL_LATENT_LITE, shapes.deepseek, 15_706_484_224, (1, 2), (4,)),
    Model("DeepSeek-V3", "moe", DEEPSEEK_V3, SMALL_LATENT, lambda c: shapes.deepseek(c, shapes.block_fp8), 684_531_386_000,
          (1, 2), (4,), ((4, 2),)),
    Model("Kimi-K2", "moe", dict(DEEPSEEK_R1, architectures=["DeepseekV3ForCausalLM"], model_type="kimi_k2", num_attention_heads=64,
                                 num_key_value_heads=64, n_routed_experts=384, first_k_dense_replace=1, vocab_size=163840),
          SMALL_LATENT, lambda c: shapes.deepseek(c, shapes.block_fp8), 0, (1, 2), (4,)),
    Model("GLM-4.5-Air", "moe", decoder("Glm4MoeForCausalLM", "glm4_moe", 46, 4096, 10944, 96, 8, 151552, head_dim=128,
                                        n_routed_experts=128, moe_intermediate_size=1408, first_k_dense_replace=1,
                                        num_nextn_predict_layers=1),
          dict(SMALL_HEADS, n_routed_experts=4, moe_intermediate_size=32), shapes.glm4_moe, 110_468_824_832, (1, 2), (2,)),
    Model("gpt-oss-20b", "moe", GPT_OSS, SMALL_GPT_OSS, shapes.gpt_oss, 0, (1, 2), (2,), ((4, 2),), full_tp=2),
    Model("gpt-oss-20b BF16", "moe", GPT_OSS, SMALL_GPT_OSS, shapes.gpt_oss_bf16, 20_914_757_184, (1, 2), (2,), full_tp=2),
    Model("Llama-4-Scout (text)", "moe", nested("Llama4ForConditionalGeneration", "llama4", LLAMA4_TEXT),
          {"text_config": MAVERICK_SMALL}, shapes.llama4, 107_769_861_120, (1, 2), (2,)),
    Model("granite-3.0-1b-a400m", "moe", decoder("GraniteMoeForCausalLM", "granitemoe", 24, 1024, 512, 16, 8, 49155,
                                                 num_local_experts=32, tie_word_embeddings=True),
          dict(SMALL, num_local_experts=4), shapes.granite_moe, 1_334_628_352, (1, 2), (2,)),
    # ---- other structures ----
    Model("gpt2", "gpt2", config("GPT2LMHeadModel", "gpt2", n_layer=12, n_embd=768, n_head=12, n_positions=1024, vocab_size=50257),
          dict(n_layer=2, n_embd=48, n_head=4, n_positions=16, vocab_size=259), shapes.gpt2, 137_022_720, (1, 2, 4), full_tp=4),
    Model("falcon-7b", "falcon", config("FalconForCausalLM", "falcon", num_hidden_layers=32, hidden_size=4544,
                                        num_attention_heads=71, num_kv_heads=71, multi_query=True,
                                        new_decoder_architecture=False, vocab_size=65024),
          dict(num_hidden_layers=2, hidden_size=48, num_attention_heads=6, vocab_size=259), shapes.falcon, 6_921_720_704,
          (1, 2, 3), full_tp=1),
    Model("falcon-40b", "falcon", config("FalconForCausalLM", "falcon", num_hidden_layers=60, hidden_size=8192,
                                         num_attention_heads=128, num_kv_heads=8, multi_query=True,
                                         new_decoder_architecture=True, vocab_size=65024),
          dict(num_hidden_layers=2, hidden_size=64, num_attention_heads=8, num_kv_heads=2, vocab_size=259), shapes.falcon,
          41_303_293_952, (1, 2, 4)),
    Model("pythia-160m", "neox", config("GPTNeoXForCausalLM", "gpt_neox", num_hidden_layers=12, hidden_size=768,
                                        intermediate_size=3072, num_attention_heads=12, max_position_embeddings=2048,
                                        vocab_size=50304, tie_word_embeddings=False),
          dict(num_hidden_layers=2, hidden_size=64, intermediate_size=256, num_attention_heads=8, max_position_embeddings=16,
               vocab_size=259), shapes.neox, 0, (1, 2, 4), full_tp=4),
    Model("mamba-130m", "mamba", config("MambaForCausalLM", "mamba", num_hidden_layers=24, hidden_size=768, intermediate_size=1536,
                                        state_size=16, time_step_rank=48, conv_kernel=4, vocab_size=50280),
          dict(num_hidden_layers=2, hidden_size=24, intermediate_size=48, state_size=4, time_step_rank=6, vocab_size=259),
          shapes.mamba, 129_135_360, (1, 2)),
    Model("Mamba-Codestral-7B-v0.1", "mamba", config("Mamba2ForCausalLM", "mamba2", num_hidden_layers=64, hidden_size=4096,
                                                     num_heads=128, head_dim=64, n_groups=8, state_size=128, conv_kernel=4,
                                                     vocab_size=32768, tie_word_embeddings=False),
          dict(num_hidden_layers=2, hidden_size=32, num_heads=8, head_dim=8, n_groups=2, state_size=4, vocab_size=259),
          shapes.mamba2, 7_285_403_648, (1, 2, 4)),
    Model("roberta-base", "bert", config("RobertaModel", "roberta", num_hidden_layers=12, hidden_size=768, intermediate_size=3072,
                                         num_attention_heads=12, max_position_embeddings=514, type_vocab_size=1,
                                         vocab_size=50265),
          dict(num_hidden_layers=2, hidden_size=48, intermediate_size=96, num_attention_heads=4, max_position_embeddings=20,
               vocab_size=259), shapes.roberta, 124_645_632 + 514, (1, 2), full_tp=4),
    Model("xlm-roberta-base", "bert", config("XLMRobertaModel", "xlm-roberta", num_hidden_layers=12, hidden_size=768,
                                             intermediate_size=3072, num_attention_heads=12, max_position_embeddings=514,
                                             type_vocab_size=1, vocab_size=250002),
          dict(num_hidden_layers=2, hidden_size=48, intermediate_size=96, num_attention_heads=4, max_position_embeddings=20,
               vocab_size=259), shapes.roberta, 278_043_648 + 514, (1, 2), full_tp=4),
]
