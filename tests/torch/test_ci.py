# SPDX-License-Identifier: Apache-2.0
"""The workflow of docs/torch.md, run here: its steps in a small repository, with what GitHub would put into the environment."""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

import loadplan
import torch
from safetensors.torch import save_file

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = os.path.join(os.path.dirname(os.environ.get("LOADPLAN_LIBRARY", str(ROOT / "build" / "x"))), "loadplan")

LOADER = '''\
import torch


class Engine(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.zeros(4), requires_grad=False)
        self.top = torch.nn.Parameter(torch.zeros(()), requires_grad=False)

    def load_weights(self, weights):
        for name, w in weights:
            self.scale.data[int(name.split(".")[1])] = w
        self.top.copy_(self.scale.max())


def build(folder, tp, rank):
    engine = Engine()
    return engine.load_weights, engine
'''
WORSE = ("            self.scale.data[int(name.split(\".\")[1])] = w\n",
         "            self.scale.data[int(name.split(\".\")[1])] = float(w) * 2\n")

RANKED = '''\
import torch


def build(folder, tp, rank):
    scale = torch.zeros(4 // tp)

    def load(weights):
        for name, w in weights:
            expert = int(name.split(".")[1])
            if expert // (4 // tp) == rank:
                scale[expert % (4 // tp)] = w

    return load, {"scale": scale}
'''


def steps():
    """What the workflow's steps run."""
    text = (ROOT / "docs" / "torch.md").read_text()
    workflow = re.search(r"```yaml\n(name: loader\n.*?)```", text, re.S).group(1)
    return workflow, [re.sub(r"\n {10}", "\n", run.strip()) for run in
                      re.findall(r"run: \|?\n?((?:.+)(?:\n {10}.+)*)", workflow)]


