# SPDX-License-Identifier: Apache-2.0
"""Random programs of view, move and write operations, run twice: for real, and recorded then replayed. Bytes must be equal.

python torch_programs.py [--count 10000] [--seed N] [--only INDEX]
"""
import argparse
import os
import random
import sys
import tempfile
import time
import warnings

import torch
from safetensors.torch import save_file

import loadplan

DTYPES = (torch.float32, torch.bfloat16, torch.int8, torch.uint8, torch.int32, torch.float16, torch.float8_e4m3fn)
SHAPES = ((), (1,), (5,), (8,), (4, 6), (3, 1, 4), (2, 3, 4), (8, 8), (2, 2, 2, 3), (16, 3), (0, 4), (12,))


def random_tensor(rng, dtype, shape):
    seed = torch.Generator().manual_seed(rng.getrandbits(40))
    if dtype.is_floating_point:
        return torch.randn(shape, generator=seed).mul(8).to(dtype)
    return torch.randint(-100 if dtype.is_signed else 0, 100, shape, generator=seed).to(dtype)


def view(rng, t):
    """A random view of t, or None."""
    n, d = t.dim(), rng.randrange(max(t.dim(), 1))
    kind = rng.randrange(19)
    if kind == 0 and n:
        start = rng.randint(0, t.size(d))
        return t.narrow(d, start, rng.randint(0, t.size(d) - start))
    if kind == 1 and n and t.size(d):
        return t.select(d, rng.randrange(t.size(d)))
    if kind == 2 and n:
        return t[(slice(None),) * d + (slice(rng.randint(0, t.size(d)), None, rng.randint(1, 3)),)]
    if kind == 3 and n > 1:
        return t.transpose(d, rng.randrange(n))
    if kind == 4 and n > 1:
        return t.permute(rng.sample(range(n), n))
    if kind == 5:
        return t.unsqueeze(rng.randint(0, n))
    if kind == 6:
        return t.squeeze()
    if kind == 7 and n and t.size(d):
        return rng.choice(t.unbind(d))
    if kind == 8 and n and t.size(d):
        return rng.choice(t.chunk(rng.randint(1, 3), d))
    if kind == 9 and n and t.size(d):
        return rng.choice(t.split(rng.randint(1, t.size(d)), d))
    if kind == 10 and n > 1:
        return t.diagonal(rng.randint(-1, 1), *rng.sample(range(n), 2))
    if kind == 11 and n > 1:
        return t.movedim(d, rng.randrange(n))
    if kind == 12 and n == 2:
        return t.T if rng.random() < 0.5 else t.t()
    if kind == 13 and n and t.size(d) % 2 == 0 and t.size(d):
        return t.unflatten(d, (2, t.size(d) // 2))
    if kind == 14 and t.is_contiguous() and t.numel():
        return t.view(-1)
    if kind == 15 and n and t.stride(-1) == 1 and t.is_contiguous() and t.size(-1) % 4 == 0 and t.storage_offset() % 4 == 0:
        return t.view({1: torch.int32, 2: torch.int32, 4: torch.uint8}[t.dtype.itemsize])
    if kind == 16 and t.numel() > 2 and t.is_contiguous():
        return t.as_strided((2, t.numel() // 2), (1, 2), t.storage_offset())
    if kind == 17:
        return t.detach() if rng.random() < 0.5 else t.data
    return None


def move(rng, t):
    """t, or a random tensor that has its bytes."""
    n, d = t.dim(), rng.randrange(max(t.dim(), 1))
    kind = rng.randrange(22)
    if kind == 0:
        return t.clone()
    if kind == 1:
        return t.contiguous()
    if kind == 2:
        return t.reshape(-1)
    if kind == 3 and n and t.numel() < 200:
        return torch.cat([t, t.narrow(d, 0, t.size(d) // 2)], d)
    if kind == 4 and t.numel() < 200:
        return torch.stack([t, t], rng.randint(0, n))
    if kind == 5 and n:
        return t.flip(d)
    if kind == 6 and n:
        return t.roll(rng.randint(-3, 3), d)
    if kind == 7 and n and t.size(d):
        return t.index_select(d, torch.tensor([rng.randrange(t.size(d)) for _ in range(rng.randint(1, 4))]))
    if kind == 8 and n and t.size(0):
        return t[torch.tensor([rng.random() < 0.5 for _ in range(t.size(0))])]
    if kind == 9 and n and t.size(0):
        return t[[rng.randrange(t.size(0)) for _ in range(2)]]
    if kind == 10 and n and t.numel() < 200:
        return t.repeat([rng.randint(1, 2) for _ in range(n)])
    if kind == 11 and n and t.numel() < 200:
        return t.repeat_interleave(2, d)
    if kind == 12 and n and t.numel() < 200:
        return torch.nn.functional.pad(t, (rng.randint(0, 2), rng.randint(0, 2)), value=rng.choice((0, 1)))
    if kind == 13 and t.numel() < 200:
        return t.expand(rng.randint(1, 3), *t.shape)
    if kind == 14 and n and t.size(d):
        shape = [min(2, s) for s in t.shape]
        chosen = [rng.randrange(t.size(d)) for _ in range(torch.Size(shape).numel())]
        return t.gather(d, torch.tensor(chosen, dtype=torch.int64).reshape(shape))
    if kind == 15 and t.numel() and t.numel() < 200:
        buffer = torch.zeros(t.shape, dtype=t.dtype)
        buffer.copy_(t)
        return buffer
    if kind == 16 and n and t.size(d) > 1:
        buffer = torch.empty(t.shape, dtype=t.dtype)
        buffer.zero_()
        buffer.narrow(d, 0, 1).copy_(t.narrow(d, 1, 1))
        return buffer
    if kind == 17 and n > 1:
        return t.transpose(d, 0).contiguous()
    if kind == 18 and t.numel():
        return t.masked_select(torch.tensor([rng.random() < 0.5 for _ in range(t.numel())]).reshape(t.shape))
    if kind == 19:
        return t.to(t.dtype)
    return t


def fit(rng, t, shape):
    """t made to a shape: the first elements, or None."""
    n = torch.Size(shape).numel()
    if t.numel() >= n and (t.numel() == n or rng.random() < 0.8):
        return t.reshape(-1)[:n].reshape(shape)
    if t.numel() == 1:
        return t.reshape(()) if rng.random() < 0.5 else t.reshape(()).expand(shape)
    return None


def write(rng, dst, t):
    src = fit(rng, t, dst.shape)
    if src is None:
        return
    if src.dtype != dst.dtype:
        if src.dtype.itemsize == dst.dtype.itemsize:
            src = src.contiguous().view(dst.dtype) if src.dim() else src.view(dst.dtype)
        else:
            return
    kind = rng.randrange(9)
    if kind == 0 and dst.dim() and dst.size(0) > 0 and src.shape == dst.shape:
        dst[: dst.size(0)] = src
    elif kind == 1 and dst.dim() and dst.size(0) > 1 and src.shape == dst.shape:
        order = torch.tensor(rng.sample(range(dst.size(0)), dst.size(0)))
        dst.index_copy_(0, order, src)
    elif kind == 2 and dst.dim() and dst.size(0) > 1 and src.shape == dst.shape:
        dst[torch.tensor(rng.sample(range(dst.size(0)), dst.size(0)))] = src
    elif kind == 3:
        torch._foreach_copy_([dst], [src.expand(dst.shape)])
    elif kind == 4:
        dst.fill_(rng.randint(0, 3))
    elif kind == 5:
        dst.zero_()
    elif kind == 6 and dst.dim() and dst.is_contiguous():
        mask = torch.tensor([rng.random() < 0.5 for _ in range(dst.numel())], dtype=torch.bool)
        dst.masked_fill_(mask.reshape(dst.shape), 1)
    else:
        dst.copy_(src)


def cast(rng, dst, t):
    """Casts are compared for what the source holds: plain numbers."""
    src = fit(rng, t, dst.shape)
    if src is not None and src.dtype.is_floating_point and dst.dtype.is_floating_point and dst.dtype.itemsize > 1:
        dst.copy_(src if rng.random() < 0.5 else src.to(dst.dtype))


def program(seed, weights, dests, trail=None):
    rng, given = random.Random(seed), []
    for name, source in weights:
        given.append(source)
        for _ in range(rng.randint(1, 3)):
            t, pristine = source, True
            for _ in range(rng.randint(0, 4)):
                step = view if rng.random() < 0.6 else move
                made = step(rng, t)
                if made is not None:
                    pristine = pristine and made.dtype == t.dtype
                    t = made
            dst = rng.choice(given) if rng.random() < 0.15 else dests[rng.choice(sorted(dests))]  # some write over what was read
            for _ in range(rng.randint(0, 3)):
                made = view(rng, dst)
                if made is not None and made.dtype == dst.dtype:
                    dst = made
            if trail is not None:
                trail.append(f"{name} {tuple(t.shape)} {t.dtype} -> {tuple(dst.shape)} {dst.dtype}")
            if pristine and rng.random() < 0.3:
                cast(rng, dst, t)
            else:
                write(rng, dst, t)


def same(a, b):
    return a.dtype == b.dtype and a.shape == b.shape and bool(
        (a.contiguous().reshape(-1).view(torch.uint8) == b.contiguous().reshape(-1).view(torch.uint8)).all())


def one(seed, folder):
    """True when it was recorded whole, False when something was refused, None when torch itself cannot run it."""
    rng = random.Random(seed)
    sources = {f"s{i}": random_tensor(rng, rng.choice(DTYPES), rng.choice(SHAPES)) for i in range(rng.randint(1, 3))}
    initial = {f"d{i}": random_tensor(rng, rng.choice(DTYPES), rng.choice(SHAPES)) for i in range(rng.randint(1, 3))}
    path = os.path.join(folder, "model.safetensors")
    save_file(sources, path)
    real = {name: t.clone() for name, t in initial.items()}
    try:
        program(seed, [(name, t.clone()) for name, t in sorted(sources.items())], real)
    except (NotImplementedError, RuntimeError):  # torch lacks some operations for FP8, and views of some strides
        return None
    blank = {name: t.clone() for name, t in initial.items()}
    trace = loadplan.record(lambda weights: program(seed, weights, blank), path, blank)
    refused = trace.refusals
    if refused:
        return False
    for name, t in initial.items():
        assert same(blank[name], t), f"recording changed {name}"
    loadplan.replay(trace, blank, sources)
    for name, t in real.items():
        assert same(t, blank[name]), f"{name} differs"
    return True


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=10000)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--only", type=int, default=None)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    seed = random.SystemRandom().randrange(1 << 40) if options.seed is None else options.seed
    print(f"seed {seed}")
    torch.set_grad_enabled(False)
    torch.set_num_threads(1)
    refused, skipped, failed, began = 0, 0, 0, time.monotonic()
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as folder:
        for i in range(options.count) if options.only is None else [options.only]:
            if i and i % 10000 == 0:
                print(f"{i} programs, {failed} failed, {time.monotonic() - began:.0f} s", flush=True)
            try:
                result = one(seed + i, folder)
                refused += result is False
                skipped += result is None
            except Exception as error:  # noqa: BLE001: every failure is a finding
                failed += 1
                print(f"program {i} (--seed {seed} --only {i}): {type(error).__name__}: {error}")
                if options.only is not None:
                    raise
                if failed == 10:
                    break
    print(f"{options.count} programs, {refused} with refusals, {skipped} that torch cannot run, {failed} failed, "
          f"{time.monotonic() - began:.1f} s")
    sys.exit(failed > 0 or refused > options.count // 50 + 1 or skipped > options.count // 5 + 1)


if __name__ == "__main__":
    main()
