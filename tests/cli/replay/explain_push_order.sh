$PYTHON "$SUITE/make_dense.py" ck
loadplan record --checkpoint ck --loader dense --tp 2 -q -o x.lpt
loadplan explain x.lpt --rank 1 --push-order
loadplan explain x.lpt --push-order --format=json >order.json
$PYTHON "$SUITE/../findings/schema_check.py" "$TESTS/../docs/schemas/explain-push-order.json" order.json
$PYTHON -c '
import json
for rank in json.load(open("order.json"))["ranks"]:
    print(rank["rank"], rank["host_peak"], rank["device_peak"], len(rank["order"]), rank["order"][-1])'
loadplan replay -q x.lpt --mode meta --rank 0
