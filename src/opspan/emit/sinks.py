"""Calls the functions of libopspan_sinks.so (native/sinks/sinks.h) through ctypes. `sessions` decides who may start a
sink.

The library has two handles. Calls through `_slow` release the GIL, because they can take long: a tool attaches, or a
session starts. Calls through `quick`, such as pushes and pops, keep the GIL, because releasing it would cost more than
the call itself.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import functools
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from opspan import libraries
from opspan.emit.keep import EVERYTHING, Retention
from opspan.emit.sink_list import SINKS
from opspan.errors import EmitError

ABI: Final = 15

FORMS: Final = {"auto": 0, "schema": 1, "payload": 2, "text": 3, "torch": 4, "task": 5}
FORM_NAMES: Final = {number: name for name, number in FORMS.items()}

KIND_USER: Final = 4
KIND_MODULE: Final = 5
KIND_STEP: Final = 6

MAX_STRINGS: Final = 65536
_TEXT_BYTES: Final = 4096  # the most bytes of a text (a sentence or a path) that native code returns


@dataclass(frozen=True)
class Stats:
    """The counts of one session, read at its end."""

    ranges: int = 0  # ranges that began while the session was on
    late_ends: int = 0  # ranges that ended on another thread than the thread where they began
    sizes_dropped: int = 0  # labels whose sizes were left out, because the table of distinct strings was full
    relations_missed: int = 0  # backward ops whose forward was not found
    lost: int = 0  # events that a capture could not write
    given_up: int = 0  # ranges that stay open, because their thread opened 16,384 more ranges inside them
    fields_dropped: int = 0  # annotations that lost their category, colour, payload or args (see `losses`)

    def losses(self) -> list[str]:
        """Returns sentences about losses for the user."""
        counted = {
            "sizes_dropped": "labels are without their sizes: there were too many distinct ones",
            "relations_missed": "backward ops are not linked to their forward: it was not labelled, or too long ago",
            "lost": "events could not be written",
            "given_up": "ranges stay open: a thread remembers 16,384 that have not ended, the outermost were given up",
            "fields_dropped": "annotations are without their category, colour, payload or args: labels='torch' has no "
            "place for them, the other forms have",
        }
        return [f"{getattr(self, name)} {what}" for name, what in counted.items() if getattr(self, name)]


class _Stats(ctypes.Structure):
    _fields_ = tuple((field.name, ctypes.c_uint64) for field in dataclasses.fields(Stats))


class _Settings(ctypes.Structure):
    _fields_ = (
        ("form", ctypes.c_int),
        ("max_strings", ctypes.c_uint32),
        ("folder", ctypes.c_char_p),
        ("keep_ns", ctypes.c_int64),
        ("keep_bytes", ctypes.c_uint64),
        ("keep_steps", ctypes.c_uint64),
    )


class _Payload(ctypes.Union):
    _fields_ = (("i", ctypes.c_int64), ("u", ctypes.c_uint64), ("d", ctypes.c_double))


_ForkCallback = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)


class CRange(ctypes.Structure):
    """opspan_range of sinks.h."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("name_length", ctypes.c_size_t),
        ("kind", ctypes.c_uint32),
        ("color", ctypes.c_uint32),
        ("category", ctypes.c_char_p),
        ("detail", ctypes.c_char_p),
        ("payload_type", ctypes.c_int32),
        ("payload", _Payload),
    )


