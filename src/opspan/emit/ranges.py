"""A user's own ranges, above the native library: does anybody listen, and if so push, pop, mark. No decorators.

Everything that is not torch's op goes through here: annotate, the namespaces `opspan.nvtx` and `opspan.itt`, module
and step ranges. When nobody listens a push is one comparison.
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
Ref = Any  # ctypes.byref() of a CRange: kept ready, it owns its range

_UNKNOWN: Final = -1
_INT64: Final = range(-(2**63), 2**63)

_to = _UNKNOWN  # who listens, as bits of sinks
_open = 0  # sinks without a tool that have a session
_push: Callable[[Ref, int], int]
_pop: Callable[[int], int]
_mark: Callable[[Ref, int], None]
_range_start: Callable[[Ref, int], int]
_range_end: Callable[[int], None]


def listening() -> int:
    """Who listens, as bits of sinks. The first call makes an NVTX or ITT tool attach."""
    return _ask() if _to == _UNKNOWN else _to


def push(ref: Ref, to: int = TO_ALL) -> int:
    """Zero-based depth of the new range on this thread; -1 when nobody listens."""
    if not (_to if _to != _UNKNOWN else _ask()) & to:
        return -1
    return _push(ref, to)


def pop(to: int = TO_ALL) -> int:
    """Call it only for a push that answered a depth: what was not pushed must not be popped."""
    return _pop(to)


def mark(ref: Ref, to: int = TO_ALL) -> None:
    if (_to if _to != _UNKNOWN else _ask()) & to:
        _mark(ref, to)


def range_start(ref: Ref, to: int = TO_ALL) -> int:
    """A range that may end on any thread; 0 when nobody listens."""
    if not (_to if _to != _UNKNOWN else _ask()) & to:
        return 0
    return _range_start(ref, to)


def range_end(range_id: int) -> None:
    if range_id:
        _range_end(range_id)


@functools.lru_cache(maxsize=4096, typed=True)  # typed: 1 and 1.0 are two payloads
def ref_of(
    name: str,
    kind: int = KIND_USER,
    color: int = 0,
    category: str | None = None,
    detail: str | None = None,
    payload: Payload = None,
) -> Ref:
    """The C form of a range, ready to push. Kept, since programs repeat their names."""
    text = encode(name)
    made = CRange(
        name=text,
        name_length=len(text),
        kind=kind,
        color=color,
        category=None if category is None else encode(category),
        detail=None if detail is None else encode(detail),
    )
    if isinstance(payload, float):
        made.payload_type = 3
        made.payload.d = payload
    elif payload is not None and payload in _INT64:
        made.payload_type = 1
        made.payload.i = payload
    elif payload is not None:
        made.payload_type = 2
        made.payload.u = payload
    return ctypes.byref(made)


def text_of(name: str) -> str:
    """The name, or an error here and now: it must not depend on who listens whether a program fails."""
    if not isinstance(name, str):
        raise TypeError(f"a range's name is text, not {type(name).__name__}")
    return name


def encode(text: str) -> bytes:
    """UTF-8 whatever the text: a lone surrogate, as in a badly decoded file name, is written as an escape."""
    return text.encode("utf-8", "backslashreplace")


def refresh() -> None:
    """Ask again: a session found a tool, or torch has come."""
    _ask()


def set_open(to: int, on: bool) -> None:
    """A session of a sink without a tool started or ended: nobody but the session takes ranges there."""
    global _open
    _open = _open | to if on else _open & ~to
    _ask()


def _ask() -> int:
    global _to, _push, _pop, _mark, _range_start, _range_end
    native = sinks.load()
    if native is None:
        from opspan.emit import packages

        _warn_once()
        found = packages.listening()
        _push, _pop, _mark = packages.push, packages.pop, packages.mark
        _range_start, _range_end = packages.range_start, packages.range_end
    else:
        found = tools.listening(native)
        _push, _pop, _mark = native.push, native.pop, native.mark
        _range_start, _range_end = native.range_start, native.range_end
    _to = found | _open
    return _to


@functools.cache
def _warn_once() -> None:
    """A program must not fail because opspan was installed for another machine."""
    if libraries.sinks().is_file():
        notices.warn_at_end(
            f"annotate and mark go through the packages nvtx and ittapi, and ops get no labels: {sinks.why_not()}",
            stacklevel=4,
        )
