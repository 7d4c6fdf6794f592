"""Loads the library that reads the stacks of this Python. Each release of CPython stores frames differently, so there
is a library for each release (native/frames)."""

from __future__ import annotations

import ctypes
import functools
import sys
import sysconfig
from typing import Final

from opspan import libraries
from opspan.emit import sinks

OLDEST: Final = (3, 10)
NEWEST: Final = (3, 14)
RELEASES: Final = f"CPython {OLDEST[0]}.{OLDEST[1]} to {NEWEST[0]}.{NEWEST[1]} (not a free-threaded one)"


def is_known() -> bool:
    """Returns whether the native code knows this Python."""
    return (
        sys.implementation.name == "cpython"
        and OLDEST <= sys.version_info[:2] <= NEWEST
        # In a free-threaded Python, each thread has a copy of the code that it runs, and offsets refer to the copy.
        and not sysconfig.get_config_var("Py_GIL_DISABLED")
    )


@functools.cache
def _load() -> tuple[int | None, str]:
    """Returns the address of the library's functions and an empty text. If the library cannot be used, returns None
    and the reason."""
    if not is_known():
        return None, f"they are for {RELEASES}"
    path = libraries.frames(f"cp{sys.version_info[0]}{sys.version_info[1]}")
    if not path.is_file():
        return None, (
            f"{path} is missing: install opspan's wheel, or install Python's headers (Debian, Ubuntu: apt-get install "
            "python3-dev) and then opspan again"
        )
    try:
        libraries.check_whole(path)
        library = libraries.load(path)
        library.opspan_frames_of.restype = ctypes.c_void_p
        frames: int | None = library.opspan_frames_of(sinks.ABI)
    except (OSError, AttributeError) as error:
        return None, f"cannot open {path} ({error}): reinstall opspan"
    return frames, "" if frames else f"{path} is of another opspan: reinstall opspan"


def load() -> int | None:
    """Returns the address of the functions that read stacks (opspan_frames of sinks.h), or None."""
    return _load()[0]


def why_not() -> str:
    """Returns why stacks cannot be read, or an empty text."""
    return _load()[1]
