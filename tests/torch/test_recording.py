# SPDX-License-Identifier: Apache-2.0
"""Recording and replay through the Python interface: what a module may do to its own tensors, errors, cost."""
import ctypes as c
import json
import os
import struct
import subprocess
import sys
import tempfile
import time
import unittest
import warnings

import torch
from safetensors.torch import save_file

import loadplan


def data(tensor):
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8)


class Model(torch.nn.Module):
    """Parameters by name; load is the loader under test: load(model, name, tensor)."""

    def __init__(self, load, **tensors):
        super().__init__()
        self._load = load
        for name, tensor in tensors.items():
            self.register_parameter(name, torch.nn.Parameter(tensor.clone(), requires_grad=False))

    def load_weights(self, weights):
        for name, tensor in weights:
            self._load(self, name, tensor)


class Recording(unittest.TestCase):
    def setUp(self):
        self._folder = tempfile.TemporaryDirectory()
        self.folder = self._folder.name
        self.path = os.path.join(self.folder, "model.safetensors")
        torch.manual_seed(1)

    def tearDown(self):
        self._folder.cleanup()

    def checkpoint(self, **tensors):
        save_file(tensors, self.path)
        return tensors

    def both(self, sources, make, mode="direct"):
        """(trace, the model that loaded for real, the model that was replayed into)."""
        self.checkpoint(**sources)
        recorded = make()
        trace = loadplan.record(recorded.load_weights, self.path, recorded)
        real = make()
        real.load_weights(sorted(sources.items()))
        # A replay fills tensors of the form that loading leaves behind; here: of the real model, cleared.
        replayed = make()
        replayed.load_weights(sorted(sources.items()))
        for tensor in loadplan._session.named_tensors(replayed).values():
            tensor.data.zero_() if tensor.numel() else None
        with loadplan.Session(trace, replayed, mode) as session:
            session.push_checkpoint(self.path)
        return trace, real, replayed

    def assert_same(self, real, replayed, *names):
        for name in names:
            a, b = (loadplan._session.named_tensors(m)[name] for m in (real, replayed))
            self.assertEqual(a.shape, b.shape)
            self.assertTrue(torch.equal(data(a), data(b)), name)

    # -- what a module may do

    def test_parameter_replaced_by_another_form(self):
        def load(model, name, w):
            model.w.data.copy_(w)
            model.w = torch.nn.Parameter(model.w.data.t().contiguous(), requires_grad=False)
        trace, real, replayed = self.both({"w": torch.randn(4, 6)}, lambda: Model(load, w=torch.zeros(4, 6)))
        self.assertEqual(trace.query("SELECT shape FROM v_destinations")[0]["shape"], "[6,4]")
        self.assert_same(real, replayed, "w")

    def test_data_rebound_to_the_source(self):
        def load(model, name, w):
            model.w.data = w
        _, real, replayed = self.both({"w": torch.randn(4, 6)}, lambda: Model(load, w=torch.zeros(4, 6)))
        self.assert_same(real, replayed, "w")

    def test_parameter_registered_late(self):
        def load(model, name, w):
            model.register_parameter("late", torch.nn.Parameter(torch.empty(6, dtype=w.dtype), requires_grad=False))
            model.late.data.copy_(w[:6])
        trace, real, replayed = self.both({"w": torch.randn(8)}, lambda: Model(load))
        self.assertEqual([row["destination"] for row in trace.rows], ["late"])
        self.assert_same(real, replayed, "late")

    def test_plain_attribute(self):
        def load(model, name, w):
            model.w.copy_(w)
            model.side = w.t().contiguous()
        _, real, replayed = self.both({"w": torch.randn(4, 6)}, lambda: Model(load, w=torch.zeros(4, 6)))
        self.assert_same(real, replayed, "w", "side")

    def test_tied_parameters_have_one_owner(self):
        def make():
            model = Model(lambda model, name, w: model.b.data.copy_(w), a=torch.zeros(4))
            model.b = model.a
            return model
        trace, real, replayed = self.both({"w": torch.randn(4)}, make)
        self.assertEqual(len(trace.rows), 1)
        self.assertEqual([str(f) for f in trace.check()], [])
        self.assert_same(real, replayed, "a", "b")

    def test_buffer_that_shares_a_parameters_memory(self):
        def make():
            model = Model(lambda model, name, w: model.conv.data.copy_(w), conv=torch.zeros(4, 1, 3))
            model.register_buffer("flat", model.conv.data.view(4, 3))
            return model
        trace, real, replayed = self.both({"w": torch.randn(4, 1, 3)}, make)
        self.assertEqual([f.rule for f in trace.check() if f.level == "deny"], [])
        self.assert_same(real, replayed, "conv", "flat")

    def test_buffer_without_loader(self):
        def make():
            model = Model(lambda model, name, w: model.w.data.copy_(w), w=torch.zeros(4))
            model.register_buffer("cache", torch.arange(4.0), persistent=False)
            return model
        self.checkpoint(w=torch.randn(4))
        model = make()
        trace = loadplan.record(model.load_weights, self.path, model)
        self.assertEqual(list(trace.check()), [])
        with loadplan.Session(trace, model) as session:
            session.push_checkpoint(self.path)
        self.assertTrue(torch.equal(model.cache, torch.arange(4.0)))

    def test_values_of_the_loaders_own(self):
        """A table that the loader makes is not in the trace, and that is said; one that is as it was is nothing new."""
        def load(model, name, w):
            model.w.data.copy_(w)
            model.table.copy_(torch.arange(4.0))
            model.same.copy_(torch.arange(4.0))
            model.doubled.mul_(2)
        model = Model(load, w=torch.zeros(4))
        for name in ("table", "same", "doubled"):
            model.register_buffer(name, torch.zeros(4) if name == "table" else torch.arange(4.0))
        self.checkpoint(w=torch.randn(4))
        trace = loadplan.record(model.load_weights, self.path, model)
        self.assertEqual(trace.initialised, ("table", "doubled"))
        self.assertEqual([row["destination"] for row in trace.rows], ["w"])
        self.assertEqual(model.doubled.tolist(), [0.0, 2.0, 4.0, 6.0])

    def test_values_written_by_numpy(self):
        """Into a destination's memory, which no operation of torch shows."""
        def load(model, name, w):
            model.w.data.copy_(w)
            model.table.numpy()[1:] = 7
        self.checkpoint(w=torch.randn(4))
        model = Model(load, w=torch.zeros(4))
        model.register_buffer("table", torch.zeros(4))
        model.register_buffer("same", torch.zeros(4))
        model.same.numpy()
        self.assertEqual(loadplan.record(model.load_weights, self.path, model).initialised, ("table",))

    def test_another_process_is_said(self):
        def load(model, name, w):
            child = os.fork()
            if child == 0:
                os._exit(0)
            os.waitpid(child, 0)
            model.w.data.copy_(w)
        self.checkpoint(w=torch.randn(4))
        model = Model(load, w=torch.zeros(4))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            said = loadplan.record(model.load_weights, self.path, model).unrecorded
        self.assertEqual(len(said), 1)
        self.assertRegex(said[0], r"test_recording.py:\d+: fork: ")

    def test_index_buffer_steers_the_loader(self):
        def load(model, name, w):
            slot = int(model.expert_map[int(name)])
            if slot >= 0:
                model.w.data[slot].copy_(w)

        def make():
            model = Model(load, w=torch.zeros(2, 3))
            model.register_buffer("expert_map", torch.tensor([-1, 0, -1, 1]))
            return model
        self.checkpoint(**{str(i): torch.randn(3) for i in range(4)})
        model = make()
        trace = loadplan.record(model.load_weights, self.path, model)
        self.assertEqual(sorted(row["name"] for row in trace.rows), ["1", "3"])
        self.assertEqual(trace.refusals, [])

    def test_meta_model(self):
        self.checkpoint(w=torch.randn(4, 6))
        with torch.device("meta"):
            model = Model(lambda model, name, w: model.w.data.copy_(w.to(model.w.device)), w=torch.zeros(4, 6))
        trace = loadplan.record(model.load_weights, self.path, model)
        self.assertEqual([row["kind"] for row in trace.rows], ["copy"])

    def test_constants_of_a_meta_model(self):
        """What a loader makes on the model's device has its values, though the model is on meta."""
        def load(model, name, w):
            rows = torch.full((2, 6), 3.0, device=model.w.device)
            model.w.data.copy_(torch.cat([w, rows, torch.zeros_like(rows)]))
        self.checkpoint(w=torch.randn(4, 6))
        with torch.device("meta"):
            model = Model(load, w=torch.zeros(8, 6))
        trace = loadplan.record(model.load_weights, self.path, model)
        self.assertEqual(trace.refusals, [])
        self.assertEqual(sorted((row["kind"], row["bytes"]) for row in trace.rows), [("copy", "96"), ("fill", "48"), ("fill", "48")])

    def test_rounding_is_the_devices(self):
        """A GPU computes with Python's numbers as they are and divides by multiplying; a CPU rounds summands."""
        def load(model, name, w):
            model.a.data.copy_(w)
            model.a.data.add_(0.1)
            model.b.data.copy_(model.a.data / 3)
            model.c.data.copy_(w + 0.1)  # before it is on any device
        self.checkpoint(w=torch.randn(8).bfloat16())

        def constants(target):
            blank = torch.zeros(8, dtype=torch.bfloat16)
            model = Model(load, a=blank, b=blank, c=blank)
            trace = loadplan.record(model.load_weights, self.path, model, target=target)
            nodes = "; ".join(row["nodes"] for row in trace.query("SELECT nodes FROM v_derives ORDER BY destination"))
            return [(part.split()[0], int(part.split()[-1], 16)) for part in nodes.split("; ")
                    if part.startswith(("const", "div", "mul"))]
        def bits(value, dtype=torch.float32):
            return torch.tensor(value).to(dtype).float().view(torch.int32).item()
        rounded = ("const", bits(0.1, torch.bfloat16))
        self.assertEqual(constants(""), [rounded, ("const", bits(3.0)), ("div", 0), rounded])
        self.assertEqual(constants("sm90"), [("const", bits(0.1)), ("const", bits(1 / 3)), ("mul", 0), rounded])

    def test_processing_after_loading(self):
        def load(model, name, w):
            model.s.data[int(name)] = w
            if name == "1":
                model.m = torch.nn.Parameter(model.s.max(), requires_grad=False)
        trace, real, replayed = self.both({"0": torch.tensor(3.0), "1": torch.tensor(5.0)},
                                          lambda: Model(load, s=torch.zeros(2), m=torch.zeros(())))
        self.assertEqual(trace.query("SELECT destination FROM v_derives")[0]["destination"], "m")
        self.assert_same(real, replayed, "s", "m")

    def test_processing_as_a_whole(self):
        """Loading and everything after it, as one: swapped halves, permuted and replaced parameters, deleted scales, a
        derived maximum and its reciprocal. A reload of the processed model through the trace equals a fresh start."""
        class Layer(torch.nn.Module):
            def __init__(self):
                super().__init__()
                new = lambda *shape: torch.nn.Parameter(torch.zeros(shape), requires_grad=False)  # noqa: E731
                self.w13, self.w2, self.scale, self.amax = new(3, 8, 6), new(3, 6, 4), new(3, 2), new(3)

            def load_weights(self, weights):
                for name, w in weights:
                    expert, part = name.split(".")
                    target = {"gate": self.w13[:, :4], "up": self.w13[:, 4:], "down": self.w2, "gate_scale": self.scale[:, 0],
                              "up_scale": self.scale[:, 1], "amax": self.amax}[part]
                    target.data[int(expert)].copy_(w)
                self.process()

            def process(self):
                w13 = self.w13.data
                half = w13[:, :4].clone()  # [gate; up] -> [up; gate], in place
                w13[:, :4] = w13[:, 4:]
                w13[:, 4:] = half
                self.w2 = torch.nn.Parameter(self.w2.data.view(3, 2, 3, 2, 2).permute(0, 3, 1, 4, 2).contiguous(),
                                             requires_grad=False)
                top = self.scale.data.amax(1)
                self.top = torch.nn.Parameter(top, requires_grad=False)
                self.inverse = torch.nn.Parameter(1.0 / (top * self.amax.data.max()), requires_grad=False)
                self.limit = self.amax.data.max()
                del self.scale, self.amax

        def weights():
            shapes = {"gate": (4, 6), "up": (4, 6), "down": (6, 4), "gate_scale": (), "up_scale": (), "amax": ()}
            return {f"{e}.{part}": torch.rand(shape) + 0.5 for e in range(3) for part, shape in shapes.items()}

        first, second = weights(), weights()
        self.checkpoint(**first)
        model = Layer()
        trace = loadplan.record(model.load_weights, self.path, model)
        self.assertEqual(trace.refusals, [])
        self.assertEqual(trace.rebound, ("w2",))
        self.assertEqual([f.rule for f in trace.check() if f.level == "deny" and f.tensor not in ("scale", "amax")], [])
        self.assertEqual({row["destination"] for row in trace.query("SELECT destination FROM v_derives")},
                         {"top", "inverse", "limit"})
        fresh, live = Layer(), Layer()
        fresh.load_weights(second.items())
        live.load_weights(first.items())
        places = {name: t.data_ptr() for name, t in loadplan._session.named_tensors(live).items()}
        gone = {"scale": torch.zeros(3, 2), "amax": torch.zeros(3)}
        plan = loadplan.Plan(trace, {**loadplan._session.named_tensors(live), **gone})
        for names in (sorted(second), sorted(second, reverse=True)):
            with plan.session("direct") as session:
                for name in names:
                    session.push(name, second[name])
            self.assert_same(fresh, live, "w13", "w2", "top", "inverse", "limit")
        self.assertEqual(places, {name: t.data_ptr() for name, t in loadplan._session.named_tensors(live).items()})

    def test_a_value_that_no_trace_can_say_becomes_a_parameter(self):
        """Replaced whole by it, the parameter's names are refused, not forgotten."""
        def load(model, name, w):
            model.w.data.copy_(w)
            model.w = torch.nn.Parameter(torch.tanh(model.w.data), requires_grad=False)

        self.checkpoint(w=torch.randn(4, 4))
        model = Model(load, w=torch.zeros(4, 4))
        trace = loadplan.record(model.load_weights, self.path, model)
        self.assertIn(("w", "tanh", "w"), {(r["name"], r["operation"], r["destination"]) for r in trace.refusals})
        self.assertEqual((trace.unrecorded, trace.rebound), ((), ("w",)))
        self.assertEqual([f.rule for f in trace.check() if f.level == "deny"], [])

    def test_operation_that_writes_and_returns_another_tensor(self):
        """Packing operations of engines: what they return is no alias of what they may write."""
        class Own(torch.nn.Parameter):
            pass

        def pack(w: torch.Tensor) -> torch.Tensor:
            return w.flip(0)

        library = torch.library.Library("loadplan_test", "FRAGMENT")
        library.define("pack(Tensor(a!) w) -> Tensor")
        library.impl("pack", pack, "CPU")
        model = torch.nn.Module()
        model.w = Own(torch.zeros(4, 4), requires_grad=False)

        def load(weights):
            for _, w in weights:
                model.w.data.copy_(w)
                packed = torch.ops.loadplan_test.pack(model.w)
                self.assertIsNot(packed, model.w)
                model.w = torch.nn.Parameter(packed, requires_grad=False)

        self.checkpoint(w=torch.randn(4, 4))
        trace = loadplan.record(load, self.path, model)
        self.assertEqual({(r["name"], r["operation"]) for r in trace.refusals}, {("w", "loadplan_test::pack")})

    def test_compiled_functions_run_as_they_are_written(self):
        """A compiler follows the recorder's own code too: minutes, and what it fuses is seen as one operation."""
        def backend(graph, inputs):
            raise AssertionError("compiled while recording")

        scale = torch.compile(lambda w: w * 2 + 1, backend=backend)

        def load(model, name, w):
            model.w.data.copy_(torch.compile(lambda v: v / 4, backend=backend)(scale(w)))

        sources = self.checkpoint(w=torch.randn(4, 4))
        model = Model(load, w=torch.zeros(4, 4))
        trace = loadplan.record(model.load_weights, self.path, model)
        self.assertEqual(len(trace.query("SELECT * FROM v_derives")), 1)
        loadplan.replay(trace, model, sources)
        self.assertTrue(torch.equal(model.w.data, (sources["w"] * 2 + 1) / 4))
        with self.assertRaisesRegex(Exception, "compiled while recording"):
            scale(torch.ones(2))  # the compiler is back

    def test_expanded_constant(self):
        def load(model, name, w):
            model.w.data[:2].copy_(w)
            model.w.data[2:].copy_(torch.full((1,), 2.5).expand(3))
        _, real, replayed = self.both({"w": torch.randn(2)}, lambda: Model(load, w=torch.zeros(5, dtype=torch.float16)))
        self.assert_same(real, replayed, "w")

    def test_parts_of_elements_that_are_written_again(self):
        """A cast, or a fill, of which single bytes are written later, by the same name or another one."""
        def load(model, name, w):
            for to in (model.cast.data, model.fill.data):
                if name == "b" or self.by_one_name:
                    to.view(torch.uint8)[:, 1::8].copy_(w.view(torch.uint8)[:, :2])
                if name == "a":
                    to.copy_(w) if to is model.cast.data else to.fill_(1.5)
                    if self.by_one_name:
                        to.view(torch.uint8)[:, 2::8].copy_(w.view(torch.uint8)[:, 2:4])

        sources = {"a": torch.randn(4, 4).bfloat16(), "b": torch.randint(0, 255, (4, 16), dtype=torch.uint8)}
        for self.by_one_name in (False, True):
            trace, real, replayed = self.both(sources, lambda: Model(load, cast=torch.zeros(4, 4), fill=torch.zeros(4, 4)))
            self.assertEqual(trace.refusals, [])
            for name in ("cast", "fill"):
                self.assertTrue(torch.equal(data(getattr(real, name)), data(getattr(replayed, name))), name)

    def test_order_dependence_is_said(self):
        self.checkpoint(a=torch.randn(4), b=torch.randn(4))
        model = Model(lambda model, name, w: model.w.data.copy_(w), w=torch.zeros(4))
        trace = loadplan.record(model.load_weights, self.path, model)
        self.assertIn("order_dependent", {f.rule for f in trace.check()})

    def test_constant_after_a_host_read_is_not_trusted(self):
        """A Python number may hide a value of another name: its fill would replay a neutral value."""
        def load(model, name, w):
            if name == "a":
                model.scale = w.item() * 3
            else:
                model.w.data.fill_(model.scale)
        self.checkpoint(a=torch.tensor(2.0), b=torch.randn(4))
        model = Model(load, w=torch.zeros(4))
        trace = loadplan.record(model.load_weights, self.path, model)
        self.assertEqual({row["name"] for row in trace.refusals}, {"a", "b"})
        self.assertEqual(trace.rows, [])

    def test_constants_after_a_host_read_in_expressions_and_buffers(self):
        def load(model, name, w):
            if name == "a":
                model.scale = w.item() * 3
            elif name == "b":
                model.w.data.copy_(w * model.scale)
            else:
                model.v.data.copy_(torch.cat([w, torch.full((4,), model.scale)]))
        self.checkpoint(a=torch.tensor(2.0), b=torch.randn(4), c=torch.randn(4))
        model = Model(load, w=torch.zeros(4), v=torch.zeros(8))
        trace = loadplan.record(model.load_weights, self.path, model)
        self.assertEqual({row["name"] for row in trace.refusals}, {"a", "b", "c"})
        self.assertEqual(trace.rows + trace.query("SELECT * FROM v_derives"), [])

    def test_one_refusal_leaves_the_others(self):
        def load(model, name, w):
            getattr(model, name).data.copy_(torch.sort(w).values if name == "b" else w)
        self.checkpoint(a=torch.randn(4), b=torch.randn(4), c=torch.randn(4))
        model = Model(load, **{name: torch.zeros(4) for name in "abc"})
        trace = loadplan.record(model.load_weights, self.path, model)
        self.assertEqual([row["name"] for row in trace.rows], ["a", "c"])
        self.assertEqual({(row["name"], row["operation"]) for row in trace.refusals}, {("b", "sort")})
        self.assertIn("b", {row["destination"] for row in trace.refusals})

    def test_capture_around_any_code(self):
        self.checkpoint(a=torch.randn(4), b=torch.randn(4))
        d = {"w": torch.zeros(8)}
        with loadplan.capture(self.path, d) as recording:
            d["w"][:4] = recording.tensor("b")
            d["w"][4:] = recording.tensor("a")
        self.assertEqual(len(recording.trace.rows), 2)
        self.assertTrue(torch.equal(d["w"], torch.zeros(8)))

    def test_old_trace_is_a_checkpoint(self):
        self.checkpoint(w=torch.randn(4))
        model = Model(lambda model, name, w: model.w.data.copy_(w), w=torch.zeros(4))
        trace = loadplan.record(model.load_weights, self.path, model)
        saved = os.path.join(self.folder, "x.lpt")
        trace.save(saved)
        self.assertEqual(loadplan.record(model.load_weights, saved, model).digest, trace.digest)
        self.assertEqual(list(trace.diff(loadplan.Trace.open(saved))), [])

    def test_command_line(self):
        self.checkpoint(a=torch.randn(8, 4), b=torch.randn(()))
        with open(os.path.join(self.folder, "own_engine.py"), "w") as f:
            f.write("import torch\n"
                    "def build(folder, tp, rank):\n"
                    "    w = torch.nn.Parameter(torch.zeros(2, 4), requires_grad=False)\n"
                    "    def load(weights):\n"
                    "        for name, t in weights:\n"
                    "            w.data.copy_(t[2 * rank:2 * rank + 2]) if name == 'a' else float(t)\n"
                    "    return load, {'w': w}\n")

        def call(*arguments):
            done = subprocess.run([sys.executable, "-W", "ignore", "-m", "loadplan", "record", "--model", self.path, *arguments],
                                  cwd=self.folder, capture_output=True, text=True)
            return done.returncode, done.stdout, done.stderr

        own = ["--loader", "own_engine:build", "--tp", "4", "--rank", "3", "-o", "x.lpt"]
        self.assertEqual(call(*own), (0, "x.lpt: 1 copy; 0 derives, 1 refusals\n"
                                         "  item (reads values on the host) at own_engine.py:6: 'b'\n", ""))
        code, _, said = call(*own)
        self.assertEqual(code, 3)
        self.assertIn("exists", said)
        self.assertEqual(call(*own, "-f", "--fail-on-refusal")[0], 1)
        self.assertEqual(call("--loader", "nonsense", "-o", "y.lpt")[0], 2)
        self.assertEqual(loadplan.Trace.open(os.path.join(self.folder, "x.lpt")).rows[0]["src_offset"], "96")

    # -- errors

    def test_loader_that_raises(self):
        def load(model, name, w):
            raise KeyError("no such expert")
        self.checkpoint(w=torch.randn(4))
        model = Model(load, w=torch.zeros(4))
        before = [torch.Tensor.__dict__.get(name) for name in ("numpy", "tolist", "__array__")]
        with self.assertRaisesRegex(loadplan.LoadplanError, r"the loader failed: KeyError.*no such expert.*test_recording\.py:\d+"):
            loadplan.record(model.load_weights, self.path, model)
        self.assertEqual([torch.Tensor.__dict__.get(name) for name in ("numpy", "tolist", "__array__")], before)

    def test_loader_that_raises_after_a_host_read(self):
        def load(model, name, w):
            rows = int(w.sum())
            model.w.data[:rows].copy_(w)
        self.checkpoint(w=torch.full((4,), 1.0))
        model = Model(load, w=torch.zeros(4))
        with self.assertRaisesRegex(loadplan.LoadplanError, r"must match .*it had read values on the host before, first at .*:\d+$"):
            loadplan.record(model.load_weights, self.path, model)

    def test_wrong_shape_is_torchs_error(self):
        self.checkpoint(w=torch.randn(5))
        model = Model(lambda model, name, w: model.w.data.copy_(w), w=torch.zeros(4))
        with self.assertRaisesRegex(loadplan.LoadplanError, r"\b5\b.*\b4\b|\b4\b.*\b5\b"):
            loadplan.record(model.load_weights, self.path, model)

    def test_missing_files_and_names(self):
        with self.assertRaisesRegex(loadplan.LoadplanError, "nowhere"):
            loadplan.record(lambda weights: None, os.path.join(self.folder, "nowhere"), {})
        self.checkpoint(w=torch.randn(4))
        with loadplan.capture(self.path, {"w": torch.zeros(4)}) as recording:
            with self.assertRaisesRegex(loadplan.LoadplanError, "no checkpoint tensor 'v'"):
                recording.tensor("v")
            recording.tensor("w")
        with self.assertRaises(TypeError):
            loadplan.record(lambda weights: None, self.path, {"w": 3})
        with self.assertRaises(TypeError):
            loadplan.record(lambda weights: None, self.path, {}, tensor_parallel=2)

    def test_session_errors(self):
        sources = self.checkpoint(w=torch.randn(4))
        model = Model(lambda model, name, w: model.w.data.copy_(w), w=torch.zeros(4))
        trace = loadplan.record(model.load_weights, self.path, model)
        with self.assertRaises(loadplan.LoadplanError) as caught:
            with loadplan.Session(trace, model):
                pass
        self.assertEqual(caught.exception.status, "LP_E_INCOMPLETE")
        session = loadplan.Session(trace, model)
        for name, tensor, status in (("x", sources["w"], "LP_E_UNKNOWN_NAME"), ("w", torch.zeros(5), "LP_E_MISMATCH"),
                                     ("w", torch.zeros(4, dtype=torch.int32), "LP_E_MISMATCH")):
            with self.assertRaises(loadplan.LoadplanError) as caught:
                session.push(name, tensor)
            self.assertEqual(caught.exception.status, status)
        self.assertEqual(session.missing(), ["w"])
        session.push("w", sources["w"])
        with self.assertRaises(loadplan.LoadplanError) as caught:
            session.push("w", sources["w"])
        self.assertEqual(caught.exception.status, "LP_E_DUPLICATE")
        self.assertEqual(session.finish().names_loaded, 1)
        session.close()
        for wrong in ({"w": torch.zeros(5)}, {}, {"w": torch.zeros(4, dtype=torch.float64)}, {"w": torch.zeros(4, 2)[:, 0]}):
            with self.assertRaises(loadplan.LoadplanError) as caught:
                loadplan.Session(trace, wrong)
            self.assertEqual(caught.exception.status, "LP_E_MISMATCH")

    def test_reload_keeps_addresses_and_equals_a_cold_start(self):
        def load(model, name, w):
            model.w.data.copy_(w.t())
        first = self.checkpoint(w=torch.randn(4, 6))
        model = Model(load, w=torch.zeros(6, 4))
        trace = loadplan.record(model.load_weights, self.path, model)
        plan, address = loadplan.Plan(trace, model), model.w.data_ptr()
        second = {"w": torch.randn(4, 6)}
        for weights in (first, second, first):
            for mode in ("direct", "layerwise"):
                loadplan_session = plan.session(mode)
                with loadplan_session as session:
                    session.push("w", weights["w"].t().contiguous().t())  # strided
                self.assertTrue(torch.equal(model.w, weights["w"].t()))
        self.assertEqual(model.w.data_ptr(), address)

    # -- cost

    def test_push_many(self):
        self.checkpoint(a=torch.randn(4, 6), b=torch.arange(3), c=torch.randn(2))
        model = Model(lambda model, name, w: getattr(model, name).data.copy_(w) if name != "c" else None,
                      a=torch.zeros(4, 6), b=torch.zeros(3, dtype=torch.int64))
        trace = loadplan.record(model.load_weights, self.path, model)
        plan = loadplan.Plan(trace, model)
        weights = {"b": torch.tensor([7, 8, 9]), "c": torch.zeros(2), "a": torch.randn(4, 6)}
        bundle = plan.bundle(weights)
        for _ in range(2):
            weights["a"].add_(1)
            with plan.session() as session:
                session.push_many(bundle)
            self.assertTrue(torch.equal(model.a, weights["a"]) and torch.equal(model.b, weights["b"]))
        for broken, status in (({"no": torch.zeros(1)}, "LP_E_UNKNOWN_NAME"), ({"a": torch.zeros(6, 4)}, "LP_E_MISMATCH"),
                               ({"a": torch.zeros(4, 6).double()}, "LP_E_MISMATCH"),
                               ({"a": torch.zeros(6, 4).t()}, "LP_E_UNSUPPORTED"),
                               ({"a": torch.zeros(4, 6, device="meta")}, "LP_E_UNSUPPORTED")):
            with self.assertRaises(loadplan.LoadplanError) as caught:
                plan.bundle(broken)
            self.assertEqual(caught.exception.status, status)
        session = plan.session()
        with self.assertRaises(loadplan.LoadplanError) as caught:
            session.push_many(bundle, bundle.pointers()[:2])
        self.assertEqual(caught.exception.status, "LP_E_ARGUMENT")
        with self.assertRaises(loadplan.LoadplanError) as caught:
            session.push_many(loadplan.Plan(trace, model).bundle(weights))
        self.assertEqual(caught.exception.status, "LP_E_ARGUMENT")
        session.push_many(bundle)
        with self.assertRaises(loadplan.LoadplanError) as caught:
            session.push_many(bundle)
        self.assertEqual(caught.exception.status, "LP_E_DUPLICATE")
        session.finish()

    def test_devices(self):
        """What can be said of CUDA tensors without a GPU: who may be together, and that the library answers for itself."""
        class On:
            def __init__(self, device, count=1):
                self.device, self._count = torch.device(device), count

            def numel(self):
                return self._count
        device_of = loadplan._session.device_of
        self.assertEqual(device_of({"a": On("cpu")}), torch.device("cpu"))
        self.assertEqual(device_of({"a": On("cuda:1"), "b": On("cpu", 0), "c": On("cuda:1")}), torch.device("cuda:1"))
        for mixed, text in (({"a": On("cuda:0"), "b": On("cpu")}, "'b' is on cpu, but 'a' is on cuda:0"),
                            ({"a": On("cuda:0"), "b": On("cuda:1")}, "'b' is on cuda:1, but 'a' is on cuda:0"),
                            ({"a": On("meta")}, "'a' is on meta")):
            with self.assertRaises(loadplan.LoadplanError) as caught:
                device_of(mixed)
            self.assertIn(text, str(caught.exception))
            self.assertEqual(caught.exception.status, "LP_E_UNSUPPORTED")
        self.checkpoint(a=torch.randn(3))
        model = Model(lambda model, name, w: model.a.data.copy_(w), a=torch.zeros(3))
        trace = loadplan.record(model.load_weights, self.path, model)
        if not torch.cuda.is_available():
            with self.assertRaises(loadplan.LoadplanError) as caught:  # a build without CUDA, or no driver
                loadplan.Plan(trace, model, device=torch.device("cuda:0"))
            self.assertIn(caught.exception.status, ("LP_E_UNSUPPORTED", "LP_E_DEVICE"))
        with self.assertRaises(loadplan.LoadplanError) as caught:
            loadplan.Session(trace, model, stream=object())
        self.assertEqual(caught.exception.status, "LP_E_ARGUMENT")
        if torch.cuda.is_available():
            self.on_device(trace)

    def on_device(self, trace):
        live = {"a": torch.zeros(3, device="cuda")}
        plan, source = loadplan.Plan(trace, live), torch.randn(3, device="cuda")
        for push in (lambda s: s.push("a", source), lambda s: s.push("a", source.cpu()),
                     lambda s: s.push_many(plan.bundle({"a": source}))):
            live["a"].zero_()
            with plan.session("direct") as session:
                push(session)
            torch.cuda.synchronize()
            self.assertTrue(torch.equal(live["a"], source))

    def test_37_thousand_names(self):
        layers, experts, names, end = 96, 128, {}, 0
        for layer in range(layers):
            for e in range(experts):
                for part, shape in (("gate", (768, 2048)), ("up", (768, 2048)), ("down", (2048, 768))):
                    begin, end = end, end + shape[0] * shape[1] * 2
                    names[f"layers.{layer}.experts.{e}.{part}"] = {"dtype": "BF16", "shape": shape, "data_offsets": [begin, end]}
        header = json.dumps(names).encode()
        header += b" " * (-len(header) % 8)
        with open(self.path, "wb") as f:
            f.write(struct.pack("<Q", len(header)) + header)
            f.truncate(8 + len(header) + end)  # 116 GB of nothing
        with torch.device("meta"):
            d = {f"layers.{layer}.{part}": torch.nn.Parameter(torch.empty(experts, *shape, dtype=torch.bfloat16),
                                                               requires_grad=False)
                 for layer in range(layers) for part, shape in (("gate_up", (384, 2048)), ("down", (2048, 192)))}

        def load(weights):
            for name, w in weights:
                _, layer, _, e, part = name.split(".")
                if part == "down":
                    d[f"layers.{layer}.down"].data[int(e)].copy_(w.narrow(1, 192, 192))
                else:
                    half = d[f"layers.{layer}.gate_up"].data[int(e)].narrow(0, 192 * (part == "up"), 192)
                    half.copy_(w.narrow(0, 192, 192))

        began = time.process_time()
        load((name, torch.empty(form["shape"], dtype=torch.bfloat16, device="meta")) for name, form in names.items())
        own = time.process_time() - began
        began = time.process_time()
        trace = loadplan.record(load, self.path, d, tp=4, tp_rank=1)
        seconds = time.process_time() - began

        def pairs():
            for name in names:
                _, layer, _, e, part = name.split(".")
                whole, e = f"layers.{layer}.{'down' if part == 'down' else 'gate_up'}", int(e)
                if part == "down":
                    yield name, lambda d, w=whole, e=e: d[w].data[e], lambda w: w.narrow(1, 192, 192)
                else:
                    at = 192 * (part == "up")
                    yield name, lambda d, w=whole, e=e, at=at: d[w].data[e].narrow(0, at, 192), lambda w: w.narrow(0, 192, 192)
        library = min(library_seconds(self.path, d, pairs()) for _ in range(3))  # the quietest one is the library's
        print(f"{len(names)} names: {seconds:.1f} s of processor time, the loader's own Python {own:.1f} s, the C library's "
              f"calls {library:.2f} s ({library / seconds:.1%})")
        self.assertEqual(trace.query("SELECT count(*) AS n FROM v_records")[0]["n"], str(len(names)))
        self.assertEqual(list(trace.check()), [])
        self.assertLess(seconds - own, 6)
        self.assertLess(library / seconds, 0.05)
        # The same names pushed by one call. A session without bytes shows what the call itself costs.
        blank = {name: torch.empty(t.shape, dtype=t.dtype, device="meta") for name, t in d.items()}
        memory = loadplan._storages.Memory()
        live = {name: torch.empty(0, dtype=t.dtype).set_(memory.storage(t.numel() * 2), 0, t.shape) for name, t in blank.items()}
        pushed = {name: torch.empty(0, dtype=torch.bfloat16).set_(memory.storage(2 * 768 * 2048), 0, form["shape"])
                  for name, form in names.items()}
        plan = loadplan.Plan(trace, live)
        bundle = plan.bundle(pushed)
        best = None
        for _ in range(5):
            with plan.session("meta") as session:
                began = time.process_time()
                session.push_many(bundle)
                took = time.process_time() - began
                best = took if best is None else min(best, took)
        print(f"{len(names)} names in one push: {best * 1e3:.1f} ms of processor time")
        self.assertEqual(session.report.names_loaded, len(names))
        self.assertLess(best, 0.050)


