# Every bench runs and finds its results right; bars are not judged at this size, so --gate passes.
loadplan bench all --small --rounds 2 --gate --folder . --format=json -o all.json
ls
"$PYTHON" "$SUITE/../findings/schema_check.py" "$TESTS/../docs/schemas/bench.json" all.json
"$PYTHON" - <<'END'
import json
root = json.load(open("all.json"))
assert root["format"] == 1 and root["small"] is True and root["rounds"] == 2
for b in root["benches"]:
    assert b["wrong"] == 0 and b["ok"] and not b["judged"], b
    assert b["rounds"] == (6 if b["name"].startswith("executor.") else 2), b
    assert 0 < b["min_ns"] <= b["median_ns"] <= b["p99_ns"] and b["peak_bytes"] > 0, b
by_name = {b["name"]: b for b in root["benches"]}
assert by_name["trace.record"]["size"] == 2 * 8 * (9 + 2)
assert by_name["read.exact_bytes"]["value"] == 1
print(len(by_name) == len(root["benches"]))
END
