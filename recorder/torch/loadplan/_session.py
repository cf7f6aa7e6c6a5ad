# SPDX-License-Identifier: Apache-2.0
"""Replay into live tensors."""

from __future__ import annotations

import ctypes as c
import dataclasses
import os
from typing import Iterable, Mapping

import torch

from ._library import (BindOptions, Buffer, DestinationMemory, LoadplanError, RawReport, SessionOptions, check, lib,
                       scope_of)
from ._storages import NUMBER, raw_storage
from ._trace import Trace

_MODES = {"cold": 0, "direct": 1, "layerwise": 2}


@dataclasses.dataclass(frozen=True)
class Report:
    """What a load did: counts of bytes, names, tensors; nanoseconds since it began."""

    bytes_pushed: int
    bytes_written: int
    names_loaded: int
    names_ignored: int
    names_missing: int
    fallbacks: int
    derives_run: int
    derives_skipped: int
    groups_committed: int
    staging_peak_bytes: int
    tensors: int
    tensors_changed: int
    tensors_unchanged: int
    nanoseconds: int


def named_tensors(destinations) -> dict[str, torch.Tensor]:
    """Parameters, buffers and plain attributes of modules by name; what record() calls them."""
    found: dict[str, torch.Tensor] = {}
    for name, value in ({"": destinations} if isinstance(destinations, torch.nn.Module) else destinations).items():
        if isinstance(value, torch.Tensor):
            found[name] = value
            continue
        prefix = name + "." if name else ""
        for path, part in value.named_modules(remove_duplicate=False):
            here = prefix + (path + "." if path else "")
            for key, tensor in vars(part).items():
                if isinstance(tensor, torch.Tensor):
                    found[here + key] = tensor
            for key, tensor in (*part._buffers.items(), *part._parameters.items()):
                if tensor is not None:
                    found[here + key] = tensor
    return found


def _longs(values) -> c.Array:
    values = list(values)
    return (c.c_int64 * max(len(values), 1))(*values)


class Plan:
    """A trace bound to live CPU tensors; every load into them is a Session of it. Keeps both alive."""

    def __init__(self, trace: Trace, destinations, staging: int = 0, **scope):
        self._plan = c.c_void_p()
        self._trace = trace
        wanted = {row["name"] for row in trace.query("SELECT DISTINCT name FROM v_destinations")}
        self._tensors = {name: t for name, t in named_tensors(destinations).items() if name in wanted}
        rows = (DestinationMemory * max(len(self._tensors), 1))()
        keep = []
        for row, (name, tensor) in zip(rows, self._tensors.items()):
            with torch._C.DisableTorchFunctionSubclass():
                tensor = tensor.detach()
                if tensor.device.type != "cpu":
                    raise LoadplanError(f"destination '{name}' is on {tensor.device}: only CPU tensors can be bound here",
                                        "LP_E_UNSUPPORTED")
                if tensor.dtype not in NUMBER:
                    raise LoadplanError(f"destination '{name}' is {tensor.dtype}", "LP_E_UNSUPPORTED")
                item, storage = tensor.dtype.itemsize, raw_storage(tensor)
                form = _longs(tensor.shape), _longs(step * item for step in tensor.stride()), name.encode()
                keep.append(form)
                row.name, row.dtype, row.ndim = form[2], NUMBER[tensor.dtype], tensor.dim()
                row.shape, row.stride = form[0], form[1]
                row.data = tensor.data_ptr() or storage.data_ptr() + tensor.storage_offset() * item
                row.storage, row.storage_bytes = storage.data_ptr(), storage.nbytes()
        options = BindOptions(staging=staging)
        check(lib.lp_bind, c.byref(self._plan), trace._handle, c.byref(scope_of(**scope)) if scope else None, rows,
              len(self._tensors), c.byref(options))

    @property
    def trace(self) -> Trace:
        return self._trace

    def session(self, mode: str = "direct", **options) -> "Session":
        return Session(self, mode=mode, **options)

    def __del__(self):
        plan, self._plan = getattr(self, "_plan", None), None
        if plan:
            lib.lp_plan_close(plan)


