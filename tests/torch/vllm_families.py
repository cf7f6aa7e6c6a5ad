# SPDX-License-Identifier: Apache-2.0
"""Tiny checkpoints with the names of real ones: transformers makes the model, the payload is random."""
import json
import os
import re

import torch
from safetensors.torch import save_file
import transformers as tf

COMMON = dict(hidden_size=128, intermediate_size=256, num_attention_heads=8, num_key_value_heads=2, num_hidden_layers=2,
              vocab_size=300, max_position_embeddings=128, tie_word_embeddings=False)


def llama():
    return tf.LlamaForCausalLM(tf.LlamaConfig(**COMMON))


def qwen3():
    return tf.Qwen3ForCausalLM(tf.Qwen3Config(**{**COMMON, "head_dim": 32}))


def qwen3_moe():
    return tf.Qwen3MoeForCausalLM(tf.Qwen3MoeConfig(**COMMON, head_dim=16, num_experts=8, num_experts_per_tok=2,
                                                    moe_intermediate_size=64, decoder_sparse_step=1, mlp_only_layers=[]))


def mixtral():
    return tf.MixtralForCausalLM(tf.MixtralConfig(**COMMON, num_local_experts=4, num_experts_per_tok=2))


def mamba2():
    return tf.Mamba2ForCausalLM(tf.Mamba2Config(hidden_size=128, num_hidden_layers=2, vocab_size=300, num_heads=8, head_dim=32,
                                                n_groups=4, state_size=16, expand=2, tie_word_embeddings=False))


def falcon():
    return tf.FalconForCausalLM(tf.FalconConfig(hidden_size=128, num_attention_heads=8, num_hidden_layers=2, vocab_size=300,
                                                new_decoder_architecture=True, num_kv_heads=4, max_position_embeddings=128))


def qwen2_vl():
    text = {**COMMON, "rope_scaling": {"type": "mrope", "mrope_section": [2, 3, 3]}}
    vision = dict(depth=2, embed_dim=64, hidden_size=128, num_heads=4, mlp_ratio=2, patch_size=14, spatial_merge_size=2,
                  temporal_patch_size=2, in_channels=3)
    return tf.Qwen2VLForConditionalGeneration(tf.Qwen2VLConfig(
        text_config=text, vision_config=vision, vision_start_token_id=290, vision_end_token_id=291, vision_token_id=292,
        image_token_id=293, video_token_id=294))


def phi3():
    return tf.Phi3ForCausalLM(tf.Phi3Config(**COMMON, pad_token_id=0))


def gpt2():
    return tf.GPT2LMHeadModel(tf.GPT2Config(n_embd=128, n_head=8, n_layer=2, vocab_size=300, n_positions=128))


def gpt_neox():
    return tf.GPTNeoXForCausalLM(tf.GPTNeoXConfig(hidden_size=128, intermediate_size=256, num_attention_heads=8,
                                                  num_hidden_layers=2, vocab_size=300, max_position_embeddings=128))


def gemma2():
    return tf.Gemma2ForCausalLM(tf.Gemma2Config(**{**COMMON, "head_dim": 16, "tie_word_embeddings": True}))


def qwen3_next():
    return tf.Qwen3NextForCausalLM(tf.Qwen3NextConfig(
        **COMMON, head_dim=16, num_experts=8, num_experts_per_tok=2, moe_intermediate_size=64, shared_expert_intermediate_size=64,
        decoder_sparse_step=1, linear_num_key_heads=4, linear_num_value_heads=8, linear_key_head_dim=16, linear_value_head_dim=16,
        linear_conv_kernel_dim=4, layer_types=["linear_attention", "full_attention"], mlp_only_layers=[]))


DEEPSEEK = dict(hidden_size=256, intermediate_size=512, moe_intermediate_size=512, num_hidden_layers=2, num_attention_heads=8,
                num_key_value_heads=8, vocab_size=300, n_routed_experts=4, n_shared_experts=1, num_experts_per_tok=2, n_group=1,
                topk_group=1, first_k_dense_replace=1, q_lora_rank=128, kv_lora_rank=128, qk_nope_head_dim=64,
                qk_rope_head_dim=64, v_head_dim=64, max_position_embeddings=128, topk_method="noaux_tc",
                scoring_func="sigmoid", tie_word_embeddings=False, norm_topk_prob=True)


