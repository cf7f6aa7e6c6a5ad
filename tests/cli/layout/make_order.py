# SPDX-License-Identifier: Apache-2.0
"""make_order.py FILE KIND [N K]: what transforms made of 0, 1, 2, ... of a matrix of N x K, 384 x 12 unless given.

  tiles    tiles of 128 x 4, four rows 32 apart side by side, as one tensor of integers
  bytes    the same, as three tensors of bytes
  swizzle  columns in groups of 4, exclusive or with the row
  rotated  columns in groups of 4, turned by the row
  listed   rows in every 6 in the order 3 1 4 0 5 2
  packets  rows of 2 and then K - 2 bytes: of every 4 rows the first parts, then the others
  padded   rows with one more place behind each; counted from 1, so that zeros are padding
  flipped  as bytes, each exclusive-or'ed with 0x80
  added    as bytes, each more by 3
  negative as tiles, in 64-bit integers, each turned into minus one less
"""
import json
import struct
import sys

path, kind = sys.argv[1:3]
N, K = map(int, sys.argv[3:] or (384, 12))
order = [0] * (N * K)
for i in range(N):
    for j in range(K):
        if kind == "swizzle":
            place = i * K + (j ^ (i % 4))
        elif kind == "listed":
            place = (i // 6 * 6 + [3, 1, 4, 0, 5, 2].index(i % 6)) * K + j
        elif kind == "packets":
            place = i // 4 * 4 * K + (i % 4 * 2 + j if j < 2 else 8 + i % 4 * (K - 2) + j - 2)
        elif kind == "rotated":
            place = i * K + j // 4 * 4 + (j + i) % 4
        elif kind == "padded":
            place = i * K + j
        else:
            place = (i // 128 * (K // 4) + j // 4) * 512 + i % 32 * 16 + i % 128 // 32 * 4 + j % 4
        order[place] = i * K + j
if kind == "padded":
    order = [value for i in range(N) for value in [*range(i * K + 1, i * K + K + 1), 0]]
change = {"bytes": lambda x: x, "flipped": lambda x: x ^ 0x80, "added": lambda x: x + 3 & 255}.get(kind)
if change:
    tensors = [(f"t.{b}", "U8", bytes(change(k >> 8 * b & 255) for k in order)) for b in range(3)]
elif kind == "negative":
    tensors = [("t", "I64", struct.pack(f"<{N * K}q", *(-1 - k for k in order)))]
else:
    tensors = [("t", "I32", struct.pack(f"<{len(order)}i", *order))]
header, data = {}, b""
for name, dtype, raw in tensors:
    header[name] = {"dtype": dtype, "shape": [N, len(order) // N], "data_offsets": [len(data), len(data) + len(raw)]}
    data += raw
text = json.dumps(header).encode()
text += b" " * (-len(text) % 8)
with open(path, "wb") as out:
    out.write(struct.pack("<Q", len(text)) + text + data)
