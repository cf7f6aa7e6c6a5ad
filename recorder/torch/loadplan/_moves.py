# SPDX-License-Identifier: Apache-2.0
"""Operations that move bytes into a tensor of their own, which is followed."""

from __future__ import annotations

from array import array

import torch
from torch.utils._pytree import tree_map

from ._operations import (HANDLERS, aten, fill, form_of, handles, in_memory_order, on_cpu, refuse_all, run, runs_of, slice_form,
                          tensors_of, write_constant)
from ._writes import adds


@handles("clone", "contiguous")
def _clone(rec, operation, args, kwargs):
    if not rec.storages.is_loaded(args[0]):
        return run(operation, args, kwargs)
    made, order, back = in_memory_order(rec, form_of(operation, args, kwargs))
    rec.storages.copy(made, args[0].permute(order))
    return made.permute(back)


@handles("_to_copy")
def _to_copy(rec, operation, args, kwargs):
    src = args[0]
    if not rec.storages.is_loaded(src):
        return run(operation, args, kwargs)
    form = form_of(operation, args, kwargs)
    made, order, back = in_memory_order(rec, form)
    if form.dtype == src.dtype:
        rec.storages.copy(made, src.permute(order))
    else:
        rec.storages.cast(made, src.permute(order))
    if kwargs.get("device") is not None:
        where = rec.storages.gpu.add if torch.device(kwargs["device"]).type == "cuda" else rec.storages.gpu.discard
        where(rec.storages.number_of(made))
    return made.permute(back)


def place(rec, made: torch.Tensor, part: torch.Tensor) -> None:
    if rec.storages.is_loaded(part):
        rec.storages.copy(made, part)
    elif part.numel() > 0:
        write_constant(rec, made, part)


@handles("cat")
def _cat(rec, operation, args, kwargs):
    parts, dim = args[0], args[1] if len(args) > 1 else kwargs.get("dim", 0)
    if not any(rec.storages.is_loaded(t) for t in parts):
        return run(operation, args, kwargs)
    made = rec.storages.temporary_like(form_of(operation, args, kwargs))
    start = 0
    for part in parts:
        if part.dim() == 1 and part.numel() == 0 and made.dim() != 1:
            continue  # torch ignores it
        place(rec, made.narrow(dim, start, part.size(dim)), part)
        start += part.size(dim)
    return made


@handles("stack")
def _stack(rec, operation, args, kwargs):
    parts, dim = args[0], args[1] if len(args) > 1 else kwargs.get("dim", 0)
    if not any(rec.storages.is_loaded(t) for t in parts):
        return run(operation, args, kwargs)
    made = rec.storages.temporary_like(form_of(operation, args, kwargs))
    for i, part in enumerate(parts):
        place(rec, made.select(dim, i), part)
    return made


@handles("repeat")
def _repeat(rec, operation, args, kwargs):
    src, times = args
    if not rec.storages.is_loaded(src):
        return run(operation, args, kwargs)
    made = rec.storages.temporary_like(form_of(operation, args, kwargs))
    if made.numel() > 0:
        lead = len(times) - src.dim()
        sizes = [1] * lead + list(src.shape)
        split = [n for pair in zip(times, sizes) for n in pair]
        rows = src.reshape(sizes)
        for d in range(len(sizes)):
            rows = rows.unsqueeze(2 * d)
        rec.storages.copy(made.view(split), rows.expand(split))
    return made


@handles("flip")
def _flip(rec, operation, args, kwargs):
    src, dims = args
    if not rec.storages.is_loaded(src):
        return run(operation, args, kwargs)
    made = rec.storages.temporary_like(form_of(operation, args, kwargs))
    form, n = rec.storages.strided(src, rec.storages.number_of(src)), src.dim()
    for d in {d % n for d in dims} if src.numel() > 0 else ():
        form[3] += (src.size(d) - 1) * src.stride(d)
        form[4 + n + d] = -src.stride(d)
    rec.storages.copy_form(made, form)
    return made


