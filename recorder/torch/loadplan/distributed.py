# SPDX-License-Identifier: Apache-2.0
"""Weights from the ranks of a trainer to those of servers, over sockets or NCCL: docs/distributed.md has the protocol.

    sender = loadplan.distributed.Sender(trace, "node0:7700", mode="delta")        # in the trainer, every rank
    for step in ...:
        sender.send(model.state_dict())

    receiver = loadplan.distributed.Receiver(plan, "node0:7700")                   # in the server, every rank
    while True:
        print(receiver.receive())

Both sides raise LoadplanError, which names the rank at fault, and may then try again: that is a new epoch."""

from __future__ import annotations

import ctypes as c
import dataclasses
import os
import sys
from typing import Iterable, Mapping

import torch

from ._forms import check_ordinary, torch_form
from ._library import Error, LoadplanError, P, RawReport, SessionOptions, check, lib
from ._session import Plan
from ._trace import Trace

_MODES = {"packed": 1, "sliced": 2, "delta": 3}
_LOADS = {"cold": 0, "direct": 1, "layerwise": 2}
_FAILED = -1  # LP_E_ARGUMENT


class Transport(c.Structure):
    # The library fills and reads it; nothing of it is called from here.
    _fields_ = [("size", c.c_size_t), ("context", c.c_void_p), ("later", c.c_void_p * 30)]


class TcpOptions(c.Structure):
    _fields_ = [
        ("host", c.c_char_p), ("port", c.c_int32), ("is_sender", c.c_bool), ("group", c.c_char_p), ("rank", c.c_int32),
        ("size", c.c_int32), ("servers", c.c_int32), ("listener", c.c_int32), ("is_alone", c.c_bool), ("join_ns", c.c_int64),
        ("stall_ns", c.c_int64), ("platform", c.c_void_p),
    ]


class SyncOptions(c.Structure):
    _fields_ = [
        ("is_sender", c.c_bool), ("group", c.c_char_p), ("mode", c.c_int), ("bucket", c.c_int64),
        ("no_content_id", c.c_bool), ("platform", c.c_void_p),
    ]


_READ = c.CFUNCTYPE(c.c_int, c.c_void_p, c.c_uint32, c.c_int64, c.c_int64, c.c_int64, c.c_int64, c.c_void_p, P(Error))


class SyncSource(c.Structure):
    _fields_ = [("context", c.c_void_p), ("holds", c.c_void_p), ("read", _READ), ("close", c.c_void_p),
                ("packer", c.c_void_p)]


class RawSyncReport(c.Structure):
    _fields_ = [("epoch", c.c_int64), ("mode", c.c_int)] + [(name, c.c_int64) for name in (
        "bytes_moved", "bytes_needed", "frames", "buffer_bytes", "shadow_bytes", "nanoseconds")] + [
        ("content", c.c_uint8 * 32), ("load", RawReport), ("later", c.c_int64 * 8)]


_p, _l, _s = c.c_void_p, c.c_int64, c.c_char_p
for _name, (_result, *_arguments) in {
    "lp_transport_tcp": (c.c_int, P(Transport), P(TcpOptions), P(Error)),
    "lp_transport_nccl": (c.c_int, P(Transport), P(Transport), c.c_int32, _p, P(Error)),
    "lp_transport_close": (None, P(Transport)),
    "lp_trace_checkpoint": (_p, _p),
    "lp_sync_open": (c.c_int, P(_p), P(Transport), _p, P(SyncOptions), P(Error)),
    "lp_sync_close": (None, _p),
    "lp_sync_source_plan": (c.c_int, P(SyncSource), _p, P(Error)),
    "lp_sync_source_close": (None, P(SyncSource)),
    "lp_sync_send": (c.c_int, _p, P(SyncSource), _l, P(RawSyncReport), P(Error)),
    "lp_sync_recv": (c.c_int, _p, _p, P(SessionOptions), _l, P(RawSyncReport), P(Error)),
}.items():
    getattr(lib, _name).restype, getattr(lib, _name).argtypes = _result, _arguments


@dataclasses.dataclass(frozen=True)
class Report:
    """One epoch: what moved, in bytes of payload, and how it was served (a delta may have been everything)."""

    epoch: int
    mode: str
    bytes_moved: int
    bytes_needed: int
    nanoseconds: int
    content: str  # content id in hex; '' when the senders do not know it


