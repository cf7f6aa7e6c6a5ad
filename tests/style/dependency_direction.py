#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Reads every include and fails where a room reaches into one that it may not know (docs/design.md, "Rooms")."""
import pathlib
import re
import sys

MAY_INCLUDE = {
    "traces": {"traces"},
    "layouts": {"layouts", "traces"},
    "recorder": {"recorder", "layouts", "traces"},
    "replayer": {"replayer", "layouts", "traces"},
    "kernels": {"kernels", "layouts", "traces"},
}
ONLY_REPLAYER = {"nccl.h", "liburing.h"}
INCLUDE = re.compile(r'^\s*#\s*include\s+["<]([^">]+)[">]', re.M)


def main():
    root = pathlib.Path(sys.argv[1])
    wrong, files, includes = [], 0, 0
    names = {}
    for room, allowed in MAY_INCLUDE.items():
        for path in sorted((root / room).rglob("*")):
            if path.suffix not in {".c", ".h", ".cu", ".cuh"}:
                continue
            files += 1
            other = names.setdefault(path.name, path)
            if other != path:
                wrong.append(f"{path}: the name is taken by {other}")
            for target in INCLUDE.findall(path.read_text()):
                includes += 1
                target_room = target.split("/")[0]
                if target_room in MAY_INCLUDE and target_room not in allowed:
                    wrong.append(f"{path}: {room} must not include {target}")
                if target_room == "loadplan":
                    wrong.append(f"{path}: use the room's path instead of <{target}>")
                if target in ONLY_REPLAYER and room != "replayer":
                    wrong.append(f"{path}: only replayer may include {target}")
    print("\n".join(wrong) if wrong else f"{files} files, {includes} includes: all in the allowed direction")
    if files == 0:
        sys.exit("no files found")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
