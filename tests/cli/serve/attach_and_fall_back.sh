# A second process uses the weights of the first; without a server, or with one of other weights, it loads.
$PYTHON "$TESTS/cli/replay/make_dense.py" ck
loadplan record --checkpoint ck --loader dense --tp 2 -q -o x.lpt
loadplan replay x.lpt --checkpoint ck --rank 1 -q -o loaded

# In the background, until it says that it serves; its file is not there at once.
serve() {
    loadplan serve x.lpt --checkpoint ck --rank 1 --socket s.sock 2>"$1" &
    server=$!
    for _ in $(seq 15000); do grep -qs serve: "$1" && break; sleep 0.02; done
}

serve served
stat -c %a s.sock
loadplan replay x.lpt --checkpoint ck --rank 1 --attach s.sock
loadplan replay x.lpt --checkpoint ck --rank 1 --attach s.sock -o attached --verify
cmp loaded/rank-00001.safetensors attached/rank-00001.safetensors
# A second server at the same place is refused, the first goes on.
loadplan serve x.lpt --checkpoint ck --rank 0 --socket s.sock || echo "exit $?"
# Another rank is another plan.
loadplan replay x.lpt --checkpoint ck --rank 0 --attach s.sock -o rank0
# So is the same checkpoint with other bytes other content.
cp -r ck changed
sleep 0.02
touch changed/model.safetensors
loadplan replay x.lpt --checkpoint changed --rank 1 --attach s.sock -o changed1

kill -TERM $server
wait $server
ls s.sock 2>/dev/null || true
loadplan replay x.lpt --checkpoint ck --rank 1 --attach s.sock -o alone
cmp loaded/rank-00001.safetensors alone/rank-00001.safetensors

# A server that was killed leaves its socket: told, and replaced by the next one.
serve again
{ kill -KILL $server; wait $server; } 2>/dev/null || true # the shell tells of it as soon as it sees it
loadplan replay x.lpt --checkpoint ck --rank 1 --attach s.sock -o dead
serve replaced
loadplan replay x.lpt --checkpoint ck --rank 1 --attach s.sock
kill -INT $server
wait $server
grep -c 'serve: rank 1, .* at .s.sock.; loaded in' served

# Verifying needs digests of an earlier load.
rm x.lpt.digests
serve last
loadplan replay x.lpt --checkpoint ck --rank 1 --attach s.sock --verify || echo "exit $?"
kill -TERM $server
wait $server
