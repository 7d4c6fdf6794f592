"""Messages of the live side while a program runs: warnings, and lines on standard error.

`opspan run --emit` and `opspan exec` put opspan into programs that never asked for it. There a warning is a line on
standard error, so that a filter such as `python -W error` cannot turn it into an exception.
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
    """Notes that opspan was put into this process from outside."""
    global _put_in
    _put_in = True


@contextlib.contextmanager
def collect(into: list[str]) -> Iterator[None]:
    """Collects the warnings of this thread for `opspan attach`, which is another process. The program does not see
    them."""
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
    """Warns at the end of a session, which must not raise, even if warnings are errors."""
    try:
        warn(message, stacklevel + 1)
    except Warning:
        say(f"opspan: {message}\n")


def say(text: str) -> None:
    """Writes to standard error. Does nothing if standard error is closed, or the disk is full."""
    try:
        sys.stderr.write(printable_lines(text))
        sys.stderr.flush()
    except (AttributeError, OSError, ValueError):  # stderr is None, not writable, or closed
        pass
