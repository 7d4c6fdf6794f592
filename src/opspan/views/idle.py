"""When devices had nothing to do, and what the host was in meanwhile: `opspan idle`."""

from __future__ import annotations

import polars as pl

from opspan.analysis import Analysed
from opspan.analysis.idle import WHY, in_functions
from opspan.analysis.launched import STREAM
from opspan.views import of_ranges
from opspan.views.answer import Answer, Shown, shares_of, texts, times

BY = (*of_ranges.OF_RANGES, "device", "stream", "gap")
_TITLES = {"host": "Host", "launch": "Launch", "queued": "Queued", "unknown": "Unknown"}
_TIMES = [f"{why}_ns" for why in WHY]
_col = pl.col


def rows_of(found: Analysed, by: str = "op") -> pl.DataFrame:
    of_ranges.check(by, BY)
    if by == "gap":
        return _of_gaps(found)
    if by == "stream":
        rows = found.stream_gaps.group_by(STREAM, maintain_order=True).agg(
            time_ns=(_col("end_ns") - _col("start_ns")).sum(),
            gaps=pl.len(),
            **{name: _col(name).sum() for name in (*_TIMES, "elsewhere_ns")},
        )
        return rows.sort("time_ns", descending=True, maintain_order=True)
    key = ["rank", "pid", "device_id"] if by == "device" else [by]
    pieces = found.idle if by != "function" else in_functions(found.attributed, found.gaps)
    if by == "device":
        pieces = pieces.with_columns(found.gaps[name].gather(pieces["gap"]) for name in key)
    elif by == "function":
        pieces = pieces.with_columns(found.tables.functions["name"].gather(pieces["function"]).alias(by))
    else:
        pieces = pieces.with_columns(of_ranges.names(found, by, pieces["range"]))
    rows = pieces.group_by(key, maintain_order=True).agg(
        time_ns=_col("ns").sum(),
        gaps=_col("gap").n_unique(),
        **{f"{why}_ns": _col("ns").filter(_col("why") == why).sum() for why in WHY},
    )
    if by != "device":
        rows = rows.with_columns(_col(by).cast(pl.String))
    return rows.sort("time_ns", descending=True, maintain_order=True)


def _of_gaps(found: Analysed) -> pl.DataFrame:
    """The longest first, each with the op that most of it was in."""
    pieces = found.idle.sort("ns", descending=True, maintain_order=True)
    most = pieces.unique("gap", keep="first", maintain_order=True)
    most = most.select("gap", op=of_ranges.names(found, "op", most["range"]).cast(pl.String))
    rows = found.gaps.with_row_index("gap").join(most, on="gap", how="left", maintain_order="left")
    rows = rows.with_columns(time_ns=_col("end_ns") - _col("start_ns"))
    rows = rows.select(
        "rank", "pid", "device_id", "start_ns", "end_ns", "time_ns", _col("why").cast(pl.String), "op", *_TIMES
    )
    return rows.sort("time_ns", descending=True, maintain_order=True)


def answer(found: Analysed, by: str) -> Answer:
    rows = rows_of(found, by)
    whys = [why for why in WHY if rows[f"{why}_ns"].sum()]
    if by in ("gap", "device", "stream"):
        keys = STREAM if by == "stream" else STREAM[:3]
        always = {"device": keys, "stream": ("device_id", "stream_id")}.get(by, ())
        several = [name for name in keys if rows[name].n_unique() > 1 or name in always]
        titles = dict(zip(STREAM, ("Rank", "Process", "Device", "Context", "Stream"), strict=True))
        names = [Shown(titles[name], name, texts) for name in several]
        names += [Shown("In", "op", texts, is_name=True), Shown("Why", "why", texts)] if by == "gap" else []
    else:
        names = [of_ranges.shown("The host was in", by)]
    counted = [] if by == "gap" else [Shown("Gaps", "gaps", texts, 5)]
    elsewhere = [Shown("Others busy", "elsewhere_ns", shares_of("time_ns"), 1)] if by == "stream" else []
    shares = [Shown(_TITLES[why], f"{why}_ns", shares_of("time_ns"), rank) for rank, why in enumerate(whys, start=1)]
    return Answer(
        "idle",
        rows,
        (*names, Shown("Idle", "time_ns", times), *elsewhere, *counted, *shares),
        tuple(_notes(found, rows, by)),
    )


def _notes(found: Analysed, rows: pl.DataFrame, by: str) -> list[str]:
    if not found.tables.work.height:
        return ["Nothing ran on a device in this trace, so none was idle"]
    total = int(rows["time_ns"].sum()) / 1e6
    parts_said = [
        f"{int(rows[f'{why}_ns'].sum()) / 1e6:.3f} ms {said}"
        for why, said in (
            ("host", "until the host launched"),
            ("launch", "in launches"),
            ("queued", "though it was launched"),
            ("unknown", "for reasons that are not in the trace"),
        )
        if rows[f"{why}_ns"].sum()
    ]
    return (
        [f"{'Streams' if by == 'stream' else 'Devices'} were idle for {total:.3f} ms: {', '.join(parts_said)}"]
        if parts_said
        else []
    )
