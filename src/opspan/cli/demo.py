"""opspan demo: the whole way in one command."""

from __future__ import annotations

import contextlib
from pathlib import Path

import click

from opspan import private_files
from opspan.cli.options import capture_folder
from opspan.cli.printing import show
from opspan.errors import WriteError


@click.command("demo")
@capture_folder
def command(wanted: Path | None) -> None:
    """Train a small model under record and show its ranges.

    Ops, modules, sequence numbers, sizes: needs torch and nothing else. Leaves the capture and the text it prints.

    \b
    Example:
      opspan demo -o demo
    """
    from opspan.emit import capturing, demo

    ours = wanted is None or not wanted.exists()
    folder = capturing.make_folder(wanted)
    try:
        trace = demo.train(folder)
    except BaseException:
        if ours:
            with contextlib.suppress(OSError):  # something is in it
                folder.rmdir()
        raise
    lines = list(demo.tree(trace))
    show("".join(f"{line}\n" for line in lines))
    text = folder / "ranges.txt"
    try:
        with private_files.unfinished(text, overwrite=False) as path:
            path.write_text("\n".join(lines) + "\n")
    except OSError as error:
        raise WriteError(f"{text} cannot be written: {error.strerror}") from error
    show(f"\nWrote {folder} ({trace.ranges.height} ranges, {trace.issues.height} issues) and {text}\n")
