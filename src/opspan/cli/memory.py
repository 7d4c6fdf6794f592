"""Implements `opspan memory`, which shows which ops took memory, and which memory was in use at the peak."""

from __future__ import annotations

from opspan.cli.answers import Verb

_HELP = """Print which ops took memory, or which memory was in use at the peak.

With --by op: how much each op took and how much of it was not given back, in the op itself and with all that ran inside
it. With --by block: the blocks in use when most memory was in use, the largest first, each with the op that took it.
With --by device: the most memory that was in use at once.

\b
Example:
  opspan memory capture
  opspan memory capture --by block --limit 20
"""

command = Verb("memory", _HELP).command()