def deepseek_v3_fp8():
    model = tf.DeepseekV3ForCausalLM(tf.DeepseekV3Config(**DEEPSEEK))
    return model, block_fp8


def block_fp8(tensors, config):
    config["topk_method"], config["scoring_func"] = "noaux_tc", "sigmoid"
    config["quantization_config"] = {"quant_method": "fp8", "activation_scheme": "dynamic", "fmt": "e4m3",
                                     "weight_block_size": [128, 128]}
    for name in list(tensors):
        if name.endswith(("_proj.weight", "_proj_with_mqa.weight", "a_proj.weight", "b_proj.weight")):
            rows, columns = tensors[name].shape
            tensors[name] = (torch.float8_e4m3fn, (rows, columns))
            tensors[name.replace(".weight", ".weight_scale_inv")] = (torch.float32, (-(-rows // 128), -(-columns // 128)))
    return tensors, config


def gpt_oss_mxfp4():
    config = tf.GptOssConfig(**{**COMMON, "intermediate_size": 128, "num_key_value_heads": 4}, head_dim=32,
                             num_local_experts=4, num_experts_per_tok=2)
    return tf.GptOssForCausalLM(config), mxfp4


def mxfp4(tensors, config):
    config["quantization_config"] = {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn",
                                     "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"]}
    for name in list(tensors):
        if name.endswith(("experts.gate_up_proj", "experts.down_proj")):
            e, k, n = tuple(tensors.pop(name).shape)  # transformers holds them transposed
            tensors[name + "_blocks"] = (torch.uint8, (e, n, k // 32, 16))
            tensors[name + "_scales"] = (torch.uint8, (e, n, k // 32))
    return tensors, config


def _is_linear(name):
    return re.search(r"(_proj|\.w[123])\.weight$", name) is not None


def _nvfp4(tensors, config):
    config["quantization_config"] = {"quant_method": "modelopt", "quant_algo": "NVFP4", "kv_cache_quant_algo": None,
                                     "group_size": 16, "exclude_modules": ["lm_head", "*gate"], "ignore": ["lm_head", "*gate"],
                                     "config_groups": {}, "producer": {"name": "modelopt", "version": "0.30"}}
    for name in list(tensors):
        if _is_linear(name):
            n, k = tuple(tensors[name].shape)
            stem = name[: -len("weight")]
            tensors[name] = (torch.uint8, (n, k // 2))
            tensors[stem + "weight_scale"] = (torch.float8_e4m3fn, (n, k // 16))
            tensors[stem + "weight_scale_2"] = (torch.float32, ())
            tensors[stem + "input_scale"] = (torch.float32, ())
    return tensors, config


def llama_nvfp4():
    return llama(), _nvfp4


def qwen3_moe_nvfp4():
    return qwen3_moe(), _nvfp4


def fp8_static(tensors, config):
    config["quantization_config"] = {"quant_method": "fp8", "activation_scheme": "static", "ignored_layers": ["lm_head"]}
    for name in list(tensors):
        if _is_linear(name):
            tensors[name] = (torch.float8_e4m3fn, tuple(tensors[name].shape))
            for scale in ("weight_scale", "input_scale"):
                tensors[name.removesuffix("weight") + scale] = (torch.float32, ())
    return tensors, config


def int4_packed(tensors, config):
    config["quantization_config"] = {
        "quant_method": "compressed-tensors", "format": "pack-quantized", "quantization_status": "compressed",
        "ignore": ["lm_head", "re:.*gate$"], "config_groups": {"group_0": {
            "targets": ["Linear"], "input_activations": None, "output_activations": None,
            "weights": {"num_bits": 4, "type": "int", "symmetric": True, "strategy": "group", "group_size": 32,
                        "dynamic": False}}}}
    for name in list(tensors):
        if _is_linear(name):
            rows, columns = tuple(tensors.pop(name).shape)
            stem = name.removesuffix("weight")
            tensors[stem + "weight_packed"] = (torch.int32, (rows, columns // 8))
            tensors[stem + "weight_scale"] = (torch.bfloat16, (rows, columns // 32))
            tensors[stem + "weight_shape"] = (torch.int64, (2,))
    return tensors, config


def longcat():
    def with_scales(tensors, config):
        config.update(mla_scale_q_lora=True, mla_scale_kv_lora=True, attention_method="MLA", zero_expert_type="identity")
        return {k: v for k, v in tensors.items() if ".zero_expert" not in k}, config
    return tf.LongcatFlashForCausalLM(tf.LongcatFlashConfig(
        hidden_size=256, ffn_hidden_size=512, expert_ffn_hidden_size=256, num_layers=1, num_hidden_layers=2,
        num_attention_heads=8, vocab_size=300, n_routed_experts=4, zero_expert_num=0, moe_topk=2, q_lora_rank=128,
        kv_lora_rank=128, qk_nope_head_dim=64, qk_rope_head_dim=64, v_head_dim=64, max_position_embeddings=128,
        tie_word_embeddings=False)), with_scales


def small(kind, **options):
    """A model of transformers by the beginning of its class names."""
    return lambda: getattr(tf, kind + "ForCausalLM")(getattr(tf, kind + "Config")(**options))


# name: (maker, has experts)
FAMILIES = {
    "llama": (llama, False), "qwen3": (qwen3, False), "qwen3_moe": (qwen3_moe, True), "mixtral": (mixtral, True),
    "deepseek_v3_fp8": (deepseek_v3_fp8, True), "gpt_oss_mxfp4": (gpt_oss_mxfp4, True), "mamba2": (mamba2, False),
    "qwen3_next": (qwen3_next, True), "qwen2_vl": (qwen2_vl, False), "llama_nvfp4": (llama_nvfp4, False),
    "qwen3_moe_nvfp4": (qwen3_moe_nvfp4, True), "phi3": (phi3, False), "falcon": (falcon, False), "gpt2": (gpt2, False),
    "gpt_neox": (gpt_neox, False), "gemma2": (gemma2, False),
    "llama_fp8_static": (lambda: (llama(), fp8_static), False),
    "qwen3_moe_fp8_static": (lambda: (qwen3_moe(), fp8_static), True),
    "llama_int4": (lambda: (llama(), int4_packed), False), "longcat": (longcat, False),
    "bloom": (small("Bloom", hidden_size=128, n_layer=2, n_head=8, vocab_size=300), False),
    "mamba": (small("Mamba", hidden_size=128, num_hidden_layers=2, vocab_size=300, state_size=16), False),
    "olmoe": (small("Olmoe", **COMMON, num_experts=8, num_experts_per_tok=2), True),
    "granitemoe": (small("GraniteMoe", **COMMON, num_local_experts=4, num_experts_per_tok=2), True),
    "falcon_h1": (small("FalconH1", **COMMON, mamba_n_heads=8, mamba_d_head=32, mamba_d_ssm=256, mamba_n_groups=1,
                        mamba_d_state=16, head_dim=16), False),
}


def _linears(tensors):
    """Stems of the linear layers' weights, routers and heads left out, and their rows and columns."""
    return [(name.removesuffix("weight"), *tensors[name].shape) for name in list(tensors) if _is_linear(name)]


def _without(tensors):
    """What is not quantised; 'gate' would be a part of 'gate_up_proj' too."""
    return ["lm_head", "gate"] if any(".experts." in name for name in tensors) else ["lm_head"]


def awq(tensors, config):
    config["quantization_config"] = {"quant_method": "awq", "bits": 4, "group_size": 32, "zero_point": True, "version": "gemm",
                                     "modules_to_not_convert": _without(tensors)}
    for stem, rows, columns in _linears(tensors):
        del tensors[stem + "weight"]
        tensors[stem + "qweight"] = (torch.int32, (columns, rows // 8))
        tensors[stem + "qzeros"] = (torch.int32, (columns // 32, rows // 8))
        tensors[stem + "scales"] = (torch.float16, (columns // 32, rows))
    return tensors, config


def gptq(tensors, config):
    config["quantization_config"] = {"quant_method": "gptq", "bits": 4, "group_size": 32, "desc_act": False, "sym": True,
                                     "lm_head": False}
    for stem, rows, columns in _linears(tensors):
        del tensors[stem + "weight"]
        tensors[stem + "qweight"] = (torch.int32, (columns // 8, rows))
        tensors[stem + "qzeros"] = (torch.int32, (columns // 32, rows // 8))
        tensors[stem + "scales"] = (torch.float16, (columns // 32, rows))
        tensors[stem + "g_idx"] = (torch.int32, (columns,))
    return tensors, config


def int8(tensors, config):
    weights = {"num_bits": 8, "type": "int", "symmetric": True, "strategy": "channel", "dynamic": False}
    inputs = {"num_bits": 8, "type": "int", "symmetric": True, "strategy": "token", "dynamic": True}
    config["quantization_config"] = {
        "quant_method": "compressed-tensors", "format": "int-quantized", "quantization_status": "compressed",
        "ignore": ["lm_head", "re:.*gate$"], "config_groups": {"group_0": {"targets": ["Linear"], "input_activations": inputs,
                                                             "output_activations": None, "weights": weights}}}
    for stem, rows, columns in _linears(tensors):
        tensors[stem + "weight"] = (torch.int8, (rows, columns))
        tensors[stem + "weight_scale"] = (torch.bfloat16, (rows, 1))
    return tensors, config


def fp8_channel(tensors, config):
    tensors, config = int8(tensors, config)
    group = config["quantization_config"]["config_groups"]["group_0"]
    config["quantization_config"]["format"] = "float-quantized"
    group["weights"]["type"] = group["input_activations"]["type"] = "float"
    return {name: (torch.float8_e4m3fn, form[1]) if isinstance(form, tuple) and form[0] is torch.int8 else form
            for name, form in tensors.items()}, config


CHANGES = {"nvfp4": _nvfp4, "fp8_static": fp8_static, "block_fp8": block_fp8, "int4": int4_packed, "awq": awq, "gptq": gptq,
           "int8": int8, "fp8_channel": fp8_channel}


def random_payload(form, generator):
    dtype, shape = form if isinstance(form, tuple) else (form.dtype, tuple(form.shape))
    if dtype == torch.float8_e4m3fn:
        return torch.randint(0, 64, shape, generator=generator, dtype=torch.uint8).view(dtype)
    if dtype.is_floating_point:
        return torch.randn(shape, generator=generator).to(dtype)
    return torch.randint(0, 120, shape, generator=generator).to(dtype)


def save(name, folder, seed=1, files=2):
    """Writes the checkpoint: config.json and `files` sharded safetensors files."""
    made = FAMILIES[name][0]()
    model, change = made if isinstance(made, tuple) else (made, None)
    model.to(torch.bfloat16).save_pretrained(folder, max_shard_size="2GB")
    from safetensors import safe_open
    tensors = {}
    for file in sorted(os.listdir(folder)):
        if file.endswith(".safetensors"):
            with safe_open(os.path.join(folder, file), "pt") as f:
                tensors.update({key: f.get_tensor(key) for key in f.keys()})
            os.unlink(os.path.join(folder, file))
    with open(os.path.join(folder, "config.json")) as f:
        config = json.load(f)
    if change is not None:
        tensors, config = change(tensors, config)
    with open(os.path.join(folder, "config.json"), "w") as f:
        json.dump(config, f, indent=1)
    generator = torch.Generator().manual_seed(seed)
    payload = {key: random_payload(tensors[key], generator) for key in sorted(tensors)}
    names = sorted(payload)
    index = {}
    for i in range(files):
        part = {key: payload[key] for key in names[i::files]}
        file = f"model-{i + 1:05d}-of-{files:05d}.safetensors"
        save_file(part, os.path.join(folder, file), metadata={"format": "pt"})
        index.update({key: file for key in part})
    with open(os.path.join(folder, "model.safetensors.index.json"), "w") as f:
        json.dump({"metadata": {}, "weight_map": index}, f)
    return payload
