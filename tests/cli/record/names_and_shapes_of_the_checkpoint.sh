# What a checkpoint may say and a trace cannot is bad data (3), not a wrong command (2), and the tensor is named.
count=0 layers_by_names=
add() {
    rm -rf ckpt
    "$PYTHON" "$SUITE/write_model.py" ckpt
    "$PYTHON" - "$1" "$2" "$3" <<'PY'
import json, pathlib, struct, sys
name, dtype, shape = json.loads(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3])
file = pathlib.Path("ckpt/model.safetensors")
old = file.read_bytes()
size = struct.unpack("<Q", old[:8])[0]
header = json.loads(old[8:8 + size])
end = max(entry["data_offsets"][1] for entry in header.values())
more = 0 if 0 in shape else 1
header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [end, end + more]}
text = json.dumps(header).encode()
file.write_bytes(struct.pack("<Q", len(text)) + text + old[8 + size:] + bytes(more))
PY
    [ -z "$layers_by_names" ] || sed -i 's/"num_hidden_layers": 2, //' ckpt/config.json
    loadplan record -q --checkpoint ckpt --rest=copy -o "x$((count += 1)).lpt" || echo "exit $?"
}
long() { printf '"%s"' "$(head -c "$1" /dev/zero | tr '\0' x)"; }
ones() { echo "[$(seq -s , "$1" | sed 's/[0-9]*/1/g')]"; }
echo "--- a name is empty, holds a NUL, is long, too long"
add '""' U8 '[1]'
add '"a\u0000b"' U8 '[1]'
add "$(long 4096)" U8 '[1]'
add "$(long 4097)" U8 '[1]' 2>&1 | sed "s#recorder.*the name#the name#" | cut -c 1-80
echo "--- 16 dimensions, 17, 1000"
add '"a"' U8 "$(ones 16)"
add '"a"' U8 "$(ones 17)"
add '"a"' U8 "$(ones 1000)"
echo "--- no element, and extents beyond what sizes can be"
add '"a"' U8 '[3,0,5]'
add '"a"' U8 '[0,9223372036854775808]'
add '"a"' F32 '[18446744073709551615,0]'
add '"a"' F32 '[0,4611686018427387904]'
echo "--- numbers that ask for more than the names can fill"
layers_by_names=1
add '"model.layers.24611686018427387904.a"' U8 '[1]'
