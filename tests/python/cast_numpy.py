#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The cast table against numpy and ml_dtypes, which know the float kinds from another source.

Every pair: all codes of kinds of 8 and 16 bits, boundary values and random bits of wider ones. Kinds narrower than F32 are
made from F32, as in torch. NaNs are compared as NaNs (docs/casts.md states their bits, the unit test pins them); results
that numpy leaves undefined (real to integer outside its range) are left to the unit test.
"""
import argparse
import pathlib
import subprocess
import sys

try:
    import ml_dtypes
    import numpy as np
except ImportError:
    print("skipped: numpy or ml_dtypes is not there")
    sys.exit(77)

SEED = 20260731
REAL = {"F64": np.float64, "F32": np.float32, "F16": np.float16, "BF16": ml_dtypes.bfloat16,
        "F8_E4M3": ml_dtypes.float8_e4m3fn, "F8_E5M2": ml_dtypes.float8_e5m2,
        "F8_E4M3FNUZ": ml_dtypes.float8_e4m3fnuz, "F8_E5M2FNUZ": ml_dtypes.float8_e5m2fnuz,
        "F8_E8M0": ml_dtypes.float8_e8m0fnu}
WHOLE = {"U8": np.uint8, "I8": np.int8, "U16": np.uint16, "I16": np.int16, "U32": np.uint32, "I32": np.int32,
         "U64": np.uint64, "I64": np.int64}
TYPES = {**REAL, **WHOLE, "BOOL": np.bool_}


def inputs(name, rng):
    dtype = np.dtype(TYPES[name])
    if name == "BOOL":
        return np.array([False, True, True])
    if dtype.itemsize <= 2:
        return np.arange(1 << 8 * dtype.itemsize).astype(f"u{dtype.itemsize}").view(dtype)
    raw = rng.integers(0, 1 << 32, 1 << 17, dtype=np.uint32).view(f"u{dtype.itemsize}").view(dtype)
    if name in WHOLE:
        info = np.iinfo(dtype)
        edges = [v for b in range(65) for v in ((1 << b) - 1, 1 << b, (1 << b) + 1, -(1 << b), -(1 << b) - 1)]
        return np.concatenate([raw, np.array([v for v in edges if info.min <= v <= info.max], dtype)])
    # every boundary of the narrow kinds and its neighbours, and numbers of everyday sizes
    narrow = np.concatenate([np.arange(1 << 16, dtype=np.uint16).view(k).astype(np.float32)
                             for k in (np.float16, ml_dtypes.bfloat16)])
    bits = narrow.view(np.uint32)
    around = np.concatenate([bits + np.uint32(d & 0xffffffff) for d in (-1, 0, 1, 0x0fff, 0x1000, 0x1001, 0x7fff, 0x8000,
                                                                        0x8001)]).view(np.float32)
    everyday = (rng.standard_normal(1 << 16) * 10.0 ** rng.uniform(-8, 8, 1 << 16)).astype(dtype)
    return np.concatenate([raw, around.astype(dtype), everyday])


def e8m0_of(x):
    """The nearest power of two by value, ties up, sign ignored: ml_dtypes treats negative numbers otherwise."""
    bits = x.astype(np.float32).view(np.uint32)
    field, mantissa = bits >> 23 & 255, bits & 0x7fffff
    code = np.where(field == 0, mantissa > 0x400000, field + (mantissa >= 0x400000))
    return np.where(field == 255, 255, code).astype(np.uint8).view(ml_dtypes.float8_e8m0fnu)


def expected(x, a, b):
    if b == "BOOL":
        return x.astype(np.float64) != 0 if a in REAL else x != 0
    if b in REAL and b not in ("F64", "F32"):
        x = x.astype(np.float32)
    if b == "F8_E8M0":
        return e8m0_of(x)
    return x.astype(TYPES[b])


def defined(x, a, b):
    """elements whose result numpy defines"""
    if a not in REAL or b not in WHOLE:
        return np.ones(x.shape, bool)
    info, wide = np.iinfo(TYPES[b]), np.trunc(x.astype(np.float64))
    return (wide >= float(info.min)) & (wide < float(info.max) + (1 if info.bits < 53 else 0))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", type=pathlib.Path, required=True)
    build = parser.parse_args().build
    tool = next(p for p in (build / "tests" / "cast_tool", build / "cast_tool") if p.exists())
    rng = np.random.default_rng(SEED)
    print(f"seed {SEED}")
    pairs = elements = 0
    for a in TYPES:
        x = inputs(a, rng)
        for b in TYPES:
            run = subprocess.run([tool, a, b], input=x.tobytes(), check=True, capture_output=True)
            seen = np.frombuffer(run.stdout, TYPES[b])
            wanted = x if a == b else expected(x, a, b)
            assert seen.shape == wanted.shape, (a, b)
            where = defined(x, a, b)
            seen, wanted, source = seen[where], wanted[where], x[where]
            equal = seen.view(f"u{seen.itemsize}") == wanted.view(f"u{wanted.itemsize}")
            if b in REAL:
                equal |= np.isnan(seen.astype(np.float64)) & np.isnan(wanted.astype(np.float64))
            if not equal.all():
                i = int(np.argmin(equal))
                sys.exit(f"{a} to {b}: {source[i]!r} becomes {seen[i]!r}, numpy says {wanted[i]!r}")
            pairs, elements = pairs + 1, elements + int(where.sum())
    print(f"{pairs} pairs, {elements} elements")


with np.errstate(all="ignore"):  # overflow and NaN are what this is about
    main()
