#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The direct reload of one NVFP4 MoE layer as a torch loader does it: for each checkpoint tensor the views of the
kernel layout and one copy_ into the live parameter, sources on the same GPU. Beside it one copy of as many bytes.

    bench_torch_loader.py [--experts 32] [--hidden 4096] [--intermediate 2048] [--json]

The shapes are those of `bench_session` with a trace of the same layer: weights [rows, bytes] into a fused, interleaved
parameter, block scales as words into the layout of tensor cores, scalars into their slots.
"""
import argparse
import json
import statistics
import sys
import time


def main():
    try:
        import torch
    except ImportError:
        print("SKIPPED: no torch")
        return 77
    if not torch.cuda.is_available():
        print("SKIPPED: no GPU")
        return 77
    parser = argparse.ArgumentParser()
    parser.add_argument("--experts", type=int, default=32)
    parser.add_argument("--hidden", type=int, default=4096)
    parser.add_argument("--intermediate", type=int, default=2048)
    parser.add_argument("--runs", type=int, default=9)
    parser.add_argument("--json", action="store_true")
    o = parser.parse_args()
    e, h, i = o.experts, o.hidden, o.intermediate
    gpu = torch.device("cuda")
    names = {"gate": (i, h), "up": (i, h), "down": (h, i)}

    def random(*shape):
        return torch.randint(0, 255, shape, dtype=torch.uint8, device=gpu)

    source = [{n: (random(r, c // 2), random(r, c // 16), torch.ones((), device=gpu), torch.ones((), device=gpu))
               for n, (r, c) in names.items()} for _ in range(e)]
    w13 = torch.zeros(e, 2 * i, h // 2, dtype=torch.uint8, device=gpu)
    w2 = torch.zeros(e, h, i // 2, dtype=torch.uint8, device=gpu)
    # words of four scales, M-major: [expert, K / 64, M]
    s13 = torch.zeros(e, h // 64, 2 * i, dtype=torch.int32, device=gpu)
    s2 = torch.zeros(e, i // 64, h, dtype=torch.int32, device=gpu)
    scale2 = torch.zeros(3, e, device=gpu)
    input_scale = torch.zeros(e, device=gpu)

    def load():
        for k in range(e):
            for n, (weight, scale, second, first) in source[k].items():
                if n == "down":
                    w2[k].copy_(weight)
                    s2[k].copy_(scale.view(torch.int32).t())
                    scale2[2, k].copy_(second)
                    input_scale[k].copy_(first)
                    continue
                half = 0 if n == "gate" else 1
                # rows of gate and up in turns of eight
                w13[k].view(-1, 2, 8, h // 2)[:, half].copy_(weight.view(-1, 8, h // 2))
                s13[k].view(h // 64, -1, 2, 8)[:, :, half].copy_(scale.view(torch.int32).t().view(h // 64, -1, 8))
                scale2[half, k].copy_(second)

    size = sum(t.numel() * t.element_size() for x in source for ts in x.values() for t in ts[:3]) + 4 * e
    flat = torch.empty(size, dtype=torch.uint8, device=gpu)
    flat_to = torch.empty_like(flat)

    def timed(run):
        times = []
        for n in range(o.runs + 2):
            torch.cuda.synchronize()
            start = time.perf_counter()
            run()
            torch.cuda.synchronize()
            if n >= 2:
                times.append((time.perf_counter() - start) * 1e3)
        return statistics.median(times)

    ms, copy = timed(load), timed(lambda: flat_to.copy_(flat))
    row = {"case": f"torch loader, E={e} H={h} I={i}", "tensors": e * 10, "bytes": size, "load_ms": round(ms, 3),
           "copy_ms": round(copy, 3), "times_copy": round(ms / copy, 2), "torch": torch.__version__}
    print(json.dumps(row) if o.json else "  ".join(f"{k} {v}" for k, v in row.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
