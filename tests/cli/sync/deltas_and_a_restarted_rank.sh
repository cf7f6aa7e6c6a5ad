where= # set by meeting
. "$SUITE/peers.bash"
$PYTHON "$TESTS/cli/replay/make_dense.py" ck1
other_epoch ck1 ck2 7
other_epoch ck2 ck3 8
loadplan record --checkpoint ck1 --loader dense --tp 2 -q -o x.lpt
meeting
mkfifo folders
loadplan send x.lpt --from - --rendezvous "$where" --mode delta --bucket 4KiB <folders 2>send.log &
exec 3>folders
for rank in 0 1; do
    loadplan recv x.lpt --into got --rendezvous "$where" --rank $rank --of 2 --epochs 0 2>recv$rank.log 3>&- &
    pid[rank]=$!
done
echo ck1 >&3
await 'epoch 1' send.log
echo ck2 >&3
await 'epoch 2' send.log
loadplan replay x.lpt --checkpoint ck2 -q -o want2
for rank in 0 1; do cmp want2/rank-0000$rank.safetensors got/rank-0000$rank.safetensors; done
# One rank is lost between two epochs; the other one waits for it and is not started again.
kill -9 "${pid[1]}"
wait "${pid[1]}" 2>/dev/null || true
loadplan recv x.lpt --into got --rendezvous "$where" --rank 1 --of 2 --epochs 0 2>recv1b.log 3>&- &
echo ck3 >&3
await 'epoch 3' send.log
loadplan replay x.lpt --checkpoint ck3 -q -o want3
for rank in 0 1; do cmp want3/rank-0000$rank.safetensors got/rank-0000$rank.safetensors; done
exec 3>&-
wait
sed -n 's/.*\(epoch [0-9]*, [a-z]*\):.*/rank 0: \1/p' recv0.log
sed -n 's/.*\(epoch [0-9]*, [a-z]*\):.*/rank 1: \1/p' recv1.log
sed -n 's/.*\(epoch [0-9]*, [a-z]*\):.*/rank 1 again: \1/p' recv1b.log
