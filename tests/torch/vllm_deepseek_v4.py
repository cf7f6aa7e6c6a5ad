# SPDX-License-Identifier: Apache-2.0
"""DeepSeek-V4 as vLLM builds it on a CPU, over a checkpoint with the names of the published one, which transformers does not
write: recorded, replayed, compared, at TP 1, TP 2 and EP 2, every rank.

python vllm_deepseek_v4.py prints a row for each.
"""
import json
import os
import sys
import tempfile

import torch
from safetensors.torch import save_file

import loadplan.vllm
import vllm_loaders
from children import tried_in_child

Q_RANK = 128
# A layer of each kind: hashed experts, sliding attention, and both ratios of compression, of which the first has an indexer.
CONFIG = dict(
    architectures=["DeepseekV4ForCausalLM"], model_type="deepseek_v4", torch_dtype="bfloat16", vocab_size=320, hidden_size=256,
    intermediate_size=256, moe_intermediate_size=128, num_hidden_layers=4, num_attention_heads=8, num_key_value_heads=1,
    head_dim=512, qk_rope_head_dim=64, q_lora_rank=Q_RANK, o_lora_rank=64, o_groups=4, n_routed_experts=4, n_shared_experts=1,
    num_experts_per_tok=2, num_hash_layers=1, hc_mult=4, hc_sinkhorn_iters=2, hc_eps=1e-6, compress_ratios=[0, 0, 4, 128],
    sliding_window=128, index_n_heads=4, index_head_dim=128, index_topk=64, scoring_func="sqrtsoftplus", topk_method="noaux_tc",
    norm_topk_prob=True, routed_scaling_factor=1.5, swiglu_limit=10.0, rms_norm_eps=1e-6, hidden_act="silu",
    num_nextn_predict_layers=0, tie_word_embeddings=False, max_position_embeddings=4096, rope_theta=10000.0,
    compress_rope_theta=160000.0, rope_scaling=dict(type="yarn", rope_type="yarn", factor=16, beta_fast=32, beta_slow=1,
                                                    original_max_position_embeddings=256))
PLAIN = [("lm_head.weight", "head.weight"), ("embed_tokens.weight", "embed.weight"), (".e_score_correction_bias", ".bias"),
         ("shared_experts.down_proj", "shared_experts.w2")]


def published(name: str, tensor: torch.Tensor):
    """(name, tensor) of what the checkpoint has for one of vLLM's parameters."""
    name = name.removeprefix("model.")
    for ours, theirs in PLAIN:
        name = name.replace(ours, theirs)
    if "fused_wqa_wkv" in name:
        yield name.replace("fused_wqa_wkv", "wq_a"), tensor[:Q_RANK]
        yield name.replace("fused_wqa_wkv", "wkv"), tensor[Q_RANK:]
    elif "fused_wkv_wgate" in name or "shared_experts.gate_up_proj" in name:
        fused, parts = ("fused_wkv_wgate", ("wkv", "wgate")) if "fused_wkv_wgate" in name else ("gate_up_proj", ("w1", "w3"))
        for part, half in zip(parts, tensor.chunk(2)):
            yield name.replace(fused, part), half
    elif "routed_experts." in name:
        parts = ("w1", "w3") if "w13" in name else ("w2",)
        for expert, weights in enumerate(tensor):
            for part, half in zip(parts, weights.chunk(len(parts))):
                yield f"{name.partition('routed_experts.')[0]}{expert}.{part}.weight", half
    else:
        yield name, tensor


def write(folder: str) -> int:
    _, model = loadplan.vllm.start(folder)
    torch.manual_seed(1)
    tensors = {}
    for name, form in model.named_parameters():
        is_float = form.dtype.is_floating_point
        values = torch.randn(form.shape).to(form.dtype) if is_float else torch.randint(0, 4, form.shape, dtype=form.dtype)
        tensors.update({given: part.contiguous() for given, part in published(name, values)})
    save_file(tensors, os.path.join(folder, "model.safetensors"), metadata={"format": "pt"})
    return len(tensors)


def main() -> int:
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as out:
        with open(os.path.join(folder, "config.json"), "w") as f:
            json.dump(CONFIG, f)
        names = tried_in_child(write, folder)
        if isinstance(names, str):
            print(names)
            return 1
        bad = 0
        for tp, rank, ep in ((1, 0, False), (2, 0, False), (2, 1, False), (2, 0, True), (2, 1, True)):
            found = tried_in_child(vllm_loaders.one_rank, folder, tp, rank, ep, out)
            fine = not isinstance(found, str) and not (found["differs"] or found["changed"] or found["refusals"])
            bad += not fine
            said = found if isinstance(found, str) else f"{found['records']} records of {names} names, {found['refusals']} refusals"
            print(f"{'EP' if ep else 'TP'} {tp} rank {rank}: {said}{'' if fine else ' DIFFERS'}", flush=True)
        return bad > 0


if __name__ == "__main__":
    torch.set_grad_enabled(False)
    sys.exit(main())
