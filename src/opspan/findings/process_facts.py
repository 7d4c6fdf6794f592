"""Reads what captures state about processes: threads of torch, usable processors, and the age at the recording's begin.

facts_of(run) -> a ProcessFacts for each process of which something is stated
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from opspan.findings.run import Run
from opspan.tables import Metadata
from opspan.tables.metadata import FACTS, PROCESS_AGE, PROCESSOR_LIST, TORCH_IMPORT, TORCH_THREADS, USABLE_PROCESSORS

_LARGEST = 1 << 16  # a processor with a larger number is damage
_MOST = 1 << 62


@dataclass(frozen=True)
class ProcessFacts:
    rank: int
    pid: int
    host: str | None
    threads: int | None  # on which torch ran an op when the recording ended
    usable: float | None  # processors that the process may use at a time
    processors: frozenset[int]  # the numbers of the processors that it may run on; empty if they are unknown
    began_ns: int | None  # when the process began, on the trace's clock
    import_ns: int | None  # how long it imported torch


def facts_of(run: Run) -> list[ProcessFacts]:
    return run.memo("process facts", lambda: list(_facts(run)))


def _facts(run: Run) -> Iterator[ProcessFacts]:
    stated = [(rank, _by_process(rank)) for rank in run.trace.ranks]
    if not any(processes for _, processes in stated):
        return
    # A process with several recordings was first seen when the first of them began.
    seen = run.trace.processes.group_by("rank", "pid").agg(pl.col("start_ns").min(), pl.col("host").first())
    places = {(rank, pid): (start_ns, host) for rank, pid, start_ns, host in seen.iter_rows()}
    for rank, processes in stated:
        for pid, values in sorted(processes.items()):
            start_ns, host = places.get((rank.rank, pid), (None, None))
            age = _count(values.get(PROCESS_AGE))
            yield ProcessFacts(
                rank=rank.rank,
                pid=pid,
                host=host or rank.host,
                threads=_count(values.get(TORCH_THREADS)),
                usable=_amount(values.get(USABLE_PROCESSORS)),
                processors=_numbers(values.get(PROCESSOR_LIST)),
                began_ns=None if start_ns is None or age is None or start_ns < 0 else start_ns - age,
                import_ns=_length(values.get(TORCH_IMPORT)),
            )


def _by_process(rank: Metadata) -> dict[int, dict[str, Any]]:
    processes: dict[int, dict[str, Any]] = {}
    for name in FACTS:
        stated = rank.options.get(name)
        for pid, value in stated.items() if isinstance(stated, Mapping) else ():
            if isinstance(pid, str) and pid.isascii() and pid.isdigit() and len(pid) < 12:
                processes.setdefault(int(pid), {})[name] = value
    return processes


def _amount(value: Any) -> float | None:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return value if is_number and 0 < value < _LARGEST else None


def _count(value: Any) -> int | None:
    return value if type(value) is int and 0 < value < _MOST else None


def _length(value: Any) -> int | None:
    """Returns how long it is from the first time of a pair to the second one."""
    if not isinstance(value, (list, tuple)) or len(value) != 2 or not all(type(time) is int for time in value):
        return None
    begin, end = value
    return end - begin if begin <= end else None


def _numbers(text: Any) -> frozenset[int]:
    """Returns the numbers of a list such as 0-3,8."""
    numbers: set[int] = set()
    for part in text.split(",") if isinstance(text, str) else ():
        first, is_range, last = part.partition("-")
        last = last if is_range else first
        if not (first.isdecimal() and last.isdecimal() and len(first) < 6 and len(last) < 6 and int(last) < _LARGEST):
            return frozenset()
        numbers |= set(range(int(first), int(last) + 1))
    return frozenset(numbers)
