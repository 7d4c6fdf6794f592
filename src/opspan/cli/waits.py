"""opspan waits: what the host waited for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from opspan.cli.answers import Asked, answering

if TYPE_CHECKING:
    from opspan.analysis import Analysed
    from opspan.views.answer import Answer

_HELP = """Print the calls in which the host waited, and what ran on devices meanwhile.

These are calls that synchronise, copies that block, values fetched from a device (item), memory that is allocated and
freed, and modules that are loaded. Waits while a device is busy cost what the host could have done ahead; waits while
it is idle cost both.

\b
Example:
  opspan waits report.sqlite
  opspan waits report.sqlite --by why
  opspan waits report.sqlite --by call --limit 20
"""


def _answer(found: Analysed, asked: Asked) -> Answer:
    from opspan.views.waits import answer

    return answer(found, asked.by)


command = answering("waits", _HELP, _answer, by=("op", "module", "phase", "step", "function", "why", "call"))
