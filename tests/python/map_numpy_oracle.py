#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Views and byte maps against numpy, which knows strides from another source.

Random chains of view operations on both sides of a copy are done by numpy on real memory; the runs of the map, applied to
the same bytes, must give the same memory. Where numpy can reshape without a copy, the library must have a view too.
"""
import argparse
import pathlib
import random
import subprocess
import sys

try:
    import numpy as np
except ImportError:
    print("skipped: numpy is not there")
    sys.exit(77)

DTYPES = {"U8": np.uint8, "I16": np.int16, "F32": np.float32, "I64": np.int64}


def factors(rng, count):
    shape = []
    while count > 1 and len(shape) < 5:
        f = rng.choice([n for n in range(1, min(count, 12) + 1) if count % n == 0])
        shape.append(f)
        count //= f
    return shape + [count] if count > 1 or not shape else shape


def reshaped(view, shape):
    """view.reshape(shape), and whether that needed no copy"""
    out = view.reshape(shape)
    return out, out.size == 0 or np.shares_memory(out, view)


def chain(rng, dtype, shape, steps, source):
    """memory, the view that the operations give, their text, and whether all were views for numpy"""
    memory = np.array([rng.randrange(256) for _ in range(int(np.prod(shape)) * np.dtype(dtype).itemsize)], np.uint8)
    view, viewable = memory.view(dtype).reshape(shape), True
    text = [name_of(dtype), str(len(shape)), *map(str, shape)]
    for _ in range(steps):
        op = rng.choice(["permute", "reshape", "narrow", "select", "slice", "slice", "diagonal", "expand", "dtype"])
        dim = rng.randrange(view.ndim) if view.ndim else 0
        if op == "permute":
            order = rng.sample(range(view.ndim), view.ndim)
            view = view.transpose(order)
            text += [op, str(len(order)), *map(str, order)]
        elif op == "reshape" and view.size:
            new = factors(rng, view.size)
            out, free = reshaped(view, new)
            if not free and not source:
                continue
            view, viewable = out, viewable and free
            text += [op, str(len(new)), *map(str, new)]
        elif op == "narrow" and view.ndim:
            start = rng.randrange(view.shape[dim] + 1)
            length = rng.randint(min(1, view.shape[dim] - start), view.shape[dim] - start)
            view = view[(slice(None),) * dim + (slice(start, start + length),)]
            text += [op, str(dim), str(start), str(length), "0"]
        elif op == "select" and view.ndim > 1 and view.shape[dim]:
            index = rng.randrange(-view.shape[dim], view.shape[dim])
            view = view[(slice(None),) * dim + (index,)]
            text += [op, str(dim), str(index), "0", "0"]
        elif op == "slice" and view.ndim:
            n = view.shape[dim] + 2
            a, b = (rng.choice([None, rng.randint(-n, n)]) for _ in range(2))
            c = rng.choice([1, 2, 3, -1, -2])
            view = view[(slice(None),) * dim + (slice(a, b, c),)]
            text += [op, str(dim), *("none" if x is None else str(x) for x in (a, b)), str(c)]
        elif op == "diagonal" and view.ndim > 1:
            a, b = rng.sample(range(view.ndim), 2)
            offset = rng.randint(-2, 2)
            view = view.diagonal(offset, a, b)
            if not source:
                view.flags.writeable = True
            text += [op, str(offset), str(a), str(b), "0"]
        elif op == "expand" and source and view.ndim and view.size < 500:
            new = [rng.randint(1, 3) if n == 1 else n for n in view.shape]
            view = np.broadcast_to(view, new)
            text += [op, str(len(new)), *map(str, new)]
        elif op == "dtype":
            name = rng.choice(list(DTYPES))
            if not viewable:
                continue  # numpy has other memory now
            try:
                out = view.view(DTYPES[name])
            except ValueError:
                continue
            if any(s % out.itemsize for n, s in zip(out.shape, out.strides) if n > 1):
                continue  # torch wants aligned strides
            if (out.__array_interface__["data"][0] - memory.__array_interface__["data"][0]) % out.itemsize:
                continue
            view = out
            text += [op, name]
    return memory, view, text, viewable


def name_of(dtype):
    return next(n for n, t in DTYPES.items() if t == np.dtype(dtype).type)


def random_shape(rng):
    shape = []
    while len(shape) < 6 and rng.random() < 0.7:
        n = rng.choice([1, 2, 2, 3, 4, 5, 6])
        if int(np.prod(shape + [n])) <= 400:
            shape.append(n)
    return shape


def destination(rng, dtype, shape):
    """a view of `shape` into other memory: permuted, with gaps, turned around, or regrouped"""
    if rng.random() < 0.3 and np.prod(shape) > 0:
        base = factors(rng, int(np.prod(shape)))
        order = rng.sample(range(len(base)), len(base))
        memory = np.zeros(int(np.prod(shape)) * np.dtype(dtype).itemsize, np.uint8)
        out, free = reshaped(memory.view(dtype).reshape(base).transpose(order), shape)
        if free:
            return memory, out, [name_of(dtype), str(len(base)), *map(str, base), "permute", str(len(base)),
                                 *map(str, order), "reshape", str(len(shape)), *map(str, shape)]
    order = rng.sample(range(len(shape)), len(shape))
    gaps = [rng.choice([0, 0, 0, 1, 2]) for _ in shape]
    base = [shape[d] + gaps[d] for d in order]
    memory = np.zeros(int(np.prod(base)) * np.dtype(dtype).itemsize, np.uint8)
    view = memory.view(dtype).reshape(base)
    text = [name_of(dtype), str(len(base)), *map(str, base)]
    for i, d in enumerate(order):
        start = rng.randint(0, gaps[d])
        view = view[(slice(None),) * i + (slice(start, start + shape[d]),)]
        text += ["narrow", str(i), str(start), str(shape[d]), "0"]
        if rng.random() < 0.2:
            view = view[(slice(None),) * i + (slice(None, None, -1),)]
            text += ["slice", str(i), "none", "none", "-1"]
    back = [order.index(d) for d in range(len(shape))]
    return memory, view.transpose(back), text + ["permute", str(len(back)), *map(str, back)]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cases", type=int, default=4000)
    args = parser.parse_args()
    tool = next(p for p in (args.build / "tests" / "map_tool", args.build / "map_tool") if p.exists())
    print(f"seed {args.seed}")
    rng = random.Random(args.seed)
    cases = []
    for _ in range(args.cases):
        memory, view, text, viewable = chain(rng, rng.choice(list(DTYPES.values())), random_shape(rng),
                                             rng.randint(0, 6), True)
        shape = [rng.randint(1, 3) if n == 1 and rng.random() < 0.3 else n for n in view.shape]
        if len(shape) > 14 or np.prod(shape) > 2000:
            continue
        target, out, into = destination(rng, view.dtype, shape)
        if out.size:
            out[...] = view
        cases.append((" ".join(text + ["into"] + into), memory, target, viewable))
    run = subprocess.run([tool], input="\n".join(c[0] for c in cases), check=True, capture_output=True, text=True)
    answers = run.stdout.splitlines()
    assert len(answers) == len(cases), "an answer is missing"
    copies = boxes = 0
    for (text, memory, target, viewable), answer in zip(cases, answers):
        word, *rest = answer.split()
        if word == "view" and not viewable and rest == ["LP_E_UNSUPPORTED", "LP_OK"]:
            continue
        if word != "ok":
            sys.exit(f"{text}\nanswer: {answer}")
        seen = np.zeros_like(target)
        numbers = list(map(int, rest[1:]))
        for dst, src, count in zip(*[iter(numbers)] * 3):
            seen[dst:dst + count] = memory[src:src + count]
        if not np.array_equal(seen, target):
            sys.exit(f"{text}\nanswer: {answer}\nother bytes than numpy's")
        copies, boxes = copies + 1, boxes + int(rest[0])
    assert copies > len(cases) // 2
    print(f"{copies} copies agree, {boxes} boxes; {len(cases) - copies} chains that are no views")


main()
