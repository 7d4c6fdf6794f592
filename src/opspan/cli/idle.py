"""Implements `opspan idle`, which shows when devices had nothing to do, and why."""

from __future__ import annotations

from opspan.cli.answers import Verb

_HELP = """Print when devices had nothing to do, and what the host was in meanwhile.

A gap lasts from the end of one piece of work on a device to the start of the next. It is split at the launch of that
next work: before the launch the host was late, during it the launch took the time. It counts as queued if the launch
began before the gap: the work then waited for another stream or rank, or for the device itself. The host's part is
counted for the op (module, phase, ...) that its thread was in at each moment. With --by function, if the trace has
samples of processors and no Python functions, each gap's part is divided equally among the samples of its thread. With
--by stream, each stream has its own gaps, and a column says how long other streams of the device were busy meanwhile.

\b
Example:
  opspan idle report.sqlite
  opspan idle report.sqlite --by module --limit 10
  opspan idle report.sqlite --by gap --format json
"""

command = Verb("idle", _HELP).command()
