# SPDX-License-Identifier: Apache-2.0
"""vLLM's weight transfer through loadplan: new weights for a serving engine, all of them or none.

    LLM(..., load_format="loadplan", weight_transfer_config={"backend": "loadplan"})

An update is a file, a folder or tensors, in any number of parts and in any order:

    start_weight_update(); update_weights({"checkpoint": PATH}) ...; finish_weight_update()

Until finish has everything, the live model is not touched: a part that is refused (unknown, repeated, of another shape)
ends the update, and the engine goes on serving the weights that it had. docs/torch.md has the rules.
"""

from __future__ import annotations

import contextlib
import ctypes as c
import dataclasses
import logging
import os
import shutil
import tempfile
from typing import Any, ClassVar

import torch
from vllm.distributed.weight_transfer.base import (TrainerInitInfo, TrainerWeightTransferEngine, WeightTransferEngine,
                                                   WeightTransferInitInfo, WeightTransferUpdateInfo)

from ._library import LoadplanError, check, lib
from ._session import Plan, Session
from .vllm_reload import Staged

_log = logging.getLogger("vllm.loadplan")


@dataclasses.dataclass
class LoadplanInitInfo(WeightTransferInitInfo):
    """Nothing to agree on: names, shapes and dtypes are those of the trace."""


@dataclasses.dataclass
class LoadplanUpdateInfo(WeightTransferUpdateInfo):
    """One part of an update: a safetensors file, index or folder that each rank reads its own ranges of, or tensors by
    name; or the end of an update that will not be completed."""

    checkpoint: str | None = None
    tensors: dict[str, torch.Tensor] | None = None
    abort: str | None = None  # the reason

    def __post_init__(self):
        if sum(part is not None for part in (self.checkpoint, self.tensors, self.abort)) != 1:
            raise ValueError("an update is one of 'checkpoint', 'tensors' and 'abort'")


class _Round:
    """One update: staged tensors and the session that fills them."""

    def __init__(self, loaded):
        self.staged: Staged = loaded.stage()
        self.session: Session = Plan(loaded.trace, self.staged.tensors).session("direct")
        self.fallback = {row["name"] for row in loaded.trace.refusals}
        self._known = {row["name"] for row in loaded.trace.query("SELECT name FROM v_names")}
        self._came: set[str] = set()
        self.waiting = set(self.session.missing())  # of the names that this rank uses
        self.held: dict[str, torch.Tensor] = {}  # refused names, for the model's own code

    def _admit(self, names) -> None:
        for name in names:
            if name not in self._known:
                raise LoadplanError(f"'{name}' is not in the checkpoint that this was recorded for", "LP_E_UNKNOWN_NAME")
            if name in self._came:
                raise LoadplanError(f"'{name}' came twice in one update", "LP_E_DUPLICATE")

    def push(self, name: str, tensor: torch.Tensor) -> None:
        self._admit([name])
        if name in self.fallback:
            self.held[name] = tensor.detach().to("cpu", copy=True)
        else:
            self.session.push(name, tensor)
        self._came.add(name)
        self.waiting.discard(name)

    def read(self, path: str) -> None:
        from safetensors import safe_open
        files = _files(path)
        names = [name for held in files.values() for name in held]
        self._admit(names)
        if self.waiting - self.fallback <= set(names):  # all at once: own ranges only
            self.session.push_checkpoint(path)
            rest = self.fallback
            self._came.update(set(names) - rest)
            self.waiting &= rest
        else:
            rest = self._known
        for file, held in files.items():
            held = [name for name in held if name in rest]
            if held:
                with safe_open(file, "pt") as opened:
                    for name in held:
                        self.push(name, opened.get_tensor(name))


def _files(path: str) -> dict[str, list[str]]:
    """The files of a checkpoint and the names in them."""
    handle = c.c_void_p()
    check(lib.lp_checkpoint_open, c.byref(handle), os.fsencode(path))
    try:
        found: dict[str, list[str]] = {}
        for i in range(lib.lp_checkpoint_count(handle)):
            tensor = lib.lp_checkpoint_at(handle, i).contents
            file = lib.lp_checkpoint_file_at(handle, tensor.file).contents.path.decode()
            found.setdefault(file, []).append(tensor.name.decode())
    finally:
        lib.lp_checkpoint_close(handle)
    return found


