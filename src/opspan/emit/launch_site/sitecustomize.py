"""Runs first in every Python under `opspan run --emit`: hands over to the user's own sitecustomize, then to opspan.

Not a part of the package: its folder stands first in PYTHONPATH, and leaves sys.path here.
"""

import contextlib
import importlib
import sys
from pathlib import Path

_HERE = Path(__file__).resolve().parent


def _is_here(entry: str) -> bool:
    try:
        return Path(entry).resolve() == _HERE
    except OSError:
        return False


sys.path[:] = [entry for entry in sys.path if not (entry and _is_here(entry))]
_this = sys.modules.pop("sitecustomize", None)

with contextlib.suppress(ModuleNotFoundError):
    importlib.import_module("sitecustomize")  # the user's, now that this one cannot be found

if _this is not None:
    sys.modules.setdefault("sitecustomize", _this)

try:
    from opspan.emit import launch
except ImportError as error:
    sys.stderr.write(f"opspan: this Python is not labelled, it has no opspan ({error}): {sys.executable}\n")
else:
    launch.start_from_environment()
