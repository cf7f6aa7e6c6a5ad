# SPDX-License-Identifier: Apache-2.0
"""Small models of any class of transformers, towers that see or hear included: sizes are set by the names that
configurations share, and what is listed for each layer is cut to the layers that are left."""
from __future__ import annotations

import torch
import transformers as tf

# Text models. A key is used where the configuration has it.
TEXT = dict(
    hidden_size=128, intermediate_size=256, num_hidden_layers=2, num_attention_heads=8, num_key_value_heads=4, vocab_size=300,
    head_dim=16, max_position_embeddings=128, num_experts=4, num_local_experts=4, n_routed_experts=4, num_experts_per_tok=2,
    moe_intermediate_size=64, shared_expert_intermediate_size=64, n_shared_experts=1, num_shared_experts=1, n_group=1,
    topk_group=1, n_embd=128, n_layer=2, n_head=8, n_positions=128, n_inner=256, rotary_dim=16, d_model=128, n_heads=8,
    n_layers=2, max_seq_len=128, num_kv_heads=4, ffn_hidden_size=256, expert_ffn_hidden_size=64, first_k_dense_replace=1,
    q_lora_rank=128, kv_lora_rank=128, qk_nope_head_dim=64, qk_rope_head_dim=64, v_head_dim=64, word_embed_proj_dim=128,
    ffn_dim=256, state_size=16, mamba_d_state=16, mamba_n_heads=8, mamba_d_head=32, mamba_n_groups=1, pad_token_id=0,
    bos_token_id=1, eos_token_id=2, num_heads=8, n_groups=4, shared_intermediate_size=64, num_dense_layers=1,
    linear_num_key_heads=4, linear_num_value_heads=8, linear_key_head_dim=16, linear_value_head_dim=16,
    moe_shared_expert_intermediate_size=64, mamba_num_heads=8, mamba_head_dim=32, ssm_state_size=16, sliding_window=64,
    tie_word_embeddings=False, moe_num_experts=4, moe_num_shared_experts=1, moe_k=2, partial_rotary_factor=0.5,
    encoder_layers=2, decoder_layers=2, encoder_attention_heads=8, decoder_attention_heads=8, encoder_ffn_dim=256,
    decoder_ffn_dim=256, max_source_positions=64, max_target_positions=64, moe_topk=2, moe_layer_start_index=1,
    moe_layer_end_index=1, moe_layer_interval=1, hidden_size_per_layer_input=16, vocab_size_per_layer_input=300, laurel_rank=8,
    type_vocab_size=2, global_head_dim=16, num_kv_shared_layers=0, index_n_heads=4, index_head_dim=128, index_topk=64,
)
TOWER = dict(
    hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=4, depth=2, num_heads=4,
    embed_dim=64, d_model=64, encoder_layers=2, encoder_attention_heads=4, encoder_ffn_dim=128, mlp_ratio=2, image_size=56,
    num_layers=2, patch_size=14, projection_dim=64, max_position_embeddings=64, head_dim=16, num_position_embeddings=64,
    num_global_layers=1, downsample_hidden_size=128, n_window=8, n_window_infer=16, num_mel_bins=32, max_source_positions=64,
    conv_kernel_size=3, vision_output_dim=128, pixel_shuffle_ratio=0.5, projector_input_dim=128, projector_output_dim=128,
    num_conformer_layers=2, conf_num_hidden_layers=2, conf_num_attention_heads=4, fullatt_block_indexes=[1],
    deepstack_visual_indexes=[0], layers=2, width=64, heads=4, downsample_ratio=0.5, num_channels=3, window_size=28,
    vocab_size=300, standardize=False, conv_chunksize=64,
)
# What one text model wants otherwise; None: not given.
SPECIAL = {
    "BloomForCausalLM": dict(tie_word_embeddings=True),
    "DbrxForCausalLM": dict(ffn_config=dict(ffn_hidden_size=64, moe_num_experts=4, moe_top_k=2),
                            attn_config=dict(kv_n_heads=4, clip_qkv=8.0, rope_theta=10000.0)),
    "FalconForCausalLM": dict(head_dim=None, ffn_hidden_size=None, new_decoder_architecture=True, num_kv_heads=4),
    "FalconH1ForCausalLM": dict(mamba_d_ssm=256),
    "Gemma2ForCausalLM": dict(tie_word_embeddings=True),
    "Gemma3nForCausalLM": dict(num_hidden_layers=4, num_kv_shared_layers=0, layer_types=["sliding_attention"] * 3
                               + ["full_attention"], intermediate_size=256, tie_word_embeddings=True,
                               hidden_size_per_layer_input=16, vocab_size_per_layer_input=300, laurel_rank=8,
                               activation_sparsity_pattern=[0.0] * 4),
    "Lfm2MoeForCausalLM": dict(layer_types=["conv", "full_attention"]),
    "Lfm2ForCausalLM": dict(layer_types=["conv", "full_attention"]),
    "Mamba2ForCausalLM": dict(num_heads=8, head_dim=32, n_groups=4, expand=2),
    "LongcatFlashForCausalLM": dict(num_layers=1, zero_expert_num=0, moe_topk=2, hidden_size=256, ffn_hidden_size=512),
    "Zamba2ForCausalLM": dict(layer_types=["mamba", "hybrid"], mamba_ngroups=1, n_mamba_heads=8, mamba_headdim=32,
                              num_mem_blocks=1, adapter_rank=8, hybrid_layer_ids=[1], head_dim=None,
                              attention_head_dim=32, attention_hidden_size=256, tie_word_embeddings=True),
}
_TOWERS = ("vision", "audio", "image", "speech", "encoder_config", "visual", "perceptual", "sound", "acoustic", "semantic")
_OUTWARD = ("out_hidden_size", "output_dim", "text_hidden_size", "vocab_hidden_size")  # of a tower, as wide as the text
_LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
_NOT_SIZES = ("transformers_version", "_name_or_path", "architectures", "output_attentions", "output_hidden_states", "return_dict")


