"""Defines Rule, which looks for one problem in a run, and Finding, the result. A rule is data, except for its function
`look`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypedDict

import polars as pl

from opspan.analysis.source_lines import SEPARATOR
from opspan.findings.run import Run, ranks_of, top

# The certainty of a finding's cause. certain: the trace proves the cause. likely: the cause fits the figures best.
# possible: other causes are possible, too.
Confidence = Literal["certain", "likely", "possible"]
Severity = Literal["high", "medium", "low", "info"]
# The least share of the run's time for each severity. It is a tenth for "high", because people rewrite a program to
# save a tenth of its time.
SEVERITIES: tuple[tuple[float, Severity], ...] = ((0.1, "high"), (0.03, "medium"), (0.0, "low"))
_RANGES = pl.Schema({"rank": pl.Int32, "pid": pl.Int64, "start_ns": pl.Int64, "end_ns": pl.Int64})
_MOST_RANGES = 10
_MOST_LINES = 3


@dataclass(frozen=True)
class Evidence:
    """The evidence that a rule found. `figures` and `words` are the numbers and texts that the sentence contains. The
    end of a number's name is its unit (_ns, _bytes, _share); a number without a unit is a count. `ops`, `modules`,
    `lines` and `steps` are sorted by their time, the longest first."""

    at_stake_ns: int | None  # how much sooner the run would have ended without the problem; None if unknown
    figures: Mapping[str, int | float] = field(default_factory=dict)
    words: Mapping[str, str] = field(default_factory=dict)
    confidence: Confidence = "likely"
    ops: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()  # lines of the program, such as "model.py:12 forward"
    steps: tuple[str, ...] = ()
    ranks: tuple[int, ...] = ()
    ranges: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=_RANGES))
    command: str = ""  # if given, used in place of the rule's command
    sentence: str = ""  # if given, used in place of the rule's sentence


@dataclass(frozen=True)
class Rule:
    id: str
    title: str  # the problem in a few words
    looks_at: str  # a sentence that says what the rule measures
    threshold: float  # passed to `look`: a share of the run's time unless `because` says otherwise
    because: str  # the reason for the threshold
    sentence: str  # a template; the names in braces are keys of Evidence.figures or Evidence.words
    remedy: str
    command: str  # the command that shows more; FILE stands for the files
    read: str  # the page that explains the problem
    look: Callable[[Run, float], Iterable[Evidence]]
    is_over_ranks: bool = False  # whether the rule compares ranks; other rules look at each process alone
    has_several: bool = False  # whether the rule may give several findings for a run, each about different ops
    needs_time: bool = True  # False: the rule also looks at files that have only samples, and no time of the run
    condition: str = ""  # the time at stake assumes this, and the trace cannot prove it

    def evidence(self, run: Run) -> list[Evidence]:
        """Returns the rule's evidence in the run. Keeps the result because other rules may ask for it."""
        return run.memo(self.id, lambda: self.look(run, self.threshold))


@dataclass(frozen=True)
class Finding:
    rule: Rule
    evidence: Evidence
    share: float | None  # the part of the run's time that is at stake
    total_name: str  # the name of the total that `share` refers to

    @property
    def template(self) -> str:
        return name_totals(self.evidence.sentence or self.rule.sentence)

    @property
    def severity(self) -> Severity:
        share = self.share
        return "info" if share is None else next(name for least, name in SEVERITIES if share >= least)


def name_totals(sentence: str) -> str:
    """Adds the name of the total after each share that is alone in brackets, such as ({ns_share}). For other shares,
    the sentence itself names the total."""
    return re.sub(r"\(\{(\w*_share)\}\)", r"({\1} of {total})", sentence)


def ranges_of(rows: pl.DataFrame, once: str | None = None) -> pl.DataFrame:
    """Returns rank, pid, start_ns and end_ns of the longest rows, in order of time. Rows with the same number in the
    column `once` count as one row."""
    longest = rows.with_columns(ns=pl.col("end_ns") - pl.col("start_ns"))
    # Drop shorter rows first, because sorting a million rows to find a few takes long.
    ns = longest["ns"]
    if once is not None and longest.height:
        count = int(rows[once].max()) + 1  # type: ignore[arg-type]  # a number
        ns = pl.Series([None], dtype=ns.dtype).new_from_index(0, count).scatter(rows[once], ns)
    least = pl.lit(ns.top_k(_MOST_RANGES).min(), dtype=pl.Int64)  # `least` is null if no time is known
    longest = longest.filter((pl.col("ns") >= least).fill_null(value=True))
    if once is not None:
        longest = longest.unique(once, keep="first", maintain_order=True)
    longest = longest.sort("ns", descending=True, maintain_order=True).head(_MOST_RANGES)
    return longest.select(_RANGES.names()).cast(_RANGES).sort("start_ns")


def median(rows: pl.DataFrame, column: str) -> int:
    return int(rows[column].median() or 0)  # type: ignore[arg-type]  # a number


class Places(TypedDict):
    ops: tuple[str, ...]
    modules: tuple[str, ...]
    lines: tuple[str, ...]
    steps: tuple[str, ...]
    ranks: tuple[int, ...]
    ranges: pl.DataFrame


def place_of(rows: pl.DataFrame, column: str, once: str | None = None) -> Places:
    """Returns where the rows are: the ops, modules, lines and steps with the largest sums of `column` (if `rows` has
    these columns), the ranks, and the longest rows (see ranges_of). A row with several lines counts for each line."""
    names = ("op", "module", "step", "lines")
    ops, modules, steps, texts = (top(rows, column, name) if name in rows.columns else () for name in names)
    lines = dict.fromkeys(line for text in texts for line in text.split(SEPARATOR))
    return Places(
        ops=ops,
        modules=modules,
        lines=tuple(lines)[:_MOST_LINES],
        steps=steps,
        ranks=ranks_of(rows),
        ranges=ranges_of(rows, once),
    )
