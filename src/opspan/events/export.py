"""Writes events to files as torch's EventList does: a Chrome trace, and stacks for flame graphs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from opspan import private_files
from opspan.events.table import sort_attribute

if TYPE_CHECKING:
    import polars as pl

STACK_METRICS = (
    "self_cpu_time_total",
    "self_cuda_time_total",
    "self_xpu_time_total",
    "self_privateuse1_time_total",
)
# Replaces the characters in a frame's text that would separate frames or fields of a line.
_SAFE_FRAME = str.maketrans(" ;\t\n", "____")


@contextmanager
def _new_file(path: str | Path) -> Iterator[TextIO]:
    with private_files.unfinished(Path(path), overwrite=True) as part, part.open("w", encoding="utf-8") as file:
        yield file


def chrome_trace(events: Iterable[Any], path: str | Path, device: str) -> None:
    """Writes the events in torch's layout, one by one. Names are escaped, as in torch since 2.14."""
    with _new_file(path) as file:
        file.write("[")
        for number, text in enumerate(_chrome_events(events, device)):
            file.write(f", {text}" if number else text)
        file.write("]")


def _chrome_events(events: Iterable[Any], device: str) -> Iterator[str]:
    arrows = count()
    for event in events:
        if event.trace_name is None:
            continue
        name = json.dumps(event.trace_name)
        start_us = event.time_range.start
        thread = json.dumps(f" node_id:{event.node_id}, thread_id:{event.thread} ") if event.is_remote else event.thread
        yield (
            f'{{"name": {name}, "ph": "X", "ts": {start_us}, "dur": {event.time_range.elapsed_us()}, '
            f'"tid": {thread}, "pid": "CPU functions", "args": {{}}}}'
        )
        for _ in event.kernels:
            yield (
                f'{{"name": {name}, "ph": "s", "ts": {start_us}, "tid": {event.thread}, "pid": "CPU functions", '
                f'"id": {next(arrows)}, "cat": "cpu_to_{device}", "args": {{}}}}'
            )


def write_lines(batches: Iterable[pl.Series], path: str | Path) -> int:
    """Writes the lines unchanged, and returns their number."""
    count = 0
    with _new_file(path) as file:
        for lines in batches:
            count += lines.len()
            file.writelines(f"{line}\n" for line in lines.to_list())
    return count


def stacks(events: Iterable[Any], path: str | Path, metric: str) -> None:
    """Writes a line for each event that has a stack and a time of at least one microsecond. A line has the frames, the
    outermost first, and the time."""
    if metric not in STACK_METRICS:
        raise ValueError(f"metric should be one of: {list(STACK_METRICS)}")
    attribute = sort_attribute(metric)
    with _new_file(path) as file:
        for event in events:
            time_us = int(getattr(event, attribute)) if event.stack else 0
            if time_us > 0:
                frames = ";".join(frame.translate(_SAFE_FRAME) for frame in reversed(event.stack))
                file.write(f"{frames} {time_us}\n")
