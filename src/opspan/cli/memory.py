"""opspan memory: who took memory, and what there was of it at the peak."""

from __future__ import annotations

from opspan.cli.answers import answering

_HELP = """Print which ops took memory, or what there was of it at the peak.

By op: what was taken and what of it was not given back, in the op itself and with all that ran inside it. By block: the
blocks that there were when most was in use, the largest first, with the op that took each. By device: how much was in
use at most.

\b
Example:
  opspan memory capture
  opspan memory capture --by block --limit 20
"""

command = answering("memory", _HELP)
