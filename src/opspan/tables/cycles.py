"""Cycles: files that one process wrote one after the other, such as those of torch's `schedule(repeat=2)`.

    found(ranks, numbers, recorded, issues) -> of each process the places of its files in `ranks`, in order of time
    numbered(groups, recorded)              -> the number of each place's cycle, from 1
    lanes(ranks)                            -> Lanes: the same trace with a rank for each cycle, and back

All cycles of a process have its rank, and the column `cycle` tells them apart. Ids of calls, threads of Python and
numbers of forward ops may be the same in two of them, and between two of them nothing was recorded. So each cycle is
analysed as if it were a rank: nothing is looked up, attributed or summed across files. docs/ranks.md has the rules.
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
# tensorboard_trace_handler's names: worker.time.pt.trace.json, where the worker is host_pid if nobody named it.
HANDLED = re.compile(r"(?P<worker>.+?)(?:\.(?P<time>\d+))?\.pt\.trace\.json(?:\.gz)?")
_col = pl.col
_MANY = 2**20  # cycles of a rank, and more than there will be


class Recorded(NamedTuple):
    """When a rank was recorded, by which of its processes, and between which of torch's numbered steps."""

    begin_ns: int
    end_ns: int
    is_utc: bool = True  # else these are readings of the file's own clock
    pids: frozenset[int] = frozenset()
    steps: tuple[int, int] | None = None


class Lane(NamedTuple):
    rank: int
    cycle: int | None


