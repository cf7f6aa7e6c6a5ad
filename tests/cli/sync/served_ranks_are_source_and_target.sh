where= # set by meeting
. "$SUITE/peers.bash"
$PYTHON "$TESTS/cli/replay/make_dense.py" ck1
other_epoch ck1 ck2 5
loadplan record --checkpoint ck1 --loader dense --tp 2 -q -o x.lpt
loadplan record --checkpoint ck1 --loader dense -q -o one.lpt
for rank in 0 1; do
    loadplan serve x.lpt --checkpoint ck1 --rank $rank --socket s$rank 2>serve$rank.log &
    serve[rank]=$!
done
for rank in 0 1; do await 'serve: rank' serve$rank.log; done
# New weights into memory that other processes serve ...
meeting
for rank in 0 1; do
    loadplan recv x.lpt --into ipc:s$rank --rendezvous "$where" --rank $rank --of 2 -q &
    recv[rank]=$!
done
loadplan send x.lpt --from ck2 --rendezvous "$where" -q
wait "${recv[0]}" "${recv[1]}"
# ... and out of it again, into another layout.
meeting
loadplan recv one.lpt --into got --rendezvous "$where" -q &
again=$!
loadplan send x.lpt --from ipc:s1 --rendezvous "$where" --mode sliced --rank 1 --of 2 -q &
loadplan send x.lpt --from ipc:s0 --rendezvous "$where" --mode sliced --rank 0 --of 2 -q
wait "$again"
loadplan replay one.lpt --checkpoint ck2 -q -o want
cmp want/rank-00000.safetensors got/rank-00000.safetensors
kill "${serve[0]}" "${serve[1]}"
wait
