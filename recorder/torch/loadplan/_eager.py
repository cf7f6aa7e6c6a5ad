# SPDX-License-Identifier: Apache-2.0
"""Compiled functions of a loader run as they are written while a recording lasts: a compiler would follow the recorder's own
code with them, for minutes, and what it makes of them shows fewer operations."""

from __future__ import annotations

import functools
import sys

import torch


class Eager:
    """PyTorch's compiler stands still, also one that is loaded only while the recording lasts."""

    def _stand_still(self) -> None:
        if self._stance is None:
            self._stance = torch.compiler.set_stance("force_eager")
            self._stance.__enter__()

    def __enter__(self) -> None:
        self._stance, self._compile = None, torch.compile
        if "torch._dynamo" in sys.modules:  # importing it takes seconds
            self._stand_still()

        @functools.wraps(self._compile)
        def compile_later(*arguments, **options):
            made = self._compile(*arguments, **options)
            self._stand_still()
            return made

        torch.compile = compile_later

    def __exit__(self, *what) -> None:
        torch.compile = self._compile
        if self._stance is not None:
            self._stance.__exit__(*what)
