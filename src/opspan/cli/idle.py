"""opspan idle: when devices had nothing to do, and who kept them waiting."""

from __future__ import annotations

from opspan.cli.answers import answering

_HELP = """Print when devices had nothing to do, and what the host was in meanwhile.

A gap lasts from the end of what ran on a device to the begin of what runs there next. Its time is the host's until it
launches that, then the launch's; it is queued where the launch had begun before the gap did: that waited for another
stream or rank, or for the device itself. The host's part belongs to the op (module, phase, ...) that its thread was in
at each moment. By stream, each stream has gaps of its own, and it is said how long others of its device were busy.

\b
Example:
  opspan idle report.sqlite
  opspan idle report.sqlite --by module --limit 10
  opspan idle report.sqlite --by gap --format json
"""

command = answering("idle", _HELP)
