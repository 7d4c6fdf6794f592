"""Cycles are files that one process wrote one after another, such as those of torch's `schedule(repeat=2)`.

    group_by_process(ranks, numbers, recordings, issues) -> for each process, the indices of its files, in order of time
    cycle_numbers(groups, recordings)                    -> maps a file's index to its cycle number, from 1
    lanes(ranks)                                         -> Lanes: a separate rank number for each cycle

All cycles of a process have the rank of the process, and the column `cycle` tells them apart. Calls, Python threads and
forward ops of two cycles may have equal ids, and nothing was recorded between the cycles. So each cycle is analysed as
if it were a rank, and no analysis looks up, attributes or sums anything across files. docs/ranks.md has the rules.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import PurePath
from typing import NamedTuple

import polars as pl

from opspan.errors import UsageError
from opspan.printable import LONGEST_LINE, listed
from opspan.tables.issues import Issues
from opspan.tables.metadata import Metadata

COLUMN = "cycle"
# Matches files of tensorboard_trace_handler, which are named worker.time.pt.trace.json. The worker is host_pid by
# default.
HANDLED = re.compile(r"(?P<worker>.+?)(?:\.(?P<time>\d+))?\.pt\.trace\.json(?:\.gz)?")
_col = pl.col
_MANY = 2**20  # more than the number of cycles of any rank


class RecordingSpan(NamedTuple):
    """The time in which a rank was recorded, the rank's processes, and the first and last of torch's numbered steps."""

    begin_ns: int
    end_ns: int
    is_utc: bool = True  # False if the times are readings of the file's own clock
    pids: frozenset[int] = frozenset()
    steps: tuple[int, int] | None = None


class Lane(NamedTuple):
    rank: int
    cycle: int | None


class Lanes(NamedTuple):
    """A lane is a number that stands for one cycle of one rank, and is used as a rank number during analyses. `of` maps
    each lane to its rank and cycle."""

    of: Mapping[int, Lane]
    ranks: tuple[Metadata, ...]

    @property
    def cycle_of(self) -> dict[int, int | None]:
        return {number: lane.cycle for number, lane in self.of.items()}

    def frames(self, frames: Mapping[str, pl.DataFrame]) -> dict[str, pl.DataFrame]:
        """Replaces the rank by the lane in all frames. Tables such as devices have no cycles, so their rows are
        repeated for each lane of their rank. But issues and metrics go only to the rank's first lane."""
        return {name: self._frame(frame, is_once=name in ("issues", "metrics")) for name, frame in frames.items()}

    def _frame(self, frame: pl.DataFrame, *, is_once: bool) -> pl.DataFrame:
        first: dict[int, int] = {}
        for number, lane in self.of.items():
            first.setdefault(lane.rank, number)
        if COLUMN in frame.columns:
            codes = {lane.rank * _MANY + (lane.cycle or 0): number for number, lane in self.of.items()}
            code = _col("rank").cast(pl.Int64) * _MANY + _col(COLUMN).fill_null(0)
            of_cycle = code.replace_strict(codes, default=None, return_dtype=pl.Int32)
            return frame.with_columns(rank=pl.coalesce(of_cycle, _as(first))).drop(COLUMN)
        if is_once:
            return frame.with_columns(rank=_as(first))
        pairs = pl.DataFrame(
            {"rank": [lane.rank for lane in self.of.values()], "lane": list(self.of)},
            schema={"rank": pl.Int32, "lane": pl.Int32},
        )
        joined = frame.join(pairs, on="rank", how="left", maintain_order="left")
        return joined.with_columns(rank=pl.coalesce("lane", "rank")).drop("lane")

    def back(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Replaces the lanes by their ranks in the result of an analysis."""
        rank_of = {number: lane.rank for number, lane in self.of.items()}
        return rows.with_columns(rank=_as(rank_of)) if "rank" in rows.columns else rows


def with_cycles(rows: pl.DataFrame, cycle_of: Mapping[int, int | None]) -> pl.DataFrame:
    """Adds the column `cycle`. `cycle_of` maps the number in the column `rank` to the cycle."""
    return rows.with_columns(_col("rank").replace_strict(cycle_of, default=None, return_dtype=pl.Int32).alias(COLUMN))


def _as(numbers: Mapping[int, int]) -> pl.Expr:
    return _col("rank").replace_strict(numbers, default=_col("rank"), return_dtype=pl.Int32)


def lanes(ranks: Sequence[Metadata]) -> Lanes | None:
    """Returns a lane for each cycle of each rank; None if no rank has cycles."""
    if not any(rank.cycles for rank in ranks):
        return None
    every = [(rank.rank, one) for rank in ranks for one in (rank.cycles or (rank,))]
    every.sort(key=lambda pair: (pair[0], pair[1].cycle or 0))
    of = {number: Lane(rank, one.cycle) for number, (rank, one) in enumerate(every)}
    return Lanes(of, tuple(replace(one, rank=number, cycles=()) for number, (_, one) in enumerate(every)))


def merge_cycles(cycles: Sequence[Metadata]) -> Metadata:
    """Returns the metadata of the rank that consists of these cycles. The clock is that of the first cycle."""
    if len(cycles) == 1 and cycles[0].cycle is None:
        return cycles[0]
    in_order = sorted(cycles, key=lambda one: one.cycle or 0)
    paths = tuple(path for one in in_order for path in one.paths)
    return replace(in_order[0], paths=paths, cycle=None, cycles=tuple(in_order))


def begins(frames: Mapping[str, pl.DataFrame]) -> pl.DataFrame:
    """Returns when each cycle began, as a frame of rank, cycle and begin_ns. Formats without a column `cycle` store
    this frame, so that a reader can tell the cycles apart."""
    parts = [
        frame.select("rank", COLUMN, begin_ns="start_ns" if "start_ns" in frame.columns else "time_ns")
        for frame in frames.values()
        if COLUMN in frame.columns
    ]
    rows = pl.concat(parts).drop_nulls() if parts else pl.DataFrame(schema=_BEGINS)
    return rows.group_by("rank", COLUMN).agg(_col("begin_ns").min()).sort("rank", "begin_ns").cast(_BEGINS)  # type: ignore[arg-type]


def by_time(frame: pl.DataFrame, begins: pl.DataFrame) -> pl.DataFrame:
    """Adds the column `cycle`, by the times of the rows. `begins` is a frame that the function `begins` returned, with
    at least one row."""
    time = "start_ns" if "start_ns" in frame.columns else "time_ns"
    rows = frame.with_row_index("row").select("row", _col("rank").cast(pl.Int32), time)
    joined = rows.sort(time, nulls_last=True).join_asof(
        begins.sort("begin_ns"), left_on=time, right_on="begin_ns", by="rank", check_sortedness=False
    )
    return frame.with_columns(joined.sort("row")[COLUMN])


_BEGINS: dict[str, pl.DataType | type[pl.DataType]] = {"rank": pl.Int32, COLUMN: pl.Int32, "begin_ns": pl.Int64}


def numbers_of(ranks: Sequence[Metadata]) -> list[int]:
    """Returns the distinct cycle numbers of all ranks, sorted."""
    return sorted({one.cycle for rank in ranks for one in rank.cycles if one.cycle is not None})


def check(number: int, known: Sequence[int]) -> None:
    """Raises UsageError if no cycle has this number. A trace without cycles counts as cycle 1."""
    if number in (known or [1]):
        return
    there = f"the files are of cycles {listed(list(known))}" if known else "no process wrote several of these files"
    raise UsageError(f"there is no cycle {number}: {there}; choose another, or leave it out to read all")


# --- which files are cycles of one process


def group_by_process(
    ranks: Sequence[Metadata], numbers: Sequence[int | None], recordings: Sequence[RecordingSpan | None], issues: Issues
) -> list[list[int]]:
    """Returns, for each process, the indices of its files in `ranks`, in order of time. `numbers`: the rank numbers
    that the traces or the names of their files state."""
    alike: dict[object, list[int]] = {}
    for at, (one, number) in enumerate(zip(ranks, numbers, strict=True)):
        when = _when(recordings, at)
        known = _process(one, number, when) if when.pids and one.paths and not one.cycles else None
        alike.setdefault(at if known is None else known, []).append(at)
    groups = [group for places in alike.values() for group in _split_overlapping(places, ranks, recordings, issues)]
    for places in groups:
        if len(places) > 1:
            _note_assumed(places, ranks, numbers, recordings, issues)
    return sorted(groups, key=min)


def _process(one: Metadata, number: int | None, when: RecordingSpan) -> tuple[object, ...]:
    """Returns a key that all files of one process share. Files of different processes have the same key only if nothing
    in the files tells the processes apart."""
    # Kineto counts the times in all files of a process from one zero point. Other tools use a new zero point for each
    # file.
    base = one.origin_utc_ns if one.source == "kineto" else one.clock
    return (one.source, min(when.pids), _host(one), _worker(one), number, one.told.world_size, one.told.run, base)


def _split_overlapping(
    places: list[int], ranks: Sequence[Metadata], recordings: Sequence[RecordingSpan | None], issues: Issues
) -> list[list[int]]:
    """Splits a group if its files overlap in time, because one process cannot write two recordings at once. Splits it
    by folder if the files within each folder do not overlap, else into single files."""
    timed = sorted(places, key=lambda at: _when(recordings, at)[:2])
    if _follow(timed, recordings):
        return [timed]
    folders: dict[PurePath, list[int]] = {}
    for at in timed:
        folders.setdefault(PurePath(ranks[at].paths[0]).parent, []).append(at)
    if len(folders) > 1 and all(_follow(some, recordings) for some in folders.values()):
        return list(folders.values())
    if _host(ranks[places[0]]) is not None:
        names = listed([PurePath(ranks[at].paths[0]).name for at in places], longest=LONGEST_LINE)
        issues.add("overlapping_cycles", len(places), names)
    return [[at] for at in places]


def _when(recordings: Sequence[RecordingSpan | None], at: int) -> RecordingSpan:
    return (recordings[at] if at < len(recordings) else None) or RecordingSpan(0, 0)


def _follow(places: Sequence[int], recordings: Sequence[RecordingSpan | None]) -> bool:
    return all(_when(recordings, one).end_ns <= _when(recordings, other).begin_ns for one, other in pairwise(places))


def _note_assumed(
    places: Sequence[int],
    ranks: Sequence[Metadata],
    numbers: Sequence[int | None],
    recordings: Sequence[RecordingSpan | None],
    issues: Issues,
) -> None:
    """Adds an issue if the files may come from two processes with the same pid, on two hosts or in two runs."""
    first = ranks[places[0]]
    names = listed([PurePath(ranks[at].paths[0]).name for at in places], longest=LONGEST_LINE)
    if _host(first) is None and _worker(first) is None and numbers[places[0]] is None:
        issues.add("assumed_cycles", len(places), f"{names}: no file names its host or rank")
        return
    steps = [when.steps for at in places if (when := _when(recordings, at)).steps is not None]
    if any(one[1] > other[0] for one, other in pairwise(steps)):
        issues.add("assumed_cycles", len(places), f"{names}: numbers of steps begin again")


def _worker(one: Metadata) -> str | None:
    name = HANDLED.fullmatch(PurePath(one.paths[0]).name) if len(one.paths) == 1 else None
    return name["worker"] if name is not None and name["time"] else None


def _host(one: Metadata) -> str | None:
    """Returns the host. Older versions of torch state the host only in the file's name, as host_pid."""
    if one.host is not None or one.source != "kineto":
        return one.host
    named = re.fullmatch(r"(.+)_[0-9]+", _worker(one) or "")
    return named[1] if named else None


def cycle_numbers(groups: Sequence[Sequence[int]], recordings: Sequence[RecordingSpan | None]) -> dict[int, int]:
    """Maps the index of each file to its cycle number. The dict is empty if each process has only one file. If all
    processes have equally many files, or the files' first steps are unknown or do not rise, numbers the files of each
    process in order. Otherwise some files are missing, so files with the same first step get the same cycle number."""
    if all(len(places) == 1 for places in groups):
        return {}
    steps = {at: _when(recordings, at).steps for places in groups for at in places}
    first = {at: when[0] for at, when in steps.items() if when is not None}
    rises = len(first) == len(steps) and all(
        first[one] < first[other] for some in groups for one, other in pairwise(some)
    )
    if len({len(places) for places in groups}) == 1 or not rises:
        return {at: number for places in groups for number, at in enumerate(places, 1)}
    order = sorted(set(first.values()))
    return {at: order.index(first[at]) + 1 for places in groups for at in places}
