# SPDX-License-Identifier: Apache-2.0
"""A model as it was when its weights had just been loaded, so that it can be loaded once more.

vLLM's post-load processing replaces, packs and deletes parameters, and leaves results in Python objects. So a reload
repeats the cold start instead of undoing it: tensors of the loaded form are made anew (stage), filled by a session, put
in place of the processed ones, and processed by the same code (commit). Until that has succeeded the live model is
untouched; then bytes are copied into the live tensors, whose addresses captured graphs may hold. A tensor that changed
its form has no such place and is replaced.
"""

from __future__ import annotations

import dataclasses
from typing import Callable

import torch

from ._forms import raw_storage
from ._session import named_tensors

_TABLES = ("_parameters", "_buffers", "_modules")


@dataclasses.dataclass(frozen=True)
class Form:
    """A tensor without its bytes."""

    storage: int  # index into Loaded._storages
    offset: int
    size: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype
    kind: type
    attributes: dict | None  # of a Parameter's own __dict__


@dataclasses.dataclass
class _Storage:
    bytes: int
    device: torch.device
    held: torch.UntypedStorage | None  # its content, where a session does not write all of it


def _holders(module: torch.nn.Module) -> list:
    """Objects beside a module that post-load processing changes, such as its quantisation method."""
    return [value for value in vars(module).values()
            if isinstance(getattr(value, "__dict__", None), dict) and not isinstance(value, (torch.nn.Module, torch.Tensor, type))
            and callable(getattr(value, "process_weights_after_loading", None))]


def _things(model: torch.nn.Module) -> list:
    """Modules and holders, each once."""
    return list({id(thing): thing for module in model.modules() for thing in (module, *_holders(module))}.values())


def _state(thing) -> dict:
    """Its attributes, with tables of a module copied one level deep."""
    state = dict(vars(thing))
    if isinstance(thing, torch.nn.Module):
        for table in _TABLES:
            state[table] = dict(state[table])
        state["_non_persistent_buffers_set"] = set(state["_non_persistent_buffers_set"])
    return state


def _put(thing, state: dict) -> None:
    own = vars(thing)
    own.clear()
    own.update(state)


def _is_written_whole(trace) -> Callable[[str, int], bool]:
    """Whether records alone write all bytes of a destination."""
    written: dict[str, int] = {}
    for row in trace.query("SELECT destination, sum(bytes) AS n, max(seq) AS seq FROM v_records GROUP BY destination"):
        if int(row["seq"] or 0) == 0:  # ordered records overlap: their sum says nothing
            written[row["destination"]] = int(row["n"])
    return lambda name, size: written.get(name, -1) == size


class Loaded:
    """Taken after a load and before post-load processing. Keeps no bytes that every reload brings."""

    def __init__(self, model: torch.nn.Module, trace):
        self.model, self.trace = model, trace
        whole = _is_written_whole(trace)
        touched = {row["destination"] for table in ("v_records", "v_derives", "v_refusals")
                   for row in trace.query(f"SELECT DISTINCT destination FROM {table}") if row["destination"]}
        self._storages: list[_Storage] = []
        self._index: dict[int, int] = {}
        self._forms: dict[int, Form] = {}
        self._keep: list[torch.Tensor] = []  # ids stay theirs
        self._names: dict[str, int] = {}
        written: dict[int, int] = {}  # bytes that records write, by storage
        changed: set[int] = set()
        with torch._C.DisableTorchFunctionSubclass():
            for name, tensor in named_tensors(model).items():
                if tensor.layout is not torch.strided or torch.nn.parameter.is_lazy(tensor):
                    continue
                form = self._form(tensor)
                self._names[name] = id(tensor)
                if name in touched or isinstance(tensor, torch.nn.Parameter):
                    changed.add(form.storage)
                if whole(name, tensor.numel() * tensor.dtype.itemsize):
                    written[form.storage] = written.get(form.storage, 0) + tensor.numel() * tensor.dtype.itemsize
            for i, storage in enumerate(self._storages):
                storage.held = None if i not in changed or written.get(i, 0) == storage.bytes else storage.held.clone()
        for tensor in self._keep:  # what nobody loads goes on serving as it is
            if self._forms[id(tensor)].storage not in changed:
                del self._forms[id(tensor)]
        self._shared = {name: t for name, t in named_tensors(model).items() if name in self._names and
                        self._names[name] not in self._forms}
        self._states = [(thing, self._with_forms(_state(thing))) for thing in _things(model)]
        self._keep.clear()

    def _form(self, tensor: torch.Tensor) -> Form:
        found = self._forms.get(id(tensor))
        if found is not None:
            return found
        storage = raw_storage(tensor)
        index = self._index.setdefault(storage._cdata, len(self._storages))
        if index == len(self._storages):
            self._storages.append(_Storage(storage.nbytes(), tensor.device, storage))
        form = Form(index, tensor.storage_offset(), tuple(tensor.size()), tuple(tensor.stride()), tensor.dtype, type(tensor),
                    dict(tensor.__dict__) if isinstance(tensor, torch.nn.Parameter) or tensor.__dict__ else None)
        self._forms[id(tensor)] = form
        self._keep.append(tensor)
        return form

    def _with_forms(self, state: dict) -> dict:
        def swap(value):
            return self._forms.get(id(value), value) if isinstance(value, torch.Tensor) else value
        return {key: {k: swap(v) for k, v in value.items()} if key in _TABLES else swap(value)
                for key, value in state.items()}

    # -- a reload

    def stage(self) -> "Staged":
        """Fresh tensors of the loaded form. Takes the memory of all weights once more."""
        storages = []
        wanted = {form.storage for form in self._forms.values()}
        for i, one in enumerate(self._storages):
            fresh = torch.UntypedStorage(one.bytes if i in wanted else 0, device=one.device)
            if one.held is not None:
                fresh.copy_(one.held)
            storages.append(fresh)
        made: dict[int, torch.Tensor] = {}
        by_id = {}
        with torch.no_grad():
            for key, form in self._forms.items():
                tensor = torch.empty(0, dtype=form.dtype, device=storages[form.storage].device).set_(
                    storages[form.storage], form.offset, form.size, form.stride)
                tensor.__class__ = form.kind
                if form.attributes is not None:
                    tensor.__dict__ = dict(form.attributes)
                by_id[key] = made[id(form)] = tensor
        return Staged(self, {name: by_id[key] if key in by_id else self._shared[name] for name, key in self._names.items()},
                      made)


