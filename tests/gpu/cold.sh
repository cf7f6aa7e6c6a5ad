#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Cold starts of generated checkpoints on a GPU, rank by rank, against the digests that the CPU replay kept.
#
#   tests/gpu/cold.sh LOADPLAN MAKE_CHECKPOINT [SCRATCH]
. "$(dirname "$0")/replayed.sh"

compare()
{
    record_generated "$@"
    replay_on_both "$1" --
    drop_generated "$1"
    echo "$1: equal"
}

compare dense --kind dense --layers 3 --hidden 512 --heads 8 --kv-heads 4 --head-dim 64 --intermediate 1024 --bias \
    --shards 3 -- --loader dense --tp 4
compare nvfp4 --kind nvfp4 --layers 2 --hidden 512 --intermediate 256 --experts 16 --shards 2 -- --loader megamoe --ep 4
compare mxfp4 --kind mxfp4 --layers 2 --hidden 512 --intermediate 256 --experts 16 --shards 2 -- --loader megamoe --ep 2
