"""Finds traces near a path that is not a trace: below it, above it, or beside it with a similar name."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

from opspan.printable import shell_path

# Limits on folder levels, folder entries and opened files, so that a search ends soon even in the root folder of a
# disk. SHOWN limits the suggestions in a message.
DEPTH = 3
ENTRIES = 2_000
OPENED = 100
SHOWN = 3


def did_you_mean(paths: list[Path]) -> str:
    """Returns 'did you mean a?', 'did you mean a, b or c (of 17)?', or an empty text."""
    if not paths:
        return ""
    *first, last = [shell_path(path) for path in paths[:SHOWN]]
    listed = f"{', '.join(first)} or {last}" if first else last
    return f"did you mean {listed}{f' (of {len(paths)})' if len(paths) > SHOWN else ''}?"


def inside(folder: Path, is_trace: Callable[[Path], bool]) -> list[Path]:
    """Returns the traces below a folder, the nearest first. Does not search within a trace, because the files there are
    parts of that trace."""
    traces: list[Path] = []
    level, seen, opened = [folder], 0, 0
    for _ in range(DEPTH):
        below: list[Path] = []
        for path in (path for parent in level for path in _entries(parent)):
            seen += 1
            if seen > ENTRIES:
                return traces
            if not path.is_dir() and (opened := opened + 1) > OPENED:
                continue
            if is_trace(path):
                traces.append(path)
            elif path.is_dir() and not path.is_symlink():
                below.append(path)
        level = below
    return traces


def around(path: Path, is_trace: Callable[[Path], bool]) -> list[Path]:
    """Returns a list with the nearest trace among the folders above `path`. The list is empty if none is a trace."""
    parents = [parent for parent, _ in zip(path.absolute().parents, range(DEPTH), strict=False)]
    shown = [parent for parent, _ in zip(path.parents, range(DEPTH), strict=False)]
    named = shown + parents[len(shown) :]
    return next(([named[at]] for at, parent in enumerate(parents) if is_trace(parent)), [])


def like(path: Path) -> list[Path]:
    """Returns files and folders whose names are similar to the name of `path`. Searches only the folder of `path`.
    No file or folder `path` exists."""
    import difflib  # imported only here, because only a misspelt path needs it

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
