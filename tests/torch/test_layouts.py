# SPDX-License-Identifier: Apache-2.0
"""Loaders that put a weight into a kernel's layout by PyTorch operations, the way engines do it after loading, record to
the byte map of that layout's chain: `loadplan diff` of both traces is empty. And they replay to the same bytes."""
import os
import subprocess
import tempfile
import unittest

import torch
from safetensors import safe_open
from safetensors.torch import save_file

import loadplan

BUILD = os.path.dirname(os.environ["LOADPLAN_LIBRARY"])


def tiles(x, rows, columns):
    """[rows / tile, columns / tile, tile, tile]"""
    n, k = x.shape
    return x.reshape(n // rows, rows, k // columns, columns).transpose(1, 2)


def scale_128x4(x):
    return tiles(x, 128, 4).reshape(-1, 4, 32, 4).transpose(1, 2).contiguous()


def scale_128x4_padded(x):
    padded = torch.zeros(-(-x.shape[0] // 128) * 128, -(-x.shape[1] // 4) * 4, dtype=x.dtype)
    padded[:x.shape[0], :x.shape[1]] = x
    return scale_128x4(padded)


def aiter_weight(x):
    n, k = x.shape
    return x.view(n // 16, 16, k // 32, 2, 16).permute(0, 2, 3, 1, 4).contiguous()


def gated_rows(x):
    """Two lists of rows, one after the other, each an index by constants."""
    half = x.shape[0] // 2
    alternate = torch.stack([torch.arange(half), half + torch.arange(half)], 1).reshape(-1)
    order = torch.empty(x.shape[0], dtype=torch.long)
    for row in range(x.shape[0]):
        order[row // 32 * 32 + row % 4 * 8 + row % 32 // 4] = row
    return x[alternate][order]


def marlin_fp8(x):
    perm = []
    for lane in range(32):
        one = [16 * row + lane // 4 + 8 * block for block in (0, 1)
               for row in (2 * (lane % 4), 2 * (lane % 4) + 1, 2 * (lane % 4 + 4), 2 * (lane % 4 + 4) + 1)]
        for j in range(4):
            perm += [p + 256 * j for p in one]
    perm = torch.tensor(perm).reshape(-1, 4)[:, [0, 2, 1, 3]].reshape(-1)
    k, n = x.t().shape
    q = x.t().reshape(k // 16, 16, n // 16, 16).permute(0, 2, 1, 3).reshape(k // 16, n * 16)
    return q.reshape(-1, 1024)[:, perm].reshape(q.shape)


def marlin_scale(x):
    perm = torch.tensor([i + 8 * j for i in range(8) for j in range(8)])
    return x.reshape(-1, 64)[:, perm].reshape(-1, x.shape[1]).contiguous()


def up_gate(x):
    gate, up = x.chunk(2)
    return torch.cat([up, gate])


def qkv_groups(x):
    query, key, value = x.split([3 * 4 * 8, 3 * 8, 3 * 8])
    parts = [part.reshape(3, -1, x.shape[1]) for part in (query, key, value)]
    return torch.cat(parts, dim=1).contiguous()


def packets(x):
    rows = x.reshape(x.shape[0] // 4, 4, x.shape[1], 34).transpose(1, 2)
    scales, codes = rows[..., :2], rows[..., 2:]
    codes = codes.reshape(*codes.shape[:-1], 8, 4).transpose(2, 3)
    return torch.cat([scales.flatten(2), codes.flatten(2)], dim=-1)


def swizzle_128b(x):
    """Row by row: eight chunks in the order of their numbers exclusive-or'ed with the row's."""
    n, k = x.shape
    blocks = x.reshape(n, k // 128, 8, 16).transpose(0, 1)
    rows = [blocks[:, r][:, [chunk ^ r % 8 for chunk in range(8)]] for r in range(n)]
    return torch.stack(rows, dim=1)


def scale_by_column(x):
    padded = x.new_zeros(-(-x.shape[0] // 4) * 4, x.shape[1])
    padded[:x.shape[0]].copy_(x)
    return padded.t().contiguous()


def vnni(x):
    k, n = x.shape
    return x.view(k // 2, 2, n).transpose(1, 2).contiguous()


FP8 = torch.float8_e4m3fn
CASES = [
    ("scale_128x4", scale_128x4, (256, 12), torch.uint8),
    ("scale_128x4", scale_128x4_padded, (130, 5), torch.uint8),
    ("scale_by_column_f32", scale_by_column, (10, 3), torch.float32),
    ("amd_16x32_8bit", aiter_weight, (512, 1024), FP8),
    ("trtllm_gated_rows_32", gated_rows, (192, 20), torch.uint8),
    ("marlin_fp8", marlin_fp8, (192, 48), torch.uint8),
    ("marlin_scale", marlin_scale, (3, 192), torch.bfloat16),
    ("up_gate", up_gate, (14, 5), torch.uint8),
    ("qkv_groups", qkv_groups, (144, 10), torch.bfloat16, "n=4", "d=8"),
    ("gguf_q8_0_4x4", packets, (12, 3, 34), torch.uint8),
    ("swizzle_128b", swizzle_128b, (24, 384), torch.uint8),
    ("vnni_16bit", vnni, (12, 5), torch.bfloat16),
]


class Model(torch.nn.Module):
    def __init__(self, transform, shape, dtype):
        super().__init__()
        self.transform = transform
        self.packed = torch.nn.Parameter(torch.zeros(shape, dtype=dtype), requires_grad=False)

    def load_weights(self, weights):
        for _, tensor in weights:
            self.packed.data.copy_(self.transform(tensor).reshape(self.packed.shape))


class Layouts(unittest.TestCase):
    def run_program(self, *arguments):
        return subprocess.run([os.path.join(BUILD, arguments[0]), *map(str, arguments[1:])], capture_output=True, text=True)

    def check(self, folder, layout, transform, shape, dtype, *extents):
        paths = {name: os.path.join(folder, name) for name in ("plain.safetensors", "packed.safetensors", "a.lpt", "b.lpt")}
        bits = torch.empty(0, dtype=dtype).element_size()
        plain = torch.randint(0, 256, (*shape[:-1], shape[-1] * bits), dtype=torch.uint8).view(dtype)
        save_file({"plain": plain}, paths["plain.safetensors"])
        sizes = ",".join([*map(str, shape), *extents])
        done = self.run_program("loadplan", "layout", layout, "--shape", sizes, "--apply", paths["plain.safetensors"], "-o",
                                paths["packed.safetensors"], "-q", "-f")
        self.assertEqual(done.returncode, 0, done.stderr)
        with safe_open(paths["packed.safetensors"], "pt") as file:
            packed = file.get_tensor("plain")
        model = Model(transform, packed.shape, dtype)
        loadplan.record(model.load_weights, paths["plain.safetensors"], model).save(paths["a.lpt"], overwrite=True)
        done = self.run_program("tests/record_chain", layout, paths["plain.safetensors"], paths["b.lpt"], *extents)
        self.assertEqual(done.returncode, 0, done.stderr)
        done = self.run_program("loadplan", "diff", "--format=json", paths["a.lpt"], paths["b.lpt"])
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        with loadplan.Session(loadplan.Trace.open(paths["b.lpt"]), model, "direct") as session:
            session.push_checkpoint(paths["plain.safetensors"])
        seen, wanted = (t.detach().contiguous().view(torch.uint8) for t in (model.packed, packed))
        self.assertTrue(torch.equal(seen.flatten(), wanted.flatten()))

    def test_recorded_as_chains(self):
        torch.manual_seed(1)
        with tempfile.TemporaryDirectory() as folder:
            for layout, transform, shape, dtype, *extents in CASES:
                with self.subTest(layout=layout, shape=shape):
                    self.check(folder, layout, transform, shape, dtype, *extents)

    def test_another_order_differs(self):
        with tempfile.TemporaryDirectory() as folder:
            with self.assertRaisesRegex(AssertionError, "map_changed"):
                self.check(folder, "up_gate", lambda x: x, (14, 5), torch.uint8)


if __name__ == "__main__":
    unittest.main()
