#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# test_wheel.sh PYTHON: builds the wheel, installs it apart, records and replays with nothing else on the path.
# LOADPLAN_LIBRARY is the library that goes into it.
set -euo pipefail
python=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")
here=$(cd "$(dirname "$0")/../.." && pwd)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cp -r "$here/recorder/torch" "$folder/source" # setuptools leaves folders behind
rm -rf "$folder/source/build" "$folder/source"/*.egg-info
"$python" -m pip wheel -q --disable-pip-version-check --no-deps -w "$folder" "$folder/source"
wheel=$(echo "$folder"/loadplan-*.whl)
echo "$(basename "$wheel"): $(stat -c %s "$wheel") bytes"
case $wheel in *-py3-none-linux_*.whl) ;; *) echo "not a wheel of one platform" >&2 && exit 1 ;; esac
"$python" -m pip install -q --disable-pip-version-check --no-deps --target "$folder/site" "$wheel"
for file in libloadplan.so py.typed vllm_transfer.py; do
    [ -s "$folder/site/loadplan/$file" ] || [ "$file" = py.typed ] || { echo "the wheel lacks $file" >&2 && exit 1; }
    [ -e "$folder/site/loadplan/$file" ] || { echo "the wheel lacks $file" >&2 && exit 1; }
done
[ ! -e "$(dirname "$LOADPLAN_LIBRARY")/copyright" ] || grep -q 'Apache License' "$folder/site/loadplan/LICENSE"
grep -q 'loadplan = loadplan.vllm_plugin:register' "$folder"/site/loadplan-*.dist-info/entry_points.txt
cd "$folder"
env -u LOADPLAN_LIBRARY PYTHONPATH="$folder/site" "$python" -W ignore - <<'PY'
import importlib.metadata

import torch
from safetensors.torch import save_file

import loadplan

assert loadplan.__file__.startswith(__import__("os").getcwd()), loadplan.__file__
assert loadplan._library.lib._name.endswith("site/loadplan/libloadplan.so"), loadplan._library.lib._name
assert importlib.metadata.version("loadplan") == loadplan.__version__
weights = {"w": torch.arange(12.0).reshape(3, 4)}
save_file(weights, "model.safetensors")
model = torch.nn.Linear(3, 4, bias=False)
trace = loadplan.record(lambda ws: [model.weight.data.copy_(w.t()) for _, w in ws], "model.safetensors", model)
loadplan.replay(trace, model, weights)
assert torch.equal(model.weight, weights["w"].t())
print("the wheel records and replays")
PY
