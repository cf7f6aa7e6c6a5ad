#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds the host part for 64-bit Arm and runs its tests under qemu:  tests/cross/aarch64.sh BUILD
#
# The Arm libraries are Debian packages unpacked below BUILD/aarch64, not installed. Exit code 77: they cannot be had here.
# ALL=1 runs the long loops over random cases too, which say the same on every processor and take minutes under emulation.
set -euo pipefail
cd "$(dirname "$0")/../.."
mkdir -p "$1/aarch64"
work=$(cd "$1/aarch64" && pwd)

skip() { echo "skipped: $1"; exit 77; }
need=()
for package in gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user; do
    dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || need+=("$package")
done
if [ ${#need[@]} -gt 0 ]; then
    echo "setup: installing ${need[*]}"
    run=()
    [ "$(id -u)" -eq 0 ] || run=(sudo)
    export DEBIAN_FRONTEND=noninteractive
    "${run[@]}" apt-get update -qq || skip "no packages to be had"
    "${run[@]}" apt-get install -y -qq --no-install-recommends "${need[@]}" >/dev/null || skip "cannot install ${need[*]}"
fi

if [ ! -e "$work/sysroot/complete-1" ]; then
    rm -rf "$work/sysroot" "$work/lists"
    mkdir -p "$work/sysroot" "$work/lists/partial" "$work/packages"
    apt=(apt-get -qq -oAPT::Architecture=arm64 -oAPT::Architectures=arm64 "-oDir::State::Lists=$work/lists" -oDebug::NoLocking=1
         "-oDir::Cache::pkgcache=" "-oDir::Cache::srcpkgcache=")
    "${apt[@]}" update || skip "no Arm packages to be had"
    (cd "$work/packages" && "${apt[@]}" download libsqlite3-0 libsqlite3-dev libzstd1 libzstd-dev libxxhash0 libxxhash-dev \
        libssl3 libssl-dev libjansson4 libjansson-dev libcmocka0 libcmocka-dev) || skip "no Arm packages to be had"
    for package in "$work"/packages/*.deb; do
        dpkg-deb -x "$package" "$work/sysroot"
    done
    touch "$work/sysroot/complete-1"
fi

cmake -S . -B "$work/build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DLOADPLAN_CUDA=off -DLOADPLAN_DEVELOPER=ON \
    -DCMAKE_TOOLCHAIN_FILE="$PWD/tests/cross/aarch64.cmake" -DLOADPLAN_SYSROOT="$work/sysroot" >"$work/configure.log"
cmake --build "$work/build"
long='unit\.(trace_file_faults|trace_file_refusals|exec_fast|cold_load|derive_eval|read_ring|layout_table|cover|view_chain'
long+='|map_algebra|loader_families)$'
[ -z "${ALL:-}" ] || long='^$'
ctest --test-dir "$work/build" -j "$(nproc)" -L 'unit|fuzz' -E "$long" --output-on-failure
