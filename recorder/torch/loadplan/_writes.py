# SPDX-License-Identifier: Apache-2.0
"""Operations that write: recorded where they land."""

from __future__ import annotations

from array import array

import torch
from torch.utils._pytree import tree_map

from ._forms import raw_storage
from ._operations import adopt, fill, fill_stretches, handles, on_cpu, refuse_all, run, tensors_of, write_constant
from ._storages import DESTINATION, OTHER, SOURCE


def same_place(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Of two tensors of one storage."""
    form = lambda t: (t.dtype, t.storage_offset(), t.size(), t.stride(), t.is_conj(), t.is_neg())  # noqa: E731
    return form(a) == form(b)


def overlap(rec, a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two tensors of one storage share elements."""
    reach = [t.storage_offset() + sum((size - 1) * step for size, step in zip(t.size(), t.stride())) for t in (a, b)]
    if a.numel() == 0 or b.numel() == 0:
        return False
    if a.dtype == b.dtype and (reach[0] < b.storage_offset() or reach[1] < a.storage_offset()):
        return False
    if a.dtype != b.dtype or max(reach) >= rec.PROBE_MAX:
        return True  # as far as anybody wants to find out
    numbers = torch.arange(max(reach) + 1)
    first, second = (numbers.as_strided(t.size(), t.stride(), t.storage_offset()).reshape(-1) for t in (a, b))
    return bool(torch.isin(first, second).any())


def write(rec, dst: torch.Tensor, src: torch.Tensor) -> None:
    if not isinstance(src, torch.Tensor):
        src = torch.tensor(src)  # x.copy_(1.0)
    if src.shape != dst.shape:
        src.expand(dst.shape)  # torch's own error when it does not fit
    storages = rec.storages
    number, source = storages.number_of(dst), storages.number_of(src)
    if number == source and number is not None and same_place(dst, src):
        return
    kind = storages.kind[source] if source is not None else 0
    if kind == SOURCE:
        storages.touch(source)
    if source is not None and (kind != DESTINATION or storages.is_loaded(src)):
        if number is None:
            adopt(rec, dst)
            number = storages.number_of(dst)
        elif storages.kind[number] == SOURCE:
            rec.rewrite_source(dst)
            number, source = storages.number_of(dst), storages.number_of(src)
        if number == source and overlap(rec, dst, src):
            storages.refuse("copy_", "copies within one tensor to where it reads: what comes out is not defined", [src], dst)
            return
        storages.copy_numbers(dst, number, src, source)
    elif number is None:
        dst.copy_(src)
    elif storages.kind[number] == DESTINATION and not (storages.exposed or rec.can_fill(src) or storages.is_loaded(dst)):
        if dst.device.type != "meta" and not torch.equal(dst, src.expand(dst.shape).to(dst)):
            dst.copy_(src)  # known, not loaded: part of the tensor's initial value
            storages.initialised.add(number)
    else:
        write_constant(rec, dst, src)


@handles("copy_")
def _copy_(rec, operation, args, kwargs):
    write(rec, args[0], args[1])
    return args[0]


@handles("_foreach_copy_")
def _foreach_copy_(rec, operation, args, kwargs):
    for dst, src in zip(args[0], args[1]):
        write(rec, dst, src)


@handles("resize_as_")
def _resize_as_(rec, operation, args, kwargs):
    return args[0].resize_(args[1].shape)


@handles("fill_.Scalar", "fill_.Tensor", "zero_")
def _fill_(rec, operation, args, kwargs):
    dst, value = args[0], args[1] if len(args) > 1 else 0
    if isinstance(value, torch.Tensor) and rec.storages.is_loaded(value):
        write(rec, dst, value.expand(dst.shape))
    elif rec.storages.number_of(dst) is None:
        run(operation, args, kwargs)
    elif dst.numel() > 0:
        fill(rec, dst, value)
    return dst


@handles("normal_", "uniform_", "random_", "exponential_", "log_normal_", "cauchy_", "geometric_", "bernoulli_.float")
def _random_(rec, operation, args, kwargs):
    """What a temporary held is gone, whatever it was."""
    dst, storages = args[0], rec.storages
    number = storages.number_of(dst)
    if number is None or storages.kind[number] != OTHER or dst.numel() * dst.dtype.itemsize < raw_storage(dst).nbytes():
        return refuse_all(rec, operation, args, kwargs)
    storages.unknown.pop(number, None)
    storages.forget(dst, operation.overloadpacket.__name__, "makes random numbers")
    return dst


# Which argument holds the values that are put; the others choose places.
_PUTS = {"index_copy_": 3, "index_put_": 2, "_index_put_impl_": 2, "masked_scatter_": 2, "scatter_.src": 3, "put_": 2,
         "index_fill_.int_Scalar": 3, "index_fill_.int_Tensor": 3, "masked_fill_.Scalar": 2, "masked_fill_.Tensor": 2,
         "scatter_.value": 3}


def adds(operation, args, kwargs) -> bool:
    """Whether a put adds to what is there."""
    at = [i for i, a in enumerate(operation._schema.arguments) if a.name == "accumulate"]
    return any(args[i] if i < len(args) else kwargs.get("accumulate", False) for i in at)


@handles(*_PUTS)
def _put_(rec, operation, args, kwargs):
    """Writes to places that constants choose: the operation itself, run on numbers of elements, tells which go where."""
    dst, storages = args[0], rec.storages
    others = tensors_of(args[1:], kwargs)
    loaded = [t for t in others if storages.is_loaded(t)]
    if not loaded and storages.number_of(dst) is None:
        return run(operation, args, kwargs)
    values = _PUTS[operation.name().removeprefix("aten::")]
    put = args[values] if values < len(args) else kwargs.get(operation._schema.arguments[values].name)
    if any(t is not put or t.dtype != dst.dtype for t in loaded) or dst.numel() > rec.PROBE_MAX or (
            adds(operation, args, kwargs)):
        if not loaded and not storages.is_loaded(dst):
            rec.refuse_current(operation.overloadpacket.__name__, "adds to what a destination holds", dst)
            return dst
        return refuse_all(rec, operation, args, kwargs)
    if storages.number_of(dst) is None:
        adopt(rec, dst)
    if not loaded:
        return put_constant(rec, operation, args, kwargs)
    if storages.kind[storages.number_of(dst)] == SOURCE:
        rec.rewrite_source(dst)
    src = loaded[0]
    n = dst.numel()
    numbers = torch.arange(n, n + src.numel()).reshape(src.shape)
    probe = torch.arange(n).reshape(dst.shape)
    replaced = tree_map(lambda x: numbers if x is src else on_cpu(x), (args[1:], kwargs))
    operation(probe, *replaced[0], **replaced[1])
    to = (probe.reshape(-1) != torch.arange(n)).nonzero().reshape(-1)
    source = probe.reshape(-1)[to] - n
    storages.move(dst, src, array("q", to.tolist()), array("q", source.tolist()))
    return dst


def put_constant(rec, operation, args, kwargs):
    dst = args[0]
    if dst.numel() == 0:
        return dst
    before = torch.zeros(dst.shape, dtype=dst.dtype)
    after = torch.ones(dst.shape, dtype=dst.dtype)
    args, kwargs = tree_map(on_cpu, (args[1:], kwargs))
    for t in (before, after):
        operation(t, *args, **kwargs)
    changed = (before.view(torch.uint8) == after.view(torch.uint8)).reshape(dst.numel(), -1).all(1)
    rows = before.view(torch.uint8).reshape(dst.numel(), -1)
    differs = (changed[1:] != changed[:-1]) | (rows[1:] != rows[:-1]).any(1)
    if not rec.unseen(dst) and not fill_stretches(rec, dst, before, [0, *(differs.nonzero().reshape(-1) + 1).tolist(), dst.numel()],
                                                  changed):
        rec.constant_unsayable(dst)
    return dst
