"""How the files of a folder are related: segments of one file, processes of one rank or of several, forks of one
recording, several runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from opspan.errors import ReadError
from opspan.formats.boundary import boundary
from opspan.readers.capture.file import OPEN, Header
from opspan.readers.capture.source import read_header
from opspan.tables import Issues, Metadata, Tables

RECORD = 1  # the header's `producer` of opspan.record


def in_ranks(traces: Sequence[Tables], headers: Sequence[Header]) -> list[Metadata]:
    """The metadata of each file with the number of its rank; forks are of the rank of their parent. Files are of one
    rank, unless they say otherwise: then what recorded nothing, as a launcher, is with the first, and whoever else does
    not know comes last."""
    ranks = [trace.metadata for trace in traces]
    of_session = {
        header.session: rank.told for header, rank in zip(headers, ranks, strict=True) if rank.told.rank is not None
    }
    told = [of_session.get(header.session, rank.told) for header, rank in zip(headers, ranks, strict=True)]
    of_rank = {one.rank: one for one in reversed(told) if one.rank is not None}
    if len(of_rank) < 2:
        only = next(iter(of_rank.values()), told[0])
        return [replace(rank, rank=0, told=only) for rank in ranks]
    last = max([max(of_rank) + 1, *(one.world_size or 0 for one in told)])
    found = []
    for rank, trace, one in zip(ranks, traces, told, strict=True):
        is_idle = all(frame.is_empty() for frame in (trace.ranges, trace.memory, trace.counters))
        its = of_rank[min(of_rank)] if one.rank is None and is_idle else one
        if its.rank is None:
            found.append(replace(rank, rank=last))
        else:
            found.append(replace(rank, rank=its.rank, rank_by=its.by or "", told=its))
    return found


def in_cycles(ranks: Sequence[Metadata], headers: Sequence[Header]) -> list[Metadata]:
    """With the number of the recording among those of its process, if each process of the folder made them one after
    the other; forks are of their parent's recording."""
    of_process: dict[tuple[str, int], dict[object, list[Header]]] = {}
    for process, session, header in zip(_processes(headers), _sessions(headers), headers, strict=True):
        of_process.setdefault(process, {}).setdefault(session, []).append(header)
    number: dict[object, int] = {}
    for recordings in of_process.values():
        spans = {session: _span(files) for session, files in recordings.items()}
        if _runs(list(spans.values())) < len(spans):
            return list(ranks)
        number |= {session: at for at, session in enumerate(sorted(spans, key=lambda one: spans[one]), 1)}
    of_rank = [{p for p, r in zip(_processes(headers), ranks, strict=True) if r.rank == rank.rank} for rank in ranks]
    if max(number.values()) == 1 or any(len(processes) > 1 for processes in of_rank):
        return list(ranks)
    return [replace(rank, cycle=number[one]) for rank, one in zip(ranks, _sessions(headers), strict=True)]


def _sessions(headers: Sequence[Header]) -> list[object]:
    """With `opspan run` each process has a session of its own, and all of them are one run."""
    return [header.session if header.producer == RECORD else None for header in headers]


def _processes(headers: Sequence[Header]) -> list[tuple[str, int]]:
    """Returns, per file, the host and the process that began its recording."""
    began = {session: header for session, header in zip(_sessions(headers), headers, strict=True) if not header.forked}
    firsts = [began.get(session, header) for session, header in zip(_sessions(headers), headers, strict=True)]
    return [(first.host, first.pid) for first in firsts]


def header_of(path: Path) -> Header | None:
    """None: of a file that cannot be read; why is said where it is read."""
    try:
        with boundary(path):
            return read_header(path)
    except ReadError:
        return None


def whole_files(paths: Iterable[Path]) -> list[list[Path]]:
    """Each file by itself, but the segments of one file together, in their order."""
    files: dict[tuple[object, ...], list[tuple[int, Path]]] = {}
    for path in paths:
        header = header_of(path)
        number = 0 if header is None else header.segment
        key = (path,) if header is None or number == 0 else (header.session, header.pid)
        files.setdefault(key, []).append((number, path))
    return [[path for _, path in sorted(segments)] for segments in files.values()]


def note_folder(headers: Sequence[Header], issues: Issues, *, is_in_cycles: bool = False) -> None:
    """What is wrong with the folder as a whole, as issues. `is_in_cycles`: the recordings of a process are one run."""
    # Forks end with their session, or by _exit, as those of multiprocessing do: what they have written is complete,
    # even if their file was not closed.
    ended = {header.session for header in headers if not header.forked and header.state != OPEN}
    issues.add(
        "not_closed",
        sum(header.state == OPEN and not (header.forked and header.session in ended) for header in headers),
    )
    recordings: dict[object, list[Header]] = {}
    for session, process, header in zip(_sessions(headers), _processes(headers), headers, strict=True):
        recordings.setdefault(process if is_in_cycles else session, []).append(header)
    if len(recordings) > 1:
        runs = _runs([_span(files) for files in recordings.values()])
        issues.add("several_runs", runs if runs > 1 else 0)
        issues.add("several_recordings", len(recordings) if runs == 1 else 0)


def _span(files: Sequence[Header]) -> tuple[int, float]:
    """From the first opening to the last closing, in UTC. A file that was never closed has no end."""
    ends = [file.close_utc_ns or float("inf") for file in files if not file.forked or file.close_utc_ns]
    return min(file.open_utc_ns for file in files), max(ends, default=float("inf"))


def _runs(spans: Sequence[tuple[int, float]]) -> int:
    """How many runs there are. Recordings that overlap in time belong to one run, as the ranks of torchrun do."""
    runs, until = 0, float("-inf")
    for begin, end in sorted(spans):
        runs += begin > until
        until = max(until, end)
    return runs
