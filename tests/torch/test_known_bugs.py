# SPDX-License-Identifier: Apache-2.0
"""Weight loading bugs that engines had, as small loaders, wrong and right: what loadplan says of the wrong one, and that it says
nothing of the right one. In brackets, where such a bug was reported."""
import os
import tempfile
import unittest

import torch
from safetensors.torch import save_file

import loadplan

TP = 2


def trace_of(path, load, shapes, ranks=TP, initial=()):
    """All ranks of load(rank, name, w, d) in one trace."""
    traces = []
    for rank in range(ranks):
        d = {name: torch.zeros(shape) for name, shape in shapes.items()}

        def every(weights):
            for name, w in weights:
                load(rank, name, w, d)
        traces.append(loadplan.record(every, path, d, tp=ranks, tp_rank=rank, initial=initial))
    return loadplan.join(traces) if ranks > 1 else traces[0]


class KnownBugs(unittest.TestCase):
    def setUp(self):
        self._folder = tempfile.TemporaryDirectory()
        self.path = os.path.join(self._folder.name, "model.safetensors")
        self.generator = torch.Generator().manual_seed(1)

    def tearDown(self):
        self._folder.cleanup()

    def checkpoint(self, **shapes):
        tensors = {name: torch.randn(shape, generator=self.generator) for name, shape in shapes.items()}
        save_file(tensors, self.path)
        return tensors

    def says(self, wrong, right, shapes, *findings, ranks=TP):
        """The wrong loader has these findings (rule, tensor), the right one none."""
        self.assertEqual({(f.rule, f.tensor) for f in trace_of(self.path, wrong, shapes, ranks).check()}, set(findings))
        self.assertEqual([(f.rule, f.tensor) for f in trace_of(self.path, right, shapes, ranks).check()], [])

    def differ(self, wrong, right, shapes, *findings):
        """Both are whole; against the right one's trace, the wrong one has these findings."""
        old, new = trace_of(self.path, right, shapes), trace_of(self.path, wrong, shapes)
        self.assertEqual([list(old.check()), list(new.check())], [[], []])
        self.assertEqual({(f.rule, f.tensor) for f in old.diff(new)}, set(findings))

    def test_every_rank_takes_the_first_part(self):
        """The rank is forgotten in a narrow: rows, and columns."""
        self.checkpoint(rows=(8, 4), columns=(4, 8))

        def load(rank, name, w, d):
            dim = 0 if name == "rows" else 1
            d[name].copy_(w.narrow(dim, rank * w.size(dim) // TP, w.size(dim) // TP))

        self.says(lambda rank, *rest: load(0, *rest), load, {"rows": (4, 4), "columns": (4, 4)},
                  ("checkpoint_bytes_unused", "rows"), ("checkpoint_bytes_unused", "columns"))

    def test_fused_heads_are_cut_across(self):
        """A fused q, k, v is split over ranks as if it were one matrix [vllm 42803]: every byte arrives somewhere."""
        self.checkpoint(qkv=(16, 4))  # q 8, k 4, v 4

        def right(rank, name, w, d):
            d["qkv"].copy_(torch.cat([part.chunk(TP)[rank] for part in w.split([8, 4, 4])]))

        old = trace_of(self.path, right, {"qkv": (8, 4)})
        new = trace_of(self.path, lambda rank, name, w, d: d["qkv"].copy_(w.chunk(TP)[rank]), {"qkv": (8, 4)})
        self.assertEqual([f.rule for f in new.check()], [])
        self.assertIn(("map_changed", "deny"), {(f.rule, f.level) for f in old.diff(new)})

    def test_order_of_fused_shards(self):
        """k and v change places."""
        self.checkpoint(q=(8, 4), k=(4, 4), v=(4, 4))
        order = {"q": (0, 4), "k": (4, 2), "v": (6, 2)}

        def load(rank, name, w, d, swap=None):
            first, count = order[(swap or {}).get(name, name)]
            d["qkv"].narrow(0, first, count).copy_(w.chunk(TP)[rank])

        self.differ(lambda *a: load(*a, swap={"k": "v", "v": "k"}), load, {"qkv": (8, 4)}, ("map_changed", "k"),
                    ("map_changed", "v"))

    def test_a_packed_name_is_dropped(self):
        """The fusion knows `.weight` and the checkpoint has `.qweight` [sglang 33245]: a warning in a log, and garbage."""
        self.checkpoint(**{"wq_a.qweight": (4, 4), "wkv.qweight": (4, 4)})

        def load(rank, name, w, d, suffix=".qweight"):
            if name.endswith(suffix):
                d["fused"][4 * (name == "wkv" + suffix):][:4].copy_(w)

        def wrong(*a):
            return load(*a, suffix=".weight")

        self.says(wrong, load, {"fused": (8, 4)}, ("dest_uncovered", "fused"), ("checkpoint_name_unused", "wq_a.qweight"),
                  ("checkpoint_name_unused", "wkv.qweight"), ranks=1)

    def test_a_part_of_the_model_is_missing(self):
        """A checkpoint without its encoder, or a bias that is skipped [sglang 26772]: memory nobody wrote."""
        self.checkpoint(weight=(4, 4), bias=(4,))

        def right(rank, name, w, d):
            d[name].copy_(w)

        def wrong(rank, name, w, d):
            if not name.endswith("bias"):
                right(rank, name, w, d)

        self.says(wrong, right, {"weight": (4, 4), "bias": (4,)}, ("dest_uncovered", "bias"), ("checkpoint_name_unused", "bias"),
                  ranks=1)

    def test_experts_are_off_by_one(self):
        """Local slots of experts: one slot is written twice, one never."""
        self.checkpoint(**{f"experts.{e}": (2, 4) for e in range(4)})

        def load(rank, name, w, d, off=0):
            slot = int(name.rpartition(".")[2]) - 2 * rank
            if 0 <= slot < 2:
                d["experts"][min(slot + off, 1)].copy_(w)

        self.says(lambda *a: load(*a, off=1), load, {"experts": (2, 2, 4)}, ("dest_uncovered", "experts"),
                  ("order_dependent", "experts"))

    def test_padding_of_the_vocabulary_is_left_alone(self):
        self.checkpoint(embed=(6, 4))

        def right(rank, name, w, d):
            d["embed"][:6].copy_(w)
            d["embed"][6:].zero_()

        self.says(lambda rank, name, w, d: d["embed"][:6].copy_(w), right, {"embed": (8, 4)}, ("dest_uncovered", "embed"), ranks=1)

    def test_two_scales_in_one_place(self):
        """Scales of w1 and w3 where their maximum belongs: the last one stays [vllm 5231]."""
        self.checkpoint(w1_scale=(1,), w3_scale=(1,))

        def right(rank, name, w, d):
            d["both"][int(name == "w3_scale")] = w[0]
            if name == "w3_scale":
                d["scale"].copy_(d["both"].max())

        wrong = trace_of(self.path, lambda rank, name, w, d: d["scale"].copy_(w), {"scale": (1,)}, 1)
        self.assertEqual([f.rule for f in wrong.check()], ["order_dependent"])
        self.assertEqual([f.rule for f in trace_of(self.path, right, {"both": (2,), "scale": (1,)}, 1).check()], [])

    def test_a_tied_head_is_loaded_apart(self):
        """The checkpoint has both of two tied tensors, or the head is a copy made once [vllm 51665, prime-rl 2823]."""
        self.checkpoint(embed=(4, 4), head=(4, 4))

        def tied(load):
            shared = torch.zeros(4, 4)
            d = {"embed": shared, "head": shared.view(4, 4)}
            return loadplan.record(lambda weights: [load(d, name, w) for name, w in weights], self.path, d)

        both = tied(lambda d, name, w: d[name].copy_(w))
        self.assertEqual([f.rule for f in both.check()], ["order_dependent"])
        one = tied(lambda d, name, w: d["embed"].copy_(w) if name == "embed" else None)
        self.assertEqual([f.rule for f in one.check()], ["checkpoint_name_unused"])
        # A clone of the embedding is fed by its name in every round, so a reload that has only that name keeps them equal.
        copied = trace_of(self.path, lambda rank, name, w, d: name == "embed" and (d["embed"].copy_(w), d["head"].copy_(w.clone())),
                          {"embed": (4, 4), "head": (4, 4)}, 1)
        d = {"embed": torch.zeros(4, 4), "head": torch.zeros(4, 4)}
        with loadplan.Session(copied, d, "direct") as session:
            session.push("embed", torch.full((4, 4), 3.0))
        self.assertTrue(torch.equal(d["embed"], d["head"]))

    def test_a_reload_lacks_the_scales(self):
        """Weights come without their scales [vllm 45835]: that round does not end well, and the scales keep their values."""
        tensors = self.checkpoint(weight=(4, 4), weight_scale_inv=(1, 1))
        trace = trace_of(self.path, lambda rank, name, w, d: d[name].copy_(w), {"weight": (4, 4), "weight_scale_inv": (1, 1)}, 1)
        d = {name: t.clone() for name, t in tensors.items()}
        with self.assertRaisesRegex(loadplan.LoadplanError, "weight_scale_inv"):
            with loadplan.Session(trace, d, "direct") as session:
                session.push("weight", tensors["weight"])
        self.assertTrue(torch.equal(d["weight_scale_inv"], tensors["weight_scale_inv"]))

    def test_processing_is_not_done_twice(self):
        """w1 and w3 change places after every load of the live tensors [vllm 42821, sglang 30749]: a replay starts from the
        checkpoint each time."""
        tensors = self.checkpoint(w13=(4, 4))
        d = {"w13": torch.zeros(4, 4)}

        def load(weights):
            for _, w in weights:
                d["w13"].copy_(w)
            d["w13"].copy_(d["w13"].roll(2, 0).clone())

        trace = loadplan.record(load, self.path, d)
        for _ in range(2):
            loadplan.replay(trace, d, tensors)
            self.assertTrue(torch.equal(d["w13"], tensors["w13"].roll(2, 0)))

    def test_a_scale_is_read_on_the_host(self):
        """What was a copy becomes a number that no reload sees."""
        self.checkpoint(scale=(1,))

        def right(rank, name, w, d):
            d["scale"].copy_(w * 2)

        def wrong(rank, name, w, d):
            d["scale"].fill_(float(w) * 2)

        old, new = [trace_of(self.path, load, {"scale": (1,)}, 1) for load in (right, wrong)]
        self.assertEqual([f.rule for f in new.check()], ["non_view_op"])
        self.assertTrue({f.rule for f in old.diff(new)} & {"copy_became_refusal", "new_refusal", "derive_changed"})

    def test_one_name_in_two_files(self):
        """Shards that overlap are no checkpoint."""
        for file in ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"):
            save_file({"w": torch.zeros(2)}, os.path.join(self._folder.name, file))
        with self.assertRaises(loadplan.LoadplanError):
            loadplan.record(lambda weights: list(weights), self._folder.name, {"w": torch.zeros(2)})


if __name__ == "__main__":
    torch.set_grad_enabled(False)
    unittest.main()