def library_seconds(path, destinations, pairs):
    """Processor time that the C library takes for a recording: its calls alone, one after the other. pairs: which part of
    which destination gets which part of which name, as functions of the tensors."""
    from loadplan._library import Error, lib
    from loadplan._record import Recording
    began = time.thread_time()
    recording = Recording(path, destinations, tp=4, tp_rank=1)
    spent, storages, error = time.thread_time() - began, recording.storages, Error()
    forms = []
    for name, to, source in pairs:
        to, source = to(destinations), source(recording.tensor(name))
        forms.append((storages.strided(to, storages.number_of(to)), storages.strided(source, storages.number_of(source))))
    calls, pointer = [(to.buffer_info()[0], source.buffer_info()[0]) for to, source in forms], c.byref(error)
    began = time.thread_time()
    for to, source in calls:
        assert lib.lp_mirror_copy(storages.mirror, b"loader.py", 7, to, source, False, pointer) == 0
    for index in range(len(calls)):  # once more; what counts is how long it takes
        lib.lp_mirror_source(storages.mirror, index)
    storages.close()
    handle = c.c_void_p()
    assert lib.lp_recorder_finish(recording._recorder, c.byref(handle), pointer) == 0
    spent += time.thread_time() - began
    lib.lp_trace_close(handle)
    recording.close()
    return spent


if __name__ == "__main__":
    unittest.main()