def _report(raw: RawSyncReport) -> Report:
    modes = {number: name for name, number in _MODES.items()}
    content = bytes(raw.content)
    return Report(raw.epoch, modes.get(raw.mode, "?"), raw.bytes_moved, raw.bytes_needed, raw.nanoseconds,
                  content.hex() if any(content) else "")


class _Rank:
    """One rank at the meeting point. rank and size default to those of torchrun. transport "nccl": payloads go between
    GPUs, by default the one of LOCAL_RANK; those of plans on that GPU never leave its memory."""

    def __init__(self, trace: Trace, rendezvous: str, *, is_sender: bool, rank, size, group, servers, join_timeout,
                 stall_timeout, transport, gpu, mode=0, bucket=0, content_id=True):
        host, _, port = rendezvous.rpartition(":")
        if not host or not port.isdigit():
            raise ValueError(f"{rendezvous!r} is no HOST:PORT")
        self._trace = trace
        if transport not in ("tcp", "nccl"):
            raise ValueError(f"{transport!r} is no transport: tcp or nccl")
        self._transport, self._nccl, self._sync = Transport(), Transport(), c.c_void_p()
        rank = int(os.environ.get("RANK", 0)) if rank is None else rank
        size = int(os.environ.get("WORLD_SIZE", 1)) if size is None else size
        tcp = TcpOptions(host=host.strip("[]").encode(), port=int(port), is_sender=is_sender, group=group.encode(), rank=rank,
                         size=size, servers=servers, join_ns=int(join_timeout * 1e9), stall_ns=int(stall_timeout * 1e9))
        check(lib.lp_transport_tcp, c.byref(self._transport), c.byref(tcp))
        options = SyncOptions(is_sender=is_sender, group=group.encode(), mode=mode, bucket=bucket,
                              no_content_id=not content_id)
        try:
            if transport == "nccl":
                gpu = int(os.environ.get("LOCAL_RANK", 0)) if gpu is None else gpu
                check(lib.lp_transport_nccl, c.byref(self._nccl), c.byref(self._transport), gpu, None)
            payloads = self._nccl if transport == "nccl" else self._transport
            check(lib.lp_sync_open, c.byref(self._sync), c.byref(payloads), trace._handle, c.byref(options))
        except LoadplanError:
            self.close()
            raise

    def close(self) -> None:
        """Leaves the meeting; at sender 0 it ends for all."""
        sync, self._sync = self._sync, None
        if sync is None:
            return
        lib.lp_sync_close(sync)
        lib.lp_transport_close(c.byref(self._nccl))
        lib.lp_transport_close(c.byref(self._transport))

    def _check_open(self) -> None:
        if self._sync is None:
            raise LoadplanError("this rank has left the meeting: it was closed", "LP_E_MISUSE")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __del__(self, is_finalizing=sys.is_finalizing):  # at the end of Python what close() needs may be gone
        if getattr(self, "_sync", None) is not None and not is_finalizing():
            self.close()


def _bytes_of(name: str, tensors: Mapping[str, torch.Tensor]) -> torch.Tensor:
    if name not in tensors:
        raise LoadplanError(f"'{name}' is not among the weights", "LP_E_UNKNOWN_NAME")
    return tensors[name].detach().resolve_conj().resolve_neg().contiguous().reshape(-1).view(torch.uint8)


def _copied(name: str, tensor: torch.Tensor) -> torch.Tensor:
    check_ordinary(name, tensor)
    return tensor.detach().to("cpu", copy=True)


