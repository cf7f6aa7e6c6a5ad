#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Every command has a manual page that scdoc takes, that mandoc finds nothing wrong with, and that names every option; every
# function that the library exports has one that shows its prototype.
set -euo pipefail
loadplan=$1 make=$2 library=$3
command -v scdoc >/dev/null && command -v mandoc >/dev/null || { echo "skipped: scdoc or mandoc is not installed"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$make" "$loadplan" "$work"
# scdoc itself puts a paragraph macro after each heading, which mandoc thinks idle.
mapfile -t pages < <(grep -L '^\.so ' "$work"/*)
mandoc -Tlint -Wwarning "${pages[@]}" | grep -v 'skipping paragraph macro' >"$work/findings" || true
test ! -s "$work/findings" || { cat "$work/findings"; exit 1; }
for verb in $("$loadplan" help --format=names); do
    mandoc -Tutf8 "$work/loadplan-$verb.1" | col -b >"$work/$verb.txt"
    for option in $("$loadplan" help "$verb" | grep -oE '^ +(-., )?--[a-z-]+' | grep -oE -- '--[a-z-]+'); do
        grep -q -- "$option" "$work/$verb.txt" || { echo "loadplan-$verb(1) lacks $option"; exit 1; }
    done
done
test -s "$work/loadplan.1" && test -s "$work/loadplan-format.5"

# Every exported function is shown by itself, or by the macro over it, on the page that its name leads to.
for page in "${pages[@]}"; do
    case $page in *.3) mandoc -Tutf8 "$page" | col -b >"$page.txt" ;; esac
done
functions=0
for name in $(nm -D --defined-only "$library" | awk '$2 == "T" { sub("@.*", "", $3); print $3 }'); do
    test -e "$work/$name.3" || { echo "there is no page $name(3)"; exit 1; }
    target=$(sed -n 's/^\.so man3\///p' "$work/$name.3")
    shown=$work/${target:-$name.3}.txt
    case $name in
    lp_unary_at | lp_binary_at | lp_reduce_at | lp_host_read_at) ;; # behind macros of other names
    *_at) grep -qE "\\b(${name}|${name%_at})\\(" "$shown" || { echo "$shown does not show $name"; exit 1; } ;;
    *) grep -q "\\b$name(" "$shown" || { echo "$shown does not show $name"; exit 1; } ;;
    esac
    functions=$((functions + 1))
done
test "$functions" -gt 300
echo "${#pages[@]} pages; $functions functions"
