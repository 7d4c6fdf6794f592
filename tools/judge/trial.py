"""Trials of opspan's findings. The truth about each run is known, so a trial can tell whether the findings are right.

A plant is a fault that is put into a run. A trial comes from a simulated run (simulated.py) or from a real program
(programs.py). Both kinds of trials are measured in the same way.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import polars as pl

FIRST = 3  # only this number of findings count, because people read only the first findings
LEAST = 0.03  # opspan must name a plant that costs at least this share of the run
WITHIN, OF_RUN = 0.15, 0.01  # the allowed error of the time at stake, as shares of that time and of the run

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Trial:
    """The findings about a run with a plant, and the truth about this run."""

    kind: str
    seed: int
    findings: pl.DataFrame  # from opspan.load(...).findings()
    run_ns: int
    saved_ns: int  # how much sooner the same run ended without the planted fault
    rules: frozenset[str]  # a finding of any of these rules names the cause

    # The place that the finding should name. For "op", "module", "function" and "step" it is a name, or a tuple of
    # names, of which one is enough. For "ranks" it is a list of numbers.
    place: Mapping[str, Any] = field(default_factory=dict)
    has_time: bool = True  # if False, opspan cannot know what the plant costs, and must name even a cheap plant
    command: str = ""  # the command that repeats this trial
    condition_ns: int | None = None  # if the rules have a condition, the time that the run saves by meeting it

    @property
    def at_stake_ns(self) -> int:
        """The time that a finding should state if it names the cause."""
        return self.saved_ns if self.condition_ns is None else self.condition_ns

    @property
    def counts(self) -> bool:
        return not self.has_time or self.saved_ns >= LEAST * self.run_ns

    @property
    def row(self) -> Row | None:
        """The finding that names the cause. If `has_time` is true, it must be one of the first three that state a time.

        If a rule has several findings about different places, the finding about the place of the plant counts.
        """
        rows = self.findings.filter(pl.col("at_stake_ns").is_not_null()) if self.has_time else self.findings
        first = rows.head(FIRST).rows(named=True) if self.has_time else rows.rows(named=True)
        rows = [row for row in first if row["id"] in self.rules]
        return next((row for row in rows if not self._unplaced(row)), rows[0] if rows else None)

    @property
    def is_timed(self) -> bool | None:
        """Whether the stated time at stake is right. The value is None if no finding names the plant, or if `has_time`
        is false."""
        row = self.row
        if row is None or not self.has_time:
            return None
        return abs(row["at_stake_ns"] - self.at_stake_ns) <= max(WITHIN * self.at_stake_ns, OF_RUN * self.run_ns)

    @property
    def unplaced(self) -> list[str]:
        """The parts of the place that the finding does not name."""
        return [] if self.row is None else self._unplaced(self.row)

    def _unplaced(self, row: Row) -> list[str]:
        return [what for what, name in self.place.items() if not _is_named(row, what, name)]


def _is_named(row: Row, what: str, name: Any) -> bool:
    sentence = row["sentence"]
    if what == "ranks":
        in_sentence = all(re.search(rf"\branks? [\d, and]*\b{rank}\b", sentence) for rank in name)
        return list(row["ranks"]) == list(name) or in_sentence
    names = row[{"op": "ops", "function": "ops"}.get(what, f"{what}s")]
    more = row.get("functions") or ()
    either = name if isinstance(name, tuple) else (name,)
    return any(some in text for some in either for text in (sentence, *map(str, names), *map(str, more)))


@dataclass(frozen=True)
class FalseFinding:
    """A finding about a run without a plant. Its cause costs less than half of the time that the finding states."""

    seed: int
    rule: str
    stated_ns: int
    saves_ns: int | None  # None if the saved time is not known
    run_ns: int
    sentence: str
    command: str


@dataclass(frozen=True)
class WhatIf:
    """A what-if question, with opspan's answer and the truth. Both are changes of the run's time, as shares of that
    time."""

    seed: int
    question: str
    answer: float | None  # None if opspan says that it cannot know
    truth: float
    command: str

    @property
    def is_right(self) -> bool:
        return self.answer is None or abs(self.answer - self.truth) <= 0.03
