"""One file or folder per source -> Trace. A reader translates: no nesting, no pairing, no torch.

`load` is the door; `registry` knows the readers.
"""

from __future__ import annotations

import os
from pathlib import Path

from opspan.errors import UsageError
from opspan.readers.registry import READERS, Reader, reader_for
from opspan.trace import Trace, side_by_side

__all__ = ["READERS", "Reader", "load"]


def load(*paths: str | os.PathLike[str], source: str | None = None, strict: bool = False) -> Trace:
    """Read traces of any source, told by their content; several paths become the ranks of one run, side by side.

    `source` names the reader instead. `strict` makes an issue that is more than worth knowing a StrictError; without
    it, `trace.issues` lists them.
    """
    if not paths:
        raise UsageError("nothing to load; expected the path of at least one trace")
    traces = []
    for path in map(Path, paths):
        traces.append(reader_for(path, source).read(path))
    trace = side_by_side(traces)
    return trace.check() if strict else trace
