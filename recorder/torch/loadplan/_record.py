# SPDX-License-Identifier: Apache-2.0
"""Recording: a loader runs unchanged on stand-ins, and what it writes becomes a trace."""

from __future__ import annotations

import ctypes as c
import functools
import os
import re
import threading
from typing import Callable, Iterator, Mapping

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from ._files import Files
from ._library import LoadplanError, RecorderOptions, check, lib, scope_of
from . import _values  # noqa: F401: registers its handlers
from ._operations import HANDLERS, _pass, handler_of
from ._storages import DESTINATION, NUMBER, OTHER, SOURCE, Storages, raw_storage
from ._trace import Trace

_BUFFER, _TIED = 8, 2


class _Dispatch(TorchDispatchMode):
    def __init__(self, recording: "Recording"):
        super().__init__()
        self._recording, self._handler = recording, dict(HANDLERS)

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # the wrapper that this avoids costs more than a view

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        handler = self._handler.get(func)
        if handler is _pass:
            return func(*args, **(kwargs or {}))
        if handler is None:
            handler = self._handler[func] = handler_of(func)
        with torch._C.DisableTorchFunctionSubclass():
            return handler(self._recording, func, args, kwargs or {})


class _HostReads:
    """What reads values without an operation that a dispatch mode sees. A function mode would see it too, but it costs
    every call of torch a detour; these three methods are replaced while a recording lasts."""

    _NAMES = {"numpy": "numpy", "tolist": "tolist", "__array__": "numpy"}

    def __init__(self, recording: "Recording"):
        self._recording, self._thread = recording, threading.get_ident()
        self._before: dict = {}

    def _replace(self, name: str, operation: str) -> None:
        before = getattr(torch.Tensor, name)

        @functools.wraps(before)
        def read(tensor, *args, **kwargs):
            recording = self._recording
            if threading.get_ident() == self._thread:
                with torch._C.DisableTorchFunctionSubclass():
                    if recording.storages.is_loaded(tensor):
                        recording.host_read(operation, [tensor])
                        narrow = tensor.dtype.is_floating_point and tensor.dtype.itemsize < 2
                        tensor = torch.ones(tensor.shape, dtype=torch.float32 if narrow else tensor.dtype)
            return before(tensor, *args, **kwargs)

        self._before[name] = torch.Tensor.__dict__.get(name)
        setattr(torch.Tensor, name, read)

    def __enter__(self) -> None:
        for name, operation in self._NAMES.items():
            self._replace(name, operation)

    def __exit__(self, kind, value, traceback) -> None:
        for name, before in self._before.items():
            if before is None:
                delattr(torch.Tensor, name)
            else:
                setattr(torch.Tensor, name, before)


def _natural(name: str):
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", name)]


def _span(tensor: torch.Tensor) -> tuple[int, int]:
    """Bytes of its storage that a tensor spans."""
    item, lo = tensor.dtype.itemsize, tensor.storage_offset()
    reach = sum((size - 1) * step for size, step in zip(tensor.size(), tensor.stride())) if tensor.numel() else -1
    return lo * item, (lo + reach + 1) * item


