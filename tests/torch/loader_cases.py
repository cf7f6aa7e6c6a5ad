# SPDX-License-Identifier: Apache-2.0
"""Small loaders of the shapes that real engines have, each with what it must become.

A case is a function load(d, name, w) that is called for every checkpoint tensor; d holds the destinations. The line of
a loader that has to be refused ends in `# refused`.
"""
from __future__ import annotations

import concurrent.futures
import dataclasses
import pickle
import threading
from typing import Callable

import torch

BF16, F32, U8, I32, F8, I64 = torch.bfloat16, torch.float32, torch.uint8, torch.int32, torch.float8_e4m3fn, torch.int64
E8M0 = torch.float8_e8m0fnu


@dataclasses.dataclass
class Case:
    name: str
    load: Callable
    sources: dict  # name -> (dtype, shape)
    dests: dict
    kinds: str  # of all records, sorted: "copy fill"
    derives: int = 0
    refused: dict = dataclasses.field(default_factory=dict)  # name -> operation
    approximate: bool = False  # own-class arithmetic: compared within ulps
    untouched: tuple = ()  # names that the loader declines
    undeclared: tuple = ()  # destinations that no trace can hold
    after: Callable = lambda d: None  # what the loader does when all names have come


CASES: list[Case] = []


def case(sources, dests, kinds, **more):
    def register(load):
        CASES.append(Case(load.__name__, load, sources, dests, kinds, **more))
        return load
    return register


# ---- generic loaders


@case({"w": (BF16, (64, 8))}, {"w": (BF16, (64, 8))}, "copy")
def row01_default(d, name, w):
    d["w"].data.copy_(w)


@case({"w": (F32, (16,))}, {"w": (BF16, (16,))}, "cast")
def row01_cast(d, name, w):
    d["w"].data.copy_(w)


@case({"s": (F32, ()), "t": (F32, (1,))}, {"s": (F32, (1, 1)), "t": (F32, ())}, "copy")
def row02_scalars(d, name, w):
    d[name].data.copy_(w.view(d[name].shape))


@case({"w": (BF16, (8, 32)), "b": (BF16, (8,))}, {"w": (BF16, (8, 8)), "b": (BF16, (8,))}, "copy")
def row03_row_parallel(d, name, w):
    if w.dim() > 1:
        w = w.narrow(1, 2 * 8, 8)
    d[name].data.copy_(w)


@case({"dt_bias": (F32, (128,))}, {"dt_bias": (F32, (16,))}, "copy")
def row04_sharded(d, name, w):
    d["dt_bias"].data.copy_(w.narrow(0, 3 * 16, 16))


@case({"norm": (BF16, (8,))}, {"norm": (BF16, (8,))}, "", derives=1)
def row05_composed_offset(d, name, w):
    d["norm"].data.copy_(w)
    d["norm"].data.copy_(d["norm"] + 1.0)


@case({"A": (BF16, (16,))}, {"A": (F32, (4,))}, "", derives=1, approximate=True)
def row05_composed_mamba2(d, name, w):
    d["A"].data.copy_(w.narrow(0, 4, 4))
    d["A"].data.copy_(-torch.exp(d["A"].float()))


@case({"s": (F32, ())}, {"s": (F32, (1,))}, "copy")
def row06_replicated_scalar(d, name, w):
    d["s"].data.copy_(w.reshape(1))


@case({"gate": (BF16, (32, 8)), "up": (BF16, (32, 8))}, {"gu": (BF16, (16, 8))}, "copy")
def row09_merged(d, name, w):
    d["gu"].data.narrow(0, 8 * (name == "up"), 8).copy_(w.narrow(0, 8, 8))


@case({"gate_up": (BF16, (64, 8))}, {"gu": (BF16, (16, 8))}, "copy")
def row10_fused_on_disk(d, name, w):
    for i in range(2):
        part = w.narrow(0, 32 * i, 32)
        d["gu"].data.narrow(0, 8 * i, 8).copy_(part.narrow(0, 24, 8))


