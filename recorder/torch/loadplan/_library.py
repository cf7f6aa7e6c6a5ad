# SPDX-License-Identifier: Apache-2.0
"""The C library seen from Python: where it is, the few structs that cross the border, and errors.

Structs are those of loadplan/trace.h, recorder.h and replayer.h; tests/python/struct_mirrors.py compares them with the
headers by a compiler.
"""

from __future__ import annotations

import ctypes as c
import os
import pathlib

P = c.POINTER


class Error(c.Structure):
    _fields_ = [
        ("code", c.c_int), ("text", c.c_char * 512), ("subject", c.c_char * 256), ("hint", c.c_char * 256),
        ("byte_off", c.c_int64),
    ]


class Scope(c.Structure):
    _fields_ = [
        ("pp", c.c_int32), ("pp_rank", c.c_int32), ("dp", c.c_int32), ("dp_rank", c.c_int32), ("tp", c.c_int32),
        ("tp_rank", c.c_int32), ("expert_parallel", c.c_bool),
    ]


class CheckpointTensor(c.Structure):
    _fields_ = [
        ("name", c.c_char_p), ("dtype", c.c_int), ("ndim", c.c_int32), ("shape", P(c.c_int64)), ("file", c.c_int32),
        ("file_off", c.c_int64), ("bytes", c.c_int64),
    ]


class CheckpointFile(c.Structure):
    _fields_ = [
        ("path", c.c_char_p), ("size_bytes", c.c_int64), ("mtime_ns", c.c_int64), ("inode", c.c_uint64),
        ("sha256", c.c_char_p),
    ]


class RecorderOptions(c.Structure):
    _fields_ = [
        ("loader", c.c_char_p), ("loader_version", c.c_char_p), ("configuration", c.c_char_p), ("target", c.c_char_p),
        ("platform", c.c_void_p),
    ]


class TraceHeader(c.Structure):
    _fields_ = [
        ("loader", c.c_char_p), ("loader_version", c.c_char_p), ("configuration", c.c_char_p), ("target", c.c_char_p),
        ("layout", Scope),
    ]


class Rule(c.Structure):
    _fields_ = [("id", c.c_char_p), ("sentence", c.c_char_p), ("level", c.c_int), ("of_diff", c.c_bool)]


class RawFinding(c.Structure):
    _fields_ = [
        ("rule", P(Rule)), ("level", c.c_int), ("family", c.c_char_p), ("members", c.c_int64), ("tensor", c.c_char_p),
        ("rank", c.c_int32), ("byte_lo", c.c_int64), ("byte_hi", c.c_int64), ("file", c.c_char_p), ("line", c.c_int32),
        ("text", c.c_char_p), ("hint", c.c_char_p),
        ("fingerprint", c.c_char_p), ("suppressed", c.c_char_p),
    ]


class DestinationMemory(c.Structure):
    _fields_ = [
        ("name", c.c_char_p), ("dtype", c.c_int), ("ndim", c.c_int32), ("shape", P(c.c_int64)), ("stride", P(c.c_int64)),
        ("data", c.c_void_p), ("storage", c.c_void_p), ("storage_bytes", c.c_int64), ("layout", c.c_char_p),
        ("layout_version", c.c_int32),
    ]


class BindOptions(c.Structure):
    # Options are zero by default and grow at their ends; `later` is room for what only a newer library knows.
    _fields_ = [
        ("staging", c.c_int64), ("experts", c.c_void_p), ("target", c.c_char_p), ("platform", c.c_void_p),
        ("threads", c.c_int32), ("experts_epoch_now", c.c_void_p), ("device", c.c_char_p), ("spill", c.c_int64),
        ("captures", c.c_bool), ("later", c.c_int64 * 8),
    ]


class SessionOptions(c.Structure):
    _fields_ = [
        ("mode", c.c_int), ("subset", P(c.c_char_p)), ("subset_count", c.c_int64), ("digests", c.c_bool),
        ("allow_fallbacks", c.c_bool), ("stream", c.c_void_p), ("sources", c.c_int), ("later", c.c_int64 * 8),
    ]


class Buffer(c.Structure):
    _fields_ = [
        ("data", c.c_void_p), ("dtype", c.c_int), ("ndim", c.c_int32), ("shape", P(c.c_int64)), ("stride", P(c.c_int64)),
        ("bytes", c.c_int64), ("memory", c.c_int), ("later", c.c_int64 * 8),
    ]


class RawReport(c.Structure):
    _fields_ = [(name, c.c_int64) for name in (
        "bytes_pushed", "bytes_written", "names_loaded", "names_ignored", "names_missing", "fallbacks", "derives_run",
        "derives_skipped", "groups_committed", "staging_peak_bytes", "tensors", "tensors_changed", "tensors_unchanged",
        "nanoseconds", "device_staging_peak_bytes")] + [("later", c.c_int64 * 8)]


ROW = c.CFUNCTYPE(c.c_int, c.c_void_p, c.c_int, P(c.c_char_p), c.c_bool)

OK, REFUSED, UNSUPPORTED = 0, -66, -3

