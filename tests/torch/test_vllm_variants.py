# SPDX-License-Identifier: Apache-2.0
"""Loaders of vLLM beside that of a plain model, every rank: drafts, pipeline stages, redundant experts, sharded states, adapters."""
import json
import os
import tempfile
import unittest
from unittest import mock

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

import loadplan
import loadplan.vllm
import own_parameters
import vllm_engine
import vllm_families
import vllm_loaders
from children import in_child
from loadplan._session import named_tensors

RANKS = ((1, 0), (2, 0), (2, 1))  # sizes and ranks of TP

# ---- drafts

LLAMA = {"model_type": "llama", "hidden_size": 128, "intermediate_size": 256, "num_attention_heads": 8, "num_key_value_heads": 2,
         "num_hidden_layers": 1, "vocab_size": 300, "max_position_embeddings": 128, "torch_dtype": "bfloat16"}


def eagle3_name(name):
    name = name.removeprefix("model.").replace("layers.0.", "midlayer.")
    return name.replace("draft_id_to_target_id", "d2t")


def deepseek_name(name):
    return name.replace(".mtp_block", "").replace("model.embed_tokens", "model.layers.2.embed_tokens")


def qwen3_next_name(name):
    return name if name.startswith(("model.embed_tokens", "lm_head")) else name.replace("model.", "mtp.", 1)


# What it drafts for, its method, its configuration (None: the target's), and how its checkpoint names a parameter.
DRAFTS = {
    "EagleLlamaForCausalLM": ("llama", "eagle", {}, lambda name: name.removeprefix("model.")),
    "Eagle3LlamaForCausalLM": ("llama", "eagle3", {"architectures": ["LlamaForCausalLMEagle3"], "draft_vocab_size": 100},
                               eagle3_name),
    "Eagle3Qwen3ForCausalLM": ("qwen3", "eagle3", {"model_type": "qwen3", "head_dim": 32, "draft_vocab_size": 100}, eagle3_name),
    "Medusa": ("llama", "medusa", {"architectures": ["MedusaModel"], "model_type": "medusa", "num_heads": 2,
                                   "truncated_vocab_size": 300}, str),
    "DeepSeekMTP": ("deepseek_v3_fp8", "mtp", None, deepseek_name),
    "Qwen3NextMTP": ("qwen3_next", "mtp", None, qwen3_next_name),
}


def write_config(folder, config):
    with open(os.path.join(folder, "config.json"), "w") as f:
        json.dump(config, f)


def change_config(folder, change):
    with open(os.path.join(folder, "config.json")) as f:
        config = json.load(f)
    write_config(folder, {**config, **change})


def write_draft(model, path, rename):
    generator, payload = torch.Generator().manual_seed(3), {}
    for name, (dtype, shape) in own_parameters.forms(model, once=True).items():
        name = rename(name)
        if dtype.is_floating_point and dtype.itemsize == 1:
            payload[name] = torch.randint(0, 64, shape, generator=generator, dtype=torch.uint8).view(dtype)
        else:
            payload[name] = vllm_families.random_payload((dtype, shape), generator)
    save_file(payload, path)


def draft(name, target, folder, tp, rank):
    from vllm.model_executor.model_loader.utils import initialize_model
    from vllm.utils.torch_utils import set_default_torch_dtype
    _, method, own, rename = DRAFTS[name]
    config, _ = loadplan.vllm.start(target, tp, rank, speculative_config={
        "num_speculative_tokens": 2, "method": method, **({"model": folder} if own is not None else {})})
    with set_default_torch_dtype(config.model_config.dtype), torch.device("cpu"):
        model = initialize_model(vllm_config=config, model_config=config.speculative_config.draft_model_config)
    assert type(model).__name__ == name, type(model)
    path = os.path.join(folder, "model.safetensors")
    if tp == 1:
        write_draft(model, path, rename)
    vllm_loaders.disturb(model, rank)
    return vllm_loaders.compare(named_tensors(model), lambda: loadplan.record(model.load_weights, path, model),
                                lambda: model.load_weights(iter(sorted(load_file(path).items()))), path,
                                os.path.join(folder, "draft.lpt"))


# ---- layouts


def layout(folder, out, tp, rank, ep, pp, **options):
    config, model = loadplan.vllm.start(folder, tp, rank, ep, pp, **options)
    vllm_loaders.disturb(model, rank)
    return vllm_loaders.compare(named_tensors(model), lambda: loadplan.vllm.record(folder, config, model),
                                lambda: model.load_weights(loadplan.vllm.weights(config, model)), folder,
                                os.path.join(out, "layout.lpt"))


def redundant_experts(folder, out, rank):
    """vLLM balances experts on GPUs alone; the loader is the common one."""
    import vllm.config.parallel as parallel
    with mock.patch.object(type(parallel.current_platform), "is_cuda_alike", lambda self: True):
        return layout(folder, out, 2, rank, True, 1, enable_eplb=True, eplb_config={"num_redundant_experts": 4})


# ---- sharded states: what each rank holds, saved after post-load processing


