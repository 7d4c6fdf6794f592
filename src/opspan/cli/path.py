"""Implements `opspan path`, which shows the critical path of a run, and how long the steps would take if some ops were
faster."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import click

from opspan.cli.answers import Verb
from opspan.questions import Options

_HELP = """Print the critical path: for each moment, what everything else waited for.

Work on a device waits for its launch, for its stream and for events; the host waits where it synchronises. The path
starts at the end of the run and goes back, each time to what was waited for last, so its pieces add up to the time of
the steps. A piece is a kernel that computes, a copy, a collective, a launch (the device had nothing to do until the
launch came through), or the host's own code, its calls or its waits.

With --what-if, the run is timed again as if some ops, or kinds of time, took FACTOR times as long (0: no time at all,
2: twice as long); everything still waits for what it waited for. An op includes all that runs inside it. Each row is
then a step, and a sentence says how long the whole run would take.

\b
Example:
  opspan path report.sqlite
  opspan path report.sqlite --by kind
  opspan path report.sqlite --what-if aten::mm=0.5 --what-if launch=0
"""


_WHAT_IF = click.Option(
    ["--what-if"],
    multiple=True,
    metavar="NAME=FACTOR",
    help="Print how long steps would take if an op, or a kind of time, took FACTOR times as long. "
    "May be given several times.",
)


class PathVerb(Verb):
    def request(self, options: Options, more: Mapping[str, Any]) -> Options:
        from opspan.views.path import factors_of

        return replace(options, factors=factors_of(more["what_if"]))


command = PathVerb("path", _HELP, (_WHAT_IF,)).command()