class Sender(_Rank):
    """A rank that has every checkpoint tensor whole, on the CPU or on a device, or what a plan of its own trace put into
    its live tensors. Sender 0 is where all meet."""

    def __init__(self, trace: Trace, rendezvous: str, mode: str = "packed", *, rank: int | None = None,
                 size: int | None = None, servers: int = 1, bucket: int = 0, content_id: bool = True,
                 join_timeout: float = 300, stall_timeout: float = 60, transport: str = "tcp", gpu: int | None = None):
        self._plan, self._source = None, SyncSource()
        super().__init__(trace, rendezvous, is_sender=True, rank=rank, size=size, group="", servers=servers,
                         join_timeout=join_timeout, stall_timeout=stall_timeout, transport=transport, gpu=gpu,
                         mode=_MODES[mode], bucket=bucket,
                         content_id=content_id)
        catalogue = lib.lp_trace_checkpoint(trace._handle)
        self._catalogue = [lib.lp_checkpoint_at(catalogue, i).contents for i in range(lib.lp_checkpoint_count(catalogue))]
        self._names = [row.name.decode() for row in self._catalogue]
        self._forms: dict[str, tuple[torch.dtype, torch.Size]] = {}  # of what was sent

    def close(self) -> None:
        if self._sync is not None:
            lib.lp_sync_source_close(c.byref(self._source))
        self._plan = None
        super().close()

    def _judge(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Whether the tensors are what the checkpoint has under their names."""
        for row, name in zip(self._catalogue, self._names):
            tensor = tensors.get(name)
            if tensor is None:
                continue
            check_ordinary(name, tensor)
            if name not in self._forms:
                dtype, shape = torch_form(row)
                self._forms[name] = dtype, torch.Size(shape)
            dtype, shape = self._forms[name]
            if tensor.numel() > 0 and tensor.data_ptr() == 0:
                raise LoadplanError(f"'{name}' is sent without data", "LP_E_ARGUMENT")
            if tensor.dtype != dtype or tensor.shape != shape:
                raise LoadplanError(f"'{name}' is sent as {tensor.dtype} {list(tensor.shape)}, the trace knows it as "
                                    f"{dtype} {list(shape)}", "LP_E_MISMATCH")

    def _send_plan(self, plan: Plan, epoch: int) -> Report:
        raw = RawSyncReport()
        plan.check_places()
        if self._plan is not plan:  # how its frames are packed is kept from epoch to epoch
            lib.lp_sync_source_close(c.byref(self._source))
            self._plan = None
            check(lib.lp_sync_source_plan, c.byref(self._source), plan._plan)
            self._plan = plan
        if torch.cuda.is_available():
            torch.cuda.synchronize()  # what wrote the tensors is done
        check(lib.lp_sync_send, self._sync, c.byref(self._source), epoch, c.byref(raw))
        return _report(raw)

    def send(self, weights: Plan | Mapping[str, torch.Tensor] | Iterable[tuple[str, torch.Tensor]],
             epoch: int = 0) -> Report:
        """One epoch: returns when every receiver has it. weights: all checkpoint tensors by name, or a plan of the own
        trace whose live tensors hold them, which must not change meanwhile; or pairs, each of which is copied to the host
        when it comes, as its memory may serve the next one."""
        self._check_open()
        if isinstance(weights, Plan):
            return self._send_plan(weights, epoch)
        tensors = dict(weights) if isinstance(weights, Mapping) else {name: _copied(name, tensor) for name, tensor in weights}
        flat: dict[int, torch.Tensor] = {}
        problem: list[BaseException] = []

        def read(_, number, lo, run, stride, count, out, error):
            try:
                if not flat:  # before the first byte of the epoch moves
                    self._judge(tensors)
                if number not in flat:
                    flat[number] = _bytes_of(self._names[number], tensors)
                part = flat[number]
                part = torch.as_strided(part, (count, run), (stride if count > 1 else run, 1), part.storage_offset() + lo)
                part = part.contiguous().cpu()
                c.memmove(out, part.data_ptr(), count * run)
                return 0
            except BaseException as wrong:  # the library has to end the epoch for all first
                problem.append(wrong)
                error.contents.code, error.contents.text = _FAILED, str(wrong).encode()[:500]
                return _FAILED

        source, raw = SyncSource(read=_READ(read)), RawSyncReport()
        try:
            check(lib.lp_sync_send, self._sync, c.byref(source), epoch, c.byref(raw))
        except LoadplanError:
            if problem:
                raise problem[0]
            raise
        return _report(raw)


class Receiver(_Rank):
    """A rank of a server; `plan` is bound to its live tensors."""

    def __init__(self, plan: Plan, rendezvous: str, *, rank: int | None = None, size: int | None = None,
                 group: str = "server", join_timeout: float = 300, stall_timeout: float = 60, transport: str = "tcp",
                 gpu: int | None = None):
        super().__init__(plan.trace, rendezvous, is_sender=False, rank=rank, size=size, group=group, servers=0,
                         join_timeout=join_timeout, stall_timeout=stall_timeout, transport=transport, gpu=gpu)
        self._bound = plan

    def receive(self, mode: str = "direct", *, epoch: int = 0, allow_fallbacks: bool = False) -> Report:
        """One epoch: returns when every rank of all servers has it, else raises and the tensors hold nothing whole."""
        options, raw = SessionOptions(mode=_LOADS[mode], allow_fallbacks=allow_fallbacks), RawSyncReport()
        self._check_open()
        self._bound.check_places()
        check(lib.lp_sync_recv, self._sync, self._bound._plan, c.byref(options), epoch, c.byref(raw))
        return _report(raw)
