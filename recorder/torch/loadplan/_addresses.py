# SPDX-License-Identifier: Apache-2.0
"""Which address is whose: memory that is reserved for stand-ins, and what torch allocated itself."""

from __future__ import annotations

import bisect
import contextlib
import ctypes as c
import mmap

import torch


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
