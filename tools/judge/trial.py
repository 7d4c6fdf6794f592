"""One run with a known truth, and what opspan said of it: what is right, and what is not.

A trial may come from a simulated run (simulated.py) or from a real program (programs.py); the measures are the same.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import polars as pl

FIRST = 3  # findings: what people read
LEAST = 0.03  # of the run: a plant that costs less need not be named
WITHIN, OF_RUN = 0.15, 0.01  # how far time at stake may be off: of what the plant cost, or of the run

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Trial:
    """What opspan said of a run with a plant, and what is true of it."""

    kind: str
    seed: int
    said: pl.DataFrame  # what opspan.load(...).findings() gives
    run_ns: int
    saved_ns: int  # how much sooner the run without the plant ended
    rules: frozenset[str]  # any of these names the cause
    place: Mapping[str, Any] = field(
        default_factory=dict
    )  # op, module, function, step: a name, or several; ranks: numbers
    has_time: bool = True  # else it has to be named whatever it costs
    command: str = ""  # shows it
    condition_ns: int | None = None  # where the rules state what a condition saves: how much sooner that run ended

    @property
    def at_stake_ns(self) -> int:
        """What a finding that names the cause should state."""
        return self.saved_ns if self.condition_ns is None else self.condition_ns

    @property
    def counts(self) -> bool:
        return not self.has_time or self.saved_ns >= LEAST * self.run_ns

    @property
    def row(self) -> Row | None:
        """The first finding that names the cause, if it is among the first three. A rule may say several things of a
        run, each of another place: then the one of the plant's."""
        rows = self.said.filter(pl.col("at_stake_ns").is_not_null()) if self.has_time else self.said
        first = rows.head(FIRST).rows(named=True) if self.has_time else rows.rows(named=True)
        rows = [row for row in first if row["id"] in self.rules]
        return next((row for row in rows if not self._unplaced(row)), rows[0] if rows else None)

    @property
    def is_timed(self) -> bool | None:
        """Whether its time at stake is right; None: nothing named it, or it has none."""
        row = self.row
        if row is None or not self.has_time:
            return None
        return abs(row["at_stake_ns"] - self.at_stake_ns) <= max(WITHIN * self.at_stake_ns, OF_RUN * self.run_ns)

    @property
    def unplaced(self) -> list[str]:
        """What of its place is not named."""
        return [] if self.row is None else self._unplaced(self.row)

    def _unplaced(self, row: Row) -> list[str]:
        return [what for what, name in self.place.items() if not _is_named(row, what, name)]


def _is_named(row: Row, what: str, name: Any) -> bool:
    sentence = row["sentence"]
    if what == "ranks":
        said = all(re.search(rf"\branks? [\d, and]*\b{rank}\b", sentence) for rank in name)
        return list(row["ranks"]) == list(name) or said
    names = row[{"op": "ops", "function": "ops"}.get(what, f"{what}s")]
    more = row.get("functions") or ()
    either = name if isinstance(name, tuple) else (name,)
    return any(some in text for some in either for text in (sentence, *map(str, names), *map(str, more)))


@dataclass(frozen=True)
class FalseFinding:
    """A finding of a run without a plant, whose cause would save less than half of what it states."""

    seed: int
    rule: str
    stated_ns: int
    saves_ns: int | None  # None: nobody knows
    run_ns: int
    sentence: str
    command: str


@dataclass(frozen=True)
class WhatIf:
    seed: int
    asked: str
    said: float | None  # how the time of the run would change, as a share; None: opspan says that it cannot know
    truth: float
    command: str

    @property
    def is_right(self) -> bool:
        return self.said is None or abs(self.said - self.truth) <= 0.03
