#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs into a scratch folder and builds two users against it: one by find_package, one by pkg-config.
set -euo pipefail
source=$1 build=$2 cmake=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if grep -q 'LOADPLAN_SANITIZE:STRING=.' "$build/CMakeCache.txt"; then
    echo "skipped: a sanitized library needs its runtime in every user"
    exit 77
fi
"$cmake" --install "$build" --prefix "$work/usr" >"$work/log" || { cat "$work/log"; exit 1; }
mkdir "$work/user"
cat >"$work/user/user.c" <<'END'
#include <loadplan/layout.h>
#include <loadplan/recorder.h>
#include <loadplan/replayer.h>
#include <loadplan/sync.h>
#include <stdio.h>
#include <string.h>
int main(void)
{
    if (strcmp(lp_version(), "0.1.0") != 0)
        return 1;
    puts(lp_status_name(LP_E_STALE));
    return 0;
}
END
cat >"$work/user/CMakeLists.txt" <<'END'
cmake_minimum_required(VERSION 3.20)
project(user C)
find_package(loadplan 0.1 REQUIRED)
add_executable(user user.c)
target_link_libraries(user PRIVATE loadplan::loadplan)
END
"$cmake" -S "$work/user" -B "$work/user/build" -DCMAKE_PREFIX_PATH="$work/usr" >"$work/log"
"$cmake" --build "$work/user/build" >"$work/log"
libdir=$(dirname "$(find "$work/usr" -name 'libloadplan.so')")
test "$(LD_LIBRARY_PATH=$libdir "$work/user/build/user")" = LP_E_STALE
pc=$(dirname "$(find "$work/usr" -name loadplan.pc)")
flags=$(PKG_CONFIG_PATH=$pc pkg-config --cflags --libs loadplan)
# shellcheck disable=SC2086
cc -std=c17 "$work/user/user.c" $flags -o "$work/user/plain"
test "$(LD_LIBRARY_PATH=$libdir "$work/user/plain")" = LP_E_STALE
test "$("$work/usr/bin/loadplan" -qV)" = 0.1.0
(cd "$source/docs/schemas" && ls) | diff - <(ls "$work/usr/share/loadplan/schemas") || { echo "schemas are missing"; exit 1; }
# The program of docs/recording.md, built as it says there, on the headers of 32 layers (the payload is a hole).
awk '/^```c$/ { n++; next } /^```/ { n += n % 2 } n == 1' "$source/docs/recording.md" >"$work/loader.c"
grep -q 'int main' "$work/loader.c"
(cd "$work" && PKG_CONFIG_PATH=$pc bash -c 'cc loader.c $(pkg-config --cflags --libs loadplan) -o loader')
python3 - "$work/checkpoint.safetensors" <<'END'
import json
import sys
rows, columns, end, header = 14336, 4096, 0, {}
for layer in range(32):
    for half in "gate_proj", "up_proj":
        begin, end = end, end + rows * columns * 2
        header[f"model.layers.{layer}.mlp.{half}.weight"] = {"dtype": "BF16", "shape": [rows, columns], "data_offsets": [begin, end]}
text = json.dumps(header).encode()
with open(sys.argv[1], "wb") as f:
    f.write(len(text).to_bytes(8, "little") + text)
    f.truncate(8 + len(text) + end)
END
LD_LIBRARY_PATH=$libdir "$work/loader" "$work/checkpoint.safetensors" "$work/guide.lpt"
"$work/usr/bin/loadplan" check "$work/guide.lpt" | grep -q 'guide.lpt: ok: every destination byte written exactly once'

# What leaves the shared library is what the installed headers declare, under the version of this release.
nm -D --defined-only --with-symbol-versions "$libdir/libloadplan.so" | awk '$2 == "T" { print $3 }' | sort >"$work/exported"
if grep -v '^lp_[a-z0-9_]*@@LOADPLAN_0\.1$' "$work/exported"; then
    echo "exported under another name or version"
    exit 1
fi
tr '\n' ' ' < <(cat "$work"/usr/include/loadplan/*.h) | grep -oE 'LP_API [^;(]*\blp_[a-z0-9_]+\(' |
    grep -oE 'lp_[a-z0-9_]+\($' | tr -d '(' | sort >"$work/declared"
sed 's/@.*//' "$work/exported" | diff "$work/declared" - || { echo "declared (<) and exported (>) differ"; exit 1; }
# A function's page is a link to the page that it is on.
if test -d "$work/usr/share/man"; then
    page=$(sed -n 's/^\.so //p' "$work/usr/share/man/man3/lp_finish.3")
    grep -q 'lp_finish' "$work/usr/share/man/$page"
fi
echo "installed, found by CMake and pkg-config, exports the $(wc -l <"$work/declared") functions of its headers"
