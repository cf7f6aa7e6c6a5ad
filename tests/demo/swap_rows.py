#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Copies a rank file and swaps two equally large rows of one tensor in the copy: swap_rows.py IN OUT TENSOR ROW_A ROW_B"""
import json
import shutil
import struct
import sys

source, copy, tensor, row_a, row_b = sys.argv[1:4] + [int(r) for r in sys.argv[4:6]]
shutil.copyfile(source, copy)
with open(copy, "r+b") as f:
    size = struct.unpack("<Q", f.read(8))[0]
    entry = json.loads(f.read(size))[tensor]
    begin, end = entry["data_offsets"]
    row_bytes = (end - begin) // entry["shape"][0]
    place = [8 + size + begin + row * row_bytes for row in (row_a, row_b)]
    data = []
    for off in place:
        f.seek(off)
        data.append(f.read(row_bytes))
    if data[0] == data[1]:
        sys.exit("the rows are equal: nothing to swap")
    for off, row in zip(place, reversed(data)):
        f.seek(off)
        f.write(row)
