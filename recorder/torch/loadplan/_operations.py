# SPDX-License-Identifier: Apache-2.0
"""What each aten operation means for a load plan.

Views pass: torch computes them, and they share storage. Everything else falls into one of five kinds, when the values of
an operand come from the checkpoint:

  writes      copy_, fill_, index_put_, ...: recorded where they land
  moves       clone, cat, index_select, flip, ...: bytes go into a temporary, which is followed
  computes    mul, exp, amax, ...: an expression                                                  (_values.py)
  host reads  item, numpy, equal, ...: the names are refused; a neutral value is returned           (_values.py)
  the rest    the names are refused, the result holds their place

A handler is called with the recording, the operation and its arguments, and returns what the operation returns.
"""

from __future__ import annotations

import functools
from array import array

import torch
from torch.utils._pytree import tree_flatten, tree_map

from ._storages import DESTINATION, NUMBER, SOURCE

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


# ---- writes


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


def _foreach(rec, operation, args, kwargs):
    """_foreach_mul_(tensors, ..): mul_ of each of them."""
    name = operation.overloadpacket.__name__.removeprefix("_foreach_")
    rows = [[a[i] if isinstance(a, (list, tuple)) else a for a in args] for i in range(len(args[0]))]
    kind = "default" if len(args) == 1 else "Tensor" if isinstance(rows[0][1], torch.Tensor) else "Scalar"
    packet = getattr(aten, name, None)
    one = getattr(packet, kind, None) or getattr(packet, "default", None)
    if one is None or len(one._schema.arguments) < len(args) or all(
            rec.storages.number_of(t) is None for t in tensors_of(args, kwargs)):
        return refuse_all(rec, operation, args, kwargs)
    handler = HANDLERS.get(one) or handler_of(one)
    made = [handler(rec, one, tuple(row), kwargs) for row in rows]
    return made if operation._schema.returns else None


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


# ---- moves


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


# ---- everything else


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
        returned = len(operation._schema.returns)
        return None if returned == 0 else written[0] if returned == 1 else tuple(written[:returned])
    try:
        form = form_of(operation, args, kwargs)
    except (RuntimeError, NotImplementedError, TypeError):
        form = None
    if form is None:  # no geometry without values: what neutral values give
        storages.refuse(name, reason, loaded)
        rec.mark_read()
        ran = run(operation, args, kwargs)
        storages.memory.read_unseen(everywhere=True)  # it was just said
        return tree_map(lambda x: _hold(rec, name, reason, loaded, x), ran)
    return tree_map(lambda x: _hold(rec, name, reason, loaded, x), form)


def _hold(rec, name, reason, loaded, form):
    if not isinstance(form, torch.Tensor):
        return form
    made = rec.storages.temporary_like(form)
    rec.storages.refuse(name, reason, loaded, made)
    return made


# Not views by their schemas, but they share storage or ask for geometry only.
_PASS = {"_unsafe_view", "unsafe_split", "unsafe_split_with_sizes", "set_", "resize_", "is_pinned", "sym_size", "sym_stride", "sym_numel",
         "sym_storage_offset", "is_contiguous", "dim", "size", "stride", "record_stream", "_has_compatible_shallow_copy_type",
         "_version", "is_same_size", "lift", "_reshape_alias", "requires_grad_", "rename_", "swap_", "detach_", "as_strided_",
         "transpose_", "t_", "squeeze_", "unsqueeze_", "_nested_tensor_storage_offsets", "data"}
