"""Implements `opspan waits`, which shows the calls in which the CPU waited."""

from __future__ import annotations

from opspan.cli.answers import Verb

_HELP = """Print the calls in which the host waited, and what ran on devices meanwhile.

These are calls that synchronise, copies that block, values fetched from a device (item), memory that is allocated and
freed, modules that are loaded and, in results of VTune, waits for locks, threads and files (blocked). While a device is
busy, a wait costs only work that the host could have done ahead; while it is idle, a wait costs time on both.

\b
Example:
  opspan waits report.sqlite
  opspan waits report.sqlite --by why
  opspan waits report.sqlite --by call --limit 20
"""

command = Verb("waits", _HELP).command()
