# SPDX-License-Identifier: Apache-2.0
"""loadplan.exchange: the layer of loadplan.megamoe with its experts divided over the GPUs of a host (kernels/exchange.h).

Each rank makes a layer of its own experts, gives a buffer that the others reach, and calls when all call. With the
symmetric memory of torch.distributed:

    layer = RankedMegaMoE(weights, rank=rank, ranks=8, format="mxfp4", experts=32, hidden=4096, intermediate=2048, top_k=6,
                          max_tokens=512)
    buffer = symm_mem.empty(layer.buffer_bytes, dtype=torch.uint8, device="cuda")
    layer.connect(buffer, symm_mem.rendezvous(buffer, group).buffer_ptrs)
    torch.distributed.barrier()              # all have connected before one calls
    y = layer(x, topk_ids, topk_weight)      # ids of the experts of all ranks
"""

from __future__ import annotations

import ctypes as c
from collections.abc import Sequence

import torch

from ._library import Error, LoadplanError, check, failure, lib
from .megamoe import Io, MegaMoE, P, Shape, Weights

RANKS_MOST = 64


class Exchange(c.Structure):
    _fields_ = [
        ("size", c.c_size_t), ("rank", c.c_int32), ("ranks", c.c_int32), ("timeout_ns", c.c_int64), ("shares_gpu", c.c_bool),
        ("buffer", c.c_void_p * RANKS_MOST), ("buffer_bytes", c.c_int64),
    ]


class Failure(c.Structure):
    _fields_ = [("kind", c.c_int), ("rank", c.c_int32), ("by", c.c_int32), ("call", c.c_uint32)]


for _name, (_result, *_arguments) in {
    "lp_moe_exchange_bytes": (c.c_int64, P(Shape), c.c_int32, P(Error)),
    "lp_moe_exchange_workspace": (c.c_int64, P(Shape), c.c_int32, P(Error)),
    "lp_moe_exchange_terms": (None, P(Shape), c.c_int32, c.c_char_p, c.c_size_t),
    "lp_moe_exchange_clear": (c.c_int, c.c_void_p, c.c_int64, c.c_void_p, P(Error)),
    "lp_moe_exchange_check": (c.c_int, P(Shape), P(Weights), P(Io), P(Exchange), c.c_void_p, c.c_int64, P(Error)),
    "lp_moe_exchange_run": (c.c_int, P(Shape), P(Weights), P(Io), P(Exchange), c.c_void_p, c.c_int64, c.c_void_p, P(Error)),
    "lp_moe_exchange_failure": (c.c_int, P(Exchange), c.c_void_p, P(Failure), P(Error)),
}.items():
    getattr(lib, _name).restype, getattr(lib, _name).argtypes = _result, _arguments


