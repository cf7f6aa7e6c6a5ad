#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""House rules that a machine can read: licence lines, file sizes, line lengths, and functions that do not belong in a library."""
import pathlib
import re
import sys

ROOMS = ("traces", "layouts", "recorder", "replayer", "kernels", "tests")
LONGEST_FILE = 900
LONGEST_LINE = 140
# The library never prints, exits or reads the environment; the program's files may.
FORBIDDEN = re.compile(r"\b(printf|puts|putchar|exit|getenv|strcpy|strcat|sprintf|gets|perror)\s*\(")


def main():
    root = pathlib.Path(sys.argv[1])
    wrong, files = [], 0
    sources = [root / "main.c"] + [p for room in ROOMS for p in sorted((root / room).rglob("*"))]
    for path in sources:
        if path.suffix not in {".c", ".h", ".cu", ".cuh", ".py", ".sh"} or "corpus" in path.parts or ".venv" in path.parts:
            continue
        if path.suffix == ".sh" and "cli" in path.parts:
            continue
        files += 1
        lines = path.read_text().splitlines()
        if not any("SPDX-License-Identifier: Apache-2.0" in line for line in lines[:3]):
            wrong.append(f"{path}: no SPDX line")
        if len(lines) > LONGEST_FILE:
            wrong.append(f"{path}: {len(lines)} lines; split it")
        for number, line in enumerate(lines, 1):
            if len(line) > LONGEST_LINE:
                wrong.append(f"{path}:{number}: {len(line)} columns")
            if line != line.rstrip() or "\t" in line:
                wrong.append(f"{path}:{number}: trailing blanks or tabs")
        relative = path.relative_to(root).parts
        is_program = path.name == "main.c" or path.name.startswith("cli_") or path.stem.endswith("_cli")
        if relative[0] in ROOMS[:5] and path.suffix == ".c" and not is_program:
            code = re.sub(r'/\*.*?\*/|"(?:\\.|[^"\\])*"', " ", path.read_text(), flags=re.S)
            for match in FORBIDDEN.finditer(code):
                wrong.append(f"{path}: calls {match.group(1)}")
    print("\n".join(wrong) if wrong else f"{files} files: fine")
    sys.exit(1 if wrong or files == 0 else 0)


if __name__ == "__main__":
    main()
