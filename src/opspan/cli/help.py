"""Implements `opspan help`, which prints the help of a verb."""

from __future__ import annotations

import click

from opspan.cli.printing import show_help


@click.command("help")
@click.argument("verb", metavar="[COMMAND]", required=False)
@click.pass_context
def command(ctx: click.Context, verb: str | None) -> None:
    """Show the help of a command or, without an argument, of opspan.

    \b
    Example:
      opspan help
      opspan help table
    """
    above = ctx.parent
    assert above is not None  # noqa: S101  it is a command of the group
    assert isinstance(above.command, click.Group)  # noqa: S101
    if verb is None:
        show_help(above)
        return
    _, command_of_verb, _ = above.command.resolve_command(above, [verb])
    if command_of_verb is not None:
        show_help(click.Context(command_of_verb, above, info_name=verb))
