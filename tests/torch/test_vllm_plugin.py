# SPDX-License-Identifier: Apache-2.0
"""The real engine with --load-format loadplan: the same tokens as with its own loader, cold and from a cached trace."""
import os
import sys
import tempfile
import unittest

import vllm_engine
from children import in_child
from vllm_engine import engine, logged, make, tokens

MOE = "moe"


def run(folder, load_format, cache, trace=None, **options):
    """What the engine generates, the traces in the cache with their times, and what loadplan logged."""
    extra = {"cache": cache, **({"trace": trace} if trace else {})} if load_format == "loadplan" else {}
    with logged() as lines:
        said = tokens(engine(folder, load_format, extra, **options))
    traces = {os.path.join(top, name): os.stat(os.path.join(top, name)).st_mtime_ns
              for top, _, names in os.walk(cache) for name in names}
    return said, traces, lines


def record_for(folder, target, path):
    """A trace recorded apart, as if on a machine with another target."""
    import loadplan.vllm
    from loadplan.vllm_plugin import record_model
    _, model = loadplan.vllm.start(folder, dtype="float32")
    record_model(folder, model, dict(tp=1, tp_rank=0), target).save(path, overwrite=True)


def leave_state(folder, load_format, cache):
    """A loader that leaves a Python value behind, which a replay alone would not."""
    from vllm.model_executor.models.llama import LlamaForCausalLM
    plain = LlamaForCausalLM.load_weights

    def leaving(self, weights):
        result = plain(self, weights)
        self.was_loaded = True
        return result

    LlamaForCausalLM.load_weights = leaving
    first = engine(folder, load_format, {"cache": cache})
    again = engine(folder, load_format, {"cache": cache})
    return [llm.llm_engine.model_executor.driver_worker.worker.model_runner.get_model().was_loaded for llm in (first, again)]


def with_another_rank(folder, cache, other):
    """One process that hears what a second rank says."""
    import loadplan.vllm_plugin as plugin
    plugin._exchange = lambda mine: [mine, other(mine)]
    return run(folder, "loadplan", cache)


def says_it_failed(mine):
    return {"error": "there is no trace '/traces/1.lpt'"}


def was_recorded_by_an_older_one(mine):
    import dataclasses
    return {**mine, "header": dataclasses.replace(mine["header"], loader_version="0.31.0")}


class Plugin(unittest.TestCase):
    def setUp(self):
        self.root = tempfile.TemporaryDirectory()
        self.cache, self.first, self.second, self.other = [os.path.join(self.root.name, name) for name in
                                                           ("cache", "first", "second", "other")]
        in_child(make, "llama", self.first, 1)

    def tearDown(self):
        self.root.cleanup()

    def test_tokens(self):
        in_child(make, "llama", self.second, 2)
        expected, none, _ = in_child(run, self.first, "auto", self.cache)
        self.assertEqual(none, {})
        got, recorded, _ = in_child(run, self.first, "loadplan", self.cache)
        self.assertEqual(got, expected)
        self.assertEqual([os.path.basename(path) for path in recorded], ["rank-00000.lpt"])
        again, kept, _ = in_child(run, self.first, "loadplan", self.cache)
        self.assertEqual(again, expected)
        self.assertEqual(kept, recorded)  # bound, not recorded anew
        # Other weights under the same names: the same trace serves them.
        other, _, _ = in_child(run, self.second, "auto", self.cache)
        self.assertNotEqual(other, expected)
        replayed, kept, _ = in_child(run, self.second, "loadplan", self.cache)
        self.assertEqual(replayed, other)
        self.assertEqual(kept, recorded)
        # A cache that holds something else is recorded anew.
        path = next(iter(recorded))
        with open(path, "wb") as f:
            f.write(b"no trace")
        healed, kept, lines = in_child(run, self.first, "loadplan", self.cache)
        self.assertEqual(healed, expected)
        self.assertGreater(os.stat(path).st_size, 8)
        self.assertTrue(any("does not fit and is recorded anew" in line for line in lines), lines)

    def test_given_trace(self):
        """A trace of another target is taken when bind proves its places and forms, and only then."""
        expected, _, _ = in_child(run, self.first, "auto", self.cache)
        path = os.path.join(self.root.name, "{rank}.lpt")
        in_child(record_for, self.first, "sm90", path.replace("{rank}", "0"))
        got, traces, lines = in_child(run, self.first, "loadplan", self.cache, path)
        self.assertEqual((got, traces), (expected, {}))
        self.assertTrue(any("was recorded for target 'sm90'" in line for line in lines), lines)
        in_child(make, MOE, self.other, 1)
        moe, _, _ = in_child(run, self.other, "auto", self.cache)
        got, traces, lines = in_child(run, self.other, "loadplan", self.cache, path)
        self.assertEqual((got, len(traces)), (moe, 1))
        self.assertTrue(any("does not fit" in line for line in lines), lines)
        # One that is not there is said, and nothing is made up for it.
        got, _, lines = in_child(run, self.first, "loadplan", self.cache, path + ".none")
        self.assertEqual(got, expected)
        self.assertTrue(any("there is no trace" in line for line in lines), lines)

    def test_ranks_that_disagree(self):
        expected, _, _ = in_child(run, self.first, "auto", self.cache)
        for other, text in ((says_it_failed, "for everything: rank 1: there is no trace"),
                            (was_recorded_by_an_older_one, "for everything: rank 1 has a trace of another loader")):
            got, _, lines = in_child(with_another_rank, self.first, self.cache, other)
            self.assertEqual(got, expected)
            self.assertTrue(any(text in line for line in lines), lines)

    def test_python_state(self):
        self.assertEqual(in_child(leave_state, self.first, "loadplan", self.cache), [True, True])


if __name__ == "__main__":
    vllm_engine.preload()
    sys.exit(unittest.main())
