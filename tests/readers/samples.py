"""A file or two of every source there is, for what must hold of all of them.

A source is in opspan/sources.py, and what writes its files is the module of its name in builders/, with SAMPLES: what a
file is -> a function from a folder to the file in it. Nothing here names a source.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path

from opspan import sources

Write = Callable[[Path], Path]


def samples(*, with_ranges: bool = False) -> dict[str, Write]:
    """Returns the files of every source; with_ranges: of every source whose files have ranges."""
    found: dict[str, Write] = {}
    for source in sources.SOURCES:
        builder = import_module(f"builders.{source.name}")
        if with_ranges and not getattr(builder, "HAS_RANGES", True):
            continue
        written: dict[str, Write] = builder.SAMPLES
        found |= {f"{source.name} {what}": write for what, write in written.items()}
    return found