@handles("roll")
def _roll(rec, operation, args, kwargs):
    src, shifts = args[0], args[1]
    dims = args[2] if len(args) > 2 else kwargs.get("dims", ())
    if len(dims) != 1 or not rec.storages.is_loaded(src) or src.numel() == 0:
        return probe(rec, operation, args, kwargs)
    made = rec.storages.temporary_like(form_of(operation, args, kwargs))
    dim, n = dims[0], src.size(dims[0])
    shift = shifts[0] % n
    rec.storages.copy(made.narrow(dim, shift, n - shift), src.narrow(dim, 0, n - shift))
    if shift:
        rec.storages.copy(made.narrow(dim, 0, shift), src.narrow(dim, n - shift, shift))
    return made


def take_rows(rec, made: torch.Tensor, src: torch.Tensor, dim: int, index: list[int]) -> bool:
    """made[.., i, ..] = src[.., index[i], ..], one copy for each stretch; False when there are too many."""
    runs = list(runs_of(list(range(len(index))), index))
    if len(runs) > 65536:
        return False
    for first, count, _, step in runs:
        rec.storages.copy_form(made.narrow(dim, first, count), slice_form(rec, src, dim, index[first], count, step))
    return True


@handles("index_select")
def _index_select(rec, operation, args, kwargs):
    src, dim, index = args
    if not rec.storages.is_loaded(src) or rec.storages.is_loaded(index) or src.dim() == 0:
        return probe(rec, operation, args, kwargs)
    made = rec.storages.temporary_like(form_of(operation, args, kwargs))
    if not take_rows(rec, made, src, dim % src.dim(), index.reshape(-1).tolist()):
        rec.storages.refuse("index_select", "selects too many separate slices", [src], made)
    return made


@handles("index.Tensor")
def _index(rec, operation, args, kwargs):
    src, chosen = args
    given = [(d, i) for d, i in enumerate(chosen) if i is not None]
    if len(given) == 1 and rec.storages.is_loaded(src) and not rec.storages.is_loaded(given[0][1]):
        dim, index = given[0]
        if index.dtype in (torch.bool, torch.uint8):
            index = index.nonzero().reshape(-1) if index.dim() == 1 else None
        if index is not None and index.dim() == 1:
            made = rec.storages.temporary_like(form_of(aten.index_select.default, (src, dim, index), {}))
            size = src.size(dim)
            if take_rows(rec, made, src, dim, [i % size for i in index.tolist()]):
                return made
    return probe(rec, operation, args, kwargs)


