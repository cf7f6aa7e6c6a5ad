# SPDX-License-Identifier: Apache-2.0
"""vLLM's `--load-format loadplan`: weights are loaded by replaying a trace.

The first start of a model on a rank records vLLM's own loader in the serving process and keeps the trace in a cache
folder; later starts bind it. Whether a cached trace fits is proved, never assumed: the checkpoint must have its names,
dtypes and shapes, and every destination its dtype, shape, strides and storage; else the loader is recorded anew. Names
that the loader computes on are loaded by vLLM's own code, and counted.

Options, in --model-loader-extra-config: {"cache": FOLDER} (default ~/.cache/loadplan).
"""

from __future__ import annotations

import copy
import hashlib
import logging
import os
import tempfile
import time

from ._library import LoadplanError
from ._record import record
from ._session import Plan
from ._trace import Trace

_log = logging.getLogger("loadplan")


def _rank() -> tuple[dict, int]:
    """This process in the parallel layout, as a scope, and its global rank."""
    import vllm.distributed.parallel_state as ps
    from vllm.config import get_current_vllm_config
    parallel = get_current_vllm_config().parallel_config
    scope = dict(tp=parallel.tensor_parallel_size, tp_rank=ps.get_tensor_model_parallel_rank(),
                 pp=parallel.pipeline_parallel_size, pp_rank=ps.get_pp_group().rank_in_group,
                 expert_parallel=parallel.enable_expert_parallel)
    return scope, scope["pp_rank"] * scope["tp"] + scope["tp_rank"]


def record_model(folder: str, model, scope: dict) -> Trace:
    """What model.load_weights does."""
    import vllm
    # A scale that no checkpoint has to hold; -1 means that it was not loaded.
    initial = [name for name, tensor in model.named_parameters() if type(tensor).__name__ == "KVCacheScaleParameter"]
    return record(model.load_weights, folder, model, loader="torch:vllm", loader_version=vllm.__version__,
                  configuration=f"architecture={type(model).__name__}", initial=initial, **scope)


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


def _loader_class():
    from vllm.model_executor.model_loader.base_loader import BaseModelLoader
    from vllm.model_executor.model_loader.default_loader import DefaultModelLoader

    class LoadplanModelLoader(BaseModelLoader):
        def __init__(self, load_config):
            super().__init__(load_config)
            extra = dict(load_config.model_loader_extra_config or {})
            self._cache = extra.pop("cache", os.path.expanduser("~/.cache/loadplan"))
            if extra:
                raise ValueError(f"load format loadplan has no option {sorted(extra)[0]!r}")
            plain = copy.copy(load_config)
            plain.load_format, plain.model_loader_extra_config = "safetensors", {}
            self._default = DefaultModelLoader(plain)
            self.report = None  # of the last load

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
            key = hashlib.sha256(repr((type(model).__name__, vllm.__version__, sorted(scope.items()))).encode() + text)
            return os.path.join(self._cache, key.hexdigest()[:32], f"rank-{_rank()[1]:05d}.lpt")

        def _plan(self, folder: str, model) -> Plan:
            scope, _ = _rank()
            path = self._path(folder, model, scope)
            try:
                trace = Trace.open(path)
                trace.match(folder)
                return Plan(trace, model)
            except LoadplanError as error:
                if os.path.exists(path):
                    _log.warning("loadplan: %s does not fit and is recorded anew: %s", path, error)
            began = time.monotonic()
            trace = record_model(folder, model, scope)
            _write_atomically(trace, path)
            _log.info("loadplan: recorded %s in %.1f s", path, time.monotonic() - began)
            return Plan(trace, model)

        def load_weights(self, model, model_config) -> None:
            folder = self._folder(model_config)
            try:
                plan = self._plan(folder, model)
            except LoadplanError as error:
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
            _log.info("loadplan: %d names, %d bytes in %.2f s, %d by the ordinary loader", session.report.names_loaded,
                      session.report.bytes_written, session.report.nanoseconds / 1e9, len(refused))

    return LoadplanModelLoader


def register() -> None:
    """The entry point of the group vllm.general_plugins. Safe to call twice."""
    from vllm.model_executor.model_loader import register_model_loader
    global _registered
    if not _registered:
        register_model_loader("loadplan")(_loader_class())
        _registered = True


_registered = False
