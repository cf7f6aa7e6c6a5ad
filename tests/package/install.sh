#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs into a scratch folder and builds two users against it: one by find_package, one by pkg-config.
set -euo pipefail
build=$2 cmake=$3
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
# Nothing but lp_* leaves the shared library.
stray=$(nm -D --defined-only "$libdir/libloadplan.so" | awk '{print $3}' | grep -v '^lp_\|^LOADPLAN' || true)
test -z "$stray" || { echo "exported: $stray"; exit 1; }
echo "installed, found by CMake and pkg-config, exports lp_* only"
