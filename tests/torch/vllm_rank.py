# SPDX-License-Identifier: Apache-2.0
"""One rank of N of a vLLM model in this process, on a CPU, without the other ranks."""
import os

os.environ.update(VLLM_TARGET_DEVICE="cpu", HF_HUB_OFFLINE="1", VLLM_ENABLE_V1_MULTIPROCESSING="0", CUDA_VISIBLE_DEVICES="",
                  VLLM_NO_USAGE_STATS="1", VLLM_LOGGING_LEVEL="ERROR", TOKENIZERS_PARALLELISM="false", OMP_NUM_THREADS="1")

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
import vllm.distributed.parallel_state as ps  # noqa: E402
from torch.testing._internal.distributed.fake_pg import FakeStore  # noqa: E402
from vllm.config import set_current_vllm_config  # noqa: E402
from vllm.distributed.device_communicators.cpu_communicator import CpuCommunicator  # noqa: E402
from vllm.engine.arg_utils import EngineArgs  # noqa: E402
from vllm.model_executor.model_loader import get_model_loader  # noqa: E402
from vllm.model_executor.model_loader.utils import initialize_model  # noqa: E402
from vllm.utils.torch_utils import set_default_torch_dtype  # noqa: E402


def allow_any_kernel():
    """Weights of formats whose kernels this machine lacks load all the same."""
    torch.cpu._is_amx_tile_supported = lambda: True
    try:
        from vllm.model_executor.kernels import linear
        from vllm.platforms import PlatformEnum
        linear._POSSIBLE_NVFP4_KERNELS[PlatformEnum.CPU] = [linear.EmulationNvFp4LinearKernel]
        import vllm.model_executor.layers.fused_moe.experts.nvfp4_emulation_moe as emulation
        emulation.Nvfp4QuantizationEmulationTritonExperts._supports_current_device = staticmethod(lambda: True)
    except (ImportError, AttributeError, KeyError) as error:
        print(f"  (NVFP4 emulation: {error})")


def start(folder, tp, rank, expert_parallel):
    """The engine's configuration, model and load configuration; call it once in a process."""
    new_group, init_group = dist.new_group, ps.init_model_parallel_group
    dist.new_group = lambda ranks=None, **kw: new_group(ranks, backend="fake")
    ps.init_model_parallel_group = lambda *a, **kw: init_group(*a, **{**kw, "use_message_queue_broadcaster": False})
    ps._node_count = lambda group: 1
    CpuCommunicator._all_group_ranks_share_shm_group_name = lambda self: False
    dist.init_process_group("fake", rank=rank, world_size=tp, store=FakeStore())
    config = EngineArgs(model=folder, skip_tokenizer_init=True, dtype="bfloat16", enforce_eager=True, tensor_parallel_size=tp,
                        enable_expert_parallel=expert_parallel, distributed_executor_backend="mp",
                        limit_mm_per_prompt={}).create_engine_config()
    context = set_current_vllm_config(config)
    context.__enter__()
    ps.init_distributed_environment(tp, rank, "fake://", 0, "fake")
    ps.initialize_model_parallel(tp, 1)
    with set_default_torch_dtype(config.model_config.dtype):
        with torch.device("cpu"):
            model = initialize_model(vllm_config=config, model_config=config.model_config)
    return config, model


def weights_of(config, model):
    loader = get_model_loader(config.load_config)
    return loader.get_all_weights(config.model_config, model)
