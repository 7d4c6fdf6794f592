"""All real files that are at hand, a part at a time: the first part is always read, the others before a release."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

import opspan
from opspan.errors import OpspanError
from opspan.trace import Trace
from tiers import before_release

_PARTS = 4
_FOLDERS = ("kineto", "nsys", "nvprof", "rocpd")
_LEAST = 7  # traces of a part
in_parts = pytest.mark.parametrize("part", before_release(range(_PARTS), kept=1))


def part_of(files: Sequence[Path], part: int) -> Sequence[Path]:
    """Returns every fourth file, from the one with the number of the part on."""
    return files[part::_PARTS]


def traces_of(folder: Path, part: int) -> Iterator[Trace]:
    """Yields the traces of a part of the files; other tests say which files cannot be read."""
    files = [file for name in _FOLDERS for file in sorted((folder / name).iterdir())]
    read = 0
    for file in part_of(files, part):
        try:
            trace = opspan.load(file)
        except OpspanError:
            continue
        yield trace
        read += 1
    assert read > _LEAST
