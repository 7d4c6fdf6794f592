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
    """Push a range on this thread's stack. Returns its zero-based depth."""
    return _nvtx.push(msg)


def range_pop() -> int:
    """Pop a range off this thread's stack. Returns the zero-based depth of the range that ended, -1: none was open."""
    return _nvtx.pop()


def range_start(msg: str) -> int:
    """Start a range that may end on another thread. Returns the handle for `range_end`, 0 when nobody listens."""
    return _nvtx.start(msg)


def range_end(range_id: int) -> None:
    """End the range that `range_start` returned."""
    _nvtx.end(range_id)


def mark(msg: str) -> None:
    """Mark a moment; it has no end."""
    _nvtx.mark(msg)


def range(msg: str, *args: object, **kwargs: object) -> Range:  # noqa: A001  # torch's name
    """A range around a `with` block or a function. With further arguments, `msg.format(*args, **kwargs)`."""
    return _nvtx.range(msg, *args, **kwargs)
