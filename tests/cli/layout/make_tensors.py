# SPDX-License-Identifier: Apache-2.0
"""make_tensors.py FILE DTYPE NAME:AxBxC...: a safetensors file of counted bytes."""
import json
import math
import struct
import sys

path, dtype, *tensors = sys.argv[1:]
header, off = {}, 0
for tensor in tensors:
    name, shape = tensor.split(":")
    shape = [int(extent) for extent in shape.split("x")]
    count = math.prod(shape) * (4 if dtype == "F32" else 1)
    header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [off, off + count]}
    off += count
text = json.dumps(header).encode()
text += b" " * (-len(text) % 8)
with open(path, "wb") as out:
    out.write(struct.pack("<Q", len(text)) + text)
    out.write(bytes((i * 2654435761 >> 13) & 255 for i in range(off)))
