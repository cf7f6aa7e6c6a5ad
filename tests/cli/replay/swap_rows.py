#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Swaps rows 1 and 2 of a tensor in place: swap_rows.py FILE NAME. Same names, same shapes, same sizes."""
import json
import struct
import sys

with open(sys.argv[1], "r+b") as file:
    size, = struct.unpack("<Q", file.read(8))
    entry = json.loads(file.read(size))[sys.argv[2]]
    row = (entry["data_offsets"][1] - entry["data_offsets"][0]) // entry["shape"][0]
    at = 8 + size + entry["data_offsets"][0] + row
    file.seek(at)
    rows = file.read(2 * row)
    file.seek(at)
    file.write(rows[row:] + rows[:row])
