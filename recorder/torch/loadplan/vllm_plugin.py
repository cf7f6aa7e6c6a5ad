# SPDX-License-Identifier: Apache-2.0
"""vLLM's `--load-format loadplan`: weights are loaded by replaying a trace.

The first start of a model on a rank records vLLM's own loader in the serving process and keeps the trace in a cache
folder; later starts bind it. Whether a trace fits is proved, never assumed: the checkpoint must have its names, dtypes
and shapes, and every destination its dtype, shape, strides and storage; else the loader is recorded anew. Names that the
loader computes on are loaded by vLLM's own code, and counted. Ranks tell each other their plan digests before the first
byte; one that has no plan sends all to the ordinary loader.

Options, in --model-loader-extra-config:
  "cache": FOLDER     where traces are kept, one file for each rank (default LOADPLAN_CACHE_DIR, else loadplan in the
                      user's cache folder, which is XDG_CACHE_HOME or ~/.cache)
  "trace": FILE       a trace recorded elsewhere, perhaps for another target; "{rank}" in it becomes the rank's number

The weight transfer backend `loadplan` reloads what this has loaded (vllm_transfer.py).
"""

from __future__ import annotations

import copy
import hashlib
import logging
import os
import tempfile
import time

import torch

from ._library import LoadplanError
from ._record import record
from ._session import Plan
from ._trace import Trace, set_digest

_log = logging.getLogger("vllm.loadplan")  # what vLLM shows and formats
_LOADED = "_loadplan_loaded"  # the attribute of a model that says what a reload starts from


def loaded_of(model: torch.nn.Module):
    """What a reload starts from (vllm_reload.Loaded), or None for a model that this did not load."""
    return vars(model).get(_LOADED)


def _rank() -> tuple[dict, int]:
    """This process in the parallel layout, as a scope, and its global rank."""
    import vllm.distributed.parallel_state as ps
    from vllm.config import get_current_vllm_config
    parallel = get_current_vllm_config().parallel_config
    scope = dict(tp=parallel.tensor_parallel_size, tp_rank=ps.get_tensor_model_parallel_rank(),
                 pp=parallel.pipeline_parallel_size, pp_rank=ps.get_pp_group().rank_in_group,
                 expert_parallel=parallel.enable_expert_parallel)
    return scope, scope["pp_rank"] * scope["tp"] + scope["tp_rank"]


def _target() -> str:
    """What this process runs on, as traces name it."""
    from vllm.platforms import current_platform
    capability = current_platform.get_device_capability() if current_platform.is_cuda() else None
    return f"sm{capability.to_int()}" if capability is not None else current_platform.device_name


def _python_state(model: torch.nn.Module) -> dict:
    """Plain attributes of all modules: what a loader may leave beside tensors."""
    state = {}
    for path, module in model.named_modules():
        for name, value in vars(module).items():
            if value is None or isinstance(value, (bool, int, float, str)):
                state[path, name] = value
            elif isinstance(value, (dict, list, set, tuple)) and not name.startswith("_"):
                state[path, name] = len(value)
    return state


def record_model(folder: str, model: torch.nn.Module, scope: dict, target: str = "", process=None) -> Trace:
    """What model.load_weights does, and process() after it."""
    import vllm
    # A scale that no checkpoint has to hold; -1 means that it was not loaded.
    initial = [name for name, tensor in model.named_parameters() if type(tensor).__name__ == "KVCacheScaleParameter"]
    options = dict(loader="torch:vllm", loader_version=vllm.__version__, target=target, initial=initial, **scope)
    configuration = f"architecture={type(model).__name__}"
    if process is not None:
        def load(weights):
            model.load_weights(weights)
            process()
        return record(load, folder, model, configuration=configuration + "\nprocessed=yes", **options)
    before = _python_state(model)
    trace = record(model.load_weights, folder, model, configuration=configuration, **options)
    if trace.initialised or _python_state(model) != before:  # a replay alone would leave that out: the header says so
        trace = record(model.load_weights, folder, model, configuration=configuration + "\npython_state=changed", **options)
    return trace


