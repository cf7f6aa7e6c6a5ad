# SPDX-License-Identifier: Apache-2.0
"""Every model of vLLM that transformers can make tiny, with every quantisation that loads: recorded, replayed, compared.

python vllm_every.py [--only NAME,...] [--change NAME,...] [--layouts 1,2,2e] [-o FILE] prints a row for each; what cannot
be made is said with its reason. The models are those of vLLM's own registry; what is written down here are legal sizes only.
"""
import argparse
import json
import os
import re
import sys
import tempfile
import time

import torch
from safetensors.torch import load_file, save_file

import loadplan.vllm
import small_models
import vllm_families
import vllm_loaders
from children import tried_in_child, why

_MLA = dict(first_k_dense_replace=1, topk_method="noaux_tc", scoring_func="sigmoid")
_LFM2 = dict(block_dim=128, block_ff_dim=256, block_auto_adjust_ff_dim=False, block_multiple_of=32, block_ffn_dim_multiplier=1.0,
             block_norm_eps=1e-5, conv_dim=128, conv_dim_out=128)
# The same for models that are not text alone, nested as their configurations are.
NESTED = {
    "GteModel": dict(position_embedding_type="rope"),
    "HunYuanDenseV1ForCausalLM": dict(head_dim=16, rope_parameters=dict(rope_type="default", rope_theta=10000.0)),
    "HunYuanMoEV1ForCausalLM": dict(head_dim=16, rope_parameters=dict(rope_type="default", rope_theta=10000.0)),
    "Lfm2VlForConditionalGeneration": dict(text_config=dict(**_LFM2, layer_types=["conv", "full_attention"])),
}
# Keys that published configurations have and transformers does not write.
PUBLISHED = {
    "AfmoeForCausalLM": dict(score_func="sigmoid", route_norm=True, route_scale=1.0),
    "DeepseekV3ForCausalLM": _MLA,
    "DeepseekV32ForCausalLM": _MLA,
    "Glm4MoeForCausalLM": dict(head_dim=16, **_MLA),
    "Glm4MoeLiteForCausalLM": _MLA,
    "GlmMoeDsaForCausalLM": _MLA,
    "HYV3ForCausalLM": dict(first_k_dense_replace=1, expert_hidden_dim=64),
    "InklingForCausalLM": dict(padded_vocab_size=320, use_embed_norm=True),
    "Lfm2ForCausalLM": _LFM2,
    "LongcatFlashForCausalLM": dict(mla_scale_q_lora=True, mla_scale_kv_lora=True, attention_method="MLA",
                                    zero_expert_type="identity"),
    "MiMoV2FlashForCausalLM": dict(hybrid_layer_pattern=[0, 1], layernorm_epsilon=1e-5),
    "MiniMaxM2ForCausalLM": dict(rotary_dim=16, scoring_func="sigmoid"),
    "Qwen4ExpForCausalLM": dict(output_gate_type="sigmoid"),
}
# Blocks of 128 need larger tensors.
LARGE = dict(hidden_size=256, intermediate_size=512, moe_intermediate_size=256, head_dim=32, shared_expert_intermediate_size=256,
             num_key_value_heads=8)


# Where checkpoints that are published have other names than those that transformers writes: tried in turn.
_TOWER = (r"(vision_tower)\.(?=embeddings|encoder|post_layernorm|pre_layrnorm|head)", r"\1.vision_model.")
_INNER = (r"language_model\.model\.model\.", "language_model.model.")
_FLAT = [(r"^model\.language_model\.", "language_model.model."), (r"^lm_head", "language_model.lm_head"), (r"^model\.", "")]
NAMES = ([], [_INNER], [_TOWER, _INNER], [*_FLAT, _TOWER], _FLAT, [(r"^model\.", "")], [(r"^", "model.")])


def small_of(architecture, change=""):
    import transformers as tf
    if architecture not in registry()._TEXT_GENERATION_MODELS:
        return small_models.small_model(architecture, NESTED.get(architecture))
    kind = getattr(tf, architecture)
    known = kind.config_class()
    known = known.to_dict() if hasattr(known, "to_dict") else vars(known)
    sizes = {**small_models.TEXT, **(LARGE if change == "block_fp8" else {})}
    options = {**{k: v for k, v in sizes.items() if k in known or hasattr(kind.config_class, k)},
               **small_models.SPECIAL.get(architecture, {})}
    options = {k: v for k, v in options.items() if v is not None}
    return kind(kind.config_class(**options))


def registry():
    import vllm.model_executor.models.registry as models
    return models


def architectures():
    import transformers as tf
    return sorted(name for name in registry()._VLLM_MODELS if isinstance(getattr(tf, name, None), type))


def is_pooling(architecture):
    models = registry()
    if architecture in models._TEXT_GENERATION_MODELS or architecture in models._MULTIMODAL_MODELS:
        return False
    return any(architecture in kind for kind in (
        models._EMBEDDING_MODELS, models._LATE_INTERACTION_MODELS, models._REWARD_MODELS, models._SEQUENCE_CLASSIFICATION_MODELS,
        models._TOKEN_CLASSIFICATION_MODELS))


