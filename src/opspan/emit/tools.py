"""Finds the tools that listen in this process, and says why a requested tool does not listen. A tool is attached by the
code of NVTX or ITT."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import sys
from pathlib import Path

from opspan import libraries
from opspan.emit.sink_list import ITT, SINKS, Sink
from opspan.emit.sinks import Sinks
from opspan.errors import EmitError


def listening(native: Sinks) -> int:
    """Returns the sinks with a listening tool, as bits. The call makes tools attach."""
    bits = 0
    for sink in SINKS:
        # ITT looks for a tool in these two variables only. Without them there is no reason to open a library.
        if sink is ITT and not any(map(os.environ.get, ("INTEL_LIBITTNOTIFY64", "INTEL_ITTNOTIFY_GROUPS"))):
            continue
        if sink.tool is not None and listens(native, sink):
            bits |= sink.bit
    return bits


def listens(native: Sinks, sink: Sink) -> bool:
    return (sink is not ITT or open_itt(native)) and native.listening(sink.number)


def open_itt(native: Sinks) -> bool:
    """Opens a library that contains ITT: torch's if torch is imported and has ITT, otherwise the package ittapi's."""
    for library in filter(None, (_torch_library(), _ittapi_library())):
        try:
            native.itt_open(library)
        except EmitError:  # this torch was built without ITT
            continue
        return True
    return False


def _torch_library() -> str | None:
    file = getattr(sys.modules.get("torch"), "__file__", None)
    library = Path(file).parent / "lib" / "libtorch_cpu.so" if file else None
    return str(library) if library is not None and library.is_file() else None


def _ittapi_library() -> str | None:
    try:
        spec = importlib.util.find_spec("ittapi.native")
    except ImportError:
        return None
    return spec.origin if spec is not None else None


def problem(sink: Sink) -> str | None:
    """Returns what is wrong with a requested tool that does not listen, or None if no tool was requested."""
    if sink.tool is None:
        return None
    variable, function = sink.tool.variable, sink.tool.function
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
        return f"{variable}={named} is not a tool for this: it has no function {function}"
    return f"{variable}={named} was loaded, and refused to listen to this process"
