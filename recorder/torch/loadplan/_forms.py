# SPDX-License-Identifier: Apache-2.0
"""Dtypes and shapes: what traces and PyTorch call the same thing, and tensors that are made of tensors."""

from __future__ import annotations

import torch

from ._library import CheckpointTensor, LoadplanError

BY_NUMBER = {
    1: torch.bool, 5: torch.uint8, 6: torch.int8, 7: torch.float8_e5m2, 8: torch.float8_e4m3fn, 10: torch.float8_e4m3fnuz,
    11: torch.float8_e5m2fnuz, 12: torch.int16, 13: torch.uint16, 14: torch.float16, 15: torch.bfloat16, 16: torch.int32,
    17: torch.uint32, 18: torch.float32, 19: torch.complex64, 20: torch.float64, 21: torch.int64, 22: torch.uint64,
}
if hasattr(torch, "float8_e8m0fnu"):
    BY_NUMBER[9] = torch.float8_e8m0fnu
NUMBER = {dtype: number for number, dtype in BY_NUMBER.items()}
_PACKED_F4 = getattr(torch, "float4_e2m1fn_x2", None)
if _PACKED_F4 is not None:
    NUMBER[_PACKED_F4] = 5  # two codes in a byte: seen as bytes
_F4, _F6 = 2, (3, 4)


def torch_form(tensor: CheckpointTensor) -> tuple[torch.dtype, list[int]]:
    """The dtype and shape that torch gives a checkpoint tensor."""
    shape = [tensor.shape[i] for i in range(tensor.ndim)]
    if tensor.dtype == _F4 or tensor.dtype in _F6:
        bits = 4 if tensor.dtype == _F4 else 6
        if not shape or shape[-1] * bits % 8:
            raise LoadplanError(f"'{tensor.name.decode()}' has rows that are not whole bytes")
        shape[-1] = shape[-1] * bits // 8
        return (_PACKED_F4 if tensor.dtype == _F4 and _PACKED_F4 is not None else torch.uint8), shape
    dtype = BY_NUMBER.get(tensor.dtype)
    if dtype is None:
        raise LoadplanError(f"this torch has no dtype for '{tensor.name.decode()}'")
    return dtype, shape


raw_storage = torch._C.TensorBase.untyped_storage


def _has_memory(tensor: torch.Tensor) -> bool:
    try:
        raw_storage(tensor).data_ptr()
    except RuntimeError:
        return False
    return True


_shells: dict[type, bool] = {}  # what is known of tensors' classes


def is_made_of_tensors(kind: type, given) -> bool:
    """Whether tensors of this class are shells around others: they say so (DTensor, torchao's), or have operations of their
    own and no memory. given() returns tensors, some of that class."""
    if kind not in _shells:
        _shells[kind] = hasattr(kind, "__tensor_flatten__") or (
            kind.__torch_dispatch__ is not torch.Tensor.__torch_dispatch__
            and any(type(tensor) is kind and not _has_memory(tensor) for tensor in given()))
    return _shells[kind]


def plain(name: str, tensor: torch.Tensor):
    """(name, tensor) of the ordinary tensors that a tensor made of tensors consists of."""
    if not is_made_of_tensors(type(tensor), lambda: (tensor,)):
        yield name, tensor
        return
    names = tensor.__tensor_flatten__()[0] if hasattr(tensor, "__tensor_flatten__") else vars(tensor)
    parts = [(part, getattr(tensor, part)) for part in names]
    parts = [(part, inner) for part, inner in parts if isinstance(inner, torch.Tensor)]
    for part, inner in parts:
        yield from plain(name if len(parts) == 1 else f"{name}.{part}", inner)


def check_ordinary(name: str, tensor) -> None:
    """LoadplanError (LP_E_UNSUPPORTED) for what has no bytes of its own to read."""
    if not isinstance(tensor, torch.Tensor):
        raise LoadplanError(f"'{name}' is a {type(tensor).__name__}, not a tensor", "LP_E_UNSUPPORTED")
    if hasattr(type(tensor), "__tensor_flatten__"):
        raise LoadplanError(f"'{name}' is a {type(tensor).__name__}, made of other tensors: give an ordinary one (of a "
                            "DTensor, full_tensor())", "LP_E_UNSUPPORTED")
    if tensor.device.type not in ("cpu", "cuda") or tensor.layout is not torch.strided:
        raise LoadplanError(f"'{name}' is on {tensor.device}, {tensor.layout}: it has no bytes to copy", "LP_E_UNSUPPORTED")
