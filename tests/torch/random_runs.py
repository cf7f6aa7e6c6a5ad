# SPDX-License-Identifier: Apache-2.0
"""Runs random programs by number: what each came to is counted, failures are named by the number that repeats them."""
import argparse
import os
import random
import sys
import tempfile

import torch


def run_all(one):
    """Calls one(rng, path of a file to write), which returns "equal", "refused" or "impossible", and ends the process.

    --count N, --seed N (both are printed), --only INDEX.
    """
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 40))
    parser.add_argument("--only", type=int)
    options = parser.parse_args()
    torch.set_grad_enabled(False)
    print(f"seed {options.seed}")
    counts = {"equal": 0, "refused": 0, "impossible": 0, "failed": 0}
    with tempfile.TemporaryDirectory() as folder:
        for i in range(options.count) if options.only is None else [options.only]:
            try:
                counts[one(random.Random(options.seed * 1000003 + i), os.path.join(folder, "model.safetensors"))] += 1
            except Exception as error:  # noqa: BLE001
                counts["failed"] += 1
                print(f"program {i}: {type(error).__name__}: {error}")
                if options.only is not None:
                    raise
    print(f"{options.count} programs: " + ", ".join(f"{n} {what}" for what, n in counts.items()))
    sys.exit(counts["failed"] > 0)
