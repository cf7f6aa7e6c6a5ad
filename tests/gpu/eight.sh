#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The deployment size: a cold start of all ranks, syncs between trainers and servers, and experts divided over all GPUs
# of this host, each beside its ceiling in the same run, and what is left when a rank is killed. At most ten minutes.
#
#   tests/gpu/eight.sh BUILD OUT [GPUS]
#
# BUILD: where it was built; or a folder with loadplan, make_checkpoint, bench_sync, bench_moe_exchange and
# test_moe_processes. OUT: table.txt and results.jsonl.
# GPUS: 8, 4 or 2; default all. HOST=1 (a small checkpoint) tries the script on the CPU, without ceilings. SCRATCH: where
# the checkpoint goes (/tmp): 14 GiB a GPU. Exit code 77: there are fewer than two GPUs.
set -uo pipefail
build=$(realpath "$1")
tools=$build/tests
[ -d "$tools" ] || tools=$build
mkdir -p "$2"
out=$(realpath "$2")
host=${HOST:-}
here=$(dirname "$(realpath "$0")")
gpus=${3:-$(nvidia-smi -L 2>/dev/null | grep -c '^GPU' || true)}
[ "${gpus:-0}" -ge 2 ] || { echo "needs several GPUs, here are ${gpus:-0}"; exit 77; }
half=$((gpus / 2))
work=$(mktemp -d "${SCRATCH:-/tmp}/loadplan-eight-XXXXXX")
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 2
: >"$out/results.jsonl"
exec > >(tee "$out/table.txt") 2>&1
export LD_LIBRARY_PATH=$build${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
port=$((20000 + RANDOM % 12000))
failed=0

# What a rank says of its load: "replay: ... 2.2 GiB in 0.06 s": bytes of all over the time of the slowest.
report_load() { # WHAT
    python3 - "$1" "$gpus" "$out/results.jsonl" "${link:-0}" <<'P'
import json, re, sys
what, gpus, results, link = sys.argv[1], int(sys.argv[2]), sys.argv[3], float(sys.argv[4])
unit = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
moved, slowest = 0, 0.0
for rank in range(gpus):
    text = open(f"rank{rank}.log").read()
    found = re.search(r"([\d.]+) (B|KiB|MiB|GiB) in ([\d.]+) s", text)
    if not found:
        sys.exit(f"{what}: rank {rank} says no figure: {text[-300:]}")
    moved += float(found[1]) * unit[found[2]]
    slowest = max(slowest, float(found[3]))
rate = moved / max(slowest, 0.005) / 1e9
row = {"case": what, "ranks": gpus, "bytes": int(moved), "seconds": slowest, "gb_per_s": round(rate, 2)}
if link:
    row |= {"links_gb_per_s": link, "ratio": round(rate / link, 3), "bar": 0.85}
print(what.ljust(24), f"{moved / 2**30:.1f} GiB on {gpus} ranks in {slowest:.2f} s, {rate:.1f} GB/s"
      + (f", {rate / link:.3f} of the links (bar 0.85)" if link else ""))
open(results, "a").write(json.dumps(row) + "\n")
P
}

start_rank() { # RANK OPTION ...: as a launcher starts it, its words in rankN.log
    local rank=$1
    shift
    RANK=$rank WORLD_SIZE=$gpus LOCAL_RANK=$rank MASTER_ADDR=127.0.0.1 MASTER_PORT=$port timeout -s KILL 120 \
        "$build/loadplan" replay big.lpt --checkpoint big "$@" >"rank$rank.log" 2>&1 &
}

own_slices() {
    local rank status=0
    for ((rank = 0; rank < gpus; rank++)); do
        if [ -n "$host" ]; then
            start_rank "$rank" --rank "$rank" -o "out$rank" -f
        else
            start_rank "$rank" --rank "$rank" --device "cuda:$rank"
        fi
    done
    for ((rank = 0; rank < gpus; rank++)); do wait -n || status=1; done
    return $status
}

kill_the_last_in_its_reads() { # of what `timeout` runs
    local pid bytes
    until pid=$(pgrep -P "$!"); do kill -0 "$!" 2>/dev/null || return; done
    while bytes=$(awk '/^rchar/ { print $2 }' "/proc/$pid/io" 2>/dev/null) && [ "${bytes:-0}" -lt $((enough / 8)) ]; do :; done
    kill -9 "$pid" 2>/dev/null
}

together() { # [kill]
    local rank status=0
    port=$((port + 7))
    for ((rank = 0; rank < gpus; rank++)); do
        if [ -n "$host" ]; then start_rank "$rank" --world; else start_rank "$rank" --world --device cuda; fi
    done
    [ "${1:-}" = kill ] && kill_the_last_in_its_reads
    for ((rank = 0; rank < gpus; rank++)); do wait -n || status=$((status + 1)); done
    return $status
}

# ---- cold start, experts divided over all ranks ----

if [ -n "$host" ]; then sizes="--layers 4 --hidden 1024 --intermediate 512 --experts 64 --shards 4"
else sizes="--layers $((4 * gpus)) --hidden 4096 --intermediate 2048 --experts 256 --shards $((4 * gpus))"; fi
# shellcheck disable=SC2086 # words
"$tools/make_checkpoint" -o big --kind nvfp4 $sizes >/dev/null || exit 2
"$build/loadplan" record --checkpoint big --loader megamoe --ep "$gpus" --rank all -q -o big.lpt || exit 2
cat big/*.safetensors >/dev/null
link=
[ -n "$host" ] || link=$(python3 "$here/pinned_links.py" "$gpus") || exit 2
for _ in 1 2; do own_slices || failed=1; done
report_load "cold, own slices" || failed=1
for _ in 1 2; do together || failed=1; done
report_load "cold, shared reads" || failed=1
enough=$(($(cat big/*.safetensors | wc -c) / gpus)) # a rank's share
together kill 2>/dev/null # of the shell, which tells that somebody was killed
last=$((gpus - 1))
if grep -q '^replay: rank' rank$last.log; then
    echo "cold, a rank killed      it had ended before"
elif grep -hq '^replay: rank' rank?.log; then
    echo "cold, a rank killed      another one reports success"
    failed=1
else
    echo "cold, a rank killed      $(grep -h error rank?.log | sort | uniq -c | sort -rn | head -n 1 | sed 's/^ *//')"
fi

# ---- syncs: half of the GPUs hold trainers, half servers ----

for mode in packed sliced delta; do
    "$tools/bench_sync" $mode --senders $half --receivers $half ${host:+--host} >sync.txt 2>&1 || failed=1
    cat sync.txt
    python3 -c 'import json, sys; print(json.dumps({"case": "sync", "text": sys.stdin.read().strip()}))' <sync.txt >>"$out/results.jsonl"
done

# ---- experts divided over all GPUs ----

if [ -z "$host" ]; then
    "$tools/test_moe_processes" "$gpus" >moe.txt 2>&1 || failed=1
    tail -n 3 moe.txt # its last case is a rank that stays away
    bench_moe() { timeout "$1" "$tools/bench_moe_exchange" --ranks "$gpus" "${@:2}" | tee -a "$out/results.jsonl" || failed=1; }
    bench_moe 60 --formats mxfp4,fp8 --shapes tiny --tokens 64 --launches 5 --balance even,tokens,routes
    bench_moe 200 --formats mxfp4,nvfp4,fp8 --shapes flash,pro --tokens 8,64,512,4096,8192 --launches 11 --no-check
    # One rank with half of the tokens: 65,536 at most, if each rank had as many. Then with half of the routes.
    bench_moe 70 --formats mxfp4,nvfp4,fp8 --shapes flash,pro --tokens 64,512,2048 --launches 7 --no-check --balance tokens
    bench_moe 90 --formats mxfp4,nvfp4,fp8 --shapes flash,pro --tokens 64,512,4096 --launches 7 --no-check --balance routes
fi
exit $failed
