# SPDX-License-Identifier: Apache-2.0
"""python -m loadplan record --model DIR [--loader vllm | MODULE:FUNCTION] [--tp N] [--pp N] [--rank R|all] [--ep] [--processed] -o FILE"""

from __future__ import annotations

import argparse
import importlib
import os
import subprocess
import sys
import tempfile
import traceback

from ._library import LoadplanError, lib
from ._record import record
from ._trace import Trace, join

_EPILOG = """
--loader vllm builds vLLM's model on the CPU and records its load_weights. MODULE:FUNCTION is called as
FUNCTION(model folder, tp, rank) and returns (load, destinations): load takes an iterator of (name, tensor),
destinations is a module or a dict of tensors. With --pp, which is vLLM's alone, ranks are counted stage by stage.
--rank all records the ranks one after the other, each in a process of
its own, and joins their traces.

Exit codes: 0, 1 with --fail-on-refusal when names were refused, 2 for a wrong command line, 3 for a loader or
checkpoint that fails.
"""


def _load_vllm(options):
    from . import vllm
    config, model = vllm.start(options.model, options.tp, options.rank, options.ep, options.pp)
    return vllm.record(options.model, config, model, options.processed)


def _load_own(options):
    module, _, function = options.loader.partition(":")
    sys.path.insert(0, os.getcwd())
    build = getattr(importlib.import_module(module), function, None)
    if build is None:
        raise LoadplanError(f"module '{module}' has no '{function}'")
    built = build(options.model, options.tp, options.rank)
    if not isinstance(built, tuple) or len(built) != 2 or not callable(built[0]):
        raise LoadplanError(f"'{options.loader}' returned a {type(built).__name__}, not (load, destinations)")
    load, destinations = built
    return record(load, options.model, destinations, loader=f"torch:{options.loader}", tp=options.tp, tp_rank=options.rank,
                  expert_parallel=options.ep)


def _load_all(options, arguments):
    """One trace of all ranks. What only a rank itself can tell (what it cannot record) it prints."""
    # Of an option that is given twice the last one counts.
    command = [sys.executable, *(f"-W{w}" for w in sys.warnoptions), "-m", "loadplan", *arguments]
    with tempfile.TemporaryDirectory(prefix="loadplan-") as folder:
        ranks = []
        for rank in range(options.tp * options.pp):
            path = os.path.join(folder, f"{rank}.lpt")
            done = subprocess.run([*command, "--rank", str(rank), "-o", path], stdout=subprocess.PIPE, text=True)
            if done.returncode not in (0, 1) or not os.path.exists(path):
                raise LoadplanError(f"rank {rank} was not recorded: exit code {done.returncode}")
            for line in done.stdout.splitlines():
                if line.startswith(("  rebound:", "  not recorded:")):
                    print(f"rank {rank}: {line.strip()}")
            ranks.append(Trace.open(path))
        return join(ranks)


def _rank(text: str):
    return text if text == "all" else int(text)


def _say(trace, path: str) -> int:
    """Prints what was recorded; the number of refused names."""
    count = {kind: int(n) for kind, n in ((row["kind"], row["n"]) for row in trace.query(
        "SELECT kind, count(*) AS n FROM v_records GROUP BY kind"))}
    refusals = trace.refusals
    derives = trace.query("SELECT count(*) AS n FROM v_derives")[0]["n"]
    kinds = ", ".join(f"{n} {kind}" for kind, n in sorted(count.items())) or "no records"
    refused = {row["name"] for row in refusals}
    print(f"{path}: {kinds}; {derives} derives, {len(refused)} refusals")
    if trace.rebound:
        print(f"  rebound: {len(trace.rebound)} tensors are others after the load, such as '{trace.rebound[0]}'")
    for what in trace.unrecorded:
        print(f"  not recorded: {what}")
    for place in sorted({(r["operation"], r["reason"], r["file"], r["line"]) for r in refusals}, key=str):
        names = sorted({r["name"] for r in refusals if (r["operation"], r["reason"], r["file"], r["line"]) == place})
        print(f"  {place[0]} ({place[1]}) at {place[2]}:{place[3]}: '{names[0]}'"
              + (f" and {len(names) - 1} more" if len(names) > 1 else ""))
    return len(refused)


def main(arguments=None) -> int:
    parser = argparse.ArgumentParser(prog="python -m loadplan", description="record what a PyTorch loader does",
                                     epilog=_EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--version", action="version", version=lib.lp_version().decode())
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("record", epilog=_EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter)
    one.add_argument("--model", required=True, metavar="DIR", help="folder with config.json and safetensors files")
    one.add_argument("--loader", default="vllm", help="vllm (the default), or MODULE:FUNCTION")
    one.add_argument("--tp", type=int, default=1)
    one.add_argument("--pp", type=int, default=1, help="pipeline stages")
    one.add_argument("--rank", type=_rank, default=0, help="one of 0 to TP * PP - 1, or all")
    one.add_argument("--ep", action="store_true", help="split whole experts over the ranks")
    one.add_argument("--processed", action="store_true", help="with vLLM: its post-load processing as well")
    one.add_argument("-o", "--output", required=True, metavar="FILE")
    one.add_argument("-f", "--force", action="store_true", help="replace FILE")
    one.add_argument("--fail-on-refusal", action="store_true", help="exit with 1 when a name was refused")
    options = parser.parse_args(arguments)
    if options.loader != "vllm" and ":" not in options.loader:
        parser.error(f"--loader is vllm or MODULE:FUNCTION, not '{options.loader}'")
    if options.loader != "vllm" and options.pp != 1:
        parser.error("--pp is for --loader vllm")
    try:
        if options.rank == "all":
            trace = _load_all(options, sys.argv[1:] if arguments is None else arguments)
        else:
            trace = _load_vllm(options) if options.loader == "vllm" else _load_own(options)
        trace.save(options.output, overwrite=options.force)
    except (LoadplanError, ImportError) as error:
        print(f"loadplan: error: {error}", file=sys.stderr)
        return 3
    except Exception as error:  # of code that is not ours, whose author wants to see where
        traceback.print_exc()
        print(f"loadplan: error: the loader failed: {type(error).__name__}: {error}", file=sys.stderr)
        return 3
    refused = _say(trace, options.output)
    return 1 if refused and options.fail_on_refusal else 0


if __name__ == "__main__":
    sys.exit(main())
