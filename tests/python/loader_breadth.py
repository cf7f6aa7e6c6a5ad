#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The built-in loaders on published models (tests/models/model_table.py), twice over.

Full size: a file with the header of the published checkpoint and nothing behind it; auto must choose the right loader, take
up every name, and `check` must find every destination byte written exactly once.

Small: the same names with small shapes and random bytes; what replay writes must be, byte for byte, what an independent
loader over numpy makes (model_loaders.py), on every rank of several layouts. Results of exp may differ in the last bits.
"""
import argparse
import json
import math
import pathlib
import random
import struct
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "models"))
try:
    import numpy as np
    import model_loaders
    import model_table
except ImportError as missing:
    print(f"SKIPPED: {missing}")
    sys.exit(77)

NUMPY = {"BF16": np.uint16, "F16": np.uint16, "F32": np.uint32, "I32": np.uint32, "I64": np.uint64, "U8": np.uint8, "I8": np.uint8,
         "F8_E4M3": np.uint8}
EXP_ULPS = 4
MANY_NAMES = 30_000


def run(*command):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(str(c) for c in command)}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout + done.stderr


def write_header(f, tensors):
    """The header of a file of these tensors; the bytes of its data."""
    header, off = {}, 0
    for name, dtype, shape in tensors:
        size = math.prod(shape) * np.dtype(NUMPY[dtype]).itemsize
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [off, off + size]}
        off += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    f.write(struct.pack("<Q", len(text)) + text)
    return off


def random_tensor(rng, name, dtype, shape):
    """Bytes of no pattern; logarithms and whole-tensor scales are numbers that something is computed from."""
    count = math.prod(shape)
    if name.endswith("A_log"):
        value = np.log(rng.uniform(1, 16, count).astype(np.float32)).view(np.uint32)
        value = value if dtype == "F32" else (value >> 16).astype(np.uint16)
    elif name.endswith(("global_scale", "weight_scale_2", "input_scale")):
        key = name.replace("up_proj.weight_", "gate_proj.weight_")  # gate and up must agree
        value = np.array([random.Random(key).uniform(1, 1000)] * count, np.float32).view(np.uint32)
    else:
        width = np.dtype(NUMPY[dtype]).itemsize
        value = rng.integers(0, 256, count * width, np.uint8).view(NUMPY[dtype])
    return value.reshape(shape)


def full_size(program, model, folder):
    """Records the published sizes from headers alone; returns the number of names."""
    tensors = list(model.tensors(model.config))
    parameters = sum(math.prod(shape) for _, _, shape in tensors)
    if model.parameters and parameters != model.parameters:
        raise RuntimeError(f"described {parameters:,} parameters, published {model.parameters:,}")
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(model.config))
    with open(folder / "model.safetensors", "wb") as f:
        data = write_header(f, tensors)
        f.truncate(f.tell() + data)
    trace = folder / "full.lpt"
    both = model.full_tp > 1 and len(tensors) <= MANY_NAMES  # the largest ones on one rank only, to save time
    ranks = f"0,{model.full_tp - 1}" if both else "0"
    run(program, "record", "--checkpoint", folder, "--tp", model.full_tp, "--rank", ranks, "--rest", model.rest,
        "-o", trace)
    check(program, trace)
    header = " ".join(run(program, "info", trace).split())
    if f"loader {model.loader} 1" not in header:
        raise RuntimeError(f"auto did not choose {model.loader}: {header}")
    (folder / "model.safetensors").unlink()
    return len(tensors)


def check(program, trace):
    seen = run(program, "check", "--fail-on=warn", trace)
    if "every destination byte written exactly once" not in seen:
        raise RuntimeError(seen)


def read_rank_file(path):
    raw = path.read_bytes()
    size = struct.unpack("<Q", raw[:8])[0]
    header = json.loads(raw[8:8 + size])
    header.pop("__metadata__", None)
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        yield name, entry["shape"], np.frombuffer(raw[8 + size + begin:8 + size + end], NUMPY[entry["dtype"]])


def compare(wanted, path):
    """Compared bytes; every difference is an error."""
    seen = {name: (shape, value) for name, shape, value in read_rank_file(path)}
    if seen.keys() != wanted.keys():
        raise RuntimeError(f"{path.name}: only replayed {sorted(seen.keys() - wanted.keys())[:5]}, "
                           f"only in numpy {sorted(wanted.keys() - seen.keys())[:5]}")
    for name, (shape, value) in seen.items():
        mine = np.asarray(wanted[name], order="C")
        if list(mine.shape) != shape:
            raise RuntimeError(f"{path.name}: '{name}' is {shape}, numpy has {list(mine.shape)}")
        if name.endswith(".mixer.A"):
            off = np.abs(mine.view(np.int32).reshape(-1).astype(np.int64) - value.view(np.int32)).max()
            equal = off <= EXP_ULPS
        else:
            equal = mine.tobytes() == value.tobytes()
        if not equal:
            raise RuntimeError(f"{path.name}: '{name}' differs")
    return sum(value.nbytes for _, value in seen.values())


def small_size(program, model, folder, seed):
    """Replays a small copy in every layout; returns ranks and bytes compared."""
    config = dict(model.config, **model.small)
    rng = np.random.default_rng(seed)
    tensors = list(model.tensors(config))
    checkpoint = {name: random_tensor(rng, name, dtype, shape) for name, dtype, shape in tensors}
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    with open(folder / "model.safetensors", "wb") as f:
        write_header(f, tensors)
        for name, _, _ in tensors:
            f.write(checkpoint[name].tobytes())
    layouts = [(1, n) for n in model.tp] + [(n, 1) for n in model.ep] + list(model.both)
    loader = model.loader_small or model.loader
    ranks = compared = 0
    for ep, tp in layouts:
        trace, out = folder / f"ep{ep}-tp{tp}.lpt", folder / f"ep{ep}-tp{tp}"
        run(program, "record", "--checkpoint", folder, "--loader", model.loader_small or "auto", "--tp", tp,
            *(["--ep", ep] if ep > 1 else []), "--rest", model.rest, "-o", trace)
        check(program, trace)
        run(program, "replay", trace, "--rank", "all", "--checkpoint", folder, "--device", "cpu", "-o", out)
        for rank in range(max(ep, tp)):
            wanted = model_loaders.load(checkpoint, config, tp, ep, rank, loader)
            compared += compare(wanted, out / f"rank-{rank:05d}.safetensors")
            ranks += 1
    return ranks, compared


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--model", help="only models whose name contains this")
    parser.add_argument("--seed", type=int, default=20261130)
    a = parser.parse_args()
    program = a.build / "loadplan"
    models = [m for m in model_table.MODELS if a.model is None or a.model.lower() in m.name.lower()]

    with tempfile.TemporaryDirectory() as temporary:
        def one(numbered):
            number, model = numbered
            try:
                names = full_size(program, model, pathlib.Path(temporary) / f"full{number}")
                return model.name, names, *small_size(program, model, pathlib.Path(temporary) / f"small{number}", a.seed), ""
            except Exception as problem:  # one model must not hide the others
                return model.name, 0, 0, 0, f"{type(problem).__name__}: {problem}"

        with ThreadPoolExecutor(4) as pool:
            done = list(pool.map(one, enumerate(models)))
    for name, _, _, _, problem in done:
        if problem:
            print(f"{name}: {problem}")
    names, ranks, compared = (sum(row[i] for row in done) for i in (1, 2, 3))
    print(f"seed {a.seed}: {len(done)} models, {names:,} published names, {ranks} ranks, {compared:,} bytes equal to numpy")
    sys.exit(1 if not done or any(row[4] for row in done) else 0)


if __name__ == "__main__":
    main()
