$PYTHON "$SUITE/make_dense.py" ck
loadplan record --checkpoint ck --loader dense --tp 2 -q -o x.lpt
loadplan explain x.lpt --rank 1 --push-order
loadplan explain x.lpt --push-order --format=json | $PYTHON -c '
import json, sys
for rank in json.load(sys.stdin)["ranks"]:
    print(rank["rank"], rank["host_peak"], rank["device_peak"], len(rank["order"]), rank["order"][-1])'
loadplan replay -q x.lpt --mode meta --rank 0
