#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Workflows, actions and the examples of them in docs: what they use is pinned, what they run is sound shell.

Another project's action is named by a full commit hash, with its version as a comment: a tag can be moved to other code
after it was read. No expression stands inside a script, where its value would become code: values come in by `env`.
"""
import pathlib
import re
import shutil
import subprocess
import sys

USES = re.compile(r"^(?:- )?uses:\s*(\S+)\s*(.*)$")
PINNED = re.compile(r"^[\w.-]+/[\w./-]+@[0-9a-f]{40}$")
VERSION = re.compile(r"^# v\d+(\.\d+)*$")
# What the documents say of this repository's own action: its reader fills in both.
OWN = re.compile(r"^OWNER/loadplan/[\w./-]+@VERSION$")
RUN = re.compile(r"^( *)(- )?run:\s*(.*)$")


def yaml_of(path):
    """(line number, line) of a YAML file, or of the YAML blocks of a document."""
    lines = list(enumerate(path.read_text().splitlines(), 1))
    if path.suffix != ".md":
        return lines
    inside, found = False, []
    for number, line in lines:
        if line.lstrip().startswith("```"):
            inside = line.strip() == "```yaml"
        elif inside:
            found.append((number, line))
    return found


def scripts_of(lines):
    """(line number, script) of each `run:`, on its line or as a block below it."""
    scripts, block = [], None
    for number, line in lines:
        if block and line.strip() and len(line) - len(line.lstrip()) <= block[0]:
            block = None
        found = RUN.match(line) if not block else None
        if block:
            block[2].append(line)
        elif found and found[3] in ("|", "|-", ">", ">-"):
            block = (len(found[1]) + len(found[2] or ""), number, [])
            scripts.append(block[1:])
        elif found:
            text = found[3]
            scripts.append((number, [text[1:-1] if text[:1] in ("'", '"') and text[-1:] == text[:1] else text]))
    return scripts


def judge_script(script):
    """What a shell or shellcheck has against a script that ends at its first failure; None where it is sound."""
    tool = ["shellcheck", "-s", "bash", "-S", "warning", "-"] if shutil.which("shellcheck") else ["bash", "-n"]
    run = subprocess.run(tool, input=f"set -e\n{script}\n", capture_output=True, text=True)
    return (run.stdout + run.stderr).strip() or "fails" if run.returncode else None


def main():
    root = pathlib.Path(sys.argv[1])
    github = [p for p in sorted((root / ".github").rglob("*")) if p.suffix in (".yml", ".yaml")]
    wrong, uses, scripts = [], 0, 0
    for path in github + sorted((root / "docs").glob("*.md")) + [root / "README.md"]:
        lines = yaml_of(path)
        for number, line in lines:
            found = USES.match(line.strip())
            if not found:
                continue
            uses += 1
            name, comment = found[1], found[2].strip()
            if name.startswith("./") or (path.suffix == ".md" and OWN.match(name)):
                continue
            if not PINNED.match(name):
                wrong.append(f"{path}:{number}: '{name}' is not pinned to a full commit hash")
            elif not VERSION.match(comment):
                wrong.append(f"{path}:{number}: '{name}' does not say its version as '# v1.2.3'")
        for number, script in scripts_of(lines):
            scripts += 1
            text = "\n".join(script)
            if "${{" in text:
                wrong.append(f"{path}:{number}: an expression inside a script becomes code: hand it in by env")
            complaint = judge_script(text)
            if complaint:
                wrong.append(f"{path}:{number}: {complaint}")
        if path in github and "workflows" in path.parts and not any(re.match(r"permissions:", line) for _, line in lines):
            wrong.append(f"{path}: does not say its permissions")
    print("\n".join(wrong) if wrong else f"{uses} uses and {scripts} scripts of workflows: fine")
    sys.exit(1 if wrong or uses == 0 or scripts == 0 else 0)


if __name__ == "__main__":
    main()
