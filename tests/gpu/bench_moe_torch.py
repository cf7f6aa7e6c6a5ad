#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times what a PyTorch user has for the same layer: BF16 matrix products with SwiGLU between, by one grouped product or
by one product an expert, in a CUDA graph. Tokens are sorted by expert beforehand and not combined afterwards, so that
gathering and combining cost nothing here. The L2 cache is flushed by reads before each launch, as in bench_megamoe.

    bench_moe_torch.py [flash,pro] [8,64,512,2048,8192] [launches]
"""
import statistics
import sys

import torch

MODELS = {"flash": (32, 4096, 2048, 6), "pro": (48, 7168, 3072, 6)}


def routes(experts, top_k, tokens):
    generator = torch.Generator().manual_seed(tokens)
    ids = torch.stack([torch.randperm(experts, generator=generator)[:top_k] for _ in range(tokens)])
    return torch.bincount(ids.flatten(), minlength=experts)


def swiglu(gate_up):
    gate, up = gate_up.chunk(2, -1)
    return torch.nn.functional.silu(gate) * up


def grouped(x, w13, w2, ends):
    hidden = swiglu(torch._grouped_mm(x, w13.transpose(1, 2), offs=ends))
    return torch._grouped_mm(hidden, w2.transpose(1, 2), offs=ends)


def looped(x, w13, w2, counts):
    out, at = [], 0
    for expert, count in enumerate(counts):
        if count:
            part = x[at : at + count]
            out.append(swiglu(part @ w13[expert].T) @ w2[expert].T)
        at += count
    return torch.cat(out)


def timed(work, flush, launches):
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(2):
            work()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    times = []
    for _ in range(launches + 1):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        flush.max()
        start.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end) * 1e3)
    return statistics.median(times[1:])


def main():
    names = sys.argv[1].split(",") if len(sys.argv) > 1 else list(MODELS)
    token_counts = [int(t) for t in sys.argv[2].split(",")] if len(sys.argv) > 2 else [8, 64, 512, 2048, 8192]
    launches = int(sys.argv[3]) if len(sys.argv) > 3 else 9
    if not torch.cuda.is_available():
        print("SKIPPED: no GPU")
        sys.exit(77)
    print(f"torch {torch.__version__}, {torch.cuda.get_device_name()}")
    flush = torch.ones(1 << 27, dtype=torch.int32, device="cuda")
    for name in names:
        experts, hidden, inner, top_k = MODELS[name]
        w13 = torch.empty(experts, 2 * inner, hidden, dtype=torch.bfloat16, device="cuda").normal_(0, 0.02)
        w2 = torch.empty(experts, hidden, inner, dtype=torch.bfloat16, device="cuda").normal_(0, 0.02)
        for tokens in token_counts:
            counts = routes(experts, top_k, tokens)
            x = torch.empty(int(counts.sum()), hidden, dtype=torch.bfloat16, device="cuda").normal_()
            ends = counts.cumsum(0).to(torch.int32).cuda()
            results = {}
            for how, work in (
                ("grouped", lambda: grouped(x, w13, w2, ends)),
                ("looped", lambda: looped(x, w13, w2, counts.tolist())),
            ):
                try:
                    results[how] = timed(work, flush, launches)
                except (RuntimeError, AttributeError) as error:
                    print(f"{how}: {str(error).splitlines()[0]}")
            best = min(results.values())
            flop = 6 * int(counts.sum()) * hidden * inner
            shown = ", ".join(f"{how} {us:.1f} us" for how, us in results.items())
            print(f"bf16  {name:5} {tokens:5} tokens | {shown} | best {best:.1f} us {flop / best * 1e-6:.0f} TFLOP/s", flush=True)


if __name__ == "__main__":
    main()
