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
nm -D --defined-only "$library" | awk '$2 == "T" { sub("@.*", "", $3); print $3 }' >"$work/exported"
grep -H . "$work"/*.3 | sed -n 's|^.*/\([a-z0-9_]*\)\.3:\.so man3/\(.*\)$|\1 \2|p' >"$work/links"
awk -v folder="$work" '
    FILENAME ~ /links$/ { page[$1] = $2; next }
    {
        name = $1
        shown = folder "/" (name in page ? page[name] : name ".3") ".txt"
        if (!(shown in text)) {
            text[shown] = ""
            while ((getline line < shown) > 0)
                text[shown] = text[shown] "\n" line
        }
        plain = name
        sub(/_at$/, "", plain)
        # These four are behind macros of other names.
        if (name !~ /^lp_(unary|binary|reduce|host_read)_at$/ && index(text[shown], name "(") == 0 && index(text[shown], plain "(") == 0) {
            print "no page shows " name
            failed = 1
        }
    }
    END { exit failed }' "$work/links" "$work/exported"
functions=$(wc -l <"$work/exported")
test "$functions" -gt 300
echo "${#pages[@]} pages; $functions functions"
