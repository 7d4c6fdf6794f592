"""opspan findings: what is wrong with a run, and what to do."""

from __future__ import annotations

import click

from opspan.cli.answers import answering
from opspan.cli.printing import show

_HELP = """Print what is wrong with a run, the costliest first, and what to do about it.

Each finding has the time at stake: how much shorter the run would be at most if its cause were gone. What a step took
longer than the others is a finding of its own and counts for no other. --explain says what a rule looks at, from when
on it speaks, and why.

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
    help="Say what the finding of this id means, and read no file.",
)

command = answering("findings", _HELP, options=(_EXPLAIN,))
