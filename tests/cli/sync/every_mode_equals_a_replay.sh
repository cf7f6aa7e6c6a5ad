. "$SUITE/peers.bash"
$PYTHON "$TESTS/cli/replay/make_dense.py" ck
for tp in 1 2 4; do
    loadplan record --checkpoint ck --loader dense --tp $tp -q -o tp$tp.lpt
    loadplan replay tp$tp.lpt --checkpoint ck -q -o want$tp
done
# sync NAME TP SENDERS [OPTION ...]: sends with tp2.lpt, receives with tp$TP.lpt
sync() {
    local name=$1 tp=$2 senders=$3 rank
    shift 3
    meeting
    receive tp$tp.lpt "$tp" "got-$name" -q
    distribute tp2.lpt "$senders" --from ck -q "$@"
    for rank in want$tp/*; do
        cmp "$rank" "got-$name/${rank##*/}"
    done
    ls "got-$name"
}
sync packed 2 1
sync packed-small-buckets 2 1 --bucket 256
sync packed-three-senders 1 3 --bucket 4KiB
sync sliced 4 1 --mode sliced
sync sliced-replicas 4 3 --mode sliced --bucket 1KiB
sync sharded 4 2 --sliced --sharded
sync sharded-to-one 1 2 --mode sliced --sharded --bucket 1KiB
sync delta 2 2 --mode delta
sync sharded-packed 4 2 --sharded
sync sharded-delta 1 2 --mode delta --sharded
