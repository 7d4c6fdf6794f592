"""torch.profiler.itt's names: ranges and marks that go to ITT only. `opspan.annotate` reaches every sink."""

from __future__ import annotations

from opspan.emit import sink_list, sinks, tools
from opspan.emit.compiled import compiling
from opspan.emit.namespace import Namespace, Range

__all__ = ["is_available", "mark", "range", "range_pop", "range_push"]

_itt = Namespace(sink_list.ITT.bit)


def is_available() -> bool:
    """Whether this process has an ITT to send to: torch's, or that of the package ittapi. A tool need not listen now.

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
    """Pushes a range on this thread's stack, and returns its zero-based depth."""
    return _itt.push(msg)


def range_pop() -> int:
    """Pops a range off this thread's stack, and returns its zero-based depth; -1 if no range was open."""
    return _itt.pop()


def mark(msg: str) -> None:
    """Marks a moment; it has no end."""
    _itt.mark(msg)


def range(msg: str, *args: object, **kwargs: object) -> Range:  # noqa: A001  # torch's name
    """Returns a range around a `with` block or a function. Further arguments are put into `msg` by `str.format`."""
    return _itt.range(msg, *args, **kwargs)
