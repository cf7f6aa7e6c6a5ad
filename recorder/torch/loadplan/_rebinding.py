# SPDX-License-Identifier: Apache-2.0
"""The end of a recording: destinations that are other tensors than at its beginning, and tensors that became destinations."""

from __future__ import annotations

from itertools import repeat

import torch

from ._forms import raw_storage
from ._storages import BUFFER, DESTINATION


def _span(tensor: torch.Tensor) -> tuple[int, int]:
    """Bytes of its storage that a tensor spans."""
    item, lo = tensor.dtype.itemsize, tensor.storage_offset()
    reach = sum((size - 1) * step for size, step in zip(tensor.size(), tensor.stride())) if tensor.numel() else -1
    return lo * item, (lo + reach + 1) * item


def _holds(one: tuple, other: tuple) -> bool:
    """Whether `one` spans all of `other`: (name, tensor, span, ...) of one storage."""
    return one[2][0] <= other[2][0] and other[2][1] <= one[2][1]


def _elsewhere(rec, name: str, tensor: torch.Tensor) -> bool:
    """Whether a destination lies in another one's memory now, or in its own in another form."""
    was = rec.declared[name]
    return raw_storage(was)._cdata != raw_storage(tensor)._cdata or (
        was.storage_offset(), was.size(), was.stride(), was.dtype) != (
        tensor.storage_offset(), tensor.size(), tensor.stride(), tensor.dtype)


def _moved(rec, now: list[tuple[str, torch.Tensor, int]]) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    """Destinations that other destinations' memory or another view of their own stands for now: what they hold, set
    aside before anything is replaced; and those that are tied to one that stays."""
    storages, held, tied, copies = rec.storages, {}, {}, {}
    stays: dict[int, list] = {}
    moves = []
    for name, tensor, _ in now:
        number = storages.number_of(tensor)
        if name not in rec.declared or number is None or storages.kind[number] != DESTINATION:
            continue
        if _elsewhere(rec, name, tensor):
            moves.append((name, tensor))
        else:
            stays.setdefault(number, []).append((name, _span(tensor)))
    for name, tensor in moves:
        storage, (lo, hi) = raw_storage(tensor), _span(tensor)
        owner = next((other for other, (first, last) in stays.get(storages.number_of(tensor), ()) if first <= lo and hi <= last),
                     None)
        if owner is not None and owner != name:
            held[name], tied[name] = tensor, owner
            continue
        if storage._cdata not in copies:
            copies[storage._cdata] = rec.storages.memory.storage(storage.nbytes())
            storages.temporary(copies[storage._cdata])
        held[name] = torch.empty(0, dtype=tensor.dtype).set_(copies[storage._cdata], tensor.storage_offset(), tensor.size(),
                                                             tensor.stride())
        if storages.is_loaded(tensor):
            storages.copy(held[name], tensor)
    return held, tied


def rebind_all(rec) -> None:
    """Destinations that are other tensors now, and tensors that became destinations on the way."""
    storages = rec.storages
    now = [(name, tensor, flags) for name, tensor, flags in rec.destinations_now()]
    now += [(name, tensor, BUFFER) for name, tensor in rec.attributes()]
    now = [(name, tensor.detach(), flags) for name, tensor, flags in now if rec.is_declarable(tensor)]
    moved, tied = _moved(rec, now)
    shared: dict[int, list] = {}  # by storage: names, what they are now, spans, flags
    for name, tensor, flags in now:
        tensor = moved.get(name, tensor)
        number = storages.number_of(tensor)
        if number is None or (storages.kind[number] == DESTINATION and name not in tied):
            continue
        shared.setdefault(raw_storage(tensor)._cdata, []).append((name, tensor, _span(tensor), flags))
    for group in shared.values():
        group.sort(key=lambda x: x[2][0] - x[2][1])  # the one that holds others first
        replaced = [x for x in group if x[0] in rec.declared]
        _late(rec, [x for x in group if x[0] not in rec.declared and not any(map(_holds, replaced, repeat(x)))])
        owner = next((x[0] for x in group if x[0] in rec.declared and x not in replaced), None)
        for name, tensor, _, _ in replaced:
            storages.rebind(name, tensor, tied.get(name, owner))
            rec.rebound.append(name)
            owner = owner or name


def _late(rec, group: list) -> None:
    """Tensors of one storage that became destinations on the way."""
    held: list = []
    for one in group:
        name, tensor, _, flags = one
        if not held:
            form = torch.UntypedStorage(raw_storage(tensor).nbytes(), device="meta")
        rec.declare(name, torch.empty(0, dtype=tensor.dtype, device="meta").set_(
            form, tensor.storage_offset(), tensor.size(), tensor.stride()), flags)
        if not any(map(_holds, held, repeat(one))):
            rec.storages.copy(rec.declared[name], tensor)
        held.append(one)
