#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Loads a rank by itself, with numpy over the safetensors package, and compares every byte with a rank file.

It shares no code and no formula with loadplan: tensor-parallel slices are cut as an engine cuts them, and kernel layouts are
made step by step on whole arrays (join gate and up, interleave, gather words, transpose).

    independent.py bert|dense CHECKPOINT RANK_FILE --tp N --rank R
    independent.py megamoe CHECKPOINT RANK_FILE --ep N|--tp N --rank R
"""
import argparse
import json
import pathlib
import struct
import sys

import numpy as np
from safetensors import safe_open


class Checkpoint:
    """Tensors of a folder as arrays of raw bytes: the last dimension counts bytes."""

    WIDTH = {"BF16": 2, "F32": 4, "I64": 8}

    def __init__(self, folder):
        folder = pathlib.Path(folder)
        self.config = json.loads((folder / "config.json").read_text())
        self.where = {}
        for path in sorted(folder.glob("*.safetensors")):
            with safe_open(path, framework="np") as f:
                for name in f.keys():
                    self.where[name] = path
        self.headers = {}

    def header(self, path):
        if path not in self.headers:
            with open(path, "rb") as f:
                size = struct.unpack("<Q", f.read(8))[0]
                self.headers[path] = (8 + size, json.loads(f.read(size)))
        return self.headers[path]

    def __contains__(self, name):
        return name in self.where

    def __getitem__(self, name):
        start, header = self.header(self.where[name])
        entry = header[name]
        begin, end = entry["data_offsets"]
        raw = np.fromfile(self.where[name], np.uint8, end - begin, offset=start + begin)
        width = self.WIDTH.get(entry["dtype"], 1)
        return raw.reshape(entry["shape"][:-1] + [entry["shape"][-1] * width]) if entry["shape"] else raw


def columns(array, parts, part):
    """This rank's part of the last dimension."""
    width = array.shape[-1] // parts
    return array[..., part * width:(part + 1) * width]


def rows(array, parts, part):
    height = array.shape[0] // parts
    return array[part * height:(part + 1) * height]


def entries(vector, parts, part):
    """This rank's part of a vector of 4-byte or 2-byte elements."""
    return vector.reshape(parts, -1)[part]


