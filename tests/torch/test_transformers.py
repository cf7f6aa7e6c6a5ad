# SPDX-License-Identifier: Apache-2.0
"""transformers' from_pretrained, unchanged, against what it loads by itself."""
import os
import tempfile
import unittest

os.environ.update(HF_HUB_OFFLINE="1")

import torch  # noqa: E402
import transformers  # noqa: E402

import loadplan  # noqa: E402
import vllm_families  # noqa: E402


class FromPretrained(unittest.TestCase):
    def check(self, family, folder):
        payload = vllm_families.save(family, folder)
        load = lambda: transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16)  # noqa: E731
        real = load()
        with loadplan.capture(folder, loader="torch:transformers") as recording:
            model = load()
            recording.add(model)
        trace = recording.trace
        self.assertEqual(trace.refusals, [])
        self.assertEqual([f.rule for f in trace.check() if f.level == "deny"], [])
        for tensor in model.parameters():
            tensor.data = torch.zeros(tensor.shape, dtype=tensor.dtype)
        model.tie_weights()
        loadplan.replay(trace, model, payload)
        for (name, a), (_, b) in zip(real.state_dict().items(), model.state_dict().items(), strict=True):
            self.assertTrue(torch.equal(a, b), name)

    def test_families(self):
        for family in ("llama", "qwen3_moe", "gemma2", "falcon", "gpt2", "mamba2"):
            with self.subTest(family), tempfile.TemporaryDirectory() as folder:
                self.check(family, folder)


if __name__ == "__main__":
    torch.set_grad_enabled(False)
    unittest.main()
