# SPDX-License-Identifier: Apache-2.0
"""Loaders as other frameworks have them: files that are opened whole, in slices or by bytes, threads, parameters that move
into one another's memory, tensors made of tensors. Each is recorded, replayed and compared with what it really loads."""
import concurrent.futures
import os
import queue
import tempfile
import threading
import unittest
import warnings

import safetensors.torch
import torch
import torch.distributed as dist
from safetensors import safe_open
from safetensors.torch import load_file, load_model, save_file
from torch.testing._internal.distributed.fake_pg import FakeStore

import loadplan
from loadplan._session import named_tensors


def data(tensor):
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8)


class Model(torch.nn.Module):
    def __init__(self, **tensors):
        super().__init__()
        for name, tensor in tensors.items():
            self.register_parameter(name, torch.nn.Parameter(tensor.clone(), requires_grad=False))


class Coded(torch.Tensor):
    """Codes and their scales as one tensor: a shell without memory, with operations of its own."""

    @staticmethod
    def __new__(cls, codes, scales):
        made = torch.Tensor._make_wrapper_subclass(cls, codes.shape, dtype=codes.dtype)
        made.codes, made.scales = codes, scales
        return made

    @classmethod
    def __torch_dispatch__(cls, operation, types, args=(), kwargs=None):
        if operation is torch.ops.aten.cat.default:
            return cls(torch.cat([t.codes for t in args[0]]), torch.cat([t.scales for t in args[0]]))
        if operation is torch.ops.aten.copy_.default:
            args[0].codes.copy_(args[1].codes)
            args[0].scales.copy_(args[1].scales)
            return args[0]
        raise NotImplementedError(operation)


def own(model, path):
    """Every tensor into the parameter of its name."""
    for name, w in load_file(path).items():
        getattr(model, name).data.copy_(w)


