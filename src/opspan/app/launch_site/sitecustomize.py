"""Runs first in every Python process that is started under `opspan run --emit`, `--keep` or `--idle`. It imports the
user's sitecustomize, and then calls opspan.

This file is not a module of the package. Its folder is the first in PYTHONPATH, and is removed from sys.path here. Any
version of Python may run this file, even 2.7, which opspan does not support. So the code is valid in all versions.
"""

import os
import sys

_HERE = os.path.realpath(os.path.dirname(__file__))
_OLDEST = (3, 10)


def _is_here(entry):  # type: (str) -> bool
    try:
        return os.path.realpath(entry) == _HERE
    except (OSError, ValueError):
        return False


def _note(kind, text):  # type: (str, str) -> None
    """Writes a note for `opspan run`. app/run_notes.py reads it."""
    try:
        number = os.open(os.environ["OPSPAN_NOTES"], os.O_WRONLY | os.O_APPEND)
        try:
            os.write(number, ("%d\t%s\t%s\n" % (os.getpid(), kind, text)).encode("ascii", "replace"))
        finally:
            os.close(number)
    except (KeyError, OSError):  # opspan asked for no notes, or their file cannot be written
        pass


def _say(text):  # type: (str) -> None
    # Names of files and texts of errors may contain unprintable characters. opspan.printable escapes these characters
    # in the same way, but opspan may not be installed.
    text = "".join(char if char.isprintable() or char == "\n" else ascii(char)[1:-1] for char in text)
    if sys.stderr is not None:
        try:
            sys.stderr.write(text)
        except (OSError, ValueError):
            pass


sys.path[:] = [entry for entry in sys.path if not (entry and _is_here(entry))]
_this = sys.modules.pop("sitecustomize", None)

try:
    try:
        __import__("sitecustomize")  # imports the user's module: this file's folder is no longer in sys.path
    except ImportError as error:
        if getattr(error, "name", "sitecustomize") != "sitecustomize":  # an import in the user's module failed
            raise
finally:  # also runs if the user's module raises an error, which Python then reports
    if _this is not None:
        sys.modules.setdefault("sitecustomize", _this)
    _note("python", "%d.%d" % sys.version_info[:2])
    if sys.version_info >= _OLDEST:
        try:
            from opspan.app import launch

            launch.start_from_environment()
        except ImportError as error:
            if "OPSPAN_IDLE" not in os.environ:  # with --idle, labels start only on request
                _say("opspan: this Python is not labelled, it has no opspan (%s): %s\n" % (error, sys.executable))
            _note("without", sys.executable)
        except Exception as error:  # noqa: BLE001  # an opspan for another Python, for instance
            what = "%s: %s" % (type(error).__name__, error)
            _say("opspan: this Python is not labelled (%s): %s\n" % (what, sys.executable))
