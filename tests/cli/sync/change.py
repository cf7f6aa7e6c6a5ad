#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Copies a checkpoint and changes some of its elements: change.py FROM TO SEED. The same seed changes the same ones."""
import pathlib
import shutil
import struct
import sys

source, target, seed = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), int(sys.argv[3])
shutil.copytree(source, target, dirs_exist_ok=True)
path = target / "model.safetensors"
data = bytearray(path.read_bytes())
start = 8 + struct.unpack("<Q", data[:8])[0]
for i in range(start, len(data), 2):
    x = (i * 2654435761 + seed * 40503) % 2**32
    if x % 10 == 0 or (i // 512) % 29 == seed % 29:  # scattered elements, and whole stretches
        data[i] = (data[i] + seed) % 256
path.write_bytes(data)
