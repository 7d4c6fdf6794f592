"""The only way from a verb to a terminal. Names of ranges, tables and files are whatever a program made them.

The standard output is a result like any other: where it cannot be written, that is a WriteError. The standard error is
where errors are told, so one that cannot be written changes nothing.
"""

from __future__ import annotations

import contextlib
import os
import sys
from typing import Any

import click

from opspan.errors import WriteError
from opspan.printable import printable_lines


class ReaderGone(Exception):
    """The reader of the standard output has closed it, as `| head` does, and does not want the rest."""


def show(text: str, *, err: bool = False) -> None:
    """Print text for people, lines with their ends. What would move a terminal's cursor is escaped, wherever it goes:
    what is in a log is looked at in a terminal later."""
    _write(printable_lines(text), err)


def show_data(text: str) -> None:
    """Print data for programs, which is not changed but on a terminal."""
    is_seen = sys.stdout is not None and sys.stdout.isatty()
    _write(printable_lines(text) if is_seen else text, err=False)


def show_help(ctx: click.Context, _parameter: click.Parameter | None = None, asked: bool = True) -> None:
    if asked and not ctx.resilient_parsing:
        show(f"{ctx.get_help()}\n")
        ctx.exit()


def flush() -> None:
    """Write what is still buffered. Left to Python, which does it at its end, a failure would change the exit code."""
    for stream, err in ((sys.stdout, False), (sys.stderr, True)):
        try:
            if stream is not None:
                stream.flush()
        except OSError as error:
            _failed(stream, err, error)


def _write(text: str, err: bool) -> None:
    stream = sys.stderr if err else sys.stdout
    if stream is None:  # it was closed when the program began
        if err:
            return
        raise WriteError("cannot write to the standard output: it is closed")
    encoding = stream.encoding or "utf-8"
    try:
        # What the encoding has no bytes for is escaped. color: click would take what looks like colours out of data
        click.echo(text.encode(encoding, "backslashreplace").decode(encoding), err=err, nl=False, color=True)
    except OSError as error:
        _failed(stream, err, error)


def _failed(stream: Any, err: bool, error: OSError) -> None:
    # What is still in the stream's buffer goes nowhere, or Python would try again at its end.
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
    if err:
        return
    if isinstance(error, BrokenPipeError):
        raise ReaderGone from None
    raise WriteError(f"cannot write to the standard output: {error.strerror or error}") from None
