# SPDX-License-Identifier: Apache-2.0
"""How a recording sees what a loader does: operations, reads beside them, processes that are forked."""

from __future__ import annotations

import functools
import os
import weakref

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from . import _moves, _values  # noqa: F401: they register their handlers
from ._forms import is_made_of_tensors
from ._operations import HANDLERS, refuse_all, tensors_of
from ._rest import handler_of, pass_through
from ._storages import Unsayable

_PLAIN = torch.Tensor.__torch_dispatch__


class _Ended(dict):
    """Handlers after the recording."""

    def get(self, operation, default=None):
        return pass_through


class Dispatch(TorchDispatchMode):
    """One for each thread."""

    def __init__(self, recording):
        super().__init__()
        self._recording, self._handler = recording, dict(HANDLERS)
        recording.dispatches.append(self)

    def end(self) -> None:
        """A thread may outlive the recording: from now on its operations are PyTorch's."""
        self._handler = _Ended()

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # the wrapper that this avoids costs more than a view

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if types and any(is_made_of_tensors(kind, lambda: tensors_of(args, kwargs or {})) for kind in types):
            return NotImplemented  # its own operations on those are seen
        handler = self._handler.get(func)
        if handler is None:
            handler = self._handler[func] = handler_of(func)
        if handler is pass_through:
            return func(*args, **(kwargs or {}))
        with self._recording.lock, torch._C.DisableTorchFunctionSubclass():
            try:
                if self._recording.numbers.pending and (done := self._recording.numbers.before(func, args)) is not None:
                    return done
                return handler(self._recording, func, args, kwargs or {})
            except Unsayable as what:
                return refuse_all(self._recording, func, args, kwargs or {}, f"is done to {what}")


class HostReads:
    """What reads values without an operation that a dispatch mode sees. A function mode would see it too, but it costs
    every call of torch a detour; these few methods are replaced while a recording lasts."""

    _NAMES = {"numpy": "numpy", "tolist": "tolist", "__array__": "numpy", "item": "item", "__repr__": "repr", "__dlpack__": "dlpack"}
    _SHARES = {"numpy", "__array__", "__dlpack__"}  # what they return is the tensor's memory

    def __init__(self, recording):
        self._recording = recording
        self._before: dict = {}

    def _replace(self, name: str, operation: str) -> None:
        before = getattr(torch.Tensor, name)

        @functools.wraps(before)
        def read(tensor, *args, **kwargs):
            recording = self._recording
            with recording.lock, torch._C.DisableTorchFunctionSubclass():
                if type(tensor).__torch_dispatch__ is not _PLAIN:
                    return before(tensor, *args, **kwargs)
                if name == "__dlpack__":
                    recording.storages.hand_out(tensor)  # what reads a stand-in there is found out by its pages
                elif recording.storages.is_loaded(tensor):
                    if name == "__repr__":  # what a loader prints has no values, so nothing can depend on them
                        return f"tensor(..., size={tuple(tensor.shape)}, dtype={tensor.dtype})"
                    if name == "item" and (number := recording.numbers.item(tensor)) is not None:
                        return number
                    recording.host_read(operation, [tensor])
                    narrow = tensor.dtype.is_floating_point and tensor.dtype.itemsize < 2
                    tensor = torch.ones(tensor.shape, dtype=torch.float32 if narrow else tensor.dtype)
                elif name in self._SHARES:
                    recording.storages.hand_out(tensor)
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


in_progress: weakref.WeakSet = weakref.WeakSet()  # recordings


def _forked() -> None:
    for recording in tuple(in_progress):
        recording.forked()


os.register_at_fork(after_in_parent=_forked)
