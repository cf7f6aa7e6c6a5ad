# SPDX-License-Identifier: Apache-2.0
"""Traces and what is found in them."""

from __future__ import annotations

import ctypes as c
import dataclasses
import hashlib
import os
import struct
from typing import Iterable, Iterator

from ._library import ROW, LoadplanError, check, lib

_LEVELS = ("allow", "warn", "deny")


@dataclasses.dataclass(frozen=True)
class Finding:
    """One rule broken by a family of tensors; the texts are about its first member, `tensor`."""

    rule: str
    level: str
    family: str
    members: int
    tensor: str
    rank: int
    file: str
    line: int
    text: str
    hint: str
    fingerprint: str  # the same as long as the finding is, whatever line the loader is on

    def __str__(self) -> str:
        return f"{self.level} {self.rule}: {self.text}"


class FindingsError(LoadplanError):
    """Findings that should not be there."""


class Findings(list):
    """Findings, those that deny first; `summary` is one line."""

    def __init__(self, handle):
        self.summary = lib.lp_findings_summary(handle).decode()
        for i in range(lib.lp_findings_count(handle)):
            f = lib.lp_findings_at(handle, i).contents
            self.append(Finding(f.rule.contents.id.decode(), _LEVELS[f.level], f.family.decode(), f.members,
                                f.tensor.decode(), f.rank, f.file.decode(), f.line, f.text.decode(), f.hint.decode(),
                                (f.fingerprint or b"").decode()))
        lib.lp_findings_free(handle)

    @property
    def worst(self) -> str:
        return max((f.level for f in self), key=_LEVELS.index, default="allow")

    def raise_for_findings(self, level: str = "deny") -> None:
        """Raises FindingsError when there is a finding of `level` ("warn" or "deny") or above."""
        bad = [f for f in self if _LEVELS.index(f.level) >= _LEVELS.index(level)]
        if bad:
            raise FindingsError("\n".join([self.summary, *map(str, bad)]))


@dataclasses.dataclass(frozen=True)
class Header:
    """What a trace was recorded by and for; part of its structure key."""

    loader: str
    loader_version: str
    configuration: dict[str, str]
    target: str
    pp: int
    dp: int
    tp: int
    expert_parallel: bool


@dataclasses.dataclass(frozen=True, order=True)
class Rank:
    """One rank of a trace: its number, coordinates and plan digest."""

    rank: int
    pp_rank: int
    dp_rank: int
    tp_rank: int
    plan_digest: str


def set_digest(header: Header, ranks: Iterable[Rank]) -> str:
    """The set digest of ranks whose traces are separate files: what one trace of all of them would have."""
    ranks = sorted(ranks)

    def numbers(*values: int) -> bytes:
        return struct.pack(f"<{len(values)}q", *values)

    what = b"loadplan set 1"
    digest = hashlib.sha256(numbers(len(what)) + what + numbers(len(ranks)))
    for r in ranks:
        digest.update(numbers(header.pp, r.pp_rank, header.dp, r.dp_rank, header.tp, r.tp_rank, header.expert_parallel))
        digest.update(bytes.fromhex(r.plan_digest))
    return digest.hexdigest()


