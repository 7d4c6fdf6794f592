"""torch.profiler.itt's names: ranges and marks to ITT only. `opspan.annotate` reaches every sink."""

from __future__ import annotations

from opspan.emit import sink_list, sinks, tools
from opspan.emit.compiled import compiling
from opspan.emit.namespace import Namespace, Range

__all__ = ["is_available", "mark", "range", "range_pop", "range_push"]

_itt = Namespace(sink_list.ITT.bit)


def is_available() -> bool:
    """Whether this process has an ITT to send to, torch's or the package ittapi's. A tool need not listen now.

    In compiled code it is always False.
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
    """Push a range on this thread's stack. Returns its zero-based depth."""
    return _itt.push(msg)


def range_pop() -> int:
    """Pop a range off this thread's stack. Returns the zero-based depth of the range that ended, -1: none was open."""
    return _itt.pop()


def mark(msg: str) -> None:
    """Mark a moment; it has no end."""
    _itt.mark(msg)


def range(msg: str, *args: object, **kwargs: object) -> Range:  # noqa: A001  # torch's name
    """A range around a `with` block or a function. With further arguments, `msg.format(*args, **kwargs)`."""
    return _itt.range(msg, *args, **kwargs)
