#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes a small checkpoint of a BERT or of a Mixtral with config.json: make_small.py bert|mixtral FOLDER.

Names and shapes are those of the published models, sizes are not; bytes count up, so they are nowhere constant."""
import json
import pathlib
import struct
import sys

HIDDEN, INTERMEDIATE, LAYERS, VOCABULARY, HEADS, KV_HEADS, EXPERTS = 128, 256, 2, 96, 4, 2, 4


def linear(name, rows, columns, bias=True):
    yield name + ".weight", [rows, columns]
    if bias:
        yield name + ".bias", [rows]


def norm(name):
    yield name + ".weight", [HIDDEN]
    yield name + ".bias", [HIDDEN]


def bert():
    for kind, rows in (("word", VOCABULARY), ("position", 64), ("token_type", 2)):
        yield f"embeddings.{kind}_embeddings.weight", [rows, HIDDEN]
    yield from norm("embeddings.LayerNorm")
    for layer in range(LAYERS):
        at = f"encoder.layer.{layer}."
        for part in ("query", "key", "value"):
            yield from linear(f"{at}attention.self.{part}", HIDDEN, HIDDEN)
        yield from linear(at + "attention.output.dense", HIDDEN, HIDDEN)
        yield from norm(at + "attention.output.LayerNorm")
        yield from linear(at + "intermediate.dense", INTERMEDIATE, HIDDEN)
        yield from linear(at + "output.dense", HIDDEN, INTERMEDIATE)
        yield from norm(at + "output.LayerNorm")
    yield from linear("pooler.dense", HIDDEN, HIDDEN)


def mixtral():
    head = HIDDEN // HEADS
    yield "model.embed_tokens.weight", [VOCABULARY, HIDDEN]
    yield "lm_head.weight", [VOCABULARY, HIDDEN]
    yield "model.norm.weight", [HIDDEN]
    for layer in range(LAYERS):
        at = f"model.layers.{layer}."
        for part, heads in (("q", HEADS), ("k", KV_HEADS), ("v", KV_HEADS)):
            yield f"{at}self_attn.{part}_proj.weight", [heads * head, HIDDEN]
        yield at + "self_attn.o_proj.weight", [HIDDEN, HIDDEN]
        yield at + "input_layernorm.weight", [HIDDEN]
        yield at + "post_attention_layernorm.weight", [HIDDEN]
        yield at + "block_sparse_moe.gate.weight", [EXPERTS, HIDDEN]
        for expert in range(EXPERTS):
            for part, shape in (("w1", [INTERMEDIATE, HIDDEN]), ("w2", [HIDDEN, INTERMEDIATE]), ("w3", [INTERMEDIATE, HIDDEN])):
                yield f"{at}block_sparse_moe.experts.{expert}.{part}.weight", shape


MODELS = {
    "bert": (bert, "F32", 4, {
        "architectures": ["BertModel"], "model_type": "bert", "hidden_size": HIDDEN, "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS, "intermediate_size": INTERMEDIATE, "vocab_size": VOCABULARY,
        "max_position_embeddings": 64, "type_vocab_size": 2}),
    "mixtral": (mixtral, "BF16", 2, {
        "architectures": ["MixtralForCausalLM"], "model_type": "mixtral", "hidden_size": HIDDEN,
        "intermediate_size": INTERMEDIATE, "num_hidden_layers": LAYERS, "vocab_size": VOCABULARY,
        "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS, "num_local_experts": EXPERTS,
        "num_experts_per_tok": 2, "tie_word_embeddings": False}),
}


def main():
    tensors, dtype, element, config = MODELS[sys.argv[1]]
    folder = pathlib.Path(sys.argv[2])
    header, offset = {}, 0
    for name, shape in tensors():
        size = element
        for extent in shape:
            size *= extent
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    folder.mkdir(exist_ok=True)
    payload = b"".join(struct.pack("<I", n * 2654435761 % 2**32) for n in range((offset + 3) // 4))[:offset]
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + payload)
    (folder / "config.json").write_text(json.dumps(config))


main()
