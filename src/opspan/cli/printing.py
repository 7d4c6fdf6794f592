"""The only way from a verb to a terminal. Names of ranges, tables and files are whatever a program made them."""

from __future__ import annotations

import sys

import click

from opspan.printable import printable_lines


def show(text: str, *, err: bool = False) -> None:
    """Print text for people, lines with their ends. What would move a terminal's cursor is escaped, wherever it goes:
    what is in a log is looked at in a terminal later."""
    _write(printable_lines(text), err)


def show_data(text: str) -> None:
    """Print data for programs, which is not changed but on a terminal."""
    _write(printable_lines(text) if sys.stdout.isatty() else text, err=False)


def _write(text: str, err: bool) -> None:
    stream = sys.stderr if err else sys.stdout
    encoding = (stream and stream.encoding) or "utf-8"
    # What the encoding has no bytes for is escaped. color: click would take what looks like colours out of data
    click.echo(text.encode(encoding, "backslashreplace").decode(encoding), err=err, nl=False, color=True)
