# SPDX-License-Identifier: Apache-2.0
"""Replay into live tensors."""

from __future__ import annotations

import ctypes as c
import dataclasses
import os
from array import array
from typing import Iterable, Iterator, Mapping

import torch

from ._files import DTYPES
from ._forms import NUMBER, check_ordinary, plain, raw_storage
from ._library import (BindOptions, Buffer, DestinationMemory, LoadplanError, RawReport, SessionOptions, check, lib,
                       scope_of)
from ._trace import Trace

_MODES = {"cold": 0, "direct": 1, "layerwise": 2, "meta": 4}


@dataclasses.dataclass(frozen=True)
class Report:
    """What a load did: counts of bytes, names, tensors; nanoseconds since it began. Staging is host memory, or on a device
    what was spilled to the host."""

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
    device_staging_peak_bytes: int


def _held(destinations) -> Iterator[tuple[str, Mapping, str]]:
    """Parameters, buffers and plain attributes of modules: their names, and the table and key that hold each."""
    for name, value in ({"": destinations} if isinstance(destinations, torch.nn.Module) else destinations).items():
        if isinstance(value, torch.Tensor):
            yield name, destinations, name
            continue
        prefix = name + "." if name else ""
        for path, part in value.named_modules(remove_duplicate=False):
            here = prefix + (path + "." if path else "")
            for table in (vars(part), part._buffers, part._parameters):
                yield from ((here + key, table, key) for key, x in table.items() if isinstance(x, torch.Tensor))


def named_tensors(destinations) -> dict[str, torch.Tensor]:
    """Parameters, buffers and plain attributes of modules by name; what record() calls them."""
    return {name: tensor for at, table, key in _held(destinations) for name, tensor in plain(at, table[key])}


def _place(tensor: torch.Tensor) -> tuple:
    """What a write into it depends on."""
    return tensor.data_ptr(), tensor.stride(), tensor.shape, tensor.dtype


def _memory(device: torch.device) -> int:
    """lp_source_memory: 1 the host's, 2 the device's."""
    return 2 if device.type == "cuda" else 1


def _longs(values) -> c.Array:
    values = list(values)
    return (c.c_int64 * max(len(values), 1))(*values)


def device_of(tensors: Mapping[str, torch.Tensor]) -> torch.device:
    """Where all of them are: the CPU or one CUDA device."""
    first, device = "", torch.device("cpu")
    for name, tensor in tensors.items():
        if tensor.device.type not in ("cpu", "cuda"):
            raise LoadplanError(f"'{name}' is on {tensor.device}: only CPU and CUDA tensors can be bound", "LP_E_UNSUPPORTED")
        if tensor.numel() == 0:
            continue  # no bytes, no place
        if first and tensor.device != device:
            raise LoadplanError(f"'{name}' is on {tensor.device}, but '{first}' is on {device}", "LP_E_UNSUPPORTED")
        first, device = first or name, tensor.device
    return device


class Plan:
    """A trace bound to live tensors, on the CPU or on one CUDA device; every load into them is a Session of it. Keeps both
    alive. `staging`: most bytes of staging at a time; `spill`: of pinned host memory, for layerwise sessions on a device;
    `captures`: pushes may be captured into a CUDA graph."""

    def __init__(self, trace: Trace, destinations, staging: int = 0, *, spill: int = 0, captures: bool = False,
                 device: torch.device | None = None, **scope):
        self._plan = c.c_void_p()
        self._trace = trace
        wanted = {row["name"] for row in trace.query("SELECT DISTINCT name FROM v_destinations")}
        self._tensors: dict[str, torch.Tensor] = {}
        self._places: list[tuple] = []  # where each hangs, what hung there, and its parts with their places
        for at, table, key in _held(destinations):
            parts = {name: tensor for name, tensor in plain(at, table[key]) if name in wanted}
            self._tensors.update(parts)
            if parts:
                self._places.append((at, table, key, table[key], parts))
        self.device = device_of(self._tensors) if device is None else device
        rows = (DestinationMemory * max(len(self._tensors), 1))()
        keep = []
        for row, (name, tensor) in zip(rows, self._tensors.items()):
            with torch._C.DisableTorchFunctionSubclass():
                tensor = tensor.detach()
                if tensor.dtype not in NUMBER:
                    raise LoadplanError(f"destination '{name}' is {tensor.dtype}", "LP_E_UNSUPPORTED")
                if tensor.is_neg() or tensor.is_conj():
                    raise LoadplanError(f"destination '{name}' stands for other values than its memory has",
                                        "LP_E_UNSUPPORTED")
                item, storage = tensor.dtype.itemsize, raw_storage(tensor)
                form = _longs(tensor.shape), _longs(step * item for step in tensor.stride()), name.encode()
                keep.append(form)
                row.name, row.dtype, row.ndim = form[2], NUMBER[tensor.dtype], tensor.dim()
                row.shape, row.stride = form[0], form[1]
                row.data = tensor.data_ptr() or storage.data_ptr() + tensor.storage_offset() * item
                row.storage, row.storage_bytes = storage.data_ptr(), storage.nbytes()
        options = BindOptions(staging=staging, spill=spill, captures=captures,
                              device=f"cuda:{self.device.index or 0}".encode() if self.device.type == "cuda" else None)
        check(lib.lp_bind, c.byref(self._plan), trace._handle, c.byref(scope_of(**scope)) if scope else None, rows,
              len(self._tensors), c.byref(options))
        with torch._C.DisableTorchFunctionSubclass():
            self._places = [(at, table, key, tensor, {name: _place(part) for name, part in parts.items()})
                            for at, table, key, tensor, parts in self._places]

    @property
    def trace(self) -> Trace:
        return self._trace

    def check_places(self) -> None:
        """LoadplanError (LP_E_MISMATCH) when a destination is not where it was bound, or not in that form: a parameter that
        was replaced, moved, freed or transposed since. Every session, and every epoch of a receiver, begins with it."""
        with torch._C.DisableTorchFunctionSubclass():
            for at, table, key, tensor, places in self._places:
                now = table.get(key)
                if now is tensor and len(places) == 1 and _place(now) == places.get(at):
                    continue
                parts = dict(plain(at, now)) if isinstance(now, torch.Tensor) else {}
                for name, place in places.items():
                    if name not in parts or _place(parts[name]) != place:
                        raise LoadplanError(f"'{name}' is not where the plan was bound to it: it was replaced, moved or took "
                                            "another form; bind a new Plan", "LP_E_MISMATCH")

    def session(self, mode: str = "direct", **options) -> "Session":
        return Session(self, mode=mode, **options)

    def bundle(self, weights: Mapping[str, torch.Tensor] | Iterable[tuple[str, torch.Tensor]]) -> "Bundle":
        """Tensors that are pushed together, round after round: names, dtypes and shapes are judged once, here."""
        return Bundle(self, weights)

    def __del__(self):
        plan, self._plan = getattr(self, "_plan", None), None
        if plan:
            lib.lp_plan_close(plan)


