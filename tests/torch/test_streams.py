# SPDX-License-Identifier: Apache-2.0
"""Packages that read safetensors files by C++ code of their own: what a loader gets from them is recorded, in any of the ways
that they hand tensors out, and a replay equals what they load."""
import importlib.util
import json
import os
import tempfile
import unittest

import torch
from safetensors.torch import save_file

import loadplan


class Group:
    """A rank of two, for packages that take anything like a process group."""

    def __init__(self, rank):
        self._rank = rank

    def rank(self):
        return self._rank

    def size(self):
        return 2


def needs(package):
    found = importlib.util.find_spec(package) is not None
    return unittest.skipUnless(found, f"{package} is not installed (tests/torch/setup.sh does it)")


class Streams(unittest.TestCase):
    def setUp(self):
        self._folder = tempfile.TemporaryDirectory()
        torch.manual_seed(4)
        self.tensors = {"b": torch.randn(5, 6), "a": torch.randn(4, 6).bfloat16(), "c": torch.arange(7),
                        "d": torch.randn(3, 8).to(torch.float8_e4m3fn), "e": torch.randn(5, 6)}
        self.files = [os.path.join(self._folder.name, f"model-0000{i}-of-00002.safetensors") for i in (1, 2)]
        for file, names in zip(self.files, ("bae", "cd")):
            save_file({name: self.tensors[name] for name in names}, file)
        shards = {name: os.path.basename(file) for file, names in zip(self.files, ("bae", "cd")) for name in names}
        with open(os.path.join(self._folder.name, "model.safetensors.index.json"), "w") as index:
            json.dump({"metadata": {}, "weight_map": shards}, index)

    def tearDown(self):
        self._folder.cleanup()

    def check(self, load, wanted):
        """load() returns tensors by name: what is recorded of it, replayed, is `wanted`."""
        with loadplan.capture(self._folder.name) as recording:
            recording.add({name: torch.empty_like(t).copy_(t) for name, t in load().items()})
        trace = recording.trace
        self.assertEqual((trace.refusals, trace.unrecorded), ([], ()))
        got = {name: torch.empty_like(t) for name, t in wanted.items()}
        with loadplan.Session(trace, got, "direct") as session:
            session.push_checkpoint(self._folder.name)
        for name, t in wanted.items():
            self.assertTrue(torch.equal(got[name].view(torch.uint8), t.contiguous().view(torch.uint8)), f"{name}: bytes differ")

    @needs("runai_model_streamer")
    def test_runai(self):
        from runai_model_streamer import SafetensorsStreamer

        def load(**options):
            with SafetensorsStreamer() as streamer:
                streamer.stream_files(self.files, **options)
                count = sum(len(tensors) for tensors in streamer.files_to_tensors_metadata.values())
                loaded = {name: t.clone() for name, t in streamer.get_tensors()}
            self.assertEqual(len(loaded), count)
            return loaded
        self.check(load, load())
        self.assertEqual(load().keys(), self.tensors.keys())  # the package's own methods are back
        some = ("b", "d")
        self.check(lambda: load(tensor_names=some), {name: self.tensors[name] for name in some})

    @needs("fastsafetensors")
    def test_fastsafetensors(self):
        import fastsafetensors as fast

        def opened():
            files = fast.fastsafe_open(self.files, nogds=True)
            return {name: files.get_tensor(name) for name in files.keys()}

        def parallel():
            loader = fast.ParallelLoader(fast.SingleGroup(), self.files, use_tqdm_on_load=False, device="cpu", nogds=True)
            loaded = {name: t.clone() for name, t in loader.iterate_weights()}
            loader.close()
            return loaded

        def filtered():
            loader = fast.SafeTensorsFileLoader(None, "cpu", nogds=True)
            loader.set_tensor_filter(lambda name: name != "c")
            loader.add_filenames({0: self.files})
            buffer = loader.copy_files_to_device()
            self.assertRaises(ValueError, buffer.get_tensor, "c")
            return {name: buffer.get_tensor(name) for name in loader.get_keys()}
        for load in (opened, parallel, filtered):
            wanted = {name: t.clone() for name, t in load().items()}
            self.assertEqual(len(wanted), 4 if load is filtered else 5)
            self.check(load, wanted)

    @needs("fastsafetensors")
    def test_fastsafetensors_of_two_ranks(self):
        import fastsafetensors as fast
        for rank in (0, 1):
            def load(rank=rank):
                loader = fast.SafeTensorsFileLoader(None, "cpu", nogds=True)
                loader.pg = Group(rank)
                loader.add_filenames({0: self.files[:1], 1: self.files[1:]})
                buffer = loader.copy_files_to_device()
                self.assertEqual(buffer.get_filename("c"), self.files[1])
                pushed = buffer.push_tensor("a", 1)
                self.assertEqual(pushed is None, rank == 0)
                return {"a": buffer.get_sharded("a", 0), "c": buffer.get_tensor("c"), "d": buffer.get_sharded("d", 1),
                        "b and e": buffer.get_multi_cols(["b", "e"], 0).get_raw()}
            t, rows = self.tensors, slice(3) if rank == 0 else slice(3, 5)
            self.check(load, {"a": t["a"][2 * rank:2 * rank + 2], "c": t["c"], "d": t["d"][:, 4 * rank:4 * rank + 4],
                              "b and e": torch.cat([t["b"][rows], t["e"][rows]])})

    @needs("instanttensor")
    def test_instanttensor(self):
        import instanttensor

        def load(**options):
            with instanttensor.safe_open(list(reversed(self.files)), framework="pt", device=0, **options) as opened:
                self.assertEqual(opened.get_tensor_metadata("a"), (torch.bfloat16, [4, 6]))
                return dict(opened.tensors())
        self.check(load, self.tensors)
        self.check(lambda: load(tensor_filter=["[a-c]", "e"]), {name: self.tensors[name] for name in "abce"})


if __name__ == "__main__":
    unittest.main()
