"""opspan launches: how launches keep up with what devices do."""

from __future__ import annotations

from opspan.cli.answers import answering

_HELP = """Print how launches keep up with what devices do: their delay, how far the host runs ahead, and queues.

A launch is short if all that it launched took less time than its call. By stream there is the length of the queue: the
mean over time, and the longest. By copy the rows are directions of copies, with their speed.

\b
Example:
  opspan launches report.sqlite
  opspan launches report.sqlite --by stream
  opspan launches report.sqlite --by copy --format json
"""

command = answering("launches", _HELP)
