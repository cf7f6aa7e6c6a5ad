# SPDX-License-Identifier: Apache-2.0
"""The MegaMoE layer on torch tensors: what it refuses, everywhere; what it computes, on a Hopper GPU."""
import ctypes
import unittest

import torch

from loadplan import LoadplanError, megamoe
from loadplan._library import Error, check, lib

SIZES = dict(experts=4, hidden=512, intermediate=256, top_k=2, max_tokens=16)
GATE, UP, DOWN = 0, 1, 2
HAS_GPU = torch.cuda.is_available() and torch.cuda.get_device_capability() == (9, 0)


class Sizes(ctypes.Structure):
    _fields_ = [("experts", ctypes.c_int64), ("hidden", ctypes.c_int64), ("intermediate", ctypes.c_int64)]


def apply(layout: str, shard: int, expert: int, source: torch.Tensor, destination: torch.Tensor) -> None:
    find = lib.lp_layout_find
    find.restype, find.argtypes = ctypes.c_void_p, (ctypes.c_char_p,)
    run = lib.lp_layout_apply
    run.restype = ctypes.c_int
    run.argtypes = (ctypes.c_void_p, ctypes.POINTER(Sizes), ctypes.c_int, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p,
                    ctypes.c_void_p, ctypes.POINTER(Error))
    sizes = Sizes(SIZES["experts"], SIZES["hidden"], SIZES["intermediate"])
    check(run, find(layout.encode()), ctypes.byref(sizes), shard, expert, source.data_ptr(), destination.data_ptr(), None)


class Problem:
    """BF16 weights, random but small, in the kernels' layout."""

    def __init__(self, device="cpu"):
        torch.manual_seed(5)
        e, h, i = SIZES["experts"], SIZES["hidden"], SIZES["intermediate"]
        self.gate, self.up = (torch.randn(e, i, h).mul(h ** -0.5).bfloat16() for _ in range(2))
        self.down = torch.randn(e, h, i).mul(i ** -0.5).bfloat16()
        layouts = megamoe.layouts_of("bf16")
        self.weights = {"l1_weight": torch.zeros(e, 2 * i, h, dtype=torch.bfloat16),
                        "l2_weight": torch.zeros(e, h, i, dtype=torch.bfloat16)}
        for expert in range(e):
            for shard, source, slot in ((GATE, self.gate, "l1_weight"), (UP, self.up, "l1_weight"),
                                        (DOWN, self.down, "l2_weight")):
                apply(layouts[slot][0], shard, expert, source[expert].contiguous(), self.weights[slot])
        self.weights = {slot: tensor.to(device) for slot, tensor in self.weights.items()}
        self.x = torch.randn(SIZES["max_tokens"], h).bfloat16()
        self.ids = torch.randint(0, e, (SIZES["max_tokens"], SIZES["top_k"]), dtype=torch.int32)
        self.ids[3] = -1
        self.ids[4, 1] = -1
        self.weight = torch.rand(SIZES["max_tokens"], SIZES["top_k"])

    def layer(self, **more):
        return megamoe.MegaMoE(self.weights, format="bf16", **SIZES, **more)

    def routes(self, device="cpu"):
        return self.x.to(device), self.ids.to(device), self.weight.to(device)

    def expected(self):
        """Rounded where kernels/megamoe.h says that BF16 is: h, which holds the router's weight, each row, and y."""
        y = torch.zeros(self.x.shape, dtype=torch.float32)
        for t, chosen in enumerate(self.ids.tolist()):
            for j, expert in enumerate(chosen):
                if expert >= 0:
                    x = self.x[t].double()
                    gate, up = self.gate[expert].double() @ x, self.up[expert].double() @ x
                    h = (gate * gate.sigmoid() * up * self.weight[t, j].double()).bfloat16()
                    y[t] += (self.down[expert].double() @ h.double()).bfloat16().float()
        return y.bfloat16().double()


