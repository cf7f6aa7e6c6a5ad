# SPDX-License-Identifier: Apache-2.0
"""Recording: a loader runs unchanged on stand-ins, and what it writes becomes a trace."""

from __future__ import annotations

import ctypes as c
import functools
import os
import threading
import warnings
from typing import Callable, Iterator, Mapping

import torch

from ._catalogue import Catalogue
from ._eager import Eager
from ._files import Files
from ._forms import NUMBER, plain, raw_storage
from ._library import LoadplanError, RecorderOptions, check, lib, scope_of
from ._numbers import Numbers
from ._rebinding import rebind_all
from ._storages import BUFFER, TIED, Storages
from ._streams import Streams
from ._threads import Threads
from ._trace import Trace
from ._watching import Dispatch, HostReads, in_progress


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
        self.lock = threading.RLock()  # handlers run one at a time
        self.dispatches: list[Dispatch] = []
        self.numbers = Numbers(self)
        self.yes: set[int] = set()  # storages of refused truth values whose neutral value is yes
        self._read: set[int] = set()  # names that were current when the host read values
        self.first_read: tuple[bytes, int] | None = None  # where that was first
        self._target = target
        self._recorder, self.catalogue = c.c_void_p(), None
        self.storages: Storages | None = None
        self._modules: list[tuple[str, torch.nn.Module]] = []
        self._tensors: dict[str, torch.Tensor] = {}
        self.declared: dict[str, torch.Tensor] = {}
        self._given: dict[int, torch.Tensor] = {}
        self._optional = set(initial)  # destinations that may keep what they hold: nothing waits for them
        if destinations is not None:
            self._add_destinations(destinations)
        try:
            self.catalogue = Catalogue(checkpoint)
            options = RecorderOptions(loader=loader.encode(), loader_version=loader_version.encode(),
                                      configuration=configuration.encode(), target=target.encode())
            check(lib.lp_recorder_open_with, c.byref(self._recorder), self.catalogue.handle, c.byref(scope_of(**scope)),
                  c.byref(options))
            self.storages = Storages(self._recorder)
            for name, tensor, flags in self.destinations_now():
                self.declare(name, tensor, flags)
        except BaseException:
            self.close()
            raise
        self._modes = Eager(), HostReads(self), Files(self), Streams(self), Threads(lambda: Dispatch(self)), Dispatch(self)

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

    def destinations_now(self) -> Iterator[tuple[str, torch.Tensor, int]]:
        """Parameters, then buffers, as they are now."""
        for name, tensor, flags in self._registered():
            yield from ((part, inner, flags) for part, inner in plain(name, tensor))

    def _registered(self) -> Iterator[tuple[str, torch.Tensor, int]]:
        yield from ((name, tensor, 0) for name, tensor in self._tensors.items())
        for prefix, module in self._modules:
            for name, tensor in module.named_parameters(remove_duplicate=False):
                yield prefix + name, tensor, 0
            for name, tensor in module.named_buffers(remove_duplicate=False):
                yield prefix + name, tensor, BUFFER

    def attributes(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Tensors that are plain attributes of modules."""
        for prefix, module in self._modules:
            for path, part in module.named_modules(remove_duplicate=False):
                for name, value in vars(part).items():
                    if isinstance(value, torch.Tensor):
                        yield from plain(prefix + (path + "." if path else "") + name, value)

    @staticmethod
    def is_declarable(tensor: torch.Tensor) -> bool:
        if tensor.layout is not torch.strided or tensor.dtype not in NUMBER:
            return False
        if torch.nn.parameter.is_lazy(tensor):
            return False
        return all(step > 0 or size < 2 for size, step in zip(tensor.size(), tensor.stride()))

    def declare(self, name: str, tensor: torch.Tensor, flags: int) -> None:
        with torch._C.DisableTorchFunctionSubclass():
            if not self.is_declarable(tensor):
                return
            shared = raw_storage(tensor)._cdata in self.storages.number
            number = self.storages.destination(name, tensor, flags | (TIED if shared else 0))
            if tensor.device.type == "cuda" or self._target.startswith("sm"):
                self.storages.gpu.add(number)
            self.declared[name] = tensor.detach()
            if flags & BUFFER:
                self._optional.add(name)

    def add(self, destinations) -> None:
        """Destinations that the recorded code made itself, such as the model that from_pretrained returns."""
        self._add_destinations(destinations)

    # -- checkpoint tensors

    @property
    def current(self) -> int:
        """Catalogue index of the name that this thread was given last, or works on; -1: none."""
        return self.storages.current.get(threading.get_ident(), -1)

    @current.setter
    def current(self, index: int) -> None:
        self.storages.current[threading.get_ident()] = index

    def __len__(self) -> int:
        return len(self.catalogue)

    def names(self) -> list[str]:
        """In the order of weights()."""
        return self.catalogue.names()

    def tensor(self, name: str, on_gpu: bool = False) -> torch.Tensor:
        """The stand-in for a checkpoint tensor; what the loader does from now on is done for it. on_gpu: it is on a GPU when
        the loader really runs."""
        index = self.catalogue.index(name)
        with self.lock, torch._C._DisableTorchDispatch():
            before = self._given.get(self.current)
            if before is not None and self.storages.memory.was_read(raw_storage(before)):
                self._refuse_unseen([raw_storage(before)])
            self.current = index
            made = self._given.get(index)
            if made is None:
                made = self._given[index] = self.storages.source(index, self.catalogue.at(index))
            if on_gpu:
                self.storages.gpu.add(self.storages.number_of(made))
            return made.detach()  # a tensor object of its own: attributes that a loader hangs on it are its own

    def weights(self, names=None) -> Iterator[tuple[str, torch.Tensor]]:
        for name in self.names() if names is None else names:
            yield name, self.tensor(name)
        self.current = -1

    def decline(self, name: str) -> None:
        """Says that the loader leaves the family of `name` alone on purpose."""
        lib.lp_decline(self._recorder, name.encode())

    # -- for the handlers

    def rewrite_source(self, tensor: torch.Tensor) -> None:
        """The loader writes over a checkpoint tensor that it was given; whoever asks for it again gets what is in the file."""
        index = self.storages.rewrite(tensor)
        self._given[index] = self.storages.source(index, self.catalogue.at(index))

    def can_fill(self, value: torch.Tensor) -> bool:
        if value.device.type == "meta":
            return False
        return value.numel() <= 1 or bool((value == value.reshape(-1)[:1]).all())

    @functools.cached_property
    def on_meta(self) -> bool:
        """Whether the model is on meta, so that what is made for its device is too."""
        return bool(self.declared) and all(t.device.type == "meta" for t in self.declared.values())

    def mark_read(self, current: int | None = None) -> None:
        if not self._read:
            self.first_read = self.storages.places.here()
        self._read.add(self.current if current is None else current)

    def values_were_read_elsewhere(self) -> bool:
        return bool(self._read - {self.current})

    def host_read(self, operation: str, operands) -> None:
        self.mark_read()
        loaded = [t for t in operands if isinstance(t, torch.Tensor) and self.storages.is_loaded(t)]
        self.storages.refuse(operation, "reads values on the host", loaded)

    def _refuse_unseen(self, storages, dst: torch.Tensor | None = None) -> None:
        read = [torch.empty(0, dtype=torch.uint8).set_(storage) for storage in storages]
        self.mark_read()
        self.storages.refuse("a read", "reads values by no operation of torch, before this line", read, dst)

    def unseen(self, dst: torch.Tensor | None = None, everywhere: bool = False) -> bool:
        """Refuses the names of stand-ins that something read which no operation shows, such as pickle or compiled code."""
        with torch._C._DisableTorchDispatch():
            read = self.storages.memory.read_unseen(everywhere)
            if read:
                self._refuse_unseen(read, dst)
        return bool(read)

    def refuse_current(self, operation: str, reason: str, dst: torch.Tensor, others=()) -> None:
        blamed = [*([self._given[self.current]] if self.current >= 0 else ()), *others]
        if blamed:
            self.storages.refuse(operation, reason, blamed, dst)
        else:
            self.storages.unrecorded.append(f"{operation}: {reason}")

    def constant_unsayable(self, dst: torch.Tensor) -> None:
        self.refuse_current("copy_", "writes a constant that is not a few stretches of equal elements", dst, self.storages.exposed)

    def forked(self) -> None:
        """Another process has the stand-ins too."""
        if self._given:
            file, line = self.storages.places.here()
            self.storages.unrecorded.append(f"{file.decode()}:{line}: fork: what another process reads and writes is not seen")

    # -- begin and end

    def __enter__(self) -> "Recording":
        for mode in self._modes:
            mode.__enter__()
        in_progress.add(self)
        return self

    def __exit__(self, kind, value, traceback) -> None:
        in_progress.discard(self)
        for mode in reversed(self._modes):
            mode.__exit__(kind, value, traceback)
        for dispatch in self.dispatches:
            dispatch.end()
        try:
            if kind is None:
                self.numbers.end()
                self.unseen(everywhere=True)
                self.storages.written_unseen()
                with torch._C.DisableTorchFunctionSubclass():
                    rebind_all(self)
                for name in self._optional:
                    lib.lp_mirror_leave(self.storages.mirror, name.encode())
                self.storages.close()
                handle = c.c_void_p()
                check(lib.lp_recorder_finish, self._recorder, c.byref(handle))
                self.trace = Trace(handle.value)
                self.trace.rebound = tuple(self.rebound)
                self.trace.unrecorded = tuple(dict.fromkeys(self.storages.unrecorded))
                self.trace.initialised = tuple(name for name, tensor in self.declared.items()
                                               if self.storages.number_of(tensor) in self.storages.initialised)
                for what in self.trace.unrecorded:
                    warnings.warn(f"a write is not in the trace: {what}", stacklevel=2)
        finally:
            self.close()

    def close(self) -> None:
        self.numbers.forget()
        if self.storages is not None:
            self.storages.close()
        recorder, self._recorder = self._recorder, None
        if recorder:
            lib.lp_recorder_close(recorder)
        if self.catalogue is not None:
            self.catalogue.close()


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
            read = recording.first_read  # what failed may have got a neutral value there
            after = f"; it had read values on the host before, first at {read[0].decode()}:{read[1]}" if read is not None else ""
            raise LoadplanError(f"the loader failed: {type(error).__name__}: {error} ({file}:{line}){after}") from error
    return recording.trace
