refused() { "$@" && echo "accepted: $*"; echo "exit $?"; }
$PYTHON "$SUITE/make_dense.py" ck
loadplan record --checkpoint ck --loader dense --tp 2 --rank 1 -q -o x.lpt
refused loadplan replay x.lpt -o out
refused loadplan replay x.lpt --checkpoint ck
refused loadplan replay x.lpt --checkpoint ck --rank 0 -o out
refused loadplan replay x.lpt --checkpoint ck --device tpu:0 -o out
refused loadplan replay x.lpt --checkpoint ck --mode layerwise --staging 1KiB -o out
refused loadplan replay x.lpt --checkpoint nowhere -o out
refused loadplan verify x.lpt --checkpoint ck
loadplan replay x.lpt --checkpoint ck -q -o out
refused loadplan replay x.lpt --checkpoint ck -o out
loadplan replay x.lpt --checkpoint ck -q -f -o out
refused loadplan replay x.lpt --checkpoint ck -o x.lpt
ls out
