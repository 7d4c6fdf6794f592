"""Implements `opspan comm`, which shows the collectives of all ranks, and which rank waited for which."""

from __future__ import annotations

from opspan.cli.answers import Verb

_HELP = """Print the collectives of a run: how much they moved, how fast, and who waited for whom.

Give the files of all ranks together. opspan then matches each collective across ranks, and splits its time into the
transfer, which is the shortest time on any rank, and the wait for the rank that comes last. With --by rank, a row says
how often the rank was last, and how much of the time it computed, or waited for nothing but communication.

Bandwidth is computed as in NCCL's tests: bytes divided by time, and what each link had to carry (bus). The time is that
of the transfer if ranks were matched, else the collective's own.

\b
Example:
  opspan comm rank0.json rank1.json
  opspan comm rank*.json --by rank
  opspan comm report.sqlite --by call --limit 20
"""

command = Verb("comm", _HELP).command()
