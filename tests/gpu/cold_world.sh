#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Cold starts of two ranks on two GPUs of this host that share the reading: equal to a replay, and how fast.
#
#   tests/gpu/cold_world.sh LOADPLAN MAKE_CHECKPOINT [LAYERS]
#
# LAYERS: then a model of so many layers of 1.6 GiB is loaded from the page cache, on both ranks the same and split over
# them, and one of as many experts in all, divided among them, beside copies of pinned memory to both GPUs at the same
# time (python3 with torch). Environment: ONE, not empty: both
# ranks on one GPU, over the library made of nccl_one.c in the place of NCCL. Exit code 77: there are no two GPUs, or no NCCL.
set -uo pipefail
here=$(dirname "$(realpath "$0")")
loadplan=$(realpath "$1")
make_checkpoint=$(realpath "$2")
layers=${3:-0}
gpus=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU' || true)
need=2 far=1
if [ -n "${ONE:-}" ]; then
    need=1 far=0
    export CUDA_DEVICE_MAX_CONNECTIONS=32 # see nccl_sync.sh
fi
[ "${gpus:-0}" -ge $need ] || { echo "needs $need GPUs, here are ${gpus:-0}"; exit 77; }
"$loadplan" doctor 2>/dev/null | grep -q '^ *nccl .*[0-9]\.[0-9]' || { echo "needs NCCL (libnccl.so.2)"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 2
failed=0
port=$((20000 + RANDOM % 12000))

# together TRACE CHECKPOINT [OPTION ...]: both ranks, as a launcher starts them; what they say goes to rank0.log and rank1.log
together() {
    local trace=$1 checkpoint=$2 first second status=0
    shift 2
    port=$((port + 7))
    for rank in 0 1; do
        RANK=$rank WORLD_SIZE=2 LOCAL_RANK=$((rank * far)) MASTER_ADDR=127.0.0.1 MASTER_PORT=$port timeout -s KILL 60 \
            "$loadplan" replay "$trace" --world --device cuda --checkpoint "$checkpoint" "$@" >rank$rank.log 2>&1 &
        [ $rank -eq 1 ] && second=$! || first=$!
    done
    wait "$first" || status=$?
    wait "$second" || status=$?
    [ $status -eq 0 ] || cat rank0.log rank1.log
    return $status
}

"$make_checkpoint" -o dense --kind dense --layers 3 --hidden 512 --intermediate 1024 --heads 8 --kv-heads 2 --head-dim 64 \
    --vocab 1024 --shards 2 >/dev/null
"$make_checkpoint" -o megamoe --kind nvfp4 --layers 2 --hidden 512 --intermediate 256 --experts 16 --shards 2 >/dev/null
for layout in "dense --dp 2" "dense --tp 2" "megamoe --ep 2"; do
    # shellcheck disable=SC2086 # words
    "$loadplan" record --checkpoint ${layout%% *} --loader $layout -q -f -o x.lpt
    "$loadplan" replay x.lpt --checkpoint "${layout%% *}" -q -o want
    if together x.lpt "${layout%% *}" -o got && cmp want/rank-00000.safetensors got/rank-00000.safetensors &&
        cmp want/rank-00001.safetensors got/rank-00001.safetensors; then
        echo "right  $layout; $(sed 's/.*; //' rank0.log)"
    else
        echo "WRONG  $layout"
        failed=1
    fi
    rm -rf want got
done
[ "$layers" -gt 0 ] && [ $failed -eq 0 ] || exit $failed

# ---- fast ----

rm -rf dense megamoe
"$make_checkpoint" -o dense --kind dense --layers "$layers" --hidden 8192 --intermediate 28672 --heads 64 --kv-heads 8 \
    --head-dim 128 --vocab 32000 --shards "$layers" >/dev/null
"$make_checkpoint" -o megamoe --kind nvfp4 --layers $(((layers + 1) / 2)) --hidden 4096 --intermediate 2048 --experts 256 \
    --shards "$layers" >/dev/null
cat dense/*.safetensors megamoe/*.safetensors >/dev/null
echo "pinned memory to one GPU $(python3 "$here/pinned_links.py" 1) GB/s, to both at a time $(python3 "$here/pinned_links.py" 2) GB/s"
for layout in "dense --dp 2" "dense --tp 2" "megamoe --ep 2"; do
    # shellcheck disable=SC2086 # words
    "$loadplan" record --checkpoint ${layout%% *} --loader $layout -q -f -o big.lpt
    for _ in 1 2; do
        together big.lpt "${layout%% *}" || failed=1
    done
    echo "$layout"
    cat rank0.log rank1.log
done
exit $failed
