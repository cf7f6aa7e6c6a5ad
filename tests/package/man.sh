#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Every command has a manual page that scdoc takes, that mandoc finds nothing wrong with, and that names every option.
set -euo pipefail
loadplan=$1 make=$2
command -v scdoc >/dev/null && command -v mandoc >/dev/null || { echo "skipped: scdoc or mandoc is not installed"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$make" "$loadplan" "$work"
# scdoc itself puts a paragraph macro after each heading, which mandoc thinks idle.
mandoc -Tlint -Wwarning "$work"/* | grep -v 'skipping paragraph macro' >"$work/findings" || true
test ! -s "$work/findings" || { cat "$work/findings"; exit 1; }
for verb in $("$loadplan" help --format=names); do
    mandoc -Tutf8 "$work/loadplan-$verb.1" | col -b >"$work/$verb.txt"
    for option in $("$loadplan" help "$verb" | grep -oE '^ +(-., )?--[a-z-]+' | grep -oE -- '--[a-z-]+'); do
        grep -q -- "$option" "$work/$verb.txt" || { echo "loadplan-$verb(1) lacks $option"; exit 1; }
    done
done
test -s "$work/loadplan.1" && test -s "$work/loadplan-format.5"
echo "$(find "$work" -name '*.[15]' | wc -l) pages"
