"""opspan steps: the steps of a run, and where the time of each went."""

from __future__ import annotations

from typing import Any

from opspan.cli.answers import Asked, answering

_HELP = """Print the steps of a run, and where the time of each went.

Each moment of a step is given to the first of these that is on: a kernel computes, a copy, a fill, a collective, a call
into the device's library, loading of data, an op of torch on the host, nothing of these. They add up to the time of the
step. A star marks steps that took much longer than the others.

Steps are torch's ProfilerStep#N; without them the range around everything that repeats, what lies between two calls of
Optimizer.step, or the kernels that come in the same order again and again. With --step NAME they are the ranges of
that name.

\b
Example:
  opspan steps report.sqlite
  opspan steps capture --step 'train step*' --format json
"""


def _asks(asked: Asked) -> dict[str, Any]:
    return {"step": asked.step}


command = answering("steps", _HELP, _asks)
