# SPDX-License-Identifier: Apache-2.0
"""write_safetensors.py FILE NAME:DTYPE:SHAPE ... [--data BYTES] [--metadata KEY=VALUE]

Writes zeros under a header, by the rules and nothing but the standard library. SHAPE is like 2x3, or empty. --data
overrides how many bytes of data there are.
"""
import argparse
import json
import math
import struct

BITS = {"U8": 8, "F8_E4M3": 8, "BF16": 16, "F32": 32, "F4": 4}

parser = argparse.ArgumentParser()
parser.add_argument("file")
parser.add_argument("tensor", nargs="*")
parser.add_argument("--data", type=int)
parser.add_argument("--metadata", action="append", default=[])
arguments = parser.parse_args()
header, end = {}, 0
if arguments.metadata:
    header["__metadata__"] = dict(pair.split("=", 1) for pair in arguments.metadata)
for text in arguments.tensor:
    name, dtype, shape = text.encode().decode("unicode_escape").rsplit(":", 2)
    shape = [int(extent) for extent in shape.split("x")] if shape else []
    size = math.prod(shape) * BITS[dtype] // 8
    header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [end, end + size]}
    end += size
text = json.dumps(header, separators=(",", ":")).encode()
with open(arguments.file, "wb") as file:
    file.write(struct.pack("<Q", len(text)) + text + bytes(end if arguments.data is None else arguments.data))