@case({"q": (BF16, (32, 16)), "k": (BF16, (8, 16)), "v": (BF16, (8, 16))}, {"qkv": (BF16, (16, 16))}, "copy")
def row13_qkv(d, name, w):
    tp, rank, head = 4, 3, 4
    offset, rows, shard = {"q": (0, 8, rank), "k": (8, head, rank // 2), "v": (12, head, rank // 2)}[name]
    d["qkv"].data.narrow(0, offset, rows).copy_(w.narrow(0, shard * rows, rows))


@case({"q.scale": (F32, ()), "k.scale": (F32, (1,)), "v.scale": (F32, ())}, {"scale": (F32, (3,))}, "copy")
def row15_scalar_slots(d, name, w):
    index = "qkv".index(name[0])
    d["scale"].data[index] = w if w.dim() == 0 else w[0]


@case({"embed": (BF16, (51, 4))}, {"embed": (BF16, (32, 4))}, "copy fill")
def row19_padded_vocabulary(d, name, w):
    w = w.narrow(0, 32, 19)
    d["embed"][: w.shape[0]].data.copy_(w)
    d["embed"][w.shape[0]:].data.fill_(0)


@case({"embed": (BF16, (8, 4))}, {"embed": (BF16, (8, 4)), "head": (BF16, (8, 4))}, "copy")
def row21_fan_out(d, name, w):
    for target in d.values():
        target.data.copy_(w)


@case({"zeros": (I32, (4,)), "w": (BF16, (4,))}, {"w": (BF16, (4,))}, "copy", untouched=("zeros",))
def row23_no_op(d, name, w):
    if name == "w":
        d["w"].copy_(w)


@case({"s": (F32, (8,))}, {"s": (F32, (8, 1))}, "copy")
def row24_unsqueeze(d, name, w):
    d["s"].data.copy_(w.unsqueeze(-1))


@case({"kv": (F32, (1,))}, {"k": (F32, ()), "v": (F32, ())}, "copy")
def row27_two_scales(d, name, w):
    d["k"].data.copy_(w.reshape(()))
    d["v"].data.copy_(w.reshape(()))


# ---- experts


@case({"w2": (BF16, (8, 12))}, {"w2": (BF16, (2, 8, 8))}, "copy")
def row29_padded_w2(d, name, w):
    w = w.narrow(1, 6, 6)
    d["w2"].data[1].narrow(1, 0, 6).copy_(w)


@case({"w13": (BF16, (4, 16, 8))}, {"w13": (BF16, (2, 16, 8))}, "copy")
def row30_fused_experts(d, name, w):
    for half, part in enumerate(w.chunk(2, dim=1)):
        for e, one in enumerate(part.unbind(0)):
            if e < 2:
                continue
            d["w13"].data[e - 2].narrow(0, 8 * half, 8).copy_(one)


@case({"experts": (BF16, (4, 8, 16))}, {"w13": (BF16, (4, 16, 8))}, "copy")
def row30_transposed_experts(d, name, w):
    d["w13"].data.copy_(w.transpose(-1, -2))


@case({"e0": (F32, ()), "e1": (F32, ()), "e2": (F32, ())}, {"scale": (F32, (2, 2))}, "copy", untouched=("e2",))
def row34_expert_scales(d, name, w):
    e = int(name[1])
    if e < 2:
        d["scale"].data[e][1] = w


@case({"a": (F32, ()), "b": (F32, ())}, {"s": (F32, (1,))}, "", refused={"a": "item", "b": "item"})
def row38_compares_destination(d, name, w):
    if name == "b" and (d["s"][0] - w).abs() > 1e5:  # refused
        raise ValueError("scales differ")
    d["s"].data[0] = w


@case({"x": (F32, (3,))}, {"s": (F32, (4, 2))}, "replicate")
def row39_all_experts(d, name, w):
    d["s"].data[:, 1] = w[2]


@case({"blocks": (U8, (2, 12, 4))}, {"w": (U8, (2, 16, 8))}, "copy")
def row40_padded_all_experts(d, name, w):
    d["w"].data[:, : w.shape[1], : w.shape[2]].copy_(w)


@case({"bias": (BF16, (4, 8))}, {"bias": (BF16, (4, 8))}, "fill")
def row42_zeroed_source(d, name, w):
    w.zero_()
    d["bias"].data.copy_(w)


@case({"w": (BF16, (8, 16))}, {"w": (BF16, (4, 2, 8))}, "copy")
def row45_slice_assignment(d, name, w):
    d["w"].data[1, 0:2, :] = w[2:4, 8:]


@case({"p": (BF16, (4, 8, 3))}, {"gate": (BF16, (4, 4, 3)), "up": (BF16, (4, 4, 3))}, "copy")
def row47_virtual_names(d, name, w):
    for e in range(w.size(0)):
        gate, up = w[e].chunk(2, dim=0)
        d["gate"].data[e].copy_(gate)
        d["up"].data[e].copy_(up)


@case({"bias": (BF16, (8,))}, {"bias": (F32, (8,))}, "cast")
def row48_to_f32(d, name, w):
    d["bias"].data.copy_(w.to(torch.float32))


@case({"s": (E8M0, (8, 4))}, {"s": (U8, (8, 4))}, "copy")
def row53_scale_bytes(d, name, w):
    d["s"].data.copy_(w.view(torch.uint8))


@case({"s": (F32, (8,))}, {"s": (U8, (8,))}, "", refused={"s": "__rshift__"})
def row52_bit_arithmetic(d, name, w):
    codes = w.view(torch.int32)
    codes = codes >> 23  # refused
    d["s"].data.copy_(codes.to(torch.uint8))


@case({"scale": (U8, (4, 2))}, {"scale": (U8, (8, 2))}, "replicate")
def row55_expanded_blocks(d, name, w):
    d["scale"].data.copy_(w.repeat_interleave(2, dim=0))


@case({"scale": (U8, (128, 16))}, {"scale": (I32, (4, 128))}, "copy")
def row55_scale_words(d, name, w):
    words = w.contiguous().view(torch.int32)
    d["scale"].data.copy_(words.unflatten(0, (4, 32)).transpose(0, 1).reshape(128, 4).t())


# ---- attention, state spaces, convolutions


@case({"w": (BF16, (16, 4))}, {"w": (BF16, (4, 4))}, "copy")
def row56_split(d, name, w):
    d["w"].data.copy_(w.data.split(16 // 4, dim=0)[2])


@case({"A": (F32, (16, 4))}, {"A": (F32, (4, 4))}, "", derives=1, approximate=True)
def row57_mamba1(d, name, w):
    d["A"].data.copy_((-torch.exp(w.float()))[8:12])


@case({"conv": (BF16, (8, 3))}, {"conv": (BF16, (8, 1, 3))}, "copy")
def row59_conv(d, name, w):
    if w.dim() == 2:
        w = w.unsqueeze(1)
    d["conv"].data.copy_(w)


@case({"conv": (BF16, (8, 1, 3))}, {"conv": (BF16, (8, 1, 3)), "side": (BF16, (2, 3, 8))}, "copy")
def row61_side_tensor(d, name, w):
    d["conv"].data.copy_(w)
    d["side"][1].copy_(w.squeeze(1).transpose(0, 1))


@case({"w": (BF16, (8, 4))}, {"w": (BF16, (2, 4))}, "copy")
def row65_contiguous_slice(d, name, w):
    d["w"].data.copy_(w[2:4].contiguous())


@case({"qkv": (BF16, (24, 8))}, {"qkv": (BF16, (24, 8))}, "copy")
def row68_neox(d, name, w):
    w = w.view(2, 3, 4, 8).transpose(0, 1).reshape(24, 8)
    d["qkv"].data.copy_(w)


@case({"w": (BF16, (8, 12))}, {"w": (BF16, (12, 8))}, "copy")
def row69_conv1d(d, name, w):
    d["w"].data.copy_(w.t())


@case({"qkv": (BF16, (12, 4))}, {"qkv": (BF16, (12, 4))}, "copy")
def row70_falcon_cat(d, name, w):
    w = w.view(3, 4, 4)
    q, k, v = w[:2].reshape(-1, 4), w[2, :2].reshape(-1, 4), w[2, 2:].reshape(-1, 4)
    d["qkv"].data.copy_(torch.cat([v, k, q], dim=0))


_held: dict = {}


@case({"q": (BF16, (4, 4)), "r": (BF16, (4, 4)), "s": (BF16, (4, 4))}, {"qkv": (BF16, (12, 4))}, "copy")
def row73_collects_names(d, name, w):
    _held[name] = w
    if len(_held) == 3:
        d["qkv"].data.copy_(torch.cat([_held.pop(n) for n in ("q", "r", "s")], dim=0))


@case({"scale": (F32, (1,))}, {"scale": (F32, (4,))}, "replicate")
def row73_host_scalar(d, name, w):
    d["scale"].data.fill_(w.item())


@case({"k_proj": (BF16, (4, 4))}, {"k_proj": (BF16, (4, 4)), "bias": (BF16, (4,))}, "copy fill")
def row76_generated_zeros(d, name, w):
    d["k_proj"].data.copy_(w)
    d["bias"].data.copy_(torch.zeros(4, dtype=w.dtype))


@case({"a": (F32, ()), "b": (F32, ())}, {"s": (F32, (2,)), "m": (F32, ())}, "copy", derives=1)
def row78_maximum(d, name, w):
    d["s"].data["ab".index(name)] = w
    if name == "b":
        d["m"].data.copy_(d["s"].max())


@case({"a": (F32, (2,)), "b": (F32, (2,))}, {"alpha": (F32, (2,)), "inverse": (F32, (2,))}, "", derives=2)
def row80_product_reciprocal(d, name, w):
    _held[name] = w
    if len(_held) == 2:
        a, b = _held.pop("a"), _held.pop("b")
        d["alpha"].data.copy_(a * b)
        d["inverse"].data.copy_(1.0 / a)


@case({"w": (BF16, (8, 4))}, {"w": (BF16, (8, 4))}, "copy")
def row81_swap_halves(d, name, w):
    d["w"].data.copy_(torch.cat([w[4:], w[:4]]))


@case({"score": (F32, (2, 4))}, {"score": (F32, (1, 4))}, "", derives=1)
def row83_difference_of_rows(d, name, w):
    d["score"].data.copy_((w[1] - w[0]).unsqueeze(0))


@case({"score": (F32, (2, 4))}, {"score": (F32, (2, 4))}, "", refused={"score": "_softmax"})
def row83_softmax(d, name, w):
    d["score"].data.copy_(torch.softmax(w, dim=0))  # refused


@case({"type": (U8, ()), "w": (U8, (4,))}, {"w": (U8, (4,))}, "copy", refused={"type": "item"})
def row85_type_from_data(d, name, w):
    if name == "type":
        _held["type"] = w.item()  # refused
    else:
        d["w"].data.copy_(w)


@case({"w": (F32, (8, 8))}, {"w": (F8, (8, 8)), "s": (F32, ())}, "", derives=2)
def row86_quantises(d, name, w):
    scale = w.abs().max() / 448.0
    d["s"].data.copy_(scale)
    d["w"].data.copy_((w / scale).clamp(-448, 448).to(torch.float8_e4m3fn))


@case({"patch": (BF16, (8, 12))}, {"patch": (BF16, (8, 3, 2, 2))}, "copy")
def row88_patch_embedding(d, name, w):
    d["patch"].data.copy_(w.reshape(8, 2, 2, 3).permute(0, 3, 1, 2).contiguous())


@case({"w": (BF16, (4, 6))}, {"w": (BF16, (6, 4))}, "copy")
def row89_permute_reshape(d, name, w):
    d["w"].data.copy_(w.view(4, 3, 2).permute(2, 1, 0).reshape(6, 4))


@case({"inv_freq": (F32, (8,)), "w": (BF16, (4,))}, {"w": (BF16, (4,))}, "copy", untouched=("inv_freq",))
def row90_dropped(d, name, w):
    if "inv_freq" not in name:
        d["w"].data.copy_(w)


# ---- traps of other recorders


@case({"w": (BF16, (8, 6))}, {"w": (BF16, (4, 3))}, "copy")
def function_forms(d, name, w):
    w = torch.narrow(w, 0, 2, 4)
    w = torch.transpose(torch.reshape(w, (4, 6)), 0, 1)
    d["w"].data.copy_(torch.chunk(w, 2, 0)[1].T)


@case({"w": (BF16, (4, 6))}, {"w": (BF16, (4, 3))}, "copy")
def boolean_mask(d, name, w):
    d["w"].data.copy_(w[:, torch.tensor([True, False, True, False, True, False])])


@case({"w": (BF16, (6, 4))}, {"w": (BF16, (6, 4))}, "copy")
def index_list(d, name, w):
    d["w"].data.copy_(w[[5, 0, 3, 1, 2, 4]])


@case({"w": (BF16, (4, 8))}, {"w": (BF16, (8, 4))}, "copy")
def asks_is_contiguous(d, name, w):
    w = w.t()
    if w.is_contiguous():
        raise AssertionError("a transposed tensor is not contiguous")
    if w.is_meta:
        return
    d["w"].data.copy_(w)


@case({"w": (BF16, (4,))}, {"w": (BF16, (8,))}, "copy")
def keeps_attributes(d, name, w):
    w.shard_id = "up"
    d["w"].data.narrow(0, 4 if getattr(w, "shard_id", None) == "up" else 0, 4).copy_(w)


@case({"w": (BF16, (4,))}, {"w": (BF16, (4,))}, "copy")
def assigns_data(d, name, w):
    d["w"].data = w


@case({"w": (BF16, (4, 6))}, {"w": (BF16, (4, 6))}, "copy")
def foreach(d, name, w):
    torch._foreach_copy_([d["w"].data[0], d["w"].data[1:]], [w[0], w[1:]])


@case({"w": (BF16, (6,)), "v": (BF16, (6,))}, {"w": (BF16, (6,))}, "copy")
def last_write_wins(d, name, w):
    d["w"].data.copy_(w)


@case({"w": (BF16, (8,))}, {"w": (BF16, (16,))}, "copy fill")
def through_a_padded_buffer(d, name, w):
    buffer = torch.zeros(16, dtype=w.dtype)
    buffer[4:12].copy_(w)
    d["w"].data.copy_(buffer)


@case({"w": (F32, (4,))}, {"w": (F32, (4,))}, "", refused={"w": "numpy"})
def through_numpy(d, name, w):
    d["w"].data.copy_(torch.from_numpy(w.numpy() * 2))  # refused


@case({"w": (F32, (4,))}, {"w": (F32, (4,))}, "", derives=1)
def in_place_multiply(d, name, w):
    d["w"].data.copy_(w)
    d["w"].data.mul_(0.5)


@case({"w": (F32, (4,)), "v": (F32, (4,))}, {"w": (F32, (4,)), "v": (F32, (4,))}, "copy", derives=1)
def multiplies_source(d, name, w):
    if name == "w":
        w.mul_(2)
    d[name].data.copy_(w)


@case({"a": (BF16, (4, 6)), "b": (BF16, (4, 6))}, {k: (BF16, (4, 6)) for k in "abcd"} | {"n": (BF16, (2, 6))},
      "copy fill replicate", derives=3)
def writes_over_sources(d, name, w):
    if name == "a":
        d["a"].data.copy_(w)
        view = w.t()
        w[1:3] += 1.0  # the views see it, what was copied before does not
        d["c"].data.copy_(view.t())
        d["n"].data.copy_(w[1:3])
        d["a"].first = w
    else:
        first = d["a"].first
        first[:2] = w[2:]
        w[0].zero_()
        w[torch.tensor([3, 1])] = first[:2].flip(0).clone()
        d["b"].data.copy_(w)
        d["d"].data.copy_(first)


# ---- other engines' and frameworks' ways


@case({"w": (F32, (4, 4))}, {"w": (F32, (4, 4))}, "copy")
def writes_to_out(d, name, w):
    torch.index_select(w, 0, torch.tensor([3, 2, 1, 0]), out=d["w"].data)


@case({"w": (F32, (4, 4))}, {"w": (F32, (4, 4))}, "", derives=1)
def computes_into_out(d, name, w):
    torch.mul(w, 2.0, out=d["w"].data)


@case({"w": (F32, (4, 4)), "v": (F32, (4, 4))}, {"w": (F32, (4, 4)), "v": (F32, (4, 4))}, "copy", refused={"w": "sort"})
def refused_into_out(d, name, w):
    if name == "w":
        torch.sort(w, out=(d["w"].data, torch.empty(0, dtype=torch.int64)))  # refused
    else:
        d["v"].data.copy_(w)


@case({"w": (BF16, (3, 4))}, {"w": (BF16, (5, 4))}, "copy fill")
def pads_with_zeros_of_its_kind(d, name, w):
    d["w"].data.copy_(torch.cat([w, w.new_zeros(1, 4), torch.zeros_like(w[:1])]))


@case({"w": (torch.complex64, (4, 3))}, {"r": (F32, (4, 3)), "w": (torch.complex64, (4, 3)), "i": (F32, (4, 3))}, "copy")
def complex_views(d, name, w):
    d["w"].data.copy_(w)
    d["r"].data.copy_(torch.view_as_real(w)[..., 0])
    d["i"].data.copy_(w.imag)


@case({"w": (torch.complex64, (4,))}, {"w": (torch.complex64, (4,))}, "", refused={"w": "copy_"})
def conjugated(d, name, w):
    d["w"].data.copy_(w.conj())  # refused


@case({"w": (torch.complex64, (4,))}, {"w": (F32, (4,))}, "", refused={"w": "copy_"})
def negated_view(d, name, w):
    d["w"].data.copy_(w.conj().imag)  # refused


@case({"w": (torch.complex64, (4,))}, {"w": (torch.complex128, (4,))}, "", refused={"w": "copy_"}, undeclared=("w",))
def dtype_without_a_name(d, name, w):
    d["w"].data.copy_(w)  # refused


@case({"w": (F32, (4, 6))}, {"w": (F32, (2, 6))}, "copy")
def through_dlpack(d, name, w):
    d["w"].data.copy_(torch.from_dlpack(w[1:])[1:])


@case({"w": (F32, (4,)), "v": (F32, (4,))}, {"w": (F32, (4,)), "v": (F32, (4,))}, "copy", refused={"w": "all"})
def asserts_about_values(d, name, w):
    if name == "w" and not (w < 1e9).all():  # refused
        raise ValueError("values are too large")
    d[name].data.copy_(w)


@case({"w": (F32, (4, 6))}, {"w": (F32, (4, 6))}, "copy")
def on_a_thread(d, name, w):
    thread = threading.Thread(target=lambda: d["w"].data.copy_(w))
    thread.start()
    thread.join()


_pool = concurrent.futures.ThreadPoolExecutor(2)  # older than any recording


@case({"w": (F32, (4, 6)), "v": (F32, (4, 6))}, {"w": (F32, (4, 3)), "v": (F32, (4, 3))}, "copy", refused={"w": "item"})
def on_an_executor(d, name, w):
    def work():
        if name == "w":
            w[0, 0].item()  # refused
        d[name].data.copy_(w[:, 3:])
    _pool.submit(work).result()


@case({"w": (F32, (4, 6)), "v": (F32, (4, 6))}, {"w": (F32, (4, 6)), "v": (F32, (4, 6))}, "copy")
def copies_onto_itself(d, name, w):
    d[name].data.copy_(w)
    for t in d.values():
        t.data.copy_(t.data)


@case({"s": (F32, ()), "n": (I64, (1,)), "t": (F32, (1,))}, {"s": (BF16, (1,)), "n": (I64, ()), "t": (F32, (2, 3))}, "cast copy")
def scalars_through_python(d, name, w):
    if name == "t":
        d["t"].data[1, 2] = w.item()
    else:
        d[name].data.fill_(w.item())


@case({"s": (F32, ()), "v": (F32, (4,))}, {"s": (F32, ()), "v": (F32, (4,))}, "copy", refused={"s": "item"})
def scalar_that_is_kept(d, name, w):
    if name == "s":
        scale = w.item()  # refused
        d["s"].data.fill_(scale)
        d["v"].data.narrow(0, 0, 1)
        d["s"].data.fill_(scale)
    else:
        d["v"].data.copy_(w)


@case({"s": (F32, ()), "v": (F32, (4,))}, {"s": (F32, ()), "v": (F32, (4,))}, "copy", refused={"s": "item"})
def scalar_that_is_looked_at(d, name, w):
    if name == "s":
        scale = w.item()  # refused
        d["s"].data.fill_(scale if scale > 0 else 1.0)
    else:
        d["v"].data.copy_(w)


@case({"s": (F32, ()), "v": (F32, (4,))}, {"s": (F32, ()), "v": (F32, (4,))}, "copy", refused={"s": "item"})
def scalar_in_a_list(d, name, w):
    if name == "s":
        d["s"].data.copy_(torch.tensor([w.item()])[0])  # refused
    else:
        d["v"].data.copy_(w)


# ---- elements moved to places that constants choose, and small arithmetic


@case({"w": (F32, (4, 6)), "v": (F32, (4, 4))}, {"w": (F32, (4, 6)), "v": (F32, (8, 8))}, "copy fill replicate")
def zeros_between(d, name, w):
    d[name].data.copy_(torch.tril(w) if name == "w" else torch.block_diag(w, w.t()))


@case({"w": (F32, (4, 6))}, {"w": (F32, (4, 6))}, "copy fill")
def filled_by_a_mask(d, name, w):
    d["w"].data.copy_(w.masked_fill(torch.arange(6) % 2 == 0, 2.5).index_fill(0, torch.tensor([1]), 0.0))


@case({"w": (F32, (4, 6))}, {"w": (F32, (8, 6))}, "copy fill")
def into_a_copy_of_a_constant(d, name, w):
    d["w"].data.copy_(torch.slice_scatter(torch.full((8, 6), 3.0), w, 0, 2, 6))


@case({"w": (BF16, (4, 6))}, {"w": (BF16, (4, 6))}, "copy")
def rows_of_an_embedding(d, name, w):
    d["w"].data.copy_(torch.nn.functional.embedding(torch.tensor([3, 0, 2, 1]), w))


@case({"w": (F32, (3, 4))}, {"w": (F32, (6, 8))}, "replicate")
def larger_by_repeating(d, name, w):
    d["w"].data.copy_(torch.nn.functional.interpolate(w[None, None], scale_factor=2, mode="nearest")[0, 0])


@case({"w": (U8, (4,)), "v": (F32, (4,))}, {"w": (F32, (4,)), "v": (F32, (4,))}, "copy", refused={"w": "index"})
def looks_up_values(d, name, w):
    d[name].data.copy_(torch.arange(256.0)[w.long()] if name == "w" else w)  # refused


@case({"w": (F32, (4, 6)), "v": (BF16, (8,))}, {"w": (F32, (4, 6)), "v": (BF16, (8,))}, "", derives=2)
def bounded_and_squared(d, name, w):
    d[name].data.copy_(w.clamp(-0.5, 0.75) if name == "w" else w ** 2)


@case({"w": (F32, (6,))}, {"w": (F32, (4, 6))}, "", derives=1)
def added_to_a_uniform_constant(d, name, w):
    d["w"].data.copy_(torch.ones(4, 6) + w)


# ---- computations


@case({"w": (F32, (6, 4)), "v": (BF16, (2, 6, 4))}, {"w": (F32, (4, 6)), "v": (F32, (6, 2, 4)), "m": (F32, (6,))}, "", derives=3)
def computes_on_permuted_views(d, name, w):
    if name == "w":
        d["w"].data.copy_(w.t() * 2)
        d["m"].data.copy_((w.t() * 2).amax(0))
    else:
        d["v"].data.copy_(w.permute(1, 0, 2).float() * 0.5)


@case({"w": (F32, (6, 4))}, {"w": (F32, (4, 6))}, "", derives=1)
def chooses_by_a_permuted_comparison(d, name, w):
    d["w"].data.copy_(torch.where(w.t() > 0.5, w.t(), w.t() * 3))


@case({"w": (BF16, (64,)), "s": (F32, ())}, {k: (BF16, (64,)) for k in "abcdefgh"}, "", derives=8)
def rounds_constants_as_torch_does(d, name, w):
    d.setdefault("held", {})[name] = w
    if len(d["held"]) == 2:
        w, s = d["held"].pop("w"), d.pop("held")["s"]
        for name, value in zip("abcdefgh", (w + 0.1, w - 0.3, 0.1 - w, w * 0.1, w / 448.1, w * s, s - w,
                                            torch.where(w > 0.1, w, -w))):
            d[name].data.copy_(value)


@case({"a": (F32, (6, 4)), "b": (F32, (6, 4))}, {k: (F32, (6, 4)) for k in "abcd"} | {"z": (F32, (3,))}, "fill", derives=4)
def foreach_computations(d, name, w):
    d.setdefault("held", []).append(w)
    if len(d["held"]) == 2:
        held = d.pop("held")
        products = torch._foreach_mul(held, [2.0, 3.0])
        torch._foreach_neg_(products)
        torch._foreach_copy_([d["a"].data, d["b"].data], products)
        torch._foreach_copy_([d["c"].data, d["d"].data], torch._foreach_maximum(held, held[::-1]))
        torch._foreach_zero_([d["z"].data])


@case({"w": (F8, (6, 4)), "s": (F32, (6, 1))}, {"k": (BF16, (2, 4, 2)), "v": (BF16, (2, 1, 4)), "m": (F32, (2,))}, "", derives=3)
def views_of_a_computed_value(d, name, w):
    """As the absorbed weights of latent attention: scaled, split by heads, transposed."""
    d.setdefault("held", {})[name] = w
    if len(d["held"]) == 2:
        held = d.pop("held")
        scaled = (held["w"].float() * held["s"]).to(BF16)
        k, v = scaled.unflatten(0, (2, 3)).split([2, 1], dim=1)
        d["k"].data.copy_(k.transpose(1, 2).contiguous())
        d["v"].data.copy_(v.contiguous())
        d["m"].data.copy_(-scaled.float().amax(1)[::3])


def _zeroes_its_last_rows(d):
    d["w"].data[4:].zero_()
    d["s"].data[0].fill_(2.0)
    d["n"].data[:2].copy_(d["w"].data[:2])


@case({"w": (F32, (6, 4)), "s": (F32, (6, 4)), "n": (F32, (6, 4))}, {"w": (F32, (6, 4)), "s": (F32, (6, 4)), "n": (F32, (6, 4))},
      "copy fill", derives=1, after=_zeroes_its_last_rows)
def overwritten_after_all_names(d, name, w):
    d[name].data.copy_(w)
    if name == "s":
        d["s"].data.mul_(0.5)


@case({"a": (F32, (6, 4)), "b": (F32, (2, 4))}, {"w": (F32, (6, 4))}, "copy", derives=1)
def copies_over_a_computed_value(d, name, w):
    d["w"].data[2 if name == "b" else 0:][:w.size(0)].copy_(w if name == "b" else w * 3)


@case({"a": (F8, (6, 4)), "b": (F8, (6, 4)), "s": (F32, (6, 1))}, {"w": (BF16, (2, 6, 4)), "t": (BF16, (4, 12))}, "cast fill",
      derives=4)
def puts_computed_values_together(d, name, w):
    """As a framework that scales the weights of experts and stacks them."""
    d.setdefault("held", {})[name] = w
    if len(d["held"]) == 3:
        held = d.pop("held")
        scaled = [held[n].float() * held["s"] for n in "ab"]
        scaled[1][5] = held["s"][:4, 0]
        scaled[1][4:5].zero_()
        d["w"].data.copy_(torch.stack(scaled))
        d["t"].data.copy_(torch.cat(scaled).to(BF16).t())


@case({"w": (F32, (6, 8))}, {"a": (F32, (6,)), "b": (F32, (1, 8)), "c": (F32, (2,))}, "", derives=4)
def extremes_by_rows(d, name, w):
    d["a"].data.copy_(w.max(dim=1).values)
    d["b"].data.copy_(w.min(0, keepdim=True)[0])
    d["c"].data[0], d["c"].data[1] = w.aminmax()


@case({"w": (F32, (6, 8)), "v": (F32, (6,))}, {"w": (F32, (6,)), "i": (I64, (6,)), "v": (F32, (6,))}, "copy", refused={"w": "max"})
def asks_where_the_largest_is(d, name, w):
    if name == "v":
        d["v"].data.copy_(w)
        return
    values, where = w.max(dim=1)  # refused
    d["w"].data.copy_(values)
    d["i"].data.copy_(where)


@case({"w": (F8, (6, 8)), "s": (F32, (3, 2))}, {"w": (BF16, (6, 8)), "t": (BF16, (6, 8))}, "", derives=7)
def scales_blocks(d, name, w):
    """By repeated scales, and tile by tile in place."""
    d.setdefault("held", {})[name] = w
    if len(d["held"]) == 2:
        held = d.pop("held")
        whole, s = held["w"].to(F32), held["s"]
        d["w"].data.copy_((whole * s.repeat_interleave(2, 0).repeat_interleave(4, 1)).to(BF16))
        tiles = [whole[2 * j:2 * j + 2, 4 * i:4 * i + 4] for j in range(3) for i in range(2)]
        for k, tile in enumerate(tiles):
            tile[:, :] = tile * s[k // 2][k % 2]
        d["t"].data.copy_(whole.to(BF16))


@case({"w": (F32, (6, 8)), "v": (BF16, (6, 8))}, {"w": (F32, (6, 8)), "v": (F32, (6, 8))}, "", derives=2)
def computes_on_what_one_name_put_together(d, name, w):
    if name == "w":
        d["w"].data.copy_(w[torch.tensor([5, 0, 3, 1, 2, 4])] * 2)
    else:
        d["v"].data[:3].copy_(w[3:])
        d["v"].data[3:].copy_(w[:3])
        d["v"].data.mul_(0.5)


def _one_scale_for_both(d):
    """As FP8 weights that were quantised apart get one scale."""
    for i in range(2):
        d["w"].data[i].copy_(d["w"].data[i] * d["s"].data[i])
    d["s"].data.fill_(1.0)


@case({"a": (F32, (6, 4)), "b": (F32, (6, 4))}, {"w": (F32, (2, 6, 4)), "s": (F32, (2,))}, "fill", derives=2,
      after=_one_scale_for_both)
def reads_what_is_overwritten_later(d, name, w):
    d["w"].data["ab".index(name)].copy_(w)
    d["s"].data["ab".index(name)].copy_(w.abs().max())


@case({"a": (F32, (6, 4)), "b": (F32, (6, 4))}, {"w": (F32, (6, 4)), "m": (F32, ()), "n": (F32, ())}, "copy", derives=2)
def largest_of_what_another_name_overwrites(d, name, w):
    d["w"].data.copy_(w)
    d["nm"["ab".index(name)]].data.copy_(d["w"].data.max())


@case({"w": (F32, (6, 4))}, {"w": (F32, (6, 4)), "m": (F32, ())}, "", derives=2)
def largest_before_scaling(d, name, w):
    d["w"].data.copy_(w)
    d["m"].data.copy_(d["w"].data.abs().max())
    d["w"].data.mul_(0.5)


def _scales_all_rows(d):
    d["m"].data.copy_(d["w"].data.abs().max())
    d["w"].data.mul_(0.5)  # refused


@case({"a": (F32, (6, 4)), "b": (F32, (6, 4))}, {"w": (F32, (12, 4)), "m": (F32, ())}, "", refused={"a": "copy_", "b": "copy_"},
      after=_scales_all_rows)
def largest_of_two_names_before_scaling(d, name, w):
    d["w"].data[6 * "ab".index(name):][:6].copy_(w)


# ---- what adds, chooses or reads out of sight


@case({"w": (F32, (3, 4)), "v": (F32, (2, 4))}, {"w": (F32, (6, 4)), "v": (F32, (6, 4))}, "",
      refused={"w": "index_put_", "v": "put_"})
def adds_to_what_is_there(d, name, w):
    if name == "w":
        d["w"].data.fill_(1.0)
        d["w"].data.index_put_((torch.tensor([1, 3, 5]),), w, accumulate=True)  # refused
    else:
        d["v"].data[:2].copy_(w)
        d["v"].data.put_(torch.tensor([1, 2]), torch.tensor([1.0, 2.0]), True)  # refused


@case({"w": (F32, (4, 4))}, {"w": (F32, (4, 4))}, "", refused={"w": "index_put"})
def adds_into_a_copy(d, name, w):
    d["w"].data.copy_(torch.zeros(4, 4).index_put((torch.tensor([0, 2]),), w[:2], accumulate=True))  # refused


@case({"i": (I64, (4,)), "w": (I64, (128,))}, {"w": (I64, (128,))}, "", refused={"i": "index_put_", "w": "index_put_"})
def places_that_the_checkpoint_chooses(d, name, w):
    if name == "i":
        d["i"] = w
    else:
        d["w"].data.copy_(w)
        d["w"].data.index_put_((d.pop("i"),), torch.tensor(7))  # refused


@case({"w": (F32, (4, 6)), "v": (F32, (4, 6))}, {"w": (F32, (4, 6)), "v": (F32, (4, 6))}, "copy", refused={"w": "a read"})
def through_pickle(d, name, w):
    if name == "w":
        w = pickle.loads(pickle.dumps(w))
    d[name].data.copy_(w)  # refused


@case({"w": (F32, (4,)), "v": (F32, (4,))}, {"w": (F32, (4,)), "v": (F32, (4,))}, "copy", refused={"w": "a read"})
def numbers_that_torch_reads_itself(d, name, w):
    if name == "w":
        w = torch.tensor([w[0], w[1], w[2], w[3]])
    d[name].data.copy_(w)  # refused


# ---- copies


@case({"w": (F32, (6, 4))}, {"w": (F32, (6, 4)), "z": (F32, (6, 4))}, "copy fill")
def copies_are_not_the_source(d, name, w):
    copied = w.to("cpu", copy=True)
    copied.zero_()
    d["z"].data.copy_(copied)
    d["w"].data.copy_(w)


@case({"w": (F32, (6, 4))}, {"w": (F32, (4, 6)), "r": (F32, (6, 4))}, "copy")
def copies_of_views(d, name, w):
    d["w"].data.copy_(torch.transpose_copy(torch.view_copy(w, (3, 8)).reshape(6, 4), 0, 1))
    for i, row in enumerate(torch.unbind_copy(w)):
        d["r"].data[5 - i].copy_(row)


@case({"w": (F32, (6, 4))}, {"w": (F32, (6, 8)), "t": (F32, (4, 6))}, "copy fill")
def constants_beside_it(d, name, w):
    d["w"].data[:, :4].copy_(w)
    d["w"].data[:, 4:].copy_(torch.tensor([0.0, 0.0, 1.0, 2.0]))
    d["t"].data.t().copy_(w)
    d["t"].data.t().masked_fill_(torch.eye(6, 4, dtype=torch.bool), 3.0)
    d["t"].data[:, torch.tensor([1, 4])] = torch.arange(8.0).view(4, 2)


@case({"w": (F32, (6, 4)), "v": (F32, (6, 4))}, {"w": (F32, (6, 4)), "v": (F32, (6, 4))}, "replicate",
      refused={"w": "copy_"})
def copies_within_a_tensor(d, name, w):
    d[name].data.copy_(w)
    rows = d[name].data
    if name == "v":
        rows[1::2].copy_(rows[::2])  # other rows
    else:
        rows[2:5].copy_(rows[::2])  # refused


@case({"w": (BF16, (4, 6)), "v": (F32, (4, 6))}, {"w": (F8, (4, 6)), "w_scale": (F32, (2, 2)), "v": (F8, (4, 6)),
                                                  "v_scale": (F32, (2, 2))}, "", derives=4)
def quantised_by_blocks(d, name, w):
    """Blocks of (2, 3) and a scale for each, written over and over where the destination is."""
    blocks = w.to(d[name].device).float().reshape(2, 2, 2, 3).permute(0, 2, 1, 3).flatten(2)
    most = blocks.abs().amax(-1, keepdim=True)
    scale = torch.empty_like(most)
    torch.div(448.0, most, out=scale)
    scale = torch.where(most == 0, torch.ones_like(scale), scale)
    blocks.mul_(scale).clamp_(min=-448.0, max=448.0)
    d[name].copy_(blocks.to(F8).reshape(2, 2, 2, 3).permute(0, 2, 1, 3).reshape(4, 6))
    d[name + "_scale"].copy_(scale.reciprocal().reshape(2, 2))
