# SPDX-License-Identifier: Apache-2.0
"""A tiny engine on the CPU, for tests: checkpoints whose heads have 64 elements, so that its attention runs, and tokens."""
import contextlib
import importlib
import os
from unittest import mock

os.environ.update(VLLM_TARGET_DEVICE="cpu", HF_HUB_OFFLINE="1", CUDA_VISIBLE_DEVICES="", VLLM_NO_USAGE_STATS="1",
                  VLLM_CPU_KVCACHE_SPACE="1", VLLM_WORKER_MULTIPROC_METHOD="spawn")
os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")

import vllm_families  # noqa: E402

PROMPTS = ([1, 2, 3, 4], [290, 7, 7], [42])
WIDE = {"hidden_size": 256, "num_attention_heads": 4}


def configurations():
    import transformers as tf
    wide = {**vllm_families.COMMON, **WIDE}
    return {
        "llama": lambda: tf.LlamaForCausalLM(tf.LlamaConfig(**wide)),
        "tied": lambda: tf.LlamaForCausalLM(tf.LlamaConfig(**{**wide, "tie_word_embeddings": True})),
        "moe": lambda: tf.Qwen3MoeForCausalLM(tf.Qwen3MoeConfig(
            **wide, head_dim=64, num_experts=8, num_experts_per_tok=2, moe_intermediate_size=64, decoder_sparse_step=1,
            mlp_only_layers=[])),
    }


def preload():
    """What every engine of this process's children imports, imported once: two thirds of the time that a tiny one takes."""
    for module in ("vllm.entrypoints.llm", "vllm.v1.executor.uniproc_executor", "vllm.v1.executor.multiproc_executor",
                   "vllm.v1.worker.cpu_worker", "vllm.v1.attention.backends.cpu_attn", "vllm.model_executor.models.llama",
                   "vllm.model_executor.models.qwen3_moe", "vllm.model_executor.model_loader.reload",
                   "transformers.models.llama.modeling_llama", "transformers.models.qwen3_moe.modeling_qwen3_moe"):
        importlib.import_module(module)


def make(kind, folder, seed):
    vllm_families.FAMILIES["serving"] = (configurations()[kind], False)
    vllm_families.save("serving", folder, seed=seed)


def engine(folder, load_format="loadplan", extra=None, **options):
    from vllm import LLM
    import loadplan.vllm_plugin
    loadplan.vllm_plugin.register()
    loadplan.vllm_plugin.register()
    return LLM(**{**dict(model=folder, skip_tokenizer_init=True, dtype="float32", enforce_eager=True, max_model_len=64,
                         enable_prefix_caching=False, load_format=load_format, model_loader_extra_config=extra or {}), **options})


def tokens(llm, count=12):
    from vllm import SamplingParams
    said = llm.generate([{"prompt_token_ids": p} for p in PROMPTS],
                        SamplingParams(temperature=0, max_tokens=count, detokenize=False), use_tqdm=False)
    return [list(one.outputs[0].token_ids) for one in said]


@contextlib.contextmanager
def logged():
    """The lines that loadplan logs."""
    import logging
    lines: list[str] = []

    class Keep(logging.Handler):
        def emit(self, record):
            lines.append(record.getMessage())

    own = logging.Logger("loadplan", logging.INFO)  # vLLM takes the handlers of its own loggers away
    own.addHandler(Keep())
    with mock.patch("loadplan.vllm_plugin._log", own), mock.patch("loadplan.vllm_transfer._log", own):
        yield lines
