# SPDX-License-Identifier: Apache-2.0
"""Each model and rank in a process of its own."""
import os
import pickle
import traceback


def in_child(function, *arguments):
    """The result of a call in a forked child, or the text of its exception."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            result = function(*arguments)
        except BaseException:  # noqa: BLE001
            result = traceback.format_exc()
        with os.fdopen(writer, "wb") as f:
            pickle.dump(result, f)
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as f:
        raw = f.read()
    os.waitpid(child, 0)
    return pickle.loads(raw) if raw else "the process died"


def why(text):
    """The last line of what in_child() returned for an exception."""
    return next((line for line in reversed(text.strip().splitlines()) if line.strip()), "")[:160]
