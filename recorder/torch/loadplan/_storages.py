# SPDX-License-Identifier: Apache-2.0
"""Which storage is what: the Python half of a mirror.

PyTorch computes views by itself, in C++, and every view shares its storage. So a tensor is known by its storage, and
only numbers cross the border to C: storage, dtype, sizes, strides. Stand-ins for checkpoint tensors are ordinary CPU
tensors over memory that is reserved and never touched: they take attributes, answer is_contiguous() truly, and send a
loader that asks for the device down its ordinary branch.
"""

from __future__ import annotations

import ctypes as c
from array import array
from threading import get_ident
from typing import NamedTuple

import torch

from ._addresses import Addresses, Memory
from ._forms import NUMBER, raw_storage, torch_form
from ._library import OK, REFUSED, UNSUPPORTED, CheckpointTensor, Error, failure, lib
from ._places import Places


class Unsayable(Exception):
    """What a tensor is that no byte map can say; the operation is refused."""


SOURCE, DESTINATION, OTHER = 1, 2, 3
BUFFER, TIED = 8, 2  # LP_DEST_BUFFER, LP_DEST_TIED


class Unknown(NamedTuple):
    """Values that no trace can say: their names are refused when somebody uses them, and not before."""

    operation: str
    reason: str
    operands: list[torch.Tensor] | None  # what they were made of; None: nothing that has a name
    place: tuple[bytes, int]


