# SPDX-License-Identifier: Apache-2.0
"""Code that opens safetensors files by itself gets stand-ins too: safe_open is replaced while a recording lasts."""

from __future__ import annotations

import json
import os
import sys

import torch

DTYPES = ("BOOL", "F4", "F6_E2M3", "F6_E3M2", "U8", "I8", "F8_E5M2", "F8_E4M3", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ",
           "I16", "U16", "F16", "BF16", "I32", "U32", "F32", "C64", "F64", "I64", "U64")  # by lp_dtype, from 1


def real_path(path) -> str:
    return os.path.realpath(os.fsdecode(path))


def by_real_path(recording) -> dict[str, dict[str, int]]:
    """Names and their places in each file of the checkpoint."""
    return {real_path(path): names for path, names in recording.catalogue.files().items()}


class _Slice:
    """What get_slice() returns: a tensor that is indexed before it is read."""

    def __init__(self, opened: "_Opened", name: str):
        self._opened, self._name = opened, name

    def get_shape(self) -> list[int]:
        return list(self._opened.form(self._name)[1])

    def get_dtype(self) -> str:
        return self._opened.form(self._name)[0]

    def __getitem__(self, index):
        return self._opened.get_tensor(self._name)[index]


class _Opened:
    """safe_open() of one file of the checkpoint."""

    def __init__(self, recording, names: dict[str, int], really, device="cpu"):
        self._recording, self._names, self._really = recording, names, really
        self._is_on_gpu = torch.device(device).type == "cuda"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return None

    def keys(self) -> list[str]:
        return sorted(self._names)

    def offset_keys(self) -> list[str]:
        return sorted(self._names, key=self._names.get)

    def metadata(self):
        with self._really() as opened:
            return opened.metadata()

    def form(self, name: str):
        catalogue = self._recording.catalogue
        tensor = catalogue.at(catalogue.index(name))
        return DTYPES[tensor.dtype - 1], [tensor.shape[i] for i in range(tensor.ndim)]

    def get_tensor(self, name: str):
        return self._recording.tensor(name, self._is_on_gpu)

    def get_tensors(self) -> dict:
        return {name: self.get_tensor(name) for name in self.offset_keys()}

    def get_slice(self, name: str) -> _Slice:
        return _Slice(self, name)


def _names_in(data: bytes) -> set[str]:
    """Of the tensors in the bytes of a safetensors file."""
    try:
        header = json.loads(data[8:8 + int.from_bytes(data[:8], "little")])
        return set(header) - {"__metadata__"}
    except (ValueError, TypeError):
        return set()  # the real function says what is wrong with it


# There are thousands of modules, and few change after they were imported: by address of their members, how many there
# were, and which were safe_open.
_looked_at: dict[tuple[int, int], tuple[int, list[str]]] = {}


def _names_of(module, wanted) -> list[str]:
    """What a module calls `wanted`."""
    members = getattr(module, "__dict__", None)
    if not isinstance(members, dict):
        return []
    count, names = _looked_at.get((id(members), id(wanted)), (-1, []))
    if count != len(members):
        names = [name for name, value in list(members.items()) if value is wanted]
        _looked_at[id(members), id(wanted)] = len(members), names
    return [name for name in names if members.get(name) is wanted]


class Files:
    """Replaces safetensors.safe_open and safetensors.torch.load, wherever they were imported to, for the files of a
    recording's checkpoint."""

    def __init__(self, recording):
        self._recording = recording
        self._files: dict[str, dict[str, int]] = {}
        self._replaced: list[tuple[object, str, object]] = []

    def __enter__(self) -> None:
        try:
            import safetensors.torch
        except ImportError:
            return  # then nobody opens such files by it
        recording, original, original_load = self._recording, safetensors.safe_open, safetensors.torch.load
        files = self._files = by_real_path(recording)

        def safe_open(filename, framework="pt", *arguments, **options):
            names = files.get(real_path(filename))
            if names is None or framework not in ("pt", "torch", "pytorch"):
                return original(filename, framework, *arguments, **options)
            device = arguments[0] if arguments else options.get("device", "cpu")
            return _Opened(recording, names, lambda: original(filename, framework), device)

        def load(data):
            wanted = _names_in(data) if files else ()
            if not wanted or all(wanted != names.keys() for names in files.values()):
                return original_load(data)
            return {name: recording.tensor(name) for name in sorted(wanted)}

        self._replace(original, safe_open)
        self._replace(original_load, load)

    def _replace(self, original, by) -> None:
        for module in list(sys.modules.values()):
            for name in _names_of(module, original):
                self._replaced.append((module, name, original))
                setattr(module, name, by)

    def __exit__(self, *_) -> None:
        self._files.clear()  # a module that was imported meanwhile may keep what stood in
        for module, name, original in self._replaced:
            setattr(module, name, original)
        self._replaced.clear()
