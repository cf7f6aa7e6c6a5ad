# What is asked for and missing is the answer "no"; a word that nobody knows is wrong usage.
loadplan -q doctor --require=pinned,machine >/dev/null
mkdir empty
for asked in o_direct cached; do
    code=0
    loadplan doctor empty --require=$asked >/dev/null 2>said || code=$?
    test "$code" -eq 1 && grep -qx "missing: $asked" said
done
code=0
loadplan doctor --require=cudb 2>said >out || code=$?
test "$code" -eq 2 && test ! -s out && grep -q "not 'cudb'" said
loadplan doctor --format=json . >facts.json
"$PYTHON" "$SUITE/../findings/schema_check.py" "$TESTS/../docs/schemas/doctor.json" facts.json | grep -q valid
"$PYTHON" -c '
import json
facts = json.load(open("facts.json"))
assert {"cuda", "nccl", "io_uring", "o_direct"} <= {f["key"] for f in facts["facts"]}'
