# SPDX-License-Identifier: Apache-2.0
"""Every quantised format of vLLM over a dense model and a mixture of experts: recorded, replayed, compared, every rank.

python vllm_formats.py [--only FORMAT,...] [--families llama,qwen3_moe]. Kernels that this machine lacks are taken as if it
had them: parameters and loaders are the common ones. What vLLM itself does not build is said with its reason.
"""
import argparse
import importlib
import json
import os
import pkgutil
import sys
import tempfile

import torch

import loadplan.vllm
import own_parameters
import vllm_every
import vllm_families
import vllm_loaders
from children import tried_in_child, why


def tensors(bits, kind="int", strategy="channel", **more):
    return {"num_bits": bits, "type": kind, "symmetric": True, "strategy": strategy, "group_size": None, "dynamic": False, **more}


def compressed(form, weights, inputs=None):
    group = {"targets": ["Linear"], "input_activations": inputs, "output_activations": None, "weights": weights, "format": form}
    return {"quant_method": "compressed-tensors", "format": form, "quantization_status": "compressed",
            "ignore": ["lm_head", "re:.*gate$"], "config_groups": {"group_0": group}}


def modelopt(algorithm, group_size=16):
    return {"quant_method": "modelopt", "quant_algo": algorithm, "kv_cache_quant_algo": None, "group_size": group_size,
            "exclude_modules": ["lm_head", "*gate"], "ignore": ["lm_head", "*gate"], "config_groups": {},
            "producer": {"name": "modelopt", "version": "0.30"}}


def quark(weights, inputs=None):
    own = {"weight": weights, "input_tensors": inputs, "output_tensors": None, "bias": None}
    return {"quant_method": "quark", "export": {"kv_cache_group": [], "pack_method": "reorder"}, "exclude": ["lm_head"],
            "global_quant_config": own, "layer_quant_config": {}, "layer_type_quant_config": {}, "algo_config": None,
            "quant_mode": "eager_mode"}


def quark_tensors(dtype, scheme="per_tensor", **more):
    return {"dtype": dtype, "is_dynamic": False, "qscheme": scheme, "ch_axis": None, "group_size": None, "symmetric": True,
            "round_method": "half_even", "scale_type": "float", "scale_format": None, "scale_calculation_mode": None,
            "observer_cls": "PerTensorMinMaxObserver", **more}


def gptq(bits, group_size):
    return {"quant_method": "gptq", "bits": bits, "group_size": group_size, "desc_act": False, "sym": True, "lm_head": False,
            "dynamic": {"-:.*mlp.gate$": {}}}


_GROUP = dict(strategy="group", group_size=32)
_MX = dict(**_GROUP, scale_dtype="torch.uint8")
_MX_QUARK = dict(scheme="per_group", ch_axis=-1, group_size=32, scale_format="e8m0")
_BY_TOKEN = dict(strategy="token", dynamic=True)
_NV = dict(strategy="tensor_group", group_size=16)
FORMATS = {
    "fp8": {"quant_method": "fp8", "activation_scheme": "dynamic"},
    "fp8_static": {"quant_method": "fp8", "activation_scheme": "static"},
    "fp8_block": {"quant_method": "fp8", "activation_scheme": "dynamic", "fmt": "e4m3", "weight_block_size": [128, 128]},
    "w4a16": compressed("pack-quantized", tensors(4, **_GROUP)),
    "w4a16_asymmetric": compressed("pack-quantized", tensors(4, **_GROUP, symmetric=False)),
    "w8a16": compressed("pack-quantized", tensors(8)),
    "w4a8": compressed("pack-quantized", tensors(4, **_GROUP), tensors(8, **_BY_TOKEN)),
    "w8a8": compressed("int-quantized", tensors(8), tensors(8, **_BY_TOKEN)),
    "w8a8_tensor": compressed("int-quantized", tensors(8, strategy="tensor"), tensors(8, strategy="tensor")),
    "w8a8_asymmetric": compressed("int-quantized", tensors(8), tensors(8, strategy="tensor", symmetric=False)),
    "fp8_channel": compressed("float-quantized", tensors(8, "float"), tensors(8, "float", **_BY_TOKEN)),
    "fp8_tensor": compressed("float-quantized", tensors(8, "float", "tensor"), tensors(8, "float", "tensor")),
    "fp8_blocks": compressed("float-quantized", tensors(8, "float", "block", block_structure=[128, 128]),
                             tensors(8, "float", strategy="group", group_size=128, dynamic=True)),
    "w8a16_fp8": compressed("float-quantized", tensors(8, "float")),
    "nvfp4": compressed("nvfp4-pack-quantized", tensors(4, "float", **_NV), tensors(4, "float", **{**_NV, "dynamic": "local"})),
    "nvfp4a16": compressed("nvfp4-pack-quantized", tensors(4, "float", **_NV)),
    "mxfp4": compressed("mxfp4-pack-quantized", tensors(4, "float", **_MX), tensors(4, "float", **{**_MX, "dynamic": True})),
    "mxfp4a16": compressed("mxfp4-pack-quantized", tensors(4, "float", **_MX)),
    "mxfp8": compressed("mxfp8-quantized", tensors(8, "float", **_MX), tensors(8, "float", **{**_MX, "dynamic": True})),
    "awq": {"quant_method": "awq", "bits": 4, "group_size": 32, "zero_point": True, "version": "gemm",
            "modules_to_not_convert": ["lm_head", "mlp.gate."]},
    "gptq": gptq(4, 32),
    "auto_round": {"quant_method": "auto-round", "bits": 4, "group_size": 32, "sym": True, "data_type": "int",
                   "packing_format": "auto_round:auto_gptq"},
    "modelopt_fp8": modelopt("FP8"), "modelopt_fp8_channel": modelopt("FP8_PER_CHANNEL_PER_TOKEN"),
    "modelopt_fp8_block": modelopt("FP8_PB_WO"), "modelopt_nvfp4": modelopt("NVFP4"),
    "modelopt_w4a16_nvfp4": modelopt("W4A16_NVFP4"), "modelopt_mxfp8": modelopt("MXFP8", 32),
    "quark_fp8": quark(quark_tensors("fp8_e4m3"), quark_tensors("fp8_e4m3")),
    "quark_fp8_channel": quark(quark_tensors("fp8_e4m3", "per_channel", ch_axis=0),
                               quark_tensors("fp8_e4m3", "per_channel", ch_axis=1, is_dynamic=True)),
    "quark_int8": quark(quark_tensors("int8", "per_channel", ch_axis=0), quark_tensors("int8")),
    "quark_mxfp4": quark(quark_tensors("fp4", **_MX_QUARK), quark_tensors("fp4", **_MX_QUARK, is_dynamic=True)),
    "quark_mxfp6": quark(quark_tensors("fp6_e3m2", **_MX_QUARK), quark_tensors("fp6_e3m2", **_MX_QUARK, is_dynamic=True)),
    "gpt_oss": {"quant_method": "mxfp4"},
}


