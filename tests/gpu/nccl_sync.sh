#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A sync between two GPUs of this host by NCCL, against a replay: nccl_sync.sh LOADPLAN MAKE_CHECKPOINT [TRANSPORT].
# Exit code 77: there are no two GPUs, or no NCCL.
set -euo pipefail
loadplan=$(realpath "$1")
make_checkpoint=$(realpath "$2")
transport=${3:-nccl}
if [ "$transport" = nccl ]; then
    gpus=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU' || true)
    [ "${gpus:-0}" -ge 2 ] || { echo "needs two GPUs, here are ${gpus:-0}"; exit 77; }
    "$loadplan" doctor 2>/dev/null | grep -q '^ *nccl .*[0-9]\.[0-9]' || { echo "needs NCCL (libnccl.so.2)"; exit 77; }
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
"$make_checkpoint" -o ck --kind dense --layers 2 --hidden 512 --intermediate 1024 --heads 8 --kv-heads 2 --head-dim 64 \
    --vocab 1024 --shards 2
"$loadplan" record --checkpoint ck --loader dense -q -o x.lpt
"$loadplan" replay x.lpt --checkpoint ck -q -o want
port=$((20000 + $$ % 20000))
for mode in packed sliced delta; do
    "$loadplan" recv x.lpt --into got --rendezvous 127.0.0.1:$port --transport "$transport" --gpu 1 --join-timeout 60 &
    receiver=$!
    "$loadplan" send x.lpt --from ck --rendezvous 127.0.0.1:$port --transport "$transport" --gpu 0 --mode $mode --bucket 1MiB \
        --join-timeout 60
    wait $receiver
    cmp want/rank-00000.safetensors got/rank-00000.safetensors
    rm -r got
    port=$((port + 1))
done
echo "packed, sliced and delta over $transport: equal to a replay"
