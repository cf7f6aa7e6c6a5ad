# SPDX-License-Identifier: Apache-2.0
"""hostile_names.py: runs what prints names on a trace and a checkpoint whose names are made to harm a terminal, a page, a
log or a runner of CI, and says which output has something of them in it.

Everything that printed a control character, a mark of direction or a command at the start of a line is named; so is JSON
or XML that does not parse, and a crash.
"""
import json
import os
import pathlib
import re
import struct
import subprocess
import xml.dom.minidom

EVIL = ('\x1b[31m\x07\n::error::x\r\t\x9b31m\x85\u202e\u2028\u200b\ufeff\x7f`|<b>&"]]>%0a##[error]x' "'")
ESCAPED = json.dumps(EVIL)[1:-1]
HARM = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]|^\\s*::error::x",
                  re.MULTILINE)


def evil_trace(text):
    """The text of the fuzz corpus' trace with evil names, operations, files and layouts; rows in the new order."""
    old = json.dumps('ä "quoted" \\ name\n')[1:-1]
    for a, b in ((old, ESCAPED), ("two parts", "::error::" + ESCAPED), ("loader.py", ESCAPED), ("narrow(0,0,8)", ESCAPED),
                 ("aten.max", ESCAPED), ("reads a value\\non", "::error::" + ESCAPED), ("fixture", ESCAPED),
                 ("w13_rows", ESCAPED), ("b=\\u00e4", "::error::x" + ESCAPED), ("model-1", ESCAPED), ("pool", ESCAPED)):
        assert a in text, a
        text = text.replace(a, b)
    rows, lines = [], []
    groups = {"name": 0, "dest": 1, "copy": 2, "cast": 2, "fill": 2}

    def name_of(line):
        found = re.match(r'\w+ ("(?:[^"\\]|\\.)*")', line)
        return json.loads(found.group(1)).encode() if found else b""

    for line in text.splitlines():
        group = groups.get(line.split(" ", 1)[0])
        if rows and group != groups.get(rows[0].split(" ", 1)[0]):
            lines += sorted(rows, key=name_of) if rows[0].split(" ", 1)[0] != "fill" else rows
            rows = []
        if group is None:
            lines.append(line)
        else:
            rows.append(line)
    return "\n".join(lines) + "\n"


def harm_in(text, is_for_people):
    found = HARM.search(text)
    return found or (re.search("##\\[", text) if is_for_people else None)


def run(*command, parse=None):
    done = subprocess.run(["loadplan", *command], capture_output=True, timeout=120)
    shown = " ".join(part if part.isascii() and part.isprintable() else "EVIL" for part in command)
    if done.returncode not in range(6):
        print(f"{shown}: exit {done.returncode}: {done.stderr.decode(errors='replace')[-300:]}")
    for stream in (done.stdout, done.stderr):
        found = harm_in(stream.decode(), parse is None and command[0] != "dump" and "--format=suppress" not in command)
        if found:
            print(f"{shown}: prints {stream.decode()[max(found.start() - 30, 0):found.end() + 10]!r}")
    try:
        if parse and done.stdout:
            parse(done.stdout)
    except ValueError as error:
        print(f"{shown}: {error}")
    return done.returncode


def lines_of_json(text):
    for line in text.splitlines():
        json.loads(line)


corpus = pathlib.Path(os.environ["TESTS"]) / "fuzz" / "corpus" / "dump" / "everything"
pathlib.Path("good.txt").write_bytes(corpus.read_bytes())
pathlib.Path("evil.txt").write_text(evil_trace(corpus.read_text()))
for name in ("good", "evil"):
    if run("undump", f"{name}.txt", "-o", f"{name}.lpt") != 0:
        raise SystemExit(f"{name}.txt is no trace")
parsers = {"text": None, "json": json.loads, "ndjson": lines_of_json, "github": None, "sarif": json.loads,
           "junit": xml.dom.minidom.parseString, "suppress": None}
for form, parse in parsers.items():
    run("check", "evil.lpt", f"--format={form}", "--summary-file=page", parse=parse)
    run("diff", "good.lpt", "evil.lpt", f"--format={form}", parse=parse)
for option in ("--stat", "--numstat", "--name-only"):
    run("diff", "good.lpt", "evil.lpt", option)
for form in ("text", "json"):
    run("info", "evil.lpt", "--tensors", f"--format={form}", parse=parsers[form])
    run("explain", "evil.lpt", "--by=family", f"--format={form}", parse=parsers[form])
    run("explain", "evil.lpt", "--push-order", f"--format={form}", parse=parsers[form])
    run("query", "evil.lpt", "SELECT * FROM v_records WHERE rank = 0", f"--format={form}", parse=parsers[form])
run("query", "evil.lpt", "SELECT 9e999 AS x", "--format=json", parse=json.loads)
run("explain", "evil.lpt", "--tensor", EVIL, "--format=svg", parse=xml.dom.minidom.parseString)
run("dump", "evil.lpt")
run("replay", "evil.lpt", "--checkpoint", "good.lpt", "-o", "out")
run("check", EVIL)
run("check", "evil.lpt", "--rule", f"undecided={EVIL}")
run("report", "evil.lpt", "-o", "page.html")
for page in ("page", "page.html"):
    if HARM.search(pathlib.Path(page).read_text()):
        print(f"{page}: has {HARM.search(pathlib.Path(page).read_text()).group()!r}")
header = json.dumps({"__metadata__": {EVIL: EVIL}, EVIL: {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}}).encode()
pathlib.Path("evil.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + b"\0")
for form in ("text", "json"):
    run("info", "evil.safetensors", "--tensors", f"--format={form}", parse=parsers[form])
