# Writes good.lpt: two layers of two experts, their input scales in slots, the maximum as a derive.
# Sourced by the tests of check and diff; `twin NAME EXPRESSION` writes NAME.lpt with the lines of good changed by sed.
write_good() {
    cat > good.txt <<'TWIN'
loadplan-trace 1000
header loader "test"
layout pp=1 dp=1 tp=1 ep=0
name "layers.0.experts.0.up" U8 [16]
name "layers.0.experts.0.w2_input_scale" F32 []
name "layers.0.experts.1.up" U8 [16]
name "layers.0.experts.1.w2_input_scale" F32 []
name "layers.1.experts.0.up" U8 [16]
name "layers.1.experts.0.w2_input_scale" F32 []
name "layers.1.experts.1.up" U8 [16]
name "layers.1.experts.1.w2_input_scale" F32 []
scope pp=0 dp=0 tp=0
dest "layers.0.l2_scale" F32 [1] bytes=4 group="layers.0"
dest "layers.0.scales" F32 [2] bytes=8 group="layers.0"
dest "layers.0.up" U8 [2,16] bytes=32 group="layers.0"
dest "layers.1.l2_scale" F32 [1] bytes=4 group="layers.1"
dest "layers.1.scales" F32 [2] bytes=8 group="layers.1"
dest "layers.1.up" U8 [2,16] bytes=32 group="layers.1"
copy "layers.0.experts.0.up" -> "layers.0.up" src=0 dst=0 map=16 at "loader.py":10
copy "layers.0.experts.0.w2_input_scale" -> "layers.0.scales" src=0 dst=0 map=4 at "loader.py":11
copy "layers.0.experts.1.up" -> "layers.0.up" src=0 dst=16 map=16 at "loader.py":10
copy "layers.0.experts.1.w2_input_scale" -> "layers.0.scales" src=0 dst=4 map=4 at "loader.py":11
copy "layers.1.experts.0.up" -> "layers.1.up" src=0 dst=0 map=16 at "loader.py":10
copy "layers.1.experts.0.w2_input_scale" -> "layers.1.scales" src=0 dst=0 map=4 at "loader.py":11
copy "layers.1.experts.1.up" -> "layers.1.up" src=0 dst=16 map=16 at "loader.py":10
copy "layers.1.experts.1.w2_input_scale" -> "layers.1.scales" src=0 dst=4 map=4 at "loader.py":11
derive "layers.0.l2_scale" map=4 inputs=(dest "layers.0.scales" F32 2 8) nodes=(input F32 2 0,0,0 0x0; max F32 1 0,0,0 0x0; const F32 1 0,0,0 0x3f800000; or_if_zero F32 1 1,2,0 0x0)
derive "layers.1.l2_scale" map=4 inputs=(dest "layers.1.scales" F32 2 8) nodes=(input F32 2 0,0,0 0x0; max F32 1 0,0,0 0x0; const F32 1 0,0,0 0x3f800000; or_if_zero F32 1 1,2,0 0x0)
END names=8 scopes=1 records=8 derives=2 refusals=0
TWIN
    loadplan -q undump good.txt -o good.lpt
}
twin() {
    sed -E "$2" good.txt > "$1.txt"
    loadplan -q undump "$1.txt" -o "$1.lpt"
}
# The checkpoint of that trace, as a folder: bytes that count up, and scales of 0.5, 1, 1.5 and 2.
weights() {
    mkdir -p "$1"
    "$PYTHON" - "$1/model.safetensors" <<'PYTHON'
import json, struct, sys
header, data = {}, b""
for layer in 0, 1:
    for expert in 0, 1:
        name, n = f"layers.{layer}.experts.{expert}.", 2 * layer + expert
        header[name + "up"] = {"dtype": "U8", "shape": [16], "data_offsets": [len(data), len(data) + 16]}
        data += bytes(range(16 * n, 16 * n + 16))
        header[name + "w2_input_scale"] = {"dtype": "F32", "shape": [], "data_offsets": [len(data), len(data) + 4]}
        data += struct.pack("<f", (n + 1) / 2)
text = json.dumps(header).encode()
text += b" " * (-len(text) % 8)
open(sys.argv[1], "wb").write(struct.pack("<Q", len(text)) + text + data)
PYTHON
}
