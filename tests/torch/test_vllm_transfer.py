# SPDX-License-Identifier: Apache-2.0
"""New weights for a running engine, through the weight transfer backend `loadplan`."""
import os
import sys
import tempfile
import unittest

import vllm_engine
from children import in_child
from vllm_engine import engine, make, tokens

BACKEND = {"weight_transfer_config": {"backend": "loadplan"}}


def update(llm, *parts):
    llm.start_weight_update()
    for part in parts:
        llm.update_weights({"update_info": part})
    llm.finish_weight_update()


def expected(folder):
    return tokens(engine(folder, "auto"))


def payload(folder):
    from safetensors.torch import load_file
    found = {}
    for name in sorted(os.listdir(folder)):
        if name.endswith(".safetensors"):
            found.update(load_file(os.path.join(folder, name)))
    return found


def model_of(llm):
    return llm.llm_engine.model_executor.driver_worker.worker.model_runner.get_model()


def addresses(llm):
    return {name: (t.data_ptr(), tuple(t.shape)) for name, t in model_of(llm).named_parameters()}


def reload(first, second, cache):
    """There and back, in every way that parts can come."""
    said = {}
    llm = engine(first, extra={"cache": cache}, **BACKEND)
    llm.init_weight_transfer_engine({"init_info": {}})
    said["cold"] = tokens(llm)
    before = addresses(llm)
    update(llm, {"checkpoint": second})
    said["folder"] = tokens(llm)
    said["moved"] = addresses(llm) != before
    update(llm, *[{"checkpoint": os.path.join(first, name)} for name in sorted(os.listdir(first))
                  if name.endswith(".safetensors")])
    said["files"] = tokens(llm)
    weights = payload(second)
    names = sorted(weights, key=hash)
    update(llm, *[{"tensors": {name: weights[name] for name in names[i::5]}} for i in range(5)])
    said["tensors"] = tokens(llm)
    update(llm, {"checkpoint": second})
    said["same"] = tokens(llm)
    update(llm, {"checkpoint": os.path.join(first, "model.safetensors.index.json")})
    said["back"] = tokens(llm)
    return said


def refused_names(first, second, cache):
    """A loader that computes what no derive says, for two norms and one projection."""
    from vllm.model_executor.models.llama import LlamaForCausalLM
    plain = LlamaForCausalLM.load_weights

    def computing(self, weights):
        chosen = ("model.layers.0.input_layernorm.weight", "model.norm.weight", "model.layers.1.mlp.up_proj.weight")
        return plain(self, ((name, w.tanh() if name in chosen else w) for name, w in weights))

    LlamaForCausalLM.load_weights = computing
    said = {"ordinary": in_child(expected, first), "other": in_child(expected, second)}
    with vllm_engine.logged() as lines:
        llm = engine(first, extra={"cache": cache + "-refused"}, **BACKEND)
        llm.init_weight_transfer_engine({"init_info": {}})
        said["cold"] = tokens(llm)
        update(llm, {"checkpoint": second})
        said["reloaded"] = tokens(llm)
        weights = payload(first)
        update(llm, {"tensors": dict(list(weights.items())[::2])}, {"tensors": dict(list(weights.items())[1::2])})
        said["back"] = tokens(llm)
    said["lines"] = lines
    return said


def fails(call, status):
    try:
        call()
    except Exception as error:  # noqa: BLE001: whatever the engine makes of it
        assert status in f"{getattr(error, 'status', '')} {error}", f"{status} expected, not {error!r}"
        return str(error)
    raise AssertionError(f"{status} expected")


