# SPDX-License-Identifier: Apache-2.0
"""Names, dtypes and shapes of published checkpoints, as functions of their config.json.

The same description gives the full size (headers only, thousands of names) and a small one with the same structure, whose
bytes are compared. Where the number of parameters is published, it is here too and must come out.
"""
from dataclasses import dataclass


@dataclass
class Model:
    name: str  # as published
    loader: str  # what auto must choose
    config: dict  # of the published model, as far as loaders read it
    small: dict  # what differs in the small one
    tensors: callable  # config -> (name, dtype, shape) ...
    parameters: int = 0  # published; 0: not compared
    tp: tuple = (1, 2)
    ep: tuple = ()
    both: tuple = ()  # (ep, tp): experts over all ranks, the rest over tp
    full_tp: int = 8  # a layout of the full size
    loader_small: str = ""  # another loader for the small one
    rest: str = "error"  # --rest


def linear(name, rows, columns, bias=False, dtype="BF16"):
    yield name + ".weight", dtype, [rows, columns]
    if bias:
        yield name + ".bias", dtype, [rows]


def norm(name, size, bias=False, dtype="BF16"):
    yield name + ".weight", dtype, [size]
    if bias:
        yield name + ".bias", dtype, [size]


def block_fp8(name, rows, columns):
    yield name + ".weight", "F8_E4M3", [rows, columns]
    yield name + ".weight_scale_inv", "F32", [-(-rows // 128), -(-columns // 128)]


def modelopt_fp8(name, rows, columns):
    yield name + ".weight", "F8_E4M3", [rows, columns]
    yield name + ".weight_scale", "F32", []
    yield name + ".input_scale", "F32", []


def modelopt_nvfp4(name, rows, columns):
    yield name + ".weight", "U8", [rows, columns // 2]
    yield name + ".weight_scale", "F8_E4M3", [rows, columns // 16]
    yield name + ".weight_scale_2", "F32", []
    yield name + ".input_scale", "F32", []


def compressed_nvfp4(name, rows, columns):
    yield name + ".weight_packed", "U8", [rows, columns // 2]
    yield name + ".weight_scale", "F8_E4M3", [rows, columns // 16]
    yield name + ".weight_global_scale", "F32", [1]
    yield name + ".input_global_scale", "F32", [1]


def compressed_fp8(name, rows, columns):
    yield name + ".weight", "F8_E4M3", [rows, columns]
    yield name + ".weight_scale", "BF16", [rows, 1]


def compressed_w4a16(name, rows, columns):
    yield name + ".weight_packed", "I32", [rows, columns // 8]
    yield name + ".weight_scale", "BF16", [rows, columns // 32]
    yield name + ".weight_shape", "I64", [2]


def head_dim(c):
    return c.get("head_dim") or c["hidden_size"] // c["num_attention_heads"]


def attention(c, stem, kind=linear, qkv_bias=False, out_bias=False, norms=False, back="o_proj"):
    q, kv = c["num_attention_heads"] * head_dim(c), c.get("num_key_value_heads", c["num_attention_heads"]) * head_dim(c)
    for part, rows in (("q", q), ("k", kv), ("v", kv)):
        yield from kind(f"{stem}.{part}_proj", rows, c["hidden_size"], *([True] if qkv_bias else []))
    yield from kind(f"{stem}.{back}", c["hidden_size"], q, *([True] if out_bias else []))
    if norms:
        yield from norm(f"{stem}.q_norm", norms if norms is not True else head_dim(c))
        yield from norm(f"{stem}.k_norm", norms if norms is not True else head_dim(c))


def gated_mlp(c, stem, size=None, kind=linear):
    size = size or c["intermediate_size"]
    for part in ("gate_proj", "up_proj"):
        yield from kind(f"{stem}.{part}", size, c["hidden_size"])
    yield from kind(f"{stem}.down_proj", c["hidden_size"], size)


def around(c, prefix="model.", head="lm_head", bias=False, last="norm"):
    yield from linear(f"{prefix}embed_tokens", c["vocab_size"], c["hidden_size"])
    yield from norm(f"{prefix}{last}", c["hidden_size"], bias)
    if not c.get("tie_word_embeddings"):
        yield from linear(head, c["vocab_size"], c["hidden_size"], bias and last == "final_layernorm")


def layers(c, prefix="model."):
    return ((i, f"{prefix}layers.{i}") for i in range(c["num_hidden_layers"]))


TWO_NORMS = ("input_layernorm", "post_attention_layernorm")
GEMMA_NORMS = TWO_NORMS + ("pre_feedforward_layernorm", "post_feedforward_layernorm")
GLM_NORMS = TWO_NORMS + ("post_self_attn_layernorm", "post_mlp_layernorm")


def llama(c, prefix="model.", kind=linear, norms=TWO_NORMS, norms_of_heads=False, **more):
    yield from around(c, prefix)
    for _, stem in layers(c, prefix):
        if kind is modelopt_fp8:  # with a cache in FP8
            yield stem + ".self_attn.k_proj.k_scale", "F32", []
            yield stem + ".self_attn.v_proj.v_scale", "F32", []
        yield from attention(c, stem + ".self_attn", kind, norms=norms_of_heads, **more)
        yield from gated_mlp(c, stem + ".mlp", kind=kind)
        for name in norms:
            yield from norm(f"{stem}.{name}", c["hidden_size"])


def nemotron(c):
    yield from around(c, bias=True)
    for _, stem in layers(c):
        yield from attention(c, stem + ".self_attn")
        yield from linear(stem + ".mlp.up_proj", c["intermediate_size"], c["hidden_size"])
        yield from linear(stem + ".mlp.down_proj", c["hidden_size"], c["intermediate_size"])
        for name in TWO_NORMS:
            yield from norm(f"{stem}.{name}", c["hidden_size"], True)


def gemma3_with_images(c):
    """Text inside a larger model, beside a vision tower that has layers too."""
    text, vision = c["text_config"], c["vision_config"]
    yield from llama(text, "language_model.model.", norms=GEMMA_NORMS, norms_of_heads=True)
    stem, h = "vision_tower.vision_model", vision["hidden_size"]
    yield stem + ".embeddings.patch_embedding.weight", "BF16", [h, 3, vision["patch_size"], vision["patch_size"]]
    yield stem + ".embeddings.patch_embedding.bias", "BF16", [h]
    yield from linear(stem + ".embeddings.position_embedding", (vision["image_size"] // vision["patch_size"]) ** 2, h)
    for i in range(vision["num_hidden_layers"]):
        for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
            yield from linear(f"{stem}.encoder.layers.{i}.self_attn.{name}", h, h, True)
        yield from linear(f"{stem}.encoder.layers.{i}.mlp.fc1", vision["intermediate_size"], h, True)
        yield from linear(f"{stem}.encoder.layers.{i}.mlp.fc2", h, vision["intermediate_size"], True)
        for name in ("layer_norm1", "layer_norm2"):
            yield from norm(f"{stem}.encoder.layers.{i}.{name}", h, True)
    yield from norm(stem + ".post_layernorm", h, True)
    yield "multi_modal_projector.mm_input_projection_weight", "BF16", [h, text["hidden_size"]]
    yield "multi_modal_projector.mm_soft_emb_norm.weight", "BF16", [h]


def cohere(c):
    yield from around(c)
    for _, stem in layers(c):
        yield from attention(c, stem + ".self_attn")
        yield from gated_mlp(c, stem + ".mlp")
        yield from norm(stem + ".input_layernorm", c["hidden_size"])


def olmo2(c):
    yield from around(c)
    for _, stem in layers(c):
        width = c["num_attention_heads"] * head_dim(c)
        yield from attention(c, stem + ".self_attn", norms=width)
        yield from gated_mlp(c, stem + ".mlp")
        for name in ("post_attention_layernorm", "post_feedforward_layernorm"):
            yield from norm(f"{stem}.{name}", c["hidden_size"])


def phi3(c):
    yield from around(c)
    for _, stem in layers(c):
        q, kv = c["num_attention_heads"] * head_dim(c), c["num_key_value_heads"] * head_dim(c)
        yield from linear(stem + ".self_attn.qkv_proj", q + 2 * kv, c["hidden_size"])
        yield from linear(stem + ".self_attn.o_proj", c["hidden_size"], q)
        yield from linear(stem + ".mlp.gate_up_proj", 2 * c["intermediate_size"], c["hidden_size"])
        yield from linear(stem + ".mlp.down_proj", c["hidden_size"], c["intermediate_size"])
        for name in TWO_NORMS:
            yield from norm(f"{stem}.{name}", c["hidden_size"])


def glm4(c):
    yield from around(c)
    for _, stem in layers(c):
        yield from attention(c, stem + ".self_attn", qkv_bias=True)
        yield from linear(stem + ".mlp.gate_up_proj", 2 * c["intermediate_size"], c["hidden_size"])
        yield from linear(stem + ".mlp.down_proj", c["hidden_size"], c["intermediate_size"])
        for name in GLM_NORMS:
            yield from norm(f"{stem}.{name}", c["hidden_size"])


def phi2(c):
    yield from around(c, bias=True, last="final_layernorm")
    for _, stem in layers(c):
        yield from attention(c, stem + ".self_attn", qkv_bias=True, out_bias=True, back="dense")
        yield from linear(stem + ".mlp.fc1", c["intermediate_size"], c["hidden_size"], True)
        yield from linear(stem + ".mlp.fc2", c["hidden_size"], c["intermediate_size"], True)
        yield from norm(stem + ".input_layernorm", c["hidden_size"], True)


def starcoder2(c):
    yield from around(c, bias=True)
    for _, stem in layers(c):
        yield from attention(c, stem + ".self_attn", qkv_bias=True, out_bias=True)
        yield from linear(stem + ".mlp.c_fc", c["intermediate_size"], c["hidden_size"], True)
        yield from linear(stem + ".mlp.c_proj", c["hidden_size"], c["intermediate_size"], True)
        for name in TWO_NORMS:
            yield from norm(f"{stem}.{name}", c["hidden_size"], True)


# ---- experts ----

def mixtral(c, kind=linear, bias=False, correction=False, norms=False):
    yield from around(c, bias=bias)
    if bias:
        yield "lm_head.bias", "BF16", [c["vocab_size"]]
    for _, stem in layers(c):
        more = {"qkv_bias": True, "out_bias": True} if bias else {}
        yield from attention(c, stem + ".self_attn", kind, **more)
        if norms:
            yield from norm(stem + ".self_attn.q_norm", c["num_attention_heads"] * head_dim(c))
            yield from norm(stem + ".self_attn.k_norm", c["num_key_value_heads"] * head_dim(c))
        if correction:
            yield stem + ".block_sparse_moe.e_score_correction_bias", "BF16", [c["num_local_experts"]]
        yield from linear(stem + ".block_sparse_moe.gate", c["num_local_experts"], c["hidden_size"])
        for e in range(c["num_local_experts"]):
            for part, rows, columns in (("w1", 1, 0), ("w2", 0, 1), ("w3", 1, 0)):
                size = (c["hidden_size"], c["intermediate_size"])
                yield from kind(f"{stem}.block_sparse_moe.experts.{e}.{part}", size[rows], size[columns])
        for name in TWO_NORMS:
            yield from norm(f"{stem}.{name}", c["hidden_size"], bias)


def qwen_moe(c, kind=linear, qkv_bias=False, norms=False):
    yield from around(c)
    for _, stem in layers(c):
        yield from attention(c, stem + ".self_attn", qkv_bias=qkv_bias, norms=norms)
        yield from linear(stem + ".mlp.gate", c["num_experts"], c["hidden_size"])
        for e in range(c["num_experts"]):
            yield from gated_mlp(c, f"{stem}.mlp.experts.{e}", c["moe_intermediate_size"], kind)
        if "shared_expert_intermediate_size" in c:
            yield from gated_mlp(c, f"{stem}.mlp.shared_expert", c["shared_expert_intermediate_size"])
            yield from linear(f"{stem}.mlp.shared_expert_gate", 1, c["hidden_size"])
        for name in TWO_NORMS:
            yield from norm(f"{stem}.{name}", c["hidden_size"])


def qwen3_next_mlp(c, stem):
    yield from linear(stem + ".mlp.gate", c["num_experts"], c["hidden_size"])
    for e in range(c["num_experts"]):
        yield from gated_mlp(c, f"{stem}.mlp.experts.{e}", c["moe_intermediate_size"])
    yield from gated_mlp(c, f"{stem}.mlp.shared_expert", c["shared_expert_intermediate_size"])
    yield from linear(f"{stem}.mlp.shared_expert_gate", 1, c["hidden_size"])
    for name in TWO_NORMS:
        yield from norm(f"{stem}.{name}", c["hidden_size"])


def gated_attention(c, stem):
    for name, dtype, shape in attention(c, stem, norms=True):
        yield name, dtype, [2 * shape[0], shape[1]] if "q_proj" in name else shape


def delta_net(c, stem):
    keys, values = c["linear_num_key_heads"], c["linear_num_value_heads"]
    q, v = keys * c["linear_key_head_dim"], values * c["linear_value_head_dim"]
    yield stem + ".A_log", "BF16", [values]
    yield stem + ".dt_bias", "BF16", [values]
    yield stem + ".conv1d.weight", "BF16", [2 * q + v, 1, c["linear_conv_kernel_dim"]]
    yield from linear(stem + ".in_proj_qkvz", 2 * q + 2 * v, c["hidden_size"])
    yield from linear(stem + ".in_proj_ba", 2 * values, c["hidden_size"])
    yield from norm(stem + ".norm", c["linear_value_head_dim"])
    yield from linear(stem + ".out_proj", c["hidden_size"], v)


def qwen3_next(c):
    h = c["hidden_size"]
    yield from around(c)
    for i, stem in layers(c):
        if (i + 1) % c["full_attention_interval"] == 0:
            yield from gated_attention(c, stem + ".self_attn")
        else:
            yield from delta_net(c, stem + ".linear_attn")
        yield from qwen3_next_mlp(c, stem)
    yield from linear("mtp.fc", h, 2 * h)
    for name in ("norm", "pre_fc_norm_embedding", "pre_fc_norm_hidden"):
        yield from norm(f"mtp.{name}", h)
    yield from gated_attention(c, "mtp.layers.0.self_attn")
    yield from qwen3_next_mlp(c, "mtp.layers.0")


def latent_attention(c, stem, kind):
    heads, rope, nope = c["num_attention_heads"], c["qk_rope_head_dim"], c["qk_nope_head_dim"]
    if c.get("q_lora_rank"):
        yield from kind(stem + ".q_a_proj", c["q_lora_rank"], c["hidden_size"])
        yield from norm(stem + ".q_a_layernorm", c["q_lora_rank"])
        yield from kind(stem + ".q_b_proj", heads * (nope + rope), c["q_lora_rank"])
    else:
        yield from kind(stem + ".q_proj", heads * (nope + rope), c["hidden_size"])
    yield from kind(stem + ".kv_a_proj_with_mqa", c["kv_lora_rank"] + rope, c["hidden_size"])
    yield from norm(stem + ".kv_a_layernorm", c["kv_lora_rank"])
    yield from kind(stem + ".kv_b_proj", heads * (nope + c["v_head_dim"]), c["kv_lora_rank"])
    yield from kind(stem + ".o_proj", c["hidden_size"], heads * c["v_head_dim"])


def deepseek_layer(c, i, stem, kind, attention_kind=None):
    yield from latent_attention(c, stem + ".self_attn", attention_kind or kind)
    if i < c["first_k_dense_replace"]:
        yield from gated_mlp(c, stem + ".mlp", kind=kind)
    else:
        yield from linear(stem + ".mlp.gate", c["n_routed_experts"], c["hidden_size"])
        if c["model_type"] != "deepseek_v2":
            yield stem + ".mlp.gate.e_score_correction_bias", "F32", [c["n_routed_experts"]]
        for e in range(c["n_routed_experts"]):
            yield from gated_mlp(c, f"{stem}.mlp.experts.{e}", c["moe_intermediate_size"], kind)
        shared = c["n_shared_experts"] * c["moe_intermediate_size"]
        yield from gated_mlp(c, f"{stem}.mlp.shared_experts", shared, kind)
    for name in TWO_NORMS:
        yield from norm(f"{stem}.{name}", c["hidden_size"])


def deepseek(c, kind=linear, attention_kind=None):
    yield from around(c)
    for i, stem in layers(c):
        yield from deepseek_layer(c, i, stem, kind, attention_kind)
    if c.get("num_nextn_predict_layers"):
        yield from draft(c, c["num_hidden_layers"], lambda c, i, stem: deepseek_layer(c, i, stem, kind))


def glm4_moe_layer(c, i, stem):
    yield from attention(c, stem + ".self_attn", qkv_bias=True)
    if i < c["first_k_dense_replace"]:
        yield from gated_mlp(c, stem + ".mlp")
    else:
        yield from linear(stem + ".mlp.gate", c["n_routed_experts"], c["hidden_size"])
        yield stem + ".mlp.gate.e_score_correction_bias", "F32", [c["n_routed_experts"]]
        for e in range(c["n_routed_experts"]):
            yield from gated_mlp(c, f"{stem}.mlp.experts.{e}", c["moe_intermediate_size"])
        yield from gated_mlp(c, f"{stem}.mlp.shared_experts", c["moe_intermediate_size"])
    for name in TWO_NORMS:
        yield from norm(f"{stem}.{name}", c["hidden_size"])


def glm4_moe(c):
    yield from around(c)
    for i, stem in layers(c):
        yield from glm4_moe_layer(c, i, stem)
    yield from draft(c, c["num_hidden_layers"], glm4_moe_layer)


def draft(c, i, layer):
    """A layer behind the last one, which predicts the token after the next."""
    stem = f"model.layers.{i}"
    yield from layer(c, i, stem)
    yield from linear(stem + ".embed_tokens", c["vocab_size"], c["hidden_size"])
    yield from linear(stem + ".eh_proj", c["hidden_size"], 2 * c["hidden_size"])
    for name in ("enorm", "hnorm", "shared_head.norm"):
        yield from norm(f"{stem}.{name}", c["hidden_size"])
    yield from linear(stem + ".shared_head.head", c["vocab_size"], c["hidden_size"])


def gpt_oss(c):
    yield from around(c)
    e, h, i = c["num_local_experts"], c["hidden_size"], c["intermediate_size"]
    for _, stem in layers(c):
        yield from attention(c, stem + ".self_attn", qkv_bias=True, out_bias=True)
        yield stem + ".self_attn.sinks", "BF16", [c["num_attention_heads"]]
        yield from linear(stem + ".mlp.router", e, h, True)
        for part, rows, columns in (("gate_up_proj", 2 * i, h), ("down_proj", h, i)):
            yield f"{stem}.mlp.experts.{part}_blocks", "U8", [e, rows, columns // 32, 16]
            yield f"{stem}.mlp.experts.{part}_scales", "U8", [e, rows, columns // 32]
            yield f"{stem}.mlp.experts.{part}_bias", "BF16", [e, rows]
        for name in TWO_NORMS:
            yield from norm(f"{stem}.{name}", h)


def gpt_oss_bf16(c):
    """The form that fine-tuning leaves behind: no blocks, input before output."""
    e, h, i = c["num_local_experts"], c["hidden_size"], c["intermediate_size"]
    for name, dtype, shape in gpt_oss(c):
        if name.endswith("_blocks"):
            first = "gate_up" in name
            yield name[:-len("_blocks")], "BF16", [e, h, 2 * i] if first else [e, i, h]
        elif not name.endswith("_scales"):
            yield name, dtype, shape


def llama4(c):
    text = c["text_config"]
    prefix = "language_model.model."
    yield from around(text, prefix, head="language_model.lm_head")
    e, h, i = text["num_local_experts"], text["hidden_size"], text["intermediate_size"]
    for layer, stem in layers(text, prefix):
        yield from attention(text, stem + ".self_attn")
        if (layer + 1) % text["interleave_moe_layer_step"] == 0:
            yield stem + ".feed_forward.experts.gate_up_proj", "BF16", [e, h, 2 * i]
            yield stem + ".feed_forward.experts.down_proj", "BF16", [e, i, h]
            yield from linear(stem + ".feed_forward.router", e, h)
            yield from gated_mlp(text, stem + ".feed_forward.shared_expert")
        else:
            yield from gated_mlp(text, stem + ".feed_forward", text["intermediate_size_mlp"])
        for name in TWO_NORMS:
            yield from norm(f"{stem}.{name}", h)


def qwen3_vl_moe(c):
    text = c["text_config"]
    e, h, i = text["num_experts"], text["hidden_size"], text["moe_intermediate_size"]
    prefix = "model.language_model."
    yield from around(text, prefix)
    for _, stem in layers(text, prefix):
        yield from attention(text, stem + ".self_attn", norms=True)
        yield from linear(stem + ".mlp.gate", e, h)
        yield stem + ".mlp.experts.gate_up_proj", "BF16", [e, h, 2 * i]
        yield stem + ".mlp.experts.down_proj", "BF16", [e, i, h]
        for name in TWO_NORMS:
            yield from norm(f"{stem}.{name}", h)


def granite_moe(c):
    e, h, i = c["num_local_experts"], c["hidden_size"], c["intermediate_size"]
    yield from around(c)
    for _, stem in layers(c):
        yield from attention(c, stem + ".self_attn")
        yield stem + ".block_sparse_moe.input_linear.weight", "BF16", [e, 2 * i, h]
        yield stem + ".block_sparse_moe.output_linear.weight", "BF16", [e, h, i]
        yield from linear(stem + ".block_sparse_moe.router.layer", e, h)
        for name in TWO_NORMS:
            yield from norm(f"{stem}.{name}", h)


# ---- other structures ----

def gpt2(c):
    h = c["n_embd"]
    yield "wte.weight", "F32", [c["vocab_size"], h]
    yield "wpe.weight", "F32", [c["n_positions"], h]
    for i in range(c["n_layer"]):
        stem = f"h.{i}"
        yield stem + ".attn.bias", "F32", [1, 1, c["n_positions"], c["n_positions"]]
        for name, rows, columns in (("attn.c_attn", h, 3 * h), ("attn.c_proj", h, h), ("mlp.c_fc", h, 4 * h),
                                    ("mlp.c_proj", 4 * h, h)):
            yield f"{stem}.{name}.weight", "F32", [rows, columns]
            yield f"{stem}.{name}.bias", "F32", [columns]
        for name in ("ln_1", "ln_2"):
            yield from norm(f"{stem}.{name}", h, True, "F32")
    yield from norm("ln_f", h, True, "F32")


def neox(c):
    h, i, dtype = c["hidden_size"], c["intermediate_size"], "F16"
    yield from linear("gpt_neox.embed_in", c["vocab_size"], h, dtype=dtype)
    yield from linear("embed_out", c["vocab_size"], h, dtype=dtype)
    for _, stem in layers(c, "gpt_neox."):
        yield stem + ".attention.bias", "U8", [1, 1, c["max_position_embeddings"], c["max_position_embeddings"]]
        yield stem + ".attention.masked_bias", dtype, []
        yield stem + ".attention.rotary_emb.inv_freq", dtype, [h // c["num_attention_heads"] // 8]
        yield from linear(stem + ".attention.query_key_value", 3 * h, h, True, dtype)
        yield from linear(stem + ".attention.dense", h, h, True, dtype)
        yield from linear(stem + ".mlp.dense_h_to_4h", i, h, True, dtype)
        yield from linear(stem + ".mlp.dense_4h_to_h", h, i, True, dtype)
        for name in TWO_NORMS:
            yield from norm(f"{stem}.{name}", h, True, dtype)
    yield from norm("gpt_neox.final_layer_norm", h, True, dtype)


def falcon(c):
    h = c["hidden_size"]
    groups = c["num_kv_heads"] if c["new_decoder_architecture"] else 1
    head = h // c["num_attention_heads"]
    yield from linear("transformer.word_embeddings", c["vocab_size"], h)
    if not c.get("tie_word_embeddings", True):
        yield from linear("lm_head", c["vocab_size"], h)
    for i in range(c["num_hidden_layers"]):
        stem = f"transformer.h.{i}"
        yield from linear(stem + ".self_attention.query_key_value", (c["num_attention_heads"] + 2 * groups) * head, h)
        yield from linear(stem + ".self_attention.dense", h, h)
        yield from linear(stem + ".mlp.dense_h_to_4h", 4 * h, h)
        yield from linear(stem + ".mlp.dense_4h_to_h", h, 4 * h)
        for name in ("ln_attn", "ln_mlp") if c["new_decoder_architecture"] else ("input_layernorm",):
            yield from norm(f"{stem}.{name}", h, True)
    yield from norm("transformer.ln_f", h, True)


def mamba(c):
    h, inner, state, rank, dtype = c["hidden_size"], c["intermediate_size"], c["state_size"], c["time_step_rank"], "F32"
    yield from linear("backbone.embeddings", c["vocab_size"], h, dtype=dtype)
    for _, stem in layers(c, "backbone."):
        yield from norm(stem + ".norm", h, dtype=dtype)
        yield stem + ".mixer.A_log", dtype, [inner, state]
        yield stem + ".mixer.D", dtype, [inner]
        yield stem + ".mixer.conv1d.weight", dtype, [inner, 1, c["conv_kernel"]]
        yield stem + ".mixer.conv1d.bias", dtype, [inner]
        yield from linear(stem + ".mixer.in_proj", 2 * inner, h, dtype=dtype)
        yield from linear(stem + ".mixer.x_proj", rank + 2 * state, inner, dtype=dtype)
        yield from linear(stem + ".mixer.dt_proj", inner, rank, True, dtype)
        yield from linear(stem + ".mixer.out_proj", h, inner, dtype=dtype)
    yield from norm("backbone.norm_f", h, dtype=dtype)


def mamba2(c):
    h, heads, groups, state = c["hidden_size"], c["num_heads"], c["n_groups"], c["state_size"]
    inner = heads * c["head_dim"]
    convolved = inner + 2 * groups * state
    yield from linear("backbone.embeddings", c["vocab_size"], h)
    yield from linear("lm_head", c["vocab_size"], h)
    for _, stem in layers(c, "backbone."):
        yield from norm(stem + ".norm", h)
        yield stem + ".mixer.A_log", "BF16", [heads]
        yield stem + ".mixer.D", "BF16", [heads]
        yield stem + ".mixer.dt_bias", "BF16", [heads]
        yield stem + ".mixer.conv1d.weight", "BF16", [convolved, 1, c["conv_kernel"]]
        yield stem + ".mixer.conv1d.bias", "BF16", [convolved]
        yield from linear(stem + ".mixer.in_proj", inner + convolved + heads, h)
        yield from norm(stem + ".mixer.norm", inner)
        yield from linear(stem + ".mixer.out_proj", h, inner)
    yield from norm("backbone.norm_f", h)


def roberta(c, prefix="roberta."):
    h, i = c["hidden_size"], c["intermediate_size"]
    yield from linear(prefix + "embeddings.word_embeddings", c["vocab_size"], h, dtype="F32")
    yield from linear(prefix + "embeddings.position_embeddings", c["max_position_embeddings"], h, dtype="F32")
    yield from linear(prefix + "embeddings.token_type_embeddings", c["type_vocab_size"], h, dtype="F32")
    yield from norm(prefix + "embeddings.LayerNorm", h, True, "F32")
    yield prefix + "embeddings.position_ids", "I64", [1, c["max_position_embeddings"]]
    for n in range(c["num_hidden_layers"]):
        stem = f"{prefix}encoder.layer.{n}"
        for part in ("query", "key", "value"):
            yield from linear(f"{stem}.attention.self.{part}", h, h, True, "F32")
        yield from linear(stem + ".attention.output.dense", h, h, True, "F32")
        yield from linear(stem + ".intermediate.dense", i, h, True, "F32")
        yield from linear(stem + ".output.dense", h, i, True, "F32")
        yield from norm(stem + ".attention.output.LayerNorm", h, True, "F32")
        yield from norm(stem + ".output.LayerNorm", h, True, "F32")
    yield from linear(prefix + "pooler.dense", h, h, True, "F32")
