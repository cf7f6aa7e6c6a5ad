# SPDX-License-Identifier: Apache-2.0
"""make_parts.py FILE ROWS: codes U8 [ROWS, 12] and scales F8_E4M3 [ROWS, 3], a scale for each four codes.
make_parts.py --show FILE: what each tensor of a file is, and its bytes.
make_parts.py --claim FILE PARTS: the file, whose metadata says that it was made of these."""
import json
import struct
import sys


def write(path, tensors):
    header, data = {}, b""
    for name, (dtype, shape, raw) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


def read(path):
    with open(path, "rb") as file:
        blob = file.read()
    length, = struct.unpack("<Q", blob[:8])
    return json.loads(blob[8:8 + length]), blob, length


def claim(path, parts):
    header, blob, length = read(path)
    header["__metadata__"]["loadplan.chain_parts"] = parts
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + blob[8 + length:])


def show(path):
    header, blob, length = read(path)
    header.pop("__metadata__", None)
    for name, tensor in sorted(header.items()):
        begin, end = tensor["data_offsets"]
        print(name, tensor["dtype"], tensor["shape"], blob[8 + length + begin:8 + length + end].hex())


if sys.argv[1] == "--show":
    show(sys.argv[2])
elif sys.argv[1] == "--claim":
    claim(*sys.argv[2:])
else:
    rows = int(sys.argv[2])
    write(sys.argv[1], {"codes": ("U8", [rows, 12], bytes(range(12 * rows))),
                        "scales": ("F8_E4M3", [rows, 3], bytes(0xa0 + i for i in range(3 * rows)))})