class Recording:
    """A recording in progress: a context manager; inside it everything that torch does on this thread is seen.

    weights() hands out the checkpoint's tensors as engines do, files in natural order, names in alphabetical order
    within a file; tensor(name) hands out one. After the block `trace` is the result.
    """

    PROBE_MAX = 1 << 24  # elements of an operation that is found out by running it on their numbers

    def __init__(self, checkpoint: str | os.PathLike, destinations=None, *, loader: str = "torch", loader_version: str = "",
                 configuration: str = "", target: str = "", initial=(), **scope):
        self.trace: Trace | None = None
        self.rebound: list[str] = []  # after the block: destinations that are other tensors than at its beginning
        self.current = -1  # catalogue index of the name that the loader was given last
        self._read: set[int] = set()  # names that were current when the host read values
        self._recorder, self._checkpoint = c.c_void_p(), c.c_void_p()
        self.storages: Storages | None = None
        self._modules: list[tuple[str, torch.nn.Module]] = []
        self._tensors: dict[str, torch.Tensor] = {}
        self._declared: dict[str, torch.Tensor] = {}
        self._given: dict[int, torch.Tensor] = {}
        self._optional = set(initial)  # destinations that may keep what they hold: nothing waits for them
        if destinations is not None:
            self._add_destinations(destinations)
        try:
            check(lib.lp_checkpoint_open, c.byref(self._checkpoint), os.fsencode(checkpoint))
            options = RecorderOptions(loader=loader.encode(), loader_version=loader_version.encode(),
                                      configuration=configuration.encode(), target=target.encode())
            check(lib.lp_recorder_open_with, c.byref(self._recorder), self._checkpoint, c.byref(scope_of(**scope)),
                  c.byref(options))
            self.storages = Storages(self._recorder)
            for name, tensor, flags in self._now():
                self._declare(name, tensor, flags)
        except BaseException:
            self.close()
            raise
        self._modes = (_HostReads(self), Files(self), _Dispatch(self))

    # -- destinations

    def _add_destinations(self, destinations) -> None:
        if isinstance(destinations, torch.nn.Module):
            self._modules.append(("", destinations))
        elif isinstance(destinations, Mapping):
            for name, value in destinations.items():
                if isinstance(value, torch.nn.Module):
                    self._modules.append((name + ".", value))
                elif isinstance(value, torch.Tensor):
                    self._tensors[name] = value
                else:
                    raise TypeError(f"destination {name!r} is a {type(value).__name__}, not a tensor or a module")
        else:
            raise TypeError("destinations are a module or a dict of tensors")

    def _now(self) -> Iterator[tuple[str, torch.Tensor, int]]:
        """Parameters, then buffers, as they are now."""
        yield from ((name, tensor, 0) for name, tensor in self._tensors.items())
        for prefix, module in self._modules:
            for name, tensor in module.named_parameters(remove_duplicate=False):
                yield prefix + name, tensor, 0
            for name, tensor in module.named_buffers(remove_duplicate=False):
                yield prefix + name, tensor, _BUFFER

    def _attributes(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Tensors that are plain attributes of modules."""
        for prefix, module in self._modules:
            for path, part in module.named_modules(remove_duplicate=False):
                for name, value in vars(part).items():
                    if isinstance(value, torch.Tensor):
                        yield prefix + (path + "." if path else "") + name, value

    @staticmethod
    def _is_declarable(tensor: torch.Tensor) -> bool:
        if tensor.layout is not torch.strided or tensor.dtype not in NUMBER:
            return False
        if torch.nn.parameter.is_lazy(tensor):
            return False
        return all(step > 0 or size < 2 for size, step in zip(tensor.size(), tensor.stride()))

    def _declare(self, name: str, tensor: torch.Tensor, flags: int) -> None:
        with torch._C.DisableTorchFunctionSubclass():
            if not self._is_declarable(tensor):
                return
            shared = raw_storage(tensor)._cdata in self.storages.number
            self.storages.destination(name, tensor, flags | (_TIED if shared else 0))
            self._declared[name] = tensor.detach()
            if flags & _BUFFER:
                self._optional.add(name)

    def add(self, destinations) -> None:
        """Destinations that the recorded code made itself, such as the model that from_pretrained returns."""
        self._add_destinations(destinations)

    # -- checkpoint tensors

    def catalogue(self, name: str):
        """The header's entry of a checkpoint tensor."""
        index = lib.lp_checkpoint_find(self._checkpoint, name.encode())
        if index < 0:
            raise LoadplanError(f"no checkpoint tensor '{name}'", "LP_E_UNKNOWN_NAME")
        return lib.lp_checkpoint_at(self._checkpoint, index).contents

    @functools.cached_property
    def _listed(self) -> list[tuple[str, str, int]]:
        """File, name and place in the file of every checkpoint tensor."""
        paths: dict[int, str] = {-1: ""}
        listed = []
        for i in range(len(self)):
            t = lib.lp_checkpoint_at(self._checkpoint, i).contents
            file = t.file
            if file not in paths:
                paths[file] = os.fsdecode(lib.lp_checkpoint_file_at(self._checkpoint, file).contents.path)
            listed.append((paths[file], t.name.decode(), t.file_off))
        return listed

    @functools.cached_property
    def _indices(self) -> dict[str, int]:
        return {name: i for i, (_, name, _) in enumerate(self._listed)}

    def files(self) -> dict[str, dict[str, int]]:
        """Names and their places in each file of the checkpoint."""
        found: dict[str, dict[str, int]] = {}
        for path, name, place in self._listed:
            if path:
                found.setdefault(path, {})[name] = place
        return found

    def __len__(self) -> int:
        return lib.lp_checkpoint_count(self._checkpoint)

    def names(self) -> list[str]:
        """In the order of weights()."""
        order = {path: i for i, path in enumerate(sorted({path for path, _, _ in self._listed}, key=_natural))}
        return [name for path, name, _ in sorted(self._listed, key=lambda x: (order[x[0]], x[1]))]

    def tensor(self, name: str) -> torch.Tensor:
        """The stand-in for a checkpoint tensor; what the loader does from now on is done for it."""
        index = self._indices.get(name)
        if index is None:
            raise LoadplanError(f"no checkpoint tensor '{name}'", "LP_E_UNKNOWN_NAME")
        self.current = index
        with torch._C._DisableTorchDispatch():
            made = self._given.get(index)
            if made is not None:
                return made.detach()  # a tensor object of its own: attributes that a loader hangs on it are its own
            made = self._given[index] = self.storages.source(
                index, lib.lp_checkpoint_at(self._checkpoint, index).contents)
        return made

    def weights(self, names=None) -> Iterator[tuple[str, torch.Tensor]]:
        for name in self.names() if names is None else names:
            yield name, self.tensor(name)
        self.current = -1

    def decline(self, name: str) -> None:
        """Says that the loader leaves the family of `name` alone on purpose."""
        lib.lp_decline(self._recorder, name.encode())

    # -- for the handlers

    def can_fill(self, value: torch.Tensor) -> bool:
        if value.device.type == "meta":
            return False
        return value.numel() <= 1 or bool((value == value.reshape(-1)[:1]).all())

    def mark_read(self) -> None:
        self._read.add(self.current)

    def values_were_read_elsewhere(self) -> bool:
        return bool(self._read - {self.current})

    def host_read(self, operation: str, operands) -> None:
        self.mark_read()
        loaded = [t for t in operands if isinstance(t, torch.Tensor) and self.storages.is_loaded(t)]
        self.storages.refuse(operation, "reads values on the host", loaded)

    def refuse_current(self, operation: str, reason: str, dst: torch.Tensor) -> None:
        if self.current >= 0:
            self.storages.refuse(operation, reason, [self._given[self.current]], dst)
        else:
            self.storages.unrecorded += 1

    def constant_unsayable(self, dst: torch.Tensor) -> None:
        self.refuse_current("copy_", "writes a constant that is not a few stretches of equal elements", dst)

    # -- the end

    def _rebound(self) -> None:
        """Destinations that are other tensors now, and tensors that became destinations on the way."""
        storages = self.storages
        now = [(name, tensor, flags) for name, tensor, flags in self._now()]
        now += [(name, tensor, _BUFFER) for name, tensor in self._attributes()]
        late: dict[int, tuple[torch.UntypedStorage, list]] = {}  # by storage: a stand-in, and what is declared in it
        replaced: dict[int, list] = {}  # by storage: names and spans
        for name, tensor, flags in now:
            if not self._is_declarable(tensor):
                continue
            tensor = tensor.detach()
            number = storages.number_of(tensor)
            if number is None or storages.kind[number] == DESTINATION:
                continue
            storage, span = raw_storage(tensor), _span(tensor)
            if name not in self._declared:
                form, held = late.setdefault(storage._cdata, (torch.UntypedStorage(storage.nbytes(), device="meta"), []))
                self._declare(name, torch.empty(0, dtype=tensor.dtype, device="meta").set_(
                    form, tensor.storage_offset(), tensor.size(), tensor.stride()), flags)
                if not any(lo <= span[0] and span[1] <= hi for lo, hi in held):
                    storages.copy(self._declared[name], tensor)
                held.append(span)
                continue
            holder = next((other for other, (lo, hi) in replaced.get(storage._cdata, ()) if lo <= span[0] and span[1] <= hi),
                          None)
            storages.rebind(name, tensor, holder)
            self.rebound.append(name)
            replaced.setdefault(storage._cdata, []).append((name, span))

    def __enter__(self) -> "Recording":
        for mode in self._modes:
            mode.__enter__()
        return self

    def __exit__(self, kind, value, traceback) -> None:
        for mode in reversed(self._modes):
            mode.__exit__(kind, value, traceback)
        try:
            if kind is None:
                with torch._C.DisableTorchFunctionSubclass():
                    self._rebound()
                for name in self._optional:
                    lib.lp_mirror_leave(self.storages.mirror, name.encode())
                self.storages.close()
                handle = c.c_void_p()
                check(lib.lp_recorder_finish, self._recorder, c.byref(handle))
                self.trace = Trace(handle.value)
                self.trace.rebound = tuple(self.rebound)
        finally:
            self.close()

    def close(self) -> None:
        if self.storages is not None:
            self.storages.close()
        recorder, self._recorder = self._recorder, None
        if recorder:
            lib.lp_recorder_close(recorder)
        checkpoint, self._checkpoint = self._checkpoint, None
        if checkpoint:
            lib.lp_checkpoint_close(checkpoint)


def capture(checkpoint: str | os.PathLike, destinations=None, **options) -> Recording:
    """A recording around any code:

        with loadplan.capture("ckpt", model) as recording:
            for name, tensor in recording.weights():
                model.load_one(name, tensor)
        recording.trace.save("x.lpt")

    Code that opens the checkpoint's safetensors files gets stand-ins as well. What it makes is added before the end:

        with loadplan.capture("ckpt") as recording:
            model = AutoModelForCausalLM.from_pretrained("ckpt")
            recording.add(model)

    An exception inside leaves no trace. Options: loader, loader_version, configuration, target; initial, the names of
    parameters that may keep their initial values (buffers always may); and the scope's pp, dp, tp, pp_rank, dp_rank,
    tp_rank, expert_parallel.
    """
    return Recording(checkpoint, destinations, **options)


def record(load: Callable, checkpoint: str | os.PathLike, destinations, **options) -> Trace:
    """Runs load(iterator of (name, tensor)), such as a model's load_weights, and returns what it did as a trace.

    Nothing is read of the checkpoint but its headers. What is written to `destinations` (a module, or a dict of tensors
    and modules) is recorded and not done. Options are those of capture(). LoadplanError when the loader raises.
    """
    with capture(checkpoint, destinations, **options) as recording:
        try:
            load(recording.weights())
        except LoadplanError:
            raise
        except Exception as error:
            file, line = recording.storages.places.of_traceback(error.__traceback__)
            raise LoadplanError(f"the loader failed: {type(error).__name__}: {error} ({file}:{line})") from error
    return recording.trace