# Only the form of what they are given counts.
_LIKE = {"zeros_like", "ones_like", "full_like", "rand_like", "randn_like", "randint_like", "new_zeros", "new_ones", "new_full"}
_MAKE = {"zeros", "ones", "full", "arange", "eye", "linspace", "scalar_tensor"}
_EMPTY = {"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "empty_permuted"}


def _pass(rec, operation, args, kwargs):
    return operation(*args, **kwargs)


@handles("lift_fresh")
def _lift(rec, operation, args, kwargs):
    return run(operation, args, kwargs)  # no view, for a number that may have become this tensor


def _make(rec, operation, args, kwargs):
    """A constant for a model on meta has its values all the same."""
    if rec.on_meta and (kwargs.get("device") or (args[0].device if isinstance(args[0], torch.Tensor) else None)) == torch.device(
            "meta"):
        kwargs = {**kwargs, "device": torch.device("cpu")}
    return operation(*args, **kwargs)


def _empty(rec, operation, args, kwargs):
    """What nobody has written yet is zero, so that recordings do not depend on what the memory held before."""
    made = operation(*args, **kwargs)
    if made.device.type == "cpu" and made.layout is torch.strided and made.numel() > 0:
        made.untyped_storage().fill_(0)
    return made


@functools.cache
def without_out(operation):
    """mul.Tensor of mul.out: the overload of the same arguments that returns what `out` gets, or None."""
    form = lambda overload: [(a.name, str(a.type)) for a in overload._schema.arguments if not a.is_out]  # noqa: E731
    packet = operation.overloadpacket
    for name in packet.overloads():
        other = getattr(packet, name)
        if other is not operation and form(other) == form(operation) and not any(a.is_out for a in other._schema.arguments):
            return other
    return None


def _out(rec, operation, args, kwargs):
    """op(.., out=x) is x.copy_(op(..))."""
    given = {a.name for a in operation._schema.arguments if a.is_out}
    if not any(rec.storages.is_loaded(t) for t in tensors_of(args, {k: v for k, v in kwargs.items() if k not in given})):
        if any(rec.storages.number_of(t) is not None for t in written_by(operation, args, kwargs)):
            return refuse_all(rec, operation, args, kwargs)
        return run(operation, args, kwargs)
    plain = without_out(operation)
    if plain is None or len(given) != 1:
        return refuse_all(rec, operation, args, kwargs)
    out = kwargs[given.pop()]
    made = (HANDLERS.get(plain) or handler_of(plain))(rec, plain, args, {k: v for k, v in kwargs.items() if v is not out})
    for to, value in zip(out, made) if isinstance(out, (list, tuple)) else ((out, made),):
        if to.shape != value.shape and to.numel() == 0:
            to.resize_(value.shape)
        write(rec, to, value)
    return None if isinstance(out, (list, tuple)) else out


def _group(args, kwargs):
    """The process group among the arguments of a collective."""
    for x in (*args, *kwargs.values()):
        if isinstance(x, torch.ScriptObject):
            return torch.distributed.ProcessGroup.unbox(x)
    return torch.distributed.distributed_c10d._resolve_process_group(next(x for x in reversed(args) if isinstance(x, str)))


def _collective(rec, operation, args, kwargs):
    """What other ranks send is known to nobody here: it is said when it is used."""
    name = operation.name().partition("::")[2].partition(".")[0]
    if name == "wait_tensor" or not tensors_of(args, kwargs):
        return operation(*args, **kwargs)
    group = _group(args, kwargs)
    done = run(operation, args, kwargs)
    rec.storages.memory.read_unseen(everywhere=True)  # what is sent may lie in stand-ins
    if name in ("send", "barrier") or (name == "broadcast_" and args[2] == group.rank()):
        return done
    # The schemas of c10d do not say so, but what is received lies in the first argument.
    received = tensors_of(args[:1], {}) if operation.namespace == "c10d" else tensors_of((done,), {})
    if group.size() == 1:
        sent = tensors_of(args[1:2] if operation.namespace == "c10d" else args[:1], {})
        for to, t in zip(received, sent):
            if to.numel() == t.numel():
                write(rec, to, t.reshape(to.shape))
        return done  # without another argument in place
    for t in received:
        rec.storages.forget(t, name, "brings values of other ranks")
    return done


def handler_of(operation):
    """The handler of an operation that has none of its own."""
    if operation.namespace in ("c10d", "_c10d_functional", "_c10d_functional_autograd"):
        return _collective
    packet = operation.name().partition("::")[2].partition(".")[0]
    schema = operation._schema
    returns = [r for r in schema.returns if r.alias_info is not None]
    writes = any(a.alias_info is not None and a.alias_info.is_write for a in schema.arguments)
    if packet in _PASS or (returns and not writes):
        return _pass
    if packet in _EMPTY:
        return _empty
    if packet in _LIKE or packet in _MAKE:
        return _make if "device" in {a.name for a in schema.arguments} else _pass
    if any(a.is_out for a in schema.arguments):
        return _out
    return _foreach if packet.startswith("_foreach_") else refuse_all
