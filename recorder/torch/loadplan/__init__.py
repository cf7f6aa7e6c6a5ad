# SPDX-License-Identifier: Apache-2.0
"""loadplan: record what a PyTorch weight loader does, as a plan; check it, compare it, replay it."""

from ._library import LoadplanError, lib
from ._record import Recording, capture, record
from ._session import Bundle, Plan, Report, Session, replay
from ._trace import Finding, Findings, FindingsError, Trace, join

__all__ = ["Bundle", "Finding", "Findings", "FindingsError", "LoadplanError", "Plan", "Recording", "Report",
           "Session", "Trace", "capture", "join", "record", "replay"]

__version__ = lib.lp_version().decode()
