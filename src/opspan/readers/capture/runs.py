"""Finds how the files of a folder are related: as segments of one file, as processes of one or several ranks, as forked
processes of one recording, or as several runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from opspan.errors import ReadError
from opspan.formats.boundary import boundary
from opspan.readers.capture import layout
from opspan.readers.capture.bytes import read_header
from opspan.readers.capture.file import Header
from opspan.tables import Issues, Metadata, Tables

RECORD = 1  # the header's `producer` in files of opspan.record


def in_ranks(traces: Sequence[Tables], headers: Sequence[Header]) -> list[Metadata]:
    """Returns the metadata of each file with its rank. A forked process has its parent's rank. If the files name at
    most one rank, all files belong to one rank. Otherwise, a file without a rank and without events, such as a
    launcher's, gets the lowest rank. Files with events but without a rank share a new rank, higher than all others."""
    ranks = [trace.metadata for trace in traces]
    of_session = {
        header.session: rank.told for header, rank in zip(headers, ranks, strict=True) if rank.told.rank is not None
    }
    of_files = [of_session.get(header.session, rank.told) for header, rank in zip(headers, ranks, strict=True)]
    of_rank = {told.rank: told for told in reversed(of_files) if told.rank is not None}
    if len(of_rank) < 2:
        only = next(iter(of_rank.values()), of_files[0])
        return [replace(rank, rank=0, told=only) for rank in ranks]
    last = max([max(of_rank) + 1, *(told.world_size or 0 for told in of_files)])
    results = []
    for rank, trace, told in zip(ranks, traces, of_files, strict=True):
        chosen = of_rank[min(of_rank)] if told.rank is None and is_idle(trace) else told
        if chosen.rank is None:
            results.append(replace(rank, rank=last))
        else:
            results.append(replace(rank, rank=chosen.rank, rank_by=chosen.by or "", told=chosen))
    return results


def is_idle(trace: Tables) -> bool:
    """Returns whether the file has no events."""
    return all(frame.is_empty() for frame in (trace.ranges, trace.memory, trace.counters))


def in_cycles(ranks: Sequence[Metadata], headers: Sequence[Header]) -> list[Metadata]:
    """Numbers the recordings of each process from 1, and adds the numbers to the metadata of the files. Adds no numbers
    if recordings of one process overlap in time, if each process has only one recording, or if a rank has several
    processes. A forked process belongs to its parent's recording."""
    of_process: dict[tuple[str, int], dict[object, list[Header]]] = {}
    for process, session, header in zip(_processes(headers), _sessions(headers), headers, strict=True):
        of_process.setdefault(process, {}).setdefault(session, []).append(header)
    number: dict[object, int] = {}
    for recordings in of_process.values():
        spans = {session: _span(recording) for session, recording in recordings.items()}
        if _runs(list(spans.values())) < len(spans):
            return list(ranks)
        number |= {session: at for at, session in enumerate(sorted(spans, key=lambda session: spans[session]), 1)}
    of_rank = [{p for p, r in zip(_processes(headers), ranks, strict=True) if r.rank == rank.rank} for rank in ranks]
    if max(number.values()) == 1 or any(len(processes) > 1 for processes in of_rank):
        return list(ranks)
    return [replace(rank, cycle=number[session]) for rank, session in zip(ranks, _sessions(headers), strict=True)]


def _sessions(headers: Sequence[Header]) -> list[object]:
    """Returns the session of each file. Files of `opspan run` get None: each process has a different session, but all
    processes belong to one run."""
    return [header.session if header.producer == RECORD else None for header in headers]


def _processes(headers: Sequence[Header]) -> list[tuple[str, int]]:
    """Returns for each file the host and the process that began the file's recording."""
    began = {session: header for session, header in zip(_sessions(headers), headers, strict=True) if not header.forked}
    firsts = [began.get(session, header) for session, header in zip(_sessions(headers), headers, strict=True)]
    return [(first.host, first.pid) for first in firsts]


def header_of(path: Path) -> Header | None:
    """Returns the header, or None if it cannot be read. The error is ignored, because read_file raises it again."""
    try:
        with boundary(path):
            return read_header(path)
    except ReadError:
        return None


def whole_files(paths: Iterable[Path]) -> list[list[Path]]:
    """Returns a list of paths for each file: its only path, or the paths of its segments in order."""
    files: dict[tuple[object, ...], list[tuple[int, Path]]] = {}
    for path in paths:
        header = header_of(path)
        number = 0 if header is None else header.segment
        key = (path,) if header is None or number == 0 else (header.session, header.pid)
        files.setdefault(key, []).append((number, path))
    return [[path for _, path in sorted(segments)] for segments in files.values()]


def note_folder(headers: Sequence[Header], issues: Issues, *, is_in_cycles: bool = False) -> None:
    """Adds problems of the whole folder as issues. `is_in_cycles`: all recordings of a process belong to one run."""
    # A forked process may end by _exit, as in multiprocessing, without closing its file. The file is still complete, if
    # the session has ended.
    ended = {header.session for header in headers if not header.forked and header.state != layout.OPEN}
    issues.add(
        "not_closed",
        sum(header.state == layout.OPEN and not (header.forked and header.session in ended) for header in headers),
    )
    recordings: dict[object, list[Header]] = {}
    for session, process, header in zip(_sessions(headers), _processes(headers), headers, strict=True):
        recordings.setdefault(process if is_in_cycles else session, []).append(header)
    if len(recordings) > 1:
        runs = _runs([_span(recording) for recording in recordings.values()])
        issues.add("several_runs", runs if runs > 1 else 0)
        issues.add("several_recordings", len(recordings) if runs == 1 else 0)


def _span(headers: Sequence[Header]) -> tuple[int, float]:
    """Returns when the first file was opened and when the last file was closed, in UTC. If a file was never closed, the
    end is infinity, unless a forked process wrote that file."""
    ends = [header.close_utc_ns or float("inf") for header in headers if not header.forked or header.close_utc_ns]
    return min(header.open_utc_ns for header in headers), max(ends, default=float("inf"))


def _runs(spans: Sequence[tuple[int, float]]) -> int:
    """Returns the number of runs. Recordings that overlap in time belong to one run, as the ranks of torchrun do."""
    runs, until = 0, float("-inf")
    for begin, end in sorted(spans):
        runs += begin > until
        until = max(until, end)
    return runs
