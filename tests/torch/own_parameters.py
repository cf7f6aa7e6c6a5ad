# SPDX-License-Identifier: Apache-2.0
"""Checkpoints made from a vLLM model's own parameters: fused ones are split as their modules say, experts as Hugging Face names
them. So a format needs no writer of its own."""
import json
import os
import re

import torch
from safetensors.torch import save_file

import vllm_families

_PARTS = {"qkv_proj": ["q_proj", "k_proj", "v_proj"], "gate_up_proj": ["gate_proj", "up_proj"],
          "fused_qkv_a_proj": ["q_a_proj", "kv_a_proj_with_mqa"]}


def _shards(parameter, sizes):
    """The shapes that a fused parameter's shards have in a checkpoint."""
    dim = getattr(parameter, "output_dim", None)
    if dim is None:
        is_scalar = "PerTensor" in type(parameter).__name__ and parameter.dim() == 1
        return [() if is_scalar else tuple(parameter.shape)] * len(sizes)
    shape, total = list(parameter.shape), sum(sizes)
    return [(*shape[:dim], -(-size * shape[dim] // total), *shape[dim + 1:]) for size in sizes]


def _experts(stem, leaf, parameter):
    """(name, shape) of what w13_* or w2_* is made of."""
    fused, _, suffix = leaf.partition("_")
    parts, shape = (["gate_proj", "up_proj"] if fused == "w13" else ["down_proj"]), list(parameter.shape[1:])
    if shape in ([], [1], [2]):
        shape = []
    elif fused == "w13":
        dim = 1 if getattr(parameter, "is_transposed", False) and len(shape) > 1 else 0
        shape[dim] //= 2 if shape[dim] % 2 == 0 else 1
    for expert in range(parameter.shape[0]):
        for part in parts:
            yield f"{stem}experts.{expert}.{part}.{suffix}", tuple(shape)


def forms(model, once=False):
    """name -> (dtype, shape) of a checkpoint that this model, which is on one rank, loads. With `once`, a parameter that
    modules share has the first of its names."""
    from vllm.model_executor.layers.linear import MergedColumnParallelLinear, QKVParallelLinear
    from vllm.model_executor.layers.vocab_parallel_embedding import VocabParallelEmbedding
    parts = {**_PARTS, **(getattr(model, "packed_modules_mapping", None) or {})}
    modules, found = dict(model.named_modules(remove_duplicate=False)), {}
    for name, parameter in model.named_parameters(remove_duplicate=once):
        path, _, leaf = name.rpartition(".")
        module, fused = modules[path], path.rpartition(".")[2]
        stem = path[:len(path) - len(fused)]
        if "experts" in path and re.match(r"w(13|2)_", leaf):
            shapes = _experts(re.sub(r"experts(\.routed_experts)?$", "", path), leaf, parameter)
            found.update({part: (parameter.dtype, shape) for part, shape in shapes})
            continue
        sizes = None
        if isinstance(module, QKVParallelLinear):
            sizes = [n * module.head_size for n in (module.total_num_heads, module.total_num_kv_heads, module.total_num_kv_heads)]
        elif isinstance(module, MergedColumnParallelLinear):
            sizes = module.output_sizes
        if sizes is not None and len(parts.get(fused, ())) == len(sizes):
            found.update({f"{stem}{part}.{leaf}": (parameter.dtype, shape)
                          for part, shape in zip(parts[fused], _shards(parameter, sizes))})
        elif isinstance(module, VocabParallelEmbedding) and leaf == "weight":
            found[name] = parameter.dtype, (module.org_vocab_size, *parameter.shape[1:])
        else:
            found[name] = parameter.dtype, tuple(parameter.shape)
    return found


def write(model, folder, seed=1, files=2):
    generator = torch.Generator().manual_seed(seed)
    payload = {}
    for name, (dtype, shape) in sorted(forms(model).items()):
        if "input_scale" in name:  # loaders want equal ones
            payload[name] = torch.full(shape, 0.5, dtype=dtype)
        elif dtype.itemsize == 1 and dtype.is_floating_point:
            payload[name] = torch.randint(0, 64, shape, generator=generator, dtype=torch.uint8).view(dtype)
        else:
            payload[name] = vllm_families.random_payload((dtype, shape), generator)
    weight_map = {}
    for i in range(files):
        file = f"model-{i + 1:05d}-of-{files:05d}.safetensors"
        part = {name: payload[name] for name in sorted(payload)[i::files]}
        save_file(part, os.path.join(folder, file), metadata={"format": "pt"})
        weight_map.update({name: file for name in part})
    with open(os.path.join(folder, "model.safetensors.index.json"), "w") as f:
        json.dump({"metadata": {}, "weight_map": weight_map}, f)
