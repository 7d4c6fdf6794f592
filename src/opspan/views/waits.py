"""What the host waited for: `opspan waits`."""

from __future__ import annotations

import polars as pl

from opspan.analysis import Analysis
from opspan.analysis.lanes import in_lanes
from opspan.analysis.parts import Part, Parts
from opspan.analysis.waits import WHY
from opspan.views import of_ranges
from opspan.views.answer import Answer, Shown, share, texts, times

BY = (*of_ranges.OF_RANGES, "why", "call")
REASONS = tuple(WHY.categories)
_col = pl.col


def rows_of(analysis: Analysis, by: str = "op") -> pl.DataFrame:
    return rows(parts(analysis, by), by)


@in_lanes
def parts(analysis: Analysis, by: str) -> Parts:
    of_ranges.check(by, BY)
    return {"rows": _part(analysis, by)}


def rows(parts: Parts, by: str) -> pl.DataFrame:
    return parts["rows"].rows.sort("wait_ns", descending=True, nulls_last=by == "call", maintain_order=True)


def _part(analysis: Analysis, by: str) -> Part:
    trace = analysis.complete
    rows = analysis.waits.with_columns(why=_col("why").cast(pl.String))
    if by == "call":
        op = of_ranges.names(analysis, "op", rows["range"]).cast(pl.String)
        rows = rows.with_columns(trace.calls["name"].cast(pl.String).gather(rows["call"]).alias("call"), op.alias("op"))
        each = rows.select("rank", "pid", "tid", "start_ns", "call", "op", "why", "wait_ns", "busy_ns")
        return Part(each, times=("start_ns",))
    if by != "why":
        rows = rows.with_columns(of_ranges.names(analysis, by, rows["range"]).cast(pl.String))
    sums = rows.group_by(by, maintain_order=True).agg(
        count=pl.len().cast(pl.Int64), wait_ns=_col("wait_ns").sum(), busy_ns=_col("busy_ns").sum(), **_by_reason(by)
    )
    return Part(sums, (by,))


def _by_reason(by: str) -> dict[str, pl.Expr]:
    if by == "why":
        return {}
    return {_column(why): _col("wait_ns").filter(_col("why") == why).sum() for why in REASONS}


def _column(why: str) -> str:
    return f"{why.replace(' ', '_')}_ns"


def answer(analysis: Analysis, by: str) -> Answer:
    return answer_of(parts(analysis, by), by)


def answer_of(parts: Parts, by: str) -> Answer:
    table = rows(parts, by)
    if by == "call":
        first = [Shown("Call", "call", texts, is_name=True), Shown("In", "op", texts, is_name=True)]
        first.append(Shown("Why", "why", texts))
    else:
        first = [of_ranges.shown("The host was in", by) if by != "why" else Shown("Why", "why", texts)]
    counted = [] if by == "call" else [Shown("Waits", "count", texts, 5)]
    reasons = [why for why in REASONS if by not in ("why", "call") and table[_column(why)].sum()]
    shares = [
        share(why.capitalize(), _column(why), "wait_ns", "Waited", rank) for rank, why in enumerate(reasons, start=1)
    ]
    busy = share("Device busy", "busy_ns", "wait_ns", "Waited", 1)
    shown = (*first, Shown("Waited", "wait_ns", times), busy, *counted, *shares)
    notes = [] if table.height else ["No call of this trace is one in which the host waits"]
    return Answer("waits", table, shown, tuple(notes))