def sharded_state(folder, out, rank):
    import copy
    from vllm.model_executor.model_loader.sharded_state_loader import ShardedStateLoader
    config, model = loadplan.vllm.start(folder, 2, rank)
    model.load_weights(loadplan.vllm.weights(config, model))
    loadplan.vllm.process(config, model)
    ShardedStateLoader.save_model(model, out, max_size=20000)
    files = sorted(name for name in os.listdir(out) if name.startswith(f"model-rank-{rank}-"))
    index = os.path.join(out, f"rank-{rank}.safetensors.index.json")
    weight_map = {}
    for name in files:
        with safe_open(os.path.join(out, name), "pt") as file:
            weight_map.update({key: name for key in file.keys()})
    with open(index, "w") as f:
        json.dump({"weight_map": weight_map}, f)
    saved = copy.copy(config.model_config)
    saved.model = out
    load = lambda: ShardedStateLoader(config.load_config).load_weights(model, saved)  # noqa: E731
    vllm_loaders.disturb(model, rank)
    assert len(files) > 1

    def record():
        with loadplan.capture(index, model) as recording:
            load()
        return recording.trace

    return vllm_loaders.compare(named_tensors(model), record, load, index, os.path.join(out, "state.lpt"))


# ---- adapters

LINEARS = {"self_attn.q_proj": (128, 128), "self_attn.k_proj": (128, 32), "self_attn.v_proj": (128, 32),
           "self_attn.o_proj": (128, 128), "mlp.gate_proj": (128, 256), "mlp.up_proj": (128, 256), "mlp.down_proj": (256, 128)}


def write_adapter(folder):
    generator, tensors = torch.Generator().manual_seed(2), {}
    for layer in range(2):
        for name, (width, rows) in LINEARS.items():
            stem = f"base_model.model.model.layers.{layer}.{name}"
            tensors[stem + ".lora_A.weight"] = torch.randn(8, width, generator=generator).bfloat16()
            tensors[stem + ".lora_B.weight"] = torch.randn(rows, 8, generator=generator).bfloat16()
    save_file(tensors, os.path.join(folder, "adapter_model.safetensors"))
    with open(os.path.join(folder, "adapter_config.json"), "w") as f:
        json.dump({"peft_type": "LORA", "r": 8, "lora_alpha": 16, "bias": "none", "task_type": "CAUSAL_LM",
                   "target_modules": sorted(name.partition(".")[2] for name in LINEARS)}, f)


def adapter(folder, where, tp, rank):
    """An adapter into its slot of the tensors that hold several, scaled."""
    from vllm.lora.lora_model import LoRAModel
    from vllm.lora.model_manager import LoRAModelManager
    from vllm.lora.peft_helper import PEFTHelper
    config, model = loadplan.vllm.start(folder, tp, rank, enable_lora=True, max_lora_rank=8, max_loras=2)
    manager = LoRAModelManager(model, 4, 64, 300, config.lora_config, torch.device("cpu"), vllm_config=config)
    stacked = {}
    for path, module in manager.modules.items():
        for what in ("lora_a_stacked", "lora_b_stacked"):
            held = getattr(module, what)
            for i, tensor in enumerate(held if isinstance(held, (tuple, list)) else (held,)):
                stacked[f"{path}.{what}.{i}"] = tensor.fill_(3)

    def load():
        made = LoRAModel.from_local_checkpoint(
            where, {name.partition(".")[2] for name in LINEARS}, lora_model_id=1, device="cpu", dtype=torch.bfloat16,
            peft_helper=PEFTHelper.from_local_dir(where, 128))
        manager.add_adapter(made)
        manager.activate_adapter(1)
        manager.deactivate_adapter(1)
        manager.remove_adapter(1)

    path = os.path.join(where, "adapter_model.safetensors")

    def record():
        with loadplan.capture(path, stacked) as recording:
            load()
        return recording.trace

    return vllm_loaders.compare(stacked, record, load, path, os.path.join(where, "adapter.lpt"))


class Variants(unittest.TestCase):
    def setUp(self):
        self._folders = [tempfile.TemporaryDirectory() for _ in range(2)]
        self.folder, self.other = [f.name for f in self._folders]

    def tearDown(self):
        for folder in self._folders:
            folder.cleanup()

    def make(self, family):
        in_child(vllm_loaders.save_family, family, self.folder)

    def equal(self, function, *arguments, **options):
        result = in_child(function, *arguments, **options)
        self.assertEqual((result["differs"], result["changed"], result["reasons"]), ([], [], []))
        self.assertGreater(result["records"], 3)
        return result

    def test_drafts(self):
        for name, (family, _, own, _) in DRAFTS.items():
            with self.subTest(name), tempfile.TemporaryDirectory() as self.folder, tempfile.TemporaryDirectory() as folder:
                self.make(family)
                if own is None:
                    change_config(self.folder, {"num_nextn_predict_layers": 1, "mtp_num_hidden_layers": 1})
                else:
                    write_config(folder, {**LLAMA, "architectures": [name], **own})
                for tp, rank in RANKS:
                    self.equal(draft, name, self.folder, folder, tp, rank)

    def test_pipeline_stages(self):
        self.make("llama")
        for rank in range(4):
            self.equal(layout, self.folder, self.other, 2, rank, False, 2)

    def test_redundant_experts(self):
        self.make("qwen3_moe")
        plain = in_child(layout, self.folder, self.other, 2, 0, True, 1)["records"]
        for rank in range(2):
            self.assertGreater(self.equal(redundant_experts, self.folder, self.other, rank)["records"], plain)

    def test_sharded_state(self):
        for family in ("llama", "gemma2"):  # the second one's head is tied
            with self.subTest(family), tempfile.TemporaryDirectory() as self.folder, tempfile.TemporaryDirectory() as out:
                self.make(family)
                for rank in range(2):
                    self.equal(sharded_state, self.folder, out, rank)

    def test_adapters(self):
        self.make("llama")
        write_adapter(self.other)
        for tp, rank in RANKS:
            self.assertEqual(self.equal(adapter, self.folder, self.other, tp, rank)["derives"], 14)


if __name__ == "__main__":
    torch.set_grad_enabled(False)
    vllm_engine.preload()
    unittest.main()
