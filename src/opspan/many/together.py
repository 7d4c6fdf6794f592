"""Adds up the answers of a run's files, in the order of the files: metadata, coverage, and the partial results.

Numbers the ranks, and converts times to the clock of the first rank, as `opspan.load` does with traces. Adds issues
about the whole run, because only this module knows the metadata of all ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeVar

import polars as pl

from opspan.analysis import Coverage
from opspan.analysis.clocks import align
from opspan.analysis.coverage import together as coverage_of
from opspan.analysis.lanes import as_ranks
from opspan.analysis.parts import COLLECTIVES, Part, Parts, move, shift_times, together
from opspan.many.task import FileAnswer, FileFailure
from opspan.tables import Metadata, Tables
from opspan.tables.cycles import Lane, RecordingSpan, check
from opspan.tables.ranks import decided
from opspan.tables.tables import clock_shift_ns, on_one_clock, renumbered

T = TypeVar("T")

_FOLDED = 32  # the number of data frames to join into one, because many small frames take much memory


class Whole(NamedTuple):
    tables: Tables  # the metadata and issues of all files; the other tables are empty
    paths: list[tuple[str, ...]]  # the files of each rank; a rank with several cycles has several files
    coverage: Coverage


class AnswerSum:
    """The sum of the answers so far. Until all answers are there, a rank's number is its position among the ranks of
    all files. Then ranks get their final numbers."""

    def __init__(self, questions: int, skipped: int) -> None:
        self.count = 0
        self._skipped = skipped
        self._ranks: list[tuple[Metadata, ...]] = []  # the ranks of each file
        self._recorded: list[RecordingSpan | None] = []
        self._issues: list[pl.DataFrame] = []
        self._paths: list[str] = []
        self._coverage: list[Coverage] = []
        self._collectives: list[Part] = []
        self._parts: list[dict[str, list[Part]]] = [{} for _ in range(questions)]

    def add(self, one: FileAnswer) -> None:
        before = len(self._paths)
        self.count += 1
        self._ranks.append(one.ranks)
        self._recorded += one.recorded
        self._paths += [one.path] * len(one.ranks)
        self._coverage = [coverage_of([*self._coverage, one.coverage])]
        numbers = {rank.rank: before + at for at, rank in enumerate(one.ranks)}
        _fold(self._issues, one.issues.with_columns(renumbered(numbers)), pl.concat)
        shift_ns = clock_shift_ns(one.ranks[0], self._ranks[0][0]) or 0
        if one.collectives is not None:
            _fold(self._collectives, move(one.collectives, numbers, shift_ns), together)
        for collected, parts in zip(self._parts, one.parts, strict=True):
            for name, part in parts.items():
                _fold(collected.setdefault(name, []), move(part, numbers, shift_ns), together)

    @property
    def recorded(self) -> list[tuple[Metadata, RecordingSpan | None]]:
        """For each rank, its metadata, and which process recorded it and when."""
        return list(zip((rank for ranks in self._ranks for rank in ranks), self._recorded, strict=True))

    def of_cycle(self, number: int) -> set[str]:
        """Returns the files with this cycle of a rank, and the files that have no cycles."""
        ranks, _ = decided([rank for ranks in self._ranks for rank in ranks], self._recorded)
        check(number, sorted({rank.cycle for rank in ranks if rank.cycle is not None}))
        return {path for path, rank in zip(self._paths, ranks, strict=True) if rank.cycle in (None, number)}

    def whole(self, failed: Sequence[FileFailure]) -> tuple[Whole, list[Parts]]:
        """Returns what is known about all files together, and, for each question, the partial results of its answer."""
        numbered, issues = decided([rank for ranks in self._ranks for rank in ranks], self._recorded)
        ranks, _ = on_one_clock(self._ranks, numbered, issues)
        for one in failed:
            issues.add("unreadable_file", detail=one.message)
        if self._skipped:
            issues.add("no_traces", self._skipped)
        numbers = {at: rank.rank for at, rank in enumerate(numbered)}
        lanes = {at: Lane(rank.rank, rank.cycle) for at, rank in enumerate(numbered)}
        all_issues = pl.concat([pl.concat(self._issues).with_columns(renumbered(numbers)), issues.frame()])
        answers = [as_ranks({name: together(parts) for name, parts in one.items()}, lanes) for one in self._parts]

        def collectives() -> pl.DataFrame:
            there = [parts[COLLECTIVES] for parts in answers if COLLECTIVES in parts]
            there = there or [as_ranks({COLLECTIVES: together(self._collectives)}, lanes)[COLLECTIVES]]
            return there[0].rows

        if aligned := align(ranks, all_issues, collectives):
            ranks, all_issues, shifts = aligned
            answers = [{name: shift_times(part, shifts) for name, part in parts.items()} for parts in answers]
        return Whole(Tables(ranks, issues=all_issues), self._of_ranks(numbers), self._coverage[0]), answers

    def _of_ranks(self, numbers: Mapping[int, int]) -> list[tuple[str, ...]]:
        paths: dict[int, list[str]] = {}
        for at, path in enumerate(self._paths):
            paths.setdefault(numbers[at], []).append(path)
        return [tuple(of_rank) for of_rank in paths.values()]


def _fold(parts: list[T], part: T, together: Callable[[list[T]], T]) -> None:
    parts.append(part)
    if len(parts) == _FOLDED:
        parts[:] = [together(parts)]
