# SPDX-License-Identifier: Apache-2.0
"""Draws a report in headless Chromium: light and dark, on a desk, a phone, and on paper. Skips where there is no browser
(tests/report/setup_browser.sh installs one). Screenshots stay in BUILD/report."""
import argparse
import pathlib
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import zlib

parser = argparse.ArgumentParser()
parser.add_argument("--build", type=pathlib.Path, required=True)
build = parser.parse_args().build.resolve()
browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
if browser is None:
    print("skipped: no chromium here (tests/report/setup_browser.sh installs it)")
    sys.exit(77)
here = pathlib.Path(__file__).resolve().parent
out = build / "report"
out.mkdir(exist_ok=True)


def pixels(path):
    """Rows of (r, g, b) of a PNG of 8 bits a channel."""
    data = path.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    at, image = 8, b""
    while at < len(data):
        length, kind = struct.unpack(">I4s", data[at:at + 8])
        if kind == b"IHDR":
            width, height, depth, colour = struct.unpack(">IIBB", data[at + 8:at + 18])
        elif kind == b"IDAT":
            image += data[at + 8:at + 8 + length]
        at += length + 12
    assert depth == 8 and colour in (2, 6), (depth, colour)
    n = 3 if colour == 2 else 4
    raw, rows, above = zlib.decompress(image), [], bytearray(width * n)
    for y in range(height):
        kind, line = raw[y * (width * n + 1)], bytearray(raw[y * (width * n + 1) + 1:(y + 1) * (width * n + 1)])
        for i in range(width * n):
            a, b, c = (line[i - n] if i >= n else 0), above[i], (above[i - n] if i >= n else 0)
            if kind == 4:
                p, q = a + b - c, 0
                q = min((abs(p - a), 0, a), (abs(p - b), 1, b), (abs(p - c), 2, c))[2]
            else:
                q = (0, a, b, (a + b) // 2)[kind]
            line[i] = (line[i] + q) & 255
        rows.append([tuple(line[i:i + 3]) for i in range(0, width * n, n)])
        above = line
    return rows


def chromium(page, profile, *arguments):
    return subprocess.run([browser, "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
                           f"--user-data-dir={profile}", *arguments, page.as_uri()], capture_output=True, timeout=120)


def brightness(pixel):
    return sum(pixel) / 3


with tempfile.TemporaryDirectory(prefix="loadplan-report-") as folder:
    folder = pathlib.Path(folder)
    environment = {"PATH": f"{build}:/usr/bin:/bin", "SUITE": str(here.parent / "cli" / "report")}
    subprocess.run(["bash", "-euc", """. "$SUITE/hostile.bash"; loadplan report evil.lpt --against good.lpt -o page.html
python3 "$SUITE/../record/write_model.py" model
loadplan record -q --checkpoint model --tp 4 --rank all -o ranks.lpt
loadplan report ranks.lpt --against ranks.lpt -o ranks.html"""], cwd=folder, env=environment, check=True)
    page, profile = folder / "page.html", folder / "profile"
    looks = {"phone": ["--window-size=500,2000"],
             "dark": ["--window-size=1100,1500", "--blink-settings=preferredColorScheme=0"]}
    for name, arguments in looks.items():
        done = chromium(page, profile, *arguments, "--force-device-scale-factor=0.4", f"--screenshot={out / (name + '.png')}")
        picture = out / f"{name}.png"
        assert picture.exists(), done.stderr.decode()
        rows = pixels(picture)
        ground = brightness(rows[2][2])
        assert (ground < 60) if name == "dark" else (ground > 250), (name, rows[2][2])
        colours = {pixel for row in rows for pixel in row}
        assert (0x44, 0x77, 0xAA) in colours, f"{name}: no strip is drawn"
        # Ink on the ground in the left half, where text begins; nothing runs out at the right edge.
        assert any(abs(brightness(p) - ground) > 120 for row in rows for p in row[:len(row) // 2])
        edge = [y for y, row in enumerate(rows) if abs(brightness(row[-1]) - ground) > 60]
        assert not edge, f"{name}: something touches the right edge at {edge[:3]}"
        print(name, len(rows[0]), "x", len(rows), len(colours), "colours")
    # No window is as narrow as a phone, but a frame is. What does not fit into it would have to be scrolled sideways.
    narrow = folder / "narrow.html"
    narrow.write_text("""<iframe src="ranks.html" style="width:375px;height:3000px"></iframe><p id="wide">unknown</p><script>
onload = () => {
    const all = [...document.querySelector("iframe").contentDocument.querySelectorAll("body, .scroll, table, section")];
    wide.textContent = all.length + " looked at:" + all.filter(e => e.scrollWidth > e.clientWidth + 1).map(e => " " + e.outerHTML);
};
</script>""")
    text = chromium(narrow, profile, "--allow-file-access-from-files", "--dump-dom").stdout.decode()
    wide = re.search(r'<p id="wide">(.*?)</p>', text, re.S)[1]
    assert re.fullmatch(r"[1-9][0-9]* looked at:", wide), wide[:300]
    print("narrow", wide)
    chromium(page, profile, f"--print-to-pdf={out / 'paper.pdf'}", "--no-pdf-header-footer")
    paper = (out / "paper.pdf").read_bytes()
    assert paper.startswith(b"%PDF") and 1 <= paper.count(b"/Type /Page\n") <= 8, paper.count(b"/Type /Page\n")
    print("paper", paper.count(b"/Type /Page\n"), "pages")
