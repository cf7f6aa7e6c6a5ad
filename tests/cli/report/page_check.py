# SPDX-License-Identifier: Apache-2.0
"""A report must be well-formed, hold no script, and refer to nothing but itself."""
import html.parser
import re
import sys

VOID = {"meta", "br", "wbr", "link", "img", "input", "hr", "rect"}
ALLOWED = {"html", "head", "meta", "title", "style", "body", "h1", "h2", "h3", "p", "span", "nav", "a", "main", "dl", "div", "dt",
           "dd", "section", "code", "table", "thead", "tbody", "tr", "th", "td", "br", "wbr", "ul", "li", "svg", "defs",
           "pattern", "path", "rect"}


def luminance(colour):
    if len(colour) == 4:
        colour = "#" + "".join(c * 2 for c in colour[1:])
    parts = [int(colour[i:i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrasts(style):
    """The worst contrast of text on its ground, in light, dark and print."""
    worst, colours = 99, {}
    for scheme in re.findall(r":root\{([^}]*)\}", style):
        colours |= dict(re.findall(r"--([a-z0-9]+):(#[0-9a-f]{3,6})", scheme))
        for ground in ("ground", "card"):
            for ink in ("ink", "soft", "deny", "warn", "fine"):
                a, b = sorted((luminance(colours[ground]), luminance(colours[ink])), reverse=True)
                worst = min(worst, (a + 0.05) / (b + 0.05))
    return worst


class Page(html.parser.HTMLParser):
    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.open, self.ids, self.links, self.seen = [], set(), [], {}

    def handle_starttag(self, tag, attributes, closed=False):
        assert tag in ALLOWED, f"<{tag}> at {self.getpos()}"
        self.seen[tag] = self.seen.get(tag, 0) + 1
        for name, value in attributes:
            assert not name.startswith("on") and name not in {"src", "srcset", "action", "xlink:href", "data"}, name
            if name == "id":
                assert value not in self.ids, value
                self.ids.add(value)
            if name == "href":
                self.links.append(value)
            if name == "fill":
                self.links.append(re.fullmatch(r"url\((#[a-z-]+)\)", value)[1])
            if name == "style":
                assert re.fullmatch(r"width:[0-9.]+%|position:absolute", value), value
        if tag not in VOID and not closed:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes, closed=True)

    def handle_endtag(self, tag):
        assert self.open and self.open[-1] == tag, f"</{tag}> at {self.getpos()} closes {self.open[-1:]}"
        self.open.pop()


for path in sys.argv[1:]:
    text = open(path, encoding="utf-8").read()
    page = Page()
    page.feed(text)
    page.close()
    assert not page.open, page.open
    assert text.startswith("<!DOCTYPE html>") and 'lang="en"' in text and "default-src 'none'" in text
    assert all(link[0] == "#" and link[1:] in page.ids for link in page.links), page.links
    style = text[text.index("<style>"):text.index("</style>")]
    assert "url(" not in style and "@import" not in style and "expression" not in style
    assert not re.search(r"https?:|//[a-z]", text), "a reference to elsewhere"
    assert all(c >= " " or c == "\n" for c in text), "a control character"
    assert "prefers-color-scheme:dark" in style and "@media print" in style
    assert len(re.findall(r":root\{", style)) == 3 and contrasts(style) >= 4.5, contrasts(style)
    assert page.seen["svg"] == text.count("<title>") - 1 + text.count('aria-hidden="true"'), "an svg without words"
    print(path, len(page.ids), "ids", page.seen["section"], "rows", page.seen["rect"], "rectangles")