def vocabulary(table, ranks, rank):
    """Padded to a multiple of 64, and of the ranks, with zero rows."""
    step = 64
    while step % ranks:
        step += 64
    padded = -(-table.shape[0] // step) * step
    whole = np.zeros((padded, table.shape[1]), np.uint8)
    whole[:table.shape[0]] = table
    return rows(whole, ranks, rank)


def bert(ck, tp, rank):
    out = {"embeddings.word_embeddings.weight": vocabulary(ck["embeddings.word_embeddings.weight"], tp, rank)}
    for name in ck.where:
        if name.startswith("pooler") or ".LayerNorm." in name or name.startswith(("embeddings.position_emb", "embeddings.token")):
            out[name] = ck[name]
    for layer in range(ck.config["num_hidden_layers"]):
        stem = f"encoder.layer.{layer}"
        parts = [f"{stem}.attention.self.{part}" for part in ("query", "key", "value")]
        out[f"{stem}.attention.self.qkv_proj.weight"] = np.concatenate([rows(ck[f"{p}.weight"], tp, rank) for p in parts])
        out[f"{stem}.attention.self.qkv_proj.bias"] = np.concatenate([entries(ck[f"{p}.bias"], tp, rank) for p in parts])
        out[f"{stem}.intermediate.dense.weight"] = rows(ck[f"{stem}.intermediate.dense.weight"], tp, rank)
        out[f"{stem}.intermediate.dense.bias"] = entries(ck[f"{stem}.intermediate.dense.bias"], tp, rank)
        for module in (f"{stem}.attention.output.dense", f"{stem}.output.dense"):
            out[f"{module}.weight"] = columns(ck[f"{module}.weight"], tp, rank)
            out[f"{module}.bias"] = ck[f"{module}.bias"]
    return out


def attention(ck, out, layer, tp, rank):
    """Heads over the ranks; with fewer key/value heads than ranks, several ranks hold the same one."""
    there, here = f"model.layers.{layer}.self_attn", f"layers.{layer}.self_attn"
    heads, kv_heads, head_dim = (ck.config[k] for k in ("num_attention_heads", "num_key_value_heads", "head_dim"))
    for kind in ("weight", "bias"):
        parts = []
        for part in "qkv":
            name = f"{there}.{part}_proj.{kind}"
            if name not in ck:
                continue
            count = heads if part == "q" else kv_heads
            by_head = ck[name].reshape(count, -1) if kind == "bias" else ck[name].reshape(count, head_dim, -1)
            if count >= tp:
                own = by_head[count // tp * rank:count // tp * (rank + 1)]
            else:
                own = by_head[rank * count // tp:rank * count // tp + 1]
            parts.append(own.reshape(-1) if kind == "bias" else own.reshape(-1, by_head.shape[2]))
        if parts:
            out[f"{here}.qkv_proj.{kind}"] = np.concatenate(parts)
    out[f"{here}.o_proj.weight"] = columns(ck[f"{there}.o_proj.weight"], tp, rank)


def around_the_layers(ck, tp, rank):
    out = {"embed_tokens.weight": vocabulary(ck["model.embed_tokens.weight"], tp, rank), "norm.weight": ck["model.norm.weight"]}
    if "lm_head.weight" in ck:
        out["lm_head.weight"] = vocabulary(ck["lm_head.weight"], tp, rank)
    return out


def dense(ck, tp, rank):
    out = around_the_layers(ck, tp, rank)
    for layer in range(ck.config["num_hidden_layers"]):
        there, here = f"model.layers.{layer}", f"layers.{layer}"
        for norm in ("input_layernorm.weight", "post_attention_layernorm.weight"):
            out[f"{here}.{norm}"] = ck[f"{there}.{norm}"]
        attention(ck, out, layer, tp, rank)
        out[f"{here}.mlp.gate_up_proj.weight"] = np.concatenate(
            [rows(ck[f"{there}.mlp.{p}_proj.weight"], tp, rank) for p in ("gate", "up")])
        out[f"{here}.mlp.down_proj.weight"] = columns(ck[f"{there}.mlp.down_proj.weight"], tp, rank)
    return out


def interleave(stacked):
    """[E, 2I, *], gate rows before up rows, to 8 gate rows, 8 up rows, and so on."""
    experts, height, width = stacked.shape
    return stacked.reshape(experts, 2, height // 16, 8, width).transpose(0, 2, 1, 3, 4).reshape(experts, height, width)


def scale_words(scales):
    """[E, N, bytes] to 4-byte words in memory order [E, words, N], rows permuted 4 x 32 inside each 128."""
    experts, height, width = scales.shape
    words = scales.reshape(experts, height // 128, 4, 32, width).transpose(0, 1, 3, 2, 4).reshape(experts, height, width // 4, 4)
    return words.transpose(0, 2, 1, 3)


def megamoe(ck, ep, tp, rank):
    """Whole experts over `ep` ranks, or with ep 1 a share of every expert's intermediate dimension on each of `tp`."""
    experts = ck.config["num_experts"]
    local = range(experts // ep * rank, experts // ep * (rank + 1)) if ep > 1 else range(experts)
    share = (tp, rank) if ep == 1 else (1, 0)
    out = around_the_layers(ck, *share)
    for layer in range(ck.config["num_hidden_layers"]):
        there, here = f"model.layers.{layer}", f"layers.{layer}"
        for name in ("input_layernorm.weight", "post_attention_layernorm.weight", "mlp.gate.weight"):
            out[f"{here}.{name}"] = ck[f"{there}.{name}"]
        attention(ck, out, layer, *share)

        def stack(projection, kind, which=local):
            whole = [ck[f"{there}.mlp.experts.{e}.{projection}_proj.{kind}"] for e in which]
            if whole[0].ndim == 2:
                whole = [columns(w, *share) if projection == "down" else rows(w, *share) for w in whole]
            return np.stack(whole)

        stem = f"{here}.mlp.experts"
        out[f"{stem}.w13_weight"] = interleave(np.concatenate([stack("gate", "weight"), stack("up", "weight")], axis=1))
        out[f"{stem}.w2_weight"] = stack("down", "weight")
        both = np.concatenate([stack("gate", "weight_scale"), stack("up", "weight_scale")], axis=1)
        out[f"{stem}.w13_weight_scale"] = scale_words(interleave(both))
        out[f"{stem}.w2_weight_scale"] = scale_words(stack("down", "weight_scale"))
        if f"{there}.mlp.experts.0.gate_proj.weight_scale_2" not in ck:
            continue
        out[f"{stem}.w13_weight_scale_2"] = np.stack([stack("gate", "weight_scale_2"), stack("up", "weight_scale_2")])
        out[f"{stem}.w2_weight_scale_2"] = stack("down", "weight_scale_2")
        every = stack("down", "input_scale", range(experts))
        out[f"{stem}.w2_input_scale"] = every
        largest = np.frombuffer(every.tobytes(), np.float32).max()
        out[f"{stem}.l2_activation_scale"] = np.array([largest if largest != 0 else 1.0], np.float32)
    return out


def compare(wanted, rank_file):
    """Problems as lines of text, and how many bytes were compared."""
    with open(rank_file, "rb") as f:
        size = struct.unpack("<Q", f.read(8))[0]
        header = json.loads(f.read(size))
    header.pop("__metadata__", None)
    problems = [f"missing: {n}" for n in wanted.keys() - header.keys()] + [f"unexpected: {n}" for n in header.keys() - wanted.keys()]
    compared = 0
    for name in sorted(wanted.keys() & header.keys()):
        begin, end = header[name]["data_offsets"]
        seen = np.fromfile(rank_file, np.uint8, end - begin, offset=8 + size + begin)
        mine = np.ascontiguousarray(wanted[name]).view(np.uint8).reshape(-1)
        if seen.shape != mine.shape:
            problems.append(f"{name}: {seen.size} bytes, wanted {mine.size}")
        elif not np.array_equal(seen, mine):
            problems.append(f"{name}: byte {int(np.argmax(seen != mine))} differs")
        compared += mine.size
    return sorted(problems), compared


def load(loader, folder, tp, ep, rank):
    ck = Checkpoint(folder)
    if loader == "bert":
        return bert(ck, tp, rank)
    return dense(ck, tp, rank) if loader == "dense" else megamoe(ck, ep, tp, rank)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("loader", choices=("bert", "dense", "megamoe"))
    parser.add_argument("checkpoint")
    parser.add_argument("rank_file")
    parser.add_argument("--tp", type=int, default=1)
    parser.add_argument("--ep", type=int, default=1)
    parser.add_argument("--rank", type=int, default=0)
    a = parser.parse_args()
    wanted = load(a.loader, a.checkpoint, a.tp, a.ep, a.rank)
    problems, compared = compare(wanted, a.rank_file)
    for problem in problems:
        print(problem)
    print(f"{len(wanted)} tensors, {compared:,} bytes: {'DIFFERENT' if problems else 'equal'}")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
