"""Finds the traces in a log folder. As in torch's plugin for TensorBoard, a run is a folder, a span is a cycle of the
profiler's schedule, and a worker is a process, with one file in each span.

log/resnet/worker0.1700000000000000000.pt.trace.json   written by tensorboard_trace_handler
log/resnet/report.nsys-rep                             any other file that opspan reads, recognised by content
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from opspan.printable import as_utf8, printable
from opspan.readers import trace_source
from opspan.tables.cycles import HANDLED
from opspan.tables.ranks import ranks_in_names

MOST_FILES = 10_000  # the most files to look at, because the user may have named a home folder by mistake
TOGETHER = "all together"  # the entry that shows all workers of a span as the ranks of one run
_EVENTS = ".tfevents."  # part of the names of TensorBoard's own files


@dataclass(frozen=True)
class LogWorker:
    name: str
    files: tuple[Path, ...]


@dataclass(frozen=True)
class Span:
    name: str
    workers: tuple[LogWorker, ...]


@dataclass(frozen=True)
class LogRun:
    name: str
    spans: tuple[Span, ...]


def runs_in(folder: Path) -> list[LogRun]:
    """Returns the runs in the log folder, sorted by name. Raises OSError if the folder cannot be read."""
    folder.stat()
    folders: dict[Path, list[Path]] = {}
    for path in _traces(folder):
        folders.setdefault(path.parent, []).append(path)
    runs = ((as_utf8(str(place.relative_to(folder))), paths) for place, paths in folders.items())
    return [LogRun(printable(name), tuple(_spans(sorted(paths)))) for name, paths in sorted(runs)]


def _traces(folder: Path) -> Iterator[Path]:
    looked_at = 0
    for place, folders, files in os.walk(folder):
        within = []
        for name in sorted(folders):
            path = Path(place, name)
            source = trace_source(path)
            # A folder that is a trace is one worker. But in a folder of captures each capture is a worker.
            if source is not None and not source.is_folder_of_traces:
                yield path
            else:
                within.append(name)
        folders[:] = within  # os.walk then searches only these folders
        for name in sorted(files):
            looked_at += 1
            if looked_at > MOST_FILES:
                return
            path = Path(place, name)
            # Even a damaged file is listed if tensorboard_trace_handler could have named it. The user sees the error on
            # opening the file.
            if _EVENTS not in name and (HANDLED.fullmatch(name) or trace_source(path) is not None):
                yield path


def _spans(paths: list[Path]) -> Iterator[Span]:
    """Yields the spans of a run. The first span has the first file of each worker, the second span has the second file
    of each, and so on. A file without a worker and a time in its name is a worker itself, in the first span."""
    by_worker: dict[str, list[tuple[int, Path]]] = {}
    for path in paths:
        handled = HANDLED.fullmatch(path.name)
        worker = handled["worker"] if handled and handled["time"] else path.name
        by_worker.setdefault(worker, []).append((int(handled["time"] or 0) if handled else 0, path))
    files = {worker: [path for _, path in sorted(timed)] for worker, timed in by_worker.items()}
    for number in range(max(map(len, files.values()))):
        workers = [
            LogWorker(printable(as_utf8(worker)), (spans[number],))
            for worker, spans in files.items()
            if number < len(spans)
        ]
        together = [LogWorker(TOGETHER, tuple(worker.files[0] for worker in workers))] if len(workers) > 1 else []
        first = [worker.files[0] for worker in workers]
        are_ranks = all(HANDLED.fullmatch(path.name) for path in first) or None not in ranks_in_names(
            [*map(str, first)]
        )
        yield Span(f"{number + 1}", tuple([*together, *workers] if are_ranks else [*workers, *together]))
