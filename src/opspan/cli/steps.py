"""Implements `opspan steps`, which shows the steps of a run, and where the time of each step went."""

from __future__ import annotations

from opspan.cli.answers import Verb

_HELP = """Print the steps of a run, and where the time of each went.

Each moment of a step is counted for the first of these that is active: a kernel that computes, a copy, a fill, a
collective, a call into the device's library, loading of data, an op of torch on the host, none of these. The parts add
up to the time of the step. A star marks steps that took much longer than the others.

Steps are torch's ProfilerStep#N ranges, or those that the program marked with a session's step(); without them, the
program's own ranges around its training, or the time between two calls of Optimizer.step. With --step NAME, steps are
the ranges of that name. Lines below the table say what lies outside of steps: start-up, the time between steps, and
what came after them.

\b
Example:
  opspan steps report.sqlite
  opspan steps capture --step 'train step*' --format json
"""

command = Verb("steps", _HELP).command()