def _layers(config: dict, default: int) -> int:
    return next((config[key] for key in _LAYERS if isinstance(config.get(key), int)), default)


def _shrink(config: dict, is_tower: bool, special: dict) -> dict:
    sizes = TOWER if is_tower else TEXT
    small = {key: value for key, value in config.items() if key not in _NOT_SIZES}
    for key, value in small.items():
        own = special.get(key)
        if isinstance(value, dict) and key.endswith("_config") and "quant" not in key:
            small[key] = _shrink(value, is_tower or any(part in key for part in _TOWERS), own if isinstance(own, dict) else {})
        elif key in special:
            small[key] = own
        elif is_tower and key in _OUTWARD and isinstance(value, int):
            small[key] = TEXT["hidden_size"]
        elif key in sizes and value is not None and isinstance(value, list) == isinstance(sizes[key], list):
            small[key] = float(sizes[key]) if isinstance(value, float) else sizes[key]
    small.update({key: value for key, value in special.items() if key not in config and not isinstance(value, dict)})
    return _cut(small, _layers(config, 0), _layers(small, 2), special)


def _cut(small: dict, were: int, layers: int, special: dict) -> dict:
    """What is listed for `were` layers is listed for `layers`: the first ones, and the last if it is of another kind."""
    for key, value in small.items():
        if key in special:
            continue
        if isinstance(value, list) and len(value) == were > layers:
            small[key] = value[:layers - 1] + [value[-1] if value[-1] != value[0] else value[layers - 1]]
        elif isinstance(value, dict) and value and all(str(k).isdigit() for k in value):
            small[key] = {k: v for k, v in value.items() if int(k) < layers}
        elif key in ("rope_scaling", "rope_parameters") and isinstance(value, dict) and "mrope_section" in value:
            half = (small.get("head_dim") or small.get("hidden_size", 128) // small.get("num_attention_heads", 8)) // 2
            small[key] = {**value, "mrope_section": [half - 2 * (half // 3), half // 3, half // 3]}
    return small


def small_config(kind, special=None):
    """A configuration of the model class `kind`; `special` says what it wants otherwise, nested as the configuration is.
    None: not given."""
    special = special or {}
    base = kind.config_class()
    values = base.to_dict()
    for key, sub in getattr(kind.config_class, "sub_configs", {}).items():
        if values.get(key) is None:
            try:
                values[key] = sub().to_dict()
            except Exception:  # noqa: BLE001: one that has no default
                continue

    def can_be_set(key):
        described = getattr(type(base), key, None)
        return hasattr(base, key) and not (isinstance(described, property) and described.fset is None)

    if not any(key.endswith("text_config") for key in values):
        values.update({key: getattr(base, key) for key in TEXT if key not in values and can_be_set(key)})
    small = _shrink(values, False, special)
    return kind.config_class.from_dict({key: value for key, value in small.items() if value is not None or key not in special})


def small_model(architecture: str, special=None, most: int = 60_000_000):
    """A model of that class; ValueError when it is not small."""
    kind = getattr(tf, architecture)
    config = small_config(kind, special)
    with torch.device("meta"):
        count = sum(p.numel() for p in kind(config).parameters())
    if count > most:
        raise ValueError(f"{count} parameters are not a small model")
    return kind(config)
