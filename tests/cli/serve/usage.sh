# What serve and attach demand.
$PYTHON "$TESTS/cli/replay/make_dense.py" ck
loadplan record --checkpoint ck --loader dense --tp 2 -q -o x.lpt
loadplan serve x.lpt --checkpoint ck --rank 0 || echo "exit $?"
loadplan serve x.lpt --checkpoint ck --socket s || echo "exit $?"
loadplan serve x.lpt --checkpoint ck --rank 0 --socket "$(printf '%0120d' 0)" || echo "exit $?"
loadplan serve x.lpt --checkpoint ck --rank 0 --socket no/such/folder/s || echo "exit $?"
loadplan replay x.lpt --checkpoint ck --attach s || echo "exit $?"
loadplan replay x.lpt --checkpoint ck --rank 0 --attach s --mode direct -o out || echo "exit $?"
