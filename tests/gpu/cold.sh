#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Cold starts of generated checkpoints on a GPU, rank by rank, against the digests that the CPU replay kept.
#
#   tests/gpu/cold.sh LOADPLAN MAKE_CHECKPOINT [SCRATCH]
set -e
loadplan=$1
make_checkpoint=$2
work=$(mktemp -d "${3:-/tmp}/loadplan-cold-XXXXXX")
trap 'rm -rf "$work"' EXIT

# name, checkpoint options, --, record options
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
    # shellcheck disable=SC2086
    "$make_checkpoint" -o "$work/$name" $options >/dev/null
    "$loadplan" record -q --checkpoint "$work/$name" "$@" --rank all -o "$work/$name.lpt"
    "$loadplan" replay -q "$work/$name.lpt" --checkpoint "$work/$name" -o "$work/$name.cpu"
    code=0
    "$loadplan" replay "$work/$name.lpt" --checkpoint "$work/$name" --device cuda:0 --verify -o "$work/$name.gpu" \
        2>"$work/log" || code=$?
    if [ "$code" = 4 ] && grep -q "cannot use device" "$work/log"; then
        echo "SKIPPED: $(cat "$work/log")"
        exit 77
    fi
    cat "$work/log"
    test "$code" = 0
    for file in "$work/$name.cpu"/*; do
        cmp "$file" "$work/$name.gpu/$(basename "$file")"
    done
    rm -r "${work:?}/${name:?}" "$work/$name.cpu" "$work/$name.gpu"
    echo "$name: equal"
}

compare dense --kind dense --layers 3 --hidden 512 --heads 8 --kv-heads 4 --head-dim 64 --intermediate 1024 --bias \
    --shards 3 -- --loader dense --tp 4
compare nvfp4 --kind nvfp4 --layers 2 --hidden 512 --intermediate 256 --experts 16 --shards 2 -- --loader megamoe --ep 4
compare mxfp4 --kind mxfp4 --layers 2 --hidden 512 --intermediate 256 --experts 16 --shards 2 -- --loader megamoe --ep 2