class Session:
    """One load or reload into live tensors:

        with loadplan.Session(trace, model, mode="direct") as session:
            for name, tensor in weights:
                session.push(name, tensor)
        print(session.report)

    Leaving the block finishes: LoadplanError (LP_E_INCOMPLETE) when something is missing. An exception inside aborts.
    `trace` is a Trace, or a Plan that serves many sessions. Modes: "cold" (everything, storages whole), "direct",
    "layerwise". `subset`: the only names of this round. `digests`: count the tensors that changed.
    """

    def __init__(self, trace: Trace | Plan, destinations=None, mode: str = "direct", *,
                 subset: Iterable[str] | None = None, digests: bool = False, allow_fallbacks: bool = False, **scope):
        self.report: Report | None = None
        self._session = c.c_void_p()
        self.plan = trace if isinstance(trace, Plan) else Plan(trace, destinations, **scope)
        if mode not in _MODES:
            raise ValueError(f"there is no mode {mode!r}: cold, direct or layerwise")
        names = [name.encode() for name in subset] if subset is not None else []
        options = SessionOptions(mode=_MODES[mode], digests=digests, allow_fallbacks=allow_fallbacks,
                                 subset=(c.c_char_p * len(names))(*names) if names else None, subset_count=len(names))
        check(lib.lp_begin, c.byref(self._session), self.plan._plan, c.byref(options))

    def push(self, name: str, tensor: torch.Tensor) -> None:
        """A whole checkpoint tensor, on the CPU, of any strides. It may be reused at once."""
        with torch._C.DisableTorchFunctionSubclass():
            tensor = tensor.detach()
            if tensor.device.type != "cpu":
                tensor = tensor.cpu()
            dtype, shape, item = NUMBER.get(tensor.dtype, 0), list(tensor.shape), tensor.dtype.itemsize
            if str(tensor.dtype) == "torch.float4_e2m1fn_x2":
                tensor = tensor.contiguous()
                dtype, shape[-1] = 2, shape[-1] * 2
            form, stride = _longs(shape), _longs(step * item for step in tensor.stride())
            buffer = Buffer(data=tensor.data_ptr(), dtype=dtype, ndim=len(shape), shape=form,
                            stride=None if dtype == 2 else stride)
            check(lib.lp_push, self._session, name.encode(), c.byref(buffer))

    def push_checkpoint(self, path: str | os.PathLike) -> None:
        """Reads what is still missing from a checkpoint, own ranges only."""
        checkpoint = c.c_void_p()
        check(lib.lp_checkpoint_open, c.byref(checkpoint), os.fsencode(path))
        try:
            check(lib.lp_push_checkpoint, self._session, checkpoint)
        finally:
            lib.lp_checkpoint_close(checkpoint)

    def mark_loaded(self, name: str) -> None:
        """The caller has loaded this fallback name by its own code."""
        check(lib.lp_mark_loaded, self._session, name.encode())

    def missing(self) -> list[str]:
        cursor, names = c.c_int64(0), []
        while (name := lib.lp_session_missing(self._session, c.byref(cursor))) is not None:
            names.append(name.decode())
        return names

    def finish(self) -> Report:
        report = RawReport()
        try:
            check(lib.lp_finish, self._session, c.byref(report))
        finally:
            self.report = Report(**{name: getattr(report, name) for name, _ in RawReport._fields_})
        return self.report

    def close(self) -> None:
        session, self._session = self._session, None
        if session:
            lib.lp_session_close(session)

    def __enter__(self) -> "Session":
        return self

    def __exit__(self, kind, value, traceback) -> None:
        try:
            if kind is None:
                self.finish()
        finally:
            self.close()

    def __del__(self):
        if getattr(self, "_session", None):
            self.close()


def replay(trace: Trace, destinations, weights: Mapping[str, torch.Tensor] | Iterable[tuple[str, torch.Tensor]],
           mode: str = "direct", **options) -> Report:
    """A whole session over (name, tensor) pairs."""
    with Session(trace, destinations, mode, **options) as session:
        for name, tensor in weights.items() if isinstance(weights, Mapping) else weights:
            session.push(name, tensor)
    return session.report
