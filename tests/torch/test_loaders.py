# SPDX-License-Identifier: Apache-2.0
"""Every case of loader_cases.py and unseen_cases.py: recorded kinds, refusals with their lines, bytes equal to the loader's own."""
import inspect
import os
import random
import tempfile
import unittest

import torch
from safetensors.torch import save_file

import loadplan
import unseen_cases  # noqa: F401: registers its cases
from loader_cases import CASES

SEED = int(os.environ.get("LOADPLAN_TEST_SEED", random.SystemRandom().randrange(1 << 32)))


def random_tensor(generator, dtype, shape):
    if dtype == torch.float8_e8m0fnu:
        return torch.randint(0, 250, shape, generator=generator, dtype=torch.uint8).view(dtype)
    if dtype.is_complex:
        return torch.complex(torch.randn(shape, generator=generator), torch.randn(shape, generator=generator)).to(dtype)
    if dtype.is_floating_point:
        return torch.randn(shape, generator=generator).to(dtype)
    return torch.randint(0, 100, shape, generator=generator).to(dtype)


def data(tensor):
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8)


def parameters(initial, device="cpu"):
    return {name: torch.nn.Parameter(t.clone().to(device), requires_grad=False) for name, t in initial.items()}


def refused_lines(load):
    lines, first = inspect.getsourcelines(load)
    return {first + i for i, line in enumerate(lines) if line.rstrip().endswith("# refused")}


class Loaders(unittest.TestCase):
    def check(self, case, folder):
        generator = torch.Generator().manual_seed(SEED)
        sources = {name: random_tensor(generator, *form) for name, form in case.sources.items()}
        initial = {name: random_tensor(generator, *form) for name, form in case.dests.items()}
        path = os.path.join(folder, "model.safetensors")
        save_file(sources, path)
        order = sorted(sources)

        real = parameters(initial)
        for name in order:
            case.load(real, name, sources[name].clone())
        case.after(real)

        recorded = parameters(initial)
        with loadplan.capture(path, recorded) as recording:
            for name, tensor in recording.weights():
                case.load(recorded, name, tensor)
            case.after(recorded)
        trace = recording.trace
        kinds = " ".join(sorted({row["kind"] for row in trace.rows}))
        self.assertEqual(kinds, case.kinds)
        self.assertEqual(len(trace.query("SELECT * FROM v_derives")), case.derives)
        self.assertEqual({row["name"]: row["operation"] for row in trace.refusals}, case.refused)
        for row in trace.refusals:
            self.assertTrue(row["file"].endswith(os.path.basename(inspect.getfile(case.load))), row)
            self.assertIn(int(row["line"]), refused_lines(case.load) | refused_lines(case.after), row)
            self.assertTrue(row["reason"])
        unused = {f.tensor for f in trace.check() if f.rule == "checkpoint_name_unused"}
        self.assertEqual(unused, set(case.untouched))

        # The file says the same as the recording.
        saved = os.path.join(folder, f"{case.name}.lpt")
        trace.save(saved)
        opened = loadplan.Trace.open(saved)
        self.assertEqual(opened.digest, trace.digest)

        replayed = {name: torch.nn.Parameter(t.clone(), requires_grad=False) for name, t in initial.items()}
        with loadplan.Session(opened, replayed, "direct", allow_fallbacks=True) as session:
            for name in random.Random(SEED).sample(order, len(order)):
                if name not in case.refused:
                    session.push(name, sources[name])
        fallback = {row["destination"] for row in trace.refusals}
        for name in real:
            if name in fallback or name in case.undeclared:
                continue
            if case.approximate:
                torch.testing.assert_close(replayed[name].data, real[name].data, rtol=4e-7, atol=0)
            else:
                self.assertTrue(torch.equal(data(real[name]), data(replayed[name])), f"{name}: bytes differ")

    def test_table(self):
        with tempfile.TemporaryDirectory() as folder:
            for case in CASES:
                with self.subTest(case.name, seed=SEED):
                    self.check(case, folder)


    @unittest.skipUnless(torch.cuda.is_available(), "no GPU")
    def test_destinations_on_a_gpu(self):
        """Bytes as a GPU computes them from tensors that the loader gets on the host; replayed on the CPU."""
        generator, compared = torch.Generator().manual_seed(SEED), 0
        for case in CASES:
            with self.subTest(case.name, seed=SEED), tempfile.TemporaryDirectory() as folder:
                sources = {name: random_tensor(generator, *form) for name, form in case.sources.items()}
                initial = {name: random_tensor(generator, *form) for name, form in case.dests.items()}
                path = os.path.join(folder, "model.safetensors")
                save_file(sources, path)
                real, recorded, replayed = (parameters(initial, device) for device in ("cuda", "cuda", "cpu"))
                try:
                    for name in sorted(sources):
                        case.load(real, name, sources[name].clone())
                    case.after(real)
                except (RuntimeError, TypeError) as error:
                    if "device" in str(error):
                        continue  # a loader for one device
                    raise
                with loadplan.capture(path, recorded) as recording:
                    for name, tensor in recording.weights():
                        case.load(recorded, name, tensor)
                    case.after(recorded)
                refused = {row["name"] for row in recording.trace.refusals}
                with loadplan.Session(recording.trace, replayed, "direct", allow_fallbacks=True) as session:
                    for name in sorted(sources):
                        if name not in refused:
                            session.push(name, sources[name])
                fallback = {row["destination"] for row in recording.trace.refusals}
                for name in real.keys() - fallback - set(case.undeclared):
                    compared += 1
                    if case.approximate:
                        torch.testing.assert_close(replayed[name].data, real[name].data.cpu(), rtol=1e-6, atol=0)
                    else:
                        self.assertTrue(torch.equal(data(real[name].cpu()), data(replayed[name])), f"{name}: bytes differ")
        print(f"{compared} destinations on a GPU equal")


if __name__ == "__main__":
    unittest.main()
