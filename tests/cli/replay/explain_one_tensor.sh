$PYTHON "$SUITE/make_dense.py" ck
loadplan record --checkpoint ck --loader dense --tp 2 -q -o x.lpt
loadplan explain x.lpt --rank 1 --tensor 'layers.1.mlp.gate_up_proj.w*' | sed 's| at recorder.*||'
loadplan explain x.lpt --rank 1 --tensor '*qkv*weight' --format=svg -o qkv.svg
"$PYTHON" - <<'PYTHON'
import xml.etree.ElementTree as tree
root = tree.parse("qkv.svg").getroot()
ns = {"s": "http://www.w3.org/2000/svg"}
strip = [e for e in root.findall("s:svg", ns) if e.get("preserveAspectRatio") == "none"][0]
area = {}
for r in strip.findall("s:rect", ns):
    area[r.get("class").split()[0]] = area.get(r.get("class").split()[0], 0) + int(r.get("width")) * int(r.get("height"))
print(root.find("s:title", ns).text, "|", sum(area.values()) == 1024 * 16, sorted(area))
print(*[e.text for e in root.iter("{http://www.w3.org/2000/svg}text") if e.text and " of " in e.text], sep="\n")
PYTHON
loadplan explain x.lpt --tensor nobody || echo "exit $?"
loadplan explain x.lpt --tensor nobody --format=json || echo "exit $?"
