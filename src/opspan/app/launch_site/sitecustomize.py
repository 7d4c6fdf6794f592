"""Runs first in every Python under `opspan run --emit` or `--idle`: hands over to the user's sitecustomize, then to us.

Not a part of the package: its folder stands first in PYTHONPATH, and leaves sys.path here.
"""

import contextlib
import importlib
import os
import sys
from pathlib import Path

_HERE = Path(__file__).resolve().parent


def _is_here(entry: str) -> bool:
    try:
        return Path(entry).resolve() == _HERE
    except OSError:
        return False


def _say(text: str) -> None:
    # As opspan.printable does, which may not be there: names of files and errors may hold anything.
    text = "".join(char if char.isprintable() or char == "\n" else ascii(char)[1:-1] for char in text)
    if sys.stderr is not None:
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.write(text)


sys.path[:] = [entry for entry in sys.path if not (entry and _is_here(entry))]
_this = sys.modules.pop("sitecustomize", None)

try:
    with contextlib.suppress(ModuleNotFoundError):
        importlib.import_module("sitecustomize")  # the user's, now that this one cannot be found
finally:  # also where it raises: that is then told, as without us
    if _this is not None:
        sys.modules.setdefault("sitecustomize", _this)

    try:
        from opspan.app import launch

        launch.start_from_environment()
    except ImportError as error:
        if "OPSPAN_IDLE" not in os.environ:  # there nobody has asked for anything yet
            _say(f"opspan: this Python is not labelled, it has no opspan ({error}): {sys.executable}\n")
    except Exception as error:  # noqa: BLE001  # an opspan for another Python, for instance
        _say(f"opspan: this Python is not labelled ({type(error).__name__}: {error}): {sys.executable}\n")
