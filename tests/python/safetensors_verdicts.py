#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Verdicts on safetensors headers against the reference reader of the safetensors package.

Headers around every rule, random mutations of their text, and random files of several tensors of which one rule is broken.
Both must accept or both refuse, with the same names, dtypes, shapes and bytes, except where ours is stricter on purpose: a
name that appears twice, and an entry written as an array.
"""
import argparse
import json
import pathlib
import random
import struct
import subprocess
import sys
import zlib

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


BITS = {"BOOL": 8, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "I16": 16,
        "F16": 16, "BF16": 16, "U32": 32, "F32": 32, "C64": 64, "F64": 64, "I64": 64}
NAMES = ["a", "b.0.weight", "", "\u00e9", "\U0001f600", "a\nb", "a\0b", '"', "\\", "layers.12.experts.3.up_proj.weight_scale_2",
         "A" * 300]


def whole_file(rng):
    """Entries that tile the data: [name, dtype, shape, begin, end], and its length."""
    entries, end = [], 0
    for name in rng.sample(NAMES, rng.randint(0, 6)):
        dtype = rng.choice(list(BITS))
        shape = [rng.choice([0, 1, 2, 3, 4, 8]) for _ in range(rng.randint(0, 4))]
        bits = BITS[dtype]
        for extent in shape:
            bits *= extent
        if bits % 8:
            shape.append(4)
            bits *= 4
        entries.append([name, dtype, shape, end, end + bits // 8])
        end += bits // 8
    return entries, end


def break_entry(entries, rng):
    one, other = rng.choice(entries), rng.choice(entries)
    kind = rng.randint(0, 9)
    if kind < 2:
        one[3 + rng.randint(0, 1)] += rng.choice([-1, 1, 2, 1 << 32, 1 << 63])
    elif kind == 2:
        one[3:], other[3:] = other[3:], one[3:]
    elif kind == 3:
        one[3:] = other[3:]
    elif kind == 4:
        entries.remove(one)
    elif kind == 5:
        one[2] = one[2] + [rng.choice([0, 1, 2, 1 << 31, 1 << 32, (1 << 63) - 1, 1 << 63, (1 << 64) - 1, 1 << 64])]
    elif kind == 6:
        one[2] = [(1 << 64) - 1, 0] if rng.random() < 0.5 else [1 << 32, 1 << 32] + one[2]
    elif kind == 7:
        one[1] = rng.choice(list(BITS) + ["F8", "f32", "C128", "F8_E4M3FN", "F8_E4M3FNUZ"])
    elif kind == 8:
        at = rng.choice([one[3], one[4], other[3], other[4], one[3] + 1])
        entries.append(["empty", "F32", [0], at, at])
    else:
        one[3], one[4] = one[4], one[3]


def entry_text(name, dtype, shape, begin, end, rng):
    fields = [f'"dtype":"{dtype}"', f'"shape":{json.dumps(shape)}', f'"data_offsets":[{begin},{end}]']
    if rng.random() < 0.03:
        fields[rng.randint(0, 2)] = rng.choice(['"dtype":null', '"shape":[2.0]', '"shape":[-1]', '"data_offsets":[0]',
                                                '"more":[1,{}]'])
    if rng.random() < 0.05:
        fields.append(rng.choice(fields + ['"more":{"x":[null,true,1.5e3]}', '"Shape":[1]']))
    rng.shuffle(fields)
    space = rng.choice(["", "", " ", "\n\t"])
    return json.dumps(name, ensure_ascii=rng.random() < 0.5) + space + ":" + space + "{" + ("," + space).join(fields) + "}"


def structured(rng):
    entries, size = whole_file(rng)
    for _ in range(rng.choice([0, 1, 1, 2])):
        if entries:
            break_entry(entries, rng)
    rng.shuffle(entries)
    parts = [entry_text(*e, rng) for e in entries]
    if rng.random() < 0.3:
        metadata = rng.choice(["{}", "null", '{"format":"pt"}', '{"a":1}', '{"":""}', "[]"])
        parts.insert(rng.randint(0, len(parts)), '"__metadata__":' + metadata)
    header = "{" + ",".join(parts) + "}"
    tail = rng.choice(["", "", " ", "   ", "\0", "\n", "x"]) if rng.random() < 0.3 else ""
    header = rng.choice(["", "", "", " ", "\n"]) + header + tail
    data = rng.randbytes(max(0, size + (rng.choice([-1, 1, 8]) if rng.random() < 0.06 else 0)))
    file = image(header, data)
    if rng.random() < 0.04:
        file = struct.pack("<Q", rng.choice([0, 1, len(header), len(file), 1 << 40, (1 << 64) - 1])) + file[8:]
    return file if rng.random() < 0.98 else file[:rng.randint(0, len(file))]


def sum_of(tensors):
    total = 0
    for name, t in tensors:
        text = name.encode() + t["dtype"].encode() + "".join(f",{extent}" for extent in t["shape"]).encode()
        total += zlib.adler32(bytes(t["data"]), zlib.adler32(text))
    return total


def reference(file):
    try:
        tensors = safetensors.deserialize(file)
        return f"accept {len(tensors)} {sum_of(tensors)}"
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
    files += [mutation(rng.choice(seeds), rng) if rng.random() < 0.5 else structured(rng) for _ in range(arguments.count)]
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