def inspect_here():
    """Architectures are inspected in this process: vLLM takes ten seconds and a process of its own for each."""
    registry()._run_in_subprocess = lambda function: function()


def one(architecture, change, folder, out, tp, rank, ep):
    inspect_here()
    if is_pooling(architecture):
        start = loadplan.vllm.start
        loadplan.vllm.start = lambda *arguments: start(*arguments, runner="pooling")
    return vllm_loaders.one_rank(folder, tp, rank, ep, out)


def rename(folder, rules):
    weight_map = {}
    for file in sorted(f for f in os.listdir(folder) if f.endswith(".safetensors")):
        path, named = os.path.join(folder, file), {}
        for name, tensor in load_file(path).items():
            for old, new in rules:
                name = re.sub(old, new, name)
            named[name], weight_map[name] = tensor, file
        save_file(named, path, metadata={"format": "pt"})
    with open(os.path.join(folder, "model.safetensors.index.json"), "w") as f:
        json.dump({"metadata": {}, "weight_map": weight_map}, f)


def save(architecture, change, folder, rules=()):
    torch.manual_seed(1)
    vllm_families.FAMILIES["every"] = (lambda: (small_of(architecture, change), vllm_families.CHANGES[change])
                                       if change else small_of(architecture), True)
    vllm_families.save("every", folder)
    with open(os.path.join(folder, "config.json")) as f:
        config = json.load(f)
    config.update(PUBLISHED.get(architecture, {}), architectures=[architecture])
    with open(os.path.join(folder, "config.json"), "w") as f:
        json.dump(config, f, indent=1)
    if rules:
        rename(folder, rules)


def row(architecture, change, layouts):
    """What was recorded, over all layouts, or why not, with the first names that load."""
    first = None
    for rules in NAMES:
        found = row_of(architecture, change, layouts, rules)
        if found.get("results") or "not" in found:
            return found
        first = first or found
        if not any("no module or parameter" in said or "KeyError" in said for said in found["skipped"].values()):
            break
    return first


def row_of(architecture, change, layouts, rules):
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as out:
        said = tried_in_child(save, architecture, change, folder, rules)
        if said is not None:
            return {"not": f"checkpoint: {why(said)}"}
        results, skipped = {}, {}
        for tp, ep in layouts:
            for rank in range(tp):
                result = tried_in_child(one, architecture, change, folder, out, tp, rank, ep)
                label = f"{'EP' if ep else 'TP'} {tp}"
                if isinstance(result, str):
                    skipped[label] = why(result)
                    break
                results[f"{label} rank {rank}"] = result
            if not results:
                break
        return {"results": results, "skipped": skipped}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="", help="beginnings of architectures, by commas")
    parser.add_argument("--change", default="", help="quantisations of vllm_families.CHANGES, by commas; empty: none")
    parser.add_argument("--layouts", default="1,2,2e")
    parser.add_argument("-o", "--output")
    options = parser.parse_args()
    layouts = [(int(part.rstrip("e")), part.endswith("e")) for part in options.layouts.split(",")]
    pairs = [(name, change) for change in options.change.split(",") for name in architectures()
             if not options.only or any(name.startswith(part) for part in options.only.split(","))]
    rows, bad = {}, 0
    for architecture, change in pairs:
        began = time.monotonic()
        found = rows[f"{architecture} {change}".strip()] = row(architecture, change, layouts)
        took = time.monotonic() - began
        if "not" in found or not found["results"]:
            reason = found.get("not") or next(iter(found["skipped"].values()))
            print(f"{architecture} {change}: not made: {reason} ({took:.0f} s)", flush=True)
            continue
        first = next(iter(found["results"].values()))
        wrong = [f"{label}: {name}" for label, r in found["results"].items() for name in (*r["differs"], *r["changed"])]
        bad += bool(wrong)
        reasons = sorted({reason for r in found["results"].values() for reason in r["reasons"]})
        findings = sorted({rule for r in found["results"].values() for rule in r["findings"]})
        print(f"{architecture} {change}: {first['records']} records ({' '.join(first['kinds'])}), {first['derives']} derives, "
              f"{max(r['refusals'] for r in found['results'].values())} refusals; {', '.join(found['results'])}; "
              f"{' '.join(findings)}{'; DIFFERS ' + str(wrong[:6]) if wrong else ''} ({took:.0f} s)", flush=True)
        for reason in reasons[:6]:
            print(f"    {reason}")
        for label, reason in found["skipped"].items():
            print(f"    {label} not made: {reason}", flush=True)
        if options.output:
            with open(options.output, "w") as f:
                json.dump(rows, f, indent=1)
    print(f"{len(rows)} pairs, {bad} with differences")
    return bad > 0


if __name__ == "__main__":
    torch.set_grad_enabled(False)
    sys.exit(main())