class Trace:
    """A load plan: which bytes of a checkpoint go where. Made by record() or Trace.open()."""

    def __init__(self, handle: int):
        self._handle = c.c_void_p(handle)
        self.rebound: tuple[str, ...] = ()  # known where it was recorded: parameters that the loader replaced, whose
        #                                     addresses move; a replay writes to what stands there after such a load
        self.unrecorded: tuple[str, ...] = ()  # likewise: writes of which no name is the cause, and that are not in here
        self.initialised: tuple[str, ...] = ()  # likewise: destinations that the loader gave values that are not in here

    @classmethod
    def open(cls, path: str | os.PathLike) -> "Trace":
        handle = c.c_void_p()
        check(lib.lp_trace_open, c.byref(handle), os.fsencode(path))
        return cls(handle.value)

    def __del__(self):
        handle, self._handle = getattr(self, "_handle", None), None
        if handle:
            lib.lp_trace_close(handle)

    def save(self, path: str | os.PathLike, overwrite: bool = False) -> None:
        """Writes the file whole or not at all; an existing one is an error unless `overwrite`."""
        check(lib.lp_trace_save, self._handle, os.fsencode(path), overwrite)

    def match(self, checkpoint: str | os.PathLike) -> None:
        """LoadplanError (LP_E_STALE) unless the checkpoint has the names, dtypes and shapes that this was recorded for."""
        handle = c.c_void_p()
        check(lib.lp_checkpoint_open, c.byref(handle), os.fsencode(checkpoint))
        try:
            check(lib.lp_trace_match, self._handle, handle)
        finally:
            lib.lp_checkpoint_close(handle)

    def check(self) -> Findings:
        handle = c.c_void_p()
        check(lib.lp_check, c.byref(handle), self._handle)
        return Findings(handle)

    def diff(self, changed: "Trace") -> Findings:
        """What `changed` does otherwise than this trace."""
        handle = c.c_void_p()
        check(lib.lp_diff, c.byref(handle), self._handle, changed._handle)
        return Findings(handle)

    @property
    def digest(self) -> str:
        """The set digest: equal ones load the same bytes to the same places."""
        digest = (c.c_uint8 * 32)()
        check(lib.lp_trace_set_digest, self._handle, digest)
        return bytes(digest).hex()

    @property
    def header(self) -> Header:
        h = lib.lp_trace_header_of(self._handle).contents
        lines = (line.partition("=") for line in h.configuration.decode().splitlines())
        return Header(h.loader.decode(), h.loader_version.decode(), {key: value for key, _, value in lines},
                      h.target.decode(), h.layout.pp, h.layout.dp, h.layout.tp, h.layout.expert_parallel)

    @property
    def ranks(self) -> list[Rank]:
        return [Rank(*(int(row[k]) for k in ("rank", "pp_rank", "dp_rank", "tp_rank")), row["plan_digest"])
                for row in self.query("SELECT rank, pp_rank, dp_rank, tp_rank, plan_digest FROM v_scopes")]

    def query(self, sql: str) -> list[dict]:
        """Rows of a SELECT over v_records, v_destinations, v_derives, v_refusals, v_names, v_scopes; values are text."""
        columns: list[str] = []
        rows: list[dict] = []

        def take(_, count, values, is_header):
            texts = [None if values[i] is None else values[i].decode("utf-8", "replace") for i in range(count)]
            if is_header:
                columns.extend(texts)
            else:
                rows.append(dict(zip(columns, texts)))
            return 0

        check(lib.lp_trace_query, self._handle, sql.encode(), ROW(take), None)
        return rows

    @property
    def rows(self) -> list[dict]:
        """All records."""
        return self.query("SELECT * FROM v_records")

    @property
    def refusals(self) -> list[dict]:
        return self.query("SELECT * FROM v_refusals")

    def __iter__(self) -> Iterator[dict]:
        return iter(self.rows)


def join(traces: Iterable[Trace]) -> Trace:
    """One trace of all the ranks that these hold, as processes record them one by one. LoadplanError unless they come from
    one loader, configuration, layout and checkpoint, and hold different ranks."""
    traces = list(traces)
    parts = (c.c_void_p * len(traces))(*(t._handle for t in traces))
    handle = c.c_void_p()
    check(lib.lp_trace_join, c.byref(handle), parts, len(traces), None, None)
    joined = Trace(handle.value)
    joined.rebound = tuple(dict.fromkeys(name for t in traces for name in t.rebound))
    joined.unrecorded = tuple(what for t in traces for what in t.unrecorded)
    joined.initialised = tuple(dict.fromkeys(name for t in traces for name in t.initialised))
    return joined
