#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs golden command-line tests and prints TAP.

A suite is a folder of scripts NAME.sh. Each runs under `bash -eu` in an empty folder with `loadplan` on its PATH, and is
expected to exit with 0 and to print nothing. What differs stands beside it:

    NAME.exit           expected exit code
    NAME.stdout.exact   expected output, to the byte          NAME.stderr.exact
    NAME.stdout.glob    expected output, lines as patterns    NAME.stderr.glob
    NAME.stdout.ignore  anything (an empty file)              NAME.stderr.ignore
    NAME.needs          Python modules that the script needs; it is skipped without them

A script finds its suite's folder in $SUITE, the repository's tests folder in $TESTS and a Python interpreter in $PYTHON.
--set-exact-output writes what was seen as the new expectation: read the difference before you commit it.
"""
import argparse
import fnmatch
import os
import pathlib
import subprocess
import sys
import tempfile


def expectation(script, stream):
    for kind in ("exact", "glob", "ignore"):
        path = script.with_suffix(f".{stream}.{kind}")
        if path.exists():
            return kind, path.read_text()
    return "exact", ""


def differs(kind, wanted, seen):
    if kind == "ignore":
        return None
    if kind == "exact":
        return None if wanted == seen else f"wanted:\n{wanted}seen:\n{seen}"
    patterns, lines = wanted.splitlines(), seen.splitlines()
    if len(patterns) != len(lines):
        return f"wanted {len(patterns)} lines:\n{wanted}seen {len(lines)}:\n{seen}"
    for pattern, line in zip(patterns, lines):
        if not fnmatch.fnmatchcase(line, pattern):
            return f"wanted: {pattern}\nseen:   {line}\n"
    return None


def missing_modules(script, python):
    path = script.with_suffix(".needs")
    if not path.exists():
        return None
    modules = path.read_text().split()
    code = "import " + ", ".join(modules)
    if subprocess.run([python, "-c", code], capture_output=True).returncode == 0:
        return None
    return "needs the Python modules " + ", ".join(modules)


def run_one(script, arguments):
    with tempfile.TemporaryDirectory(prefix="loadplan-cli-") as folder:
        environment = {
            "PATH": f"{pathlib.Path(arguments.loadplan).resolve().parent}:{os.environ['PATH']}",
            "HOME": folder,
            "LANG": "C.UTF-8",
            "SUITE": str(script.parent.resolve()),
            "TESTS": str(pathlib.Path(__file__).resolve().parent.parent),
            "PYTHON": arguments.python,
            "ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", ""),
        }
        done = subprocess.run(["bash", "-eu", str(script.resolve())], cwd=folder, env=environment, stdin=subprocess.DEVNULL,
                              capture_output=True, timeout=1200)
    seen = {"stdout": done.stdout.decode(errors="backslashreplace"), "stderr": done.stderr.decode(errors="backslashreplace")}
    exit_path = script.with_suffix(".exit")
    if arguments.set_exact_output:
        for stream, text in seen.items():
            if expectation(script, stream)[0] != "exact":
                continue
            path = script.with_suffix(f".{stream}.exact")
            if text:
                path.write_text(text)
            elif path.exists():
                path.unlink()
        if done.returncode:
            exit_path.write_text(f"{done.returncode}\n")
        elif exit_path.exists():
            exit_path.unlink()
        return []
    problems = []
    wanted_exit = int(exit_path.read_text()) if exit_path.exists() else 0
    if done.returncode != wanted_exit:
        problems.append(f"exit code {done.returncode}, wanted {wanted_exit}\n{seen['stderr']}")
    for stream, text in seen.items():
        problem = differs(*expectation(script, stream), text)
        if problem:
            problems.append(f"{stream}: {problem}")
    return problems


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("suite", nargs="+", type=pathlib.Path, help="folders or single scripts")
    parser.add_argument("--loadplan", required=True)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--set-exact-output", action="store_true")
    arguments = parser.parse_args()
    scripts = [s for suite in arguments.suite for s in (sorted(suite.glob("*.sh")) if suite.is_dir() else [suite])]
    if not scripts:
        sys.exit("no scripts found")
    print(f"1..{len(scripts)}")
    failures = 0
    for number, script in enumerate(scripts, 1):
        skip = missing_modules(script, arguments.python)
        if skip:
            print(f"ok {number} - {script.stem} # SKIP {skip}")
            continue
        problems = run_one(script, arguments)
        failures += bool(problems)
        print(f"{'not ok' if problems else 'ok'} {number} - {script.stem}")
        for problem in problems:
            for line in problem.splitlines():
                print(f"#   {line}")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
