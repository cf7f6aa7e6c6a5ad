# SPDX-License-Identifier: Apache-2.0
"""Random computations on views of two checkpoint tensors, run for real, and recorded then replayed. Bytes must be equal.

python torch_computations.py [--count 2000] [--seed N] [--only INDEX]

Square roots are left out, as PyTorch on a CPU does not round all of them as IEEE asks; the zero that a minimum or maximum
of both zeros gives is not compared.
"""
import random

import torch
from safetensors.torch import save_file

import loadplan
from random_runs import run_all

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
SHAPES = ((4, 6), (4, 6), (4, 1), (6,), (), (3, 4, 6), (1, 6), (5,))
NUMBERS = (0.1, 2, -3, 0.5, 1 / 3, 448.0, 1e-12, 7, 127.0, 1e10, -0.0, 0, 3)
SPECIAL = (0.0, -0.0, 1.0, float("inf"), -float("inf"), float("nan"), 6e-8, 1e-40, 65504.0, 3.3e38, -1.5, 0.1)


def random_tensor(rng, dtype, shape):
    made = torch.randn(shape, generator=torch.Generator().manual_seed(rng.getrandbits(40))) * 10 ** rng.uniform(-3, 3)
    if rng.random() < 0.3:
        line = made.view(-1)
        for i in range(0, line.numel(), 3):
            line[i] = rng.choice(SPECIAL)
    return made.to(dtype)


def view(rng, t):
    kind, n = rng.randrange(7), t.dim()
    if kind == 0 and n > 1:
        return t.permute(rng.sample(range(n), n))
    if kind == 1 and n and t.size(0) > 1:
        return t[::2]
    if kind == 2 and n:
        return t.unsqueeze(rng.randint(0, n))
    if kind == 3 and n and t.size(-1) > 2:
        return t[..., 1:]
    if kind == 4 and n > 1:
        return t.transpose(0, 1)
    return t.clone() if kind == 5 else t


def computed(rng, tensors):
    """One computation on random views of random tensors."""
    x, y, number = view(rng, rng.choice(tensors)), view(rng, rng.choice(tensors)), rng.choice(NUMBERS)
    dim = rng.randrange(max(x.dim(), 1))
    choices = [
        lambda: x + number, lambda: x * number, lambda: x / number if number else x, lambda: number - x, lambda: -x,
        lambda: x.abs(), lambda: x.reciprocal(), lambda: x.to(rng.choice(DTYPES)), lambda: x * y, lambda: x + y, lambda: x - y,
        lambda: x / y, lambda: torch.maximum(x, y), lambda: torch.minimum(x, y), lambda: x.max(), lambda: x.min(),
        lambda: torch.where(x > number, x, y), lambda: torch.where(x == y, x, y),
        lambda: x.clamp(-abs(number) - 1, abs(number) + 1), lambda: x ** 2, lambda: x.clone().mul_(number), lambda: x.float() * y,
        lambda: number / x]
    if x.dim():
        choices += [lambda: x.amax(dim, keepdim=rng.random() < 0.7), lambda: x.contiguous(), lambda: x.max(dim).values,
                    lambda: torch.stack([x, x * number], dim), lambda: torch.cat([x, x.flip(dim)], dim)]
    return rng.choice(choices)()


def program(seed, steps, tensors):
    rng, held = random.Random(seed), list(tensors)
    for _ in range(steps):
        held.append(computed(rng, held))
    return held[-1]


def same(a, b):
    """To the byte, but for NaNs and the signs of zeros."""
    return bool(((a == b) | (a.isnan() & b.isnan())).all())


def one(rng, path):
    """"equal", "refused" or "impossible"; raises when bytes differ."""
    sources = {name: random_tensor(rng, rng.choice(DTYPES), rng.choice(SHAPES)) for name in "vw"}
    save_file(sources, path)
    seed, steps = rng.getrandbits(60), rng.randint(1, 4)
    try:
        result = program(seed, steps, [sources[name].clone() for name in "vw"])
    except RuntimeError:
        return "impossible"  # shapes that do not fit
    wanted = torch.zeros(result.shape, dtype=rng.choice((result.dtype, *DTYPES))).copy_(result)
    got = {"d": torch.nn.Parameter(torch.full_like(wanted, 9.0), requires_grad=False)}
    with loadplan.capture(path, got) as recording:
        stand_ins = dict(recording.weights())
        recorded = program(seed, steps, [stand_ins[name] for name in "vw"])
        assert (recorded.shape, recorded.dtype) == (result.shape, result.dtype)
        got["d"].copy_(recorded)
    if recording.trace.refusals or recording.trace.unrecorded:
        return "refused"
    with loadplan.Session(recording.trace, got, "direct") as session:
        session.push_checkpoint(path)
    if not same(got["d"].data, wanted):
        raise AssertionError([row["nodes"] for row in recording.trace.query("SELECT nodes FROM v_derives")])
    return "equal"


if __name__ == "__main__":
    run_all(one)
