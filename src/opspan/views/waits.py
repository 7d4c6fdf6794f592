"""The waits of the host, and the reasons for them: `opspan waits`."""

from __future__ import annotations

import polars as pl

from opspan.analysis import Analysis
from opspan.analysis.lanes import in_lanes
from opspan.analysis.parts import Part, Parts
from opspan.analysis.waits import WHY
from opspan.questions import Options, Question
from opspan.views import of_ranges
from opspan.views.answer import Answer
from opspan.views.fields import IN, REASON, Field, share, shares_of_kinds

_CALL = (Field("call", "Call", "name"), IN)
_WAITED = Field("wait_ns", "Waited", "ns")
_BUSY = share("busy_ns", "Device busy", "wait_ns", "Waited", 1)
_WAITS = Field("count", "Waits", "count", rank=5)
_REASONS = {why.replace(" ", "_"): why for why in WHY.categories}  # prefix of a column's name -> the reason for waiting
_col = pl.col


def rows(parts: Parts, options: Options) -> pl.DataFrame:
    return parts["rows"].rows.sort("wait_ns", descending=True, nulls_last=options.by == "call", maintain_order=True)


@in_lanes
def parts(analysis: Analysis, options: Options) -> Parts:
    trace, by = analysis.complete, options.by
    rows = analysis.waits.with_columns(why=_col("why").cast(pl.String))
    if by == "call":
        op = of_ranges.names(analysis, "op", rows["range"]).cast(pl.String)
        rows = rows.with_columns(trace.calls["name"].cast(pl.String).gather(rows["call"]).alias("call"), op.alias("op"))
        rows = rows.select("rank", "pid", "tid", "start_ns", "call", "op", "why", "wait_ns", "busy_ns")
        return {"rows": Part(rows, times=("start_ns",))}
    if by != "why":
        rows = rows.with_columns(of_ranges.names(analysis, by, rows["range"]).cast(pl.String))
    reasons = {} if by == "why" else _REASONS
    sums = rows.group_by(by, maintain_order=True).agg(
        count=pl.len().cast(pl.Int64),
        wait_ns=_col("wait_ns").sum(),
        busy_ns=pl.when(_col("busy_ns").count() > 0).then(_col("busy_ns").sum()),
        **{f"{name}_ns": _col("wait_ns").filter(_col("why") == why).sum() for name, why in reasons.items()},
    )
    return {"rows": Part(sums, (by,))}


def answer(parts: Parts, options: Options) -> Answer:
    table, by = rows(parts, options), options.by
    if by == "call":
        names = [*_CALL, REASON]
    else:
        names = [REASON if by == "why" else of_ranges.field("The host was in", by)]
    counted = [] if by == "call" else [_WAITS]
    titles = {} if by in ("why", "call") else {name: why.capitalize() for name, why in _REASONS.items()}
    fields = (*names, _WAITED, _BUSY, *counted, *shares_of_kinds(titles, table, "wait_ns", "Waited"))
    notes = [] if table.height else ["No call of this trace is one in which the host waits"]
    return Answer("waits", table, fields, tuple(notes))


QUESTION = Question("waits", parts, rows, answer)
