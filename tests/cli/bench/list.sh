# Benches of kernels are listed where the build has CUDA; they are left out here.
loadplan bench --list >list.txt
grep -v '^megamoe' list.txt
loadplan bench --list --format=json >list.json
"$PYTHON" "$SUITE/../findings/schema_check.py" "$TESTS/../docs/schemas/bench.json" list.json
"$PYTHON" - <<'END'
import json
root = json.load(open("list.json"))
assert root["format"] == 1
assert len({b["name"] for b in root["benches"]}) == len(root["benches"])
END
