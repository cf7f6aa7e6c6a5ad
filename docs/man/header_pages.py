#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Manual pages of section 3 from the public headers: header_pages.py FOLDER VERSION HEADER...

Writes scdoc sources: one page for each section of a header (what stands below a comment of the form
"---- title ----"), named after its first function, and one for the header as a whole. Every other function and type
gets a page of one line that names the page it is on, so that `man lp_finish` works. A page says what the header says, in
the header's order: each comment belongs to the declarations that follow it without a blank line.
"""
import re
import sys
import textwrap
from pathlib import Path

TITLE = re.compile(r"/\* -{2,} (.*?) -{2,}\s*\*/", re.S)
FUNCTION = re.compile(r"^(?P<result>[\w \t]+?[ *]+)(?P<name>lp_\w+)\((?P<parameters>.*)\)", re.S)
HERE_MACRO = re.compile(r"#define (lp_\w+)\(\.\.\.\)\s+(lp_\w+)\(LP_HERE((?:, [^,()]+)*), __VA_ARGS__\)")
TYPE_NAME = re.compile(r"(?:typedef [^{};(]*?|\} )(lp_\w+);$|typedef [^;]*\(\*(lp_\w+)\)\(", re.S)


class Item:
    """One comment or declaration; `gap`: a blank line stands before it; `trails`: it begins on the line of the last."""

    def __init__(self, text, gap, trails):
        self.text, self.gap, self.trails = text, gap, trails
        self.is_comment = text.startswith("/*")


def items_of(source):
    """Cuts what stands at file level into comments, preprocessor lines and declarations."""
    at, found = 0, []
    while True:
        blank = re.compile(r"\s*").match(source, at).group()
        at += len(blank)
        if at >= len(source):
            return found
        if source.startswith("/*", at):
            end = source.index("*/", at) + 2
        elif source[at] == "#":
            end = re.compile(r"(?:.*\\\n)*.*?(?=\s*/\*|\n|$)").match(source, at).end()
        else:
            end, depth = at, 0
            while True:
                if source.startswith("/*", end):
                    end = source.index("*/", end) + 2
                    continue
                depth += (source[end] in "{(") - (source[end] in "})")
                end += 1
                if depth == 0 and (source[end - 1] == ";" or (source[end - 1] == "}" and "(" in source[at:end]
                                                              and not source[at:end].startswith("typedef"))):
                    break
        found.append(Item(source[at:end], blank.count("\n") > 1, found != [] and "\n" not in blank))
        at = end


def prose_of(comment):
    """Paragraphs of a comment: (is_shown_as_it_is, text). Lines that are set in by two or more are shown."""
    body = comment[2:-2]
    lines = [re.sub(r"^ ?\*? ?", "", line.strip(), count=1) if i else line.strip() for i, line in enumerate(body.split("\n"))]
    paragraphs = []
    for line in lines:
        shown = line.startswith("  ")
        if not line.strip():
            paragraphs.append((None, ""))
        elif paragraphs and paragraphs[-1][0] is shown:
            paragraphs[-1] = (shown, paragraphs[-1][1] + ("\n" if shown else " ") + line.rstrip())
        else:
            paragraphs.append((shown, line.rstrip()))
    return [(shown, textwrap.dedent(text)) for shown, text in paragraphs if shown is not None]


def escape(text):
    text = re.sub(r"([\\*_`<>\[\]|#~^])", r"\\\1", text)
    text = re.sub(r"\blp(?:\\_[a-zA-Z0-9]+)+\b", lambda m: "*" + m.group() + "*", text)
    return "\\" + text if text[:1] in "-.:;=+" else text


def render_prose(comment, indent):
    out = []
    for shown, text in prose_of(comment):
        if shown:
            out += [indent + "```"] + [indent + line for line in text.split("\n")] + [indent + "```", ""]
        else:
            out += [indent + escape(text), ""]
    return out


def wrapped(result, name, parameters):
    """A prototype within 78 columns, broken between parameters only."""
    parameters = re.sub(r"\s+", " ", parameters).replace(", ", ",\n").replace(" ", "\0").replace("\n", " ")
    whole = (result.lstrip() + name).replace(" ", "\0") + "(" + parameters + ");"
    lines = textwrap.wrap(whole, 78, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False)
    return "\n".join(lines).replace("\0", " ")


def one_line(comment):
    return re.sub(r"\s*\n\s*\*\s*", " ", comment)


def with_remark(text, remark):
    if remark is None:
        return text
    return text + (" " if len(text.split("\n")[-1]) + len(remark) < 100 else "\n    ") + remark


class Header:
    def __init__(self, path):
        self.name = Path(path).name
        source = Path(path).read_text()
        source = source[source.index("*/") + 2:]                        # the licence
        comment = source[source.index("/*"):source.index("*/") + 2]
        self.about, self.comment = re.match(r"/\*\s*\* loadplan/[\w.]+: (.*?)\.?\n \*\n(.*)", comment, re.S).groups()
        self.about = re.sub(r"\s*\n \* ", " ", self.about)
        body = source[source.index("*/") + 2:].split('extern "C" {\n#endif', 1)
        body = body[-1].split("#ifdef __cplusplus\n}", 1)[0]
        body = re.sub(r"/\*[^*]*\*/\n(?=#ifdef __CUDACC__)", "", body)
        body = re.sub(r"\s*__attribute__\(\(format\(printf, \d+, \d+\)\)\)", "", body)
        body = re.sub(r"#include[^\n]*\n|#if.*?\n|#else\n|#endif\n?|#define LP_HOST_DEVICE[^\n]*\n|#define LOADPLAN_\w+_H\n", "", body)
        self.items = items_of(body)
        self.at, self.remark = {}, {}                    # functions that macros call with file and line; what trails them
        for item, after in zip(self.items, self.items[1:] + [None]):
            match = FUNCTION.match(item.text.replace("LP_API ", ""))
            if match and match["name"].endswith("_at"):
                self.at[match["name"]] = match
                if after and after.is_comment and after.trails:
                    self.remark[match["name"]] = one_line(after.text)

    def sections(self):
        """(title, items) in order; the first has no title: it belongs to the header's own page."""
        found = [("", [])]
        for item in self.items:
            title = TITLE.fullmatch(item.text)
            if title:
                found.append((title[1], []))
            elif item.text.startswith("typedef struct") and "{" not in item.text and item.text.count(";") == 1:
                found[-1][1].append(item)
            elif not item.text.startswith("#define LP_API"):
                found[-1][1].append(item)
        return found

    def declaration(self, item):
        """(text to show, names that it declares); macros over ..._at functions are shown as what a caller writes."""
        text = re.sub(r"\b(LP_API|LP_HOST_DEVICE) ", "", item.text)
        macro = HERE_MACRO.match(text)
        if macro:
            match = self.at[macro[2]]
            fixed = 2 + macro[3].count(",")
            parameters = re.sub(r"\s+", " ", match["parameters"]).split(", ")[fixed:]
            text = wrapped(match["result"], macro[1], ", ".join(parameters))
            return with_remark(text, self.remark.get(macro[2])), [macro[1]]
        if text.startswith("#define"):
            return text, re.findall(r"^#define (lp_\w+)", text)
        match = FUNCTION.match(re.sub(r"\s*\{.*", "", text, flags=re.S)) if not text.startswith("typedef") else None
        if match and match["name"] in self.at and self.is_macro_target(match["name"]):
            return "", [match["name"]]
        if match:
            return wrapped(match["result"], match["name"], match["parameters"]), [match["name"]]
        return text, [a or b for a, b in TYPE_NAME.findall(text)]

    def is_macro_target(self, name):
        return any(m and m[2] == name for m in (HERE_MACRO.match(i.text) for i in self.items))


