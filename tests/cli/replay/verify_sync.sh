# Cold, scrambled, real: in both ways of reloading. A norm of ones cannot change, and is counted as such.
$PYTHON "$SUITE/make_dense.py" ck
$PYTHON - <<'PY'
import json, pathlib
path = pathlib.Path("ck/model.safetensors")
data = bytearray(path.read_bytes())
size = int.from_bytes(data[:8], "little")
begin, end = json.loads(data[8:8 + size])["model.norm.weight"]["data_offsets"]
data[8 + size + begin:8 + size + end] = b"\x80\x3f" * ((end - begin) // 2)
path.write_bytes(data)
PY
loadplan record --checkpoint ck --loader dense --tp 2 -q -o x.lpt
loadplan verify --sync x.lpt --checkpoint ck
loadplan verify --sync x.lpt --checkpoint ck --rank 1 --mode layerwise --staging 32KiB
loadplan verify --sync x.lpt --checkpoint ck --against out || echo "exit $?"
