"""All verbs print through these functions, because names of ranges, tables and files may hold any character.

If the standard output cannot be written, that is a WriteError, as for any file. If the standard error cannot be
written, nothing happens, because the error could not be shown anyway.
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
    """The reader of the standard output has closed it early, as `| head` does."""


def show(text: str, *, err: bool = False) -> None:
    """Prints text for people. Every line has its line end. Escapes characters that would move a terminal's cursor, even
    if the output is a file, because people look at logs in terminals."""
    _write(printable_lines(text), err)


def show_data(text: str) -> None:
    """Prints data for programs. Escapes characters only if the output is a terminal."""
    is_seen = sys.stdout is not None and sys.stdout.isatty()
    _write(printable_lines(text) if is_seen else text, err=False)


def show_help(ctx: click.Context, _parameter: click.Parameter | None = None, is_on: bool = True) -> None:
    if is_on and not ctx.resilient_parsing:
        show(f"{ctx.get_help()}\n")
        ctx.exit()


def flush() -> None:
    """Writes what is still buffered. If Python did that when it ends, a failure would change the exit code."""
    for stream, err in ((sys.stdout, False), (sys.stderr, True)):
        try:
            if stream is not None:
                stream.flush()
        except OSError as error:
            _failed(stream, err, error)


def _write(text: str, err: bool) -> None:
    stream = sys.stderr if err else sys.stdout
    if stream is None:  # the stream was closed when the program began
        if err:
            return
        raise WriteError("cannot write to the standard output: it is closed")
    encoding = stream.encoding or "utf-8"
    try:
        # Characters that the encoding lacks are escaped. Without `color`, click would strip colour codes from data.
        click.echo(text.encode(encoding, "backslashreplace").decode(encoding), err=err, nl=False, color=True)
    except OSError as error:
        _failed(stream, err, error)


def _failed(stream: Any, err: bool, error: OSError) -> None:
    # Sends the rest of the buffer to /dev/null. Otherwise Python would try to write it again when it ends.
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
    if err:
        return
    if isinstance(error, BrokenPipeError):
        raise ReaderGone from None
    raise WriteError(f"cannot write to the standard output: {error.strerror or error}") from None
