"""Implements `opspan summary`, which shows what a trace is, where its time went, and which commands to try next."""

from __future__ import annotations

from opspan.cli.answers import Verb

_HELP = """Print on one screen what a trace is, where its time went, and what to type next.

A terminal wider than 80 columns (or $COLUMNS) shows more and longer names; on a narrower one, long lines are wrapped.
--wide prints whole names.

\b
Example:
  opspan summary report.sqlite
  opspan summary rank0.json rank1.json --format json
"""


class SummaryVerb(Verb):
    is_whole = True


command = SummaryVerb("summary", _HELP).command()
