$PYTHON "$SUITE/make_dense.py" ck
loadplan record --checkpoint ck --loader dense --tp 2 -q -o x.lpt
loadplan explain x.lpt --rank 1 --families --top 3 --disk-rate 1000000
loadplan replay x.lpt --rank 0 --dry-run
loadplan explain x.lpt --rank 1 --format=json | $PYTHON -c '
import json, sys
rank, = json.load(sys.stdin)["ranks"]
print(rank["rank"], rank["bytes_read"], rank["ranges_read"], rank["tensors_written"])'
