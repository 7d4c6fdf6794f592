"""Finds, for a trace of a serving engine, the traces of the engine's graph captures.

The engine profiles the capture of each graph. It writes these traces into the folder `capture_traces` beside the trace
of the run, under names such as graph_capture_rank_0.<time>.pt.trace.json.gz (vLLM), bs_32_rank0.json.gz (SGLang) or
capture_trace_rank_0.json.gz (xDiT). The batch size of a capture is in the file's name, or in the list
execution_details.json, which is in the same folder or in the folder above.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from opspan.errors import NotATrace, NotReadable
from opspan.files import exists, is_folder, open_file
from opspan.printable import path_text
from opspan.readers.registry import trace_source
from opspan.tables.ranks import rank_in_name

FOLDER = "capture_traces"
_LIST = "execution_details.json"
_MOST_BYTES = 1 << 20  # limit on the size of the list
_MOST_FILES = 2_000
_BATCH_SIZE = re.compile(r"(?<![A-Za-z0-9])bs_([0-9]{1,9})(?![0-9])")


class GraphCapture(NamedTuple):
    path: Path
    batch_size: int | None


def graph_captures(trace: Path, rank: int | None, paths: Sequence[str | os.PathLike[str]]) -> list[GraphCapture]:
    """Returns the graph captures of the trace's rank. `rank`: the rank that the trace states; if it is None, the rank
    in the trace's name counts. `paths`: files or folders that the user named; by default the folder capture_traces."""
    folder = trace.parent / FOLDER
    if not paths:
        paths = [folder] if is_folder(folder) else []
    files: list[Path] = []
    for path in map(Path, paths):
        if not exists(path):
            raise NotReadable(f"there is no file {path_text(path)}; expected a trace of a capture, or a folder of them")
        found = _traces(path) if is_folder(path) and trace_source(path) is None else [path]
        if not found and path != folder:
            raise NotATrace(f"{path_text(path)} has no trace in it; expected traces of the capture of graphs")
        files += found
    files = _of_rank(files, rank_in_name(trace.name) if rank is None else rank)
    sizes: dict[str, int] = {}
    for one in {path.parent for path in files}:
        sizes |= _listed(one / _LIST) or _listed(one.parent / _LIST)
    return [GraphCapture(path, sizes.get(path.name, _in_name(path.name))) for path in files]


def _traces(folder: Path) -> list[Path]:
    try:
        with os.scandir(folder) as entries:
            names = sorted(entry.name for entry, _ in zip(entries, range(_MOST_FILES), strict=False))
    except OSError as error:
        raise NotReadable(f"{path_text(folder)} cannot be listed ({error.strerror})") from None
    paths = [folder / name for name in names if not name.startswith(".") and name != _LIST]
    return [path for path in paths if trace_source(path) is not None]


def _of_rank(files: list[Path], rank: int | None) -> list[Path]:
    """Leaves out files of other ranks. Returns all files if the rank is unknown, or if every file has another rank."""
    own = [path for path in files if rank_in_name(path.name) in (None, rank)]
    return own if rank is not None and own else files


def _in_name(name: str) -> int | None:
    size = _BATCH_SIZE.search(name)
    return int(size[1]) if size else None


def _listed(path: Path) -> dict[str, int]:
    """Returns file name -> batch size from the engine's list; nothing if the list is missing or damaged."""
    try:
        with open_file(path) as stream:
            rows: Any = json.loads(stream.read(_MOST_BYTES))
    except (OSError, ValueError, RecursionError):
        return {}
    sizes = {}
    for row in rows if isinstance(rows, list) else ():
        name, size = (row.get("file"), row.get("batch_size")) if isinstance(row, dict) else (None, None)
        if isinstance(name, str) and type(size) is int and 0 < size < 1 << 31:
            sizes[Path(name).name] = size
    return sizes
