# SPDX-License-Identifier: Apache-2.0
"""Which storage is what: the Python half of a mirror.

PyTorch computes views by itself, in C++, and every view shares its storage. So a tensor is known by its storage, and
only numbers cross the border to C: storage, dtype, sizes, strides. Stand-ins for checkpoint tensors are ordinary CPU
tensors over memory that is reserved and never touched: they take attributes, answer is_contiguous() truly, and send a
loader that asks for the device down its ordinary branch.
"""

from __future__ import annotations

import bisect
import contextlib
import ctypes as c
import mmap
import os
import sys
from array import array
from threading import get_ident

import torch

from ._library import OK, REFUSED, UNSUPPORTED, CheckpointTensor, Error, LoadplanError, failure, lib

_BY_NUMBER = {
    1: torch.bool, 5: torch.uint8, 6: torch.int8, 7: torch.float8_e5m2, 8: torch.float8_e4m3fn, 10: torch.float8_e4m3fnuz,
    11: torch.float8_e5m2fnuz, 12: torch.int16, 13: torch.uint16, 14: torch.float16, 15: torch.bfloat16, 16: torch.int32,
    17: torch.uint32, 18: torch.float32, 19: torch.complex64, 20: torch.float64, 21: torch.int64, 22: torch.uint64,
}
if hasattr(torch, "float8_e8m0fnu"):
    _BY_NUMBER[9] = torch.float8_e8m0fnu
NUMBER = {dtype: number for number, dtype in _BY_NUMBER.items()}
_PACKED_F4 = getattr(torch, "float4_e2m1fn_x2", None)
if _PACKED_F4 is not None:
    NUMBER[_PACKED_F4] = 5  # two codes in a byte: seen as bytes
_F4, _F6 = 2, (3, 4)


class Unsayable(Exception):
    """What a tensor is that no byte map can say; the operation is refused."""


SOURCE, DESTINATION, OTHER = 1, 2, 3


def torch_form(tensor: CheckpointTensor) -> tuple[torch.dtype, list[int]]:
    """The dtype and shape that torch gives a checkpoint tensor."""
    shape = [tensor.shape[i] for i in range(tensor.ndim)]
    if tensor.dtype == _F4 or tensor.dtype in _F6:
        bits = 4 if tensor.dtype == _F4 else 6
        if not shape or shape[-1] * bits % 8:
            raise LoadplanError(f"'{tensor.name.decode()}' has rows that are not whole bytes")
        shape[-1] = shape[-1] * bits // 8
        return (_PACKED_F4 if tensor.dtype == _F4 and _PACKED_F4 is not None else torch.uint8), shape
    dtype = _BY_NUMBER.get(tensor.dtype)
    if dtype is None:
        raise LoadplanError(f"this torch has no dtype for '{tensor.name.decode()}'")
    return dtype, shape


