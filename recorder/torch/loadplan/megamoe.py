# SPDX-License-Identifier: Apache-2.0
"""loadplan.megamoe: the mixture-of-experts layer of kernels/megamoe.h, called on torch tensors.

Every check is the C library's and comes before a launch; this file says where tensors lie and what they are.
"""

from __future__ import annotations

import ctypes as c
from collections.abc import Mapping

import torch

from ._forms import NUMBER
from ._library import Error, LoadplanError, check, failure, lib

E8M0 = (torch.uint8, torch.float8_e8m0fnu)
FORMATS = {"mxfp4": 1, "nvfp4": 2, "mxfp8": 3, "fp8": 4, "bf16": 5}
ACTIVATIONS = {"swiglu": 0, "situ": 1, "swiglu_step": 2}
SLOTS = ("l1_weight", "l1_scale", "l2_weight", "l2_scale")
_DIMS = 4
P = c.POINTER


class Shape(c.Structure):
    _fields_ = [
        ("size", c.c_size_t), ("experts", c.c_int64), ("hidden", c.c_int64), ("intermediate", c.c_int64),
        ("top_k", c.c_int64), ("max_tokens", c.c_int64), ("tokens_bound", c.c_int64), ("first_expert", c.c_int64),
        ("format", c.c_int), ("x_dtype", c.c_int), ("id_dtype", c.c_int), ("activation", c.c_int),
        ("activation_alpha", c.c_float), ("activation_beta", c.c_float), ("activation_limit", c.c_float),
        ("shared_intermediate", c.c_int64), ("fast", c.c_bool), ("shared_format", c.c_int),
    ]


class RawTensor(c.Structure):
    _fields_ = [
        ("data", c.c_void_p), ("layout", c.c_char_p), ("version", c.c_int32), ("transforms", c.c_int32),
        ("order", c.c_int), ("dtype", c.c_int), ("ndim", c.c_int32), ("shape", c.c_int64 * _DIMS),
        ("stride", c.c_int64 * _DIMS),
    ]


class Weights(c.Structure):
    _fields_ = [
        ("size", c.c_size_t), ("tensor", RawTensor * len(SLOTS)), ("l1_alpha", c.c_void_p), ("l2_alpha", c.c_void_p),
        ("l2_activation_scale", c.c_void_p), ("l1_alpha_columns", c.c_int32), ("shared", c.c_void_p),
    ]


class Io(c.Structure):
    _fields_ = [
        ("size", c.c_size_t), ("x", c.c_void_p), ("x_scale", c.c_void_p), ("topk_ids", c.c_void_p),
        ("topk_weight", c.c_void_p), ("tokens", c.c_void_p), ("y", c.c_void_p), ("received", c.c_void_p),
    ]


for _name, (_result, *_arguments) in {
    "lp_megamoe_layout": (c.c_char_p, c.c_int, c.c_int, c.c_int32),
    "lp_megamoe_shared_shape": (Shape, P(Shape)),
    "lp_megamoe_tensor_in": (c.c_int, P(RawTensor), P(Shape), c.c_char_p, c.c_void_p, P(Error)),
    "lp_megamoe_workspace": (c.c_int64, P(Shape), P(Error)),
    "lp_megamoe_check": (c.c_int, P(Shape), P(Weights), P(Io), c.c_void_p, c.c_int64, P(Error)),
    "lp_megamoe": (c.c_int, P(Shape), P(Weights), P(Io), c.c_void_p, c.c_int64, c.c_void_p, P(Error)),
}.items():
    getattr(lib, _name).restype, getattr(lib, _name).argtypes = _result, _arguments


def layouts_of(format: str) -> dict[str, list[str]]:
    """Ids of the layouts that a format reads, by slot, the fastest first."""
    out = {}
    for number, slot in enumerate(SLOTS):
        names = []
        while (name := lib.lp_megamoe_layout(FORMATS[format], number, len(names))) is not None:
            names.append(name.decode())
        out[slot] = names
    return out


def _address(tensor: torch.Tensor | None):
    return None if tensor is None else tensor.data_ptr()


def _expect(name: str, tensor: torch.Tensor, dtype: torch.dtype, shape: tuple, device: torch.device) -> None:
    if tensor.dtype != dtype or tuple(tensor.shape) != shape:
        raise LoadplanError(f"'{name}' is {tensor.dtype} {list(tensor.shape)}, not {dtype} {list(shape)}", "argument")
    if not tensor.is_contiguous():
        raise LoadplanError(f"'{name}' is not contiguous", "argument")
    if tensor.device != device:
        raise LoadplanError(f"'{name}' is on {tensor.device}, the weights are on {device}", "argument")