def errors(first, second, cache):
    """Every way of not finishing leaves the tokens of the first checkpoint, and the next whole update works."""
    llm = engine(first, extra={"cache": cache}, **BACKEND)
    llm.init_weight_transfer_engine({"init_info": {}})
    good, weights, said = tokens(llm), payload(second), {}
    half = {name: weights[name] for name in sorted(weights)[::2]}
    rest = {name: weights[name] for name in sorted(weights)[1::2]}
    some = next(iter(half))

    def still(what, text):
        assert tokens(llm) == good, f"{what}: mixed weights"
        said[what] = text

    def one(part):
        llm.update_weights({"update_info": part})

    llm.start_weight_update()
    one({"tensors": half})
    still("partial", fails(llm.finish_weight_update, "LP_E_INCOMPLETE"))
    still("doubled", fails(lambda: one({"tensors": {some: half[some]}}), "LP_E_DUPLICATE"))
    still("finish after an error", fails(llm.finish_weight_update, "finish_weight_update called without"))

    llm.start_weight_update()
    one({"tensors": half})
    still("doubled in a file", fails(lambda: one({"checkpoint": second}), "LP_E_DUPLICATE"))

    llm.start_weight_update()
    one({"tensors": half})
    still("aborted", fails(lambda: one({"abort": "the trainer stopped"}), "LP_E_POISONED"))
    llm.start_weight_update()  # a full resend of the rest alone must not complete what the aborted one began
    one({"tensors": rest})
    still("resent in part", fails(llm.finish_weight_update, "LP_E_INCOMPLETE"))
    still("abort", fails(lambda: one({"abort": "no more"}), "LP_E_POISONED"))

    for what, part, status in (
            ("unknown", {"tensors": {"no.such.name": half[some]}}, "LP_E_UNKNOWN_NAME"),
            ("shape", {"tensors": {some: half[some][:1].contiguous()}}, "LP_E_MISMATCH"),
            ("dtype", {"tensors": {some: half[some].double()}}, "LP_E_MISMATCH"),
            ("no file", {"checkpoint": os.path.join(second, "nothing.safetensors")}, "LP_E_IO"),
            ("nothing", {}, "one of")):
        llm.start_weight_update()
        still(what, fails(lambda: one(part), status))  # noqa: B023: called at once

    def broken(*_):
        raise RuntimeError("this layer cannot be processed")
    import vllm.model_executor.layers.linear as linear
    kept, count = linear.UnquantizedLinearMethod.process_weights_after_loading, [0]

    def after_three(self, layer):
        count[0] += 1
        return kept(self, layer) if count[0] < 4 else broken()
    linear.UnquantizedLinearMethod.process_weights_after_loading = after_three
    llm.start_weight_update()
    one({"tensors": weights})
    still("processing", fails(llm.finish_weight_update, "this layer cannot be processed"))
    linear.UnquantizedLinearMethod.process_weights_after_loading = kept
    fails(lambda: one({"abort": "it failed"}), "LP_E_POISONED")

    update(llm, {"tensors": half}, {"tensors": rest})
    said["last"] = tokens(llm)
    return said, good


def trainer(first, second, cache):
    """The trainer's half: a source, sent in parts of a few kilobytes."""
    import torch
    from vllm.distributed.weight_transfer.base import WeightSource, ParamMeta
    from vllm.distributed.weight_transfer.factory import WeightTransferTrainerFactory
    from loadplan.vllm_transfer import LoadplanTrainerInitInfo
    llm = engine(first, extra={"cache": cache}, **BACKEND)
    weights = payload(second)

    class Source(WeightSource):
        broken = False

        def metadata(self):
            return [ParamMeta(name, t.dtype, tuple(t.shape)) for name, t in weights.items()]

        def __iter__(self):
            buffer = torch.empty(max(t.nbytes for t in weights.values()), dtype=torch.uint8)  # the same for every tensor
            for i, (name, tensor) in enumerate(weights.items()):
                if self.broken and i == 7:
                    raise RuntimeError("out of memory in the trainer")
                yield name, buffer[:tensor.nbytes].view(tensor.dtype).view(tensor.shape).copy_(tensor)

    class Client:
        def init_weight_transfer_engine(self, info):
            llm.init_weight_transfer_engine({"init_info": info})

        def update_weights(self, info):
            llm.update_weights({"update_info": info})

        start_weight_update = staticmethod(llm.start_weight_update)
        finish_weight_update = staticmethod(llm.finish_weight_update)

    source = Source()
    with tempfile.TemporaryDirectory() as folder:
        sender = WeightTransferTrainerFactory.trainer_init(
            LoadplanTrainerInitInfo(rank=0, folder=folder, part_bytes=100_000), client=Client(), source=source)
        cold = tokens(llm)
        source.broken = True
        fails(sender.send_weights, "out of memory in the trainer")
        assert tokens(llm) == cold and os.listdir(folder) == []
        source.broken = False
        sender.send_weights()
        assert os.listdir(folder) == []
    return tokens(llm)