class Bundle:
    """Checkpoint tensors that stay where they are and change their values, such as a trainer's parameters; made by
    Plan.bundle(). They must be contiguous, all on the CPU or all on the plan's device, and are kept alive."""

    def __init__(self, plan: Plan, weights):
        catalogue = {row["name"]: (row["dtype"], row["shape"]) for row in
                     plan.trace.query("SELECT name, dtype, shape FROM v_names")}
        self.plan = plan
        self.names: list[str] = []
        self.tensors: list[torch.Tensor] = []
        self.handles = array("I")
        for name, tensor in weights.items() if isinstance(weights, Mapping) else weights:
            if name not in catalogue:
                raise LoadplanError(f"no checkpoint tensor '{name}'", "LP_E_UNKNOWN_NAME")
            check_ordinary(name, tensor)
            dtype, shape = catalogue[name]
            number = NUMBER.get(tensor.dtype, 0)
            form = (DTYPES[number - 1] if number else str(tensor.dtype), str(list(tensor.shape)).replace(" ", ""))
            if form != (dtype, shape.replace(" ", "")):
                raise LoadplanError(f"'{name}' is {form[0]} {form[1]}, the plan knows it as {dtype} {shape}", "LP_E_MISMATCH")
            if not tensor.is_contiguous() or tensor.is_neg() or tensor.is_conj():
                raise LoadplanError(f"'{name}' is not contiguous, or negated or conjugated when it is read", "LP_E_UNSUPPORTED")
            self.names.append(name)
            self.tensors.append(tensor)
            self.handles.append(lib.lp_plan_handle(plan._plan, name.encode()))
        self._sizes = [tensor.size() for tensor in self.tensors]
        self._pointers = array("Q", [tensor.data_ptr() for tensor in self.tensors])
        self.device = device_of(dict(zip(self.names, self.tensors)))
        if self.device.type != "cpu" and self.device != plan.device:
            raise LoadplanError(f"the bundle is on {self.device}, the plan on {plan.device}", "LP_E_UNSUPPORTED")

    def pointers(self) -> array:
        """Where the tensors are now. One may have been given other memory, of the same form."""
        now = array("Q", [tensor.data_ptr() for tensor in self.tensors])
        if now != self._pointers:
            for name, tensor, size in zip(self.names, self.tensors, self._sizes):
                if tensor.size() != size or not tensor.is_contiguous():
                    raise LoadplanError(f"'{name}' has another form than when the bundle was made", "LP_E_MISMATCH")
            self._pointers = now
        return now


