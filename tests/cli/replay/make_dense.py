#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes a small dense checkpoint with config.json into a folder: make_dense.py FOLDER [NAME=SHAPE ...].

The bytes count up, so they are nowhere constant and the same in every run. NAME=SHAPE replaces a tensor's shape, such as
model.norm.weight=32."""
import json
import pathlib
import struct
import sys

HIDDEN, INTERMEDIATE, LAYERS, VOCABULARY, HEADS, KV_HEADS, HEAD = 32, 64, 2, 48, 4, 2, 8


def tensors():
    yield "model.embed_tokens.weight", [VOCABULARY, HIDDEN]
    yield "lm_head.weight", [VOCABULARY, HIDDEN]
    yield "model.norm.weight", [HIDDEN]
    for layer in range(LAYERS):
        at = f"model.layers.{layer}."
        for name, heads in (("q", HEADS), ("k", KV_HEADS), ("v", KV_HEADS)):
            yield f"{at}self_attn.{name}_proj.weight", [heads * HEAD, HIDDEN]
        yield at + "self_attn.o_proj.weight", [HIDDEN, HEADS * HEAD]
        yield at + "mlp.gate_proj.weight", [INTERMEDIATE, HIDDEN]
        yield at + "mlp.up_proj.weight", [INTERMEDIATE, HIDDEN]
        yield at + "mlp.down_proj.weight", [HIDDEN, INTERMEDIATE]
        yield at + "input_layernorm.weight", [HIDDEN]
        yield at + "post_attention_layernorm.weight", [HIDDEN]


folder = pathlib.Path(sys.argv[1])
other = dict(change.split("=") for change in sys.argv[2:])
header, offset = {}, 0
for name, shape in tensors():
    shape = [int(n) for n in other.get(name, "x".join(map(str, shape))).split("x")]
    size = 2
    for extent in shape:
        size *= extent
    header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [offset, offset + size]}
    offset += size
text = json.dumps(header).encode()
text += b" " * (-len(text) % 8)
folder.mkdir(exist_ok=True)
payload = b"".join(struct.pack("<I", n * 2654435761 % 2**32) for n in range((offset + 3) // 4))[:offset]
(folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + payload)
(folder / "config.json").write_text(json.dumps({
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": HIDDEN,
    "intermediate_size": INTERMEDIATE, "num_hidden_layers": LAYERS, "vocab_size": VOCABULARY,
    "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS, "head_dim": HEAD, "tie_word_embeddings": False}))
