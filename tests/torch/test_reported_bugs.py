# SPDX-License-Identifier: Apache-2.0
"""More loading bugs that engines had, one row each: a right loader, of which check says nothing, a wrong one, and what check of
it and diff of both say. In brackets, where such a bug was reported. docs/bugs.md has them in words."""
import contextlib
import io
import os
import sys
import tempfile
import types
import unittest
import unittest.mock

import torch
from safetensors.torch import save_file

import loadplan

F32, BF16, F16, U8 = torch.float32, torch.bfloat16, torch.float16, torch.uint8
E8M0, E4M3, FNUZ = torch.float8_e8m0fnu, torch.float8_e4m3fn, torch.float8_e4m3fnuz
CASES = []


def number(name):
    return int(next(part for part in name.split(".") if part.isdigit()))


def case(title, checkpoint, live, right, wrong, check=(), diff=(), ranks=1):
    """checkpoint, live: name -> shape or (shape, dtype). right, wrong: f(rank, name, tensor, live). check, diff: what is
    found of the wrong one, as 'rule tensor'."""
    CASES.append((title, checkpoint, live, right, wrong, set(check), set(diff), ranks))


def same(rank, name, w, d):
    d[name].copy_(w)


def if_known(rank, name, w, d):
    if name in d:
        d[name].copy_(w)


def head(pick):
    """K of a rank is the head of two rows that `pick` chooses."""
    return lambda rank, name, w, d: d["k"].copy_(w[2 * pick(rank):][:2])


def tail(rows):
    """A rank has `rows` rows of the vocabulary; what it has no row for is zero."""
    def load(rank, name, w, d):
        part = w[rank * rows:][:rows]
        d["embed"][:len(part)].copy_(part)
        d["embed"][len(part):].zero_()
    return load


def slot(place):
    """The expert of a name goes where place(expert, rank) says, or nowhere."""
    def load(rank, name, w, d):
        for at in place(number(name), rank):
            d["experts"][at].copy_(w)
    return load


def shared(at):
    return lambda rank, name, w, d: d["experts"][at if name == "shared.w" else number(name)].copy_(w)


def grouped(rank, name, w, d):
    """q, k, v of each head group lie together: [q q k v] twice, one group a rank."""
    d["qkv"].copy_(w[4 * rank:][:4])


def stacked(rank, name, w, d):
    """The same bytes taken for [q q q q, k k, v v]."""
    d["qkv"].copy_(torch.cat([part.chunk(2)[rank] for part in w.split([4, 2, 2])]))


def by_prefix(rank, name, w, d):
    next(part for stem, part in d.items() if name.startswith(stem[:-2])).copy_(w)


def renamed(rank, name, w, d):
    d[name.replace("q_a_proj", "a_proj")].copy_(w)


def merged(rank, name, w, d):
    """An adapter is merged while loading: by a product, which no view says."""
    d.setdefault("parts", {})[name] = w
    if name == "w":
        d["w"].copy_(w)
    if len(d["parts"]) == 3:
        d["w"].add_(d["parts"]["lora_B"] @ d["parts"]["lora_A"])


def swallowing(rank, name, w, d):
    """The checkpoint has another shape than the model, and nobody hears of it."""
    with contextlib.suppress(RuntimeError):
        d["w"].copy_(w[:3])


def into(*places):
    """The names, in order, go to these places of `scale`."""
    return lambda rank, name, w, d: d["scale"][places["qkv".index(name)]].copy_(w)


