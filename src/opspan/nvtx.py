"""torch.cuda.nvtx's names, on any machine: ranges and marks to NVTX only. `opspan.annotate` reaches every sink."""

from __future__ import annotations

from opspan.emit import sink_list, sinks
from opspan.emit.compiled import compiling
from opspan.emit.namespace import Namespace, Range

__all__ = ["is_available", "mark", "range", "range_end", "range_pop", "range_push", "range_start"]

_nvtx = Namespace(sink_list.NVTX.bit)


def is_available() -> bool:
    """Whether ranges can be sent at all; a tool need not listen now. In compiled code it is always False."""
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
    """Ends the range that `range_start` returned."""
    _nvtx.end(range_id)


def mark(msg: str) -> None:
    """Marks a moment; it has no end."""
    _nvtx.mark(msg)


def range(msg: str, *args: object, **kwargs: object) -> Range:  # noqa: A001  # torch's name
    """Returns a range around a `with` block or a function. Further arguments are put into `msg` by `str.format`."""
    return _nvtx.range(msg, *args, **kwargs)
