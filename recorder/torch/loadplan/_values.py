# SPDX-License-Identifier: Apache-2.0
"""Operations that look at values: computations, which become expressions, and host reads, which are refused."""

from __future__ import annotations

import torch

from ._moves import probe
from ._operations import HANDLERS, aten, form_of, handles, in_memory_order, refuse_all, run, tensors_of
from ._writes import write

MAX, MIN, ADD, SUB, MUL, DIV, NEG, RECIPROCAL, SQRT, MAXIMUM, MINIMUM, ABS, WHERE, GREATER, EQUAL, EXP, LOG = (
    16, 17, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 44, 45, 96, 97)
_FLOATS = (torch.float32, torch.bfloat16, torch.float16)


_ROUNDED = (torch.bfloat16, torch.float16)
_AMBIGUOUS = "computes with a scalar of another dtype, which devices round differently"


def common_dtype(values) -> torch.dtype:
    """What torch computes in: scalars, Python's and those of no dimensions, do not widen it."""
    return torch.result_type(*values) if len(values) == 2 else values[0].dtype


def constant(on_gpu: bool, op, at: int, value: float, dtype: torch.dtype) -> float:
    """A Python number as torch computes with it in `dtype`: on a CPU rounded to it, but for factors and divisors; on a GPU
    only compared ones are."""
    if dtype not in _ROUNDED or (op in (ADD, SUB, MUL, DIV) and (on_gpu or (op in (MUL, DIV) and at == 1))):
        return value
    return float(torch.tensor(value, dtype=dtype))


def of_dtype(rec, on_gpu: bool, op, at: int, t: torch.Tensor, dtype: torch.dtype) -> torch.Tensor | None:
    """A loaded operand, of no dimensions when it is wider than `dtype`; None when it cannot be told what torch does."""
    if t.dtype == dtype or torch.promote_types(t.dtype, dtype) == dtype:
        return t
    if op in (ADD, SUB, MUL, DIV) and on_gpu:
        return None  # rounded when it is on the GPU, not when it is on the host
    return t if op in (MUL, DIV) and at == 1 else HANDLERS[aten._to_copy.default](rec, aten._to_copy.default, (t,), {"dtype": dtype})


def _known(t: torch.Tensor) -> float | None:
    """The value of a constant that is the same everywhere."""
    if t.numel() == 0 or t.device.type == "meta" or not bool((t == t.reshape(-1)[:1]).all()):
        return None
    return float(t.reshape(-1)[0])


def compute(rec, operation, args, kwargs, op, operands=None, dims=0):
    operands = list(args) if operands is None else operands
    if not any(rec.storages.is_loaded(t) for t in operands if isinstance(t, torch.Tensor)):
        return run(operation, args, kwargs)
    form = form_of(operation, args, kwargs)
    values = operands[1:] if op == WHERE else operands
    sayable = (form.dtype in _FLOATS or op in (GREATER, EQUAL)) and form.numel() > 0 and all(
        t.dtype in _FLOATS if isinstance(t, torch.Tensor) else isinstance(t, (int, float)) for t in values)
    if not sayable:
        return refuse_all(rec, operation, args, kwargs)
    dtype, on_gpu = common_dtype(values), rec.storages.is_on_gpu(values)
    for i, t in enumerate(operands):
        if op == WHERE and i == 0:
            continue  # the condition
        if not isinstance(t, torch.Tensor):
            operands[i] = constant(on_gpu, op, i, float(t), dtype)
        elif rec.storages.is_loaded(t):
            operands[i] = of_dtype(rec, on_gpu, op, i, t, dtype)
        elif (value := _known(t)) is None:
            return refuse_all(rec, operation, args, kwargs)
        else:
            operands[i] = float(torch.tensor(value, dtype=dtype))
            if operands[i] != value and value == value and t.dim() == 0 and op in (ADD, SUB, MUL, DIV):
                operands[i] = constant(False, op, i, value, dtype) if not on_gpu else None
        if operands[i] is None:
            return refuse_all(rec, operation, args, kwargs, _AMBIGUOUS)
    if op == DIV and on_gpu and not isinstance(operands[1], torch.Tensor):
        if operands[1] == 0:
            return refuse_all(rec, operation, args, kwargs)
        op, operands = MUL, [operands[0], float(1 / torch.tensor(operands[1], dtype=torch.float32))]  # as CUDA's does
    if all(t.shape != form.shape for t in operands if isinstance(t, torch.Tensor)) and not dims and op not in (MAX, MIN):
        at = next(i for i, t in enumerate(operands) if isinstance(t, torch.Tensor) and rec.storages.is_loaded(t))
        operands[at] = operands[at].expand(form.shape)  # a constant gave the shape
    if (rec.values_were_read_elsewhere() or rec.storages.exposed) and any(not isinstance(t, torch.Tensor) for t in operands):
        return refuse_all(rec, operation, args, kwargs)  # the constant may depend on what was read
    if op in (MAX, MIN):
        made = rec.storages.temporary_like(torch.empty(form.shape, dtype=form.dtype, device="meta"))
        rec.storages.compute(op, made, operands, dims)
        return made
    made, order, back = in_memory_order(rec, form)
    if order != sorted(order):
        operands = [t if not isinstance(t, torch.Tensor) else t.reshape(()) if t.numel() == 1 else
                    t.expand(form.shape).permute(order) for t in operands]
    rec.storages.compute(op, made, operands)
    return made.permute(back)


