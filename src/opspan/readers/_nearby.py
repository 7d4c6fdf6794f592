"""Traces near a path that is none: in the folder, around the file, under a similar name. For `did you mean ...?`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

from opspan.printable import shell_path

# How far down is looked, at how many entries and files: who gave a whole disk gets an answer as well.
DEPTH = 3
ENTRIES = 2_000
OPENED = 100
SHOWN = 3


def did_you_mean(found: list[Path]) -> str:
    """'did you mean a?', 'did you mean a, b or c (of 17)?', or nothing."""
    if not found:
        return ""
    *first, last = [shell_path(path) for path in found[:SHOWN]]
    listed = f"{', '.join(first)} or {last}" if first else last
    return f"did you mean {listed}{f' (of {len(found)})' if len(found) > SHOWN else ''}?"


def inside(folder: Path, is_trace: Callable[[Path], bool]) -> list[Path]:
    """The traces in a folder, the nearest first; what lies within one of them is part of it."""
    found: list[Path] = []
    level, seen, opened = [folder], 0, 0
    for _ in range(DEPTH):
        below: list[Path] = []
        for path in (path for parent in level for path in _entries(parent)):
            seen += 1
            if seen > ENTRIES:
                return found
            if not path.is_dir() and (opened := opened + 1) > OPENED:
                continue
            if is_trace(path):
                found.append(path)
            elif path.is_dir() and not path.is_symlink():
                below.append(path)
        level = below
    return found


def around(path: Path, is_trace: Callable[[Path], bool]) -> list[Path]:
    """The folder that the path is a part of, if that is a trace."""
    parents = [parent for parent, _ in zip(path.absolute().parents, range(DEPTH), strict=False)]
    shown = [parent for parent, _ in zip(path.parents, range(DEPTH), strict=False)]
    named = shown + parents[len(shown) :]
    return next(([named[at]] for at, parent in enumerate(parents) if is_trace(parent)), [])


def like(path: Path) -> list[Path]:
    """Names in its folder that are much like that of a path that is not there."""
    import difflib  # only for who has misspelt

    names = {entry.name: entry for entry in _entries(path.parent)}
    same = [name for name in names if Path(name).stem == path.stem or name.lower() == path.name.lower()]
    close = [name for name in difflib.get_close_matches(path.name, names, SHOWN, 0.7) if name not in same]
    return [names[name] for name in [*same, *close][:SHOWN]]


def _entries(folder: Path) -> Iterator[Path]:
    try:
        with os.scandir(folder) as entries:
            names = sorted(entry.name for entry, _ in zip(entries, range(ENTRIES), strict=False))
    except OSError:
        return
    for name in names:
        if not name.startswith("."):
            yield folder / name
