# SPDX-License-Identifier: Apache-2.0
"""What each aten operation means for a load plan.

Views pass: torch computes them, and they share storage. Everything else falls into one of five kinds, when the values of
an operand come from the checkpoint:

  writes      copy_, fill_, index_put_, ...: recorded where they land                               (_writes.py)
  moves       clone, cat, index_select, flip, ...: bytes go into a temporary, which is followed     (_moves.py)
  computes    mul, exp, amax, ...: an expression                                                    (_values.py)
  host reads  item, numpy, equal, ...: the names are refused; a neutral value is returned           (_values.py)
  the rest    the names are refused, the result holds their place                                   (_rest.py)

A handler is called with the recording, the operation and its arguments, and returns what the operation returns.
"""

from __future__ import annotations

from array import array

import torch
from torch.utils._pytree import tree_flatten, tree_map

from ._forms import NUMBER

aten = torch.ops.aten
HANDLERS: dict = {}


def handles(*names):
    def register(function):
        for name in names:
            packet, _, overload = name.partition(".")
            operation = getattr(getattr(aten, packet, None), overload or "default", None)
            if operation is not None:
                HANDLERS[operation] = function
        return function
    return register


# ---- small helpers


def run(operation, args, kwargs):
    return operation(*args, **kwargs)


def tensors_of(args, kwargs) -> list[torch.Tensor]:
    return [x for x in tree_flatten((args, kwargs))[0] if isinstance(x, torch.Tensor)]


def on_cpu(x):
    """Constants that choose places may lie on a GPU; the numbers of elements lie here."""
    return x.cpu() if isinstance(x, torch.Tensor) and x.device.type not in ("cpu", "meta") else x


def on_meta(x):
    if isinstance(x, torch.Tensor):
        return torch.empty_strided(x.size(), x.stride(), dtype=x.dtype, device="meta")
    return torch.device("meta") if isinstance(x, torch.device) else x


def form_of(operation, args, kwargs):
    """The geometry of the result, by running the operation on meta."""
    return operation(*tree_map(on_meta, args), **tree_map(on_meta, kwargs))


def bits_of(value, dtype: torch.dtype) -> int:
    """One element as its bytes, little endian."""
    if dtype.itemsize == 1 and dtype not in (torch.bool, torch.uint8, torch.int8) and NUMBER.get(dtype) == 5:
        return int(value)  # packed codes
    one = value if isinstance(value, torch.Tensor) else torch.tensor(value, dtype=torch.complex64 if dtype.is_complex else
                                                                     torch.float64 if dtype.is_floating_point else
                                                                     torch.bool if dtype == torch.bool else torch.int64)
    data = one.detach().reshape(()).reshape(1).to(dtype).view(torch.uint8).tolist()  # an expanded one has a step of 0
    return int.from_bytes(bytes(data), "little")


def memory_order(form: torch.Tensor) -> list[int]:
    """The dimensions by falling stride: permuted so, a result of torch is row-major in its memory."""
    return sorted(range(form.dim()), key=lambda d: (-form.stride(d), d))


def in_memory_order(rec, form: torch.Tensor, dtype: torch.dtype | None = None) -> tuple[torch.Tensor, list[int], list[int]]:
    """A row-major temporary for a result of that form, how operands are permuted for it, and how the temporary is permuted
    to be the result. The library knows computed values in row-major order only."""
    order = memory_order(form)
    shape = [form.size(d) for d in order]
    made = rec.storages.temporary_like(torch.empty(shape, dtype=dtype or form.dtype, device="meta"))
    return made, order, [order.index(d) for d in range(len(order))]


def runs_of(to: list[int], source: list[int]):
    """(first, count, to step, from step) of the longest stretches that go on in equal steps."""
    i, n = 0, len(to)
    while i < n:
        j = i + 1
        if j < n:
            a, b = to[j] - to[i], source[j] - source[i]
            while j + 1 < n and to[j + 1] - to[j] == a and source[j + 1] - source[j] == b:
                j += 1
            yield i, j - i + 1, a, b
            i = j + 1
        else:
            yield i, 1, 1, 1
            i += 1


def slice_form(rec, tensor: torch.Tensor, dim: int, start: int, count: int, step: int) -> array:
    """tensor[start::step] along dim; unlike torch's slices with steps of any sign, 0 included."""
    form = rec.storages.strided(tensor, rec.storages.number_of(tensor))
    n = tensor.dim()
    form[3] += start * tensor.stride(dim)
    form[4 + dim] = count
    form[4 + n + dim] = tensor.stride(dim) * step
    return form


# ---- constants