@handles("where.self")
def _where(rec, operation, args, kwargs):
    """A known condition chooses bytes; a computed one is an expression."""
    if rec.storages.is_loaded(args[0]):
        return compute(rec, operation, args, kwargs, WHERE)
    return probe(rec, operation, args, kwargs)


def _elementwise(op, count, *names, swap=False):
    @handles(*names)
    def handler(rec, operation, args, kwargs):
        operands = list(args[:count])
        if len(args) > count or any(v != 1 for k, v in kwargs.items() if k == "alpha") or set(kwargs) - {"alpha"}:
            return refuse_all(rec, operation, args, kwargs)
        return compute(rec, operation, args, kwargs, op, operands[::-1] if swap else operands)
    return handler


_elementwise(ADD, 2, "add.Tensor", "add.Scalar")
_elementwise(SUB, 2, "sub.Tensor", "sub.Scalar")
_elementwise(SUB, 2, "rsub.Scalar", "rsub.Tensor", swap=True)
_elementwise(MUL, 2, "mul.Tensor", "mul.Scalar")
_elementwise(DIV, 2, "div.Tensor", "div.Scalar")
_elementwise(MAXIMUM, 2, "maximum")
_elementwise(MINIMUM, 2, "minimum")
_elementwise(GREATER, 2, "gt.Tensor", "gt.Scalar")
_elementwise(GREATER, 2, "lt.Tensor", "lt.Scalar", swap=True)
_elementwise(EQUAL, 2, "eq.Tensor", "eq.Scalar")
_elementwise(NEG, 1, "neg")
_elementwise(RECIPROCAL, 1, "reciprocal")
_elementwise(SQRT, 1, "sqrt")
_elementwise(ABS, 1, "abs")
_elementwise(EXP, 1, "exp")
_elementwise(LOG, 1, "log")


@handles("clamp", "clamp_min", "clamp_max")
def _clamp(rec, operation, args, kwargs):
    """max(x, low), then min with high. Bounds of zero are refused: which zero comes out depends on the processor."""
    bounds = {"clamp_min": (1, None), "clamp_max": (None, 1)}.get(operation.overloadpacket.__name__, (1, 2))
    low, high = (None if i is None else args[i] if i < len(args) else kwargs.get(("min", "max")[at])
                 for at, i in enumerate(bounds))
    if not rec.storages.is_loaded(args[0]) or low == 0 or high == 0:
        return refuse_all(rec, operation, args, kwargs)
    made = args[0]
    if low is not None:
        made = compute(rec, operation, (made, low), {}, MAXIMUM)
    if high is not None:
        made = compute(rec, operation, (made, high), {}, MINIMUM)
    return made


@handles("pow.Tensor_Scalar")
def _power(rec, operation, args, kwargs):
    if args[1] != 2 or not rec.storages.is_loaded(args[0]):
        return refuse_all(rec, operation, args, kwargs)
    return compute(rec, operation, args, kwargs, MUL, [args[0], args[0]])


def _reduction(op, *names):
    @handles(*names)
    def handler(rec, operation, args, kwargs):
        src = args[0]
        dims = args[1] if len(args) > 1 else kwargs.get("dim", ())
        keeps = args[2] if len(args) > 2 else kwargs.get("keepdim", False)
        if not rec.storages.is_loaded(src) or src.dim() > 16:
            return run(operation, args, kwargs)
        bits = sum({1 << (d % max(src.dim(), 1)) for d in dims}) if src.dim() else 0
        if not keeps:
            return compute(rec, operation, args, kwargs, op, [src], bits)
        form = form_of(operation, args, kwargs)
        return compute(rec, operation, (src, dims, False), {}, op, [src], bits).reshape(form.shape)
    return handler


_reduction(MAX, "amax", "max")
_reduction(MIN, "amin", "min")


