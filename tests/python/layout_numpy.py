#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Kernel layouts against transforms composed step by step in numpy.

Every layout is applied by `loadplan layout NAME --apply` to tensors of random bytes, fused and separate, and must give
the bytes of the composition below, which is written from the kernels' side (interleave rows, pack words, transpose,
permute slots) and shares nothing with the table of axes. The printed formulas are evaluated for every byte too, and
--inverse must give the inputs back.
"""
import argparse
import json
import pathlib
import re
import struct
import subprocess
import sys
import tempfile

try:
    import numpy as np
except ImportError:
    print("skipped: numpy is not there")
    sys.exit(77)

SEED = 20260731


# ---- safetensors, by hand: dtypes that numpy lacks travel as bytes ----

def write_safetensors(path, tensors):
    header, data, off = {}, [], 0
    for name, (dtype, shape, raw) in tensors.items():
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [off, off + len(raw)]}
        data.append(raw)
        off += len(raw)
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(data))


def read_safetensors(path):
    blob = path.read_bytes()
    (length,) = struct.unpack("<Q", blob[:8])
    assert length % 8 == 0, "the data does not start at a multiple of 8"
    header = json.loads(blob[8:8 + length])
    metadata = header.pop("__metadata__", {})
    return metadata, {name: (t["dtype"], t["shape"], blob[8 + length:][slice(*t["data_offsets"])])
                      for name, t in header.items()}


# ---- the steps ----

def interleave(x, rows_a_group):
    """gate rows 0..I-1, up rows 0..I-1 -> groups of gate rows, each followed by its up rows"""
    e, n, c = x.shape
    return x.reshape(e, 2, n // 2 // rows_a_group, rows_a_group, c).transpose(0, 2, 1, 3, 4).reshape(e, n, c)


def gran8(x):
    return interleave(x, 8)


def packed(x):
    """per 16 rows: even gate, even up, odd gate, odd up"""
    e, n, c = x.shape
    out = np.empty_like(x)
    for half in range(2):
        for t in range(n // 2):
            out[:, 32 * (t // 16) + 16 * (t % 2) + 8 * half + (t % 16) // 2] = x[:, half * (n // 2) + t]
    return out


def shuffle32(x):
    """each 32 rows: row r to place 8 * (r % 4) + (r % 32) // 4"""
    e, n, c = x.shape
    return x.reshape(e, n // 32, 8, 4, c).transpose(0, 1, 3, 2, 4).reshape(e, n, c)


def trt(x):
    """up and gate rows alternate, up first; then the shuffle of 32"""
    e, n, c = x.shape
    up_first = x.reshape(e, 2, n // 2, c)[:, ::-1]
    return shuffle32(up_first.transpose(0, 2, 1, 3).reshape(e, n, c))


def trt_bf16(x):
    """bits of the gran-8 row: s4 = r0, s3 = not r3, s2 = r4, s1 s0 = r2 r1"""
    y, out = gran8(x), np.empty_like(x)
    for row in range(x.shape[1]):
        r = [row >> b & 1 for b in range(5)]
        s = r[0] << 4 | (1 - r[3]) << 3 | r[4] << 2 | r[2] << 1 | r[1]
        out[:, row // 32 * 32 + s] = y[:, row]
    return out


def words(x):
    return np.ascontiguousarray(x).view(np.int32)


def slots(x):
    """inside 128 rows: logical row 32 a + b to slot 4 b + a"""
    e, n, c = x.shape
    return x.reshape(e, n // 128, 4, 32, c).transpose(0, 1, 3, 2, 4).reshape(e, n, c)


def by_column(x):
    return x.transpose(0, 2, 1)


def by_block(x):
    """[row block of 128][word column][128 words]"""
    e, n, c = x.shape
    return x.reshape(e, n // 128, 128, c).transpose(0, 1, 3, 2)


def trt_down_slots(x):
    """slot i0 + 4 i1 + 16 i2 of each block to word i0 + 32 i1 + 4 i2"""
    y, out = slots(x), np.empty_like(x)
    for slot in range(x.shape[1]):
        i0, i1, i2 = slot % 4, slot // 4 % 4, slot // 16 % 8
        out[:, slot // 128 * 128 + i0 + 32 * i1 + 4 * i2] = y[:, slot]
    return out


def columns64(x):
    """columns of 64 BF16 elements, each with all rows"""
    e, n, c = x.shape
    return x.reshape(e, n, c // 128, 128).transpose(0, 2, 1, 3)


def halves(x):
    """[die, E, N/2, bytes]: the first half of the rows of all experts, then the second"""
    e, n, c = x.shape
    return np.stack([x[:, :n // 2], x[:, n // 2:]])


def tiles(x, row_bytes):
    """256 rows by 128 columns of K, row_bytes of each row, in one piece"""
    e, n, c = x.shape
    return x.reshape(e, n // 256, 256, c // row_bytes, row_bytes).transpose(0, 1, 3, 2, 4)


def same(x):
    return x


# kind: (checkpoint dtype, bytes a row for K, rows from N)
WEIGHT = {"mxfp4": ("U8", lambda k: k // 2), "nvfp4": ("U8", lambda k: k // 2), "mxfp8": ("F8_E4M3", lambda k: k),
          "fp8_block128": ("F8_E4M3", lambda k: k), "bf16": ("BF16", lambda k: 2 * k)}
SCALE = {"mxfp4": ("U8", lambda k: k // 32), "nvfp4": ("F8_E4M3", lambda k: k // 16),
         "mxfp8": ("U8", lambda k: k // 32), "fp8_block128": ("F32", lambda k: k // 128 * 4)}
ROWS = {"": gran8, "shared": gran8, "packed": packed, "trt": trt, "localised": gran8, "sm90": gran8}


def parse(name):
    match = re.fullmatch(r"(mxfp4|nvfp4|mxfp8|bf16|fp8_block128)(?:_(shared|packed|trt|localised|sm90))?_(l1|l2)_(weight|scale)",
                         name)
    assert match, f"no composition for {name}"
    form, variant, projection, part = match.groups()
    return form, variant or "", projection == "l1", part == "scale"


def compose(name, x):
    """x: [E, rows, bytes], gate rows then up rows for the first projection"""
    form, variant, first, is_scale = parse(name)
    if form == "fp8_block128" and is_scale:
        return x
    if form == "bf16" and variant == "trt":
        return columns64(trt_bf16(x) if first else shuffle32(x))
    if variant == "sm90":
        return tiles(gran8(x) if first else x, 64 if not is_scale else 4 if form == "mxfp4" else 8)
    if is_scale:
        w = words(x)
        if variant == "trt":
            return by_block(slots(trt(w)) if first else trt_down_slots(w))
        return by_column(slots(ROWS[variant](w) if first else w))
    y = ROWS[variant](x) if first else shuffle32(x) if variant == "trt" else x
    return halves(y) if variant == "localised" else y


def check_formula(name, info, x, expected):
    """the printed formulas, for every byte"""
    _, _, first, _ = parse(name)
    e, n, width = x.shape
    ee, rr, c = np.meshgrid(np.arange(e), np.arange(n), np.arange(width), indexing="ij")
    half, t = (rr // (n // 2), rr % (n // 2)) if first else (np.zeros_like(rr), rr)
    values = {"e": ee, "half": half, "t": t, "c": c}
    off = eval(info["forward"].split(" = ")[1].replace("/", "//"), {}, values)
    out = np.empty(x.size, np.uint8)
    out[off.reshape(-1)] = x.reshape(-1)
    assert out.tobytes() == expected, f"{name}: {info['forward']}"
    for part in info["inverse"].split(", "):
        variable, expression = part.split(" = ")
        seen = eval(expression.replace("/", "//"), {}, {"off": off})
        assert (seen == values[variable]).all(), f"{name}: {part}"


def check(loadplan, folder, name, sizes, rng):
    form, variant, first, is_scale = parse(name)
    e, h, i = sizes if variant != "shared" else (1,) + sizes[1:]
    dtype, width = (SCALE if is_scale else WEIGHT)[form]
    blocks = 128 if form == "fp8_block128" and is_scale else 1
    rows, row_bytes = ((2 * i if first else h) // blocks, width(h if first else i))
    element = {"U8": 1, "F8_E4M3": 1, "BF16": 2, "F32": 4}[dtype]
    x = rng.integers(0, 256, (e, rows, row_bytes), dtype=np.uint8)
    expected = np.ascontiguousarray(compose(name, x)).tobytes()

    def tensor(part):
        shape = (part.shape[0], part.shape[1], part.shape[2] // element)
        return dtype, shape[1:] if variant == "shared" else shape, np.ascontiguousarray(part).tobytes()

    forms = [{"w2": tensor(x)}]
    if first:
        forms = [{"w13": tensor(x)}, {"w1": tensor(x[:, :rows // 2]), "w3": tensor(x[:, rows // 2:])}]
    run = lambda *arguments: subprocess.run([loadplan, "layout", name, *map(str, arguments)], check=True,
                                            capture_output=True, text=True).stdout
    info = json.loads(run("--shape", f"E={e},H={h},I={i}", "--format=json"))
    assert info["bytes"] == x.size, name
    check_formula(name, info, x, expected)
    for n, form_tensors in enumerate(forms):
        source, out, back = (folder / f"{name}.{n}.{what}" for what in ("in", "out", "back"))
        write_safetensors(source, form_tensors)
        run("--apply", source, "-o", out, "-q")
        metadata, tensors = read_safetensors(out)
        assert list(tensors) == [name]
        assert tensors[name][2] == expected, f"{name}: other bytes for {sorted(form_tensors)}"
        assert metadata["loadplan.layout"] == name and metadata["loadplan.layout_version"] == "1"
        assert json.loads(metadata["loadplan.shape"]) == info["shape"]
        assert json.loads(metadata["loadplan.stride_bytes"]) == info["stride_bytes"]
        by_stride = sorted(zip(info["stride_bytes"], info["shape"]), key=lambda pair: -pair[0])
        assert tensors[name][1] == [extent for _, extent in by_stride], f"{name}: dimensions are not in memory order"
        run("--apply", out, "--inverse", "-o", back, "-q")
        _, seen = read_safetensors(back)
        assert {k: (d, tuple(s), b) for k, (d, s, b) in seen.items()} == form_tensors, f"{name}: inverse"
        for path in (source, out, back):
            path.unlink()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", type=pathlib.Path, required=True)
    loadplan = parser.parse_args().build / "loadplan"
    listing = json.loads(subprocess.run([loadplan, "layout", "--format=json"], check=True, capture_output=True).stdout)
    names = [row["id"] for row in listing["layouts"]]
    described = (pathlib.Path(__file__).resolve().parents[2] / "docs" / "layouts.md").read_text()
    missing = [name for name in names if not re.search(rf"\b{name}\b", described)]
    assert not missing, f"docs/layouts.md does not list {missing}"
    rng = np.random.default_rng(SEED)
    print(f"seed {SEED}, {len(names)} layouts")
    with tempfile.TemporaryDirectory(prefix="loadplan-layouts-") as folder:
        for name in names:
            for sizes in ((3, 512, 256), (1, 1536, 768)):
                check(loadplan, pathlib.Path(folder), name, sizes, rng)


main()
