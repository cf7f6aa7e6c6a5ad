# SPDX-License-Identifier: Apache-2.0
"""A recording sees its own thread, those that are started while it lasts, and what executors run meanwhile."""

from __future__ import annotations

import concurrent.futures.thread as executor
import threading
from typing import Callable


class Threads:
    """Enters a mode of its own on every thread. PyTorch's modes belong to one thread; loaders read files and copy
    weights on several. `make` gives a mode that is inert after the recording."""

    def __init__(self, make: Callable):
        self._make, self._here = make, threading.local()

    def _seen(self, run: Callable, *arguments):
        if getattr(self._here, "mode", None) is not None:
            return run(*arguments)
        self._here.mode = self._make()
        try:
            with self._here.mode:
                return run(*arguments)
        finally:
            self._here.mode = None

    def __enter__(self) -> None:
        self._here.mode = self  # this thread has one already
        self._start, self._work = threading.Thread.start, executor._WorkItem.run
        start, work, seen = self._start, self._work, self._seen

        def start_seen(thread):
            run = thread.run
            thread.run = lambda: seen(run)
            start(thread)

        def work_seen(item, *arguments):
            return seen(work, item, *arguments)

        threading.Thread.start, executor._WorkItem.run = start_seen, work_seen

    def __exit__(self, *_) -> None:
        threading.Thread.start, executor._WorkItem.run = self._start, self._work
        self._here.mode = None
