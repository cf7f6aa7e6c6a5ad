# SPDX-License-Identifier: Apache-2.0
"""A model that post-load processing has changed, loaded once more: what a reload must leave as it is, and what it must not."""
import os
import sys
import tempfile
import unittest

import torch
from safetensors.torch import save_file

import loadplan
from loadplan._session import Plan, named_tensors
from loadplan.vllm_reload import Loaded


class Method:
    """A quantisation method: keeps state of its own."""

    def __init__(self):
        self.kernel = None

    def process_weights_after_loading(self, layer):
        assert self.kernel is None, "processed twice"
        self.kernel = layer.w.data.t().contiguous()  # packed, known to this object only
        layer.scale = torch.nn.Parameter(1.0 / layer.scale.data, requires_grad=False)
        layer.top = float(layer.scale.max())
        layer.w = torch.nn.Parameter(torch.empty(0), requires_grad=False)
        layer.optional_is_set = bool(layer.optional != -1)
        del layer.optional


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        new = lambda value: torch.nn.Parameter(value, requires_grad=False)  # noqa: E731
        self.w, self.scale, self.optional = new(torch.zeros(4, 3)), new(torch.zeros(2)), new(torch.tensor(-1.0))
        self.padded = new(torch.full((6, 2), 7.0))  # the loader writes four rows
        self.conv = new(torch.zeros(4, 1, 3))
        self.register_buffer("conv_flat", self.conv.data.view(4, 3), persistent=False)
        self.register_buffer("steps", torch.arange(5.0))  # persistent, and nobody loads it
        self.cache = torch.tensor([])
        self.method = Method()

    def load(self, weights):
        for name, w in weights:
            getattr(self, name).data[:len(w)].copy_(w)


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = Layer(), Layer()
        self.second.scale = self.first.scale  # tied
        self.broken = False

    def load_weights(self, weights):
        for name, w in weights:
            layer, _, what = name.partition(".")
            getattr(self, layer).load([(what, w)])

    def process(self):
        for layer in (self.first, self.second):
            layer.method.process_weights_after_loading(layer)
            if self.broken:
                raise RuntimeError("no such instruction")


def weights(seed):
    g = torch.Generator().manual_seed(seed)
    shapes = {"w": (4, 3), "padded": (4, 2), "conv": (4, 1, 3)}
    found = {f"{layer}.{name}": torch.randn(shape, generator=g) for layer in ("first", "second") for name, shape in shapes.items()}
    return {**found, "first.scale": torch.rand(2, generator=g) + 1}


def state(model):
    return {id(m): {k: dict(v) if k in ("_parameters", "_buffers", "_modules") else v for k, v in vars(m).items()}
            for m in (*model.modules(), model.first.method, model.second.method)}


class Reload(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        path = os.path.join(self.folder.name, "model.safetensors")
        self.one, self.two = weights(1), weights(2)
        save_file(self.one, path)
        self.model = Model()
        initial = ["first.optional", "second.optional", "first.padded", "second.padded"]
        self.trace = loadplan.record(self.model.load_weights, path, self.model, initial=initial)
        self.assertEqual(self.trace.refusals, [])
        loadplan.replay(self.trace, self.model, self.one)
        self.loaded = Loaded(self.model, self.trace)
        self.model.process()
        for layer in (self.model.first, self.model.second):
            layer.cache = torch.randn(8)  # an engine binds it later

    def tearDown(self):
        self.folder.cleanup()

    def fresh(self, values):
        model = Model()
        model.load_weights(values.items())
        model.process()
        return model

    def reload(self, values):
        staged = self.loaded.stage()
        session = Plan(self.trace, staged.tensors).session("direct")
        for name, tensor in values.items():
            session.push(name, tensor)
        return staged.commit(session.finish, self.model.process)

    def assert_like(self, model):
        ours, theirs = named_tensors(self.model), named_tensors(model)
        self.assertEqual(set(ours), set(theirs))
        for name, tensor in theirs.items():
            if not name.endswith("cache"):
                self.assertTrue(torch.equal(ours[name], tensor), name)
        for a, b in ((self.model.first, model.first), (self.model.second, model.second)):
            self.assertTrue(torch.equal(a.method.kernel, b.method.kernel))
            self.assertEqual((a.top, a.optional_is_set), (b.top, b.optional_is_set))
            self.assertEqual(a.conv_flat.data_ptr(), a.conv.data_ptr())

    def test_there_and_back(self):
        caches = self.model.first.cache, self.model.second.cache
        places = {name: t.data_ptr() for name, t in named_tensors(self.model).items()}
        self.model.first.steps.add_(1)  # a live buffer has a life of its own
        for values in (self.two, self.one, self.two, self.two):
            self.assertEqual(self.reload(values), [])
            expected = self.fresh(values)
            expected.first.steps.add_(1)
            self.assert_like(expected)
            self.assertEqual({name: t.data_ptr() for name, t in named_tensors(self.model).items()}, places)
        self.assertIs(self.model.first.cache, caches[0])
        self.assertIs(self.model.second.cache, caches[1])

    def test_processing_that_fails(self):
        before, bytes_before = state(self.model), {n: t.clone() for n, t in named_tensors(self.model).items()}
        self.model.broken = True
        self.loaded = self.loaded_when_broken()
        with self.assertRaisesRegex(RuntimeError, "no such instruction"):
            self.reload(self.two)
        self.model.broken = False
        after = state(self.model)
        before[id(self.model)]["broken"] = False
        for thing, attributes in before.items():
            self.assertEqual(set(attributes), set(after[thing]))
            for key, value in attributes.items():
                if isinstance(value, set):
                    self.assertEqual(after[thing][key], value, key)
                elif key not in ("_parameters", "_buffers", "_modules"):
                    self.assertIs(after[thing][key], value, key)
                else:
                    self.assertEqual({k: id(v) for k, v in after[thing][key].items()}, {k: id(v) for k, v in value.items()})
        for name, tensor in named_tensors(self.model).items():
            self.assertTrue(torch.equal(tensor, bytes_before[name]), name)

    def loaded_when_broken(self):
        for thing, saved in self.loaded._states:
            if thing is self.model:
                saved["broken"] = True
        return self.loaded

    def test_incomplete(self):
        bytes_before = {n: t.clone() for n, t in named_tensors(self.model).items()}
        missing = dict(self.two)
        del missing["second.w"]
        with self.assertRaises(loadplan.LoadplanError) as caught:
            self.reload(missing)
        self.assertEqual(caught.exception.status, "LP_E_INCOMPLETE")
        for name, tensor in named_tensors(self.model).items():
            self.assertTrue(torch.equal(tensor, bytes_before[name]), name)
        self.reload(self.two)
        self.assert_like(self.fresh(self.two))


if __name__ == "__main__":
    torch.set_grad_enabled(False)
    sys.exit(unittest.main())
