"""A rule, and what one says of a run: both are data; only `look` is code."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypedDict

import polars as pl

from opspan.findings.run import Run, ranks_of, top

# How sure a finding is of its cause: the trace says it; the figures fit and little else does; one of several causes.
Confidence = Literal["certain", "likely", "possible"]
Severity = Literal["high", "medium", "low", "info"]
# From which share of the run's time on a finding is of a severity: a tenth is what people begin to rewrite for.
SEVERITIES: tuple[tuple[float, Severity], ...] = ((0.1, "high"), (0.03, "medium"), (0.0, "low"))
_RANGES = pl.Schema({"rank": pl.Int32, "pid": pl.Int64, "start_ns": pl.Int64, "end_ns": pl.Int64})
_MOST_RANGES = 10


@dataclass(frozen=True)
class Evidence:
    """What a rule found. `figures`: what it rests on; names end in what they are: _ns, _bytes, _share, or are counts.
    `words`: names for the sentence. The first of the names (ops, ...) have most of the time."""

    at_stake_ns: int | None  # of a process; None: it has no time, for the trace cannot answer
    figures: Mapping[str, int | float] = field(default_factory=dict)
    words: Mapping[str, str] = field(default_factory=dict)
    confidence: Confidence = "likely"
    ops: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    steps: tuple[str, ...] = ()
    ranks: tuple[int, ...] = ()
    ranges: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=_RANGES))
    command: str = ""  # instead of the rule's
    sentence: str = ""  # instead of the rule's


@dataclass(frozen=True)
class Rule:
    id: str
    title: str  # in a few words
    looks_at: str  # what is measured, in a sentence
    threshold: float  # what `look` compares with: a share of the run's time unless `because` says otherwise
    because: str  # why the threshold is what it is
    sentence: str  # with the names of figures and words in braces
    remedy: str
    command: str  # where to look next; FILE stands for the files
    read: str  # where to read on
    look: Callable[[Run, float], Iterable[Evidence]]
    is_over_ranks: bool = False  # it compares ranks; the others look at each process for itself
    has_several: bool = False  # it may say several things of a run, each of other ops
    condition: str = ""  # under which the time at stake is what it is, where the trace cannot say what would be instead

    def evidence(self, run: Run) -> list[Evidence]:
        """Returns what it finds in the run. That is looked for once: another rule may ask, too."""
        return run.once(self.id, lambda: self.look(run, self.threshold))


@dataclass(frozen=True)
class Finding:
    rule: Rule
    evidence: Evidence
    share: float | None  # of the run's time that is at stake
    whole: str  # what that is a share of, in words

    @property
    def template(self) -> str:
        return shares_said(self.evidence.sentence or self.rule.sentence)

    @property
    def severity(self) -> Severity:
        share = self.share
        return "info" if share is None else next(name for least, name in SEVERITIES if share >= least)


def shares_said(sentence: str) -> str:
    """A share that stands in brackets alone is one of the run's time; of what other shares are, their sentence says."""
    return re.sub(r"\(\{(\w*_share)\}\)", r"({\1} of {whole})", sentence)


def ranges_of(rows: pl.DataFrame, once: str | None = None) -> pl.DataFrame:
    """The longest of some rows with rank, pid, start_ns and end_ns, in order of time. `once`: a column of numbers; rows
    of the same number are of one range."""
    longest = rows.with_columns(ns=pl.col("end_ns") - pl.col("start_ns"))
    # First those that may be among them: sorting a million rows for a few takes long.
    ns = longest["ns"]
    if once is not None and longest.height:
        count = int(rows[once].max()) + 1  # type: ignore[arg-type]  # a number
        ns = pl.Series([None], dtype=ns.dtype).new_from_index(0, count).scatter(rows[once], ns)
    least = pl.lit(ns.top_k(_MOST_RANGES).min(), dtype=pl.Int64)  # null where no time is known
    longest = longest.filter((pl.col("ns") >= least).fill_null(value=True))
    if once is not None:
        longest = longest.unique(once, keep="first", maintain_order=True)
    longest = longest.sort("ns", descending=True, maintain_order=True).head(_MOST_RANGES)
    return longest.select(_RANGES.names()).cast(_RANGES).sort("start_ns")


class Where(TypedDict):
    ops: tuple[str, ...]
    modules: tuple[str, ...]
    steps: tuple[str, ...]
    ranks: tuple[int, ...]
    ranges: pl.DataFrame


def where(rows: pl.DataFrame, column: str) -> Where:
    """Where rows lie: who has most of a column, by op, module and step; the ranks, and the longest of the rows."""
    return {
        "ops": top(rows, column, "op"),
        "modules": top(rows, column, "module"),
        "steps": top(rows, column, "step"),
        "ranks": ranks_of(rows),
        "ranges": ranges_of(rows),
    }