class Refusals(unittest.TestCase):
    def refused(self, text, call, *arguments, **named):
        with self.assertRaises(LoadplanError) as caught:
            call(*arguments, **named)
        self.assertIn(text, str(caught.exception))

    def test_what_is_right_is_taken(self):
        problem = Problem()
        layer = problem.layer()
        layer.check(*problem.routes())
        x, ids, weight = problem.routes()
        layer.check(x[:5], ids[:5].long(), weight[:5], received=torch.zeros(4, dtype=torch.int32))
        self.refused("the kernels run on a GPU", layer, *problem.routes())

    def test_layers(self):
        problem = Problem()
        self.refused("there is no format 'int4'", megamoe.MegaMoE, problem.weights, format="int4", **SIZES)
        self.refused("there is no activation 'gelu'", problem.layer, activation="gelu")
        self.refused("multiple of 256", megamoe.MegaMoE, problem.weights, format="bf16", **SIZES | {"hidden": 500})
        self.refused("weights of mxfp4 are l1_weight, l1_scale", megamoe.MegaMoE, problem.weights, format="mxfp4", **SIZES)
        problem.weights["l2_weight"] = problem.weights["l2_weight"][:3]
        self.refused("'l2_weight' has 786432 bytes on cpu", problem.layer)

    def test_scales_of_mxfp8_tokens(self):
        e, h, i, rows = SIZES["experts"], SIZES["hidden"], SIZES["intermediate"], 3
        weights = {"l1_weight": torch.zeros(e, 2 * i, h, dtype=torch.uint8), "l1_scale": torch.zeros(e, h // 128, 2 * i, dtype=torch.int32),
                   "l2_weight": torch.zeros(e, h, i, dtype=torch.uint8), "l2_scale": torch.zeros(e, i // 128, h, dtype=torch.int32)}
        layer = megamoe.MegaMoE(weights, format="mxfp8", **SIZES)
        x = torch.zeros(rows, h).to(torch.float8_e4m3fn)
        routes = torch.zeros(rows, SIZES["top_k"], dtype=torch.int32), torch.zeros(rows, SIZES["top_k"])
        layer.check(x, *routes, x_scale=torch.zeros(rows, h // 32, dtype=torch.uint8))
        layer.check(x, *routes, x_scale=torch.zeros(rows, h // 32, dtype=torch.uint8).view(torch.float8_e8m0fnu))
        self.refused("not torch.uint8 [3, 16]", layer.check, x, *routes, x_scale=torch.zeros(rows, h // 128))
        self.refused("not torch.uint8 [3, 16]", layer.check, x, *routes, x_scale=torch.zeros(rows, 4, dtype=torch.uint8))

    def test_shared_experts(self):
        problem = Problem()
        shared = {slot: tensor[:1] for slot, tensor in problem.weights.items()}
        layer = problem.layer(shared=shared, shared_intermediate=256)
        layer.check(*problem.routes())
        self.refused("belong together", problem.layer, shared=shared)
        self.refused("belong together", problem.layer, shared_intermediate=256)
        self.refused("there is no format 'int4'", problem.layer, shared=shared, shared_intermediate=256, shared_format="int4")
        self.refused("of the shared experts: ", problem.layer, shared=shared, shared_intermediate=200)
        self.refused("'l1_weight' has 524288 bytes on cpu", problem.layer, shared=shared, shared_intermediate=128)
        self.refused("weights of mxfp8 are l1_weight, l1_scale", problem.layer, shared=shared, shared_intermediate=256,
                     shared_format="mxfp8")

    def test_layouts(self):
        problem = Problem()
        self.refused("unknown layout 'none'", problem.layer, layouts={"l1_weight": "none"})
        other = megamoe.layouts_of("mxfp8")["l1_weight"][0]
        self.refused("bytes on cpu, the layout", problem.layer, layouts={"l1_weight": other})
        swapped = problem.layer(layouts={"l2_weight": megamoe.layouts_of("bf16")["l2_weight"][0]})
        swapped.check(*problem.routes())

    def test_calls(self):
        problem = Problem()
        layer = problem.layer()
        x, ids, weight = problem.routes()
        self.refused("'topk_weight' is torch.float64", layer.check, x, ids, weight.double())
        self.refused("'topk_ids' is torch.int32 [16, 1]", layer.check, x, ids[:, :1], weight)
        self.refused("'x' is torch.bfloat16 [16, 256]", layer.check, x[:, :256], ids, weight)
        self.refused("'x' is not contiguous", layer.check, x.t().contiguous().t(), ids, weight)
        self.refused("ids are I16", layer.check, x, ids.to(torch.int16), weight)
        self.refused("x is F16", layer.check, x.half(), ids, weight)
        more = torch.cat([x, x])
        self.refused("'x' has 32 rows, the layer was made for 16", layer.check, more, torch.cat([ids, ids]), torch.cat([weight, weight]))


@unittest.skipUnless(HAS_GPU, "needs a Hopper GPU")
class OnTheGpu(unittest.TestCase):
    def test_it_computes_the_layer(self):
        problem = Problem("cuda")
        layer = problem.layer()
        received = torch.zeros(4, dtype=torch.int32, device="cuda")
        y = layer(*problem.routes("cuda"), received=received)
        want = problem.expected()
        error = (y.cpu().double() - want).norm() / want.norm()
        self.assertLess(error.item(), 1e-3)
        self.assertEqual(y[3].abs().max().item(), 0)
        self.assertEqual(received.tolist(), [int((problem.ids == e).sum()) for e in range(4)])
        again = layer(*problem.routes("cuda"))
        self.assertTrue(torch.equal(y.view(torch.int16), again.view(torch.int16)))

    def test_shared_experts_are_added(self):
        problem = Problem("cuda")
        shared = {slot: tensor[2:3] for slot, tensor in problem.weights.items()}
        x, ids, weight = problem.routes("cuda")
        y = problem.layer(shared=shared, shared_intermediate=256)(x, ids, weight)
        more = {**SIZES, "top_k": 3}  # as one more choice of each token
        again = megamoe.MegaMoE(problem.weights, format="bf16", **more)(
            x, torch.cat([ids, torch.full_like(ids[:, :1], 2)], 1), torch.cat([weight, torch.ones_like(weight[:, :1])], 1))
        self.assertTrue(torch.equal(y.view(torch.int16), again.view(torch.int16)))

    def test_a_graph_sees_what_changes(self):
        problem = Problem("cuda")
        layer = problem.layer()
        x, ids, weight = problem.routes("cuda")
        out = torch.empty(16, 512, dtype=torch.bfloat16, device="cuda")
        count = torch.tensor([16], dtype=torch.int32, device="cuda")
        layer(x, ids, weight, out=out, tokens=count)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            layer(x, ids, weight, out=out, tokens=count)
        x.copy_(problem.x.flip(0))
        out.fill_(7)
        count.fill_(9)
        graph.replay()
        want = layer(x, ids, weight)
        self.assertTrue(torch.equal(out[:9].view(torch.int16), want[:9].view(torch.int16)))
        self.assertTrue((out[9:] == 7).all().item())


if __name__ == "__main__":
    unittest.main()
