"""When devices had nothing to do, and what the host was in meanwhile: `opspan idle`."""

from __future__ import annotations

import polars as pl

from opspan.analysis import Analysis
from opspan.analysis.idle import WHY, before_work_ns, in_functions
from opspan.analysis.lanes import in_lanes
from opspan.analysis.launched import STREAM
from opspan.analysis.parts import Part, Parts
from opspan.views import of_ranges
from opspan.views.answer import Answer, Shown, share, texts, times

BY = (*of_ranges.OF_RANGES, "device", "stream", "gap")
_TITLES = {"host": "Host", "launch": "Launch", "queued": "Queued", "unknown": "Unknown"}
_TIMES = [f"{why}_ns" for why in WHY]
_col = pl.col


def rows_of(analysis: Analysis, by: str = "op") -> pl.DataFrame:
    return rows(parts(analysis, by), by)


@in_lanes
def parts(analysis: Analysis, by: str) -> Parts:
    of_ranges.check(by, BY)
    work = {
        "work": [analysis.tables.work.height],
        "before_work_ns": [before_work_ns(analysis.attributed, analysis.gaps)],
    }
    return {"rows": _part(analysis, by), "work": Part(pl.DataFrame(work), ())}


def rows(parts: Parts, by: str) -> pl.DataFrame:
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


def answer(analysis: Analysis, by: str) -> Answer:
    return answer_of(parts(analysis, by), by)


def answer_of(parts: Parts, by: str) -> Answer:
    table = rows(parts, by)
    whys = [why for why in WHY if table[f"{why}_ns"].sum()]
    if by in ("gap", "device", "stream"):
        keys = STREAM if by == "stream" else STREAM[:3]
        always = {"device": keys, "stream": ("device_id", "stream_id")}.get(by, ())
        several = [name for name in keys if table[name].n_unique() > 1 or name in always]
        titles = dict(zip(STREAM, ("Rank", "Process", "Device", "Context", "Stream"), strict=True))
        names = [Shown(titles[name], name, texts) for name in several]
        names += [Shown("In", "op", texts, is_name=True), Shown("Why", "why", texts)] if by == "gap" else []
    else:
        names = [of_ranges.shown("The host was in", by)]
    counted = [] if by == "gap" else [Shown("Gaps", "gaps", texts, 5)]
    elsewhere = [share("Others busy", "elsewhere_ns", "time_ns", "Idle", 1)] if by == "stream" else []
    shares = [share(_TITLES[why], f"{why}_ns", "time_ns", "Idle", rank) for rank, why in enumerate(whys, start=1)]
    return Answer(
        "idle",
        table,
        (*names, Shown("Idle", "time_ns", times), *elsewhere, *counted, *shares),
        tuple(_notes(parts, table, by)),
    )


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
