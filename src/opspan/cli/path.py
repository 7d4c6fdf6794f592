"""opspan path: the critical path of a run, and what its steps would take if a part of it were faster."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import click

from opspan.cli.answers import answering
from opspan.questions import Options

_HELP = """Print the critical path: of each moment what it was that all the rest waited for.

Work on a device waits for its launch, for its stream, for events; the host waits where it synchronises. The path goes
back from the end of the run along what was waited for last, so that its pieces add up to the time of the steps: a
kernel computes, a copy, a collective; launch: the device had nothing to do until a launch came through; the host's own
code, its calls, its waits.

With --what-if the run is timed once more, with some ops, or kinds of time, taking a part of what they took (0: no time
at all, 2: twice as long), and all else waiting for what it waited for. An op is taken with all that runs inside it. A
row is then a step, and a sentence says what the whole run would take.

\b
Example:
  opspan path report.sqlite
  opspan path report.sqlite --by kind
  opspan path report.sqlite --what-if aten::mm=0.5 --what-if launch=0
"""


def _asks(options: Options, more: Mapping[str, Any]) -> Options:
    from opspan.views.path import factors_of

    return replace(options, factors=factors_of(more["what_if"]))


command = answering(
    "path",
    _HELP,
    _asks,
    options=[
        click.Option(
            ["--what-if"],
            multiple=True,
            metavar="NAME=FACTOR",
            help="What steps would take if an op, or a kind, took so much of its time. May be given several times.",
        )
    ],
)
