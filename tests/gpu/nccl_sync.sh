#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Syncs between two GPUs of this host by NCCL, whose payloads stay in their memory: right, when something fails, and fast.
#
#   tests/gpu/nccl_sync.sh LOADPLAN MAKE_CHECKPOINT [TRANSPORT [BENCH_SYNC [GIB]]]
#
# TRANSPORT tcp: the same steps in host memory over sockets, to try the script itself. BENCH_SYNC: packed, sliced and
# delta of GIB GiB (20) from device memory to live tensors, beside bare ncclSend and ncclRecv in the same run; a bar that
# is missed fails. Each step says what it did and how long it took, and the ones after a wrong one are still taken.
# Environment: PARTS, some of "right several epochs killed wrong late fast" (all; several: two senders to two receivers, on four
# GPUs where it is neither over sockets nor on one); MODES, some of "packed sliced delta" (all), for right, several and epochs, and
# the first one for killed; STEP, seconds that a step may take (60); KILLS, how often each side is killed at random moments, which
# SEED (a number) draws;
# FLIP, the library made of nccl_flip.c (a damaged message is tried where it is given); ONE, not empty: both sides on one GPU,
# over the library made of nccl_one.c in the place of NCCL.
# Exit code 77: there are too few GPUs, or no NCCL.
set -uo pipefail
loadplan=$(realpath "$1")
make_checkpoint=$(realpath "$2")
transport=${3:-nccl}
bench=${4:+$(realpath "$4")}
gib=${5:-20}
parts=" ${PARTS:-right several epochs killed wrong late fast} "
read -ra modes <<<"${MODES:-packed sliced delta}"
limit=${STEP:-60}
RANDOM=${SEED:-$$}
far=1 need=2 host=()
if [ -n "${ONE:-}" ]; then
    far=0 need=1 host=(--one)
    export CUDA_DEVICE_MAX_CONNECTIONS=32 # no stream waits behind another one's message
fi
trainer=(--device cuda:0) server=(--device "cuda:$far")
if [ "$transport" = nccl ]; then
    gpus=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU' || true)
    [ "${gpus:-0}" -ge $need ] || { echo "needs $need GPUs, here are ${gpus:-0}"; exit 77; }
    "$loadplan" doctor 2>/dev/null | grep -q '^ *nccl .*[0-9]\.[0-9]' || { echo "needs NCCL (libnccl.so.2)"; exit 77; }
else
    trainer=() server=() host=(--host)
    gib=4
