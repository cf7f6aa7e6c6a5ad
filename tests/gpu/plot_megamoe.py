#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws what bench_megamoe prints: microseconds of a call, and how fast its products are, over the number of tokens.

    plot_megamoe.py SHAPE [BENCH_OUTPUT] [--beside NAME=TOKENS:US,...] > out.svg
"""
import html
import math
import re
import sys

LINE = re.compile(r"^(\S+)\s+(\S+)\s+(\d+) tokens\s+\d+ hit \|\s+([\d.]+) us .*?([\d.]+) TFLOP/s")
COLOURS = {"mxfp4": "#1b7f4d", "nvfp4": "#2463c4", "fp8": "#c0392b", "mxfp8": "#8e44ad", "bf16": "#7a6a00"}
WIDTH, HEIGHT, LEFT, TOP, GAP = 400, 300, 62, 34, 86
STYLE = """text{font:12px sans-serif;fill:#222}.axis{stroke:#888;stroke-width:1}.grid{stroke:#ddd;stroke-width:1}
.title{font-weight:bold}.line{fill:none;stroke-width:2}.beside{stroke-dasharray:5 4}
@media (prefers-color-scheme:dark){svg{background:#161616}text{fill:#ddd}.grid{stroke:#333}}"""


def read(text, shape):
    """{format: [(tokens, us, TFLOP/s)]}, tokens ascending; the last of several measurements counts."""
    found = {}
    for line in text.splitlines():
        match = LINE.match(line)
        if match and match[2] == shape:
            found.setdefault(match[1], {})[int(match[3])] = (float(match[4]), float(match[5]))
    return {name: [(tokens, *point) for tokens, point in sorted(points.items())] for name, points in found.items()}


def ticks(least, most):
    """1, 2, 5, 10, 20, ... from the last one that is not above `least` to the first that is not below `most`."""
    steps = [factor * 10 ** power for power in range(-3, 9) for factor in (1, 2, 5)]
    return [s for s in steps if max(t for t in steps if t <= least) <= s <= min(t for t in steps if t >= most)]


class Panel:
    """A pair of logarithmic axes."""

    def __init__(self, x, title, tokens, values):
        self.x, self.title = x, title
        self.tokens = (min(tokens), max(max(tokens), min(tokens) * 2))
        self.ticks = ticks(min(values), max(values))
        self.values = (self.ticks[0], self.ticks[-1])

    def at(self, tokens, value):
        def share(v, ends):
            return math.log(v / ends[0]) / math.log(ends[1] / ends[0])
        return self.x + WIDTH * share(tokens, self.tokens), TOP + HEIGHT * (1 - share(value, self.values))

    def frame(self):
        yield f'<text class="title" x="{self.x}" y="{TOP - 14}">{html.escape(self.title)}</text>'
        for tick in self.ticks:
            y = self.at(self.tokens[0], tick)[1]
            yield f'<line class="grid" x1="{self.x}" x2="{self.x + WIDTH}" y1="{y:.1f}" y2="{y:.1f}"/>'
            yield f'<text x="{self.x - 6}" y="{y + 4:.1f}" text-anchor="end">{tick:g}</text>'
        tokens = self.tokens[0]
        while tokens <= self.tokens[1]:
            x = self.at(tokens, self.values[0])[0]
            yield f'<text x="{x:.1f}" y="{TOP + HEIGHT + 16}" text-anchor="middle">{tokens}</text>'
            tokens *= 4
        yield f'<path class="axis" fill="none" d="M{self.x} {TOP}V{TOP + HEIGHT}H{self.x + WIDTH}"/>'
        yield f'<text x="{self.x + WIDTH / 2}" y="{TOP + HEIGHT + 34}" text-anchor="middle">tokens a rank</text>'

    def line(self, points, colour, beside):
        where = " ".join(f"{x:.1f},{y:.1f}" for x, y in (self.at(*p) for p in points))
        yield f'<polyline class="line{" beside" if beside else ""}" stroke="{colour}" points="{where}"/>'


def draw(shape, measured, beside):
    tokens = [t for points in measured.values() for t, _, _ in points]
    times = [us for points in measured.values() for _, us, _ in points] + [us for points in beside.values() for _, us in points]
    rates = [rate for points in measured.values() for _, _, rate in points]
    panels = (Panel(LEFT, f"{shape}: time of a call, us", tokens, times),
              Panel(LEFT + WIDTH + GAP, f"{shape}: products, TFLOP/s", tokens, rates))
    width, height = LEFT + 2 * WIDTH + GAP + 20, TOP + HEIGHT + 76
    yield f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img"><style>{STYLE}</style>'
    for panel in panels:
        yield from panel.frame()
    for name, points in measured.items():
        colour = COLOURS.get(name.split("-")[0], "#666")
        yield from panels[0].line([(t, us) for t, us, _ in points], colour, "-" in name)
        yield from panels[1].line([(t, rate) for t, _, rate in points], colour, "-" in name)
    for points in beside.values():
        yield from panels[0].line(points, "#888", True)
    x = LEFT
    for name in [*measured, *beside]:
        colour = COLOURS.get(name.split("-")[0], "#888" if name in beside else "#666")
        dashed = ' class="beside"' if name in beside or "-" in name else ""
        yield f'<path{dashed} d="M{x} {height - 16}h24" stroke="{colour}" stroke-width="2"/>'
        yield f'<text x="{x + 30}" y="{height - 12}">{html.escape(name)}</text>'
        x += 48 + 8 * len(name)
    yield "</svg>"


def main():
    arguments = sys.argv[1:]
    beside = {}
    while "--beside" in arguments:
        at = arguments.index("--beside")
        name, points = arguments[at + 1].split("=")
        beside[name] = [(int(t), float(us)) for t, us in (p.split(":") for p in points.split(","))]
        del arguments[at:at + 2]
    if not 1 <= len(arguments) <= 2:
        sys.exit(__doc__)
    text = open(arguments[1]).read() if len(arguments) == 2 else sys.stdin.read()
    measured = read(text, arguments[0])
    if not measured:
        sys.exit(f"there is no line about '{arguments[0]}'")
    print("\n".join(draw(arguments[0], measured, beside)))


if __name__ == "__main__":
    main()