def render_items(header, items):
    """The description of a section; its functions and macros, its types, and the functions that stand behind macros."""
    out, functions, types, behind = [], [], [], []
    comment, shown, about = None, [], []

    def flush():
        nonlocal comment, shown, about
        lines = [line for text in shown for line in text.split("\n")]
        if not lines and comment is not None:   # a remark on what stands behind a macro
            lines = about[:1]
        if lines:
            out.extend(["```"] + lines + ["```", ""])
        if comment is not None:
            out.extend(render_prose(comment, "\t" if lines else ""))
        comment, shown, about = None, [], []

    for item in items:
        if item.is_comment and item.trails:
            if shown:
                shown[-1] = with_remark(shown[-1], one_line(item.text))
            continue
        if item.is_comment or item.gap:
            flush()
        if item.is_comment:
            comment = item.text
            continue
        text, names = header.declaration(item)
        if text:
            shown.append(text)
            (types if item.text.startswith(("typedef", "struct", "enum")) else functions).extend(names)
        else:
            behind += names
            about += [name[:-len("_at")] for name in names]
    flush()
    return out, functions, types, behind


RETURN_VALUE = """# RETURN VALUE

Functions that return *lp\\_status* return LP\\_OK, or a negative value that *lp\\_status\\_name*(3) names; then they fill
_err_, which may be NULL and is untouched on success.
"""


def write_page(folder, version, name, names, behind, about, include, body, see):
    title = ", ".join([name] + [n for n in names if n != name])
    text = [f'{name}(3) "loadplan {version}" "loadplan"', "", "# NAME", "", f"{escape_names(title)} - {escape_names(about)}", ""]
    text += ["# SYNOPSIS", "", f"*#include <loadplan/{include}>*", ""]
    text += ["*cc* _FILE_ $(*pkg-config* --cflags --libs loadplan)", "", "# DESCRIPTION", ""] + body
    if any(line.startswith("lp_status ") for line in body):
        text += [RETURN_VALUE]
    text += ["# SEE ALSO", "", ", ".join("*" + escape_names(s).replace("(", "*(") for s in see), ""]
    (folder / f"{name}.3.scd").write_text("\n".join(text))
    for other in names + behind:
        if other != name:
            (folder / f"{other}.3").write_text(f".so man3/{name}.3\n")


def escape_names(text):
    return text.replace("_", "\\_")


def main():
    folder, version = Path(sys.argv[1]), sys.argv[2]
    headers = [Header(path) for path in sys.argv[3:]]
    overview = [f"loadplan-{h.name[:-2]}" for h in headers]
    for header, whole in zip(headers, overview):
        index = []
        own_body, own_names, own_behind = [], [], []
        for title, items in header.sections():
            body, functions, types, behind = render_items(header, items)
            if not title:
                own_body, own_names, own_behind = body, functions + types, behind
                continue
            names = functions + types
            if not names:
                sys.exit(f"header_pages: {header.name}: the section '{title}' declares nothing")
            see = [f"{whole}(3)", "loadplan(1)"]
            write_page(folder, version, names[0], names, behind, title, header.name, body, see)
            index += [f"*{escape_names(names[0])}*(3)", f"\t{escape(title)}: " + ", ".join(escape_names(n) for n in names), ""]
        body = render_prose("/*\n" + header.comment, "") + own_body + ["# FUNCTIONS", ""] + index
        see = [f"{o}(3)" for o in overview if o != whole] + ["loadplan(1)"]
        write_page(folder, version, whole, own_names, own_behind, header.about, header.name, body, see)


main()
