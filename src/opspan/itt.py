"""Offers the functions of torch.profiler.itt. Their ranges and marks are sent only to ITT. In contrast, the
ranges of `opspan.annotate` are sent to every sink (NVTX, ITT and captures)."""

from __future__ import annotations

from opspan.emit import sink_list, sinks, tools
from opspan.emit.compiled import compiling
from opspan.emit.namespace import Namespace, Range

__all__ = ["is_available", "mark", "range", "range_pop", "range_push"]

_itt = Namespace(sink_list.ITT.bit)


def is_available() -> bool:
    """Returns whether this process can send to ITT, with torch's library or that of the package ittapi. This does not
    mean that a tool is listening.

    In code that torch.compile compiles, the result is always False.
    """
    if compiling():
        return False
    native = sinks.load()
    if native is not None:
        return tools.open_itt(native)
    try:
        import ittapi  # noqa: F401
    except ImportError:
        return False
    return True


def range_push(msg: str) -> int:
    """Pushes a range on this thread's stack, and returns its zero-based depth."""
    return _itt.push(msg)


def range_pop() -> int:
    """Pops a range off this thread's stack, and returns its zero-based depth; -1 if no range was open."""
    return _itt.pop()


def mark(msg: str) -> None:
    """Marks a point in time."""
    _itt.mark(msg)


def range(msg: str, *args: object, **kwargs: object) -> Range:  # noqa: A001  # torch's name
    """Returns a range to use with `with` or as a decorator. `msg.format` inserts the other arguments into `msg`."""
    return _itt.range(msg, *args, **kwargs)
