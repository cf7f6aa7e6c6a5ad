# SPDX-License-Identifier: Apache-2.0
"""The names of a checkpoint: what its headers say of each tensor, and in which file it lies where."""

from __future__ import annotations

import ctypes as c
import functools
import os
import re

from ._library import CheckpointTensor, LoadplanError, check, lib


def _natural(name: str):
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", name)]


class Catalogue:
    """An open checkpoint. A tensor's index is the one that the library knows it by."""

    def __init__(self, path: str | os.PathLike):
        self.handle = c.c_void_p()
        check(lib.lp_checkpoint_open, c.byref(self.handle), os.fsencode(path))

    def close(self) -> None:
        handle, self.handle = self.handle, None
        if handle:
            lib.lp_checkpoint_close(handle)

    def __len__(self) -> int:
        return lib.lp_checkpoint_count(self.handle)

    def at(self, index: int) -> CheckpointTensor:
        return lib.lp_checkpoint_at(self.handle, index).contents

    def index(self, name: str) -> int:
        index = self._indices.get(name)
        if index is None:
            raise LoadplanError(f"no checkpoint tensor '{name}'", "LP_E_UNKNOWN_NAME")
        return index

    @functools.cached_property
    def _listed(self) -> list[tuple[str, str, int]]:
        """File, name and place in the file of every tensor; no file: a trace stands in for the checkpoint."""
        paths: dict[int, str] = {-1: ""}
        listed = []
        for i in range(len(self)):
            t = self.at(i)
            file = t.file
            if file not in paths:
                paths[file] = os.fsdecode(lib.lp_checkpoint_file_at(self.handle, file).contents.path)
            listed.append((paths[file], t.name.decode(), t.file_off))
        return listed

    @functools.cached_property
    def _indices(self) -> dict[str, int]:
        return {name: i for i, (_, name, _) in enumerate(self._listed)}

    def files(self) -> dict[str, dict[str, int]]:
        """Names and their places in each file."""
        found: dict[str, dict[str, int]] = {}
        for path, name, place in self._listed:
            if path:
                found.setdefault(path, {})[name] = place
        return found

    def names(self) -> list[str]:
        """File by file in natural order, in alphabetical order within a file."""
        order = {path: i for i, path in enumerate(sorted({path for path, _, _ in self._listed}, key=_natural))}
        return [name for path, name, _ in sorted(self._listed, key=lambda x: (order[x[0]], x[1]))]
