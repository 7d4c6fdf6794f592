"""Implements `opspan findings`, which shows the problems of a run, and what to do about them."""

from __future__ import annotations

import click

from opspan.cli.answers import Verb
from opspan.cli.printing import show

_HELP = """Print what is wrong with a run, the costliest first, and what to do about it.

Each finding names the time at stake: by how much, at most, the run would be shorter without its cause. The extra time
of a step that took longer than the others is a finding of its own and is not counted for any other. --explain says what
a rule looks at, when it reports, and why.

\b
Example:
  opspan findings report.sqlite
  opspan findings report.sqlite --limit 3 --format json
  opspan findings --explain late-host
"""


def _explain(ctx: click.Context, _parameter: click.Parameter, name: str | None) -> None:
    if name is not None and not ctx.resilient_parsing:
        from opspan.views.findings import explained

        show(explained(name))
        ctx.exit()


_EXPLAIN = click.Option(
    ["--explain"],
    metavar="ID|all",
    is_eager=True,
    expose_value=False,
    callback=_explain,
    help="Explain the finding with this id, or all of them; read no file.",
)

command = Verb("findings", _HELP, (_EXPLAIN,)).command()