case("a copy of a head goes to every other rank", {"k": (4, 4)}, {"k": (2, 4)}, head(lambda rank: rank // 2), head(lambda rank: rank % 2),
     diff=["map_changed k"], ranks=4)
case("all ranks have the first head [vllm-gguf-plugin 103]", {"k": (4, 4)}, {"k": (2, 4)}, head(lambda rank: rank), head(lambda rank: 0),
     ["checkpoint_bytes_unused k"], ["map_changed k"], 2)
case("the last rows of a vocabulary that does not divide are dropped", {"embed": (7, 4)}, {"embed": (4, 4)}, tail(4), tail(3),
     ["checkpoint_bytes_unused embed"], ["map_changed embed", "fill_added embed"], 2)
case("groups of heads are taken for a stack [NeMo Automodel 1324]", {"qkv": (8, 4)}, {"qkv": (4, 4)}, grouped, stacked,
     ["materialises qkv"], ["map_changed qkv"], 2)
case("a prefix twice, and strict=False [pytorch examples 1029, torchgeo 4036]", {"layers.0.w": (2, 2)}, {"layers.0.w": (2, 2)}, same,
     lambda rank, name, w, d: if_known(rank, "model." + name, w, d), ["dest_uncovered layers.0.w", "checkpoint_name_unused layers.0.w"],
     ["map_changed layers.0.w"])
case("layers.1 is the beginning of layers.10", {f"layers.{i}.w": (2, 2) for i in (1, 10)}, {f"layers.{i}.w": (2, 2) for i in (1, 10)}, same,
     by_prefix, ["dest_uncovered layers.10.w", "order_dependent layers.1.w"])
case("a rename hits two names", {"q_a_proj": (2, 2), "a_proj": (2, 2)}, {"q_a_proj": (2, 2), "a_proj": (2, 2)}, same, renamed,
     ["dest_uncovered q_a_proj", "order_dependent a_proj"])
case("a square matrix stays as it was stored", {"w": (4, 4)}, {"w": (4, 4)}, lambda rank, name, w, d: d["w"].copy_(w.t()), same,
     diff=["map_changed w"])
case("gate and up are stored in turn and loaded as halves [tinker-cookbook 459]", {"w13": (8, 4)}, {"w13": (8, 4)},
     lambda rank, name, w, d: (d["w13"][:4].copy_(w[::2]), d["w13"][4:].copy_(w[1::2])), same, diff=["map_changed w13"])
case("gate and up change places", {"gate": (2, 4), "up": (2, 4)}, {"w13": (4, 4)},
     lambda rank, name, w, d: d["w13"].narrow(0, 2 * (name == "up"), 2).copy_(w),
     lambda rank, name, w, d: d["w13"].narrow(0, 2 * (name == "gate"), 2).copy_(w), diff=["map_changed gate", "map_changed up"])
case("experts are dealt out in turn where neighbours belong together", {f"e.{i}.w": (2, 2) for i in range(4)}, {"experts": (2, 2, 2)},
     slot(lambda e, rank: [e % 2] if e // 2 == rank else []), slot(lambda e, rank: [e // 2] if e % 2 == rank else []),
     diff=["map_changed e.1.w", "map_changed e.2.w"], ranks=2)
case("a redundant expert has no weights", {f"e.{i}.w": (2, 2) for i in range(2)}, {"experts": (3, 2, 2)},
     slot(lambda e, rank: [e, 2] if e == 1 else [e]), slot(lambda e, rank: [e]), ["dest_uncovered experts"], ["kind_changed e.1.w"])
case("a shared expert takes the place of the first routed one", {"e.0.w": (2, 2), "shared.w": (2, 2)}, {"experts": (2, 2, 2)}, shared(1),
     shared(0), ["dest_uncovered experts", "order_dependent experts"])
case("one scale is broadcast over the shards of three [vllm 5915]", {"q": (), "k": (), "v": ()}, {"scale": (3,)}, into(0, 1, 2),
     into(slice(None), slice(None), slice(None)), ["order_dependent scale"])
case("a scale that divides is multiplied by", {"s": (1,)}, {"s": (1,)}, lambda rank, name, w, d: d["s"].copy_(1 / w), same,
     diff=["map_changed s", "derive_changed s"])
case("scales of blocks lie the other way round", {"s": (2, 3)}, {"s": (3, 2)}, lambda rank, name, w, d: d["s"].copy_(w.t()),
     lambda rank, name, w, d: d["s"].copy_(w.reshape(3, 2)), diff=["map_changed s"])
case("exponents as numbers: bytes into floats [vllm 51946, omlx 2159]", {"s": ((4,), U8)}, {"s": (4,)},
     lambda rank, name, w, d: d["s"].copy_(w.view(E8M0).to(F32)), same, ["implicit_cast s"], ["kind_changed s"])
case("exponents as numbers: floats into bytes [sglang 26701]", {"s": ((4,), E8M0)}, {"s": ((4,), U8)},
     lambda rank, name, w, d: d["s"].copy_(w.view(U8)), same, ["implicit_cast s"], ["kind_changed s"])
case("E4M3 becomes its cousin of another bias", {"w": ((4, 4), E4M3)}, {"w": ((4, 4), FNUZ)},
     lambda rank, name, w, d: d["w"].view(U8).copy_(w.view(U8)), same, ["implicit_cast w"], ["kind_changed w"])
case("BF16 overflows in F16", {"w": ((4,), BF16)}, {"w": ((4,), F16)}, lambda rank, name, w, d: d["w"].copy_(w.to(F16)), same,
     ["implicit_cast w"])
case("a table of rotations is loaded by nobody", {"rotary.inv_freq": (4,), "w": (2, 2)}, {"rotary.inv_freq": (4,), "w": (2, 2)}, same,
     lambda rank, name, w, d: if_known(rank, name.replace("inv_freq", "gone"), w, d),
     ["dest_uncovered rotary.inv_freq", "checkpoint_name_unused rotary.inv_freq"])
case("an adapter is merged again at each load", {"w": (2, 2), "lora_A": (2, 2), "lora_B": (2, 2)},
     {"w": (2, 2), "lora_A": (2, 2), "lora_B": (2, 2)}, same, merged,
     ["non_view_op w", "non_view_op lora_A", "non_view_op lora_B", "dest_uncovered lora_A", "dest_uncovered lora_B"])
case("four bits are unpacked while loading", {"w": ((4, 4), torch.int32)}, {"w": ((4, 4), torch.int32)}, same,
     lambda rank, name, w, d: d["w"].copy_((w >> 4) & 15), ["non_view_op w"], ["copy_became_refusal w"])
case("an error is swallowed", {"w": (4, 4)}, {"w": (4, 4)}, same, swallowing,
     ["dest_uncovered w", "checkpoint_name_unused w"])
case("what is missing is made up", {"w": (2, 2), "head": (2, 2)}, {"w": (2, 2), "head": (2, 2)}, same,
     lambda rank, name, w, d: d[name].copy_(w) if name == "w" else d[name].normal_(),
     ["dest_uncovered head", "checkpoint_name_unused head"])


def zeros(forms):
    """Tensors of a case's checkpoint, or of what is live."""
    made = {}
    for name, form in forms.items():
        shape, dtype = form if len(form) == 2 and isinstance(form[1], torch.dtype) else (form, F32)
        made[name] = torch.zeros(shape, dtype=dtype)
    return made


class ReportedBugs(unittest.TestCase):
    def trace(self, path, load, live, ranks):
        traces = []
        for rank in range(ranks):
            d = zeros(live)
            traces.append(loadplan.record(lambda weights: [load(rank, name, w, d) for name, w in weights], path, d,  # noqa: B023
                                          tp=ranks, tp_rank=rank))
        return loadplan.join(traces) if ranks > 1 else traces[0]

    def test_every_case(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "model.safetensors")
            for title, checkpoint, live, right, wrong, check, diff, ranks in CASES:
                with self.subTest(title):
                    save_file(zeros(checkpoint), path)
                    old, new = [self.trace(path, load, live, ranks) for load in (right, wrong)]
                    self.assertEqual([f"{f.rule} {f.tensor}" for f in old.check()], [])
                    self.assertEqual({f"{f.rule} {f.tensor}" for f in new.check()}, check)
                    found = {f"{f.rule} {f.tensor}" for f in old.diff(new)}
                    self.assertLessEqual(diff, found)
                    self.assertTrue(any(f.level == "deny" for f in old.diff(new)) or not diff)
                    self.assertTrue(check or diff)


class CommandLine(unittest.TestCase):
    def test_a_loader_that_cannot_be_built_is_no_answer(self):
        """1 means refused names. What fails before there is anything to judge is 3, with the reason in the last line."""
        from loadplan.__main__ import main

        def fails(*_):
            raise KeyError("vocab_size")
        module = types.ModuleType("broken_loader")
        module.fails, module.nothing, module.one = fails, lambda *_: None, lambda *_: ({},)
        with tempfile.TemporaryDirectory() as folder, unittest.mock.patch.dict(sys.modules, broken_loader=module):
            save_file({"w": torch.zeros(2)}, os.path.join(folder, "model.safetensors"))
            for name, text in (("fails", "the loader failed: KeyError: 'vocab_size'"),
                               ("nothing", "'broken_loader:nothing' returned a NoneType"), ("one", "returned a tuple, not (load"),
                               ("gone", "module 'broken_loader' has no 'gone'")):
                with self.subTest(name), contextlib.redirect_stderr(io.StringIO()) as said:
                    output = os.path.join(folder, "x.lpt")
                    self.assertEqual(main(["record", "--model", folder, "--loader", f"broken_loader:{name}", "-o", output]), 3)
                    self.assertIn(text, said.getvalue().splitlines()[-1])
                    self.assertFalse(os.path.exists(output))


if __name__ == "__main__":
    torch.set_grad_enabled(False)
    unittest.main()
