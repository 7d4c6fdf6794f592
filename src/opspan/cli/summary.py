"""opspan summary: what a trace is, where its time went, and what to type next."""

from __future__ import annotations

from typing import TYPE_CHECKING

from opspan.cli.answers import Asked, answering

if TYPE_CHECKING:
    from opspan.analysis import Analysed
    from opspan.views.answer import Answer

_HELP = """Print on one screen what a trace is, where its time went, and what to type next.

On a terminal that is wider than 80 columns (or with $COLUMNS) names are longer and there are more of them; on a
narrower one lines go on below. --wide prints whole names.

\b
Example:
  opspan summary report.sqlite
  opspan summary rank0.json rank1.json --format json
"""


def _answer(found: Analysed, asked: Asked) -> Answer:
    from opspan.views.summary import answer

    return answer(found, asked.files)


command = answering("summary", _HELP, _answer, is_whole=True)
