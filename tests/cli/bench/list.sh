loadplan bench --list
loadplan bench --list --format=json >list.json
"$PYTHON" - <<'END'
import json
root = json.load(open("list.json"))
assert root["format"] == 1
assert len({b["name"] for b in root["benches"]}) == len(root["benches"])
END
