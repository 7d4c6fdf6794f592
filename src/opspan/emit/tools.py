"""Why a tool that an environment variable names does not listen. Attaching it is NVTX's and ITT's own doing."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from typing import Final

from opspan import libraries
from opspan.emit.sinks import ITT, NVTX

# sink -> the variable that names a library, and the function that such a library must have
_HOOKS: Final = {
    NVTX: ("NVTX_INJECTION64_PATH", "InitializeInjectionNvtx2"),
    ITT: ("INTEL_LIBITTNOTIFY64", "__itt_api_init"),
}


def problem(sink: int) -> str | None:
    """What is wrong with the tool that was asked for, where none listens; None if none was asked for."""
    variable, function = _HOOKS[sink]
    named = os.environ.get(variable)
    if not named:
        return None
    if "/" in named and not Path(named).exists():
        return f"{variable}={named} names a file that is not there"
    try:
        if "/" in named:
            libraries.check_whole(Path(named))
        library = ctypes.CDLL(named)
    except OSError as error:
        return f"{variable}={named} cannot be loaded ({error})"
    if not hasattr(library, function):
        return f"{variable}={named} is no such tool: it has no function {function}"
    return f"{variable}={named} was loaded, and refused to listen to this process"
