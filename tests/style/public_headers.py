#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every function of the public headers is documented: by a comment above it, above its group, or behind it.

A group is what follows a comment without a blank line. The manual pages are made from these comments.
"""
import pathlib
import re
import sys

SECTION = re.compile(r"/\* -{4} .* -{4,} \*/")


def headers_of(root):
    """The list of installed headers in CMakeLists.txt."""
    text = (root / "CMakeLists.txt").read_text()
    return re.search(r"set\(LOADPLAN_HEADERS ([^)]*)\)", text)[1].split()


def undocumented(lines):
    """(line number, declaration) of what has no comment."""
    is_told, declaration, start = False, "", 0
    for number, line in enumerate(lines, 1):
        if declaration:
            declaration += " " + line.strip()
        elif not line.strip():
            is_told = False
        elif line.startswith("/*"):
            is_told = not SECTION.match(line)
        elif line.startswith("LP_API "):
            declaration, start = line, number
        if ";" in declaration:
            if not is_told and "/*" not in declaration:
                yield start, declaration
            declaration = ""


def main():
    root = pathlib.Path(sys.argv[1])
    wrong, functions = [], 0
    for header in headers_of(root):
        lines = (root / header).read_text().splitlines()
        functions += sum(line.startswith("LP_API ") for line in lines)
        wrong += [f"{header}:{number}: no comment says what it does: {text}" for number, text in undocumented(lines)]
    print("\n".join(wrong) if wrong else f"{functions} public functions: documented")
    sys.exit(1 if wrong or functions == 0 else 0)


if __name__ == "__main__":
    main()
