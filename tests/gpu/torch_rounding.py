# SPDX-License-Identifier: Apache-2.0
"""How torch rounds Python numbers and scalar tensors on this GPU: for each operation, of how many results each reading of
the number explains. The rules are in recorder/torch/loadplan/_values.py; docs/measurements has a run.

python torch_rounding.py
"""
import torch

COUNT = 4096


def say(what, result, **readings):
    print(what, *(f"{name} {int((result == reading).sum())}" for name, reading in readings.items()), f"of {result.numel()}")


def readings(number, dtype):
    """The number as an F32, and as one of `dtype`, both as tensors: nothing is rounded again."""
    full = torch.full((COUNT,), number, device="cuda")
    return full, full.to(dtype).float()


def main():
    x = torch.randn(COUNT, generator=torch.Generator().manual_seed(0)).cuda()
    print(torch.__version__, torch.cuda.get_device_name())
    for dtype in (torch.bfloat16, torch.float16, torch.float32):
        v, kind = x.to(dtype), str(dtype).removeprefix("torch.")
        f = v.float()
        for number in (0.1, 1 / 3, 448.1):
            full, rounded = readings(number, dtype)
            inverse = (1 / full.cpu()).cuda()
            scalar = torch.tensor(number, device="cuda")
            for name, result, exact in (("add", v + number, lambda c: f + c), ("sub", v - number, lambda c: f - c),
                                        ("rsub", number - v, lambda c: c - f), ("mul", v * number, lambda c: f * c),
                                        ("scalar tensor, mul", v * scalar, lambda c: f * c),
                                        ("scalar tensor, add", v + scalar, lambda c: f + c),
                                        ("scalar tensor on the host, mul", v * scalar.cpu(), lambda c: f * c)):
                say(f"{kind} {number:.3f} {name}:", result, full=exact(full).to(dtype), rounded=exact(rounded).to(dtype))
            say(f"{kind} {number:.3f} div:", v / number, quotient=(f / full).to(dtype), by_reciprocal=(f * inverse).to(dtype))
            say(f"{kind} {number:.3f} gt:", v > number, full=f > full, rounded=f > rounded)
        say(f"{kind} sqrt:", v.abs().sqrt(), ieee=f.abs().double().sqrt().float().to(dtype))
        say(f"{kind} reciprocal:", v.reciprocal(), ieee=(1 / f.cpu()).to(dtype).cuda())


if __name__ == "__main__":
    main()
