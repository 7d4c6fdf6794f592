"""opspan diff: two runs compared, and whether the second is slower."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import click

from opspan.cli.answers import Asked, answering
from opspan.errors import UsageError

if TYPE_CHECKING:
    from opspan.analysis import Analysed
    from opspan.views.answer import Answer

_HELP = """Compare two runs: what takes longer in B than in A, and is it noise.

Times are self times of devices, or of CPUs where no device was busy; by kernel, all of a kernel's time. Where both runs
have steps they are of a step, and how much the steps of a run differ from each other is the noise. A star marks changes
that are more than that.

With --fail-over the exit code is 1 if a step of B takes longer by more than that and, where it is known, by more than
the noise; without steps, if all of B does. So it can guard a program in CI.

\b
Example:
  opspan diff before.json after.json
  opspan diff before.sqlite after.sqlite --by kernel --limit 10
  opspan diff before.json after.json --fail-over 5% --format json
"""


def _share(_ctx: click.Context, _parameter: click.Parameter, text: str | None) -> float | None:
    if text is None:
        return None
    if not re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})?%", text):
        raise UsageError(f"--fail-over is a share in percent, as 5%, and not {text!r}")
    return float(text[:-1]) / 100


def _answer(found: Analysed, asked: Asked) -> Answer:
    from opspan.views.diff import answer

    if asked.other is None:
        raise UsageError("opspan diff compares two files, A with B")
    return answer(found, asked.other, asked.by, asked.step, asked.more["fail_over"])


_FAIL_OVER = click.Option(
    ["--fail-over"],
    metavar="N%",
    callback=_share,
    help="Exit with 1 if B takes longer than A by more than this.",
)

command = answering(
    "diff", _HELP, _answer, by=("op", "shape", "module", "phase", "kernel"), is_pair=True, options=[_FAIL_OVER]
)
