# SPDX-License-Identifier: Apache-2.0
"""Packages that read safetensors files by C++ code of their own hand out stand-ins too while a recording lasts: Run:ai's
streamer, fastsafetensors and InstantTensor. Nothing of the files is read but their headers."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
from types import SimpleNamespace

from ._files import by_real_path, real_path
from ._forms import torch_form


class _Stream:
    """The tensors of some files, in the order of their bytes; `wanted` says which."""

    def __init__(self, recording, files: list[dict[str, int]], device, wanted=None):
        self._recording, self._on_gpu = recording, not str(device).startswith("cpu")  # InstantTensor's may be a number
        self.names = [[name for name in sorted(names, key=names.get) if wanted is None or wanted(name)] for names in files]

    def tensor(self, name: str):
        return self._recording.tensor(name, self._on_gpu)

    def tensors(self):
        for names in self.names:
            for name in names:
                yield name, self.tensor(name)

    def form(self, name: str) -> SimpleNamespace:
        catalogue = self._recording.catalogue
        dtype, shape = torch_form(catalogue.at(catalogue.index(name)))
        return SimpleNamespace(name=name, dtype=dtype, shape=shape)


# ---- Run:ai's streamer


def _runai(recording, files, package, replace) -> None:
    kind = package.SafetensorsStreamer
    stream_files, get_tensors = kind.stream_files, kind.get_tensors

    def stream(self, paths, *arguments, **options):
        self.loadplan = None
        found = [files.get(real_path(path)) for path in paths]
        if None in found:
            return stream_files(self, paths, *arguments, **options)
        given = inspect.signature(stream_files).bind(self, paths, *arguments, **options).arguments
        only = given.get("tensor_names")
        self.loadplan = _Stream(recording, found, given.get("device", "cpu"), None if only is None else set(only).__contains__)
        self.files_to_tensors_metadata = {i: [self.loadplan.form(name) for name in names]
                                          for i, names in enumerate(self.loadplan.names)}

    def tensors(self):
        streamed = getattr(self, "loadplan", None)
        return get_tensors(self) if streamed is None else streamed.tensors()

    replace(kind, "stream_files", stream)
    replace(kind, "get_tensors", tensors)


# ---- fastsafetensors


class _Buffer(_Stream):
    """What copy_files_to_device() returns: its tensors, whole or cut into shards along a dimension. Each rank cuts its own
    stand-ins, where the package sends shards from the rank that read the file."""

    def __init__(self, recording, loader, files, dtype, wrap):
        wanted = getattr(loader, "_tensor_filter", None)
        if parts := getattr(loader, "_chunk_plan", None):
            wanted = set().union(*(names for names, *_ in parts.values())).__contains__
        super().__init__(recording, files, loader.device.as_str(), wanted)
        self._group, self._device, self._dtype, self._wrap = loader.pg, loader.device, dtype, wrap
        self._frames = {name: (frame, path, rank) for path, (header, rank) in loader.meta.items()
                        for name, frame in header.tensors.items()}
        self.key_to_rank_lidx = {name: (self._frames[name][2], 0) for names in self.names for name in names}

    def close(self) -> None:
        return None

    def get_filename(self, name: str) -> str:
        return self._frames[name][1]

    def get_shape(self, name: str) -> list[int]:
        return self._frames[name][0].shape

    def _shard(self, name: str, dim: int):
        if name not in self.key_to_rank_lidx:
            raise ValueError(f"{name} was not found in files")
        tensor = self.tensor(name)
        if dim == -1 or self._group.size() == 1:
            return tensor
        step = -(-tensor.size(dim) // self._group.size())
        begin = min(self._group.rank() * step, tensor.size(dim))
        return tensor.narrow(dim, begin, min(step, tensor.size(dim) - begin))

    def _as(self, tensor, name: str, device, dtype):
        made = self._wrap(self._device, self._frames[name][0].dtype, tensor).to(dtype=self._dtype)
        return made.to(device=device, dtype=dtype or self._dtype)

    def get_sharded_wrapped(self, name: str, dim: int, device=None, dtype=None):
        return self._as(self._shard(name, dim), name, device, dtype)

    def get_sharded(self, name: str, dim: int, device=None, dtype=None):
        return self.get_sharded_wrapped(name, dim, device, dtype).get_raw()

    def get_tensor_wrapped(self, name: str, device=None, dtype=None):
        return self.get_sharded_wrapped(name, -1, device, dtype)

    def get_tensor(self, name: str, device=None, dtype=None):
        return self.get_sharded(name, -1, device, dtype)

    def push_tensor(self, name: str, dst_rank: int, device=None, dtype=None):
        if self._group.size() > 1 and self._group.rank() != dst_rank:
            return None
        return self.get_tensor(name, device, dtype)

    def get_multi_cols(self, names, dim: int, device=None, dtype=None):
        import torch
        return self._as(torch.cat([self._shard(name, dim) for name in names], dim), names[0], device, dtype)

    def as_dict(self, dims) -> dict:
        return {name: self.get_sharded_wrapped(name, dim) for name, dim in dims.items()}

    def iter_local_tensors(self, names):
        return ((name, self.get_tensor(name)) for name in names)

    def _iter_tensors(self, names, *_):
        return self.iter_local_tensors(names)


def _fastsafetensors(recording, files, package, replace) -> None:
    kind = package.loader.BaseSafeTensorsFileLoader
    copy_files = kind.copy_files_to_device
    auto = package.st_types.DType.AUTO
    wrap = importlib.import_module(package.__name__ + ".frameworks._torch").TorchTensor

    def copy(self, dtype=auto, *arguments, **options):
        found = [files.get(real_path(path)) for path in self.meta]
        if None in found:
            return copy_files(self, dtype, *arguments, **options)
        return _Buffer(recording, self, found, dtype, wrap)

    replace(kind, "copy_files_to_device", copy)


# ---- InstantTensor


class _Instant(_Stream):
    """Its safe_open() of files of the checkpoint."""

    total_tensor_size = 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return None

    def offset_keys(self) -> list[str]:
        return [name for names in self.names for name in names]

    keys = offset_keys

    def metadata(self) -> dict:
        return {"format": "pt"}

    def get_tensor_metadata(self, name: str):
        form = self.form(name)
        return form.dtype, form.shape

    get_tensor = _Stream.tensor


def _instanttensor(recording, files, package, replace) -> None:
    original = package.safe_open

    def safe_open(filename, framework, device, *arguments, tensor_filter=None, tensor_name_match_mode="glob", **options):
        paths = sorted([filename] if isinstance(filename, str) else filename)
        found = [files.get(real_path(path)) for path in paths]
        if None in found:
            return original(filename, framework, device, *arguments, tensor_filter=tensor_filter,
                            tensor_name_match_mode=tensor_name_match_mode, **options)
        wanted = package._impl._compile_name_matcher(tensor_filter, tensor_name_match_mode)
        return _Instant(recording, found, device, wanted)

    replace(package, "safe_open", safe_open)


_PACKAGES = {"runai_model_streamer": _runai, "fastsafetensors": _fastsafetensors, "instanttensor": _instanttensor}


class Streams:
    """Those packages that are installed hand out stand-ins for the files of a recording's checkpoint."""

    def __init__(self, recording):
        self._recording, self._files, self._replaced = recording, {}, []

    def _replace(self, owner, name: str, by) -> None:
        self._replaced.append((owner, name, getattr(owner, name)))
        setattr(owner, name, by)

    def __enter__(self) -> None:
        found = [name for name in _PACKAGES if importlib.util.find_spec(name) is not None]
        if not found:
            return
        self._files = by_real_path(self._recording)
        for name in found:
            try:
                package = importlib.import_module(name)
            except (ImportError, OSError):
                continue  # nobody can use what lacks a library
            _PACKAGES[name](self._recording, self._files, package, self._replace)

    def __exit__(self, *_) -> None:
        self._files.clear()  # what was imported by name meanwhile stays replaced there
        for owner, name, original in reversed(self._replaced):
            setattr(owner, name, original)
        self._replaced.clear()
