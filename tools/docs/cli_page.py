"""docs/cli.md, made from the help texts of the command line."""

from __future__ import annotations

import click

from opspan.cli import main

HEAD = """\
# The command line

Exit codes: 0; 1 where a verb says so; 2 for bad use or bad input, with one line on stderr: what was found, what was
expected, what to do. `opspan run` and `opspan exec` exit as the program did that they run.
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
