"""Makes the text of docs/cli.md from the help texts of the command line."""

from __future__ import annotations

import click

from opspan.cli import main

HEAD = """\
# The command line

A command exits with 0 if all went well, with 1 if `opspan diff --fail-over` found a run slower, and with 2 for bad use,
bad input and every other failure, also where its output cannot be written. With 2 it prints one line to stderr: what
was found, what was expected, what to do. It exits with 141 if the reader of its output went away, as in `| head`, and
with 130 after Ctrl-C. `opspan run` and `opspan exec` exit with the exit code of the program that they run.

On a terminal what is printed is as wide as that is (or as $COLUMNS says): on a narrow one the columns that matter
least are left out, which a line says, and names are cut; on a wide one there is more of both. What goes into a file or
a pipe has all columns, and what `--format json` and `csv` print is the same everywhere.
"""


def text() -> str:
    context = click.Context(main, info_name="opspan")
    parts = [HEAD, _section(main, "opspan")]
    for verb in main.list_commands(context):
        command = main.get_command(context, verb)
        if command is not None:
            parts.append(_section(command, f"opspan {verb}"))
    return "\n".join(parts)


def _section(command: click.Command, name: str) -> str:
    context = click.Context(command, info_name=name, terminal_width=100, help_option_names=["-h", "--help"])
    return f"## `{name}`\n\n```\n{command.get_help(context)}\n```\n"