def _write_atomically(trace: Trace, path: str) -> None:
    """Several processes may record at once: each writes a file of its own, the last rename wins."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=os.path.dirname(path), suffix=".lpt")
    os.close(handle)
    try:
        trace.save(temporary, overwrite=True)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def _exchange(mine: dict) -> list[dict]:
    """What each rank says, in order of rank."""
    import torch.distributed as dist
    import vllm.distributed.parallel_state as ps
    world = ps.get_world_group()
    if world.world_size == 1:
        return [mine]
    said: list = [None] * world.world_size
    dist.all_gather_object(said, mine, group=world.cpu_group)
    return said


def _cache_folder():
    caches = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return os.environ.get("LOADPLAN_CACHE_DIR") or os.path.join(caches, "loadplan")


def _loader_class():
    from vllm.config import get_current_vllm_config
    from vllm.model_executor.model_loader.base_loader import BaseModelLoader
    from vllm.model_executor.model_loader.default_loader import DefaultModelLoader

    class LoadplanModelLoader(BaseModelLoader):
        def __init__(self, load_config):
            super().__init__(load_config)
            extra = dict(load_config.model_loader_extra_config or {})
            self._cache = extra.pop("cache", None) or _cache_folder()
            self._given = extra.pop("trace", None)
            if extra:
                raise ValueError(f"load format loadplan has no option {sorted(extra)[0]!r}")
            plain = copy.copy(load_config)
            plain.load_format, plain.model_loader_extra_config = "safetensors", {}
            self._default = DefaultModelLoader(plain)
            self.report = None  # of the last load
            self.set_digest = ""

        def download_model(self, model_config) -> None:
            self._default.download_model(model_config)

        def get_all_weights(self, model_config, model):
            return self._default.get_all_weights(model_config, model)

        def _folder(self, model_config) -> str:
            folder, _, _, _ = self._default._prepare_weights(model_config.model, None, model_config.revision, False, None)
            return folder

        def _path(self, folder: str, model, scope: dict) -> str:
            """Where a trace for this start may lie. Only a place to look: bind decides whether it fits."""
            import vllm
            with open(os.path.join(folder, "config.json"), "rb") as f:
                text = f.read()
            layout = sorted(item for item in scope.items() if not item[0].endswith("_rank"))  # one folder for all ranks
            key = hashlib.sha256(repr((type(model).__name__, vllm.__version__, layout)).encode() + text)
            return os.path.join(self._cache, key.hexdigest()[:32], f"rank-{_rank()[1]:05d}.lpt")

        def _bind(self, path: str, folder: str, model, scope: dict) -> Plan | None:
            """The trace at `path`, proved to be one of this start; None, with a word, when it is not."""
            try:
                trace = Trace.open(path)
                if trace.header.configuration.get("python_state"):
                    raise LoadplanError("its loader leaves more than tensors behind")
                trace.match(folder)
                plan = Plan(trace, model, **scope)
            except LoadplanError as error:
                if os.path.exists(path):
                    _log.warning("loadplan: %s does not fit and is recorded anew: %s", path, error)
                return None
            if trace.header.target not in ("", _target()):
                _log.info("loadplan: %s was recorded for target '%s'; its places and forms are those of '%s'", path,
                          trace.header.target, _target())
            return plan

        def _plan(self, folder: str, model, scope: dict) -> Plan:
            if self._given is not None:
                path = self._given.replace("{rank}", str(_rank()[1]))
                if not os.path.exists(path):
                    raise LoadplanError(f"there is no trace '{path}'", "LP_E_IO")
                plan = self._bind(path, folder, model, scope)
                if plan is not None:
                    return plan
            path = self._path(folder, model, scope)
            plan = self._bind(path, folder, model, scope)
            if plan is not None:
                return plan
            began = time.monotonic()
            trace = record_model(folder, model, scope, _target())
            if trace.unrecorded:
                raise LoadplanError(f"its loader writes what no trace can hold: {trace.unrecorded[0]}")
            _write_atomically(trace, path)
            _log.info("loadplan: recorded %s in %.1f s", path, time.monotonic() - began)
            return Plan(trace, model)

        def _agree(self, plan: Plan | None, error: str, scope: dict) -> str:
            """Tells the other ranks; why there is no common plan, or '' when there is one."""
            mine = {"error": error}
            if plan is not None:
                header, number = plan.trace.header, _rank()[1]
                mine.update(header=header, rank=next(r for r in plan.trace.ranks if r.rank == number))
            said = _exchange(mine)
            for number, other in enumerate(said):
                if other["error"]:
                    return f"rank {number}: {other['error']}"
                first, this = said[0]["header"], other["header"]
                if (first.loader, first.loader_version, first.configuration) != (this.loader, this.loader_version,
                                                                                  this.configuration):
                    return f"rank {number} has a trace of another loader than rank 0: {this} is not {first}"
            self.set_digest = set_digest(said[0]["header"], [other["rank"] for other in said])
            return ""

        def load_weights(self, model, model_config) -> None:
            folder = self._folder(model_config)
            scope, number = _rank()
            plan, error = None, ""
            try:
                plan = self._plan(folder, model, scope)
            except (LoadplanError, OSError) as failure:
                error = str(failure)
            error = self._agree(plan, error, scope)
            if error:
                _log.warning("loadplan: the ordinary loader is used for everything: %s", error)
                self._default.load_weights(model, model_config)
                return
            refused = {row["name"] for row in plan.trace.refusals}
            if refused:
                _log.warning("loadplan: %d names are loaded by the ordinary loader", len(refused))
                model.load_weights((name, tensor) for name, tensor in self.get_all_weights(model_config, model)
                                   if name in refused)
            with plan.session("direct") as session:
                for name in refused:
                    session.mark_loaded(name)
                session.push_checkpoint(folder)
            self.report = session.report
            _log.info("loadplan: rank %d: %d names, %d bytes in %.2f s, %d by the ordinary loader; plan lp1:%s, set lp1:%s",
                      number, session.report.names_loaded, session.report.bytes_written, session.report.nanoseconds / 1e9,
                      len(refused), next(r for r in plan.trace.ranks if r.rank == number).plan_digest, self.set_digest)
            transfer = get_current_vllm_config().weight_transfer_config
            if transfer is not None and transfer.backend == "loadplan":
                from .vllm_reload import Loaded
                vars(model)[_LOADED] = Loaded(model, plan.trace)

    return LoadplanModelLoader


def register() -> None:
    """The entry point of the group vllm.general_plugins. Safe to call twice."""
    from vllm.distributed.weight_transfer.factory import WeightTransferEngineFactory, WeightTransferTrainerFactory
    from vllm.model_executor.model_loader import register_model_loader
    global _registered
    if not _registered:
        register_model_loader("loadplan")(_loader_class())
        WeightTransferEngineFactory.register_engine("loadplan", "loadplan.vllm_transfer", "LoadplanWeightTransferEngine")
        WeightTransferTrainerFactory.register_engine("loadplan", "loadplan.vllm_transfer", "LoadplanTrainerEngine")
        _registered = True


_registered = False