class Session:
    """One load or reload into live tensors:

        with loadplan.Session(trace, model, mode="direct") as session:
            for name, tensor in weights:
                session.push(name, tensor)
        print(session.report)

    Leaving the block finishes: LoadplanError (LP_E_INCOMPLETE) when something is missing. An exception inside aborts.
    `trace` is a Trace, or a Plan that serves many sessions. Modes: "cold" (everything, storages whole), "direct",
    "layerwise", "meta" (the protocol without bytes). `subset`: the only names of this round. `digests`: count the tensors
    that changed. `stream`: a torch.cuda.Stream on which all is done, for plans on a device; by default the current one.
    """

    def __init__(self, trace: Trace | Plan, destinations=None, mode: str = "direct", *,
                 subset: Iterable[str] | None = None, digests: bool = False, allow_fallbacks: bool = False, stream=None,
                 **scope):
        self.report: Report | None = None
        self._session = c.c_void_p()
        self.plan = trace if isinstance(trace, Plan) else Plan(trace, destinations, **scope)
        if mode not in _MODES:
            raise ValueError(f"there is no mode {mode!r}: cold, direct or layerwise")
        if self.plan is trace:
            self.plan.check_places()
        if isinstance(subset, str):
            raise ValueError("a subset is names, not one name")
        names = [name.encode() for name in subset] if subset is not None else []
        self._on_device = self.plan.device.type == "cuda"
        if stream is None and self._on_device:
            stream = torch.cuda.current_stream(self.plan.device)
        elif stream is not None and not self._on_device:
            raise LoadplanError("a session on the CPU takes no stream", "LP_E_ARGUMENT")
        self._stream = stream
        self._pushed: list = []  # what work on the stream may still read
        options = SessionOptions(mode=_MODES[mode], digests=digests, allow_fallbacks=allow_fallbacks,
                                 stream=stream.cuda_stream if stream is not None else None,
                                 subset=(c.c_char_p * max(len(names), 1))(*names) if subset is not None else None,
                                 subset_count=len(names))
        check(lib.lp_begin, c.byref(self._session), self.plan._plan, c.byref(options))

    def push(self, name: str, tensor: torch.Tensor) -> None:
        """A whole checkpoint tensor of any strides, on the CPU or on the plan's device (from elsewhere it is copied). It may
        be reused at once; where the plan is on a device, when the session has finished: until then it is kept alive."""
        self._check_open()
        with torch._C.DisableTorchFunctionSubclass():
            check_ordinary(name, tensor)
            tensor = tensor.detach().resolve_conj().resolve_neg()
            if tensor.device.type != "cpu" and tensor.device != self.plan.device:
                tensor = tensor.to(self.plan.device)
            dtype, shape, item = NUMBER.get(tensor.dtype, 0), list(tensor.shape), tensor.dtype.itemsize
            if str(tensor.dtype) == "torch.float4_e2m1fn_x2":
                tensor = tensor.contiguous()
                dtype, shape[-1] = 2, shape[-1] * 2
            form, stride = _longs(shape), _longs(step * item for step in tensor.stride())
            buffer = Buffer(data=tensor.data_ptr(), dtype=dtype, ndim=len(shape), shape=form,
                            stride=None if dtype == 2 else stride, memory=_memory(tensor.device))
            if self._on_device:
                self._hold(tensor)
            check(lib.lp_push, self._session, name.encode(), c.byref(buffer))

    def _check_open(self) -> None:
        if not self._session:
            raise LoadplanError("the session is closed", "LP_E_MISUSE")

    def _hold(self, tensor: torch.Tensor) -> None:
        self._pushed.append(tensor)
        if tensor.device.type == "cuda":
            tensor.record_stream(self._stream)

    def push_many(self, bundle: Bundle, pointers: array | None = None) -> None:
        """All tensors of a bundle in one call; `pointers` are theirs, where the caller knows that none has moved."""
        if bundle.plan is not self.plan:
            raise LoadplanError("the bundle was made for another plan", "LP_E_ARGUMENT")
        self._check_open()
        where = bundle.pointers() if pointers is None else pointers
        if len(where) != len(bundle.handles) or where.itemsize != 8:
            raise LoadplanError(f"{len(where)} pointers for {len(bundle.handles)} tensors", "LP_E_ARGUMENT")
        if self._on_device:
            self._pushed.append(bundle)
        check(lib.lp_push_many, self._session, bundle.handles.buffer_info()[0], where.buffer_info()[0], len(where))

    def push_checkpoint(self, path: str | os.PathLike) -> None:
        """Reads what is still missing from a checkpoint, own ranges only."""
        self._check_open()
        checkpoint = c.c_void_p()
        check(lib.lp_checkpoint_open, c.byref(checkpoint), os.fsencode(path))
        try:
            check(lib.lp_push_checkpoint, self._session, checkpoint)
        finally:
            lib.lp_checkpoint_close(checkpoint)

    def mark_loaded(self, name: str) -> None:
        """The caller has loaded this fallback name by its own code."""
        self._check_open()
        check(lib.lp_mark_loaded, self._session, name.encode())

    def missing(self) -> list[str]:
        self._check_open()
        cursor, names = c.c_int64(0), []
        while (name := lib.lp_session_missing(self._session, c.byref(cursor))) is not None:
            names.append(name.decode())
        return names

    def finish(self) -> Report:
        self._check_open()
        report = RawReport()
        try:
            check(lib.lp_finish, self._session, c.byref(report))
        finally:
            self.report = Report(**{field.name: getattr(report, field.name) for field in dataclasses.fields(Report)})
        return self.report

    def close(self) -> None:
        session, self._session = self._session, None
        if session:
            lib.lp_session_close(session)
        self._pushed.clear()

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
