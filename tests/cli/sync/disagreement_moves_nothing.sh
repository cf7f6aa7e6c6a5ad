where= # set by meeting
. "$SUITE/peers.bash"
$PYTHON "$TESTS/cli/replay/make_dense.py" ck
$PYTHON "$TESTS/cli/replay/make_dense.py" other model.norm.weight=64
loadplan record --checkpoint ck --loader dense --tp 2 -q -o x.lpt
loadplan record --checkpoint ck --loader dense --dp 2 -q -o y.lpt
echo "== two ranks of a server have different traces"
meeting
loadplan recv x.lpt --into got --rendezvous "$where" --rank 0 --of 2 2>&1 && echo "not refused" &
loadplan recv y.lpt --into got --rendezvous "$where" --rank 1 --of 2 >/dev/null 2>&1 && echo "not refused" &
loadplan send x.lpt --from ck --rendezvous "$where" 2>/dev/null && echo "not refused"
wait
echo "== two ranks have different epochs in mind"
meeting
loadplan recv x.lpt --into got --rendezvous "$where" --rank 0 --of 2 --epoch 5 2>&1 && echo "not refused" &
loadplan recv x.lpt --into got --rendezvous "$where" --rank 1 --of 2 --epoch 6 >/dev/null 2>&1 && echo "not refused" &
loadplan send x.lpt --from ck --rendezvous "$where" 2>/dev/null && echo "not refused"
wait
echo "== a rank that does not come"
for limit in 1 5 25 100; do # a busy machine may be late with the one that does come
    meeting
    loadplan recv x.lpt --into got --rendezvous "$where" --rank 0 --of 2 2>late.log && echo "not refused" &
    loadplan send x.lpt --from ck --rendezvous "$where" --join-timeout $limit 2>/dev/null && echo "not refused"
    wait
    grep -q "did not come within $limit s" late.log && break
done
sed "s/within $limit s/within 1 s/" late.log
echo "== two modes"
loadplan send x.lpt --from ck --sliced --mode packed --rendezvous "$where" 2>&1 && echo "not refused"
echo "== another checkpoint"
meeting
loadplan send x.lpt --from other --rendezvous "$where" --join-timeout 1 2>&1 && echo "not refused"
ls got
