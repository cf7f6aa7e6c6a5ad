# SPDX-License-Identifier: Apache-2.0
"""The structs that ctypes is told about are those of the headers, by a C compiler's word."""
import ctypes
import os
import pathlib
import subprocess
import tempfile
import unittest

from loadplan import _library, distributed

ROOT = pathlib.Path(__file__).resolve().parents[2]
STRUCTS = {
    "lp_error": _library.Error, "lp_scope": _library.Scope, "lp_checkpoint_tensor": _library.CheckpointTensor,
    "lp_checkpoint_file": _library.CheckpointFile, "lp_recorder_options": _library.RecorderOptions, "lp_rule": _library.Rule,
    "lp_finding": _library.RawFinding, "lp_destination_memory": _library.DestinationMemory,
    "lp_bind_options": _library.BindOptions, "lp_session_options": _library.SessionOptions, "lp_buffer": _library.Buffer,
    "lp_report": _library.RawReport, "lp_trace_header": _library.TraceHeader,
    "lp_transport": distributed.Transport, "lp_tcp_options": distributed.TcpOptions,
    "lp_sync_options": distributed.SyncOptions, "lp_sync_source": distributed.SyncSource,
    "lp_sync_report": distributed.RawSyncReport,
}


class Structs(unittest.TestCase):
    def test_members(self):
        lines = []
        for name, mirror in STRUCTS.items():
            lines.append(f'printf("{name} %zu\\n", sizeof({name}));')
            lines += [f'printf("{name}.{member} %zu\\n", offsetof({name}, {member}));' for member, _ in mirror._fields_
                      if member != "later"]
        program = ('#include "recorder/recorder.h"\n#include "replayer/replayer.h"\n#include "replayer/sync.h"\n#include <stdio.h>\n'
                   "int main(void)\n{\n" + "\n".join(lines) + "\nreturn 0;\n}\n")
        with tempfile.TemporaryDirectory() as folder:
            source, binary = os.path.join(folder, "structs.c"), os.path.join(folder, "structs")
            pathlib.Path(source).write_text(program)
            subprocess.run([os.environ.get("CC", "cc"), "-std=c17", f"-I{ROOT}", source, "-o", binary], check=True)
            said = dict(line.split() for line in subprocess.run([binary], check=True, capture_output=True,
                                                                text=True).stdout.splitlines())
        for name, mirror in STRUCTS.items():
            if "later" in dict(mirror._fields_):  # what the library passes or fills may grow
                self.assertLessEqual(int(said[name]), ctypes.sizeof(mirror), name)
            else:
                self.assertEqual(int(said[name]), ctypes.sizeof(mirror), name)
            for member in [member for member, _ in mirror._fields_ if member != "later"]:
                self.assertEqual(int(said[f"{name}.{member}"]), getattr(mirror, member).offset, f"{name}.{member}")


if __name__ == "__main__":
    unittest.main()
