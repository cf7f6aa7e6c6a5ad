#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs the browser that tests/python/report_in_a_browser.py draws reports with. Optional: without it that test skips.
set -euo pipefail
command -v chromium >/dev/null && { echo "chromium is here"; exit 0; }
run=()
[ "$(id -u)" -eq 0 ] || run=(sudo)
"${run[@]}" apt-get update -qq
"${run[@]}" apt-get install -y -qq --no-install-recommends chromium fonts-dejavu-core >/dev/null
