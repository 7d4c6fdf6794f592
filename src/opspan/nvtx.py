"""Offers the functions of torch.cuda.nvtx, also on machines without CUDA. Their ranges and marks are sent only to NVTX.
In contrast, the ranges of `opspan.annotate` are sent to every sink (NVTX, ITT and captures)."""

from __future__ import annotations

from opspan.emit import sink_list, sinks
from opspan.emit.compiled import compiling
from opspan.emit.namespace import Namespace, Range

__all__ = ["is_available", "mark", "range", "range_end", "range_pop", "range_push", "range_start"]

_nvtx = Namespace(sink_list.NVTX.bit)


def is_available() -> bool:
    """Returns whether this process can send to NVTX. This does not mean that a tool is listening.

    In code that torch.compile compiles, the result is always False.
    """
    if compiling():
        return False
    if sinks.load() is not None:
        return True
    try:
        import nvtx  # noqa: F401
    except ImportError:
        return False
    return True


def range_push(msg: str) -> int:
    """Pushes a range on this thread's stack, and returns its zero-based depth."""
    return _nvtx.push(msg)


def range_pop() -> int:
    """Pops a range off this thread's stack, and returns its zero-based depth; -1 if no range was open."""
    return _nvtx.pop()


def range_start(msg: str) -> int:
    """Starts a range that may end on another thread. Returns the handle for `range_end`; 0 if no tool listens."""
    return _nvtx.start(msg)


def range_end(range_id: int) -> None:
    """Ends a range. `range_id` is the handle that `range_start` returned."""
    _nvtx.end(range_id)


def mark(msg: str) -> None:
    """Marks a point in time."""
    _nvtx.mark(msg)


def range(msg: str, *args: object, **kwargs: object) -> Range:  # noqa: A001  # torch's name
    """Returns a range to use with `with` or as a decorator. `msg.format` inserts the other arguments into `msg`."""
    return _nvtx.range(msg, *args, **kwargs)
