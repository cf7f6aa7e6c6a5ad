# SPDX-License-Identifier: Apache-2.0
"""vLLM's own loaders, recorded: any rank of any parallel layout in one CPU process, without the other ranks.

    config, model = loadplan.vllm.start("ckpt", tp=4, rank=1)
    trace = loadplan.vllm.record("ckpt", config, model)

Needs a vLLM for CPUs (docs/torch.md). start() prepares the process for one rank: collectives do nothing from then on, so
call it once in a process of its own.
"""

from __future__ import annotations

import os

# vLLM reads these when it is imported.
os.environ.setdefault("VLLM_TARGET_DEVICE", "cpu")
os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
import vllm.distributed.parallel_state as ps  # noqa: E402
from torch.testing._internal.distributed.fake_pg import FakeStore  # noqa: E402
from vllm.config import set_current_vllm_config  # noqa: E402
from vllm.distributed.device_communicators.cpu_communicator import CpuCommunicator  # noqa: E402
from vllm.engine.arg_utils import EngineArgs  # noqa: E402
from vllm.model_executor.model_loader import get_model_loader  # noqa: E402
from vllm.model_executor.model_loader.utils import initialize_model, process_weights_after_loading  # noqa: E402
from vllm.utils.torch_utils import set_default_torch_dtype  # noqa: E402

from ._trace import Trace  # noqa: E402
from .vllm_plugin import record_model  # noqa: E402


_for_ever: list = []


def _stand_alone() -> None:
    """Other ranks are neither waited for nor talked to."""
    new_group, init_group = dist.new_group, ps.init_model_parallel_group
    dist.new_group = lambda ranks=None, **kw: new_group(ranks, backend="fake")
    ps.init_model_parallel_group = lambda *a, **kw: init_group(*a, **{**kw, "use_message_queue_broadcaster": False})
    ps._node_count = lambda group: 1
    CpuCommunicator._all_group_ranks_share_shm_group_name = lambda self: False


def _allow_any_format() -> None:
    """Weights whose kernels this CPU lacks load all the same; their parameters and loaders are the common ones."""
    torch.cpu._is_amx_tile_supported = lambda: True
    try:
        from vllm.model_executor.kernels import linear
        from vllm.platforms import PlatformEnum
        linear._POSSIBLE_NVFP4_KERNELS[PlatformEnum.CPU] = [linear.EmulationNvFp4LinearKernel]
        from vllm.model_executor.layers.fused_moe.experts import nvfp4_emulation_moe
        nvfp4_emulation_moe.Nvfp4QuantizationEmulationTritonExperts._supports_current_device = staticmethod(lambda: True)
    except (ImportError, AttributeError, KeyError):
        pass  # another release: NVFP4 models say themselves what they lack


def _allow_sparse_attention() -> None:
    """Models that choose the tokens they attend to (DeepSeek-V3.2, GLM-5) are built with the backend that GPUs have for it; nothing
    of it runs."""
    try:
        from vllm.platforms.cpu import CpuPlatform
        from vllm.v1.attention.backends.registry import AttentionBackendEnum
        from vllm.v1.worker.workspace import init_workspace_manager
        sparse = AttentionBackendEnum.FLASHMLA_SPARSE.get_path()
    except (ImportError, AttributeError):
        return  # another release: such models say themselves what they lack
    choose = CpuPlatform.get_attn_backend_cls
    CpuPlatform.get_attn_backend_cls = staticmethod(lambda backend, attn_selector_config, *a, **kw: (
        sparse if attn_selector_config.use_sparse else choose(backend, attn_selector_config, *a, **kw)))
    init_workspace_manager(torch.device("cpu"))


def start(folder: str, tp: int = 1, rank: int = 0, expert_parallel: bool = False, pp: int = 1, **engine_arguments):
    """vLLM's configuration and its initialised model, as rank `rank` of tp * pp: stage by stage, as vLLM counts."""
    _stand_alone()
    _allow_any_format()
    _allow_sparse_attention()
    dist.init_process_group("fake", rank=rank, world_size=tp * pp, store=FakeStore())
    arguments = dict(model=str(folder), skip_tokenizer_init=True, dtype="bfloat16", enforce_eager=True,
                     tensor_parallel_size=tp, pipeline_parallel_size=pp, enable_expert_parallel=expert_parallel,
                     distributed_executor_backend="mp")
    config = EngineArgs(**{**arguments, **engine_arguments}).create_engine_config()
    context = set_current_vllm_config(config)
    context.__enter__()
    _for_ever.append(context)  # leaving it, as its destructor would, unsets the configuration
    ps.init_distributed_environment(tp * pp, rank, "fake://", 0, "fake")
    ps.initialize_model_parallel(tp, pp)
    with set_default_torch_dtype(config.model_config.dtype), torch.device("cpu"):
        model = initialize_model(vllm_config=config, model_config=config.model_config)
    return config, model


def weights(config, model):
    """The checkpoint as vLLM itself reads it."""
    return get_model_loader(config.load_config).get_all_weights(config.model_config, model)


def process(config, model) -> None:
    """vLLM's post-load processing: packed and permuted weights, scales that are combined."""
    with set_default_torch_dtype(config.model_config.dtype):
        process_weights_after_loading(model, config.model_config, torch.device("cpu"))


def record(folder: str, config, model, processed: bool = False) -> Trace:
    """What model.load_weights does, as a trace of this rank. With `processed`, what post-load processing makes of it too:
    destinations are then in the form that kernels read. That takes the model: its parameters are stand-ins afterwards."""
    parallel = config.parallel_config
    return record_model(folder, model, dict(tp=parallel.tensor_parallel_size, tp_rank=ps.get_tensor_model_parallel_rank(),
                                            pp=parallel.pipeline_parallel_size, pp_rank=ps.get_pp_group().rank_in_group,
                                            expert_parallel=parallel.enable_expert_parallel),
                        process=(lambda: process(config, model)) if processed else None)