@handles("constant_pad_nd")
def _pad(rec, operation, args, kwargs):
    src, pad = args[0], args[1]
    if not rec.storages.is_loaded(src):
        return run(operation, args, kwargs)
    made = rec.storages.temporary_like(form_of(operation, args, kwargs))
    fill(rec, made, args[2] if len(args) > 2 else 0)
    inner, outer = src, made
    for i in range(len(pad) // 2):
        d, before, after = src.dim() - 1 - i, pad[2 * i], pad[2 * i + 1]
        inner = inner.narrow(d, max(-before, 0), inner.size(d) - max(-before, 0) - max(-after, 0))
        outer = outer.narrow(d, max(before, 0), outer.size(d) - max(before, 0) - max(after, 0))
    if inner.numel() > 0:
        rec.storages.copy(outer, inner)
    return made


def _copied(view):
    """view_copy() and its like: a view, then a clone."""
    def handler(rec, operation, args, kwargs):
        if not any(rec.storages.is_loaded(t) for t in tensors_of(args, kwargs)):
            return run(operation, args, kwargs)
        made = view(*args, **kwargs)
        return tree_map(lambda t: _clone(rec, aten.clone.default, (t,), {"memory_format": torch.contiguous_format}), made)
    return handler


for _packet in dir(aten):
    _view = getattr(aten, _packet.removesuffix("_copy"), None) if _packet.endswith("_copy") else None
    for _overload in _view.overloads() if _view is not None else ():
        _copy = getattr(getattr(aten, _packet), _overload, None)
        if _copy is not None and any(r.alias_info is not None for r in getattr(_view, _overload)._schema.returns):
            HANDLERS[_copy] = _copied(getattr(_view, _overload))


# Operations that move elements to places that constants choose, and which of their arguments are moved.
_MOVED = {"gather": (0,), "take": (0,), "masked_select": (0,), "rot90": (0,), "pixel_shuffle": (0,), "pixel_unshuffle": (0,),
          "channel_shuffle": (0,), "native_channel_shuffle": (0,), "narrow_copy": (0,), "unfold_copy": (0,),
          "index_select_backward": (0,), "index_copy": (0, 3), "index_put": (0, 2), "select_scatter": (0, 1),
          "slice_scatter": (0, 1), "as_strided_scatter": (0, 1), "diagonal_scatter": (0, 1), "masked_scatter": (0, 2),
          "scatter.src": (0, 3), "tril": (0,), "triu": (0,), "diag_embed": (0,), "block_diag": (0,), "embedding": (0,),
          "reflection_pad1d": (0,), "reflection_pad2d": (0,), "replication_pad1d": (0,), "replication_pad2d": (0,),
          "upsample_nearest1d": (0,), "upsample_nearest2d": (0,), "where.self": (1, 2), "index_select": (0,), "index.Tensor": (0,),
          "roll": (0,)}


def _on_numbers(operation, args, kwargs, numbers):
    """The operation on the elements' numbers; in F64, which holds them as well, where it is not made for integers."""
    for kind in (torch.int64, torch.float64):
        swap = lambda x: numbers[id(x)][1].to(kind) if isinstance(x, torch.Tensor) and id(x) in numbers else on_cpu(x)  # noqa: E731
        try:
            return operation(*tree_map(swap, args), **tree_map(swap, kwargs)).to(torch.int64)
        except (RuntimeError, NotImplementedError) as error:
            failure = error
    raise failure


@handles(*[name for name in _MOVED if name not in ("where.self", "index_select", "index.Tensor", "roll")])
def probe(rec, operation, args, kwargs):
    """Operations that move elements to places that constants choose: run on numbers of elements, the operation itself
    tells which go where. Number 0 stands for the zeros that it puts between them."""
    storages = rec.storages
    loaded = [t for t in tensors_of(args, kwargs) if storages.is_loaded(t)]
    if not loaded:
        return run(operation, args, kwargs)
    if adds(operation, args, kwargs):
        return refuse_all(rec, operation, args, kwargs)
    places = _MOVED[operation.name().removeprefix("aten::")]
    moved = tensors_of([args[i] for i in places if i < len(args)], {})
    dtype = loaded[0].dtype
    if any(all(t is not m for m in moved) for t in loaded) or any(t.dtype != dtype for t in moved) or (
            sum(t.numel() for t in moved) > rec.PROBE_MAX):
        return refuse_all(rec, operation, args, kwargs)
    start, numbers = 1, {}
    for t in moved:
        if id(t) not in numbers:
            numbers[id(t)] = (t, torch.arange(start, start + t.numel()).reshape(t.shape))
            start += t.numel()
    try:
        result = _on_numbers(operation, args, kwargs, numbers)
    except (RuntimeError, NotImplementedError):
        return refuse_all(rec, operation, args, kwargs)
    made, order, back = in_memory_order(rec, result, dtype)
    chosen = result.permute(order).reshape(-1)
    if bool((chosen == 0).any()):
        storages.fill(made, 0, rec.current)
    for t, own in numbers.values():
        start = int(own.reshape(-1)[0]) if own.numel() else 0
        to = ((chosen >= start) & (chosen < start + t.numel())).nonzero().reshape(-1)
        source = chosen[to] - start
        if len(to) == 0:
            continue
        if storages.is_loaded(t):
            storages.move(made, t, array("q", to.tolist()), array("q", source.tolist()))
        else:
            values, line = t.reshape(-1), made.reshape(-1)
            for first, count, a, _ in list(runs_of(to.tolist(), to.tolist())):
                at = to[first:first + count]
                write_constant(rec, line[int(at[0]):int(at[-1]) + 1:max(a, 1)], values[source[first:first + count]])
    return made.permute(back)


@handles("masked_fill.Scalar", "masked_fill.Tensor", "index_fill.int_Scalar", "index_fill.int_Tensor")
def _filled(rec, operation, args, kwargs):
    """A copy of which some places are filled."""
    if not rec.storages.is_loaded(args[0]):
        return refuse_all(rec, operation, args, kwargs)  # or run, when nothing of it is loaded
    made = _clone(rec, aten.clone.default, (args[0],), {})
    twin = getattr(getattr(aten, operation.overloadpacket.__name__ + "_"), operation._overloadname)
    return HANDLERS[twin](rec, twin, (made, *args[1:]), kwargs)
