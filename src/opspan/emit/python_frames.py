"""Lists the Pythons whose stacks the observer can read, and the compiler's options for
native/observer/python_frames.h."""

from __future__ import annotations

import sys
import sysconfig
from pathlib import Path
from typing import Final

OLDEST: Final = (3, 10)
NEWEST: Final = (3, 14)
RELEASES: Final = f"CPython {OLDEST[0]}.{OLDEST[1]} to {NEWEST[0]}.{NEWEST[1]} (not a free-threaded one)"
WANTED: Final = f"{RELEASES} with its headers (Debian, Ubuntu: apt-get install python3-dev)"


def is_known() -> bool:
    """Returns whether the native code knows this Python."""
    return (
        sys.implementation.name == "cpython"
        and OLDEST <= sys.version_info[:2] <= NEWEST
        # In a free-threaded Python, each thread has a copy of the code that it runs, and offsets refer to the copy.
        and not sysconfig.get_config_var("Py_GIL_DISABLED")
    )


def options() -> list[str]:
    """Returns the options. There are none if stacks cannot be read, because the Python is unknown or its headers are
    missing."""
    include = Path(sysconfig.get_path("include"))
    return ["-DOPSPAN_PYTHON", f"-isystem{include}"] if is_known() and (include / "Python.h").is_file() else []