class Lanes(NamedTuple):
    """`of`: by the number that stands for a cycle of a rank, whose it is."""

    of: Mapping[int, Lane]
    ranks: tuple[Metadata, ...]

    @property
    def rank_of(self) -> dict[int, int]:
        return {number: lane.rank for number, lane in self.of.items()}

    @property
    def cycle_of(self) -> dict[int, int | None]:
        return {number: lane.cycle for number, lane in self.of.items()}

    def frames(self, frames: Mapping[str, pl.DataFrame]) -> dict[str, pl.DataFrame]:
        """With the number of the lane as the rank. What is of a whole rank, such as its devices, is in each lane."""
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
        found = frame.join(pairs, on="rank", how="left", maintain_order="left")
        return found.with_columns(rank=pl.coalesce("lane", "rank")).drop("lane")

    def back(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Rows of an analysis, with the ranks that they are of."""
        return rows.with_columns(rank=_as(self.rank_of)) if "rank" in rows.columns else rows


def with_cycles(rows: pl.DataFrame, cycle_of: Mapping[int, int | None]) -> pl.DataFrame:
    """With the number of the cycle beside that of the lane, for what is asked of each cycle when the ranks are back."""
    return rows.with_columns(_col("rank").replace_strict(cycle_of, default=None, return_dtype=pl.Int32).alias(COLUMN))


def _as(numbers: Mapping[int, int]) -> pl.Expr:
    return _col("rank").replace_strict(numbers, default=_col("rank"), return_dtype=pl.Int32)


def lanes(ranks: Sequence[Metadata]) -> Lanes | None:
    """None where no rank has cycles."""
    if not any(rank.cycles for rank in ranks):
        return None
    every = [(rank.rank, one) for rank in ranks for one in (rank.cycles or (rank,))]
    every.sort(key=lambda each: (each[0], each[1].cycle or 0))
    of = {number: Lane(rank, one.cycle) for number, (rank, one) in enumerate(every)}
    return Lanes(of, tuple(replace(one, rank=number, cycles=()) for number, (_, one) in enumerate(every)))


def merged(cycles: Sequence[Metadata]) -> Metadata:
    """A rank of its cycles, on whatever clock they are now."""
    if len(cycles) == 1 and cycles[0].cycle is None:
        return cycles[0]
    in_order = sorted(cycles, key=lambda one: one.cycle or 0)
    paths = tuple(path for one in in_order for path in one.paths)
    return replace(in_order[0], paths=paths, cycle=None, cycles=tuple(in_order))


def begins(frames: Mapping[str, pl.DataFrame]) -> pl.DataFrame:
    """rank, cycle, begin_ns: when each cycle began. With these, times tell cycles apart where a format has no column
    for them."""
    parts = [
        frame.select("rank", COLUMN, begin_ns="start_ns" if "start_ns" in frame.columns else "time_ns")
        for frame in frames.values()
        if COLUMN in frame.columns
    ]
    rows = pl.concat(parts).drop_nulls() if parts else pl.DataFrame(schema=_BEGINS)
    return rows.group_by("rank", COLUMN).agg(_col("begin_ns").min()).sort("rank", "begin_ns").cast(_BEGINS)  # type: ignore[arg-type]


def by_time(frame: pl.DataFrame, begins: pl.DataFrame) -> pl.DataFrame:
    """With the column of cycles, by what `begins` says; `begins` is not empty."""
    time = "start_ns" if "start_ns" in frame.columns else "time_ns"
    rows = frame.with_row_index("row").select("row", _col("rank").cast(pl.Int32), time)
    found = rows.sort(time, nulls_last=True).join_asof(
        begins.sort("begin_ns"), left_on=time, right_on="begin_ns", by="rank", check_sortedness=False
    )
    return frame.with_columns(found.sort("row")[COLUMN])


_BEGINS: dict[str, pl.DataType | type[pl.DataType]] = {"rank": pl.Int32, COLUMN: pl.Int32, "begin_ns": pl.Int64}


def numbers_of(ranks: Sequence[Metadata]) -> list[int]:
    """The numbers of the cycles that are there."""
    return sorted({one.cycle for rank in ranks for one in rank.cycles if one.cycle is not None})


def check(number: int, known: Sequence[int]) -> None:
    """An error where that cycle is not there. Whatever is no cycle of several is the first one."""
    if number in (known or [1]):
        return
    there = f"the files are of cycles {listed(list(known))}" if known else "no process wrote several of these files"
    raise UsageError(f"there is no cycle {number}: {there}; choose another, or leave it out to read all")


# --- which files are cycles of one process


def found(
    ranks: Sequence[Metadata], numbers: Sequence[int | None], recorded: Sequence[Recorded | None], issues: Issues
) -> list[list[int]]:
    """Each process once, in the order of the files: its places in `ranks`. `numbers`: what the traces, or the words of
    their names, say of their rank."""
    alike: dict[object, list[int]] = {}
    for at, (one, number) in enumerate(zip(ranks, numbers, strict=True)):
        when = _when(recorded, at)
        known = _process(one, number, when) if when.pids and one.paths and not one.cycles else None
        alike.setdefault(at if known is None else known, []).append(at)
    groups: list[list[int]] = []
    for places in alike.values():
        groups += _apart(places, ranks, recorded, issues)
    for places in groups:
        if len(places) > 1:
            _note_assumed(places, ranks, numbers, recorded, issues)
    return sorted(groups, key=min)


def _process(one: Metadata, number: int | None, when: Recorded) -> tuple[object, ...]:
    """Returns what is equal in all files of one process and, as far as it is told, in no other's."""
    # Kineto counts all times of a process from one base; other tools begin each file at a zero of its own.
    base = one.origin_utc_ns if one.source == "kineto" else one.clock
    return (one.source, min(when.pids), _host(one), _worker(one), number, one.told.world_size, one.told.run, base)


def _apart(
    places: list[int], ranks: Sequence[Metadata], recorded: Sequence[Recorded | None], issues: Issues
) -> list[list[int]]:
    """One process does not record twice at a time. If files overlap they are of several: of one in each folder, or
    each of its own."""
    timed = sorted(places, key=lambda at: _when(recorded, at)[:2])
    if _follow(timed, recorded):
        return [timed]
    folders: dict[PurePath, list[int]] = {}
    for at in timed:
        folders.setdefault(PurePath(ranks[at].paths[0]).parent, []).append(at)
    if len(folders) > 1 and all(_follow(some, recorded) for some in folders.values()):
        return list(folders.values())
    if _host(ranks[places[0]]) is not None:
        names = listed([PurePath(ranks[at].paths[0]).name for at in places], longest=LONGEST_LINE)
        issues.add("overlapping_cycles", len(places), names)
    return [[at] for at in places]


def _when(recorded: Sequence[Recorded | None], at: int) -> Recorded:
    return (recorded[at] if at < len(recorded) else None) or Recorded(0, 0)


def _follow(places: Sequence[int], recorded: Sequence[Recorded | None]) -> bool:
    return all(_when(recorded, one).end_ns <= _when(recorded, other).begin_ns for one, other in pairwise(places))


def _note_assumed(
    places: Sequence[int],
    ranks: Sequence[Metadata],
    numbers: Sequence[int | None],
    recorded: Sequence[Recorded | None],
    issues: Issues,
) -> None:
    """Where a second process may have had the same number: on another host, or in a later run."""
    first = ranks[places[0]]
    names = listed([PurePath(ranks[at].paths[0]).name for at in places], longest=LONGEST_LINE)
    if _host(first) is None and _worker(first) is None and numbers[places[0]] is None:
        issues.add("assumed_cycles", len(places), f"{names}: no file names its host or rank")
        return
    steps = [when.steps for at in places if (when := _when(recorded, at)).steps is not None]
    if any(one[1] > other[0] for one, other in pairwise(steps)):
        issues.add("assumed_cycles", len(places), f"{names}: numbers of steps begin again")


def _handled(one: Metadata) -> re.Match[str] | None:
    return HANDLED.fullmatch(PurePath(one.paths[0]).name) if len(one.paths) == 1 else None


def _worker(one: Metadata) -> str | None:
    name = _handled(one)
    return name["worker"] if name is not None and name["time"] else None


def _host(one: Metadata) -> str | None:
    """Older torch names it in the name of the file alone: host_pid."""
    if one.host is not None or one.source != "kineto":
        return one.host
    named = re.fullmatch(r"(.+)_[0-9]+", _worker(one) or "")
    return named[1] if named else None


def numbered(groups: Sequence[Sequence[int]], recorded: Sequence[Recorded | None]) -> dict[int, int]:
    """The number of each place's cycle, nothing where no process has several. Ranks with as many cycles have the same;
    of others, and of files that are gone, the numbers of their steps tell which belong together."""
    if all(len(places) == 1 for places in groups):
        return {}
    steps = {at: _when(recorded, at).steps for places in groups for at in places}
    first = {at: when[0] for at, when in steps.items() if when is not None}
    rises = len(first) == len(steps) and all(
        first[one] < first[other] for some in groups for one, other in pairwise(some)
    )
    if len({len(places) for places in groups}) == 1 or not rises:
        return {at: number for places in groups for number, at in enumerate(places, 1)}
    order = sorted(set(first.values()))
    return {at: order.index(first[at]) + 1 for places in groups for at in places}
