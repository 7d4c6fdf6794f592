"""Joins the captures of a run into one trace, and finds the rank of each capture.

Reads the undamaged parts of a truncated or damaged file, and adds an issue. Only a file without a usable header
is an error.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl

from opspan.capture_files import CAPTURE, captures
from opspan.errors import NotATrace, ReadError
from opspan.formats.boundary import boundary
from opspan.readers.capture import layout
from opspan.readers.capture.bytes import read_header
from opspan.readers.capture.chunks import read_file, stretch_of
from opspan.readers.capture.file import CaptureFile, Header
from opspan.readers.capture.process_facts import common_facts, facts_of
from opspan.readers.capture.ranges import read_ranges
from opspan.readers.capture.runs import header_of, in_cycles, in_ranks, is_idle, note_folder, whole_files
from opspan.readers.capture.tables import (
    note_capture,
    read_counters,
    read_functions,
    read_memory,
    read_process,
    read_threads,
)
from opspan.readers.capture.twice import merge_pairs
from opspan.tables import Issues, Metadata, Tables, processors
from opspan.tables.metadata import from_environment
from opspan.tables.tables import STRETCH, joined
from opspan.tables.window import Stretch, Window, options_of, without_lost_parents

RECORDED_BY = {1: "record", 2: "collectors"}


def read(path: Path) -> Tables:
    """Reads one capture: a file, or all files of a folder as the processes of one run."""
    return _read(path, None)


def read_part(path: Path, window: Window) -> Tables:
    """Returns only events that overlap the window. Reads all other events too, but drops them."""
    return _read(path, window)


def read_recording(path: Path) -> Tables:
    """Reads the recording that began with this file: all segments of the process and of its forked processes."""
    session = read_header(path).session
    headers = ((other, header_of(other)) for other in captures(path.parent) if other != path)
    others = (other for other, header in headers if header is not None and header.session == session)
    return _read_all(path.parent, [path, *others], None)


def _read(path: Path, window: Window | None) -> Tables:
    if path.is_dir():
        return _read_all(path, captures(path), window)
    stretch = None if window is None else stretch_of([path], window)
    trace, header = _read_one([path], stretch, window)
    issues = Issues(str(path))
    issues.add("not_closed", int(header.state == layout.OPEN))
    return trace.replace(issues=pl.concat([trace.issues, issues.frame()]))


def _read_all(folder: Path, paths: Sequence[Path], window: Window | None) -> Tables:
    traces: list[Tables] = []
    headers: list[Header] = []
    refused: list[ReadError] = []
    stretch = None if window is None else stretch_of(paths, window)
    for segments in whole_files(paths):
        try:
            with boundary(segments[0]):
                trace, header = _read_one(segments, stretch, window)
            traces.append(trace)
            headers.append(header)
        except ReadError as error:
            refused.append(error)
    if not traces:
        why = f"; {refused[0]}" if refused else ""
        raise NotATrace(f"{folder} holds no readable capture (*{CAPTURE}){why}")
    issues = Issues(str(folder))
    parts = in_cycles(in_ranks(traces, headers), headers)
    # Processes without events, such as launchers, may run on other processors than the rank itself.
    parts = [_without_processor(part) if is_idle(trace) else part for part, trace in zip(parts, traces, strict=True)]
    trace = joined(traces, parts, issues)
    issues.add("unreadable_file", len(refused), str(refused[0]) if refused else "")
    note_folder(headers, issues, is_in_cycles=parts[0].cycle is not None)
    ranks = [_common(folder, [part for part in parts if part.rank == rank.rank], rank) for rank in trace.ranks]
    frames = trace.frames | {"issues": pl.concat([trace.issues, issues.frame()])}
    return Tables(tuple(sorted(ranks, key=lambda rank: rank.rank)), **frames)


def _common(folder: Path, parts: Sequence[Metadata], first: Metadata) -> Metadata:
    """Returns the metadata that all files of a rank, or of one of the rank's recordings (cycles), have in common."""
    numbers = sorted({part.cycle for part in parts if part.cycle is not None})
    cycles = [[part for part in parts if part.cycle == number] for number in numbers]
    recorded_by = sorted({part.options["recorded_by"] for part in parts})
    return replace(
        first,
        paths=(str(folder),),
        host=first.host if all(part.host == first.host for part in parts) else None,
        options={
            "recorded_by": ", ".join(recorded_by),
            "files": len(parts),
            **common_facts(parts),
            **_processor(parts),
            **{name: first.options[name] for name in ("window", STRETCH) if name in first.options},
        },
        cycle=numbers[0] if len(numbers) == 1 else None,
        cycles=tuple(_common(folder, some, some[0]) for some in cycles) if len(cycles) > 1 else (),
    )


def _processor(parts: Sequence[Metadata]) -> dict[str, Any]:
    """Returns the processor that all files of a rank name, as an option. It is unknown if they name different ones."""
    known = [part.options[processors.OPTION] for part in parts if processors.OPTION in part.options]
    return {processors.OPTION: known[0]} if known and all(one == known[0] for one in known) else {}


def _without_processor(metadata: Metadata) -> Metadata:
    options = {name: value for name, value in metadata.options.items() if name != processors.OPTION}
    return replace(metadata, options=options)


def _read_one(paths: Sequence[Path], stretch: Stretch | None, window: Window | None) -> tuple[Tables, Header]:
    issues = Issues(str(paths[0]))
    capture = read_file(paths, issues, stretch)
    counters = read_counters(capture, issues)
    note_capture(capture, issues)
    ranges, relations = merge_pairs(*read_ranges(capture, issues), issues)
    functions = read_functions(capture)
    tables = {"relations": relations.with_columns(rank=0), "counters": counters, "memory": read_memory(capture)}
    if stretch is not None:
        at = pl.col("time_ns")
        tables = {name: frame.filter(stretch.overlap(at, at)) for name, frame in tables.items()}
        read = ranges.height
        functions = functions.filter(stretch.overlap(pl.col("start_ns"), pl.col("end_ns"))).pipe(without_lost_parents)
        # Checks the ranges again, because the end of a range may have been in a later unit than the range itself.
        until = pl.when("is_mark").then("start_ns").otherwise("end_ns")
        ranges = without_lost_parents(ranges.filter(stretch.overlap(pl.col("start_ns"), until)))
        issues.add("outside_window", capture.left_out + read - ranges.height)
    trace = Tables(
        (_metadata(capture, window, stretch),),
        ranges=ranges,
        functions=functions,
        **tables,
        threads=read_threads(capture),
        processes=read_process(capture),
        issues=issues.frame(),
    )
    return trace, capture.header


def _metadata(capture: CaptureFile, window: Window | None, stretch: Stretch | None) -> Metadata:
    header = capture.header
    processor = processors.from_capture(header.environment)
    return Metadata(
        source="capture",
        paths=(str(capture.path),),
        tool="opspan",
        host=header.host or None,
        clock="CLOCK_MONOTONIC",
        origin_utc_ns=header.open_utc_ns - header.open_monotonic_ns if header.open_utc_ns else None,
        options={
            "recorded_by": RECORDED_BY.get(header.producer, "unknown"),
            "forked": header.forked,
            **facts_of(header),
            **({processors.OPTION: processor} if processor else {}),
            **options_of(window, stretch),
        },
        told=from_environment(header.environment),
    )