class RankedMegaMoE(MegaMoE):
    """The layer of one rank of several: arguments of MegaMoE, for the experts and tokens of this rank. Rank n's experts
    are n * experts and following; first_expert is the id of rank 0's first one. All ranks make the same calls."""

    def __init__(self, weights, *, rank: int, ranks: int, **layer):
        if not 0 <= rank < ranks:
            raise LoadplanError(f"rank {rank} is not one of {ranks}", "argument")
        self._exchange = Exchange(size=c.sizeof(Exchange), rank=rank, ranks=ranks)
        super().__init__(weights, **layer)
        error = Error()
        self.buffer_bytes = lib.lp_moe_exchange_bytes(c.byref(self._shape), ranks, c.byref(error))
        if self.buffer_bytes == 0:
            raise failure(error, error.code)

    def _workspace_bytes(self) -> int:
        error = Error()
        needed = lib.lp_moe_exchange_workspace(c.byref(self._shape), self._exchange.ranks, c.byref(error))
        if needed == 0:
            raise failure(error, error.code)
        return needed

    @property
    def terms(self) -> str:
        """What must be equal on all ranks."""
        text = c.create_string_buffer(512)
        lib.lp_moe_exchange_terms(c.byref(self._shape), self._exchange.ranks, text, len(text))
        return text.value.decode()

    def connect(self, buffer: torch.Tensor, addresses: Sequence[int], *, shares_gpu: bool = False,
                timeout: float = 300.0) -> None:
        """The own buffer, and where this rank's GPU sees those of all ranks, its own among them. Clears the own one and
        waits for that; all ranks must have connected before one calls. timeout: seconds that a call waits for a peer.
        shares_gpu: other ranks use this GPU too. To be called again on all ranks after a failure."""
        e = self._exchange
        if len(addresses) != e.ranks:
            raise LoadplanError(f"{len(addresses)} addresses for {e.ranks} ranks", "argument")
        if buffer.data_ptr() != addresses[e.rank]:
            raise LoadplanError(f"the own buffer is not at the address of rank {e.rank}", "argument")
        e.timeout_ns, e.shares_gpu, e.buffer_bytes = int(timeout * 1e9), shares_gpu, buffer.numel() * buffer.itemsize
        for i, address in enumerate(addresses):
            e.buffer[i] = address
        self._buffer = buffer
        if self.device.type == "cuda":
            with torch.cuda.device(self.device):
                stream = torch.cuda.current_stream()
                check(lib.lp_moe_exchange_clear, buffer.data_ptr(), e.buffer_bytes, stream.cuda_stream)
                stream.synchronize()

    def _of_call(self, bound: int | None, x, topk_ids, topk_weight, **more):
        shape, io, y = self._prepare(x, topk_ids, topk_weight, **more)
        shape.max_tokens = self._shape.max_tokens
        shape.tokens_bound = bound or 0
        if bound is not None and x.shape[0] > bound:
            raise LoadplanError(f"'x' has {x.shape[0]} rows, the bound of this call is {bound}", "argument")
        return shape, io, y

    def check(self, x, topk_ids, topk_weight, *, bound=None, x_scale=None, out=None, tokens=None, received=None) -> None:
        """Raises what a call would refuse. Needs no GPU."""
        shape, io, _ = self._of_call(bound, x, topk_ids, topk_weight, x_scale=x_scale, out=out, tokens=tokens,
                                     received=received)
        check(lib.lp_moe_exchange_check, c.byref(shape), c.byref(self._weights), c.byref(io), c.byref(self._exchange),
              self._workspace.data_ptr(), self._workspace.numel())

    def __call__(self, x, topk_ids, topk_weight, *, bound: int | None = None, x_scale=None, out=None, tokens=None,
                 received=None) -> torch.Tensor:
        """y of the rows of x, on the current stream, as MegaMoE gives it. bound: most rows of any rank in this call, equal
        on all; without it max_tokens. A rank without tokens calls with no rows."""
        if self.device.type != "cuda":
            raise LoadplanError(f"the weights are on {self.device}: the kernels run on a GPU", "argument")
        if x.shape[0] == 0:  # it takes part all the same, and pointers must be some
            x, topk_ids, topk_weight = (t.new_zeros((1, *t.shape[1:])) for t in (x, topk_ids, topk_weight))
            x_scale = None if x_scale is None else x_scale.new_zeros((1, *x_scale.shape[1:]))
            none = torch.zeros(1, dtype=torch.int32, device=self.device)
            return self._run(bound, x, topk_ids, topk_weight, x_scale=x_scale, out=None, tokens=none, received=received)[:0]
        return self._run(bound, x, topk_ids, topk_weight, x_scale=x_scale, out=out, tokens=tokens, received=received)

    def _run(self, bound, x, topk_ids, topk_weight, **more) -> torch.Tensor:
        shape, io, y = self._of_call(bound, x, topk_ids, topk_weight, **more)
        with torch.cuda.device(self.device):
            check(lib.lp_moe_exchange_run, c.byref(shape), c.byref(self._weights), c.byref(io), c.byref(self._exchange),
                  self._workspace.data_ptr(), self._workspace.numel(), torch.cuda.current_stream().cuda_stream)
        return y

    def raise_failure(self) -> None:
        """Waits for the current stream, and raises what went wrong between ranks since they connected."""
        what = Failure()
        with torch.cuda.device(self.device):
            check(lib.lp_moe_exchange_failure, c.byref(self._exchange), torch.cuda.current_stream().cuda_stream,
                  c.byref(what))
