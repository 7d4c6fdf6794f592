"""opspan steps: the steps of a run, and where the time of each went."""

from __future__ import annotations

from opspan.cli.answers import answering

_HELP = """Print the steps of a run, and where the time of each went.

Each moment of a step is given to the first of these that is on: a kernel computes, a copy, a fill, a collective, a call
into the device's library, loading of data, an op of torch on the host, nothing of these. They add up to the time of the
step. A star marks steps that took much longer than the others.

Steps are torch's ProfilerStep#N, or what a session was told by step(); without them the program's own ranges around its
training, or what lies between two calls of Optimizer.step. With --step NAME they are the ranges of that name. What is
in no step is told below: start-up, what was done between steps, and what came after them.

\b
Example:
  opspan steps report.sqlite
  opspan steps capture --step 'train step*' --format json
"""

command = answering("steps", _HELP)
