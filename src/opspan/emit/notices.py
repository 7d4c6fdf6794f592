"""What the live side says to a person while a program runs: warnings, and lines on standard error.

A program that opspan was put into from outside (`opspan run --emit`, `opspan exec`) asked for nothing: there a
warning is a line on standard error, which no filter such as `python -W error` turns into an exception.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import warnings
from collections.abc import Iterator

from opspan.printable import printable, printable_lines

_put_in = False
_here = threading.local()


def put_in() -> None:
    """From here on this process is one that opspan was put into."""
    global _put_in
    _put_in = True


@contextlib.contextmanager
def collected(into: list[str]) -> Iterator[None]:
    """Warnings of this thread go there: who asked is another process, and the program is not to be told."""
    before, _here.into = getattr(_here, "into", None), into
    try:
        yield
    finally:
        _here.into = before


def warn(message: str, stacklevel: int) -> None:
    into: list[str] | None = getattr(_here, "into", None)
    if into is not None:
        into.append(printable(message))
    elif _put_in:
        say(f"opspan: {message}\n")
    else:
        warnings.warn(printable(message), stacklevel=stacklevel + 1)


def warn_at_end(message: str, stacklevel: int) -> None:
    """Where a session ends: that must not raise, where warnings are errors either."""
    try:
        warn(message, stacklevel + 1)
    except Warning:
        say(f"opspan: {message}\n")


def say(text: str) -> None:
    """To standard error, where there is one: it may be closed, or a full disk."""
    try:
        sys.stderr.write(printable_lines(text))
        sys.stderr.flush()
    except (AttributeError, OSError, ValueError):  # None; not writable; closed
        pass