class Workflow(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.here = pathlib.Path(self.folder.name)
        (self.here / "my_engine").mkdir()
        (self.here / "tiny").mkdir()
        (self.here / "traces").mkdir()
        (self.here / "my_engine" / "loader.py").write_text(LOADER)
        save_file({f"experts.{i}.scale": torch.tensor(float(i)) for i in range(4)}, self.here / "tiny" / "model.safetensors")
        for command in (["init", "-q"], ["config", "user.email", "a@b.c"], ["config", "user.name", "a"]):
            subprocess.run(["git", *command], cwd=self.here, check=True)
        self.environment = {**os.environ, "GITHUB_WORKSPACE": str(self.here), "GITHUB_ACTIONS": "true",
                            "GITHUB_OUTPUT": str(self.here / "output"), "GITHUB_STEP_SUMMARY": str(self.here / "summary"),
                            "RUNNER_TEMP": str(self.here), "PATH": os.path.dirname(PROGRAM) + os.pathsep +
                            os.path.dirname(sys.executable) + os.pathsep + os.environ["PATH"]}

    def tearDown(self):
        self.folder.cleanup()

    def run_step(self, command):
        done = subprocess.run(["bash", "-e", "-o", "pipefail", "-c", command], cwd=self.here, env=self.environment,
                              capture_output=True, text=True)
        return done.returncode, done.stdout + done.stderr

    def record(self, output, *more):
        return self.run_step(f"python -W ignore -m loadplan record --model tiny --loader my_engine.loader:build -o {output} "
                             + " ".join(more))

    def test_steps(self):
        workflow, commands = steps()
        self.assertEqual(self.record("traces/tiny.lpt")[0], 0)
        subprocess.run("git add . && git commit -q -m one", shell=True, cwd=self.here, check=True)
        mine = [command for command in commands if "pip install" not in command]
        self.assertEqual(len(mine), 2, commands)
        for command in mine:  # nothing has changed
            code, said = self.run_step(command)
            self.assertEqual(code, 0, said)
        (self.here / "my_engine" / "loader.py").write_text(LOADER.replace(*WORSE))
        line = LOADER.replace(*WORSE)[:LOADER.replace(*WORSE).index("float(w)")].count("\n") + 1
        (self.here / "new.lpt").unlink()
        code, said = self.run_step(mine[0])
        self.assertEqual(code, 0, said)
        self.assertIn(f"item (reads values on the host) at my_engine/loader.py:{line}", said)
        code, said = self.run_step(mine[1])
        self.assertEqual(code, 1, said)
        self.assertRegex(said, rf"::error file=my_engine/loader.py,line={line}[,:]")
        self.assertIn("copy_became_refusal", said)

    def test_action(self):
        """The same through this repository's own action."""
        script = ROOT / ".github" / "actions" / "loadplan-diff" / "diff.sh"
        if not script.exists():
            self.skipTest("there is no action here")
        self.assertEqual(self.record("traces/tiny.lpt")[0], 0)
        subprocess.run("git add . && git commit -q -m one", shell=True, cwd=self.here, check=True)
        (self.here / "my_engine" / "loader.py").write_text(LOADER.replace(*WORSE))
        self.environment.update(INPUT_NEW="new.lpt", INPUT_BASE="traces/tiny.lpt", INPUT_FAIL_ON="", INPUT_SUPPRESSIONS="",
                                INPUT_SARIF="", INPUT_LOADPLAN=PROGRAM, GITHUB_ACTION_PATH=str(script.parent),
                                INPUT_RECORD="python -W ignore -m loadplan record --model tiny --loader "
                                             "my_engine.loader:build -o new.lpt")
        code, said = self.run_step(str(script))
        self.assertEqual(code, 1, said)
        self.assertIn("::error file=my_engine/loader.py", said)

    def test_committed_trace_is_a_checkpoint(self):
        """The runner needs no checkpoint: the trace carries the catalogue."""
        self.assertEqual(self.record("traces/tiny.lpt")[0], 0)
        shutil.rmtree(self.here / "tiny")
        code, said = self.run_step("python -W ignore -m loadplan record --model traces/tiny.lpt --loader "
                                   "my_engine.loader:build -o new.lpt && loadplan diff traces/tiny.lpt new.lpt")
        self.assertEqual(code, 0, said)

    def test_worked_example(self):
        """The NVFP4 scales of docs/torch.md: before, record and check --fail-on=warn say no and where; after, both agree."""
        import guide_scales
        guide_scales.checkpoint(self.here / "tiny" / "model.safetensors")
        source = pathlib.Path(guide_scales.__file__).read_text().splitlines()
        wanted = ("torch.allclose(w", "self._most = max", "l2_activation_scale.fill_")
        lines = [next(i + 1 for i, text in enumerate(source) if part in text) for part in wanted]
        for name in ("Before", "After"):
            (self.here / "my_engine" / "scales.py").write_text(
                f"from guide_scales import {name}\n\n\ndef build(folder, tp, rank):\n    model = {name}()\n"
                "    return model.load_weights, model\n")
            recorded, said = self.run_step("python -W ignore -m loadplan record --model tiny --loader my_engine.scales:build "
                                           f"--fail-on-refusal -f -o {name}.lpt")
            checked, found = self.run_step(f"loadplan check {name}.lpt --fail-on=warn")
            if name == "Before":
                self.assertEqual((recorded, checked), (1, 1), said + found)
                for line in lines:
                    self.assertIn(f"guide_scales.py:{line}", said)
                self.assertIn(f"guide_scales.py:{lines[1]}", found)
            else:
                self.assertEqual((recorded, checked), (0, 0), said + found)
                self.assertIn("2 derives, 0 refusals", said)

    def test_all_ranks_in_one_trace(self):
        """--rank all: each rank in a process of its own, and what joins them is what `loadplan join` makes."""
        (self.here / "my_engine" / "loader.py").write_text(RANKED)
        for rank in (0, 1):
            self.assertEqual(self.record(f"rank-{rank}.lpt", "--tp 2", f"--rank {rank}")[0], 0)
        code, said = self.record("all.lpt", "--tp 2 --rank all")
        self.assertEqual(code, 0, said)
        self.assertIn("all.lpt: 4 copy; 0 derives, 0 refusals", said)
        code, said = self.run_step("loadplan join rank-1.lpt rank-0.lpt -o joined.lpt && cmp joined.lpt all.lpt && "
                                   "loadplan check all.lpt && loadplan info all.lpt")
        self.assertEqual(code, 0, said)
        self.assertIn("2 ranks", said)
        both = loadplan.join(loadplan.Trace.open(self.here / f"rank-{rank}.lpt") for rank in (0, 1))
        self.assertEqual(both.digest, loadplan.Trace.open(self.here / "all.lpt").digest)
        self.assertEqual([rank.tp_rank for rank in both.ranks], [0, 1])
        with self.assertRaisesRegex(loadplan.LoadplanError, "rank 0 is in an earlier trace already"):
            loadplan.join([both, loadplan.Trace.open(self.here / "rank-0.lpt")])
        (self.here / "my_engine" / "loader.py").write_text(RANKED.replace("def build(folder, tp, rank):",
                                                                          "def build(folder, tp, rank):\n    1 / (1 - rank)"))
        code, said = self.record("broken.lpt", "--tp 2 --rank all")
        self.assertEqual(code, 3, said)
        self.assertIn("rank 1 was not recorded", said)
        self.assertFalse((self.here / "broken.lpt").exists())

    def test_a_trace_is_whole_or_not_there(self):
        (self.here / "my_engine" / "loader.py").write_text(LOADER.replace(WORSE[0], "            raise KeyError(name)\n"))
        code, said = self.record("new.lpt")
        self.assertEqual(code, 3, said)
        self.assertRegex(said, r"the loader failed: KeyError: 'experts\.0\.scale' \(my_engine/loader\.py:\d+\)")
        self.assertFalse((self.here / "new.lpt").exists())
        (self.here / "new.lpt").write_text("mine")
        (self.here / "my_engine" / "loader.py").write_text(LOADER)
        code, said = self.record("new.lpt")
        self.assertEqual((code, (self.here / "new.lpt").read_text()), (3, "mine"), said)
        self.assertEqual(self.record("new.lpt", "-f")[0], 0)
        self.assertEqual(sorted(path.name for path in self.here.iterdir() if "lpt" in path.name), ["new.lpt"])


if __name__ == "__main__":
    unittest.main()
