# SPDX-License-Identifier: Apache-2.0
"""Operations that no other room has a handler for: those that pass, that make tensors, that have `out`, collectives, lists."""

from __future__ import annotations

import functools

import torch

from ._operations import HANDLERS, aten, handles, refuse_all, run, tensors_of, written_by
from ._writes import write


# Not views by their schemas, but they share storage or ask for geometry only.
_PASS = {"_unsafe_view", "unsafe_split", "unsafe_split_with_sizes", "set_", "resize_", "is_pinned", "sym_size", "sym_stride", "sym_numel",
         "sym_storage_offset", "is_contiguous", "dim", "size", "stride", "record_stream", "_has_compatible_shallow_copy_type",
         "_version", "is_same_size", "lift", "_reshape_alias", "requires_grad_", "rename_", "swap_", "detach_", "as_strided_",
         "transpose_", "t_", "squeeze_", "unsqueeze_", "_nested_tensor_storage_offsets", "data"}
# Only the form of what they are given counts.
_LIKE = {"zeros_like", "ones_like", "full_like", "rand_like", "randn_like", "randint_like", "new_zeros", "new_ones", "new_full"}
_MAKE = {"zeros", "ones", "full", "arange", "eye", "linspace", "scalar_tensor"}
_EMPTY = {"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "empty_permuted"}


def pass_through(rec, operation, args, kwargs):
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


def handler_of(operation):
    """The handler of an operation that has none of its own."""
    if operation.namespace in ("c10d", "_c10d_functional", "_c10d_functional_autograd"):
        return _collective
    packet = operation.name().partition("::")[2].partition(".")[0]
    schema = operation._schema
    returns = [r for r in schema.returns if r.alias_info is not None]
    writes = any(a.alias_info is not None and a.alias_info.is_write for a in schema.arguments)
    if packet in _PASS or (returns and not writes):
        return pass_through
    if packet in _EMPTY:
        return _empty
    if packet in _LIKE or packet in _MAKE:
        return _make if "device" in {a.name for a in schema.arguments} else pass_through
    if any(a.is_out for a in schema.arguments):
        return _out
    return _foreach if packet.startswith("_foreach_") else refuse_all
