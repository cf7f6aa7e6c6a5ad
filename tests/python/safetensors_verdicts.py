#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Verdicts on safetensors headers against the reference reader of the safetensors package.

Headers around every rule, then random mutations of them. Both must accept or both refuse, with as many tensors, except
where ours is stricter on purpose: a name that appears twice, and an entry written as an array.
"""
import argparse
import pathlib
import random
import struct
import subprocess
import sys

try:
    import safetensors
except ImportError:
    print("skipped: safetensors is not there")
    sys.exit(77)

A = '"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}'
EIGHT = bytes(8)


def image(header, data=EIGHT):
    header = header.encode() if isinstance(header, str) else header
    return struct.pack("<Q", len(header)) + header + data


def entry(dtype='"F32"', shape="[2]", offsets="[0,8]", more=""):
    return '{"a":{"dtype":' + dtype + ',"shape":' + shape + ',"data_offsets":' + offsets + more + "}}"


def rules():
    for depth in range(120, 132):
        yield image(entry(more=',"x":' + "[" * depth + "]" * depth))
        yield image(entry(more=',"x":' + '{"k":' * depth + "1" + "}" * depth))
        yield image('{"__metadata__":' + "[" * depth + "]" * depth + "," + A + "}")
    for value in ["1e308", "1e309", "1.7976931348623157e308", "1.7976931348623159e308", "-1e400", "0e999", "1e-99999999999",
                  "0.0e99999999999", "1" + "0" * 308, "1" + "0" * 309, "0." + "0" * 400 + "1e500", "9" * 400, "0.1e309",
                  "17976931348623158079" + "0" * 289, "17976931348623158080" + "0" * 289, "1e", "1.", ".5", "-", "-0", "-01",
                  "00", "+1", "nul", "null", "true", "tru", '"x', r'"\q"', r'"\ud800"', r'"\ud800\udc00"', r'"\udc00"',
                  r'"\ud800\u0041"', r'"\u00zz"', r'"\u0000"', "{}", '{"a":1,"a":2}', "[1,]", "[,1]", '{"a":1,}', "{1:2}",
                  '{"a"}', "NaN", "Infinity", "[1 2]", '"\x7f"', '"\u2028"', r'"\/"', "18446744073709551616", ""]:
        yield image(entry(more=',"x":' + value))
    for dtype in ['{"F32":null}', '{"F32":{}}', '{"F32":[]}', '{"F32":null,"F32":null}', "{}", '["F32"]', "null", "17",
                  r'"F\u0033\u0032"', '{"f32":null}', '"F8_E4M3FN"', '"C128"', '"f32"', '"F32 "']:
        yield image(entry(dtype=dtype))
    for shape in ["null", "{}", '"2"', "[null]", "[[2]]", "[2,]", "[true]", "[ 2 ]", "[1e0]", "[-0]", "[2.0]", "[02]", "[]",
                  "[0,18446744073709551615,2]", "[18446744073709551615,2,0]", "[18446744073709551616]", "[4611686018427387904,0]"]:
        yield image(entry(shape=shape))
        yield image(entry(shape=shape, offsets="[0,0]"), b"")
    for offsets in ["[0]", "[]", "[0,8,8]", "null", "[8,0]", "[0,18446744073709551615]", '["0",8]', "[ 0 , 8 ]", "[0,8,]"]:
        yield image(entry(offsets=offsets))
    for metadata in ["null", "{}", '{"a":"b","a":"c"}', '{"a":1}', "[]", '""', '{"a":null}', '{"dtype":"F32"}']:
        yield image('{"__metadata__":' + metadata + "," + A + "}")
        yield image("{" + A + r',"\u005f_metadata__":' + metadata + "}")
        yield image('{"__metadata__":' + metadata + ',"__metadata__":null,' + A + "}")
    for header in ["", " ", "{", "}", "{}", "{} ", "\n\t\r {}\n", "{}\0", "{}x", "\ufeff{}", "null", "[]", '"a"', '{"a"', '{"a":',
                   '{"a":5}', '{"a":null}', '{"a":["F32",[2],[0,8]]}', "{" + A + ",}", "{," + A + "}", "{" + A + "}}", "/**/{}",
                   "\x0b{}", "[{}]", "{" + A + "," + A + "}", "{" + A + ',"b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}}']:
        yield image(header)
        yield image(header, b"")
    for dtype, bits in [("F4", 4), ("F6_E2M3", 6), ("F6_E3M2", 6), ("F8_E8M0", 8), ("C64", 64)]:
        for count in range(9):
            size = count * bits // 8
            yield image(entry(dtype=f'"{dtype}"', shape=f"[{count}]", offsets=f"[0,{size}]"), bytes(size))


TOKENS = [b"{", b"}", b"[", b"]", b",", b":", b'"', b"\\", b"0", b"8", b"-", b".", b"e", b"null", b"{}", b"[]", b" ", b"\\u0061",
          b'"a"', b'"dtype"', b'"F32"', b'"shape"', b'"data_offsets"', b'"__metadata__"', b"\0", b"\xc3\xa9", b"\xed\xa0\x80",
          b"1e5", b"18446744073709551615", b"\xf4\x90\x80\x80", b"\xe0\x80\x80"]


def mutation(seed, rng):
    length = struct.unpack("<Q", seed[:8])[0]
    header, data = bytearray(seed[8:8 + length]), seed[8 + length:]
    for _ in range(rng.randint(1, 3)):
        at, kind = rng.randint(0, len(header)), rng.random()
        if kind < 0.35:
            header[at:at] = rng.choice(TOKENS)
        elif kind < 0.6:
            del header[at:at + rng.randint(1, 4)]
        elif kind < 0.85:
            header[at:at + 1] = rng.choice(TOKENS)
        else:
            other, to = rng.randint(0, len(header)), rng.randint(0, len(header))
            header[to:to] = header[min(at, other):max(at, other)]
    if rng.random() < 0.1:
        data = data[:-1] if rng.random() < 0.5 else data + b"x"
    return image(bytes(header), data)


def reference(file):
    try:
        return f"accept {len(safetensors.deserialize(file))}"
    except Exception as error:  # its error class is not the same in all versions
        return f"refuse {error}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--seed", type=int, default=20260731)
    parser.add_argument("--count", type=int, default=200000)
    arguments = parser.parse_args()
    rng = random.Random(arguments.seed)
    files = list(rules())
    seeds = [file for file in files if len(file) < 400]
    files += [mutation(rng.choice(seeds), rng) for _ in range(arguments.count)]
    tool = next(path for path in (arguments.build / "tests" / "verdict_tool", arguments.build / "verdict_tool")
                if path.exists())
    done = subprocess.run([tool], input=b"".join(struct.pack("<I", len(file)) + file for file in files),
                          stdout=subprocess.PIPE, check=True)
    ours = done.stdout.decode(errors="replace").splitlines()
    if len(ours) != len(files):
        sys.exit(f"{len(files)} files, {len(ours)} verdicts")
    accepted = stricter = differing = 0
    for file, verdict in zip(files, ours):
        expected = reference(file)
        accepted += expected.startswith("accept")
        if expected == verdict or (expected[0] == "r" and verdict[0] == "r"):
            continue
        if expected[0] == "a" and ("the name appears twice" in verdict or "the entry is an array" in verdict):
            stricter += 1
            continue
        differing += 1
        if differing <= 10:
            print(f"{file[8:400]!r}\n  reference: {expected[:200]}\n  ours:      {verdict[:200]}")
    print(f"seed {arguments.seed}: {len(files)} headers, {accepted} accepted by safetensors {safetensors.__version__}, "
          f"{stricter} refused on purpose, {differing} differ")
    sys.exit(1 if differing or not accepted or not stricter else 0)


if __name__ == "__main__":
    main()