class Staged:
    """One reload's tensors: `tensors` by name for a session, then commit()."""

    def __init__(self, loaded: Loaded, tensors: dict[str, torch.Tensor], made: dict[int, torch.Tensor]):
        self._loaded, self.tensors, self._made = loaded, tensors, made

    def _filled(self, state: dict) -> dict:
        def swap(value):
            return self._made[id(value)] if isinstance(value, Form) else value
        filled = {key: {k: swap(v) for k, v in value.items()} if key in _TABLES else swap(value)
                  for key, value in state.items()}
        if "_non_persistent_buffers_set" in filled:
            filled["_non_persistent_buffers_set"] = set(filled["_non_persistent_buffers_set"])
        return filled

    def commit(self, load_rest: Callable[[], None], process: Callable[[], None]) -> list[str]:
        """Puts the staged tensors into the model, calls load_rest() and process() on it, and moves the results into the
        live tensors. Returns the tensors that are others now. When either raises, the model is what it was."""
        model = self._loaded.model
        staged = [(thing, self._filled(state)) for thing, state in self._loaded._states]
        live = {id(thing): (thing, _state(thing)) for thing in (*_things(model), *(thing for thing, _ in staged))}
        try:
            for thing, state in staged:
                _put(thing, {**state, **{table: dict(state[table]) for table in _TABLES if table in state}})
            load_rest()
            process()
            done = [(thing, _state(thing)) for thing, _ in staged]
        except BaseException:
            for thing, state in live.values():
                _put(thing, state)
            raise
        paths = {id(part): name for name, part in model.named_modules()}
        moved: list[str] = []
        with torch.no_grad(), torch._C.DisableTorchFunctionSubclass():
            for (thing, start), (_, end) in zip(staged, done):
                old = live[id(thing)][1]
                state = _merged(old, start, end, moved, paths.get(id(thing), type(thing).__name__))
                for table in _TABLES:
                    if table in end:
                        state[table] = _merged(old.get(table, {}), start[table], end[table], moved, paths.get(id(thing), ""))
                _put(thing, state)
        return moved


def _merged(live: dict, start: dict, end: dict, moved: list[str], path: str) -> dict:
    """What was live, changed as `start` was changed to `end`; tensors keep their addresses where their forms allow."""
    result = {key: value for key, value in live.items() if key in end or key not in start}
    for key, value in end.items():
        if key in _TABLES:
            continue
        old, is_changed = live.get(key), key not in live or key not in start or start[key] is not value
        if isinstance(value, torch.Tensor) and isinstance(old, torch.Tensor):
            if _have_one_form(old, value):
                if old.data_ptr() != value.data_ptr():
                    old.detach().copy_(value.detach())
                continue
            if is_changed:  # else the engine has put another there since, such as a cache of keys and values
                moved.append(f"{path}.{key}" if path else key)
        if is_changed:
            result[key] = value
    return result


def _have_one_form(a: torch.Tensor, b: torch.Tensor) -> bool:
    return (a.dtype == b.dtype and a.size() == b.size() and a.stride() == b.stride() and a.device == b.device
            and a.layout is b.layout is torch.strided)
