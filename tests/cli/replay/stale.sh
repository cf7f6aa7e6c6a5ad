$PYTHON "$SUITE/make_dense.py" ck
loadplan record --checkpoint ck --loader dense --tp 2 -q -o x.lpt
$PYTHON "$SUITE/make_dense.py" ck model.norm.weight=16
loadplan replay x.lpt --checkpoint ck -o out