class LoadplanWeightTransferEngine(WeightTransferEngine[LoadplanInitInfo, LoadplanUpdateInfo]):
    init_info_cls = LoadplanInitInfo
    update_info_cls = LoadplanUpdateInfo

    def __init__(self, config, vllm_config, device, model) -> None:
        super().__init__(config, vllm_config, device, model)
        self._round: _Round | None = None
        self.report = None  # of the last update
        self.moved: list[str] = []  # tensors that the last update had to replace

    def _loaded(self):
        from .vllm_plugin import loaded_of
        loaded = loaded_of(self.model)
        if loaded is None:
            raise LoadplanError("the weight transfer backend 'loadplan' needs a model that was loaded with --load-format "
                                "loadplan", "LP_E_MISUSE")
        return loaded

    def init_transfer_engine(self, init_info: LoadplanInitInfo) -> None:
        if self.parallel_config.enable_eplb:  # the trace has the places of the start
            raise LoadplanError("experts that vLLM moves between slots while it serves cannot be reloaded: turn EPLB off",
                                "LP_E_UNSUPPORTED")
        self._loaded()

    def start_weight_update(self) -> None:
        self._round = None  # what an update that failed has left
        self._round = _Round(self._loaded())

    def update_weights(self, update_info: dict[str, Any]) -> None:
        self.receive_weights(self.parse_update_info(update_info))

    def receive_weights(self, update_info: LoadplanUpdateInfo) -> None:
        current = self._round
        if current is None:
            raise LoadplanError("this update has failed: start another one", "LP_E_POISONED")
        try:
            if update_info.abort is not None:
                raise LoadplanError(f"the update was given up: {update_info.abort}", "LP_E_POISONED")
            if update_info.checkpoint is not None:
                current.read(update_info.checkpoint)
            else:
                for name, tensor in update_info.tensors.items():
                    current.push(name, tensor)
        except BaseException:
            self._round = None
            raise

    def finish_weight_update(self) -> None:
        current = self._round
        if current is None:
            raise LoadplanError("this update has failed: start another one", "LP_E_POISONED")
        if current.waiting:  # the update stays open: what is missing may still come
            names = sorted(current.waiting)
            raise LoadplanError(f"{len(names)} names are missing: " + ", ".join(map(repr, names[:3]))
                                + (", ..." if len(names) > 3 else ""), "LP_E_INCOMPLETE")
        self._round = None
        self.moved = current.staged.commit(lambda: self._rest(current), self._process)
        self.report = current.session.report
        _log.info("loadplan: reloaded %d names, %d bytes, %d by the ordinary loader, %d tensors moved",
                  self.report.names_loaded, self.report.bytes_written, len(current.held), len(self.moved))

    def _rest(self, current: _Round) -> None:
        if current.held:
            self.model.load_weights((name, current.held[name]) for name in sorted(current.held))
        for name in current.held:
            current.session.mark_loaded(name)
        current.session.finish()

    def _process(self) -> None:
        from vllm.model_executor.model_loader.utils import process_weights_after_loading
        from vllm.utils.torch_utils import set_default_torch_dtype
        with set_default_torch_dtype(self.model_config.dtype):
            process_weights_after_loading(self.model, self.model_config, self.device)
        self.model.eval()

    def shutdown(self) -> None:
        self._round = None


@dataclasses.dataclass
class LoadplanTrainerInitInfo(TrainerInitInfo):
    """Where parts are handed over: a folder that trainer and engine both see, best one in memory such as /dev/shm."""

    backend: ClassVar[str] = "loadplan"
    folder: str = "/dev/shm"
    part_bytes: int = 1 << 30


class LoadplanTrainerEngine(TrainerWeightTransferEngine[LoadplanTrainerInitInfo]):
    """The trainer's side: writes parts as safetensors files, each gone when all workers have read it."""

    init_info_cls = LoadplanTrainerInitInfo

    def __init__(self, init_info: LoadplanTrainerInitInfo, *, client, source) -> None:
        super().__init__(client=client, source=source, is_sender=init_info.is_sender)
        self._info = init_info

    @classmethod
    def trainer_init(cls, init_info: LoadplanTrainerInitInfo, *, client, source=None) -> "LoadplanTrainerEngine":
        if source is None:
            raise ValueError("the backend 'loadplan' sends whole updates: it needs a source")
        if init_info.is_sender:
            client.init_weight_transfer_engine({})
        return cls(init_info, client=client, source=source)

    def send_weights(self) -> None:
        if not self.is_sender:
            for _ in self.source:  # gathering is a collective
                pass
            return
        folder = tempfile.mkdtemp(prefix="loadplan-", dir=self._info.folder)
        try:
            self.client.start_weight_update()
            try:
                for part in self._parts():
                    self._send(part, folder)
                self.client.finish_weight_update()
            except BaseException as error:
                with contextlib.suppress(Exception):  # it raises what it was told
                    self.client.update_weights({"abort": str(error) or type(error).__name__})
                raise
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _parts(self):
        part: dict[str, torch.Tensor] = {}
        size = 0
        for name, tensor in self.source:
            if part and size + tensor.nbytes > self._info.part_bytes:
                yield part
                part, size = {}, 0
            # A copy: a source may hand out one buffer again and again, and safetensors refuses tensors that share memory.
            part[name] = tensor.detach().to("cpu", copy=True, memory_format=torch.contiguous_format)
            size += tensor.nbytes
        if part:
            yield part

    def _send(self, part: dict[str, torch.Tensor], folder: str) -> None:
        from safetensors.torch import save_file
        path = os.path.join(folder, "part.safetensors")
        save_file(part, path)
        self.client.update_weights({"checkpoint": path})
        os.unlink(path)
