#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Syncs between two GPUs of this host by NCCL, whose payloads stay in their memory: first right, then fast.
#
#   tests/gpu/nccl_sync.sh LOADPLAN MAKE_CHECKPOINT [TRANSPORT [BENCH_SYNC [GIB]]]
#
# TRANSPORT tcp: the same steps in host memory over sockets, to try the script itself. BENCH_SYNC: packed, sliced and
# delta of GIB GiB (20) from device memory to live tensors, beside bare ncclSend and ncclRecv in the same run; a bar that
# is missed fails. Exit code 77: there are no two GPUs, or no NCCL.
set -euo pipefail
loadplan=$(realpath "$1")
make_checkpoint=$(realpath "$2")
transport=${3:-nccl}
bench=${4:+$(realpath "$4")}
gib=${5:-20}
trainer=(--device cuda:0) server=(--device cuda:1) host=()
if [ "$transport" = nccl ]; then
    gpus=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU' || true)
    [ "${gpus:-0}" -ge 2 ] || { echo "needs two GPUs, here are ${gpus:-0}"; exit 77; }
    "$loadplan" doctor 2>/dev/null | grep -q '^ *nccl .*[0-9]\.[0-9]' || { echo "needs NCCL (libnccl.so.2)"; exit 77; }
else
    trainer=() server=() host=(--host)
    gib=4
fi
work=$(mktemp -d)
end() {
    local -a left
    mapfile -t left < <(jobs -p)
    [ ${#left[@]} -eq 0 ] || kill "${left[@]}" 2>/dev/null || true
    wait
    rm -rf "$work"
}
trap end EXIT
cd "$work"

# ---- checkpoints: the second one differs from the first in some places, the third in others ----

"$make_checkpoint" -o ck1 --kind dense --layers 2 --hidden 512 --intermediate 1024 --heads 8 --kv-heads 2 --head-dim 64 \
    --vocab 1024 --shards 2 >/dev/null
change() { # FROM TO: a few stretches of each file get other bytes
    local file bytes off
    cp -r "$1" "$2"
    for file in "$2"/*.safetensors; do
        bytes=$(stat -c %s "$file")
        for off in 3 5 7 9; do
            dd if=/dev/urandom of="$file" bs=2 count=300 seek=$((bytes / 20 * off)) conv=notrunc status=none
        done
    done
}
change ck1 ck2
change ck2 ck3
"$loadplan" record --checkpoint ck1 --loader dense -q -o x.lpt
for ck in ck1 ck2 ck3; do "$loadplan" replay x.lpt --checkpoint $ck -q -o want-$ck; done

# Below the ports that systems give to those who connect.
port=
meet() {
    while port=$((20000 + RANDOM % 12000)); (exec 4<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; do :; done
    where=(--rendezvous "127.0.0.1:$port" --transport "$transport" --join-timeout 120 -q)
}
same() { # FOLDER FOLDER RANK
    cmp "$1/rank-0000$3.safetensors" "$2/rank-0000$3.safetensors"
}
# sync WHAT WANT RANK -- RECV OPTION ... -- SEND OPTION ...
sync() {
    local what=$1 want=$2 rank=$3 receiver
    local -a receive=() send=()
    shift 4
    while [ "$1" != -- ]; do receive+=("$1"); shift; done
    shift
    send=("$@")
    meet
    "$loadplan" recv "${receive[@]}" --into got "${where[@]}" &
    receiver=$!
    "$loadplan" send "${send[@]}" "${where[@]}"
    wait $receiver
    same "$want" got "$rank"
    rm -r got
    echo "right  $what"
}

# ---- right: every source, mode and kind of session ----

for mode in packed sliced delta; do
    for load in cold layerwise; do
        sync "$mode, $load, from files" want-ck1 0 -- x.lpt "${server[@]}" --gpu 1 --mode $load --staging 64MiB -- \
            x.lpt --from ck1 --gpu 0 --mode $mode --bucket 1MiB
    done
    sync "$mode, from a trainer's memory" want-ck1 0 -- x.lpt "${server[@]}" --gpu 1 -- \
        x.lpt --from ck1 --sharded "${trainer[@]}" --gpu 0 --mode $mode --bucket 1MiB
    sync "$mode, into host memory" want-ck1 0 -- x.lpt --gpu 1 -- \
        x.lpt --from ck1 --sharded "${trainer[@]}" --gpu 0 --mode $mode --bucket 1MiB
done
sync "buckets of odd sizes" want-ck1 0 -- x.lpt "${server[@]}" --gpu 1 -- \
    x.lpt --from ck1 --sharded "${trainer[@]}" --gpu 0 --mode sliced --bucket 123457

# Epoch after epoch into the memory of a served rank, from another one.
"$loadplan" serve x.lpt --checkpoint ck1 "${server[@]}" --socket server.sock 2>serve.log &
serving=$!
for ((i = 0; i < 1200; i++)); do
    grep -q 'serve: rank' serve.log && break
    sleep 0.1
done
grep -q 'serve: rank' serve.log
for mode in packed sliced delta; do
    meet
    "$loadplan" recv x.lpt --into ipc:server.sock "${server[@]}" --gpu 1 --epochs 3 "${where[@]}" &
    receiver=$!
    printf '%s\n' ck1 ck2 ck3 | "$loadplan" send x.lpt --from - --gpu 0 --mode $mode --bucket 1MiB "${where[@]}"
    wait $receiver
    # and out of its memory again, where a trainer would be
    meet
    "$loadplan" recv x.lpt --into got --gpu 0 "${where[@]}" &
    receiver=$!
    "$loadplan" send x.lpt --from ipc:server.sock "${server[@]}" --gpu 1 --mode sliced "${where[@]}"
    wait $receiver
    same want-ck3 got 0
    rm -r got
    echo "right  $mode, three epochs into a served rank, and out of it"
done
kill $serving
wait $serving 2>/dev/null || true

# ---- wrong: a receiver that is killed in the middle is named, and the next one is brought up ----

meet
"$loadplan" recv x.lpt --into lost "${server[@]}" --gpu 1 --epochs 0 --rendezvous "127.0.0.1:$port" \
    --transport "$transport" -q 2>/dev/null &
receiver=$!
mkfifo folders
"$loadplan" send x.lpt --from - --gpu 0 --retries 9 --bucket 64KiB "${where[@]}" <folders 2>/dev/null &
sender=$!
exec 3>folders
echo ck1 >&3
for ((i = 0; i < 1200; i++)); do
    [ -e lost/rank-00000.safetensors ] && break
    sleep 0.1
done
kill -9 $receiver
wait $receiver 2>/dev/null || true
"$loadplan" recv x.lpt --into got "${server[@]}" --gpu 1 "${where[@]}" 3>&- &
receiver=$!
echo ck2 >&3
wait $receiver
same want-ck2 got 0
exec 3>&-
wait $sender || true
rm -r got lost
echo "right  a receiver that was killed, and the one after it"
echo "packed, sliced and delta over $transport: equal to a replay"

# ---- fast ----

[ -n "$bench" ] || exit 0
failed=0
for mode in packed sliced delta; do
    "$bench" $mode --gib "$gib" --gate "${host[@]}" || failed=1
done
exit $failed
