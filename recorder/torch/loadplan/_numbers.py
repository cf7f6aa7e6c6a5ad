# SPDX-License-Identifier: Apache-2.0
"""`x.fill_(w.item())` is a copy: a value that only passes through a Python number was not looked at.

item() of a stand-in returns a number that knows where it came from. It may go into one fill, or into one assignment
(which makes a tensor of it first), as the next operation that is no view; then it has to be gone. Whatever else is done to
it, by Python or by another operation, is a host read of the name.
"""

from __future__ import annotations

from threading import get_ident

import torch

from ._operations import aten
from ._writes import write

_NEUTRAL = {float: 1.0078125, int: 1}  # a float that BF16 and F16 hold and that hardly anybody writes


class _State:
    """What is known about a number as long as it exists."""

    def __init__(self, numbers: "Numbers", tensor: torch.Tensor, kind: type):
        self.numbers, self.tensor, self.neutral = numbers, tensor, _NEUTRAL[kind]
        self.place = numbers.recording.storages.places.here()
        self.current = numbers.recording.current
        self.gone = self.used = self.read = False
        self.made: torch.Tensor | None = None  # by an assignment, which still holds the number when it writes this


def _watched(kind: type) -> type:
    """A number like `kind` that tells its state when something looks at it."""
    def looks(name):
        before = getattr(kind, name)

        def method(self, *arguments):
            self.state.numbers.look(self.state)
            return before(self, *arguments)
        return method

    def gone(self):
        self.state.gone = True

    keep = {"__new__", "__init__", "__getattribute__", "__setattr__", "__delattr__", "__class__", "__init_subclass__",
            "__subclasshook__", "__doc__", "__dir__", "__sizeof__", "__getformat__", "fromhex", "from_number", "from_bytes",
            "real", "imag", "numerator", "denominator"}
    members = {name: looks(name) for name in dir(kind) if name not in keep}
    return type(f"loaded_{kind.__name__}", (kind,), {**members, "__del__": gone})


_NUMBER = {kind: _watched(kind) for kind in _NEUTRAL}


class Numbers:
    """The numbers of a recording that may still turn out to be copies, one a thread."""

    def __init__(self, recording):
        self.recording = recording
        self.pending: dict[int, _State] = {}

    def item(self, tensor: torch.Tensor):
        """What item() returns for a tensor that is loaded; None: it is no number that could be followed."""
        kind = float if tensor.dtype.is_floating_point else int
        if tensor.numel() != 1 or tensor.dtype.is_complex or tensor.dtype == torch.bool:
            return None
        self.settle()
        number = _NUMBER[kind](_NEUTRAL[kind])
        number.state = self.pending[get_ident()] = _State(self, tensor.detach().reshape(()), kind)
        return number

    def look(self, state: _State) -> None:
        """A host read after all, where item() was called."""
        with self.recording.lock:
            if not state.read:
                state.read = True
                self.recording.mark_read(state.current)
                self.recording.storages.refuse("item", "reads values on the host", [state.tensor], place=state.place)

    def settle(self) -> None:
        """Before this thread's next operation, and at the end: what is known now about its last number."""
        state = self.pending.pop(get_ident(), None)
        if state is not None and not (state.used and state.gone):
            self.look(state)

    def end(self) -> None:
        for state in self.pending.values():
            if not (state.used and state.gone):
                self.look(state)
        self.pending.clear()

    def forget(self) -> None:
        """Nothing is recorded any more: from now on they are ordinary numbers."""
        for state in self.pending.values():
            state.read = True
        self.pending.clear()

    def before(self, operation, args):
        """Called for every operation that is no view while a number is pending; returns what the operation returns when the
        number is all that it writes."""
        state = self.pending.get(get_ident())
        if state is None:
            return None
        if not (state.used or state.gone or state.read):
            if operation is aten.fill_.Scalar and args[1] == state.neutral:
                state.used = True
                write(self.recording, args[0], state.tensor.expand(args[0].shape))
                return args[0]
            if operation is aten.lift_fresh.default and self._is(args[0], state):
                state.used = True
                state.made = torch.empty((), dtype=args[0].dtype)
                write(self.recording, state.made, state.tensor)
                return state.made
        if state.made is not None and any(x is state.made for x in args):
            state.made = None
            return None
        self.settle()
        return None

    def _is(self, tensor: torch.Tensor, state: _State) -> bool:
        return (tensor.dim() == 0 and tensor.device.type == "cpu" and self.recording.storages.number_of(tensor) is None
                and tensor.dtype.is_floating_point == isinstance(state.neutral, float)
                and torch.ops.aten._local_scalar_dense(tensor) == state.neutral)
