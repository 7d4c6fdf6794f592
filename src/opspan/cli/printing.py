"""Prints the output of all verbs, and defines the options that say how much of an answer to print, and in which format.

Escapes control characters, because names of ranges, tables and files may have any character. Raises a WriteError if
writing to standard output fails, as for any file. If writing to standard error fails, raises nothing, because the
error could not be shown anyway.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable
from typing import Any, TypeVar

import click

from opspan.errors import WriteError
from opspan.printable import printable_lines

F = TypeVar("F", bound=Callable[..., Any])


class ReaderGone(Exception):
    """The program that reads the standard output has closed it early, as `| head` does."""


def show(text: str, *, err: bool = False) -> None:
    """Prints text for people, without adding a line end. Escapes characters that would move a terminal's cursor, even
    if the output is a file, because people look at such files in terminals."""
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
    """Writes the text that is still buffered. Otherwise Python would do so on exit, and a failure would change the exit
    code."""
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
        # Escapes characters that the encoding lacks. Without `color`, click would remove colour codes from data.
        click.echo(text.encode(encoding, "backslashreplace").decode(encoding), err=err, nl=False, color=True)
    except OSError as error:
        _failed(stream, err, error)


def _failed(stream: Any, err: bool, error: OSError) -> None:
    # Directs the stream to /dev/null. Otherwise Python would try again to write the rest of its buffer when it exits.
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
    if err:
        return
    if isinstance(error, BrokenPipeError):
        raise ReaderGone from None
    raise WriteError(f"cannot write to the standard output: {error.strerror or error}") from None


def printing(function: F) -> F:
    """Adds the options --limit, --wide and --format, which say how much of an answer to print, and in which format."""
    limit = click.option(
        "--limit",
        metavar="N",
        type=click.IntRange(min=-1),
        help="How many rows to print, -1 for all.  [default: 100 as text, all as json and csv]",
    )
    wide = click.option("--wide", is_flag=True, help="Print all columns and whole names, however wide the terminal is.")
    form = click.option(
        "--format",
        "form",
        type=click.Choice(["text", "json", "csv"]),
        default="text",
        show_default=True,
        help="Output format.",
    )
    return limit(wide(form(function)))
