#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes the manual pages: one for each command, from the program itself, those of the C interface from the public headers,
# and those that stand here as .scd files.
#
#   docs/man/make.sh LOADPLAN FOLDER
set -euo pipefail
loadplan=$1 folder=$2
here=$(cd "$(dirname "$0")" && pwd)
command -v scdoc >/dev/null || { echo "skipped: scdoc is not installed"; exit 77; }
mkdir -p "$folder"
# scdoc writes a date; equal sources give equal pages.
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-1767225600}
"$loadplan" help --format=scdoc | scdoc >"$folder/loadplan.1"
for verb in $("$loadplan" help --format=names); do
    "$loadplan" help --format=scdoc "$verb" | scdoc >"$folder/loadplan-$verb.1"
done
rm -f "$folder"/*.3
"${PYTHON:-python3}" "$here/header_pages.py" "$folder" "$("$loadplan" -qV)" "$here"/../../{traces/trace.h,layouts/layout.h} \
    "$here"/../../{layouts/layout_index.h,recorder/recorder.h,replayer/replayer.h,replayer/sync.h,kernels/megamoe.h,kernels/exchange.h}
for page in "$here"/*.scd "$folder"/*.3.scd; do
    name=$(basename "$page" .scd)
    scdoc <"$page" >"$folder/$name"
done
rm -f "$folder"/*.3.scd
