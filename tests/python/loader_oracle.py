#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The built-in loaders end to end against the independent numpy loader: generated checkpoints, every rank of several layouts,
through record, check, replay and verify; other shardings of the same bytes must give the same plan and the same files."""
import argparse
import hashlib
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "demo"))
try:
    import independent
except ImportError as missing:
    print(f"SKIPPED: {missing}")
    sys.exit(77)

# kind and options of the checkpoint, loader, (option, size) of the layouts
CASES = [
    ("dense", ["--layers", "2", "--vocab", "300", "--bias"], "dense", [("tp", 1), ("tp", 2), ("tp", 4)]),
    ("dense", ["--layers", "2", "--vocab", "32003", "--tied", "--hidden", "128", "--kv-heads", "2"], "dense", [("tp", 2), ("tp", 8)]),
    ("nvfp4", ["--layers", "2"], "megamoe", [("ep", 1), ("ep", 2), ("ep", 8), ("tp", 2)]),
    ("mxfp4", ["--layers", "1", "--experts", "6", "--hidden", "768", "--intermediate", "384"], "megamoe",
     [("ep", 2), ("ep", 3), ("tp", 1)]),
]


def run(*command, **more):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, **more)
    if done.returncode != 0:
        sys.exit(f"{' '.join(str(c) for c in command)}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout + done.stderr


def digest(folder):
    return {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in sorted(folder.glob("*.safetensors"))}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", type=pathlib.Path, required=True)
    build = parser.parse_args().build
    program, maker = build / "loadplan", build / "tests" / "make_checkpoint"
    ranks = total = 0
    with tempfile.TemporaryDirectory() as temporary:
        temporary = pathlib.Path(temporary)
        for number, (kind, options, loader, layouts) in enumerate(CASES):
            whole, sharded = temporary / f"whole{number}", temporary / f"sharded{number}"
            run(maker, "-o", whole, "--kind", kind, *options)
            run(maker, "-o", sharded, "--kind", kind, "--shards", "3", *options)
            for option, size in layouts:
                trace, out, again = (temporary / f"{number}{option}{size}.{end}" for end in ("lpt", "out", "again"))
                arguments = [f"--{option}", size] if size > 1 else []
                run(program, "record", "--checkpoint", whole, "--loader", loader, *arguments, "--rank", "all", "-o", trace)
                seen = run(program, "check", "--fail-on=warn", trace)
                if "every destination byte written exactly once" not in seen:
                    sys.exit(f"{kind} {option} {size}: {seen}")
                run(program, "replay", trace, "--rank", "all", "--checkpoint", whole, "--device", "cpu", "-o", out)
                run(program, "replay", trace, "--rank", "all", "--checkpoint", sharded, "--device", "cpu", "-o", again)
                run(program, "verify", trace, "--rank", "all", "--checkpoint", whole)
                if digest(out) != digest(again):
                    sys.exit(f"{kind} {option} {size}: another sharding gives other files")
                if len(digest(out)) != size:
                    sys.exit(f"{kind} {option} {size}: {len(digest(out))} rank files")
                for rank in range(size):
                    tp, ep = (size, 1) if option == "tp" else (1, size)
                    wanted = independent.load(loader, whole, tp, ep, rank)
                    problems, compared = independent.compare(wanted, out / f"rank-{rank:05d}.safetensors")
                    if problems:
                        sys.exit(f"{kind} {option} {size} rank {rank}:\n" + "\n".join(problems))
                    ranks += 1
                    total += compared
    print(f"{ranks} ranks, {total:,} bytes: equal to the independent loader")


if __name__ == "__main__":
    main()
