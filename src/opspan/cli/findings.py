"""opspan findings: what is wrong with a run, and what to do."""

from __future__ import annotations

from typing import Any

from opspan.cli.answers import Asked, answering

_HELP = """Print what is wrong with a run, the costliest first, and what to do about it.

Each finding has the time at stake: how much shorter the run would be at most if its cause were gone. What a step took
longer than the others is a finding of its own and counts for no other. The rules, with what each looks at and from when
on it speaks, are in docs/findings.md.

\b
Example:
  opspan findings report.sqlite
  opspan findings report.sqlite --limit 3 --format json
"""


def _asks(asked: Asked) -> dict[str, Any]:
    return {"files": asked.files}


command = answering("findings", _HELP, _asks)