class Experts:
    """Weights of a call, as tensors by slot, described for the library. `shape` says of how many experts they are."""

    def __init__(self, shape: Shape, format: str, tensors: Mapping[str, torch.Tensor], layouts: Mapping[str, str],
                 l1_alpha: torch.Tensor | None = None, l2_alpha: torch.Tensor | None = None,
                 l2_activation_scale: torch.Tensor | None = None):
        wanted = [slot for slot in SLOTS if format != "bf16" or slot.endswith("weight")]
        if sorted(tensors) != sorted(wanted):
            raise LoadplanError(f"weights of {format} are {', '.join(wanted)}, not {', '.join(tensors) or 'none'}",
                                "argument")
        self.device = tensors["l1_weight"].device
        self._shape = shape
        self._kept = {**tensors, "l1_alpha": l1_alpha, "l2_alpha": l2_alpha, "l2_activation_scale": l2_activation_scale}
        self.raw = Weights(size=c.sizeof(Weights), l1_alpha=_address(l1_alpha), l2_alpha=_address(l2_alpha),
                           l2_activation_scale=_address(l2_activation_scale),
                           l1_alpha_columns=0 if l1_alpha is None else l1_alpha.numel() // shape.experts)
        chosen = {slot: names[0] for slot, names in layouts_of(format).items() if names} | dict(layouts)
        for slot in wanted:
            self._describe(slot, tensors[slot], chosen[slot])
        self._check_alphas()

    def _describe(self, slot: str, tensor: torch.Tensor, layout: str) -> None:
        raw = self.raw.tensor[SLOTS.index(slot)]
        check(lib.lp_megamoe_tensor_in, c.byref(raw), c.byref(self._shape), layout.encode(), tensor.data_ptr())
        wanted = max(raw.shape[d] * raw.stride[d] for d in range(raw.ndim))  # layouts have no gaps
        have = tensor.numel() * tensor.itemsize
        room = tensor.untyped_storage().nbytes() - tensor.storage_offset() * tensor.itemsize
        if have != wanted or room < wanted or tensor.device != self.device:
            raise LoadplanError(f"'{slot}' has {min(have, room)} bytes on {tensor.device}, the layout '{layout}' has "
                                f"{wanted} on {self.device}", "mismatch")

    def _check_alphas(self) -> None:
        for name in ("l1_alpha", "l2_alpha", "l2_activation_scale"):
            tensor = self._kept[name]
            if tensor is not None:
                columns = self.raw.l1_alpha_columns if name == "l1_alpha" else 1
                count = 1 if name == "l2_activation_scale" else self._shape.experts * columns
                _expect(name, tensor.reshape(-1) if tensor.is_contiguous() else tensor, torch.float32, (count,), self.device)


class MegaMoE:
    """One layer of one rank. `weights` are tensors as a replay put them in place, by slot: l1_weight, l1_scale,
    l2_weight, l2_scale (BF16 has no scales). `layouts` are the layout ids of their destination rows; without them the
    fastest layouts of the format are meant. Weights are not copied: a reload in place is seen by the next call.

    `shared` are the weights of the shared experts together, by slot as `weights` are, with their alphas where they are
    NVFP4; shared_format and shared_intermediate say what they are, shared_layouts where that is not the fastest layout.

    The other arguments are those of lp_megamoe_shape. The workspace, for max_tokens, is taken here; calls allocate no
    more than their result. A layer is for one stream at a time."""

    def __init__(self, weights: Mapping[str, torch.Tensor], *, format: str, experts: int, hidden: int, intermediate: int,
                 top_k: int, max_tokens: int, layouts: Mapping[str, str] | None = None, first_expert: int = 0,
                 activation: str = "swiglu", alpha: float = 0.0, beta: float = 0.0, limit: float = 0.0,
                 l1_alpha: torch.Tensor | None = None, l2_alpha: torch.Tensor | None = None,
                 l2_activation_scale: torch.Tensor | None = None, fast: bool = False,
                 shared: Mapping[str, torch.Tensor] | None = None, shared_format: str | None = None,
                 shared_intermediate: int = 0, shared_layouts: Mapping[str, str] | None = None):
        shared_format = shared_format or format
        for given, known, what in ((format, FORMATS, "format"), (shared_format, FORMATS, "format"),
                                   (activation, ACTIVATIONS, "activation")):
            if given not in known:
                raise LoadplanError(f"there is no {what} '{given}': it is one of {', '.join(known)}", "argument")
        if (shared is None) != (shared_intermediate == 0):
            raise LoadplanError("shared and shared_intermediate belong together", "argument")
        self._shape = Shape(size=c.sizeof(Shape), experts=experts, hidden=hidden, intermediate=intermediate, top_k=top_k,
                            max_tokens=max_tokens, first_expert=first_expert, format=FORMATS[format],
                            x_dtype=NUMBER[torch.bfloat16], id_dtype=NUMBER[torch.int32],
                            activation=ACTIVATIONS[activation], activation_alpha=alpha, activation_beta=beta,
                            activation_limit=limit, fast=fast, shared_intermediate=shared_intermediate,
                            shared_format=FORMATS[shared_format] if shared else 0)
        needed = self._workspace_bytes()
        self._experts = Experts(self._shape, format, weights, layouts or {}, l1_alpha, l2_alpha, l2_activation_scale)
        self.device = self._experts.device
        self._weights = self._experts.raw
        if shared is not None:
            self._add_shared(shared, shared_format, shared_layouts or {})
        block = torch.empty(needed + 256, dtype=torch.uint8, device=self.device)
        self._workspace = block[-block.data_ptr() % 256 :][:needed]
        self._counts: dict[int, torch.Tensor] = {}

    def _workspace_bytes(self) -> int:
        error = Error()
        needed = lib.lp_megamoe_workspace(c.byref(self._shape), c.byref(error))
        if needed == 0:
            raise failure(error, error.code)
        return needed

    def _add_shared(self, shared: Mapping[str, torch.Tensor], format: str, layouts: Mapping[str, str]) -> None:
        alphas = {name: shared[name] for name in ("l1_alpha", "l2_alpha", "l2_activation_scale") if name in shared}
        tensors = {name: tensor for name, tensor in shared.items() if name not in alphas}
        self._shared = Experts(lib.lp_megamoe_shared_shape(c.byref(self._shape)), format, tensors, layouts, **alphas)
        if self._shared.device != self.device:
            raise LoadplanError(f"shared experts are on {self._shared.device}, the others on {self.device}", "argument")
        self._weights.shared = c.addressof(self._shared.raw)

    def _prepare(self, x, topk_ids, topk_weight, x_scale, out, tokens, received):
        rows, hidden, top_k = x.shape[0], self._shape.hidden, self._shape.top_k
        if rows > self._shape.max_tokens:
            raise LoadplanError(f"'x' has {rows} rows, the layer was made for {self._shape.max_tokens}", "argument")
        shape = Shape.from_buffer_copy(self._shape)
        shape.max_tokens = rows
        shape.x_dtype = NUMBER.get(x.dtype, 0)
        shape.id_dtype = NUMBER.get(topk_ids.dtype, 0)
        _expect("x", x, x.dtype, (rows, hidden), self.device)
        _expect("topk_ids", topk_ids, topk_ids.dtype, (rows, top_k), self.device)
        _expect("topk_weight", topk_weight, torch.float32, (rows, top_k), self.device)
        if x_scale is not None and shape.format == FORMATS["mxfp8"]:
            _expect("x_scale", x_scale, x_scale.dtype if x_scale.dtype in E8M0 else E8M0[0], (rows, hidden // 32), self.device)
        elif x_scale is not None:
            _expect("x_scale", x_scale, torch.float32, (rows, hidden // 128), self.device)
        if out is None:
            out = torch.empty(rows, hidden, dtype=torch.bfloat16, device=self.device)
        _expect("out", out, torch.bfloat16, (rows, hidden), self.device)
        if tokens is None:
            tokens = self._counts.get(rows)
        if tokens is None:
            tokens = self._counts[rows] = torch.full((1,), rows, dtype=torch.int32, device=self.device)
        _expect("tokens", tokens.reshape(-1), torch.int32, (1,), self.device)
        if received is not None:
            _expect("received", received, torch.int32, (self._shape.experts,), self.device)
        io = Io(size=c.sizeof(Io), x=_address(x), x_scale=_address(x_scale), topk_ids=_address(topk_ids),
                topk_weight=_address(topk_weight), tokens=_address(tokens), y=_address(out), received=_address(received))
        return shape, io, out

    def check(self, x, topk_ids, topk_weight, *, x_scale=None, out=None, tokens=None, received=None) -> None:
        """Raises what a call would refuse. Needs no GPU."""
        shape, io, _ = self._prepare(x, topk_ids, topk_weight, x_scale, out, tokens, received)
        check(lib.lp_megamoe_check, c.byref(shape), c.byref(self._weights), c.byref(io),
                       self._workspace.data_ptr(), self._workspace.numel())

    def __call__(self, x: torch.Tensor, topk_ids: torch.Tensor, topk_weight: torch.Tensor, *,
                 x_scale: torch.Tensor | None = None, out: torch.Tensor | None = None,
                 tokens: torch.Tensor | None = None, received: torch.Tensor | None = None) -> torch.Tensor:
        """y of the rows of x, at most max_tokens of them, on the current stream; in `out` where it is given. tokens:
        int32 on the device, how many rows count; without it all do. received: += routes by expert."""
        if self.device.type != "cuda":
            raise LoadplanError(f"the weights are on {self.device}: the kernels run on a GPU", "argument")
        shape, io, y = self._prepare(x, topk_ids, topk_weight, x_scale, out, tokens, received)
        if x.shape[0] == 0:
            return y
        with torch.cuda.device(self.device):
            stream = torch.cuda.current_stream().cuda_stream
            check(lib.lp_megamoe, c.byref(shape), c.byref(self._weights), c.byref(io),
                           self._workspace.data_ptr(), self._workspace.numel(), stream)
        return y