class Sinks:
    """The open library. Every process has only one, which `load` returns."""

    def __init__(self, path: Path) -> None:
        self.path = path
        libraries.check_whole(path)
        self._slow = libraries.load(path)
        quick = ctypes.PyDLL(str(path), handle=self._slow._handle)
        abi = self._slow.opspan_sinks_abi()
        if abi != ABI:
            raise EmitError(f"{path} speaks version {abi} of sinks.h, this opspan version {ABI}: reinstall opspan")
        self._declare("opspan_sink_name", ctypes.c_char_p, ctypes.c_int)
        theirs = [self._slow.opspan_sink_name(number) for number in (*(sink.number for sink in SINKS), len(SINKS))]
        if theirs != [*(sink.name.encode() for sink in SINKS), None]:
            raise EmitError(f"{path} has other sinks than this opspan, or in another order: reinstall opspan")
        self._declare("opspan_sink_of", ctypes.c_void_p, ctypes.c_int)
        self._declare("opspan_listening", ctypes.c_int, ctypes.c_int)
        text = (ctypes.c_char_p, ctypes.c_size_t)
        self._declare("opspan_start", ctypes.c_int, ctypes.c_int, ctypes.POINTER(_Settings), *text)
        self._declare("opspan_stop", None, ctypes.c_int, ctypes.POINTER(_Stats))
        self._declare("opspan_itt_open", ctypes.c_int, ctypes.c_char_p, *text)
        self._declare("opspan_itt_collect", None, ctypes.c_int)
        self._declare("opspan_labelling", None, ctypes.c_int, ctypes.c_int)
        self._declare("opspan_session_turn", None, ctypes.c_int, ctypes.c_int)
        self._declare("opspan_session_adopt", ctypes.c_int, ctypes.c_int)
        self._declare("opspan_tell_forks", None, ctypes.c_void_p, _ForkCallback)
        self._declare("opspan_capture_step", None, ctypes.c_int)
        self._declare("opspan_capture_hold", None, ctypes.c_int, ctypes.c_int)
        self._declare("opspan_processor", ctypes.c_size_t, ctypes.c_char_p, *text)
        self._fork_callback: Any = None
        # Most of these functions declare no argument types: checking them costs time, and byref() and small ints need
        # no conversion.
        self.push: Any = quick.opspan_push
        self.pop: Any = quick.opspan_pop
        self.detach: Any = quick.opspan_detach
        self.detach.restype = ctypes.c_uint64
        self.end_detached: Any = quick.opspan_end_detached
        self.end_detached.argtypes = (ctypes.c_uint64, ctypes.c_uint64, ctypes.c_uint32)
        self.end_detached.restype = None
        self.mark: Any = quick.opspan_mark
        self.mark.restype = None
        self.range_start: Any = quick.opspan_range_start
        self.range_start.restype = ctypes.c_uint64
        self.range_end: Any = quick.opspan_range_end
        self.range_end.argtypes = (ctypes.c_uint64,)
        self.range_end.restype = None
        # These need the GIL.
        self.python_start: Any = quick.opspan_python_start
        self.python_join: Any = quick.opspan_python_join
        self.python_join.argtypes = (ctypes.py_object,)
        self.python_join.restype = None
        self.python_stop: Any = quick.opspan_python_stop

    def _declare(self, name: str, result: Any, *arguments: Any) -> None:
        function = getattr(self._slow, name)
        function.restype = result
        function.argtypes = arguments

    def sink_of(self, sink: int) -> int:
        """Returns the address of the sink's functions that the observer calls (opspan_sink of sinks.h)."""
        return int(self._slow.opspan_sink_of(sink) or 0)

    def listening(self, sink: int) -> bool:
        return bool(self._slow.opspan_listening(sink))

    def one_tool(self) -> bool:
        """Returns whether NVTX and ITT both reach the same collector of opspan's. Then one of the two is enough."""
        return bool(self._slow.opspan_one_tool())

    def labelling(self, sink: int, on: bool) -> None:
        """Starts or stops sending ops to this sink."""
        self._slow.opspan_labelling(sink, int(on))

    def processor(self, root: str = "") -> dict[str, str]:
        """Returns the entries that a capture has about the processor. `root` is the folder that has /proc and /sys."""
        text = ctypes.create_string_buffer(_TEXT_BYTES)
        size = min(self._slow.opspan_processor(os.fsencode(root), text, _TEXT_BYTES), _TEXT_BYTES)
        entries = text.raw[:size].decode("ascii", "replace").split("\0")
        return dict(entry.split("=", 1) for entry in entries if "=" in entry)

    def itt_open(self, library: str) -> None:
        text = ctypes.create_string_buffer(_TEXT_BYTES)
        _check(self._slow.opspan_itt_open(library.encode(), text, _TEXT_BYTES), text)

    def itt_collect(self, on: bool) -> None:
        self._slow.opspan_itt_collect(int(on))

    def start(
        self, sink: int, form: int = 0, max_strings: int = 0, folder: bytes = b"", keep: Retention = EVERYTHING
    ) -> tuple[int, bytes]:
        """Starts a session. Returns the form of its labels, and a text from the sink. A capture's text is the path of
        its file."""
        text = ctypes.create_string_buffer(_TEXT_BYTES)
        settings = _Settings(form, max_strings, folder, keep.ns, keep.bytes, keep.steps)
        return _check(self._slow.opspan_start(sink, ctypes.byref(settings), text, _TEXT_BYTES), text), text.value

    def turn(self, sink: int, on: bool) -> None:
        """Pauses or resumes the session, in this process and in processes forked from it. A call in a forked process
        does nothing."""
        self._slow.opspan_session_turn(sink, int(on))

    def adopt(self, sink: int) -> bool:
        """Turns a session that this forked process shares with its parent into a session of its own."""
        return bool(self._slow.opspan_session_adopt(sink))

    def capture_step(self, sink: int) -> None:
        """Tells a rolling capture that a training step is over."""
        self._slow.opspan_capture_step(sink)

    @contextlib.contextmanager
    def capture_held(self, sink: int) -> Iterator[None]:
        """Keeps a rolling capture from deleting its files during the `with` block."""
        self._slow.opspan_capture_hold(sink, 1)
        try:
            yield
        finally:
            self._slow.opspan_capture_hold(sink, 0)

    def tell_forks(self, callback: Callable[[int], None]) -> None:
        """Sets the function that the main thread of a forked process calls after its parent has ended a session. The
        argument of this function is the number of the sink."""

        def call(sink: int | None) -> int:
            callback(sink or 0)  # ctypes gives None for a null pointer
            return 0

        self._fork_callback = _ForkCallback(call)  # keeps the callback alive, because native code may call it later
        self._slow.opspan_tell_forks(
            ctypes.cast(ctypes.pythonapi.Py_AddPendingCall, ctypes.c_void_p), self._fork_callback
        )

    def stop(self, sink: int) -> Stats:
        stats = _Stats()
        self._slow.opspan_stop(sink, ctypes.byref(stats))
        return Stats(*(getattr(stats, field.name) for field in dataclasses.fields(Stats)))


def _check(result: int, text: ctypes.Array[ctypes.c_char]) -> int:
    if result < 0:
        raise EmitError(text.value.decode(errors="replace") or f"a sink failed with error number {-result}")
    return result


@functools.cache
def _open() -> Sinks | EmitError:
    """Returns the library. If it cannot be opened, returns an error with the reason, such as an older glibc or a
    truncated file."""
    path = libraries.sinks()
    if not path.is_file():
        return EmitError(f"{path} is missing: opspan's native part was not installed; pip install opspan")
    try:
        return Sinks(path)
    except (OSError, AttributeError) as error:  # not a library, or one without our functions
        return EmitError(f"cannot open {path} ({error}): reinstall opspan")
    except EmitError as error:
        return error


def load() -> Sinks | None:
    """Returns the library, or None if it is missing or cannot be loaded."""
    opened = _open()
    return None if isinstance(opened, EmitError) else opened


def why_not() -> str | None:
    """Returns why the library cannot be loaded, or None if it is loaded."""
    opened = _open()
    return str(opened) if isinstance(opened, EmitError) else None


def require() -> Sinks:
    """Returns the library, or raises a clear error."""
    opened = _open()
    if isinstance(opened, EmitError):
        raise EmitError(str(opened))
    return opened