def config_of(family):
    import transformers as tf
    sizes = {**vllm_families.COMMON, "hidden_size": 256, "intermediate_size": 512, "num_key_value_heads": 4, "head_dim": 64}
    if family == "llama":
        return tf.LlamaConfig(**sizes, architectures=["LlamaForCausalLM"])
    return tf.Qwen3MoeConfig(**sizes, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=256, decoder_sparse_step=1,
                             mlp_only_layers=[], architectures=["Qwen3MoeForCausalLM"])


def take_any_kernel():
    from vllm.model_executor.kernels import linear
    from vllm.model_executor.layers.fused_moe import experts, modular_kernel
    from vllm.platforms import PlatformEnum
    yes = classmethod(lambda cls, *arguments, **options: (True, None))
    for kinds in [kinds for name, kinds in vars(linear).items() if name.startswith("_POSSIBLE") and isinstance(kinds, dict)]:
        own = list(kinds.get(PlatformEnum.CPU, ()))
        others = sorted((k for k in kinds.get(PlatformEnum.CUDA, ()) if k not in own), key=lambda k: "Emul" not in k.__name__)
        for kernel in others:
            kernel.is_supported = kernel.can_implement = yes
        kinds[PlatformEnum.CPU] = own + others
    for module in pkgutil.iter_modules(experts.__path__):
        try:
            importlib.import_module(f"{experts.__name__}.{module.name}")
        except Exception:  # noqa: BLE001: one whose libraries are not here
            continue
    kinds = list(modular_kernel.FusedMoEExperts.__subclasses__())
    for kind in kinds:
        kinds += kind.__subclasses__()
        if "cpu" not in kind.__module__:
            kind._supports_current_device = staticmethod(lambda: True)


def save(family, form, folder):
    vllm_every.inspect_here()
    take_any_kernel()
    config = {**config_of(family).to_dict(), "dtype": "bfloat16", "quantization_config": FORMATS[form]}
    with open(os.path.join(folder, "config.json"), "w") as f:
        json.dump(config, f)
    _, model = loadplan.vllm.start(folder, load_format="dummy")
    own_parameters.write(model, folder)


def one(folder, out, tp, rank, ep):
    vllm_every.inspect_here()
    take_any_kernel()
    return vllm_loaders.one_rank(folder, tp, rank, ep, out)


def row(family, form):
    """Results by rank, and why there is one less."""
    results = {}
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as out:
        said = tried_in_child(save, family, form, folder)
        if said is not None:
            return results, why(said)
        for tp, rank, ep in ((1, 0, False), (2, 0, False), (2, 1, False), *(((2, 1, True),) if "moe" in family else ())):
            result = tried_in_child(one, folder, out, tp, rank, ep)
            if isinstance(result, str):
                return results, why(result)
            results[f"{'EP' if ep else 'TP'} {tp} rank {rank}"] = result
    return results, ""


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="")
    parser.add_argument("--families", default="llama,qwen3_moe")
    options = parser.parse_args()
    compared = bad = 0
    for family in options.families.split(","):
        for form in [form for form in FORMATS if not options.only or form in options.only.split(",")]:
            results, reason = row(family, form)
            wrong = [f"{label}: {name}" for label, r in results.items() for name in (*r["differs"], *r["changed"])]
            compared, bad = compared + len(results), bad + bool(wrong)
            said = sorted({reason for r in results.values() for reason in r["reasons"]})
            first = next(iter(results.values()), None)
            print(f"{family} {form}: " + (f"{first['records']} records ({' '.join(first['kinds'])}), "
                                          f"{max(r['refusals'] for r in results.values())} refusals, {', '.join(results)}; "
                                          f"{' '.join(sorted(first['findings']))} " if first else "")
                  + (f"DIFFERS {wrong[:6]} " if wrong else "") + (f"not made: {reason}" if reason else ""), flush=True)
            for line in said[:6]:
                print(f"    {line}")
    print(f"{compared} ranks compared, {bad} formats with differences")
    return bad > 0


if __name__ == "__main__":
    torch.set_grad_enabled(False)
    sys.exit(main())
