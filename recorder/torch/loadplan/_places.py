# SPDX-License-Identifier: Apache-2.0
"""Where in the loader something happens."""

from __future__ import annotations

import os
import sys

import torch


def _without_prefix(path: str) -> str:
    """A loader's file as a reader knows it: relative to where Python imports from."""
    roots = [root for root in sys.path if root and path.startswith(root.rstrip("/") + "/")]
    return path[len(max(roots, key=len).rstrip("/")) + 1:] if roots else path


class Places:
    """The loader's file and line: the innermost frame outside torch and this package."""

    def __init__(self):
        self._own = (torch.__path__[0] + "/", __file__.rsplit("/", 1)[0] + "/")
        self._library = os.__file__.rsplit("/", 1)[0] + "/"
        self._file: dict[str, bytes | None] = {}

    def _look_up(self, path: str) -> bytes | None:
        skip = path.startswith(self._own) or path.startswith("<") or (
            path.startswith(self._library) and "-packages/" not in path)
        self._file[path] = found = None if skip else _without_prefix(path).encode("utf-8", "replace")
        return found

    def here(self) -> tuple[bytes, int]:
        frame = sys._getframe(2)
        files = self._file
        while frame is not None:
            code = frame.f_code
            path = code.co_filename
            file = files.get(path, 0)
            if file == 0:
                file = self._look_up(path)
            if file is not None and code.co_name != "__torch_function__":
                return file, frame.f_lineno
            frame = frame.f_back
        return b"", 0

    def of_traceback(self, traceback) -> tuple[str, int]:
        """Where an exception came from: its innermost frame in the loader."""
        place = "", 0
        while traceback is not None:
            path = traceback.tb_frame.f_code.co_filename
            file = self._file[path] if path in self._file else self._look_up(path)
            if file is not None:
                place = file.decode(), traceback.tb_lineno
            traceback = traceback.tb_next
        return place
