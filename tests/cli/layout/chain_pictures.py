# SPDX-License-Identifier: Apache-2.0
"""Pictures of chains: every axis has a box above and one below, in the chain's order, and a line from one to the other;
with sizes the numbers at the boxes are the steps that the formula takes. Read against the chain's text alone."""
import json
import re
import subprocess
import xml.etree.ElementTree as ElementTree

SVG = "{http://www.w3.org/2000/svg}"
CASES = [("scale_128x4", "N=384,K=12"), ("marlin_int4", None), ("swizzle_64b", "N=24,K=192"), ("gguf_q8_0_4x4", "N=8,B=3,P=34"),
         ("fp6_llm", None), ("triton_hopper_bits", "64"), ("qkv_groups", None), ("onednn_nChw16c", "2,48,2,3"), ("up_gate", None)]


def run(*arguments):
    return subprocess.run(["loadplan", "layout", *arguments], check=True, capture_output=True, text=True).stdout


def sides(chain):
    """Axes of each part, above and below."""
    left, right = chain.split(" -> ")
    parts = len(left.split("|"))

    def choose(text, p):
        return re.sub(r"\(([^()]*)\)", lambda m: "(" + (m[1].split("|")[p] if "|" in m[1] else m[1]) + ")", text)

    for p in range(parts):
        above = []
        for name, inside in re.findall(r"(\w*)(\([^()]*\))?", choose(left, p).replace("=", "_is_")):
            above += inside.strip("()").split() if inside else [name] if name else []
        below = [re.sub(r"\[[\d ]*\]", "[...]", b) for b in re.findall(r"~?\w+(?:\[[\d ]*\])?(?:\^\w+)*", choose(right, p))]
        yield [a.split("_is_")[0] for a in above], below


def check(name, shape):
    sized = ["--shape", shape] if shape else []
    info = json.loads(run(name, *sized, "--format=json"))
    root = ElementTree.fromstring(run(name, *sized, "--format=svg"))
    boxes = [b for b in root.iter(SVG + "rect") if b.get("class") != "bg"]
    texts = [(int(t.get("x")), int(t.get("y")), t.text) for t in root.iter(SVG + "text")]
    lines = [tuple(map(int, re.findall(r"\d+", path.get("d")))) for path in root.iter(SVG + "path")]
    for above, below in sides(info["chain"]):
        rows = [boxes[:len(above)], boxes[len(above):2 * len(above)]]
        boxes = boxes[2 * len(above):]
        middles = []
        for row, names, step_y in ((rows[0], above, -6), (rows[1], below, 38 + 14)):
            middle = {}
            for box, axis in zip(row, names):
                x, y, width = (int(box.get(k)) for k in ("x", "y", "width"))
                at = x + width // 2
                assert (at, y + 16, axis) in texts, f"{name}: no {axis}"
                middle[re.sub(r"[~^\[].*", "", axis.lstrip("~"))] = at, y
                assert not shape or any(t[:2] == (at, y + step_y) and t[2][0] == "+" for t in texts), f"{name}: no step"
            assert len(middle) == len(names), f"{name}: {len(row)} boxes"
            middles.append(middle)
        for axis in middles[0]:
            (x0, y0), (x1, y1) = middles[0][axis], middles[1][axis]
            assert any(line[:2] == (x0, y0 + 38) and line[-2:] == (x1, y1) for line in lines), f"{name}: no line of {axis}"
    assert not boxes, f"{name}: more boxes"
    if name == "scale_128x4":
        steps = [t[2] for t in texts if t[2] and t[2].startswith("+")]
        assert steps == ["+1536", "+384", "+12", "+4", "+1", "+1536", "+512", "+16", "+4", "+1"], steps


for name, shape in CASES:
    check(name, shape)
print(f"{len(CASES)} pictures")
