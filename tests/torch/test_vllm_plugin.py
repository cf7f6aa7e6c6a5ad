# SPDX-License-Identifier: Apache-2.0
"""The real engine with --load-format loadplan: the same tokens as with its own loader, cold and from a cached trace."""
import os
import sys
import tempfile
import unittest

os.environ.update(VLLM_TARGET_DEVICE="cpu", HF_HUB_OFFLINE="1", VLLM_ENABLE_V1_MULTIPROCESSING="0", CUDA_VISIBLE_DEVICES="",
                  VLLM_NO_USAGE_STATS="1", VLLM_LOGGING_LEVEL="ERROR", VLLM_CPU_KVCACHE_SPACE="1")

from vllm_loaders import in_child  # noqa: E402
import vllm_families  # noqa: E402


def make(folder, seed):
    import transformers as tf
    config = tf.LlamaConfig(**{**vllm_families.COMMON, "hidden_size": 256, "num_attention_heads": 4})  # heads of 64
    vllm_families.FAMILIES["serving"] = (lambda: tf.LlamaForCausalLM(config), False)
    vllm_families.save("serving", folder, seed=seed)


def tokens(folder, load_format, cache):
    """What the engine generates, and how many traces lie in the cache."""
    from vllm import LLM, SamplingParams
    if load_format == "loadplan":
        import loadplan.vllm_plugin
        loadplan.vllm_plugin.register()
        loadplan.vllm_plugin.register()
    llm = LLM(model=folder, skip_tokenizer_init=True, dtype="float32", enforce_eager=True, max_model_len=64,
              load_format=load_format, model_loader_extra_config={"cache": cache} if load_format == "loadplan" else {})
    prompts = [{"prompt_token_ids": p} for p in ([1, 2, 3, 4], [290, 7, 7], [42])]
    said = llm.generate(prompts, SamplingParams(temperature=0, max_tokens=12, detokenize=False), use_tqdm=False)
    traces = {os.path.join(top, name): os.stat(os.path.join(top, name)).st_mtime_ns
              for top, _, names in os.walk(cache) for name in names}
    return [list(one.outputs[0].token_ids) for one in said], traces


class Plugin(unittest.TestCase):
    def call(self, function, *arguments):
        result = in_child(function, *arguments)
        if isinstance(result, str):
            self.fail(result)
        return result

    def test_tokens(self):
        with tempfile.TemporaryDirectory() as cache, tempfile.TemporaryDirectory() as first, \
                tempfile.TemporaryDirectory() as second:
            self.call(make, first, 1)
            self.call(make, second, 2)
            expected, none = self.call(tokens, first, "auto", cache)
            self.assertEqual(none, {})
            got, recorded = self.call(tokens, first, "loadplan", cache)
            self.assertEqual(got, expected)
            self.assertEqual(len(recorded), 1)
            again, kept = self.call(tokens, first, "loadplan", cache)
            self.assertEqual(again, expected)
            self.assertEqual(kept, recorded)  # bound, not recorded anew
            # Other weights under the same names: the same trace serves them.
            other, _ = self.call(tokens, second, "auto", cache)
            self.assertNotEqual(other, expected)
            replayed, kept = self.call(tokens, second, "loadplan", cache)
            self.assertEqual(replayed, other)
            self.assertEqual(kept, recorded)
            # A cache that holds something else is recorded anew.
            path = next(iter(recorded))
            with open(path, "wb") as f:
                f.write(b"no trace")
            healed, kept = self.call(tokens, first, "loadplan", cache)
            self.assertEqual(healed, expected)
            self.assertGreater(os.stat(path).st_size if os.path.exists(path) else 0, 8)


if __name__ == "__main__":
    sys.exit(unittest.main())