class Frameworks(unittest.TestCase):
    def setUp(self):
        self._folder = tempfile.TemporaryDirectory()
        self.path = os.path.join(self._folder.name, "model.safetensors")
        torch.manual_seed(2)

    def tearDown(self):
        self._folder.cleanup()

    def check(self, load, sources, make, kinds="copy", rules=()):
        """load(model, path) recorded, and replayed into a model that has gone through it and was cleared."""
        save_file(sources, self.path, metadata={"format": "pt", "made": "here"})
        real, recorded, replayed = make(), make(), make()
        with loadplan.capture(self.path, recorded) as recording:
            load(recorded, self.path)
        for model in (real, replayed):
            load(model, self.path)
        for tensor in named_tensors(replayed).values():
            tensor.data.zero_()
        trace = recording.trace
        self.assertEqual(trace.refusals, [])
        self.assertEqual(trace.unrecorded, ())
        self.assertEqual(" ".join(sorted({row["kind"] for row in trace.rows})), kinds)
        self.assertEqual({f.rule for f in trace.check()} - {"materialises", "implicit_cast"}, set(rules))
        with loadplan.Session(trace, replayed, "direct") as session:
            session.push_checkpoint(self.path)
        wanted, got = named_tensors(real), named_tensors(replayed)
        self.assertEqual(wanted.keys(), got.keys())
        for name, tensor in wanted.items():
            self.assertEqual(tensor.shape, got[name].shape)
            self.assertTrue(torch.equal(data(tensor), data(got[name])), f"{name}: bytes differ")
        return trace

    two = staticmethod(lambda: {"a": torch.randn(4, 6), "b": torch.randn(4, 6)})
    blank = staticmethod(lambda: Model(a=torch.zeros(4, 6), b=torch.zeros(4, 6)))

    # -- files

    def test_state_dicts(self):
        self.check(own, self.two(), self.blank)
        self.check(lambda model, path: load_model(model, path), self.two(), self.blank)
        self.check(lambda model, path: model.load_state_dict(load_file(path)), self.two(), self.blank)
        self.check(lambda model, path: model.load_state_dict(load_file(path), assign=True), self.two(), self.blank)
        self.check(lambda model, path: model.load_state_dict(load_file(path)), self.two(), lambda: self.blank().half(), "cast")

    def test_bytes_of_a_file(self):
        def load(model, path):
            with open(path, "rb") as f:
                model.load_state_dict(safetensors.torch.load(f.read()))
        self.check(load, self.two(), self.blank)

    def test_bytes_of_another_file(self):
        other = os.path.join(self._folder.name, "other")
        save_file({"c": torch.tensor([2.5])}, other)

        def load(model, path):
            with open(other, "rb") as f:
                self.assertEqual(safetensors.torch.load(f.read())["c"].item(), 2.5)
            own(model, path)
        self.check(load, self.two(), self.blank)

    def test_slices_and_metadata(self):
        def load(model, path):
            with safe_open(path, framework="pt", device="cpu") as f:
                self.assertEqual(f.metadata()["made"], "here")
                for name in f.keys():
                    part = f.get_slice(name)
                    self.assertEqual((part.get_shape(), part.get_dtype()), ([4, 6], "F32"))
                    getattr(model, name).data.copy_(part[1:3, ::2].reshape(-1))
        self.check(load, self.two(), lambda: Model(a=torch.zeros(6), b=torch.zeros(6)))

    def test_files_after_a_recording_are_files(self):
        kept = []

        def load(model, path):
            from safetensors import safe_open as imported_meanwhile
            kept.append(imported_meanwhile)
            own(model, path)
        sources = self.two()
        self.check(load, sources, self.blank)
        with kept[0](self.path, "pt") as f:
            self.assertTrue(torch.equal(f.get_tensor("a"), sources["a"]))

    # -- threads

    def test_reader_thread(self):
        """Names are read ahead on a thread; each write and fill belongs to the name that is worked on."""
        def load(model, path):
            ahead = queue.Queue(3)

            def read():
                with safe_open(path, "pt") as f:
                    for name in f.keys():
                        ahead.put((name, f.get_tensor(name)))
                ahead.put(None)
            threading.Thread(target=read).start()
            while (one := ahead.get()) is not None:
                p = getattr(model, one[0]).data
                p[:3].copy_(one[1])
                p[3:].fill_(7)
        names = "abcdefgh"
        trace = self.check(load, {n: torch.randn(3, 2) for n in names}, lambda: Model(**{n: torch.zeros(4, 2) for n in names}),
                           "copy fill")
        self.assertEqual([row["name"] for row in trace.rows], [row["destination"] for row in trace.rows])

    def test_names_of_a_whole_file(self):
        """What is read at once is worked on name by name."""
        def load(model, path):
            for name, w in load_file(path).items():
                p = getattr(model, name).data
                p[:4].copy_(w)
                p[4:].fill_(3)
        trace = self.check(load, self.two(), lambda: Model(a=torch.zeros(5, 6), b=torch.zeros(5, 6)), "copy fill")
        self.assertEqual([row["name"] for row in trace.rows], [row["destination"] for row in trace.rows])

    def test_host_read_of_a_whole_file(self):
        """A constant that hides a value of another name is not trusted, though both were read before."""
        save_file(self.two(), self.path)
        model = self.blank()
        with loadplan.capture(self.path, model) as recording:
            given = load_file(self.path)
            scale = given["a"][0, 0].item() * 3
            model.b.data.copy_(given["b"])
            model.b.data[0].fill_(scale)
        self.assertEqual({row["name"] for row in recording.trace.refusals}, {"a", "b"})

    def test_pool_of_threads(self):
        names = [f"w{i}" for i in range(24)]

        def load(model, path):
            def one(name):
                with safe_open(path, "pt") as f:
                    getattr(model, name).data.copy_(f.get_slice(name)[1:].to(torch.bfloat16).t().contiguous())
            with concurrent.futures.ThreadPoolExecutor(4) as pool:
                list(pool.map(one, names))
        self.check(load, {n: torch.randn(3, 2) for n in names},
                   lambda: Model(**{n: torch.zeros(2, 2, dtype=torch.bfloat16) for n in names}), "cast")

    def test_thread_that_outlives_the_recording(self):
        go, said = threading.Event(), []

        def later():
            go.wait()
            t = torch.zeros(3)
            said.append(t.copy_(torch.ones(3)).sum().item())
        save_file(self.two(), self.path)
        model = self.blank()
        with loadplan.capture(self.path, model):
            thread = threading.Thread(target=later)
            thread.start()
            own(model, self.path)
        go.set()
        thread.join()
        self.assertEqual(said, [3.0])

    # -- parameters that move

    def test_swapped(self):
        def load(model, path):
            own(model, path)
            model.a.data, model.b.data = model.b.data, model.a.data
        trace = self.check(load, self.two(), self.blank)
        self.assertEqual({row["name"]: row["destination"] for row in trace.rows}, {"a": "b", "b": "a"})

    def test_other_views_of_themselves(self):
        for view in (lambda t: t.t(), lambda t: t[:2], lambda t: t[1:3, 2:], lambda t: t.view(torch.int32), lambda t: t.view(24)):
            def load(model, path):
                own(model, path)
                model.a = torch.nn.Parameter(view(model.a.data), requires_grad=False)
            trace = self.check(load, self.two(), self.blank)
            self.assertEqual(trace.rebound, ("a",))

    def test_tied_on_the_way(self):
        def by_parameter(model, path):
            model.a.data.copy_(load_file(path)["a"])
            model.b = model.a

        def by_data(model, path):
            model.b.data = model.a.data[1:]
            model.a.data.copy_(load_file(path)["a"])
        for load in (by_parameter, by_data):
            trace = self.check(load, {"a": torch.randn(4, 6)}, self.blank)
            self.assertEqual([row["destination"] for row in trace.rows], ["a"])

    def test_views_of_one_buffer(self):
        def load(model, path):
            flat = torch.empty(48)
            for i, name in enumerate("ab"):
                getattr(model, name).data = flat[24 * i:24 * i + 24].view(4, 6)
            own(model, path)
        trace = self.check(load, self.two(), self.blank)
        self.assertEqual({row["storage"] for row in trace.query("SELECT storage FROM v_destinations")}, {"a"})

    def test_parts_of_a_fused_parameter(self):
        def load(model, path):
            own(model, path)
            model.ab = torch.nn.Parameter(torch.cat([model.a.data, model.b.data]), requires_grad=False)
            model.a.data, model.b.data = model.ab.data[:4], model.ab.data[4:]
        trace = self.check(load, self.two(), self.blank)
        self.assertEqual({row["destination"] for row in trace.rows}, {"ab"})

    def test_initial_value_copied_onto_itself(self):
        """set_model_state_dict() writes what it did not find as it was: nothing happens to it."""
        def load(model, path):
            state = model.state_dict()
            state.update(load_file(path))
            model.load_state_dict(state)
        save_file({"a": torch.randn(4, 6)}, self.path)
        model = Model(a=torch.zeros(4, 6), b=torch.ones(4))
        with loadplan.capture(self.path, model) as recording:
            load(model, self.path)
        self.assertEqual([(row["destination"], row["kind"]) for row in recording.trace.rows], [("a", "copy")])

    def test_write_that_nothing_is_blamed_for(self):
        """Constants after all names, of too many stretches of equal elements: it is said, and not in the trace."""
        save_file({"a": torch.randn(64, 96)}, self.path)
        model = Model(a=torch.zeros(64, 96))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            with loadplan.capture(self.path, model) as recording:
                model.load_state_dict(load_file(self.path))
                recording.current = -1
                model.a.data.t().copy_(torch.arange(6144.0).view(96, 64))
        self.assertEqual(len(recording.trace.unrecorded), 1)
        self.assertIn("not in the trace", str(caught[0].message))

    # -- tensors made of tensors

    def test_shells_without_memory(self):
        def load(model, path):
            parts = [Coded(w.view(torch.uint8), w[:, :1]) for _, w in sorted(load_file(path).items())]
            model["w"].copy_(torch.cat(parts))
        trace = self.check(load, self.two(), lambda: {
            "w": Coded(torch.zeros(8, 24, dtype=torch.uint8), torch.zeros(8, 1))})
        self.assertEqual({row["destination"] for row in trace.rows}, {"w.codes", "w.scales"})

    def test_squared_and_bounded_in_place(self):
        def load(model, path):
            for name, w in load_file(path).items():
                getattr(model, name).copy_(w)
                getattr(model, name).pow_(2).clamp_max_(1.5).clamp_min_(0.25)
        self.check(load, self.two(), self.blank, "")

    def test_distributed_tensors(self):
        from torch.distributed.tensor import DTensor, Shard, distribute_tensor
        from torch.distributed.device_mesh import init_device_mesh
        dist.init_process_group("fake", rank=1, world_size=4, store=FakeStore())
        self.addCleanup(dist.destroy_process_group)
        mesh = init_device_mesh("cpu", (4,))

        def make():
            spread = distribute_tensor(torch.zeros(8, 6), mesh, [Shard(0)], src_data_rank=None)
            return Model(a=spread, b=torch.zeros(3))

        def local(model, path):
            given = load_file(path)
            model.a.to_local().copy_(given["a"][2:4])
            model.b.copy_(given["b"])

        def spread(model, path):
            given = load_file(path)
            model.a.copy_(distribute_tensor(given["a"], mesh, [Shard(0)], src_data_rank=None))
            model.b.copy_(given["b"])

        def replaced(model, path):
            given = load_file(path)
            given["a"] = torch.nn.Parameter(DTensor.from_local(given["a"][2:4], mesh, [Shard(0)], run_check=False),
                                            requires_grad=False)
            model.load_state_dict(given, assign=True)
        for load in (local, spread, replaced):
            trace = self.check(load, {"a": torch.randn(8, 6), "b": torch.randn(3)}, make)
            self.assertEqual({row["destination"]: row["bytes"] for row in trace.rows}, {"a": "48", "b": "12"})


    def test_values_of_other_ranks(self):
        """What comes by a collective is not in the checkpoint that is recorded here; alone it is what was sent."""
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor import Shard, distribute_tensor

        def spread(mesh, model, path):
            full = load_file(path)["a"]
            model.a.copy_(distribute_tensor(full, mesh, [Shard(0)]))  # rank 0 scatters

        save_file({"a": torch.randn(8, 6)}, self.path)
        for ranks in (4, 1):
            dist.init_process_group("fake", rank=ranks - 1, world_size=ranks, store=FakeStore())
            mesh = init_device_mesh("cpu", (ranks,))
            model = Model(a=distribute_tensor(torch.zeros(8, 6), mesh, [Shard(0)], src_data_rank=None))
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                with loadplan.capture(self.path, model) as recording:
                    spread(mesh, model, self.path)
            dist.destroy_process_group()
            said = [what for what in recording.trace.unrecorded if "brings values of other ranks" in what]
            self.assertEqual(len(said), ranks == 4)
            self.assertEqual([row["kind"] for row in recording.trace.rows], [] if ranks == 4 else ["copy"])


if __name__ == "__main__":
    torch.set_grad_enabled(False)
    unittest.main()
