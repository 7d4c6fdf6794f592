"""Pushes and pops ranges, and sets marks, through the native library, if anybody listens. Decorators are in `annotate`.

All ranges except torch's ops go through here: annotate, the namespaces `opspan.nvtx` and `opspan.itt`, module and step
ranges. When nobody listens, a push is one comparison.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from typing import Any, Final

from opspan import libraries
from opspan.emit import notices, sinks, tools
from opspan.emit.sink_list import TO_ALL
from opspan.emit.sinks import KIND_USER, CRange

Payload = int | float | None
Ref = Any  # ctypes.byref() of a CRange. It keeps the CRange alive

_UNKNOWN: Final = -1
_INT64: Final = range(-(2**63), 2**63)

_to = _UNKNOWN  # the listeners, as bits of sinks
_open = 0  # sinks with an active session, but without a tool, as bits
_push: Callable[[Ref, int], int]
_pop: Callable[[int], int]
_mark: Callable[[Ref, int], None]
_range_start: Callable[[Ref, int], int]
_range_end: Callable[[int], None]


def listening() -> int:
    """Returns the listeners as bits of sinks. The first call makes an NVTX or ITT tool attach."""
    return refresh() if _to == _UNKNOWN else _to


def push(ref: Ref, to: int = TO_ALL) -> int:
    """Begins a range. Returns its zero-based depth on this thread, or -1 if nobody listens."""
    if not (_to if _to != _UNKNOWN else refresh()) & to:
        return -1
    return _push(ref, to)


def pop(to: int = TO_ALL) -> int:
    """Ends the innermost range. Call it only if the push returned a depth."""
    return _pop(to)


def detach() -> Callable[[], None]:
    """Takes the innermost range off this thread's stack. Returns a function that ends the range, on any thread. Without
    the native library, the range ends now."""
    native = sinks.load()
    if native is None:
        pop()
        return lambda: None
    thread = ctypes.c_uint64()
    number = native.detach(TO_ALL, ctypes.byref(thread))
    return functools.partial(native.end_detached, number, thread.value, TO_ALL)


def mark(ref: Ref, to: int = TO_ALL) -> None:
    if (_to if _to != _UNKNOWN else refresh()) & to:
        _mark(ref, to)


def range_start(ref: Ref, to: int = TO_ALL) -> int:
    """Begins a range that may end on any thread. Returns its id, or 0 if nobody listens."""
    if not (_to if _to != _UNKNOWN else refresh()) & to:
        return 0
    return _range_start(ref, to)


def range_end(range_id: int) -> None:
    if range_id:
        _range_end(range_id)


@functools.lru_cache(maxsize=4096, typed=True)  # typed, because 1 and 1.0 are two payloads
def ref_of(
    name: str,
    kind: int = KIND_USER,
    color: int = 0,
    category: str | None = None,
    detail: str | None = None,
    payload: Payload = None,
) -> Ref:
    """Returns the C form of a range, ready to push. It is cached, since programs repeat their names."""
    text = encode(name)
    range_ = CRange(
        name=text,
        name_length=len(text),
        kind=kind,
        color=color,
        category=None if category is None else encode(category),
        detail=None if detail is None else encode(detail),
    )
    if isinstance(payload, float):
        range_.payload_type = 3
        range_.payload.d = payload
    elif payload is not None and payload in _INT64:
        range_.payload_type = 1
        range_.payload.i = payload
    elif payload is not None:
        range_.payload_type = 2
        range_.payload.u = payload
    return ctypes.byref(range_)


def text_of(name: str) -> str:
    """Returns the name, or raises an error if it is not text. The program must get this error whether or not somebody
    listens."""
    if not isinstance(name, str):
        raise TypeError(f"a range's name is text, not {type(name).__name__}")
    return name


def encode(text: str) -> bytes:
    """Encodes as UTF-8. A lone surrogate, as in a badly decoded file name, becomes an escape."""
    return text.encode("utf-8", "backslashreplace")


def set_open(to: int, on: bool) -> None:
    """Notes that a session of a sink without a tool started or ended. Such a sink takes ranges only during its
    session."""
    global _open
    _open = _open | to if on else _open & ~to
    refresh()


def refresh() -> int:
    """Looks for listeners again, and returns them as bits of sinks. Call it after a session has found a tool, and after
    torch has been imported."""
    global _to, _push, _pop, _mark, _range_start, _range_end
    native = sinks.load()
    if native is None:
        from opspan.emit import packages

        _warn_once()
        listeners = packages.listening()
        _push, _pop, _mark = packages.push, packages.pop, packages.mark
        _range_start, _range_end = packages.range_start, packages.range_end
    else:
        listeners = tools.listening(native)
        _push, _pop, _mark = native.push, native.pop, native.mark
        _range_start, _range_end = native.range_start, native.range_end
    _to = listeners | _open
    return _to


@functools.cache
def _warn_once() -> None:
    """Warns once if the native library is there, but cannot be loaded. The program gets no error."""
    if libraries.sinks().is_file():
        notices.warn_at_end(
            f"annotate and mark go through the packages nvtx and ittapi, and ops get no labels: {sinks.why_not()}",
            stacklevel=4,
        )
