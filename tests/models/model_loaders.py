# SPDX-License-Identifier: Apache-2.0
"""What one rank of an engine holds of each model, with numpy over whole arrays. No code and no formula of loadplan.

Every function takes a Rank, reads checkpoint tensors by their full names, and returns nothing: destinations go to Rank.out.
"""
import pathlib
import sys

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "demo"))
import independent  # noqa: E402

TWO_NORMS = ("input_layernorm", "post_attention_layernorm")


class Rank:
    def __init__(self, checkpoint, config, tp, ep, rank):
        self.ck, self.config, self.c = checkpoint, config, config.get("text_config", config)
        self.tp, self.rank = tp, rank % tp
        self.ep, self.ep_rank = (ep, rank) if ep > 1 else (1, 0)
        self.out = {}

    def part(self, array, axis):
        return np.split(array, self.tp, axis)[self.rank]

    def expert_part(self, array, axis):
        """Of one expert: with --ep experts stay whole."""
        return array if self.ep > 1 else self.part(array, axis)

    def local(self, experts):
        return range(experts)[experts // self.ep * self.ep_rank:experts // self.ep * (self.ep_rank + 1)]


def copy(r, there, here):
    r.out[here] = r.ck[there]


def vocabulary(r, there, here):
    table = r.ck[there]
    padded = table.shape[0]
    while padded % 64 or padded % r.tp:
        padded += 1
    whole = np.zeros((padded,) + table.shape[1:], table.dtype)
    whole[:table.shape[0]] = table
    r.out[here] = r.part(whole, 0)


def kinds(r, stem):
    """The tensors below a linear layer, its weight first."""
    known = ("weight", "weight_packed", "bias", "weight_scale", "weight_scale_inv", "weight_scale_2", "weight_global_scale",
             "input_scale", "input_global_scale")
    return [k for k in known if f"{stem}.{k}" in r.ck]


def is_scalar(array):
    return array.size == 1 and array.ndim < 2


def stacked(r, stems, here, cut):
    """Several layers in one parameter. cut(array, number) is this rank's rows of a weight, a bias or a scale."""
    for kind in dict.fromkeys(k for stem in stems for k in kinds(r, stem)):
        parts = [r.ck[f"{stem}.{kind}"] for stem in stems]
        if kind != "bias" and is_scalar(parts[0]):
            r.out[f"{here}.{kind}"] = np.concatenate([p.reshape(1) for p in parts])
        else:
            r.out[f"{here}.{kind}"] = np.concatenate([cut(p, i) for i, p in enumerate(parts)])


def by_rows(r, stems, here):
    stacked(r, stems, here, lambda array, _: r.part(array, 0))


def by_columns(r, there, here):
    for kind in kinds(r, there):
        array = r.ck[f"{there}.{kind}"]
        if array.ndim == 2 and array.shape[1] > 1:
            array = r.part(array, 1)
        r.out[f"{here}.{kind}"] = array.reshape(1) if kind != "bias" and is_scalar(array) else array


def heads(r, array, count):
    """This rank's heads; where there are fewer than ranks, several ranks have the same one."""
    by_head = array.reshape((count, -1) + array.shape[1:])
    own = np.split(by_head, r.tp)[r.rank] if count >= r.tp else by_head[[r.rank // (r.tp // count)]]
    return own.reshape((-1,) + array.shape[1:])


def attention(r, there, here, back="o_proj"):
    q, kv = r.c["num_attention_heads"], r.c["num_key_value_heads"]
    stacked(r, [f"{there}.{p}_proj" for p in "qkv"], f"{here}.qkv_proj", lambda a, i: heads(r, a, kv if i else q))
    by_columns(r, f"{there}.{back}", f"{here}.{back}")
    for name, new in (("q_norm.weight",) * 2, ("k_norm.weight",) * 2, ("k_proj.k_scale", "attn.k_scale"),
                      ("v_proj.v_scale", "attn.v_scale")):
        if f"{there}.{name}" in r.ck:
            copy(r, f"{there}.{name}", f"{here}.{new}")


def gated_mlp(r, there, here):
    by_rows(r, [f"{there}.gate_proj", f"{there}.up_proj"], f"{here}.gate_up_proj")
    by_columns(r, f"{there}.down_proj", f"{here}.down_proj")


def around(r, prefix="model.", head="lm_head", last="norm"):
    vocabulary(r, f"{prefix}embed_tokens.weight", "embed_tokens.weight")
    for kind in ("weight", "bias"):
        if f"{head}.{kind}" in r.ck:
            vocabulary(r, f"{head}.{kind}", f"lm_head.{kind}")
        if f"{prefix}{last}.{kind}" in r.ck:
            copy(r, f"{prefix}{last}.{kind}", f"{last}.{kind}")


def layers(r, prefix="model."):
    return [(f"{prefix}layers.{i}", f"layers.{i}") for i in range(r.c["num_hidden_layers"])]


def norms(r, there, here, names=TWO_NORMS):
    for name in names:
        for kind in ("weight", "bias"):
            if f"{there}.{name}.{kind}" in r.ck:
                copy(r, f"{there}.{name}.{kind}", f"{here}.{name}.{kind}")


# ---- dense ----

def llama(r, prefix="model."):
    around(r, prefix)
    for there, here in layers(r, prefix):
        attention(r, there + ".self_attn", here + ".self_attn")
        gated_mlp(r, there + ".mlp", here + ".mlp")
        norms(r, there, here, TWO_NORMS + ("pre_feedforward_layernorm", "post_feedforward_layernorm"))


def fused_gate_up(r, there, here):
    gate, up = np.split(r.ck[there + ".gate_up_proj.weight"], 2)
    r.out[here + ".gate_up_proj.weight"] = np.concatenate([r.part(gate, 0), r.part(up, 0)])
    by_columns(r, there + ".down_proj", here + ".down_proj")


def phi3(r):
    q, kv = r.c["num_attention_heads"], r.c["num_key_value_heads"]
    around(r)
    for there, here in layers(r):
        fused = r.ck[there + ".self_attn.qkv_proj.weight"]
        size = fused.shape[0] // (q + 2 * kv)
        parts = np.split(fused, [q * size, (q + kv) * size])
        r.out[here + ".self_attn.qkv_proj.weight"] = np.concatenate([heads(r, p, n) for p, n in zip(parts, (q, kv, kv))])
        by_columns(r, there + ".self_attn.o_proj", here + ".self_attn.o_proj")
        fused_gate_up(r, there + ".mlp", here + ".mlp")
        norms(r, there, here)


def glm4(r):
    around(r)
    for there, here in layers(r):
        attention(r, there + ".self_attn", here + ".self_attn")
        fused_gate_up(r, there + ".mlp", here + ".mlp")
        norms(r, there, here, TWO_NORMS + ("post_self_attn_layernorm", "post_mlp_layernorm"))


def plain_mlp(r, there, here, up, down):
    by_rows(r, [f"{there}.{up}"], f"{here}.{up}")
    by_columns(r, f"{there}.{down}", f"{here}.{down}")


def phi2(r):
    around(r, last="final_layernorm")
    for there, here in layers(r):
        attention(r, there + ".self_attn", here + ".self_attn", "dense")
        plain_mlp(r, there + ".mlp", here + ".mlp", "fc1", "fc2")
        norms(r, there, here)


def starcoder2(r):
    around(r)
    for there, here in layers(r):
        attention(r, there + ".self_attn", here + ".self_attn")
        plain_mlp(r, there + ".mlp", here + ".mlp", "c_fc", "c_proj")
        norms(r, there, here)


def nemotron(r):
    around(r)
    for there, here in layers(r):
        attention(r, there + ".self_attn", here + ".self_attn")
        plain_mlp(r, there + ".mlp", here + ".mlp", "up_proj", "down_proj")
        norms(r, there, here)


# ---- experts ----

def experts(r, there, here, count, names=("gate_proj", "up_proj", "down_proj")):
    gate, up, down = names
    for kind in kinds(r, f"{there}.0.{gate}"):
        first, second = [], []
        for e in r.local(count):
            g, u, d = (r.ck[f"{there}.{e}.{p}.{kind}"] for p in (gate, up, down))
            if is_scalar(g):
                first.append(np.concatenate([g.reshape(1), u.reshape(1)]))
                second.append(d.reshape(()))
            else:
                first.append(np.concatenate([r.expert_part(g, 0), r.expert_part(u, 0)]))
                second.append(r.expert_part(d, 1) if d.shape[1] > 1 else d)
        r.out[f"{here}.w13_{kind}"], r.out[f"{here}.w2_{kind}"] = np.stack(first), np.stack(second)


def mixtral(r):
    around(r)
    for there, here in layers(r):
        moe = ".block_sparse_moe"
        attention(r, there + ".self_attn", here + ".self_attn")
        copy(r, f"{there}{moe}.gate.weight", f"{here}{moe}.gate.weight")
        correction = f"{there}{moe}.e_score_correction_bias"
        if correction in r.ck:
            r.out[f"{here}{moe}.e_score_correction_bias"] = r.ck[correction].astype(np.uint32) << 16  # BF16 to F32
        experts(r, f"{there}{moe}.experts", f"{here}{moe}.experts", r.c["num_local_experts"], ("w1", "w3", "w2"))
        norms(r, there, here)


def qwen_moe(r):
    around(r)
    for there, here in layers(r):
        if there + ".linear_attn.A_log" in r.ck:
            delta_net(r, there + ".linear_attn", here + ".linear_attn")
        else:
            attention(r, there + ".self_attn", here + ".self_attn")
        copy(r, there + ".mlp.gate.weight", here + ".mlp.gate.weight")
        experts(r, there + ".mlp.experts", here + ".mlp.experts", r.c["num_experts"])
        if there + ".mlp.shared_expert_gate.weight" in r.ck:
            copy(r, there + ".mlp.shared_expert_gate.weight", here + ".mlp.shared_expert_gate.weight")
            gated_mlp(r, there + ".mlp.shared_expert", here + ".mlp.shared_expert")
        norms(r, there, here)


def delta_net(r, there, here):
    """Rows of in_proj stand by key heads: their query, key, values and gates."""
    count = r.c["linear_num_key_heads"]
    for name in ("in_proj_qkvz", "in_proj_ba"):
        r.out[f"{here}.{name}.weight"] = heads(r, r.ck[f"{there}.{name}.weight"], count)
    q = count * r.c["linear_key_head_dim"]
    parts = zip(np.split(r.ck[there + ".conv1d.weight"], [q, 2 * q]), (count, count, r.c["linear_num_value_heads"]))
    r.out[here + ".conv1d.weight"] = np.concatenate([heads(r, p, n) for p, n in parts])
    for name in ("A_log", "dt_bias"):
        r.out[f"{here}.{name}"] = r.part(r.ck[f"{there}.{name}"], 0)
    copy(r, there + ".norm.weight", here + ".norm.weight")
    by_columns(r, there + ".out_proj", here + ".out_proj")


def latent_attention(r, there, here):
    count = r.c["num_attention_heads"]

    def split(name):
        for kind in kinds(r, f"{there}.{name}"):
            r.out[f"{here}.{name}.{kind}"] = heads(r, r.ck[f"{there}.{name}.{kind}"], count)

    if r.c.get("q_lora_rank"):
        stacked(r, [there + ".q_a_proj", there + ".kv_a_proj_with_mqa"], here + ".fused_qkv_a_proj", lambda a, _: a)
        copy(r, there + ".q_a_layernorm.weight", here + ".q_a_layernorm.weight")
        split("q_b_proj")
    else:
        stacked(r, [there + ".kv_a_proj_with_mqa"], here + ".kv_a_proj_with_mqa", lambda a, _: a)
        split("q_proj")
    copy(r, there + ".kv_a_layernorm.weight", here + ".kv_a_layernorm.weight")
    split("kv_b_proj")
    by_columns(r, there + ".o_proj", here + ".o_proj")


def deepseek(r):
    around(r)
    for i, (there, here) in enumerate(layers(r)):
        if "kv_lora_rank" in r.c:
            latent_attention(r, there + ".self_attn", here + ".self_attn")
        else:
            attention(r, there + ".self_attn", here + ".self_attn")
        if i < r.c["first_k_dense_replace"]:
            gated_mlp(r, there + ".mlp", here + ".mlp")
        else:
            for name in ("gate.weight", "gate.e_score_correction_bias"):
                if f"{there}.mlp.{name}" in r.ck:
                    copy(r, f"{there}.mlp.{name}", f"{here}.mlp.{name}")
            experts(r, there + ".mlp.experts", here + ".mlp.experts", r.c["n_routed_experts"])
            gated_mlp(r, there + ".mlp.shared_experts", here + ".mlp.shared_experts")
        norms(r, there, here)


def all_experts(r, first, second, here, kind="weight"):
    """first [E, 2I, *], gate before up; second [E, H, I]."""
    own = r.local(first.shape[0])
    gate, up = np.split(first[own.start:own.stop], 2, axis=1)
    r.out[f"{here}.w13_{kind}"] = np.concatenate([r.expert_part(gate, 1), r.expert_part(up, 1)], axis=1)
    r.out[f"{here}.w2_{kind}"] = r.expert_part(second[own.start:own.stop], 2)


def in_turns(array):
    """Rows gate, up, gate, up, ... to all gate rows, then all up rows."""
    return np.concatenate([array[:, 0::2], array[:, 1::2]], axis=1)


def gpt_oss(r):
    around(r)
    for there, here in layers(r):
        attention(r, there + ".self_attn", here + ".self_attn")
        r.out[here + ".self_attn.sinks"] = r.part(r.ck[there + ".self_attn.sinks"], 0)
        for kind in ("weight", "bias"):
            copy(r, f"{there}.mlp.router.{kind}", f"{here}.mlp.router.{kind}")
        e, into = there + ".mlp.experts", here + ".mlp.experts"
        if e + ".gate_up_proj_blocks" in r.ck:
            first, second = r.ck[e + ".gate_up_proj_blocks"], r.ck[e + ".down_proj_blocks"]
            flat = [in_turns(first).reshape(first.shape[:2] + (-1,)), second.reshape(second.shape[:2] + (-1,))]
            all_experts(r, *flat, into)
            all_experts(r, in_turns(r.ck[e + ".gate_up_proj_scales"]), r.ck[e + ".down_proj_scales"], into, "weight_scale")
        else:
            first, second = (r.ck[f"{e}.{p}"].transpose(0, 2, 1) for p in ("gate_up_proj", "down_proj"))
            all_experts(r, in_turns(first), second, into)
        own = r.local(r.c["num_local_experts"])
        gate, up = np.split(in_turns(r.ck[e + ".gate_up_proj_bias"])[own.start:own.stop], 2, axis=1)
        r.out[into + ".w13_bias"] = np.concatenate([r.expert_part(gate, 1), r.expert_part(up, 1)], axis=1)
        down = r.ck[e + ".down_proj_bias"][own.start:own.stop]
        r.out[into + ".w2_bias"] = down if r.ep > 1 or r.rank == 0 else np.zeros_like(down)
        norms(r, there, here)


def llama4(r):
    prefix = "language_model.model."
    around(r, prefix, "language_model.lm_head")
    for i, (there, here) in enumerate(layers(r, prefix)):
        attention(r, there + ".self_attn", here + ".self_attn")
        ffn, into = there + ".feed_forward", here + ".feed_forward"
        if (i + 1) % r.c["interleave_moe_layer_step"] == 0:
            copy(r, ffn + ".router.weight", into + ".router.weight")
            first, second = (r.ck[f"{ffn}.experts.{p}"].transpose(0, 2, 1) for p in ("gate_up_proj", "down_proj"))
            all_experts(r, first, second, into + ".experts")
            gated_mlp(r, ffn + ".shared_expert", into + ".shared_expert")
        else:
            gated_mlp(r, ffn, into)
        norms(r, there, here)


def qwen3_vl_moe(r):
    prefix = "model.language_model."
    around(r, prefix)
    for there, here in layers(r, prefix):
        attention(r, there + ".self_attn", here + ".self_attn")
        copy(r, there + ".mlp.gate.weight", here + ".mlp.gate.weight")
        first, second = (r.ck[f"{there}.mlp.experts.{p}"].transpose(0, 2, 1) for p in ("gate_up_proj", "down_proj"))
        all_experts(r, first, second, here + ".mlp.experts")
        norms(r, there, here)


def granite_moe(r):
    around(r)
    for there, here in layers(r):
        attention(r, there + ".self_attn", here + ".self_attn")
        moe, into = there + ".block_sparse_moe", here + ".block_sparse_moe"
        all_experts(r, r.ck[moe + ".input_linear.weight"], r.ck[moe + ".output_linear.weight"], into + ".experts")
        copy(r, moe + ".router.layer.weight", into + ".router.layer.weight")
        norms(r, there, here)


# ---- other structures ----

def gpt2(r):
    vocabulary(r, "wte.weight", "wte.weight")
    copy(r, "wpe.weight", "wpe.weight")
    for name in ["ln_f"] + [f"h.{i}.{n}" for i in range(r.c["n_layer"]) for n in ("ln_1", "ln_2")]:
        for kind in ("weight", "bias"):
            copy(r, f"{name}.{kind}", f"{name}.{kind}")
    for i in range(r.c["n_layer"]):
        for name, parts in (("attn.c_attn", 3), ("mlp.c_fc", 1)):
            for kind in ("weight", "bias"):
                whole = r.ck[f"h.{i}.{name}.{kind}"].T
                r.out[f"h.{i}.{name}.{kind}"] = np.concatenate([r.part(p, 0) for p in np.split(whole, parts)])
        for name in ("attn.c_proj", "mlp.c_proj"):
            r.out[f"h.{i}.{name}.weight"] = r.part(r.ck[f"h.{i}.{name}.weight"].T, 1)
            copy(r, f"h.{i}.{name}.bias", f"h.{i}.{name}.bias")


def grouped(r, array, groups, queries):
    """Rows of each group: its queries, its key, its value. To this rank's q, k, v."""
    size = array.shape[0] // (groups * (queries + 2))
    by_group = array.reshape((groups, queries + 2, size) + array.shape[1:])
    q = by_group[:, :queries].reshape((groups * queries * size,) + array.shape[1:])
    k, v = (by_group[:, queries + i].reshape((groups * size,) + array.shape[1:]) for i in range(2))
    return np.concatenate([heads(r, q, groups * queries), heads(r, k, groups), heads(r, v, groups)])


def neox(r):
    vocabulary(r, "gpt_neox.embed_in.weight", "embed_in.weight")
    vocabulary(r, "embed_out.weight", "embed_out.weight")
    for kind in ("weight", "bias"):
        copy(r, f"gpt_neox.final_layer_norm.{kind}", f"final_layer_norm.{kind}")
    for there, here in layers(r, "gpt_neox."):
        for kind in ("weight", "bias"):
            name = f".attention.query_key_value.{kind}"
            r.out[here + name] = grouped(r, r.ck[there + name], r.c["num_attention_heads"], 1)
        by_columns(r, there + ".attention.dense", here + ".attention.dense")
        plain_mlp(r, there + ".mlp", here + ".mlp", "dense_h_to_4h", "dense_4h_to_h")
        norms(r, there, here)


def falcon(r):
    vocabulary(r, "transformer.word_embeddings.weight", "word_embeddings.weight")
    for kind in ("weight", "bias"):
        copy(r, f"transformer.ln_f.{kind}", f"ln_f.{kind}")
    groups = r.c["num_kv_heads"] if r.c["new_decoder_architecture"] else 1
    for i in range(r.c["num_hidden_layers"]):
        there, here = f"transformer.h.{i}", f"h.{i}"
        name = ".self_attention.query_key_value.weight"
        r.out[here + name] = grouped(r, r.ck[there + name], groups, r.c["num_attention_heads"] // groups)
        by_columns(r, there + ".self_attention.dense", here + ".self_attention.dense")
        plain_mlp(r, there + ".mlp", here + ".mlp", "dense_h_to_4h", "dense_4h_to_h")
        norms(r, there, here, ("input_layernorm", "ln_attn", "ln_mlp"))


def minus_exp(array):
    as_float = array.view(np.float32) if array.dtype.itemsize == 4 else (array.astype(np.uint32) << 16).view(np.float32)
    return -np.exp(as_float)


def mamba(r):
    vocabulary(r, "backbone.embeddings.weight", "embeddings.weight")
    copy(r, "backbone.norm_f.weight", "norm_f.weight")
    for there, here in layers(r, "backbone."):
        copy(r, there + ".norm.weight", here + ".norm.weight")
        m, into = there + ".mixer", here + ".mixer"
        r.out[into + ".in_proj.weight"] = np.concatenate([r.part(p, 0) for p in np.split(r.ck[m + ".in_proj.weight"], 2)])
        for name in ("conv1d.weight", "conv1d.bias", "dt_proj.weight", "dt_proj.bias", "D"):
            r.out[f"{into}.{name}"] = r.part(r.ck[f"{m}.{name}"], 0)
        r.out[into + ".A"] = minus_exp(r.part(r.ck[m + ".A_log"], 0))
        for name in ("x_proj", "out_proj"):
            by_columns(r, f"{m}.{name}", f"{into}.{name}")


def mamba2(r):
    vocabulary(r, "backbone.embeddings.weight", "embeddings.weight")
    vocabulary(r, "lm_head.weight", "lm_head.weight")
    copy(r, "backbone.norm_f.weight", "norm_f.weight")
    count, groups, state = r.c["num_heads"], r.c["n_groups"], r.c["state_size"]
    inner = count * r.c["head_dim"]
    for there, here in layers(r, "backbone."):
        copy(r, there + ".norm.weight", here + ".norm.weight")
        m, into = there + ".mixer", here + ".mixer"
        z, x, b, c, dt = np.split(r.ck[m + ".in_proj.weight"], np.cumsum([inner, inner, groups * state, groups * state]))
        parts = [r.part(z, 0), r.part(x, 0), heads(r, b, groups), heads(r, c, groups), r.part(dt, 0)]
        r.out[into + ".in_proj.weight"] = np.concatenate(parts)
        for kind in ("weight", "bias"):
            x, b, c = np.split(r.ck[f"{m}.conv1d.{kind}"], np.cumsum([inner, groups * state]))
            r.out[f"{into}.conv1d.{kind}"] = np.concatenate([r.part(x, 0), heads(r, b, groups), heads(r, c, groups)])
        for name in ("dt_bias", "D", "norm.weight"):
            r.out[f"{into}.{name}"] = r.part(r.ck[f"{m}.{name}"], 0)
        r.out[into + ".A"] = minus_exp(r.part(r.ck[m + ".A_log"], 0))
        by_columns(r, m + ".out_proj", into + ".out_proj")


def roberta(r):
    prefix = "roberta."
    vocabulary(r, prefix + "embeddings.word_embeddings.weight", "embeddings.word_embeddings.weight")
    for name in ("position_embeddings.weight", "token_type_embeddings.weight", "LayerNorm.weight", "LayerNorm.bias"):
        copy(r, f"{prefix}embeddings.{name}", f"embeddings.{name}")
    for kind in ("weight", "bias"):
        copy(r, f"{prefix}pooler.dense.{kind}", f"pooler.dense.{kind}")
    for i in range(r.c["num_hidden_layers"]):
        there, here = f"{prefix}encoder.layer.{i}", f"encoder.layer.{i}"
        by_rows(r, [f"{there}.attention.self.{p}" for p in ("query", "key", "value")], here + ".attention.self.qkv_proj")
        by_rows(r, [there + ".intermediate.dense"], here + ".intermediate.dense")
        for name in ("attention.output.dense", "output.dense"):
            by_columns(r, f"{there}.{name}", f"{here}.{name}")
        norms(r, there, here, ("attention.output.LayerNorm", "output.LayerNorm"))


# ---- kernel layouts ----

def kernel_experts(r, there, here, count):
    """After `experts`: what it made into the layouts and scales that the MegaMoE kernel reads."""
    moved = {k: r.out.pop(f"{here}.{k}") for k in ("w13_weight_scale", "w2_weight_scale")}
    compressed = f"{here}.w13_weight_packed" in r.out
    suffix = "weight_packed" if compressed else "weight"
    r.out[f"{here}.w13_weight"] = independent.interleave(r.out.pop(f"{here}.w13_{suffix}"))
    r.out[f"{here}.w2_weight"] = r.out.pop(f"{here}.w2_{suffix}")
    for name, scale in moved.items():
        scale = independent.interleave(scale) if name.startswith("w13") else scale
        words = np.ascontiguousarray(independent.scale_words(scale))
        r.out[f"{here}.{name}"] = words.view(np.uint32)[..., 0]
    scales = ("weight_global_scale", "input_global_scale") if compressed else ("weight_scale_2", "input_scale")
    r.out[f"{here}.w13_{scales[0]}"] = r.out[f"{here}.w13_{scales[0]}"].T
    del r.out[f"{here}.w13_{scales[1]}"]
    every = np.concatenate([r.ck[f"{there}.{e}.down_proj.{scales[1]}"].reshape(1) for e in range(count)])
    r.out[f"{here}.w2_{scales[1]}"] = every
    largest = every.view(np.float32)
    if compressed:
        for which in ("w13", "w2"):
            divisor = np.ascontiguousarray(r.out[f"{here}.{which}_weight_global_scale"]).view(np.float32)
            r.out[f"{here}.{which}_weight_scale_2"] = np.float32(1) / divisor
        largest = np.float32(1) / largest
    r.out[f"{here}.l2_activation_scale"] = np.array(largest.max() or 1, np.float32)


def in_kernel_layouts(load_model):
    def load_it(r):
        load_model(r)
        count = r.c.get("n_routed_experts") or r.c["num_experts"]
        for there, here in layers(r):
            if there + ".mlp.gate.weight" in r.ck:
                kernel_experts(r, there + ".mlp.experts", here + ".mlp.experts", count)
    return load_it


BY_TYPE = {
    "llama": llama, "mistral": llama, "qwen2": llama, "qwen3": llama, "gemma": llama, "gemma2": llama, "granite": llama, "smollm3": llama,
    "cohere": llama, "gemma3": lambda r: llama(r, "language_model.model."), "nemotron": nemotron, "phimoe": mixtral,
    "minimax_m2": mixtral, "kimi_k2": deepseek, "roberta": roberta, "gemma3_text": llama, "olmo2": llama,
    "phi3": phi3, "glm4": glm4, "phi": phi2, "starcoder2": starcoder2, "mixtral": mixtral, "qwen2_moe": qwen_moe,
    "qwen3_moe": qwen_moe, "qwen3_next": qwen_moe, "qwen3_vl_moe": qwen3_vl_moe, "deepseek_v2": deepseek, "deepseek_v3": deepseek,
    "glm4_moe": deepseek, "gpt_oss": gpt_oss, "llama4": llama4, "granitemoe": granite_moe, "gpt2": gpt2, "gpt_neox": neox,
    "falcon": falcon, "mamba": mamba, "mamba2": mamba2, "xlm-roberta": roberta,
}


def load(checkpoint, config, tp, ep, rank, loader):
    r = Rank(checkpoint, config, tp, ep, rank)
    load_model = BY_TYPE[config["model_type"]]
    (in_kernel_layouts(load_model) if loader == "megamoe" else load_model)(r)
    return r.out