def write_constant(rec, dst: torch.Tensor, src: torch.Tensor) -> None:
    """dst (tracked) becomes the known values of src: fills, when there are few different stretches of them."""
    if dst.numel() == 0 or rec.unseen(dst):
        return  # src may be made of what was read unseen
    if src.device.type == "meta":
        rec.refuse_current("copy_", "writes a constant on the device meta, of no values", dst)
        return
    value = src.detach()
    if value.numel() == 1 or bool((value == value.reshape(-1)[:1]).all()):
        fill(rec, dst, value.reshape(-1)[:1])
        return
    flat = value.to(dst.dtype).expand(dst.shape).contiguous()
    rows = flat.view(torch.uint8).reshape(flat.numel(), -1).to(torch.int64)
    changes = (rows[1:] != rows[:-1]).any(1).nonzero().reshape(-1) + 1
    if not fill_stretches(rec, dst, flat, [0, *changes.tolist(), flat.numel()]):
        rec.constant_unsayable(dst)


_STRETCHES_MAX = 4096


def fill_stretches(rec, dst: torch.Tensor, values: torch.Tensor, edges: list[int], chosen=None) -> bool:
    """Fills the stretches between edges, counted in row-major order, of which chosen[first] holds; False: there are too
    many. Where dst is no line they are cut at its rows."""
    row = dst.numel() if dst.is_contiguous() else dst.size(-1)
    edges = sorted({*edges, *range(0, dst.numel(), row)}) if len(edges) + dst.numel() // row <= _STRETCHES_MAX else ()
    if not edges:
        return False
    rows = dst.view(1, -1) if dst.is_contiguous() else dst
    outer, values = rows.shape[:-1], values.reshape(-1)
    for lo, hi in zip(edges, edges[1:]):
        if chosen is None or chosen[lo]:
            at, i = [], lo // row
            for size in reversed(outer):
                at.insert(0, i % size)
                i //= size
            fill(rec, rows[(*at, slice(lo % row, lo % row + hi - lo))], values[lo:lo + 1])
    return True


def fill(rec, dst: torch.Tensor, value) -> None:
    bits = bits_of(value, dst.dtype)
    if bits != 0 and rec.values_were_read_elsewhere():
        rec.refuse_current("fill_", "writes a constant after the host read values: it may depend on them", dst)
        return
    if bits != 0 and rec.storages.exposed:
        rec.refuse_current("fill_", "writes a constant after loaded bytes went to memory that others see: it may be of them", dst,
                           rec.storages.exposed)
        return
    rec.storages.fill(dst, bits, rec.current)


def adopt(rec, tensor: torch.Tensor) -> None:
    """A tensor that is about to receive loaded bytes becomes a temporary; what it held is known."""
    storage = torch._C.TensorBase.untyped_storage(tensor)
    rec.storages.temporary(storage)
    rec.storages.addresses.add(storage)
    if tensor.device.type != "meta" and storage.nbytes() > 0:
        whole = torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(storage)
        item = tensor.dtype.itemsize
        if storage.nbytes() % item == 0:
            whole = whole.view(tensor.dtype)
        write_constant(rec, whole, whole.clone())
        rec.storages.expose(storage)


# ---- refusals


def written_by(operation, args, kwargs) -> list[torch.Tensor]:
    """The tensors that an operation writes to, by its schema."""
    given = [args[i] if i < len(args) else kwargs.get(a.name) for i, a in enumerate(operation._schema.arguments)
             if a.alias_info is not None and a.alias_info.is_write]
    return tensors_of(given, {})


def refuse_all(rec, operation, args, kwargs, reason="is neither a view, a copy nor a computation that a derive can say"):
    """The names that the operands read are refused; results hold their place."""
    storages = rec.storages
    given = tensors_of(args, kwargs)
    loaded = [t for t in given if storages.is_loaded(t)]
    if not loaded:
        storages.initialised.update(number for t in written_by(operation, args, kwargs) if (number := storages.number_of(t)) is not None)
        return run(operation, args, kwargs)
    name = operation.name().removeprefix("aten::").partition(".")[0]
    written = written_by(operation, args, kwargs)
    if written:
        for t in written:
            if storages.number_of(t) is None:
                adopt(rec, t)
            storages.refuse(name, reason, loaded, t)
        returns = operation._schema.returns
        if all(r.alias_info is not None for r in returns):
            return None if not returns else written[0] if len(returns) == 1 else tuple(written[:len(returns)])
    try:
        form = form_of(operation, args, kwargs)
    except (RuntimeError, NotImplementedError, TypeError):
        form = None
    if form is None:  # no geometry without values: what neutral values give
        storages.refuse(name, reason, loaded)
        rec.mark_read()
        form = run(operation, args, kwargs)
        storages.memory.read_unseen(everywhere=True)  # it was just said

    def place_of(x):
        if not isinstance(x, torch.Tensor):
            return x
        made = storages.temporary_like(x)
        storages.hold(made, name, reason, loaded)
        return made
    return tree_map(place_of, form)