fi
work=$(mktemp -d)
end() {
    local -a left
    mapfile -t left < <(jobs -p)
    [ ${#left[@]} -eq 0 ] || kill -9 "${left[@]}" 2>/dev/null || true
    wait
    rm -rf "$work"
}
trap end EXIT
cd "$work" || exit 2

# ---- steps ----

failed=0
since=0
now() { date +%s%N; }
begin() { since=$(now); }
# result STATUS WHAT: says it; of a wrong step also what its processes said.
result() {
    local took=$((($(now) - since) / 10000000))
    printf '%s %5d.%02d s  %s\n' "$([ "$1" -eq 0 ] && echo right || echo WRONG)" $((took / 100)) $((took % 100)) "$2"
    if [ "$1" -ne 0 ]; then
        failed=$((failed + 1))
        for log in recv.log send.log; do [ ! -s $log ] || sed "s/^/    $log: /" $log | tail -n 12; done
        [ $failed -lt 6 ] || { echo "too much is wrong"; exit 1; }
    fi
    rm -rf got
}
# Waits for both sides of a sync; a side that does not end is killed. Status: 0 where both ended with 0.
both() { # PID PID
    local status=0
    wait "$1" || status=$?
    wait "$2" || status=$?
    return $status
}
recv() { timeout -s KILL "$limit" "$loadplan" recv "$@" >recv.log 2>&1; }
send() { timeout -s KILL "$limit" "$loadplan" send "$@" >send.log 2>&1; }
# until_true COMMAND ...: asks again for 60 s
until_true() {
    for ((i = 0; i < 1200; i++)); do
        "$@" && return 0
        sleep 0.05
    done
    return 1
}
# Below the ports that systems give to those who connect.
port=
meet() {
    while port=$((20000 + RANDOM % 12000)); (exec 4<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; do :; done
    where=(--rendezvous "127.0.0.1:$port" --transport "$transport" --join-timeout 40 --stall-timeout 15)
}
same() { # FOLDER FOLDER RANK
    cmp "$1/rank-0000$3.safetensors" "$2/rank-0000$3.safetensors"
}

# ---- checkpoints: the second one differs from the first in some places, the third in others ----

set -e
"$make_checkpoint" -o ck1 --kind dense --layers 2 --hidden 512 --intermediate 1024 --heads 8 --kv-heads 2 --head-dim 64 \
    --vocab 1024 --shards 2 >/dev/null
"$make_checkpoint" -o other --kind dense --layers 1 --hidden 512 --intermediate 1024 --heads 8 --kv-heads 2 \
    --head-dim 64 --vocab 1024 --shards 1 >/dev/null
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
"$loadplan" record --checkpoint other --loader dense -q -o other.lpt
for ck in ck1 ck2 ck3; do "$loadplan" replay x.lpt --checkpoint $ck -q -o want-$ck; done
set +e

# ---- right: every source, mode and kind of session ----

# sync WHAT WANT RANK -- RECV OPTION ... -- SEND OPTION ...
sync() {
    local what=$1 want=$2 rank=$3 receiver sender status=0
    local -a receive=()
    shift 4
    while [ "$1" != -- ]; do receive+=("$1"); shift; done
    shift
    begin
    meet
    recv "${receive[@]}" --into got "${where[@]}" &
    receiver=$!
    send "$@" "${where[@]}" &
    sender=$!
    both $receiver $sender && same "$want" got "$rank" || status=1
    result $status "$what"
}

if [[ $parts == *" right "* ]]; then
    for mode in "${modes[@]}"; do
        sync "$mode, from a trainer's memory" want-ck1 0 -- x.lpt "${server[@]}" --gpu "$far" -- \
            x.lpt --from ck1 --sharded "${trainer[@]}" --gpu 0 --mode "$mode" --bucket 1MiB
        for load in cold layerwise; do
            sync "$mode, $load, from files" want-ck1 0 -- x.lpt "${server[@]}" --gpu "$far" --mode $load --staging 64MiB -- \
                x.lpt --from ck1 --gpu 0 --mode "$mode" --bucket 1MiB
        done
        sync "$mode, into host memory" want-ck1 0 -- x.lpt --gpu "$far" -- \
            x.lpt --from ck1 --sharded "${trainer[@]}" --gpu 0 --mode "$mode" --bucket 1MiB
    done
    sync "buckets of odd sizes" want-ck1 0 -- x.lpt "${server[@]}" --gpu "$far" -- \
        x.lpt --from ck1 --sharded "${trainer[@]}" --gpu 0 --mode sliced --bucket 123457
fi

# ---- several: two senders, each with a half or with everything, to two receivers ----

# several WHAT SEND OPTION ...
several() {
    local what=$1 rank status=0
    local -a side=()
    shift
    begin
    meet
    for rank in 0 1; do
        side=()
        [ "$transport" != nccl ] || side=(--device "cuda:$((far * (2 + rank)))" --gpu $((far * (2 + rank))) --staging 64MiB)
        timeout -s KILL "$limit" "$loadplan" recv x2.lpt "${side[@]}" --rank $rank --of 2 --into got "${where[@]}" >>recv.log 2>&1 &
        side=()
        [ "$transport" != nccl ] || side=(--gpu $((far * rank)))
        [[ "$transport" != nccl || "$*" != *--sharded* ]] || side+=(--device "cuda:$((far * rank))")
        timeout -s KILL "$limit" "$loadplan" send x2.lpt --from ck1 "${side[@]}" --rank $rank --of 2 "$@" "${where[@]}" >>send.log 2>&1 &
    done
    for rank in 0 1 2 3; do wait -n || status=1; done
    same want2 got 0 && same want2 got 1 || status=1
    result $status "$what"
    rm -f recv.log send.log
}

if [[ $parts == *" several "* ]] && { [ "$transport" != nccl ] || [ -n "${ONE:-}" ] || [ "$gpus" -ge 4 ]; }; then
    "$loadplan" record --checkpoint ck1 --loader dense --tp 2 --rank all -q -o x2.lpt
    for rank in 0 1; do "$loadplan" replay x2.lpt --checkpoint ck1 --rank $rank -q -o want2; done
    rm -f recv.log send.log
    for mode in "${modes[@]}"; do
        several "two to two, $mode, from files" --mode "$mode" --bucket 256KiB
        several "two to two, $mode, from shards" --mode "$mode" --bucket 256KiB --sharded
    done
fi

# ---- epochs: one after the other into the memory of a served rank, and out of it, where a trainer would be ----

# epochs MODE: into the rank that is served at server.sock
epochs() {
    local mode=$1 receiver sender status=0
    begin
    meet
    recv x.lpt --into ipc:server.sock "${server[@]}" --gpu "$far" --epochs 3 "${where[@]}" &
    receiver=$!
    printf '%s\n' ck1 ck2 ck3 | send x.lpt --from - --gpu 0 --mode "$mode" --bucket 1MiB "${where[@]}" &
    sender=$!
    both $receiver $sender || status=1
    if [ $status -eq 0 ]; then
        meet
        recv x.lpt --into got --gpu 0 "${where[@]}" &
        receiver=$!
        send x.lpt --from ipc:server.sock "${server[@]}" --gpu "$far" --mode sliced "${where[@]}" &
        sender=$!
        both $receiver $sender && same want-ck3 got 0 || status=1
    fi
    result $status "$mode, three epochs into a served rank, and out of it"
}

serving=
if [[ $parts == *" epochs "* ]]; then
    "$loadplan" serve x.lpt --checkpoint ck1 "${server[@]}" --socket server.sock 2>serve.log &
    serving=$!
    if until_true grep -qs 'serve: rank' serve.log; then
        for mode in "${modes[@]}"; do epochs "$mode"; done
    else
        begin
        cp serve.log recv.log
        result 1 "a rank that is served"
    fi
    kill $serving
    wait $serving 2>/dev/null
fi

# ---- wrong: each failure is told as docs/distributed.md says, and the next epoch is right ----

# A receiver is killed while epochs go by, again and again at random moments, and another one comes: the sender goes on.
# One that is killed within an epoch is named; between two epochs it may go as it likes, so it is tried until one was.
kill_receivers() { # KILLS: at least so many
    local kills=0 receiver name="receiver 0 of 'server' is gone"
    while [ $kills -lt "$1" ] || { ! grep -q "$name" send.log && [ $kills -lt $(($1 + 30)) ]; }; do
        rm -rf lost
        "$loadplan" recv x.lpt --into lost "${server[@]}" --gpu "$far" --epochs 0 "${where[@]}" >recv.log 2>&1 3>&- &
        receiver=$!
        until_true [ -e lost/rank-00000.safetensors ] || { cat recv.log; return 1; }
        sleep "0.$((RANDOM % 300 + 100))"
        kill -9 $receiver
        wait $receiver 2>/dev/null
        kills=$((kills + 1))
    done
    echo "    $kills receivers killed, $(grep -c "$name" send.log) of them within an epoch"
    grep -q "$name" send.log
}

# A few folders ahead of what has been sent, until told to stop, so that epochs go by all the time.
feed() {
    local fed=0
    while [ ! -e stop ]; do
        if [ $((fed - $(grep -c '^send: epoch' send.log))) -lt 3 ]; then
            echo ck1
            fed=$((fed + 1))
        fi
        sleep 0.01
    done
}

killed_receiver() {
    local receiver sender feeder status=0
    begin
    meet
    rm -f folders stop
    mkfifo folders
    "$loadplan" send x.lpt --from - --gpu 0 --mode "${modes[0]}" --retries 9 --bucket 64KiB "${where[@]}" <folders >send.log 2>&1 &
    sender=$!
    exec 3>folders
    feed >&3 &
    feeder=$!
    kill_receivers "${KILLS:-3}" || status=1
    touch stop
    wait $feeder
    recv x.lpt --into got "${server[@]}" --gpu "$far" --epochs 0 "${where[@]}" 3>&- &
    receiver=$!
    echo ck2 >&3
    exec 3>&-
    both $receiver $sender && same want-ck2 got 0 || status=1
    result $status "receivers killed between and within epochs are named, and the one after them brought up"
    rm -rf lost
}

# The one that is left ends with exit code 4.
killed_sender() {
    local receiver sender status=0 code
    begin
    for ((n = 0; n < ${KILLS:-1}; n++)); do
        meet
        rm -rf got
        recv x.lpt --into got "${server[@]}" --gpu "$far" --epochs 0 "${where[@]}" &
        receiver=$!
        yes ck1 | "$loadplan" send x.lpt --from - --gpu 0 --mode "${modes[0]}" --bucket 64KiB "${where[@]}" \
            >send.log 2>&1 &
        sender=$!
        until_true [ -e got/rank-00000.safetensors ] || status=1
        sleep "0.$((RANDOM % 300 + 100))"
        kill -9 $sender
        wait $sender 2>/dev/null
        wait $receiver
        code=$?
        [ $code -eq 4 ] || { status=1; echo "    exit code $code of the receiver"; }
        grep -Eq 'sender 0|the meeting point is gone' recv.log || status=1
        [ $status -eq 0 ] || break
    done
    result $status "a sender killed while epochs go by is named"
}

# refused WHAT WORDS RECV-CODE SEND-CODE -- RECV OPTION ... -- SEND OPTION ...
refused() {
    local what=$1 words=$2 want_recv=$3 want_send=$4 receiver sender status=0 code
    local -a receive=()
    shift 5
    while [ "$1" != -- ]; do receive+=("$1"); shift; done
    shift
    begin
    meet
    recv "${receive[@]}" --into got "${where[@]}" &
    receiver=$!
    send "$@" "${where[@]}" &
    sender=$!
    wait $receiver
    code=$?
    [ $code -eq "$want_recv" ] || { status=1; echo "    exit code $code of the receiver, not $want_recv"; }
    wait $sender
    code=$?
    [ $code -eq "$want_send" ] || { status=1; echo "    exit code $code of the sender, not $want_send"; }
    grep -q "$words" recv.log send.log || { status=1; echo "    nobody says '$words'"; }
    [ ! -e got/rank-00000.safetensors ] || { status=1; echo "    a rank file is there"; }
    result $status "$what"
}

# The library that the programs find, but for one message of which some bytes are written over.
damaged_frame() {
    local flip real
    flip=$(realpath "$FLIP")
    real=$(IFS=:; for folder in ${LD_LIBRARY_PATH:-}; do [ ! -e "$folder/libnccl.so.2" ] || echo "$folder/libnccl.so.2"; done)
    [ -n "$real" ] || real=$(ldconfig -p | awk '$1 == "libnccl.so.2" { print $NF }')
    mkdir -p flip
    cp "$flip" flip/libnccl.so.2
    export NCCL_FLIP_OF=${real%%$'\n'*} NCCL_FLIP_AT=$1
    LD_LIBRARY_PATH=$PWD/flip:${LD_LIBRARY_PATH:-} refused "a frame that was damaged under way, message $1" \
        "the payload of frame $(($1 - 1)) of sender 0 is damaged" 3 4 -- x.lpt "${server[@]}" --gpu "$far" -- \
        x.lpt --from ck1 --sharded "${trainer[@]}" --gpu 0 --bucket 1MiB
    unset NCCL_FLIP_OF NCCL_FLIP_AT
}

late_receiver() {
    local receiver sender status=0
    begin
    meet
    send x.lpt --from ck1 --sharded "${trainer[@]}" --gpu 0 "${where[@]}" &
    sender=$!
    sleep 10
    recv x.lpt --into got "${server[@]}" --gpu "$far" "${where[@]}" &
    receiver=$!
    both $receiver $sender && same want-ck1 got 0 || status=1
    result $status "a receiver 10 s late"
}

if [[ $parts == *" killed "* ]]; then
    killed_receiver
    killed_sender
fi
if [[ $parts == *" wrong "* ]]; then
    refused "another epoch than was asked for" 'epoch' 3 3 -- x.lpt "${server[@]}" --gpu "$far" --epoch 3 -- \
        x.lpt --from ck1 --gpu 0 --epoch 2
    refused "a trace of another checkpoint" 'another checkpoint' 3 3 -- x.lpt "${server[@]}" --gpu "$far" -- \
        other.lpt --from other --gpu 0
    if [ -n "${FLIP:-}" ] && [ "$transport" = nccl ]; then
        damaged_frame 1
        damaged_frame 4
    fi
fi
[[ $parts != *" late "* ]] || late_receiver
[ $failed -eq 0 ] || { echo "$failed steps are wrong"; exit 1; }
echo "${modes[*]} over $transport: equal to a replay"

# ---- fast ----

if [ -n "$bench" ] && [[ $parts == *" fast "* ]]; then
    for mode in packed sliced delta "delta --fp8"; do
        # shellcheck disable=SC2086 # two words
        timeout -s KILL "$limit" "$bench" $mode --gib "$gib" --gate "${host[@]}" || failed=1
    done
fi
exit $failed
