# SPDX-License-Identifier: Apache-2.0
"""Each model and rank in a process of its own."""
import os
import pickle
import traceback


def _outcome(function, arguments, options):
    """Whether a call in a forked child came to its end, and its result, or the text of its exception."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        try:
            result = True, function(*arguments, **options)
        except BaseException:  # noqa: BLE001
            result = False, traceback.format_exc()
        with os.fdopen(writer, "wb") as f:
            pickle.dump(result, f)
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as f:
        raw = f.read()
    os.waitpid(child, 0)
    return pickle.loads(raw) if raw else (False, "the process died")


def in_child(function, *arguments, **options):
    """The result of a call in a forked child; the text of its exception is raised here."""
    good, result = _outcome(function, arguments, options)
    if not good:
        raise AssertionError(result)
    return result


def tried_in_child(function, *arguments, **options):
    """The result of a call in a forked child, or the text of its exception."""
    return _outcome(function, arguments, options)[1]


def why(text):
    """The last line of what tried_in_child() returned for an exception."""
    return next((line for line in reversed(text.strip().splitlines()) if line.strip()), "")[:160]