_i, _l, _p, _s, _e = c.c_int, c.c_int64, c.c_void_p, c.c_char_p, P(Error)
_FUNCTIONS = {
    "lp_version": (_s,),
    "lp_status_name": (_s, _i),
    "lp_checkpoint_open": (_i, P(_p), _s, _e),
    "lp_checkpoint_close": (None, _p),
    "lp_checkpoint_count": (_l, _p),
    "lp_checkpoint_at": (P(CheckpointTensor), _p, _l),
    "lp_checkpoint_find": (_l, _p, _s),
    "lp_checkpoint_file_at": (P(CheckpointFile), _p, c.c_int32),
    "lp_recorder_open_with": (_i, P(_p), _p, P(Scope), P(RecorderOptions), _e),
    "lp_recorder_finish": (_i, _p, P(_p), _e),
    "lp_recorder_close": (None, _p),
    "lp_decline": (None, _p, _s),
    "lp_mirror_open": (_i, P(_p), _p, _e),
    "lp_mirror_close": (None, _p),
    "lp_mirror_source": (_l, _p, _l),
    "lp_mirror_destination": (_l, _p, _s, _p, _l, c.c_uint32, _s, _e),
    "lp_mirror_temporary": (_l, _p, _l),
    "lp_mirror_is_loaded": (c.c_bool, _p, _p),
    "lp_mirror_copy": (_i, _p, _s, _i, _p, _p, c.c_bool, _e),
    "lp_mirror_cast": (_i, _p, _s, _i, _p, _p, _e),
    "lp_mirror_fill": (_i, _p, _s, _i, _p, c.c_uint64, _l, _e),
    "lp_mirror_move": (_i, _p, _s, _i, _p, _p, _l, _p, _p, _e),
    "lp_mirror_compute": (_i, _p, _s, _i, _i, _p, _i, P(_p), P(c.c_double), c.c_uint32, _e),
    "lp_mirror_refuse": (_i, _p, _s, _i, _p, _i, P(_p), _s, _s, _e),
    "lp_mirror_require_close": (_i, _p, _s, _i, _p, _p, c.c_double, _s, _e),
    "lp_mirror_rebind": (_i, _p, _s, _i, _s, _p, _s, _e),
    "lp_mirror_leave": (c.c_bool, _p, _s),
    "lp_trace_open": (_i, P(_p), _s, _e),
    "lp_trace_close": (None, _p),
    "lp_trace_join": (_i, P(_p), P(_p), c.c_int32, P(c.c_int32), _p, _e),
    "lp_trace_save": (_i, _p, _s, c.c_bool, _e),
    "lp_trace_match": (_i, _p, _p, _e),
    "lp_trace_query": (_i, _p, _s, ROW, _p, _e),
    "lp_trace_header_of": (P(TraceHeader), _p),
    "lp_trace_set_digest": (_i, _p, P(c.c_uint8), _e),
    "lp_check": (_i, P(_p), _p, _e),
    "lp_diff": (_i, P(_p), _p, _p, _e),
    "lp_findings_count": (_l, _p),
    "lp_findings_at": (P(RawFinding), _p, _l),
    "lp_findings_worst": (_i, _p),
    "lp_findings_summary": (_s, _p),
    "lp_findings_free": (None, _p),
    "lp_bind": (_i, P(_p), _p, P(Scope), P(DestinationMemory), _l, P(BindOptions), _e),
    "lp_plan_close": (None, _p),
    "lp_begin": (_i, P(_p), _p, P(SessionOptions), _e),
    "lp_push": (_i, _p, _s, P(Buffer), _e),
    "lp_push_many": (_i, _p, _p, _p, _l, _e),
    "lp_plan_handle": (c.c_uint32, _p, _s),
    "lp_push_checkpoint": (_i, _p, _p, _e),
    "lp_mark_loaded": (_i, _p, _s, _e),
    "lp_finish": (_i, _p, P(RawReport), _e),
    "lp_session_close": (None, _p),
    "lp_session_missing": (_s, _p, P(_l)),
}


class LoadplanError(RuntimeError):
    """What a call of the library says: one line; `status` is its stable name, `hint` what to try next or ''."""

    def __init__(self, text: str, status: str = "", hint: str = ""):
        super().__init__(text + (f"; {hint}" if hint else ""))
        self.status = status
        self.hint = hint


def _candidates():
    override = os.environ.get("LOADPLAN_LIBRARY")
    if override:
        yield override
        return
    here = pathlib.Path(__file__).resolve()
    yield str(here.with_name("libloadplan.so"))
    if len(here.parents) > 3:
        yield str(here.parents[3] / "build" / "libloadplan.so")
    yield "libloadplan.so.0"


def _load():
    tried = []
    for path in _candidates():
        try:
            library = c.CDLL(path)
        except OSError as error:
            tried.append(str(error))
            continue
        for name, (result, *arguments) in _FUNCTIONS.items():
            function = getattr(library, name, None)
            if function is None:
                raise ImportError(f"{path} is another version of loadplan: it lacks {name}")
            function.restype, function.argtypes = result, arguments
        return library
    raise ImportError("cannot load libloadplan.so (set LOADPLAN_LIBRARY to its path): " + "; ".join(tried))


lib = _load()


def failure(error: Error, status: int) -> LoadplanError:
    name = lib.lp_status_name(status).decode()
    text = error.text.decode("utf-8", "replace") or name
    return LoadplanError(text, name, error.hint.decode("utf-8", "replace"))


def check(function, *arguments) -> None:
    """Calls a fallible function, its lp_error appended, and raises what it says."""
    error = Error()
    status = function(*arguments, c.byref(error))
    if status != OK:
        raise failure(error, status)


def scope_of(**coordinates) -> Scope:
    """A Scope from pp, dp, tp, their ranks and expert_parallel; sizes default to 1."""
    unknown = set(coordinates) - {name for name, _ in Scope._fields_}
    if unknown:
        raise TypeError(f"a scope has no {sorted(unknown)[0]!r}: it has pp, dp, tp, pp_rank, dp_rank, tp_rank, "
                        "expert_parallel")
    return Scope(**coordinates)
