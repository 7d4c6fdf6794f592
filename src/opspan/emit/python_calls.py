"""Records every call of a Python function, and of a C function that Python calls, through Python's profile function.
The code that writes the calls is in native/sinks/python_calls.cpp.

Each thread has one slot for a profile function. If another profiler has the slot of the thread that starts the
recording, or of new threads, opspan records no calls. While opspan has the slot, sys.getprofile() returns `_join`.
Python calls `_join` in each thread that starts, and after another profiler has given the slot back.
"""

from __future__ import annotations

import ctypes
import os
import sys
import sysconfig
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from opspan.emit import notices, python_frames

if TYPE_CHECKING:
    from opspan.emit.sinks import Sinks

_UNKNOWN: Final = f"no calls of Python functions are recorded: that is for {python_frames.RELEASES}"
_OCCUPIED: Final = (
    "no calls of Python functions are recorded: another profiler ({}) has Python's slot for profilers, which holds "
    "one: stop it first, or leave out python=True"
)
_LOST: Final = (
    "calls of Python functions are missing: another profiler took Python's slot for profilers during the recording"
)
# Folders of opspan with functions that run during a recording. Calls of these functions are left out, and so are calls
# that they make in Python's library.
_PACKAGE: Final = Path(__file__).parents[1]
_FOLDERS: Final = tuple(os.fsencode(_PACKAGE / room) + b"/" for room in ("emit", "profiler"))
_LIBRARY: Final = os.fsencode(sysconfig.get_path("stdlib")) + b"/"

_native: Sinks | None = None
_started: dict[int, int] = {}  # for each sink that records calls, the thread that started it


class _Python(ctypes.Structure):
    """opspan_python of native/sinks/python_calls.h."""

    _fields_ = (
        ("hook", ctypes.py_object),
        ("get_profile", ctypes.py_object),
        ("none", ctypes.py_object),
        ("module_code", ctypes.c_void_p),
        ("enter_code", ctypes.c_void_p),
        ("exit_code", ctypes.c_void_p),
        ("folders", ctypes.POINTER(ctypes.c_char_p)),
        ("folder_count", ctypes.c_size_t),
        ("library", ctypes.c_char_p),
    )


def _join(*_: object) -> None:
    """Takes the slot of this thread, or frees it if no recording wants calls. Python calls `_join` as the thread's
    profile function."""
    if _native is not None:
        _native.python_join(_join)


def start(native: Sinks, sink: int) -> None:
    """Starts recording calls. Warns if that is not possible."""
    global _native
    if not python_frames.is_known():
        notices.warn(_UNKNOWN, stacklevel=4)
        return
    for profile in (sys.getprofile(), threading.getprofile()):
        if profile not in (None, _join):
            notices.warn(_OCCUPIED.format(_name_of(profile)), stacklevel=4)
            return
    _native = native
    python = _Python(
        hook=_join,
        get_profile=sys.getprofile,
        none=None,
        module_code=_code_of("torch.nn", "Module", "__call__"),
        enter_code=_code_of("torch.autograd.profiler", "record_function", "__enter__"),
        exit_code=_code_of("torch.autograd.profiler", "record_function", "__exit__"),
        folders=(ctypes.c_char_p * len(_FOLDERS))(*_FOLDERS),
        folder_count=len(_FOLDERS),
        library=_LIBRARY,
    )
    if failed := native.python_start(sink, ctypes.byref(python)):
        notices.warn(f"no calls of Python functions are recorded (error number {-failed})", stacklevel=4)
        return
    threading.setprofile(_join)
    _started[sink] = threading.get_ident()


def _code_of(module: str, kind: str, method: str) -> int | None:
    """Returns the address of the code of a method, if its module has been imported."""
    code = getattr(getattr(getattr(sys.modules.get(module), kind, None), method, None), "__code__", None)
    return None if code is None else id(code)


def stop(native: Sinks, sink: int) -> None:
    """Stops recording calls. Warns if another profiler has taken the slot during the recording."""
    thread = _started.pop(sink, None)
    if thread is None:
        return
    is_ours = sys.getprofile() is _join
    if not native.python_stop(sink):
        if is_ours:
            sys.setprofile(None)
        if threading.getprofile() is _join:
            threading.setprofile(None)
    if thread == threading.get_ident() and not is_ours:
        notices.warn_at_end(_LOST, stacklevel=4)


def _name_of(profile: Any) -> str:
    return getattr(profile, "__qualname__", None) or type(profile).__name__
