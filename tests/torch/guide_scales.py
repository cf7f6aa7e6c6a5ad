# SPDX-License-Identifier: Apache-2.0
"""The loaders of docs/torch.md: NVFP4 expert scales as an engine loads them, and as views and copies. Run it for the
output that the page shows."""
import os
import sys
import tempfile

import torch
from safetensors.torch import save_file

import loadplan

EXPERTS, HIDDEN, INTER = 4, 64, 128


class Before(torch.nn.Module):
    def __init__(self):
        super().__init__()
        new = lambda *shape, dtype=torch.float32: torch.nn.Parameter(torch.zeros(*shape, dtype=dtype), requires_grad=False)  # noqa: E731
        self.w13_weight_scale_2 = new(EXPERTS)
        self.w2_input_scale = new(EXPERTS)
        self.w2_weight_scale = new(EXPERTS, HIDDEN, INTER // 16, dtype=torch.float8_e4m3fn)
        self.register_buffer("l2_activation_scale", torch.ones(()))
        self._half, self._most = {}, 0.0

    def load_weights(self, weights):
        for name, w in weights:
            expert, part, what = name.removeprefix("experts.").split(".")
            expert = int(expert)
            if what == "weight_scale_2" and part in ("w1", "w3"):
                other = self._half.pop(expert, None)
                if other is None:
                    self._half[expert] = w
                elif not torch.allclose(w, other, rtol=1e-5):
                    raise ValueError(f"w1 and w3 differ for expert {expert}")
                self.w13_weight_scale_2.data[expert] = w
            elif what == "input_scale":
                self.w2_input_scale.data[expert] = w
                self._most = max(self._most, float(w))
                self.l2_activation_scale.fill_(self._most or 1.0)
            elif what == "weight_scale":
                self.w2_weight_scale.data[expert].copy_(w.repeat_interleave(1, dim=1).clone())


class After(torch.nn.Module):
    def __init__(self):
        super().__init__()
        new = lambda *shape, dtype=torch.float32: torch.nn.Parameter(torch.zeros(*shape, dtype=dtype), requires_grad=False)  # noqa: E731
        self.w13_weight_scale_2 = new(2, EXPERTS)
        self.w2_input_scale = new(EXPERTS)
        self.w2_weight_scale = new(EXPERTS, HIDDEN, INTER // 16, dtype=torch.float8_e4m3fn)
        self.register_buffer("l2_activation_scale", torch.ones(()))

    def load_weights(self, weights):
        for name, w in weights:
            expert, part, what = name.removeprefix("experts.").split(".")
            expert = int(expert)
            if what == "weight_scale_2" and part in ("w1", "w3"):
                self.w13_weight_scale_2.data[int(part == "w3"), expert] = w
            elif what == "input_scale":
                self.w2_input_scale.data[expert] = w
            elif what == "weight_scale":
                self.w2_weight_scale.data[expert].copy_(w)
        self.process()

    def process(self):
        most = self.w2_input_scale.max()
        self.l2_activation_scale.copy_(torch.where(most == 0, 1.0, most))
        torch.allclose(self.w13_weight_scale_2[1], self.w13_weight_scale_2[0], rtol=1e-5, atol=0)


def checkpoint(path, scale=1.0):
    tensors = {}
    for e in range(EXPERTS):
        for part in ("w1", "w3"):
            tensors[f"experts.{e}.{part}.weight_scale_2"] = torch.tensor(0.5 * (e + 1) * scale)
        tensors[f"experts.{e}.w2.input_scale"] = torch.tensor((e + 1) * scale)
        tensors[f"experts.{e}.w2.weight_scale"] = torch.randn(HIDDEN, INTER // 16).to(torch.float8_e4m3fn)
    save_file(tensors, path)
    return tensors


def main():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.safetensors")
        tensors = checkpoint(path)
        for make in (Before, After):
            model = make()
            trace = loadplan.record(model.load_weights, path, model)
            found = trace.check()
            print(f"{make.__name__}: {found.summary}")
            for f in found:
                print(f"  {f.level} {f.rule} at {f.file}:{f.line}: {f.family} ({f.members} tensors)")
            for place in sorted({(r["operation"], r["reason"], r["file"], r["line"]) for r in trace.refusals}):
                print("  refused: %s (%s) at %s:%s" % place)
        with loadplan.Session(trace, model, "direct") as session:
            for name, tensor in reversed(tensors.items()):
                session.push(name, tensor)
        print(f"l2_activation_scale after a reload: {model.l2_activation_scale.item()}; {session.report.derives_run} derives")
        ok = model.l2_activation_scale.item() == EXPERTS and not trace.refusals
        tensors["experts.2.w3.weight_scale_2"] = torch.tensor(9.0)
        try:
            loadplan.replay(trace, model, tensors)
            ok = False
        except loadplan.LoadplanError as error:
            print(f"{error.status}: {error}")
        sys.exit(not ok)


if __name__ == "__main__":
    torch.set_grad_enabled(False)
    main()
