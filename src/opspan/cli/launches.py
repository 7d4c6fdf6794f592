"""Implements `opspan launches`, which shows whether the CPU launches kernels fast enough for the devices."""

from __future__ import annotations

from opspan.cli.answers import Verb

_HELP = """Print how launches keep up with what devices do: their delay, how far the host runs ahead, and queues.

A launch is short if the work that it launched took less time than the call itself. With --by stream, columns give the
length of the queue: its mean over time, and its maximum. With --by copy, each row is a direction of copies, with their
speed.

\b
Example:
  opspan launches report.sqlite
  opspan launches report.sqlite --by stream
  opspan launches report.sqlite --by copy --format json
"""

command = Verb("launches", _HELP).command()
