"""opspan memory: who took memory, and what there was of it at the peak."""

from __future__ import annotations

from typing import TYPE_CHECKING

from opspan.cli.answers import Asked, answering

if TYPE_CHECKING:
    from opspan.analysis import Analysed
    from opspan.views.answer import Answer

_HELP = """Print which ops took memory, or what there was of it at the peak.

By op: what was taken and what of it was not given back, in the op itself and with all that ran inside it. By block: the
blocks that there were when most was in use, the largest first, with the op that took each. By device: how much was in
use at most.

\b
Example:
  opspan memory capture
  opspan memory capture --by block --limit 20
"""


def _answer(found: Analysed, asked: Asked) -> Answer:
    from opspan.views.memory import answer

    return answer(found, asked.by)


command = answering("memory", _HELP, _answer, by=("op", "block", "device"))
