# shellcheck shell=sh
# SPDX-License-Identifier: Apache-2.0
# What cold.sh and session.sh share: generated checkpoints, and a replay on a device that must equal that on the CPU.
# Sourced with the arguments LOADPLAN MAKE_CHECKPOINT [SCRATCH] of the script; leaves a folder `work`.
set -e
loadplan=$1
make_checkpoint=$2
work=$(mktemp -d "${3:-/tmp}/loadplan-gpu-XXXXXX")
trap 'rm -rf "$work"' EXIT

# NAME [checkpoint options; none: of make_small.py] -- record options: makes work/NAME and its trace work/NAME.lpt
record_generated()
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
}

# NAME [options of both replays] -- options of that on the device: every rank file must be the same
replay_on_both()
{
    name=$1
    shift
    both=
    while [ "$1" != -- ]; do
        both="$both $1"
        shift
    done
    shift
    # shellcheck disable=SC2086
    "$loadplan" replay -q "$work/$name.lpt" --checkpoint "$work/$name" $both -o "$work/cpu"
    code=0
    # shellcheck disable=SC2086
    "$loadplan" replay "$work/$name.lpt" --checkpoint "$work/$name" $both --device cuda:0 --verify "$@" -o "$work/gpu" \
        2>"$work/log" || code=$?
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
}

# NAME
replay_meta()
{
    "$loadplan" replay -q "$work/$1.lpt" --device cuda:0 --mode meta
}

# NAME
drop_generated()
{
    rm -r "${work:?}/${1:?}"
}