class Storages:
    """The mirror, the numbers of the storages that it knows, and calls into it."""

    def __init__(self, recorder: c.c_void_p):
        self.recorder = recorder
        self.mirror = c.c_void_p()
        error = Error()
        status = lib.lp_mirror_open(c.byref(self.mirror), recorder, c.byref(error))
        if status != OK:
            raise failure(error, status)
        self.memory = Memory()
        self.places = Places()
        self.number: dict[int, int] = {}  # by address of torch's storage object
        self.kind: list[int] = []  # by number
        self._keep: list[torch.UntypedStorage] = []  # an address must not come back under another name
        self.addresses = Addresses()
        self._outside: dict[int, tuple[int, int]] = {}  # storages over another's memory: where in it they begin, its size
        self._handed_out: list[tuple[int, int]] = []  # memory that NumPy and its like were given: begin, end
        self._before: dict[int, tuple[torch.UntypedStorage, torch.Tensor]] = {}  # destinations given to them, and their bytes
        self.exposed: list[torch.Tensor] = []  # memory with loaded bytes that others than torch see
        self._index: dict[int, int] = {}  # of a checkpoint tensor, by number
        self._form: dict[int, tuple[int, int]] = {}  # its dtype's number and its elements
        self._given: dict[int, int] = {}  # the address of its own storage
        self.unknown: dict[int, Unknown] = {}  # by number: storages of values that nobody has looked at yet
        self.gpu: set[int] = set()  # storages whose tensors are on a GPU when the loader really runs
        self.current: dict[int, int] = {}  # by thread: index of the checkpoint tensor that it works on
        self._error = Error()
        self._error_pointer = c.byref(self._error)
        self.refused = 0
        self.initialised: set[int] = set()  # destinations that the loader itself gave values that are not in the trace
        self.unrecorded: list[str] = []  # what was neither recorded nor refused, as no name could be blamed

    def close(self) -> None:
        mirror, self.mirror = self.mirror, None
        if mirror:
            lib.lp_mirror_close(mirror)

    # -- storages

    def add(self, storage: torch.UntypedStorage, number: int, kind: int) -> int:
        if number < 0:
            raise failure(self._error, number)
        self.number[storage._cdata] = number
        self._keep.append(storage)
        if number == len(self.kind):
            self.kind.append(kind)
        return number

    def blank(self, shape, stride, dtype: torch.dtype) -> torch.Tensor:
        """A stand-in of that geometry: a tensor of its own storage, which nobody may read."""
        count = 1
        for size, step in zip(shape, stride):
            count = 0 if size == 0 or count == 0 else count + (size - 1) * step
        storage = self.memory.storage(count * dtype.itemsize)
        return torch.empty(0, dtype=dtype).set_(storage, 0, tuple(shape), tuple(stride))

    def source(self, index: int, tensor: CheckpointTensor) -> torch.Tensor:
        dtype, shape = torch_form(tensor)
        stride = [1] * len(shape)
        for d in range(len(shape) - 2, -1, -1):
            stride[d] = stride[d + 1] * max(shape[d + 1], 1)
        made = self.blank(shape, stride, dtype)
        number = self.add(raw_storage(made), lib.lp_mirror_source(self.mirror, index), SOURCE)
        self._index[number], self._form[number] = index, (NUMBER[dtype], made.numel())
        self._given[number] = raw_storage(made)._cdata
        return made

    def temporary(self, storage: torch.UntypedStorage) -> int:
        return self.add(storage, lib.lp_mirror_temporary(self.mirror, storage.nbytes()), OTHER)

    def rewrite(self, tensor: torch.Tensor) -> int:
        """Something is written to a checkpoint tensor's memory, which is a temporary from now on that holds what it held.
        Returns the index of the checkpoint tensor."""
        storage = raw_storage(tensor)
        number = self.number[storage._cdata]
        made = self.add(storage, lib.lp_mirror_temporary(self.mirror, self._size(storage)), OTHER)
        for address in (*self._outside, self._given[number]):
            if self.number[address] == number:
                self.number[address] = made
        dtype, count = self._form[number]
        forms = [array("q", (n, dtype, 1, 0, count, 1)) for n in (made, number)]
        file, line = self.places.here()
        self.settle(lib.lp_mirror_copy(self.mirror, file, line, forms[0].buffer_info()[0], forms[1].buffer_info()[0], False,
                                       self._error_pointer))
        if number in self.gpu:
            self.gpu.add(made)
        return self._index[number]

    def temporary_like(self, form: torch.Tensor, dtype: torch.dtype | None = None) -> torch.Tensor:
        """A temporary of the geometry of `form`, which is usually on meta."""
        made = self.blank(form.shape, form.stride(), dtype or form.dtype)
        self.temporary(raw_storage(made))
        return made

    # -- tensors

    def number_of(self, tensor: torch.Tensor) -> int | None:
        storage = raw_storage(tensor)
        number = self.number.get(storage._cdata)
        return number if number is not None else self._number_outside(storage)

    def _number_outside(self, storage: torch.UntypedStorage) -> int | None:
        """Of a storage that something else made over memory that is known (NumPy, DLPack, the buffer protocol)."""
        if storage.device.type == "meta" or storage.nbytes() == 0:
            return None
        found = self.memory.at(storage.data_ptr()) if storage.device.type == "cpu" else None
        found = found or self.addresses.shared_by(storage)
        number = self.number.get(found[0]._cdata) if found is not None else None
        if number is None:
            return None
        self._outside[storage._cdata] = found[1], found[0].nbytes()
        self.number[storage._cdata] = number
        self._keep.append(storage)
        return number

    def strided(self, tensor: torch.Tensor, number: int) -> array:
        dtype, offset = NUMBER.get(tensor.dtype), tensor.storage_offset()
        if dtype is None:
            raise Unsayable(f"a tensor of {tensor.dtype}, which a trace does not know")
        if tensor.is_neg() or tensor.is_conj():
            raise Unsayable("a view that negates what it shows")
        if self._outside and (found := self._outside.get(raw_storage(tensor)._cdata)) is not None:
            begin, size = found
            if begin % tensor.dtype.itemsize:
                raise Unsayable("a tensor that begins inside an element")
            offset += begin // tensor.dtype.itemsize
            reach = sum((n - 1) * step for n, step in zip(tensor.size(), tensor.stride())) if tensor.numel() else -1
            if offset < 0 or (offset + reach + 1) * tensor.dtype.itemsize > size:
                raise Unsayable("a tensor that reaches beyond memory that is known")
        return array("q", (number, dtype, tensor.dim(), offset, *tensor.size(), *tensor.stride()))

    def whole(self, tensor: torch.Tensor) -> array:
        """All bytes of the tensor's storage: who is to blame for what cannot be said."""
        return array("q", (self.number_of(tensor), 5, 1, 0, self._size(raw_storage(tensor)), 1))

    def _size(self, storage: torch.UntypedStorage) -> int:
        """Bytes of what its number stands for."""
        return self._outside[storage._cdata][1] if storage._cdata in self._outside else storage.nbytes()

    # -- memory that others than torch see

    def hand_out(self, tensor: torch.Tensor) -> None:
        """NumPy or its like sees this tensor's memory from now on, and may write there."""
        storage, number = raw_storage(tensor), self.number_of(tensor)
        if number is None:
            self._handed_out.append((storage.data_ptr(), storage.data_ptr() + storage.nbytes()))
        elif self.kind[number] == DESTINATION and number not in self._before and storage.device.type == "cpu":
            self._before[number] = storage, torch.empty(0, dtype=torch.uint8).set_(storage).clone()

    def expose(self, storage: torch.UntypedStorage) -> None:
        """This memory receives loaded bytes. Where others than torch see it nobody knows what they make of them: constants
        are not believed from then on, and noise lies there instead of zeros, which are."""
        begin = storage.data_ptr()
        if storage.device.type == "meta" or (storage.resizable() and not any(
                lo < begin + storage.nbytes() and begin < hi for lo, hi in self._handed_out)):
            return
        self.exposed.append(torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage))
        self.exposed[-1].random_(generator=torch.Generator(storage.device).manual_seed(0))

    def written_unseen(self) -> None:
        """At the end: destinations that were handed out and hold other bytes now were given values by the loader."""
        for number, (storage, before) in self._before.items():
            if not torch.equal(torch.empty(0, dtype=torch.uint8).set_(storage), before):
                self.initialised.add(number)

    def touch(self, number: int) -> None:
        """This thread works on a source."""
        self.current[get_ident()] = self._index[number]

    def is_loaded(self, tensor: torch.Tensor) -> bool:
        """Whether the tensor's values come from the checkpoint, so that nobody knows them now."""
        if tensor.layout is not torch.strided or tensor.numel() == 0:
            return False  # no elements: there is nothing to know, and torch may do as it likes
        number = self.number_of(tensor)
        if number is None:
            return False
        kind = self.kind[number]
        if kind != DESTINATION:
            if kind == SOURCE:
                self.touch(number)
            elif number in self.unknown:
                self._refuse_unknown(number, tensor)
            return True
        try:
            form = self.strided(tensor, number)
        except Unsayable:
            form = self.whole(tensor)
        return lib.lp_mirror_is_loaded(self.mirror, form.buffer_info()[0])

    def _refuse_unknown(self, number: int, tensor: torch.Tensor) -> None:
        operation, reason, operands, place = self.unknown.pop(number)
        if operands is not None:
            self.refuse(operation, reason, operands, torch.empty(0, dtype=torch.uint8).set_(raw_storage(tensor)), place=place)
            return
        file, line = self.places.here()
        self.unrecorded.append(f"{file.decode()}:{line}: {operation}: {reason}")

    def hold(self, tensor: torch.Tensor, operation: str, reason: str, operands) -> None:
        """The temporary `tensor` has values made of `operands` that no trace can say. As what they are made of may change
        before somebody uses them, it is copied."""
        kept = [self.temporary_like(torch.empty(t.shape, dtype=t.dtype, device="meta")) for t in operands]
        for copy, t in zip(kept, operands):
            self.copy(copy, t)
        self.unknown[self.number_of(tensor)] = Unknown(operation, reason, kept, self.places.here())

    def forget(self, tensor: torch.Tensor, operation: str, reason: str) -> None:
        """What the tensor's memory holds is not known any more."""
        number = self.number_of(tensor)
        if number is None:
            number = self.temporary(raw_storage(tensor))
        if self.kind[number] == OTHER:
            self.unknown[number] = Unknown(operation, reason, None, self.places.here())
        else:
            file, line = self.places.here()
            self.unrecorded.append(f"{file.decode()}:{line}: {operation}: {reason}")

    def _follow(self, number: int, sources) -> None:
        """A result is on a GPU where one of its operands is."""
        if self.gpu and self.kind[number] == OTHER and any(source in self.gpu for source in sources):
            self.gpu.add(number)

    # -- calls

    def settle(self, status: int) -> bool:
        """True when it is recorded, False when names were refused (or there was none to refuse)."""
        if status == OK:
            return True
        if status == REFUSED:
            self.refused += 1
        elif status == UNSUPPORTED:
            self.unrecorded.append(self._error.text.decode("utf-8", "replace"))
        else:
            raise failure(self._error, status)
        return False

    def copy(self, dst: torch.Tensor, src: torch.Tensor) -> bool:
        return self.copy_numbers(dst, self.number_of(dst), src, self.number_of(src))

    def copy_numbers(self, dst: torch.Tensor, dst_number: int, src: torch.Tensor, src_number: int) -> bool:
        if src_number in self.unknown:
            self._refuse_unknown(src_number, src)
        self._follow(dst_number, (src_number,))
        file, line = self.places.here()
        to, source = self.strided(dst, dst_number), self.strided(src, src_number)
        status = lib.lp_mirror_copy(self.mirror, file, line, to.buffer_info()[0], source.buffer_info()[0], False,
                                    self._error_pointer)
        return status == OK or self.settle(status)

    def copy_form(self, dst: torch.Tensor, src: array) -> bool:
        file, line = self.places.here()
        to = self.strided(dst, self.number_of(dst))
        self._follow(to[0], (src[0],))
        return self.settle(lib.lp_mirror_copy(self.mirror, file, line, to.buffer_info()[0], src.buffer_info()[0], False,
                                              self._error_pointer))

    def cast(self, dst: torch.Tensor, src: torch.Tensor) -> bool:
        file, line = self.places.here()
        to, source = self.strided(dst, self.number_of(dst)), self.strided(src, self.number_of(src))
        self._follow(to[0], (source[0],))
        return self.settle(lib.lp_mirror_cast(self.mirror, file, line, to.buffer_info()[0], source.buffer_info()[0],
                                              self._error_pointer))

    def fill(self, dst: torch.Tensor, bits: int, trigger: int) -> bool:
        file, line = self.places.here()
        to = self.strided(dst, self.number_of(dst))
        return self.settle(lib.lp_mirror_fill(self.mirror, file, line, to.buffer_info()[0], bits, trigger,
                                              self._error_pointer))

    def move(self, dst: torch.Tensor, src: torch.Tensor, to_index: array, from_index: array) -> bool:
        file, line = self.places.here()
        to, source = self.strided(dst, self.number_of(dst)), self.strided(src, self.number_of(src))
        self._follow(to[0], (source[0],))
        return self.settle(lib.lp_mirror_move(
            self.mirror, file, line, to.buffer_info()[0], source.buffer_info()[0], len(to_index), to_index.buffer_info()[0],
            from_index.buffer_info()[0], self._error_pointer))

    def _operands(self, operands):
        forms = [self.strided(t, self.number_of(t)) if isinstance(t, torch.Tensor) else None for t in operands]
        pointers = (c.c_void_p * max(len(forms), 1))(*[f.buffer_info()[0] if f is not None else None for f in forms])
        return forms, pointers

    def compute(self, op: int, dst: torch.Tensor, operands, dims: int = 0) -> bool:
        file, line = self.places.here()
        to = self.strided(dst, self.number_of(dst))
        forms, pointers = self._operands(operands)
        self._follow(to[0], [form[0] for form in forms if form is not None])
        constants = (c.c_double * len(forms))(*[0.0 if isinstance(t, torch.Tensor) else float(t) for t in operands])
        return self.settle(lib.lp_mirror_compute(self.mirror, file, line, op, to.buffer_info()[0], len(forms), pointers,
                                                 constants, dims, self._error_pointer))

    def _blamed(self, tensor: torch.Tensor) -> array:
        try:
            return self.strided(tensor, self.number_of(tensor))
        except Unsayable:
            return self.whole(tensor)

    def refuse(self, operation: str, reason: str, operands, dst: torch.Tensor | None = None, place=None) -> None:
        file, line = self.places.here() if place is None else place
        for t in operands:
            if (number := self.number_of(t)) in self.unknown:
                self._refuse_unknown(number, t)
        forms = [self._blamed(t) for t in operands]
        pointers = (c.c_void_p * max(len(forms), 1))(*[form.buffer_info()[0] for form in forms])
        to = self._blamed(dst) if dst is not None else None
        self.settle(lib.lp_mirror_refuse(self.mirror, file, line, to.buffer_info()[0] if to is not None else None,
                                         len(forms), pointers, operation.encode(), reason.encode(), self._error_pointer))

    def require_close(self, a: torch.Tensor, b: torch.Tensor, rtol: float, text: str) -> bool:
        file, line = self.places.here()
        forms = [self.strided(t, self.number_of(t)) for t in (a, b)]
        return self.settle(lib.lp_mirror_require_close(
            self.mirror, file, line, forms[0].buffer_info()[0], forms[1].buffer_info()[0], rtol, text.encode(),
            self._error_pointer))

    def rebind(self, name: str, src: torch.Tensor, with_name: str | None = None) -> bool:
        file, line = self.places.here()
        number = self.number_of(src)
        if number in self.unknown:
            self._refuse_unknown(number, src)
        form = self.strided(src, number)
        return self.settle(lib.lp_mirror_rebind(self.mirror, file, line, name.encode(), form.buffer_info()[0],
                                                with_name.encode() if with_name else None, self._error_pointer))

    def destination(self, name: str, tensor: torch.Tensor, flags: int) -> int:
        storage = raw_storage(tensor)
        number = self.number.get(storage._cdata, -1)
        form = self.strided(tensor, number)
        made = lib.lp_mirror_destination(self.mirror, name.encode(), form.buffer_info()[0], storage.nbytes(), flags, None,
                                         self._error_pointer)
        if made < 0:
            raise failure(self._error, made)
        if number >= 0:
            return number
        self.addresses.add(storage)
        return self.add(storage, made, DESTINATION)

    def is_on_gpu(self, operands) -> bool:
        """Where torch would compute: scalars may lie on the host."""
        loaded = [t for t in operands if isinstance(t, torch.Tensor) and self.number_of(t) is not None]
        return any(self.number_of(t) in self.gpu for t in [t for t in loaded if t.dim()] or loaded)
