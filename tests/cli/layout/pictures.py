# SPDX-License-Identifier: Apache-2.0
"""pictures.py [--write]: the pictures of docs/layouts against the program, and what they show against the formulas.

Layouts whose axes differ in the width of a row only share a picture, named after the first of them; docs/layouts.md
shows each picture and names the layouts that it stands for. --write draws the committed files anew.
"""
import json
import pathlib
import re
import subprocess
import sys
import xml.etree.ElementTree as xml

DOCS = pathlib.Path(__file__).resolve().parents[3] / "docs"
SVG = "{http://www.w3.org/2000/svg}"
BYTES_MOST, WIDTH = 30 * 1000, 800
LEFT, RIGHT, RIGHT_WIDTH, ADDRESS = 56, 436, 244, 686  # where the drawing has its columns
SHAPES = (None, "E=1,H=512,I=256", "E=3,H=1536,I=768")


def loadplan(*arguments):
    return subprocess.run(["loadplan", "layout", *arguments], check=True, capture_output=True, text=True).stdout


def order_of(chain):
    """The chain without the experts and without how wide a row is."""
    extents, axes, memory, rest = re.fullmatch(r"\[(.*)\] as \((.*)\) -> memory \((.*)\)(.*)", chain).groups()
    pairs = [(axis, re.sub("^[HI].*", "*", extent) if axis in "cw" else extent)
             for axis, extent in zip(axes.split(","), extents.split(",")) if axis != "e"]
    return str(pairs) + str([axis for axis in memory.split(",") if axis != "e"]) + rest


def shared_pictures(names):
    groups = {}
    for name in names:
        groups.setdefault(order_of(json.loads(loadplan(name, "--format=json"))["chain"]), []).append(name)
    return {group[0]: group for group in groups.values()}


def number(element, attribute):
    return int(element.get(attribute))


