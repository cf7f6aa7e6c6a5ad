# SPDX-License-Identifier: Apache-2.0
"""Two ranks of the real engine, each a process: tokens, a trace file each, one set digest, reloads."""
import glob
import os
import sys
import tempfile
import unittest

import vllm_engine
from children import in_child
from vllm_engine import engine, make, tokens

# The plug-in is found by vLLM's processes as an installed package would be: by its entry point.
ENTRY = {"METADATA": "Metadata-Version: 2.1\nName: loadplan\nVersion: 0.1.0\n",
         "entry_points.txt": "[vllm.general_plugins]\nloadplan = loadplan.vllm_plugin:register\n"}
FEW = 5  # two processes that wait for each other actively are slow on few cores
TWO = dict(tensor_parallel_size=2, distributed_executor_backend="mp")


def prepare(root):
    folder = os.path.join(root, "packages")
    os.makedirs(os.path.join(folder, "loadplan-0.1.0.dist-info"))
    for name, text in ENTRY.items():
        with open(os.path.join(folder, "loadplan-0.1.0.dist-info", name), "w") as f:
            f.write(text)
    os.environ["PYTHONPATH"] = folder + os.pathsep + os.environ.get("PYTHONPATH", "")
    sys.path.insert(0, folder)
    os.environ.update(VLLM_CPU_OMP_THREADS_BIND="nobind", VLLM_LOGGING_LEVEL="INFO", VLLM_CONFIGURE_LOGGING="1")


def ordinary(folder):
    os.environ["VLLM_WORKER_MULTIPROC_METHOD"] = "fork"  # of what is imported here; those that serve begin from nothing
    return tokens(engine(folder, "auto", **TWO), FEW)


def serve(first, second, cache):
    llm = engine(first, extra={"cache": cache}, **TWO, weight_transfer_config={"backend": "loadplan"})
    llm.init_weight_transfer_engine({"init_info": {}})
    said = [tokens(llm, FEW)]
    llm.start_weight_update()
    llm.update_weights({"update_info": {"checkpoint": second}})
    llm.finish_weight_update()
    said.append(tokens(llm, FEW))
    llm.start_weight_update()
    for file in sorted(glob.glob(os.path.join(first, "*.safetensors"))):
        llm.update_weights({"update_info": {"checkpoint": file}})
    llm.finish_weight_update()
    said.append(tokens(llm, FEW))
    return said, {path: os.stat(path).st_mtime_ns for path in sorted(glob.glob(os.path.join(cache, "*", "*")))}


class Ranks(unittest.TestCase):
    def test_two_ranks(self):
        kind = "llama"
        with tempfile.TemporaryDirectory() as root:
            first, second, cache = [os.path.join(root, name) for name in ("first", "second", "cache")]
            in_child(make, kind, first, 1)
            in_child(make, kind, second, 2)
            expected = [in_child(ordinary, folder) for folder in (first, second)]
            self.assertNotEqual(*expected)
            said, traces = in_child(serve, first, second, cache)
            self.assertEqual(said, [expected[0], expected[1], expected[0]])
            self.assertEqual([os.path.basename(path) for path in sorted(traces)], ["rank-00000.lpt", "rank-00001.lpt"])
            said, kept = in_child(serve, first, second, cache)
            self.assertEqual((said[0], kept), (expected[0], traces))


if __name__ == "__main__":
    vllm_engine.preload()
    with tempfile.TemporaryDirectory() as top:
        prepare(top)
        unittest.main()
