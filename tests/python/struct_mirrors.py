# SPDX-License-Identifier: Apache-2.0
"""The structs that the Python package tells ctypes about are those of the headers, by a C compiler's word. Runs without
torch: a stand-in is enough to read the modules."""
import argparse
import ctypes
import os
import pathlib
import subprocess
import sys
import tempfile
import types
from unittest import mock

ROOT = pathlib.Path(__file__).resolve().parents[2]
HEADERS = ("recorder/recorder.h", "replayer/replayer.h", "replayer/sync.h", "kernels/megamoe.h",
           "kernels/exchange.h")


def read_package(build: str):
    """The modules of the package, without what its __init__ needs of torch."""
    os.environ["LOADPLAN_LIBRARY"] = os.path.join(build, "libloadplan.so")
    package = types.ModuleType("loadplan")
    package.__path__ = [str(ROOT / "recorder" / "torch" / "loadplan")]
    sys.modules["loadplan"] = package
    sys.modules["torch"] = mock.MagicMock()
    from loadplan import _library, distributed, exchange, megamoe
    return _library, distributed, exchange, megamoe


def mirrors(build: str):
    _library, distributed, exchange, megamoe = read_package(build)
    return {
        "lp_error": _library.Error, "lp_scope": _library.Scope, "lp_checkpoint_tensor": _library.CheckpointTensor,
        "lp_checkpoint_file": _library.CheckpointFile, "lp_recorder_options": _library.RecorderOptions,
        "lp_rule": _library.Rule, "lp_finding": _library.RawFinding, "lp_destination_memory": _library.DestinationMemory,
        "lp_bind_options": _library.BindOptions, "lp_session_options": _library.SessionOptions, "lp_buffer": _library.Buffer,
        "lp_report": _library.RawReport, "lp_trace_header": _library.TraceHeader, "lp_transport": distributed.Transport,
        "lp_tcp_options": distributed.TcpOptions, "lp_sync_options": distributed.SyncOptions,
        "lp_sync_source": distributed.SyncSource, "lp_sync_report": distributed.RawSyncReport,
        "lp_megamoe_shape": megamoe.Shape, "lp_megamoe_tensor": megamoe.RawTensor, "lp_megamoe_weights": megamoe.Weights,
        "lp_megamoe_io": megamoe.Io, "lp_moe_exchange": exchange.Exchange, "lp_moe_failure": exchange.Failure,
    }


def members(mirror) -> list[str]:
    return [member for member, _ in mirror._fields_ if member != "later"]


def ask_compiler(structs) -> dict[str, int]:
    """Sizes of structs and offsets of members, by the names that C knows."""
    lines = []
    for name, mirror in structs.items():
        lines.append(f'printf("{name} %zu\\n", sizeof({name}));')
        lines += [f'printf("{name}.{member} %zu\\n", offsetof({name}, {member}));' for member in members(mirror)]
    program = ("".join(f'#include "{header}"\n' for header in HEADERS) +
               "#include <stdio.h>\nint main(void)\n{\n" + "\n".join(lines) + "\nreturn 0;\n}\n")
    with tempfile.TemporaryDirectory() as folder:
        source, binary = os.path.join(folder, "structs.c"), os.path.join(folder, "structs")
        pathlib.Path(source).write_text(program)
        subprocess.run([os.environ.get("CC", "cc"), "-std=c17", f"-I{ROOT}", source, "-o", binary], check=True)
        said = subprocess.run([binary], check=True, capture_output=True, text=True).stdout
    return {name: int(number) for name, number in (line.split() for line in said.splitlines())}


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", required=True)
    structs = mirrors(parser.parse_args().build)
    said = ask_compiler(structs)
    wrong = []
    for name, mirror in structs.items():
        have = ctypes.sizeof(mirror)
        # What the library passes or fills may grow: `later` is room for that.
        if have < said[name] if "later" in dict(mirror._fields_) else have != said[name]:
            wrong.append(f"{name} has {said[name]} bytes, {have} in Python")
        wrong += [f"{name}.{member} is at {said[f'{name}.{member}']}, at {getattr(mirror, member).offset} in Python"
                  for member in members(mirror) if said[f"{name}.{member}"] != getattr(mirror, member).offset]
    print("\n".join(wrong) or f"{len(structs)} structs are as the headers have them")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
