#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Loads generated checkpoints through sessions into device memory, rank by rank, in every mode: rank files and digests
# must be those of the CPU replay.
#
#   tests/gpu/session.sh LOADPLAN MAKE_CHECKPOINT [SCRATCH]
set -e
loadplan=$1
make_checkpoint=$2
work=$(mktemp -d "${3:-/tmp}/loadplan-session-XXXXXX")
trap 'rm -rf "$work"' EXIT

# name, checkpoint options (none: of make_small.py), --, record options
compare()
{
    name=$1
    shift
    options=
    while [ "$1" != -- ]; do
        options="$options $1"
        shift
    done
    shift
    if [ -z "$options" ]; then
        python3 "$(dirname "$0")/make_small.py" "$name" "$work/$name"
    else
        # shellcheck disable=SC2086
        "$make_checkpoint" -o "$work/$name" $options >/dev/null
    fi
    "$loadplan" record -q --checkpoint "$work/$name" "$@" --rank all -o "$work/$name.lpt"
    for mode in dummy direct layerwise; do
        "$loadplan" replay -q "$work/$name.lpt" --checkpoint "$work/$name" --mode $mode -o "$work/cpu"
        code=0
        "$loadplan" replay -q "$work/$name.lpt" --checkpoint "$work/$name" --device cuda:0 --mode $mode --verify \
            --staging 64MiB --spill 64MiB -o "$work/gpu" 2>"$work/log" || code=$?
        if [ "$code" = 4 ] && grep -q "cannot use device" "$work/log"; then
            echo "SKIPPED: $(cat "$work/log")"
            exit 77
        fi
        cat "$work/log"
        test "$code" = 0
        for file in "$work/cpu"/*; do
            cmp "$file" "$work/gpu/$(basename "$file")"
        done
        rm -r "$work/cpu" "$work/gpu"
    done
    "$loadplan" replay -q "$work/$name.lpt" --device cuda:0 --mode meta
    rm -r "${work:?}/${name:?}"
    echo "$name: equal in direct, layerwise and dummy mode"
}

compare dense --kind dense --layers 2 --hidden 256 --heads 8 --kv-heads 4 --head-dim 64 --intermediate 512 --bias \
    --shards 3 -- --loader dense --tp 4
compare nvfp4 --kind nvfp4 --layers 2 --hidden 256 --intermediate 256 --experts 16 --shards 2 -- --loader megamoe --ep 4
compare mxfp4 --kind mxfp4 --layers 2 --hidden 256 --intermediate 256 --experts 16 --shards 2 -- --loader megamoe --ep 2
compare bert -- --loader bert --tp 2
compare mixtral -- --loader moe --tp 2
