#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Cold starts of public loaders and of loadplan on one GPU: the same files, the same state of the caches, every byte on
the device, from open to the last byte, set-up of pinned memory included, CUDA context and imports left out.

    cold_peers.py --tools DIR --seconds N [--layers L] [--experts E] [--scratch DIR] [--out FILE]

DIR holds loadplan, make_checkpoint, record_copies and bench_cold. The checkpoint is that of `make_checkpoint --kind
nvfp4`: one tensor for each expert's projection, block scales and scalars beside it.

  tensors  every tensor as it is in the checkpoint
  fused    copied into parameters of all experts, gate and up in one; destinations of the peers exist before the clock
           starts, loadplan's do not

States: tmpfs; cache (ext4, read twice before); disk (the page cache emptied before every process, a part of the files).
"buffered" is a loader with its setting for cached files. Every run is a process of its own, forked after the imports.
Results are compared by position-sensitive sums with loadplan's. A second and third round follow while time lasts, those
loaders first that the first round found fast. Needs root (to empty the cache), torch, and the loaders.
"""
import argparse
import glob
import json
import os
import re
import shutil
import subprocess
import sys
import time

PEERS = {
    "safetensors": ("safetensors", {}),
    "instanttensor": ("instanttensor", {}),
    "instanttensor, buffered": ("instanttensor", {"INSTANTTENSOR_BACKEND": "BUFFERED"}),
    "fastsafetensors": ("fastsafetensors", {}),
    "fastsafetensors, buffered": ("fastsafetensors", {"FASTSAFETENSORS_ODIRECT": "0"}),
    "runai": ("runai", {"RUNAI_STREAMER_CONCURRENCY": "16"}),
}
ROWS = (("cache", "tensors"), ("tmpfs", "fused"), ("disk", "tensors"), ("cache", "fused"), ("tmpfs", "tensors"))
EXPERT = re.compile(r"model\.layers\.(\d+)\.mlp\.experts\.(\d+)\.(gate|up|down)_proj\.(\w+)")
HIDDEN, INTERMEDIATE = 4096, 2048


def parameters(layers, experts):
    """Destinations of the mode `fused`, under the names that loadplan's moe loader gives them."""
    import torch

    def empty(*shape, dtype):
        return torch.empty(*shape, dtype=dtype, device="cuda:0")

    out = {}
    for layer in range(layers):
        p = f"layers.{layer}.mlp.experts."
        for side, rows, columns in (("w13", 2 * INTERMEDIATE, HIDDEN), ("w2", HIDDEN, INTERMEDIATE)):
            out[p + side + "_weight"] = empty(experts, rows, columns // 2, dtype=torch.uint8)
            out[p + side + "_weight_scale"] = empty(experts, rows, columns // 16, dtype=torch.float8_e4m3fn)
            scalars = (experts, 2) if side == "w13" else (experts,)
            for kind in ("weight_scale_2", "input_scale"):
                out[p + side + "_" + kind] = empty(*scalars, dtype=torch.float32)
    return out


def place(out, name):
    """The part of a parameter that a checkpoint tensor goes to; None: it is kept as it is."""
    m = EXPERT.fullmatch(name)
    if m is None:
        return None
    layer, expert, which, kind = int(m[1]), int(m[2]), m[3], m[4]
    p = f"layers.{layer}.mlp.experts."
    if which == "down":
        return out[f"{p}w2_{kind}"][expert]
    half = 0 if which == "gate" else 1
    whole = out[f"{p}w13_{kind}"][expert]
    return whole[half] if whole.dim() == 1 else whole[half * INTERMEDIATE : (half + 1) * INTERMEDIATE]


def tensors_of(loader, files, keep):
    """Names and tensors as a loader hands them out; keep: they outlive the next one."""
    if loader == "safetensors":
        from safetensors import safe_open

        for file in files:
            with safe_open(file, "pt", device="cuda:0") as f:
                for name in f.keys():
                    yield name, f.get_tensor(name)
    elif loader == "instanttensor":
        from instanttensor import safe_open

        with safe_open(files, framework="pt", device=0, copy=keep) as f:
            yield from f.tensors()
    elif loader == "fastsafetensors":
        from fastsafetensors import ParallelLoader

        yield from ParallelLoader(
            None, files, device="cuda:0", nogds=True, use_tqdm_on_load=False, borrowed_tensors=not keep,
            accumulate_resident=keep,
        ).iterate_weights()
    else:
        from runai_model_streamer import SafetensorsStreamer

        with SafetensorsStreamer() as f:
            f.stream_files(files)
            for name, tensor in f.get_tensors():
                yield name, tensor.to("cuda:0") if keep else tensor


def word_sum(tensor):
    """Of 8-byte word i times 2i + 1, the last word padded with zeros."""
    import torch

    data = tensor.contiguous().reshape(-1).view(torch.uint8)
    if data.numel() % 8:
        data = torch.nn.functional.pad(data, (0, 8 - data.numel() % 8))
    words = data.view(torch.int64) if data.data_ptr() % 8 == 0 else data.clone().view(torch.int64)
    total = 0
    for at in range(0, words.numel(), 1 << 26):
        part = words[at : at + (1 << 26)]
        index = torch.arange(at, at + part.numel(), device=part.device, dtype=torch.int64)
        total += int((part * (2 * index + 1)).sum().item())
    return format(total & 0xFFFFFFFFFFFFFFFF, "016x")


def load(loader, mode, files, layers, experts, sums):
    """One load, in a process that ends after it."""
    import torch

    torch.cuda.init()
    torch.zeros(1, device="cuda:0")
    out = parameters(layers, experts) if mode == "fused" else {}
    torch.cuda.synchronize()
    begin = time.monotonic()
    for name, tensor in tensors_of(loader, files, keep=mode == "tensors"):
        to = place(out, name) if mode == "fused" else None
        if to is None:
            out[name] = tensor.to("cuda:0", copy=True) if mode == "fused" else tensor
        else:
            to.copy_(tensor)
    torch.cuda.synchronize()
    seconds = time.monotonic() - begin
    count = sum(t.numel() * t.element_size() for t in out.values())
    return {"s": seconds, "bytes": count, "sums": {n: word_sum(t) for n, t in out.items()} if sums else {}}


def in_process(environment, function, *arguments):
    """What a forked child returns, or its error."""
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(ours)
        os.environ.update(environment)
        try:
            sys.stdout = open(os.devnull, "w")
            answer = function(*arguments)
        except BaseException as e:  # whatever a loader throws is its result
            answer = {"error": f"{type(e).__name__}: {e}"[:200]}
        with os.fdopen(theirs, "w") as f:
            json.dump(answer, f)
            f.flush()
        os._exit(0)
    os.close(theirs)
    with os.fdopen(ours) as f:
        text = f.read()
    os.waitpid(child, 0)
    return json.loads(text) if text else {"error": "the process died"}


class Bench:
    def __init__(self, a):
        self.a = a
        self.end = time.monotonic() + a.seconds
        self.out = open(a.out, "w") if a.out else None
        self.results = {}
        self.sums = {}
        self.is_cached = False

    def tool(self, name, *arguments):
        return subprocess.run([os.path.join(self.a.tools, name), *arguments], check=True, capture_output=True, text=True)

    def make(self, folder, layers, experts):
        self.tool("make_checkpoint", "-o", folder, "--kind", "nvfp4", "--layers", str(layers), "--hidden", str(HIDDEN),
                  "--intermediate", str(INTERMEDIATE), "--experts", str(experts), "--shards", "8")

    def record(self, folder, prefix):
        self.tool("record_copies", folder, f"{self.a.scratch}/{prefix}tensors.lpt")
        self.tool("loadplan", "record", "-q", "-f", "--checkpoint", folder, "--loader", "moe", "-o",
                  f"{self.a.scratch}/{prefix}fused.lpt")

    def prepare(self, state, files):
        if state == "disk":
            with open("/proc/sys/vm/drop_caches", "w") as f:
                f.write("3\n")
            self.is_cached = False
        elif state == "cache" and not self.is_cached:
            for _ in range(2):
                subprocess.run(["sh", "-c", "cat \"$@\" >/dev/null", "cat", *files], check=True)
            self.is_cached = True

    def ours(self, state, mode, folder, sums):
        trace = f"{self.a.scratch}/{'part.' if state == 'disk' else ''}{mode}.lpt"
        more = ["--sums"] if sums else []
        text = self.tool("bench_cold", trace, folder, "--starts", "1", *more).stdout
        first = re.search(r"^first +([\d.]+) s", text, re.M)
        needed = re.search(r"([\d.]+) GB needed", text)
        found = dict(re.findall(r"^sum (\S+) (\w+)$", text, re.M))
        return {"s": float(first[1]), "bytes": float(needed[1]) * 1e9, "sums": found,
                "link": float(re.search(r"link ([\d.]+)", text)[1])}

    def run(self, state, mode, loader, folder, files, sums=False):
        if time.monotonic() > self.end:
            return
        self.prepare(state, files)
        if loader == "loadplan":
            try:
                r = self.ours(state, mode, folder, sums)
            except subprocess.CalledProcessError as e:
                r = {"error": e.stderr[:200]}
        else:
            name, environment = PEERS[loader]
            r = in_process(environment, load, name, mode, files, self.a.layers, self.a.experts, sums)
        key = (state, mode, loader)
        line = {"state": state, "mode": mode, "loader": loader, **{k: v for k, v in r.items() if k != "sums"}}
        if r.get("sums"):
            if loader == "loadplan":
                self.sums[mode] = r["sums"]
            else:
                line["compared"] = sum(n in self.sums[mode] for n in r["sums"])
                line["wrong"] = sum(self.sums[mode].get(n, v) != v for n, v in r["sums"].items())
                line["bytes_of_all"] = r["bytes"]
        if "s" in r:
            self.results.setdefault(key, []).append(r["s"])
        print(json.dumps(line), flush=True)
        if self.out:
            print(json.dumps(line), file=self.out, flush=True)

    def round(self, number, folder):
        """One process for each row; after the first round only for those that it found fast."""
        for state, mode in ROWS:
            files = sorted(glob.glob(folder[state] + "/*.safetensors"))
            for loader in ("loadplan", *PEERS):
                slow = self.results.get((state, mode, loader), [0])
                if number > 0 and max(slow) > self.a.slow:
                    continue
                self.run(state, mode, loader, folder[state], files, sums=number == 0 and state == "tmpfs")

    def table(self, total):
        for (state, mode, loader), seconds in self.results.items():
            best = min(seconds)
            print(f"{state:6} {mode:8} {loader:26} {total[state] / best / 1e9:6.2f} GB/s  best of {len(seconds)}: "
                  + " ".join(f"{s:.3f}" for s in seconds))


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--tools", required=True)
    p.add_argument("--seconds", type=float, default=250)
    p.add_argument("--layers", type=int, default=2)
    p.add_argument("--experts", type=int, default=256)
    p.add_argument("--slow", type=float, default=1.0, help="seconds beyond which one round is enough")
    p.add_argument("--scratch", default="/tmp/cold_peers")
    p.add_argument("--memory", default="/dev/shm/cold_peers")
    p.add_argument("--out")
    a = p.parse_args()
    os.makedirs(a.scratch, exist_ok=True)
    import torch  # noqa: F401  once for all children; the context is theirs

    b = Bench(a)
    total = {}
    folder = {"cache": a.scratch + "/ck", "tmpfs": a.memory, "disk": a.scratch + "/part"}
    try:
        b.make(folder["disk"], 1, min(a.experts, 64))
        b.make(folder["cache"], a.layers, a.experts)
        writing = subprocess.Popen(["sync"])
        b.make(folder["tmpfs"], a.layers, a.experts)
        b.record(folder["cache"], "")
        b.record(folder["disk"], "part.")
        for _ in range(2):
            subprocess.run(["sh", "-c", f"cat {a.memory}/*.safetensors >/dev/null"], check=True)
        writing.wait()
        total = {s: sum(os.path.getsize(f) for f in glob.glob(folder[s] + "/*.safetensors")) for s in folder}
        for number in range(3):
            b.round(number, folder)
    finally:
        b.table(total)
        shutil.rmtree(a.scratch, ignore_errors=True)
        shutil.rmtree(a.memory, ignore_errors=True)


main()