class Memory:
    """Reserved address space, cut into tensors, each with pages of its own. Nothing is read or written there, so no page of
    it is ever used; one that is says that something read a stand-in which no operation shows."""

    _CHUNK = 1 << 30
    _NEWEST = 8 << 20  # looking at a gibibyte takes some milliseconds
    _FLAGS = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0x4000)

    def __init__(self):
        self._map, self._used, self._size = None, 0, 0
        self._begins: list[int] = []  # addresses of chunks
        # by address: the chunk, what lies in it, where
        self._chunks: dict[int, tuple[mmap.mmap, list[int], list[torch.UntypedStorage]]] = {}
        self._mincore = getattr(c.CDLL(None), "mincore", None)

    def _chunk(self, size: int) -> None:
        self._map, self._used, self._size = mmap.mmap(-1, size, flags=self._FLAGS), 0, size
        if hasattr(mmap, "MADV_NOHUGEPAGE"):
            with contextlib.suppress(OSError):  # a kernel without huge pages
                self._map.madvise(mmap.MADV_NOHUGEPAGE)
        begin = torch.frombuffer(self._map, dtype=torch.uint8).data_ptr()
        bisect.insort(self._begins, begin)
        _, self._starts, self._storages = self._chunks[begin] = (self._map, [], [])
        if self._mincore is not None and self._used_pages(begin, mmap.PAGESIZE):
            self._mincore = None  # a system that calls all pages used

    def storage(self, count: int) -> torch.UntypedStorage:
        if count == 0:
            return torch.UntypedStorage(0)
        if self._used + count > self._size:
            self._chunk(max(self._CHUNK, -(-count // mmap.PAGESIZE) * mmap.PAGESIZE))
        made = torch.frombuffer(self._map, dtype=torch.uint8, count=count, offset=self._used).untyped_storage()
        self._starts.append(self._used)
        self._storages.append(made)
        self._used += -(-count // mmap.PAGESIZE) * mmap.PAGESIZE
        return made

    def _find(self, address: int) -> tuple[int, int] | None:
        """The chunk's address and which of its storages holds an address."""
        chunk = bisect.bisect_right(self._begins, address) - 1
        if chunk < 0:
            return None
        begin = self._begins[chunk]
        _, starts, storages = self._chunks[begin]
        i = bisect.bisect_right(starts, address - begin) - 1
        return (begin, i) if i >= 0 and address - begin - starts[i] < storages[i].nbytes() else None

    def at(self, address: int) -> tuple[torch.UntypedStorage, int] | None:
        """The stand-in whose memory holds an address, and how far inside: what came out of torch and back again."""
        found = self._find(address)
        if found is None:
            return None
        begin, i = found
        _, starts, storages = self._chunks[begin]
        return storages[i], address - begin - starts[i]

    def _used_pages(self, begin: int, size: int) -> list[int]:
        """Offsets of the pages of [begin, begin + size) that somebody read or wrote."""
        count = -(-size // mmap.PAGESIZE)
        state = c.create_string_buffer(count)
        if count == 0 or self._mincore(c.c_void_p(begin), c.c_size_t(size), state) != 0:
            return []
        pages, raw, at = [], state.raw, -1
        while (at := raw.find(b"\1", at + 1)) >= 0:
            pages.append(at * mmap.PAGESIZE)
        return pages

    def was_read(self, storage: torch.UntypedStorage) -> bool:
        """Whether something read this stand-in since the last call."""
        if self._mincore is None or storage.nbytes() == 0 or not self._used_pages(storage.data_ptr(), storage.nbytes()):
            return False
        found = self._find(storage.data_ptr())
        if found is not None:
            begin, i = found
            chunk, starts, _ = self._chunks[begin]
            chunk.madvise(mmap.MADV_DONTNEED, starts[i], -(-storage.nbytes() // mmap.PAGESIZE) * mmap.PAGESIZE)
        return True

    def read_unseen(self, everywhere: bool = False) -> list[torch.UntypedStorage]:
        """The stand-ins in the newest memory, or everywhere, that something read since the last call."""
        if self._mincore is None or self._map is None:
            return []
        found = []
        for begin, (chunk, starts, storages) in self._chunks.items():
            if not starts or not (everywhere or chunk is self._map):
                continue
            size = starts[-1] + storages[-1].nbytes()
            lo = 0 if everywhere else max(size - self._NEWEST, 0) // mmap.PAGESIZE * mmap.PAGESIZE
            pages = self._used_pages(begin + lo, size - lo)
            found += [storages[i] for i in sorted({bisect.bisect_right(starts, lo + page) - 1 for page in pages})]
            if pages:
                chunk.madvise(mmap.MADV_DONTNEED)
        return found


class Addresses:
    """Where storages that torch allocated lie: destinations, and memory that received loaded bytes. NumPy, DLPack and the
    buffer protocol make other storages over the same memory."""

    def __init__(self):
        self._begins: list[int] = []
        self._storages: list[torch.UntypedStorage] = []

    def add(self, storage: torch.UntypedStorage) -> None:
        if storage.device.type == "meta" or storage.nbytes() == 0:
            return
        at = bisect.bisect_left(self._begins, storage.data_ptr())
        self._begins.insert(at, storage.data_ptr())
        self._storages.insert(at, storage)

    def shared_by(self, storage: torch.UntypedStorage) -> tuple[torch.UntypedStorage, int] | None:
        """A known storage that shares bytes with this one, and where in it this one begins, which may be before it."""
        begin = storage.data_ptr()
        last = bisect.bisect_left(self._begins, begin + storage.nbytes()) - 1
        for at in range(last, max(last - 2, -1), -1):
            known = self._storages[at]
            # one that was resized lies elsewhere now
            if known.data_ptr() == self._begins[at] and begin < self._begins[at] + known.nbytes():
                return known, begin - self._begins[at]
        return None


raw_storage = torch._C.TensorBase.untyped_storage


def plain(name: str, tensor: torch.Tensor):
    """(name, tensor) of the ordinary tensors that a tensor made of tensors (DTensor, torchao's) consists of."""
    if not hasattr(type(tensor), "__tensor_flatten__"):
        yield name, tensor
        return
    parts = [(part, getattr(tensor, part)) for part in tensor.__tensor_flatten__()[0]]
    parts = [(part, inner) for part, inner in parts if isinstance(inner, torch.Tensor)]
    for part, inner in parts:
        yield from plain(name if len(parts) == 1 else f"{name}.{part}", inner)


def _without_prefix(path: str) -> str:
    """A loader's file as a reader knows it: relative to where Python imports from."""
    roots = [root for root in sys.path if root and path.startswith(root.rstrip("/") + "/")]
    return path[len(max(roots, key=len).rstrip("/")) + 1:] if roots else path


class Places:
    """The loader's file and line: the innermost frame outside torch and this package."""

    def __init__(self):
        self._own = (torch.__path__[0] + "/", __file__.rsplit("/", 1)[0] + "/")
        self._library = os.__file__.rsplit("/", 1)[0] + "/"
        self._file: dict[str, bytes | None] = {}

    def _look_up(self, path: str) -> bytes | None:
        skip = path.startswith(self._own) or path.startswith("<") or (
            path.startswith(self._library) and "-packages/" not in path)
        self._file[path] = found = None if skip else _without_prefix(path).encode("utf-8", "replace")
        return found

    def here(self) -> tuple[bytes, int]:
        frame = sys._getframe(2)
        files = self._file
        while frame is not None:
            code = frame.f_code
            path = code.co_filename
            file = files.get(path, 0)
            if file == 0:
                file = self._look_up(path)
            if file is not None and code.co_name != "__torch_function__":
                return file, frame.f_lineno
            frame = frame.f_back
        return b"", 0


    def of_traceback(self, traceback) -> tuple[str, int]:
        """Where an exception came from: its innermost frame in the loader."""
        place = "", 0
        while traceback is not None:
            path = traceback.tb_frame.f_code.co_filename
            file = self._file[path] if path in self._file else self._look_up(path)
            if file is not None:
                place = file.decode(), traceback.tb_lineno
            traceback = traceback.tb_next
        return place


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
        self._outside: dict[int, tuple[int, int, int]] = {}  # storages over another's memory: its number, where in it, its size
        self._handed_out: list[tuple[int, int]] = []  # memory that NumPy and its like were given: begin, end
        self._before: dict[int, tuple[torch.UntypedStorage, torch.Tensor]] = {}  # destinations given to them, and their bytes
        self.exposed: list[torch.Tensor] = []  # memory with loaded bytes that others than torch see
        self._index: dict[int, int] = {}  # of a checkpoint tensor, by number
        # Storages whose use is refused: operation, reason, and the tensor that it read, if one is known.
        self.unknown: dict[int, tuple[str, str, torch.Tensor | None]] = {}
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
        self._index[number] = index
        return made

    def temporary(self, storage: torch.UntypedStorage) -> int:
        return self.add(storage, lib.lp_mirror_temporary(self.mirror, storage.nbytes()), OTHER)

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
        self._outside[storage._cdata] = number, found[1], found[0].nbytes()
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
            _, begin, size = found
            if begin % tensor.dtype.itemsize:
                raise Unsayable("a tensor that begins inside an element")
            offset += begin // tensor.dtype.itemsize
            reach = sum((n - 1) * step for n, step in zip(tensor.size(), tensor.stride())) if tensor.numel() else -1
            if offset < 0 or (offset + reach + 1) * tensor.dtype.itemsize > size:
                raise Unsayable("a tensor that reaches beyond memory that is known")
        return array("q", (number, dtype, tensor.dim(), offset, *tensor.size(), *tensor.stride()))

    def whole(self, tensor: torch.Tensor) -> array:
        """All bytes of the tensor's storage: who is to blame for what cannot be said."""
        number, storage = self.number_of(tensor), raw_storage(tensor)
        size = self._outside[storage._cdata][2] if storage._cdata in self._outside else storage.nbytes()
        return array("q", (number, 5, 1, 0, size, 1))

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
        operation, reason, operand = self.unknown.pop(number)
        if operand is not None:
            self.refuse(operation, reason, [operand], tensor)
            return
        file, line = self.places.here()
        self.unrecorded.append(f"{file.decode()}:{line}: {operation}: {reason}")

    def forget(self, tensor: torch.Tensor, operation: str, reason: str) -> None:
        """What the tensor's memory holds is not known any more."""
        number = self.number_of(tensor)
        if number is None:
            number = self.temporary(raw_storage(tensor))
        if self.kind[number] == OTHER:
            self.unknown[number] = operation, reason, None
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
                                              c.byref(self._error)))

    def cast(self, dst: torch.Tensor, src: torch.Tensor) -> bool:
        file, line = self.places.here()
        to, source = self.strided(dst, self.number_of(dst)), self.strided(src, self.number_of(src))
        self._follow(to[0], (source[0],))
        return self.settle(lib.lp_mirror_cast(self.mirror, file, line, to.buffer_info()[0], source.buffer_info()[0],
                                              c.byref(self._error)))

    def fill(self, dst: torch.Tensor, bits: int, trigger: int) -> bool:
        file, line = self.places.here()
        to = self.strided(dst, self.number_of(dst))
        return self.settle(lib.lp_mirror_fill(self.mirror, file, line, to.buffer_info()[0], bits, trigger,
                                              c.byref(self._error)))

    def move(self, dst: torch.Tensor, src: torch.Tensor, to_index: array, from_index: array) -> bool:
        file, line = self.places.here()
        to, source = self.strided(dst, self.number_of(dst)), self.strided(src, self.number_of(src))
        self._follow(to[0], (source[0],))
        return self.settle(lib.lp_mirror_move(
            self.mirror, file, line, to.buffer_info()[0], source.buffer_info()[0], len(to_index), to_index.buffer_info()[0],
            from_index.buffer_info()[0], c.byref(self._error)))

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
                                                 constants, dims, c.byref(self._error)))

    def _blamed(self, tensor: torch.Tensor) -> array:
        try:
            return self.strided(tensor, self.number_of(tensor))
        except Unsayable:
            return self.whole(tensor)

    def refuse(self, operation: str, reason: str, operands, dst: torch.Tensor | None = None, place=None) -> None:
        file, line = self.places.here() if place is None else place
        forms = [self._blamed(t) for t in operands]
        pointers = (c.c_void_p * max(len(forms), 1))(*[form.buffer_info()[0] for form in forms])
        to = self._blamed(dst) if dst is not None else None
        self.settle(lib.lp_mirror_refuse(self.mirror, file, line, to.buffer_info()[0] if to is not None else None,
                                         len(forms), pointers, operation.encode(), reason.encode(), c.byref(self._error)))

    def require_close(self, a: torch.Tensor, b: torch.Tensor, rtol: float, text: str) -> bool:
        file, line = self.places.here()
        forms = [self.strided(t, self.number_of(t)) for t in (a, b)]
        return self.settle(lib.lp_mirror_require_close(
            self.mirror, file, line, forms[0].buffer_info()[0], forms[1].buffer_info()[0], rtol, text.encode(),
            c.byref(self._error)))

    def rebind(self, name: str, src: torch.Tensor, with_name: str | None = None) -> bool:
        file, line = self.places.here()
        form = self.strided(src, self.number_of(src))
        return self.settle(lib.lp_mirror_rebind(self.mirror, file, line, name.encode(), form.buffer_info()[0],
                                                with_name.encode() if with_name else None, c.byref(self._error)))

    def destination(self, name: str, tensor: torch.Tensor, flags: int) -> int:
        storage = raw_storage(tensor)
        number = self.number.get(storage._cdata, -1)
        form = self.strided(tensor, number)
        made = lib.lp_mirror_destination(self.mirror, name.encode(), form.buffer_info()[0], storage.nbytes(), flags, None,
                                         c.byref(self._error))
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
