#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Loads generated checkpoints through sessions into device memory, rank by rank, in every mode: rank files and digests
# must be those of the CPU replay.
#
#   tests/gpu/session.sh LOADPLAN MAKE_CHECKPOINT [SCRATCH]
. "$(dirname "$0")/replayed.sh"

compare()
{
    record_generated "$@"
    for mode in dummy direct layerwise; do
        replay_on_both "$1" --mode $mode -- -q --staging 64MiB --spill 64MiB
        replay_on_both "$1" --mode $mode -- -q
    done
    replay_on_both "$1" --tensor '*.0.*' -- -q
    replay_on_both "$1" --ops 0-2 -- -q
    replay_meta "$1"
    drop_generated "$1"
    echo "$1: equal in direct, layerwise and dummy mode"
}

compare dense --kind dense --layers 2 --hidden 256 --heads 8 --kv-heads 4 --head-dim 64 --intermediate 512 --bias \
    --shards 3 -- --loader dense --tp 4
compare nvfp4 --kind nvfp4 --layers 2 --hidden 256 --intermediate 256 --experts 16 --shards 2 -- --loader megamoe --ep 4
compare mxfp4 --kind mxfp4 --layers 2 --hidden 256 --intermediate 256 --experts 16 --shards 2 -- --loader megamoe --ep 2
compare bert -- --loader bert --tp 2
compare mixtral -- --loader moe --tp 2
