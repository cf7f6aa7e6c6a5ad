where= # set by meeting
. "$SUITE/peers.bash"
$PYTHON "$TESTS/cli/replay/make_dense.py" ck1
other_epoch ck1 ck2 3
loadplan record --checkpoint ck1 --loader dense --tp 2 -q -o x.lpt
loadplan replay x.lpt --checkpoint ck2 -q -o want
meeting
for rank in 0 1; do
    loadplan recv x.lpt --into got --rendezvous "$where" --rank $rank --of 2 --epochs 0 --stay 2>recv$rank.log &
    pid[rank]=$!
done
# Each step of a trainer may be a process of its own; the servers count on.
loadplan send x.lpt --from ck1 --rendezvous "$where" -q
loadplan send x.lpt --from ck1 --rendezvous "$where" --mode sliced -q
loadplan send x.lpt --from ck2 --rendezvous "$where" --mode delta 2>send.log
for rank in 0 1; do
    await 'epoch 3' recv$rank.log
    cmp want/rank-0000$rank.safetensors got/rank-0000$rank.safetensors
done
# A trainer that is lost takes the meeting point with it; the servers wait for another one.
mkfifo folders
loadplan send x.lpt --from - --rendezvous "$where" <folders 2>lost.log &
lost=$!
exec 3>folders
echo ck1 >&3
await 'epoch 4' lost.log
kill -9 "$lost"
wait "$lost" 2>/dev/null || true
exec 3>&-
loadplan send x.lpt --from ck2 --rendezvous "$where" -q
for rank in 0 1; do
    await 'epoch 5' recv$rank.log
    cmp want/rank-0000$rank.safetensors got/rank-0000$rank.safetensors
done
sed -n 's/.*\(epoch [0-9]*, [a-z]*\):.*/\1/p' recv0.log send.log
kill "${pid[0]}" "${pid[1]}"
wait
