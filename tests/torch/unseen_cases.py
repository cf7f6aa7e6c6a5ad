# SPDX-License-Identifier: Apache-2.0
"""Small loaders whose bytes take ways around PyTorch: memory that NumPy, DLPack or a printer sees. Cases as in loader_cases.py."""
from __future__ import annotations

import numpy as np
import torch

from loader_cases import F32, case


@case({"w": (F32, (4, 6)), "v": (F32, (2, 6))}, {"w": (F32, (4, 6)), "v": (F32, (4, 6)), "u": (F32, (4, 6))}, "copy")
def destination_through_numpy(d, name, w):
    if name == "w":
        torch.from_numpy(d["w"].data.numpy()).copy_(w)
        torch.from_dlpack(d["u"].data).copy_(w)
    else:
        torch.from_numpy(d["v"].data.numpy()[1:3]).copy_(w)


@case({"w": (F32, (4, 6)), "v": (F32, (4, 6))}, {"w": (F32, (4, 6)), "v": (F32, (4, 6))}, "copy")
def staged_in_memory_of_numpy(d, name, w):
    buffer = np.zeros((8, 6), dtype=np.float32)
    if name == "w":
        torch.from_numpy(buffer[2:6]).copy_(w)
        d["w"].data.copy_(torch.from_numpy(buffer)[2:6])
    else:
        torch.from_numpy(buffer)[2:6].copy_(w)
        d["v"].data.copy_(torch.from_numpy(buffer[2:6]))


@case({"a": (F32, (1,)), "b": (F32, (4, 6)), "c": (F32, (4, 6))}, {k: (F32, (4, 6)) for k in "abc"}, "copy",
      refused={"a": "fill_", "b": "fill_"})
def numpy_reads_what_was_staged(d, name, w):
    buffer = np.zeros(w.shape, dtype=np.float32)
    if name != "c":
        torch.from_numpy(buffer).copy_(w)
        d[name].data.copy_(torch.from_numpy(buffer + 1))  # refused
    else:
        d["c"].data.copy_(w)


@case({"a": (F32, (4, 6)), "b": (F32, (4, 6))}, {"w": (F32, (4, 6)), "v": (F32, (4, 6))}, "copy", refused={"a": "copy_"})
def beyond_what_was_staged(d, name, w):
    if name == "a":
        buffer = np.zeros((8, 6), dtype=np.float32)
        torch.from_numpy(buffer[4:]).copy_(w)
        d["w"].data.copy_(torch.from_numpy(buffer)[2:6])  # refused
    else:
        d["v"].data.copy_(w)


@case({"w": (F32, (4, 6))}, {"w": (F32, (4, 6))}, "copy")
def prints_tensors(d, name, w):
    text = f"{name}: {w} {w!r} {str(w[0])}"
    d["w"].data.copy_(w if "nan" not in text else w.flip(0))


@case({"w": (F32, (4, 6))}, {"w": (F32, (4, 6)), "v": (F32, (4, 6))}, "copy")
def resizes_as_another(d, name, w):
    made = torch.empty(0)
    made.resize_as_(w).copy_(w)
    d["w"].data.copy_(made)
    for to, part in zip(torch.unsafe_chunk(d["v"].data, 2), torch.unsafe_chunk(w, 2)):
        to.copy_(part)


@case({"w": (F32, (4, 6)), "v": (F32, (4, 6))}, {"w": (F32, (4, 6)), "v": (F32, (4, 6))}, "copy", refused={"w": "split_copy"})
def several_results_into_out(d, name, w):
    if name == "w":
        torch.split_copy(w, 2, out=[torch.empty(2, 6), torch.empty(2, 6)])  # refused
    d[name].data.copy_(w)


# ---- values that nobody uses


@case({"w": (F32, (4, 6)), "v": (F32, (4, 6))}, {"w": (F32, (4, 6)), "v": (F32, (4, 6))}, "copy", refused={"v": "cumsum"})
def computes_what_nobody_uses(d, name, w):
    sums = w.cumsum(0)  # refused
    d[name].data.copy_(w)
    if name == "v":
        d[name].data[0].copy_(sums[3])


@case({"a": (F32, (2,)), "b": (F32, (2,)), "c": (F32, (2,))}, {k: (F32, (2,)) for k in "abcs"}, "copy", refused={"a": "cumsum"})
def uses_it_when_its_operand_is_another(d, name, w):
    if name == "a":
        d["a"].buffer = torch.empty(2)
    d["a"].buffer.copy_(w)
    d[name].data.copy_(d["a"].buffer)
    if name == "a":
        d["a"].sums = d["a"].buffer.cumsum(0)  # refused
    if name == "c":
        d["s"].data[:1].copy_(d["a"].sums[1:])
        d["s"].data[1:].copy_(d["a"].sums[:1])


@case({"w": (F32, (4, 6))}, {"w": (F32, (4, 6))}, "copy")
def draws_over_what_it_computed(d, name, w):
    d["w"].data.copy_(w)
    torch._weight_norm(d["w"].data, d["w"].data[:, :1], 0).normal_()


@case({"w": (F32, (4, 6))}, {"w": (F32, (4, 6)), "v": (F32, (4, 6))}, "copy", derives=1)
def writes_over_a_source_through_dlpack(d, name, w):
    other = torch.from_dlpack(w.__dlpack__())
    d["v"].data.copy_(w)
    other[1:] *= 2.0
    d["w"].data.copy_(w)