@handles("max.dim", "min.dim")
def _extreme(rec, operation, args, kwargs):
    """The values; where they were is refused when somebody uses it."""
    if not rec.storages.is_loaded(args[0]) or args[0].dtype not in _FLOATS:
        return refuse_all(rec, operation, args, kwargs)
    is_max = operation is aten.max.dim
    values = aten.amax.default if is_max else aten.amin.default
    keeps = args[2] if len(args) > 2 else kwargs.get("keepdim", False)
    where = rec.storages.temporary_like(form_of(operation, args, kwargs)[1])
    rec.storages.hold(where, "max" if is_max else "min", "finds out where values are", [args[0]])
    made = HANDLERS[values](rec, values, (args[0], [args[1]], keeps), {}), where
    return (torch.return_types.max if is_max else torch.return_types.min)(made)


@handles("aminmax")
def _both_extremes(rec, operation, args, kwargs):
    if not rec.storages.is_loaded(args[0]) or args[0].dtype not in _FLOATS:
        return refuse_all(rec, operation, args, kwargs)
    dims = [] if kwargs.get("dim") is None else [kwargs["dim"]]
    return torch.return_types.aminmax(tuple(
        HANDLERS[op](rec, op, (args[0], dims, kwargs.get("keepdim", False)), {}) for op in (aten.amin.default, aten.amax.default)))


def in_place(functional):
    """x.op_(..) is x.copy_(x.op(..))."""
    def handler(rec, operation, args, kwargs):
        if rec.storages.number_of(args[0]) is None and not any(
                rec.storages.is_loaded(t) for t in tensors_of(args, kwargs)):
            return run(operation, args, kwargs)
        if not any(rec.storages.is_loaded(t) for t in tensors_of(args, kwargs)):
            rec.storages.initialised.add(rec.storages.number_of(args[0]))
            return run(operation, args, kwargs)  # an initial value
        made = HANDLERS[functional](rec, functional, args, kwargs)
        write(rec, args[0], made)
        return args[0]
    return handler


for _functional in [f for f, h in HANDLERS.items() if h.__name__ == "handler" or h in (_clamp, _power)]:
    _packet, _, _overload = _functional.name().removeprefix("aten::").partition(".")
    _twin = getattr(getattr(aten, _packet + "_", None), _overload.removeprefix("Tensor_") or "default", None)
    if _twin is not None:
        HANDLERS[_twin] = in_place(_functional)


# ---- host reads


def _says_yes(rec, tensor: torch.Tensor) -> bool:
    return rec.storages.number_of(tensor) in rec.yes


@handles("all", "all.dim", "all.dims", "le.Tensor", "le.Scalar", "ge.Tensor", "ge.Scalar", "logical_not", "bitwise_not")
def _agree(rec, operation, args, kwargs):
    """What a loader most likely asks in order to raise an error when it is not so: the neutral answer is yes."""
    loaded = any(rec.storages.is_loaded(t) for t in tensors_of(args, kwargs))
    made = refuse_all(rec, operation, args, kwargs)
    inverts = operation in (aten.logical_not.default, aten.bitwise_not.default)
    if loaded and made.dtype == torch.bool and not (inverts and _says_yes(rec, args[0])):
        rec.yes.add(rec.storages.number_of(made))
    return made


@handles("_local_scalar_dense")
def _item(rec, operation, args, kwargs):
    if not rec.storages.is_loaded(args[0]):
        return run(operation, args, kwargs)
    rec.host_read("item", args)
    dtype = args[0].dtype
    return _says_yes(rec, args[0]) if dtype == torch.bool else 1.0 if dtype.is_floating_point else complex(1) if dtype.is_complex else 1


@handles("equal", "is_same_size")
def _equal(rec, operation, args, kwargs):
    if not any(rec.storages.is_loaded(t) for t in args):
        return run(operation, args, kwargs)
    rec.host_read("equal", args)
    return True


@handles("allclose")
def _allclose(rec, operation, args, kwargs):
    a, b = args[0], args[1]
    rtol = args[2] if len(args) > 2 else kwargs.get("rtol", 1e-5)
    atol = args[3] if len(args) > 3 else kwargs.get("atol", 1e-8)
    if not any(rec.storages.is_loaded(t) for t in (a, b)):
        return run(operation, args, kwargs)
    if atol == 0 and rec.storages.is_loaded(a) and rec.storages.is_loaded(b) and a.dtype in _FLOATS:
        rec.storages.require_close(a, b, rtol, "values that have to be equal differ at index {index}")
    else:
        rec.host_read("allclose", (a, b))
    return True
