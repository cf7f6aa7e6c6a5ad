# SPDX-License-Identifier: Apache-2.0
"""Random programs that write two destinations again and again: copies, computations in place, fills, from checkpoint tensors
and from one another. Run for real, and recorded then replayed in any order. Bytes must be equal.

python torch_rewrites.py [--count 2000] [--seed N] [--only INDEX]
"""
import random

import torch
from safetensors.torch import save_file

import loadplan
from random_runs import run_all


class Undefined(Exception):
    """What PyTorch itself refuses to write."""


def part(rng, t):
    kind = rng.randrange(5)
    if t.dim() == 0 or kind == 0:
        return t
    first = rng.randrange(t.size(0))
    if kind == 1:
        return t[first:rng.randint(first + 1, t.size(0))]
    if kind == 2 and t.dim() > 1:
        first = rng.randrange(t.size(1))
        return t[:, first:rng.randint(first + 1, t.size(1))]
    return t[::2] if kind == 3 else t.t() if t.dim() == 2 else t


def value(rng, tensors):
    x, number = part(rng, rng.choice(tensors)), rng.choice((2.0, 0.5, -1.0, 3.0))
    choices = [lambda: x, lambda: x, lambda: x * number, lambda: x + number, lambda: x.max(), lambda: x.clone(), lambda: -x]
    if x.dim():
        choices += [lambda: x.abs().amax(0, keepdim=True), lambda: torch.cat([x * number, x])[:x.size(0)]]
    return rng.choice(choices)()


def program(seed, steps, sources, held):
    """held: the destinations by name, written from two sources already."""
    rng, waiting, come = random.Random(seed), list(sources.values()), []
    for _ in range(steps):
        if waiting and rng.random() < 0.6:
            come.append(waiting.pop(0))
        tensors, kind = come + [t.data for t in held.values()], rng.randrange(6)
        to = part(rng, held[rng.choice("ab")].data)
        if kind == 3:
            to.mul_(rng.choice((2.0, 0.5)))
        elif kind == 4:
            to.fill_(rng.choice((0.0, 1.0)))
        else:
            made = value(rng, tensors)
            to = held[rng.choice("ab")].data if kind == 5 else to
            try:
                made.expand(to.shape)
            except RuntimeError:
                continue  # shapes that do not fit
            try:
                to.copy_(made)
            except RuntimeError as error:
                raise Undefined from error


def one(rng, path):
    generator = torch.Generator().manual_seed(rng.getrandbits(40))
    sources = {name: torch.randn(4, 6, generator=generator) for name in "uvw"}
    save_file(sources, path)
    seed, steps = rng.getrandbits(60), rng.randint(2, 9)

    def run(given):
        held = {name: torch.nn.Parameter(torch.full((4, 6), 9.0), requires_grad=False) for name in "ab"}
        if given is not None:
            held["a"].copy_(given["u"])
            held["b"].copy_(given["v"])
            program(seed, steps, given, held)
        return held
    try:
        real = run({name: t.clone() for name, t in sources.items()})
    except Undefined:
        return "impossible"
    recorded = run(None)
    with loadplan.capture(path, recorded) as recording:
        given = dict(recording.weights())
        recorded["a"].copy_(given["u"])
        recorded["b"].copy_(given["v"])
        program(seed, steps, given, recorded)
    trace = recording.trace
    if trace.refusals or trace.unrecorded:
        return "refused"
    denied = [f"{f.rule} {f.tensor}" for f in trace.check() if f.level == "deny"]
    replayed = run(None)
    with loadplan.Session(trace, replayed, "direct") as session:
        for name in rng.sample(sorted(sources), len(sources)):
            session.push(name, sources[name])
    if denied or any(not torch.equal(real[name], replayed[name]) for name in real):
        raise AssertionError(denied or "bytes differ")
    return "equal"


if __name__ == "__main__":
    run_all(one)
