#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes the Debian packages, unpacks them, and uses what is inside.
set -euo pipefail
build=$1 cpack=$2
for tool in dpkg-deb dpkg-shlibdeps file; do
    command -v $tool >/dev/null || { echo "skipped: $tool is not installed"; exit 77; }
done
if grep -q 'LOADPLAN_SANITIZE:STRING=.' "$build/CMakeCache.txt"; then
    echo "skipped: a sanitized build is not packaged"
    exit 77
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$cpack" -G DEB --config "$build/CPackConfig.cmake" -B "$work/out" >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
for package in loadplan libloadplan0 libloadplan-dev; do
    file=$(find "$work/out" -maxdepth 1 -name "${package}_*.deb")
    test -n "$file" || { echo "no package $package"; exit 1; }
    dpkg-deb -x "$file" "$work/root"
    grep -q 'Apache License' "$work/root/usr/share/doc/$package/copyright"
done
# What depends on the library finds the package that has it.
dpkg-deb -I "$(find "$work/out" -maxdepth 1 -name 'libloadplan0_*.deb')" shlibs | grep -q '^libloadplan 0 libloadplan0'
"$work/root/usr/bin/loadplan" --version >/dev/null
lib=$(dirname "$(find "$work/root" -name 'libloadplan.so')")
cat >"$work/user.c" <<'END'
#include <loadplan/trace.h>
#include <stdio.h>
int main(void)
{
    puts(lp_version());
    return 0;
}
END
# shellcheck disable=SC2046
cc -std=c17 "$work/user.c" $(PKG_CONFIG_PATH=$lib/pkgconfig pkg-config --cflags --libs loadplan) -o "$work/user"
test "$(LD_LIBRARY_PATH=$lib "$work/user")" = "$("$work/root/usr/bin/loadplan" -qV)"
dpkg-deb -f "$(find "$work/out" -maxdepth 1 -name 'loadplan_*.deb')" Depends | grep -q libsqlite3
# What pkg-config reads on a machine that has nothing else: a package that has it must come along.
needs=$(dpkg-deb -f "$(find "$work/out" -maxdepth 1 -name 'libloadplan-dev_*.deb')" Depends)
for name in $(sed -n 's/^Requires.private: //p' "$lib/pkgconfig/loadplan.pc"); do
    package=$(dpkg-query -S "*/pkgconfig/$name.pc" | sed 's/:.*//')
    [[ ", $needs," == *", $package,"* ]] || { echo "libloadplan-dev does not depend on $package, which has $name.pc"; exit 1; }
done
if pkg-config --static --libs sqlite3 | grep -q -- '-lz\b' && [[ ", $needs," != *", zlib1g-dev,"* ]]; then
    echo "libloadplan-dev does not bring zlib, which SQLite asks static users for"
    exit 1
fi
test -e "$work/root/usr/share/bash-completion/completions/loadplan"
test -e "$work/root/usr/share/zsh/vendor-completions/_loadplan"
test -e "$work/root/usr/share/fish/vendor_completions.d/loadplan.fish"
if command -v scdoc >/dev/null; then
    test -e "$work/root/usr/share/man/man1/loadplan.1"
    test -e "$work/root/usr/share/man/man3/lp_bind.3"
fi
echo "three packages, used after unpacking"
