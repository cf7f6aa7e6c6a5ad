#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every file of a room stands in a row of docs/rooms.md, and every row there stands for files."""
import fnmatch
import pathlib
import re
import sys

ROOMS = ("traces", "layouts", "recorder", "replayer", "kernels")


def patterns_of(text):
    """Room -> patterns of file names, from the first columns of its table."""
    found, room = {}, None
    for line in text.splitlines():
        if line.startswith("## "):
            room = line[3:].strip()
            found[room] = []
        elif room and line.startswith("| `"):
            found[room] += re.findall(r"`([^`]+)`", line.split("|")[1])
    return found


def main():
    root = pathlib.Path(sys.argv[1])
    patterns = patterns_of((root / "docs" / "rooms.md").read_text())
    wrong, files = [], 0
    for room in ROOMS:
        names = sorted(p.name for p in (root / room).iterdir() if p.suffix in {".c", ".h", ".cu", ".cuh"})
        files += len(names)
        listed = patterns.get(room, [])
        wrong += [f"{room}/{name}: docs/rooms.md has no row for it" for name in names
                  if not any(fnmatch.fnmatchcase(name, pattern) for pattern in listed)]
        wrong += [f"docs/rooms.md: no file of {room}/ is called '{pattern}'" for pattern in listed
                  if not any(fnmatch.fnmatchcase(name, pattern) for name in names)]
    print("\n".join(wrong) if wrong else f"{files} files: each has its row in docs/rooms.md")
    sys.exit(1 if wrong or files == 0 else 0)


if __name__ == "__main__":
    main()