def without_loadplan(first):
    llm = engine(first, "auto", **BACKEND)
    return fails(lambda: llm.init_weight_transfer_engine({"init_info": {}}), "LP_E_MISUSE")


def with_moving_experts():
    from types import SimpleNamespace
    from loadplan.vllm_transfer import LoadplanWeightTransferEngine
    transfer = object.__new__(LoadplanWeightTransferEngine)
    transfer.parallel_config = SimpleNamespace(enable_eplb=True)
    return fails(lambda: transfer.init_transfer_engine(None), "LP_E_UNSUPPORTED")


class Transfer(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.root = tempfile.TemporaryDirectory()
        cls.cache = os.path.join(cls.root.name, "cache")
        cls.made = {}

    @classmethod
    def tearDownClass(cls):
        cls.root.cleanup()

    def make(self, kind):
        """Two checkpoints and what the ordinary loader says to them."""
        if kind not in self.made:
            folders = [os.path.join(self.root.name, f"{kind}-{seed}") for seed in (1, 2)]
            for seed, folder in enumerate(folders):
                in_child(make, kind, folder, seed + 1)
            self.made[kind] = (folders, [in_child(expected, folder) for folder in folders])
        (self.first, self.second), (one, two) = self.made[kind]
        self.assertNotEqual(one, two)
        return one, two

    def test_reload(self):
        for kind in ("llama", "tied", "moe"):
            with self.subTest(kind):
                one, two = self.make(kind)
                said = in_child(reload, self.first, self.second, self.cache)
                self.assertEqual(said, {"cold": one, "folder": two, "moved": False, "files": one, "tensors": two, "same": two,
                                        "back": one})

    def test_refused_names(self):
        self.make("llama")
        said = in_child(refused_names, self.first, self.second, self.cache)
        self.assertEqual(said["cold"], said["ordinary"])
        self.assertNotEqual(said["cold"], said["other"])
        self.assertEqual(said["reloaded"], said["other"])
        self.assertEqual(said["back"], said["ordinary"])
        self.assertIn("loadplan: 3 names are loaded by the ordinary loader", said["lines"])
        self.assertTrue(any("3 by the ordinary loader" in line for line in said["lines"]), said["lines"])

    def test_errors(self):
        one, two = self.make("llama")
        said, good = in_child(errors, self.first, self.second, self.cache)
        self.assertEqual(good, one)
        self.assertEqual(said.pop("last"), two)
        self.assertIn("names are missing: 'model.embed", said["partial"])
        self.assertIn("came twice", said["doubled"])
        for what, text in said.items():
            print(f"  {what}: {text.splitlines()[-1]}")

    def test_trainer(self):
        one, two = self.make("llama")
        self.assertEqual(in_child(trainer, self.first, self.second, self.cache), two)

    def test_moving_experts(self):
        """A reload would put experts where they were when the trace was recorded."""
        self.assertIn("EPLB", in_child(with_moving_experts))

    def test_other_loader(self):
        self.make("llama")
        self.assertIn("--load-format loadplan", in_child(without_loadplan, self.first))


if __name__ == "__main__":
    vllm_engine.preload()
    sys.exit(unittest.main())
