# SPDX-License-Identifier: Apache-2.0
"""pinned_links.py GPUS: GB/s of copies from pinned memory to that many GPUs at the same time, by torch; prints the sum."""
import sys
import threading
import time

import torch

BYTES, ROUNDS = 1 << 30, 12
devices = range(int(sys.argv[1]))
source = [torch.empty(BYTES, dtype=torch.uint8).pin_memory() for _ in devices]
there = [torch.empty(BYTES, dtype=torch.uint8, device=f"cuda:{d}") for d in devices]


def copy(d: int) -> None:
    with torch.cuda.device(d):
        for _ in range(ROUNDS):
            there[d].copy_(source[d], non_blocking=True)
        torch.cuda.synchronize()


for _ in range(2):  # the first time warms up
    began = time.time()
    threads = [threading.Thread(target=copy, args=(d,)) for d in devices]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds = time.time() - began
print(f"{ROUNDS * BYTES * len(devices) / seconds / 1e9:.1f}")
