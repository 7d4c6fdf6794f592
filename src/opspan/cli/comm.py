"""opspan comm: collectives over ranks, and who waited for whom."""

from __future__ import annotations

from opspan.cli.answers import answering

_HELP = """Print the collectives of a run: how much they moved, how fast, and who waited for whom.

Give the files of all ranks together. The same collective is then found on each of them, and its time is split into
transfer, which is the shortest time of all ranks, and waiting for the one that comes last. By rank it says who was last
how often, and how much of the time each rank computed, or waited for nothing but communication.

Bandwidth is that of NCCL's tests: bytes by time, and what each link had to carry (bus). It is of the transfer where
ranks were matched, else of the collective's own time.

\b
Example:
  opspan comm rank0.json rank1.json
  opspan comm rank*.json --by rank
  opspan comm report.sqlite --by call --limit 20
"""

command = answering("comm", _HELP)
