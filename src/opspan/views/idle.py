"""When devices had nothing to do, and what the host was in meanwhile: `opspan idle`."""

from __future__ import annotations

import polars as pl

from opspan.analysis import Analysis
from opspan.analysis.idle import WHY, before_work_ns, in_functions
from opspan.analysis.lanes import in_lanes
from opspan.analysis.launched import STREAM
from opspan.analysis.parts import Part, Parts
from opspan.questions import Options, Question
from opspan.views import of_ranges
from opspan.views.answer import Answer
from opspan.views.fields import IN, PLACES, REASON, Field, share, shares_of_kinds, that_differ

_GAP = (IN, REASON)
_IDLE = Field("time_ns", "Idle", "ns")
_GAPS = Field("gaps", "Gaps", "count", rank=5)
_ELSEWHERE = share("elsewhere_ns", "Others busy", "time_ns", "Idle", 1)
_WHY = {"host": "Host", "launch": "Launch", "queued": "Queued", "unknown": "Unknown"}
_TIMES = [f"{why}_ns" for why in WHY]
_col = pl.col


@in_lanes
def parts(analysis: Analysis, options: Options) -> Parts:
    work = {
        "work": [analysis.tables.work.height],
        "before_work_ns": [before_work_ns(analysis.attributed, analysis.gaps)],
    }
    return {"rows": _part(analysis, options.by), "work": Part(pl.DataFrame(work), ())}


def rows(parts: Parts, options: Options) -> pl.DataFrame:
    return parts["rows"].rows.sort("time_ns", descending=True, maintain_order=True)


def _part(analysis: Analysis, by: str) -> Part:
    if by == "gap":
        return Part(_of_gaps(analysis), times=("start_ns", "end_ns"))
    if by == "stream":
        sums = analysis.stream_gaps.group_by(STREAM, maintain_order=True).agg(
            time_ns=(_col("end_ns") - _col("start_ns")).sum(),
            gaps=pl.len().cast(pl.Int64),
            **{name: _col(name).sum() for name in (*_TIMES, "elsewhere_ns")},
        )
        return Part(sums, STREAM)
    key = ("rank", "pid", "device_id") if by == "device" else (by,)
    pieces = analysis.idle if by != "function" else in_functions(analysis.attributed, analysis.gaps)
    if by == "device":
        pieces = pieces.with_columns(analysis.gaps[name].gather(pieces["gap"]) for name in key)
    elif by == "function":
        pieces = pieces.with_columns(analysis.tables.functions["name"].gather(pieces["function"]).alias(by))
    else:
        pieces = pieces.with_columns(of_ranges.names(analysis, by, pieces["range"]))
    each = {f"{why}_ns": pl.when(_col("why") == why).then("ns").otherwise(0) for why in WHY}
    sums = (
        pieces.with_columns(**each)
        .group_by(key, maintain_order=True)
        .agg(_col("ns").sum().alias("time_ns"), _col("gap").n_unique().cast(pl.Int64).alias("gaps"), _col(*each).sum())
    )
    return Part(sums if by == "device" else sums.with_columns(_col(by).cast(pl.String)), key)


def _of_gaps(analysis: Analysis) -> pl.DataFrame:
    """The longest first, each with the op that most of it was in."""
    pieces = analysis.idle.sort("ns", descending=True, maintain_order=True)
    most = pieces.unique("gap", keep="first", maintain_order=True)
    most = most.select("gap", op=of_ranges.names(analysis, "op", most["range"]).cast(pl.String))
    rows = analysis.gaps.with_row_index("gap").join(most, on="gap", how="left", maintain_order="left")
    rows = rows.with_columns(time_ns=_col("end_ns") - _col("start_ns"))
    return rows.select(
        "rank", "pid", "device_id", "start_ns", "end_ns", "time_ns", _col("why").cast(pl.String), "op", *_TIMES
    )


def answer(parts: Parts, options: Options) -> Answer:
    table, by = rows(parts, options), options.by
    if by in ("gap", "device", "stream"):
        always = {"device": STREAM[:3], "stream": ("device_id", "stream_id")}.get(by, ())
        names = that_differ(PLACES, table, always) + list(_GAP if by == "gap" else ())
    else:
        names = [of_ranges.field("The host was in", by)]
    elsewhere = [_ELSEWHERE] if by == "stream" else []
    counted = [] if by == "gap" else [_GAPS]
    shares = shares_of_kinds(_WHY, table, "time_ns", "Idle")
    return Answer("idle", table, (*names, _IDLE, *elsewhere, *counted, *shares), tuple(_notes(parts, table, by)))


def _notes(parts: Parts, rows: pl.DataFrame, by: str) -> list[str]:
    if not parts["work"].rows["work"][0]:
        return ["Nothing ran on a device in this trace, so none was idle"]
    total = int(rows["time_ns"].sum()) / 1e6
    parts_said = [
        f"{int(rows[f'{why}_ns'].sum()) / 1e6:.3f} ms {said}"
        for why, said in (
            ("host", "until the host launched"),
            ("launch", "in launches"),
            ("queued", "though it was launched"),
            ("unknown", "for unknown reasons"),
        )
        if rows[f"{why}_ns"].sum()
    ]
    if not parts_said:
        return []
    before = int(parts["work"].rows["before_work_ns"][0]) / 1e6
    said = [f"Of that {before:.3f} ms were before the first work of each device"] if before and by != "stream" else []
    return [
        f"{'Streams' if by == 'stream' else 'Devices'} were idle for {total:.3f} ms: {', '.join(parts_said)}",
        *said,
    ]


QUESTION = Question("idle", parts, rows, answer)
