#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Cold starts of public loaders and of loadplan on one GPU: the same files, the same state of the caches, every byte on
the device, from open to the last byte, set-up of pinned memory included, CUDA context and imports left out.

    cold_peers.py --tools DIR --seconds N [--layers L] [--experts E] [--part E] [--states LIST] [--scratch DIR] [--out FILE]

DIR holds loadplan, make_checkpoint, record_copies and bench_cold. The checkpoint is that of `make_checkpoint --kind
nvfp4`: one tensor for each expert's projection, block scales and scalars beside it; on the disk one layer of --part
experts.

  tensors  every tensor as it is in the checkpoint
  fused    copied into parameters of all experts, gate and up in one; destinations of the peers exist before the clock
           starts, loadplan's do not

States: tmpfs; cache (ext4, read twice before); disk (the page cache emptied before every process; each loader has a copy
of the files of its own, since the host of a virtual disk keeps what was read before). "buffered" is a loader with its
setting for cached files. Every run is a process of its own, forked after the imports. In the first round results are
compared by position-sensitive sums with loadplan's. Two more rounds follow while time lasts, in other orders; what took
longer than --slow seconds from memory is not run again. Needs root (to empty the cache), torch, and the loaders.
"""
import argparse
import glob
import json
import os
import re
import shutil
import signal
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
ROWS = (("cache", "tensors"), ("cache", "fused"), ("tmpfs", "tensors"), ("tmpfs", "fused"), ("disk", "tensors"), ("disk", "fused"))
DISK = ("loadplan", "safetensors", "instanttensor", "fastsafetensors", "runai")
ROUNDS = 3
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


def entry_of(loader):
    """What a loader is used by, imported."""
    if loader == "safetensors":
        from safetensors import safe_open as entry
    elif loader == "instanttensor":
        from instanttensor import safe_open as entry
    elif loader == "fastsafetensors":
        from fastsafetensors import ParallelLoader as entry
    else:
        from runai_model_streamer import SafetensorsStreamer as entry
    return entry


def tensors_of(loader, entry, files, keep):
    """Names and tensors as a loader hands them out; keep: they outlive the next one."""
    if loader == "safetensors":
        for file in files:
            with entry(file, "pt", device="cuda:0") as f:
                for name in f.keys():
                    yield name, f.get_tensor(name)
    elif loader == "instanttensor":
        with entry(files, framework="pt", device=0, copy=keep) as f:
            yield from f.tensors()
    elif loader == "fastsafetensors":
        yield from entry(
            None, files, device="cuda:0", nogds=True, use_tqdm_on_load=False, borrowed_tensors=not keep,
            accumulate_resident=keep,
        ).iterate_weights()
    else:
        with entry() as f:
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

    entry = entry_of(loader)
    torch.cuda.init()
    torch.zeros(1, device="cuda:0")
    out = parameters(layers, experts) if mode == "fused" else {}
    torch.cuda.synchronize()
    begin = time.monotonic()
    for name, tensor in tensors_of(loader, entry, files, keep=mode == "tensors"):
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
        self.rows = [r for r in ROWS if r[0] in a.states.split(",")]
        self.out = open(a.out, "w") if a.out else None
        self.seconds = {}
        self.sums = {}
        self.wrong = 0

    def tool(self, name, *arguments):
        return subprocess.run([os.path.join(self.a.tools, name), *arguments], check=True, capture_output=True, text=True)

    def make(self, folder, layers, experts):
        self.tool("make_checkpoint", "-o", folder, "--kind", "nvfp4", "--layers", str(layers), "--hidden", str(HIDDEN),
                  "--intermediate", str(INTERMEDIATE), "--experts", str(experts), "--shards", "8")

    def folder(self, state, loader):
        if state == "disk":
            return f"{self.a.scratch}/disk.{loader}"
        return self.a.memory if state == "tmpfs" else self.a.scratch + "/ck"

    def files(self, state, loader):
        return sorted(glob.glob(self.folder(state, loader) + "/*.safetensors"))

    def record(self, folder, prefix):
        self.tool("record_copies", folder, f"{self.a.scratch}/{prefix}tensors.lpt")
        self.tool("loadplan", "record", "-q", "-f", "--checkpoint", folder, "--loader", "moe", "-o",
                  f"{self.a.scratch}/{prefix}fused.lpt")

    def read(self, files):
        """Through the page cache, all files at once, twice: what was just written is slower at first."""
        for _ in range(2):
            subprocess.run(["xargs", "-n", "1", "-P", "8", "cat"], input="\n".join(files), text=True, check=True,
                           stdout=subprocess.DEVNULL)

    def set_up(self):
        states = {state for state, _ in self.rows}
        for loader in DISK if "disk" in states else ():
            self.make(self.folder("disk", loader), 1, self.a.part)
        whole = sorted(states - {"disk"})
        for state in whole:
            self.make(self.folder(state, None), self.a.layers, self.a.experts)
        if whole:
            self.record(self.folder(whole[0], None), "")
        if "disk" in states:
            self.record(self.folder("disk", "loadplan"), "part.")
        subprocess.run(["sync"], check=True)
        if "tmpfs" in states:
            self.read(self.files("tmpfs", None))

    def ours(self, state, mode, sums):
        trace = f"{self.a.scratch}/{'part.' if state == 'disk' else ''}{mode}.lpt"
        more = ["--sums"] if sums else []
        text = self.tool("bench_cold", trace, self.folder(state, "loadplan"), "--starts", "1", *more).stdout
        first = re.search(r"^first +([\d.]+) s", text, re.M)
        needed = re.search(r"([\d.]+) GB needed", text)
        found = dict(re.findall(r"^sum (\S+) (\w+)$", text, re.M))
        return {"s": float(first[1]), "bytes": float(needed[1]) * 1e9, "sums": found,
                "link": float(re.search(r"link ([\d.]+)", text)[1])}

    def peer(self, state, mode, loader, sums):
        name, environment = PEERS[loader]
        shape = (1, self.a.part) if state == "disk" else (self.a.layers, self.a.experts)
        return in_process(environment, load, name, mode, self.files(state, loader), *shape, sums)

    def compare(self, state, mode, loader, sums, line):
        key = (state == "disk", mode)
        if loader == "loadplan":
            self.sums[key] = sums
            return
        known = self.sums.get(key, {})
        line["compared"] = sum(n in known for n in sums)
        line["wrong"] = sum(known.get(n, v) != v for n, v in sums.items())
        self.wrong += line["wrong"] + (line["compared"] == 0)

    def run(self, state, mode, loader, sums):
        if time.monotonic() > self.end:
            return
        if state == "disk":
            with open("/proc/sys/vm/drop_caches", "w") as f:
                f.write("3\n")
        try:
            r = self.ours(state, mode, sums) if loader == "loadplan" else self.peer(state, mode, loader, sums)
        except subprocess.CalledProcessError as e:
            r = {"error": e.stderr[:200]}
        line = {"state": state, "mode": mode, "loader": loader, **{k: v for k, v in r.items() if k != "sums"}}
        if r.get("sums"):
            self.compare(state, mode, loader, r["sums"], line)
        if "s" in r:
            self.seconds.setdefault((state, mode, loader), []).append(r["s"])
        text = json.dumps(line)
        if self.out:
            print(text, file=self.out, flush=True)
        if "error" in r or line.get("wrong") or self.a.verbose:
            print(text, flush=True)

    def round(self, number):
        """One process for each row and loader; loadplan first where results are compared, else in turn."""
        for state, mode in self.rows:
            if mode == ROWS[0][1] and state == "cache":
                self.read(self.files("cache", None))
            loaders = list(DISK) if state == "disk" else ["loadplan", *PEERS]
            for loader in loaders[number:] + loaders[:number]:
                if state != "disk" and max(self.seconds.get((state, mode, loader), [0])) > self.a.slow:
                    continue
                self.run(state, mode, loader, sums=number == 0 and (mode == "fused" or state == "tmpfs"))

    def table(self):
        for state, mode in self.rows:
            row = {l: s for (st, m, l), s in self.seconds.items() if (st, m) == (state, mode)}
            if "loadplan" not in row or len(row) == 1:
                continue
            total = sum(os.path.getsize(f) for f in self.files(state, "loadplan"))
            for loader, seconds in sorted(row.items(), key=lambda x: min(x[1])):
                print(f"{state:6} {mode:8} {loader:26} {total / min(seconds) / 1e9:6.2f} GB/s  "
                      + " ".join(f"{s:.3f}" for s in seconds))
            ours = row.pop("loadplan")
            best = min(row.values(), key=min)
            verdict = "first" if min(ours) < min(best) else "within the spread" if min(ours) <= max(best) else "BEHIND"
            print(f"{state:6} {mode:8} loadplan is {verdict}: {min(ours):.3f} s, the best of others {min(best):.3f}")
        print(f"{self.wrong} results differ")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--tools", required=True)
    p.add_argument("--seconds", type=float, default=300)
    p.add_argument("--layers", type=int, default=2)
    p.add_argument("--experts", type=int, default=256)
    p.add_argument("--part", type=int, default=64)
    p.add_argument("--slow", type=float, default=1.0)
    p.add_argument("--states", default="cache,tmpfs,disk")
    p.add_argument("--scratch", default="/tmp/cold_peers")
    p.add_argument("--memory", default="/dev/shm/cold_peers")
    p.add_argument("--verbose", action="store_true", help="print every run")
    p.add_argument("--out", help="every run as a line of JSON")
    a = p.parse_args()
    os.makedirs(a.scratch, exist_ok=True)
    import torch  # noqa: F401  once for all children; the context is theirs

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # the table is printed, and the files removed
    b = Bench(a)
    try:
        b.set_up()
        for number in range(ROUNDS):
            b.round(number)
    finally:
        b.table()
        shutil.rmtree(a.scratch, ignore_errors=True)
        shutil.rmtree(a.memory, ignore_errors=True)
    sys.exit(1 if b.wrong else 0)


main()
