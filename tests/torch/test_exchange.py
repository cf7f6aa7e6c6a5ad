# SPDX-License-Identifier: Apache-2.0
"""The layer over several ranks on torch tensors: what it refuses, everywhere; that it gives the bits of one GPU, on a
Hopper GPU that two ranks share."""
import os
import unittest

os.environ.setdefault("CUDA_MODULE_LOADING", "EAGER")  # two ranks of one process wait for each other

import torch

from loadplan import LoadplanError
from loadplan.exchange import RankedMegaMoE
from test_megamoe import HAS_GPU, SIZES, Problem

RANKS = 2
ALL = SIZES["experts"]


def aligned(count: int, device) -> torch.Tensor:
    block = torch.zeros(count + 256, dtype=torch.uint8, device=device)
    return block[-block.data_ptr() % 256 :][:count]


def layers(problem: Problem, device="cpu", **more):
    """Two ranks, each with half of the problem's experts, connected."""
    half = ALL // RANKS
    ranks = [RankedMegaMoE({slot: t[r * half : (r + 1) * half].contiguous() for slot, t in problem.weights.items()}, rank=r,
                           ranks=RANKS, format="bf16", **SIZES | {"experts": half}, **more) for r in range(RANKS)]
    buffers = [aligned(layer.buffer_bytes, device) for layer in ranks]
    for layer, buffer in zip(ranks, buffers):
        layer.connect(buffer, [b.data_ptr() for b in buffers], shares_gpu=True, timeout=20)
    return ranks


class Refusals(unittest.TestCase):
    def refused(self, text, call, *arguments, **named):
        with self.assertRaises(LoadplanError) as caught:
            call(*arguments, **named)
        self.assertIn(text, str(caught.exception))

    def test_what_is_right_is_taken(self):
        problem = Problem()
        x, ids, weight = problem.routes()
        for layer in layers(problem):
            layer.check(x, ids, weight)
            layer.check(x[:5], ids[:5], weight[:5], bound=8)
            self.refused("the kernels run on a GPU", layer, x, ids, weight)
            self.assertTrue(layer.terms.startswith("2 ranks, format 5, 2 experts a rank from 0, hidden 512"))

    def test_what_is_wrong(self):
        problem = Problem()
        layer = layers(problem)[1]
        x, ids, weight = problem.routes()
        self.refused("'x' has 16 rows, the bound of this call is 8", layer.check, x, ids, weight, bound=8)
        self.refused("tokens_bound is 17", layer.check, x, ids, weight, bound=17)
        buffer = aligned(layer.buffer_bytes, "cpu")
        self.refused("1 addresses for 2 ranks", layer.connect, buffer, [buffer.data_ptr()])
        self.refused("not at the address of rank 1", layer.connect, buffer, [buffer.data_ptr(), 4096])
        layer.connect(buffer, [buffer.data_ptr(), buffer.data_ptr()])
        self.refused("ranks 0 and 1 have one buffer", layer.check, x, ids, weight)
        layer.connect(buffer[:-256], [4096, buffer.data_ptr()])
        self.refused("are needed", layer.check, x, ids, weight)
        weights = {slot: t[:2] for slot, t in problem.weights.items()}
        for rank, ranks, text in ((2, 2, "rank 2 is not one of 2"), (0, 65, "ranks is 65")):
            self.refused(text, RankedMegaMoE, weights, rank=rank, ranks=ranks, format="bf16", **SIZES | {"experts": 2})


@unittest.skipUnless(HAS_GPU, "needs a Hopper GPU")
class OnTheGpu(unittest.TestCase):
    def run_all(self, ranks, streams, parts, **more):
        out = []
        for layer, stream, part in zip(ranks, streams, parts):
            with torch.cuda.stream(stream):
                out.append(layer(*part, **more))
        for layer, stream in zip(ranks, streams):
            with torch.cuda.stream(stream):
                layer.raise_failure()
        return torch.cat(out)

    def test_bits_of_one_gpu(self):
        problem = Problem("cuda")
        whole = problem.layer()
        ranks = layers(problem, "cuda")
        streams = [torch.cuda.Stream() for _ in ranks]
        x, ids, weight = problem.routes("cuda")
        want = whole(x, ids, weight)
        torch.cuda.synchronize()
        for split in (8, 16, 3, 0):
            parts = [(t[:split] for t in (x, ids, weight)), (t[split:] for t in (x, ids, weight))]
            got = self.run_all(ranks, streams, parts)
            self.assertTrue(torch.equal(got.view(torch.int16), want.view(torch.int16)), split)
        got = self.run_all(ranks, streams, [(t[:9] for t in (x, ids, weight)), (t[9:] for t in (x, ids, weight))], bound=9)
        self.assertTrue(torch.equal(got.view(torch.int16), want.view(torch.int16)))

    def test_one_that_stays_away(self):
        problem = Problem("cuda")
        ranks = layers(problem, "cuda")
        x, ids, weight = problem.routes("cuda")
        ranks[0]._exchange.timeout_ns = 200_000_000
        ranks[0](x, ids, weight)
        with self.assertRaises(LoadplanError) as caught:
            ranks[0].raise_failure()
        self.assertIn("rank 1 sent no tokens in call 1, says rank 0", str(caught.exception))


if __name__ == "__main__":
    unittest.main()
