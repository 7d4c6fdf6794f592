"""One file or folder per source -> Trace. A reader translates: no nesting, no pairing, no torch.

`load` is the door; `registry` knows the readers.
"""

from __future__ import annotations

import os
from pathlib import Path

from opspan.errors import UsageError
from opspan.readers.registry import READERS, Reader, read, reader_for
from opspan.trace import Trace, side_by_side
from opspan.trace.window import Window

__all__ = ["READERS", "Reader", "load"]


def load(
    *paths: str | os.PathLike[str],
    source: str | None = None,
    strict: bool = False,
    between: tuple[int, int] | None = None,
    step: int | tuple[int, int] | str | None = None,
) -> Trace:
    """Read traces of any source, told by their content; several paths become the ranks of one run, side by side.

    `source` names the reader instead. `strict` makes an issue that is more than worth knowing a StrictError; without
    it, `trace.issues` lists them. `between` (nanoseconds since the trace began) and `step` (the number of a
    ProfilerStep, the first and the last, or what the ranges are called that are steps: "step", "epoch *") read what
    overlaps that part alone.
    """
    if not paths:
        raise UsageError("nothing to load; expected the path of at least one trace")
    if between is not None and step is not None:
        raise UsageError("both a stretch of time and steps were given (between, step); expected one of them")
    steps = (step, step) if isinstance(step, int) else step
    window = None if between is None and steps is None else Window(between, steps)
    traces = [read(reader_for(path, source), path, window) for path in map(Path, paths)]
    trace = side_by_side(traces)
    return trace.check() if strict else trace
