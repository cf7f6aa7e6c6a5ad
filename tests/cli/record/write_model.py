# SPDX-License-Identifier: Apache-2.0
"""write_model.py FOLDER [--experts N] [--extra NAME]

Writes config.json and a small two-layer decoder of zeros, with NVFP4 experts instead of an MLP when asked.
"""
import argparse
import json
import math
import pathlib
import struct

BITS = {"U8": 8, "F8_E4M3": 8, "BF16": 16, "F32": 32}
HIDDEN, HEADS, KV_HEADS, HEAD_DIM, ROWS, VOCABULARY = 256, 4, 2, 16, 128, 100

parser = argparse.ArgumentParser()
parser.add_argument("folder", type=pathlib.Path)
parser.add_argument("--experts", type=int, default=0)
parser.add_argument("--extra", action="append", default=[])
arguments = parser.parse_args()

tensors = {"model.embed_tokens.weight": ("BF16", [VOCABULARY, HIDDEN]), "model.norm.weight": ("BF16", [HIDDEN])}
for layer in range(2):
    stem = f"model.layers.{layer}"
    for part, heads in (("q", HEADS), ("k", KV_HEADS), ("v", KV_HEADS)):
        tensors[f"{stem}.self_attn.{part}_proj.weight"] = ("BF16", [heads * HEAD_DIM, HIDDEN])
    tensors[f"{stem}.self_attn.o_proj.weight"] = ("BF16", [HIDDEN, HEADS * HEAD_DIM])
    tensors[f"{stem}.input_layernorm.weight"] = ("BF16", [HIDDEN])
    tensors[f"{stem}.post_attention_layernorm.weight"] = ("BF16", [HIDDEN])
    for part, rows, columns in (("gate", ROWS, HIDDEN), ("up", ROWS, HIDDEN), ("down", HIDDEN, ROWS)):
        if not arguments.experts:
            tensors[f"{stem}.mlp.{part}_proj.weight"] = ("BF16", [rows, columns])
        for expert in range(arguments.experts):
            projection = f"{stem}.mlp.experts.{expert}.{part}_proj"
            tensors[f"{projection}.weight"] = ("U8", [rows, columns // 2])
            tensors[f"{projection}.weight_scale"] = ("F8_E4M3", [rows, columns // 16])
            tensors[f"{projection}.weight_scale_2"] = ("F32", [])
            tensors[f"{projection}.input_scale"] = ("F32", [])
    if arguments.experts:
        tensors[f"{stem}.mlp.gate.weight"] = ("BF16", [arguments.experts, HIDDEN])
for name in arguments.extra:
    tensors[name] = ("F32", [3])

header, end = {}, 0
for name, (dtype, shape) in tensors.items():
    size = math.prod(shape) * BITS[dtype] // 8
    header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [end, end + size]}
    end += size
text = json.dumps(header, separators=(",", ":")).encode()
arguments.folder.mkdir()
(arguments.folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + bytes(end))
config = {"model_type": "llama", "num_hidden_layers": 2, "num_attention_heads": HEADS, "head_dim": HEAD_DIM,
          "num_key_value_heads": KV_HEADS, "tie_word_embeddings": True}
if arguments.experts:
    config |= {"model_type": "some_moe", "n_routed_experts": arguments.experts}
(arguments.folder / "config.json").write_text(json.dumps(config))