class Picture:
    """What a reader sees: rows on the left, cells of memory on the right."""

    def __init__(self, name, text):
        self.name, self.root = name, xml.fromstring(text)
        self.texts = [(number(t, "x"), number(t, "y"), (t.get("class") or "").split(), t.text)
                      for t in self.root.iter(SVG + "text")]
        offsets = {x: int(t) for x, _, _, t in self.texts if re.fullmatch(r"\+\d+", t)}
        address = {y: int(t) for x, y, _, t in self.texts if x == ADDRESS and t.isdigit()}
        self.cells = {}  # (middle x, top y) -> tensor, row, offset
        for x, y, classes, t in self.texts:
            match = re.fullmatch(r"(w[123]) (?:row )?(\d+)", t)
            if classes == ["c"] and x > RIGHT and match:
                self.cells[x, y - 10] = match[1], int(match[2]), address[y] + offsets.get(x, 0)
        self.labels = {y - 10: int(t) for x, y, _, t in self.texts if x == LEFT - 5 and t.isdigit()}

    def fail(self, what):
        sys.exit(f"{self.name}: {what}")

    def check_cells(self, inverse):
        """each cell holds the row that the printed formula says, and none is missing in between"""
        if not self.cells:
            self.fail("no cells")
        for tensor, row, off in self.cells.values():
            seen = {}
            for part in inverse.split(", "):
                variable, expression = part.split(" = ")
                seen[variable] = eval(expression.replace("/", "//"), {}, {"off": off})
            wanted = {"t": row, "c": 0, "e": 0}
            if tensor != "w2":
                wanted["half"] = int(tensor == "w3")
            if any(wanted[variable] != value for variable, value in seen.items()):
                self.fail(f"offset {off} is drawn as {tensor} row {row}, the formula says {seen}")
        if len({off for _, _, off in self.cells.values()}) != len(self.cells):
            self.fail("an address is drawn twice")

    def cell_at(self, y):
        [cell] = [cell for (_, top), cell in self.cells.items() if top == y]
        return cell

    def check_ribbons(self):
        drawn = 0
        for path in self.root.iter(SVG + "path"):
            classes = path.get("class").split()
            if "w" not in classes:
                continue
            _, left, right, bottom = map(int, re.match(r"M(\d+) (\d+)C\d+ \d+ \d+ \d+ \d+ (\d+)V(\d+)", path.get("d")).groups())
            for y in range(0, bottom - right, 13):
                tensor, row, _ = self.cell_at(right - 1 + y)
                if self.labels[left - 1 + y] != row or {"w1": "g", "w3": "u", "w2": "d"}[tensor] not in classes:
                    self.fail(f"a ribbon joins {classes} row {self.labels[left - 1 + y]} and {tensor} row {row}")
                drawn += 1
        return drawn

    def check_arrows(self):
        """a dot on the row, then the outline of its cell"""
        elements = list(self.root)
        top = {}
        for rect in self.root.iter(SVG + "rect"):
            classes = (rect.get("class") or "").split()
            if len(classes) == 2 and classes[0] == "cell" and number(rect, "x") == LEFT:
                top[classes[1][0]] = min(top.get(classes[1][0], 1 << 20), number(rect, "y"))
        drawn = 0
        for at, dot in enumerate(elements):
            if dot.tag != SVG + "circle":
                continue
            outline, shard = elements[at + 2], dot.get("class")
            row = (number(dot, "cy") - 1 - top[shard]) // 3
            cell = self.cells[number(outline, "x") + number(outline, "width") // 2, number(outline, "y")]
            if cell[:2] != ({"g": "w1", "u": "w3", "d": "w2"}[shard], row):
                self.fail(f"an arrow joins {shard} row {row} and {cell}")
            drawn += 1
        return drawn

    def check_room(self):
        for x, y, classes, t in self.texts:
            wide = len(t) * (6.7 if "m" in classes else 10.5 if "t" in classes else 5.5)
            if "e" not in classes and x + (wide / 2 if "c" in classes else wide) > WIDTH or y > number(self.root, "height"):
                self.fail(f"no room for '{t}'")


def check_picture(name, shape):
    sizes = () if shape is None else ("--shape", shape.replace("E=3", "E=1") if "shared" in name else shape)
    text = loadplan(name, "--format=svg", *sizes)
    picture = Picture(name, text)
    if len(text) > BYTES_MOST:
        picture.fail(f"{len(text)} bytes")
    if "prefers-color-scheme:dark" not in text or re.search(r"<script|<image|@font-face|url\(|href", text):
        picture.fail("not self-contained, or not for dark")
    if shape is None:
        sizes = ("--shape", "E=1,H=4096,I=2048" if "shared" in name else "E=32,H=4096,I=2048")
    info = json.loads(loadplan(name, "--format=json", *sizes))
    picture.check_cells(info["inverse"])
    moves = picture.check_ribbons() + picture.check_arrows()
    if moves < 2:
        picture.fail("nothing says who goes where")
    picture.check_room()
    flat = " ".join(t for _, _, _, t in picture.texts)
    for wanted in (info["chain"], info["forward"], info["inverse"], str(info["stride_bytes"])):
        if wanted.replace(" ", "") not in flat.replace(" ", ""):
            picture.fail(f"'{wanted}' is not in it")


# Chains that docs/layouts.md shows, and for which sizes. What is in such pictures is checked by chain_pictures.py.
CHAINS = {"scale_128x4": "N=384,K=12", "gguf_q8_0_4x4": "N=8,B=3,P=34"}


def check_chains(text, write):
    for name, shape in CHAINS.items():
        path, picture = DOCS / "layouts" / f"{name}.svg", loadplan(name, "--shape", shape, "--format=svg")
        if write:
            path.write_text(picture)
        if not path.exists() or path.read_text() != picture:
            sys.exit(f"{path.name} is stale: run {sys.argv[0]} --write and look at it")
        if f"](layouts/{name}.svg)" not in text:
            sys.exit(f"layouts.md does not show {path.name}")


def main():
    names = [row["id"] for row in json.loads(loadplan("--format=json"))["layouts"]]
    pictures = shared_pictures(names)
    if sys.argv[1:] == ["--write"]:
        for name in pictures:
            (DOCS / "layouts" / f"{name}.svg").write_text(loadplan(name, "--format=svg"))
    for name in names:
        for shape in SHAPES:
            check_picture(name, shape)
    text = (DOCS / "layouts.md").read_text()
    check_chains(text, sys.argv[1:] == ["--write"])
    for name, group in pictures.items():
        path = DOCS / "layouts" / f"{name}.svg"
        if not path.exists() or path.read_text() != loadplan(name, "--format=svg"):
            sys.exit(f"{path.name} is stale: run {sys.argv[0]} --write and look at it")
        if f"](layouts/{name}.svg)" not in text:
            sys.exit(f"layouts.md does not show {path.name}")
        row = re.search(rf"^\| \[{name}\]\(layouts/{name}\.svg\) \| (.*) \|$", text, re.M)
        if row is None or row[1].split(", ") != group:
            sys.exit(f"layouts.md should say that {name}.svg stands for {', '.join(group)}")
    others = {path.stem for path in (DOCS / "layouts").iterdir()} - set(pictures) - set(CHAINS)
    if others:
        sys.exit(f"no layout has the pictures {sorted(others)}")
    print(f"{len(names)} layouts, {len(pictures)} pictures")


main()
