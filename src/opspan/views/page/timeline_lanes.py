"""The lanes of the timeline, and what is drawn on each: ranges, calls and functions on those of their thread, work on
those of its stream, gaps on those of their device.

    lanes_of(found) -> Lanes
        shapes   a row for each row of the tables that has a start: table, row, lane, start_ns (from the begin of the
                 trace), length_ns, name, kind (a colour of src/page/colors.ts), form
        lanes    lane, group, table, rank, and title and what it shows
        groups   processes and devices: group, title
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from opspan.analysis import Analysed
from opspan.analysis.busy import busy_with
from opspan.analysis.nest import is_one, trace_end_ns
from opspan.analysis.spans import difference
from opspan.tables import Tables
from opspan.views.names import device_name, device_names, process_names, stream_name, thread_names

_col = pl.col
TABLES = ("functions", "ranges", "calls", "gaps", "work")  # in the order in which they stand below each other
TABLE = pl.Enum(TABLES)
_SHOWS = {
    "functions": "Python functions",
    "ranges": "ops and ranges",
    "calls": "API calls",
    "gaps": "idle",
    "work": "work",
}
KINDS = (
    *("forward", "backward", "optimizer", "ops", "module", "step", "loading", "other", "function", "calling"),
    *("waiting", "computing", "communicating", "copying", "filling", "idle"),
)
KIND = pl.Enum(KINDS)
FORMS = ("", "mark", "open", "backwards")  # backwards: it ends before it begins
FORM = pl.Enum(FORMS)
IDLE = {
    "host": "idle: the host launches late",
    "launch": "idle: the launch takes long",
    "queued": "idle: waits for another stream or rank",
    "unknown": "idle: no launch is known",
}
MOST_LANES = 1_000
_LANE = ("rank", "pid", "tid", "device_id", "context_id", "stream_id")
_NO_KIND = ("script", "static_op", "op", "dtype", "lite")  # ops of which no phase is known
_GROUP = ("rank", "is_host", "whose", "is_quiet")
_PHASES = {"forward": "forward", "backward": "backward", "optimizer": "optimizer", "data": "loading"}


@dataclass(frozen=True)
class Lanes:
    begin_ns: int
    length_ns: int
    shapes: pl.DataFrame
    lanes: pl.DataFrame
    groups: pl.DataFrame
    notes: list[str]


def lanes_of(found: Analysed) -> Lanes | None:
    """None where nothing has a time."""
    trace = found.complete
    frames = {
        "functions": _spans(trace.functions, "functions"),
        "ranges": _ranges(trace.ranges, found.tables.ranges["end_ns"]),
        "calls": _calls(trace.calls, found.waits),
        "work": _work(trace.work),
        "gaps": _gaps(found.gaps),
    }
    starts = [frame["start_ns"].min() for frame in frames.values()]
    begin_ns = min((start for start in starts if isinstance(start, int)), default=None)
    if begin_ns is None:
        return None
    notes = [_timeless(name, frame) for name, frame in frames.items() if frame["start_ns"].null_count()]
    close_ns = max(trace_end_ns(*frames.values()), begin_ns)
    shapes, keys = _by_lane(frames, trace)
    lanes, groups = _named(keys, trace)
    if (more := lanes.height - MOST_LANES) > 0:
        by_count = lanes.sort("count", descending=True, maintain_order=True)
        left_out = sum(by_count["count"][MOST_LANES:])
        notes.append(f"{more:,} more lanes, of {left_out:,} ranges together, are not drawn: those of the fewest")
        lanes = lanes.filter(_col("key").is_in(by_count["key"].head(MOST_LANES).implode()))
    lanes = lanes.with_row_index("lane")
    numbers = keys.join(lanes.select("key", "lane"), on="key", how="left", maintain_order="left")["lane"]
    shapes = shapes.with_columns(lane=numbers.gather(shapes["key"])).drop("key")
    if lanes.height < keys.height:
        shapes = shapes.filter(_col("lane").is_not_null())
    return Lanes(begin_ns, close_ns - begin_ns, _timed(shapes, begin_ns, close_ns), lanes, groups, notes)


def _timeless(table: str, frame: pl.DataFrame) -> str:
    return f"{frame['start_ns'].null_count():,} {table} are not drawn, for they have no start"


def _spans(frame: pl.DataFrame, table: str, **more: pl.Expr | pl.Series) -> pl.DataFrame:
    said = {"kind": pl.lit("function"), "form": pl.lit("")} | more
    return frame.select(
        *(name for name in _LANE if name in frame.columns),
        pl.int_range(pl.len(), dtype=pl.UInt32).alias("row"),
        "start_ns",
        "end_ns",
        "name",
        pl.lit(table, TABLE).alias("table"),
        said["kind"].cast(KIND).alias("kind"),
        said["form"].cast(FORM).alias("form"),
    )


def _ranges(ranges: pl.DataFrame, recorded: pl.Series) -> pl.DataFrame:
    """`recorded`: their ends, which nesting puts to where they can be."""
    is_mark, is_open = (_col(name).fill_null(value=False) for name in ("is_mark", "is_open"))
    phase = _col("phase").cast(pl.String).replace(_PHASES)
    kind = _col("kind").cast(pl.String)
    said = pl.when(kind.is_in(["module", "step"])).then(kind).otherwise(phase)
    said = said.fill_null(pl.when(kind.is_in(_NO_KIND)).then(pl.lit("ops")).otherwise(pl.lit("other")))
    alike = ranges.select("kind", "phase").unique()
    alike = alike.with_columns(shown=said.cast(KIND))
    kinds = ranges.select("kind", "phase").join(
        alike, on=["kind", "phase"], how="left", nulls_equal=True, maintain_order="left"
    )
    is_backwards = pl.lit(recorded) < _col("start_ns")
    forms = {"mark": is_mark, "open": is_open, "backwards": is_backwards}
    form = pl.coalesce(*(pl.when(so).then(pl.lit(name)) for name, so in forms.items()), pl.lit(""))
    return _spans(ranges, "ranges", kind=kinds["shown"], form=form)


def _calls(calls: pl.DataFrame, waits: pl.DataFrame) -> pl.DataFrame:
    kinds = pl.Series(["calling"], dtype=KIND).new_from_index(0, calls.height)
    return _spans(calls, "calls", kind=kinds.scatter(waits["call"], "waiting"))


def _work(work: pl.DataFrame) -> pl.DataFrame:
    busy = busy_with(work).select("work", "what")
    kinds = pl.Series(["other"], dtype=KIND).new_from_index(0, work.height)
    kinds = kinds.scatter(busy["work"], busy["what"].fill_null("other").cast(KIND))
    waits = work["kind"] == "sync"
    return _spans(work, "work", kind=kinds.set(waits.fill_null(value=False), "waiting"))


def _gaps(gaps: pl.DataFrame) -> pl.DataFrame:
    names = gaps["why"].replace_strict(IDLE, return_dtype=pl.String).cast(pl.Categorical)
    return _spans(gaps.drop("tid").with_columns(name=names), "gaps", kind=pl.lit("idle"))


def _by_lane(frames: dict[str, pl.DataFrame], trace: Tables) -> tuple[pl.DataFrame, pl.DataFrame]:
    """All shapes with the key of their lane, and the keys."""
    parts, keys, first = [], [], 0
    for table in TABLES:
        frame = frames[table].filter(_col("start_ns").is_not_null())
        # Most traces are of one process and one device: nothing is told apart by what is the same in all rows.
        told = [name for name in _LANE if name in frame.columns]
        names = [name for name in told if not is_one(frame, name)] if frame.height else told
        facts = (_col(name).first() for name in told if name not in names)
        counted = (*facts, pl.len().alias("count"))
        alike = frame.group_by(names).agg(counted) if names else frame.select(counted)
        alike = alike.with_columns(table=pl.lit(table, TABLE), key=first + pl.int_range(pl.len(), dtype=pl.UInt32))
        if alike.height > 1:
            keyed = alike.select(*names, "key")
            frame = frame.join(keyed, on=names, how="left", nulls_equal=True, maintain_order="left")
        else:
            frame = frame.with_columns(key=pl.lit(first, pl.UInt32))
        parts.append(frame.select("key", "table", "row", "start_ns", "end_ns", "name", "kind", "form"))
        keys.append(alike)
        first += alike.height
    return pl.concat(parts), pl.concat(keys, how="diagonal").with_columns(_missing(keys))


def _missing(keys: Sequence[pl.DataFrame]) -> list[pl.Expr]:
    have = {name for frame in keys for name in frame.columns}
    return [pl.lit(None, dtype=pl.Int64).alias(name) for name in _LANE if name not in have]


def _named(keys: pl.DataFrame, trace: Tables) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The lanes in the order in which they are drawn: of each rank its threads, then its devices."""
    is_host = _col("table").is_in(["functions", "ranges", "calls"]) | (
        _col("device_id").is_null() & _col("tid").is_not_null()
    )
    of_process = pl.when(_col("pid").n_unique().over("rank", "device_id") > 1).then(pl.format(", process {}", "pid"))
    stream = pl.concat_str(
        stream_name(),
        pl.when(_col("context_id").n_unique().over("rank", "pid", "device_id") > 2)
        .then(pl.format(", context {}", "context_id"))
        .fill_null(""),
        of_process.fill_null(""),
    )
    shows = _col("table").cast(pl.String).replace(_SHOWS)
    rows = keys.with_columns(
        is_host=is_host,
        thread=thread_names(trace, keys),
        process=process_names(trace, keys),
        shows=pl.when(is_host & (_col("table") == "work")).then(pl.lit("the profiler")).otherwise(shows),
        is_quiet=is_host & _is_quiet(keys, trace),
    )
    process = pl.concat_str(
        "process", pl.when("is_quiet").then(pl.lit(": threads that launch nothing")).otherwise(pl.lit(""))
    )
    rows = rows.with_columns(
        title=pl.when("is_host")
        .then("thread")
        .when(_col("table") == "work")
        .then(stream)
        .otherwise(pl.concat_str(device_name(), of_process.fill_null(""))),
        group_title=pl.when("is_host").then(process).otherwise(device_names(trace)),
        is_main=_col("tid") == _col("pid"),
        # Processes by their number, devices by theirs: one is as good as another.
        whose=pl.when("is_host").then("pid").otherwise("device_id"),
    )
    order: list[Any] = [
        "rank",
        "is_host",
        "whose",
        "is_quiet",
        "is_main",
        "tid",
        "pid",
        "table",
        "context_id",
        "stream_id",
    ]
    down = [name in ("is_host", "is_main") for name in order]
    rows = rows.sort(order, descending=down, nulls_last=True, maintain_order=True)
    is_first = pl.any_horizontal(_col(name).ne_missing(_col(name).shift(1)) for name in _GROUP)
    rows = rows.with_columns(group=(is_first | (pl.int_range(pl.len()) == 0)).cast(pl.UInt32).cum_sum() - 1)
    said = (_col("group_title").alias("title"), _col("rank", "device_id", "is_host", "is_quiet"))
    groups = rows.select("group", *said).unique("group", keep="first", maintain_order=True)
    return rows.select("key", "group", "table", *_LANE, "title", "shows", "count"), groups


def _is_quiet(keys: pl.DataFrame, trace: Tables) -> pl.Series:
    """Whether the thread of a lane neither says what it does nor launches anything: there may be dozens, which wait."""
    thread = ["rank", "pid", "tid"]
    says = keys.filter(_col("table").is_in(["functions", "ranges"])).select(thread)
    launches = trace.calls.select(thread)[trace.work["call"].drop_nulls()].unique() if trace.calls.height else says
    loud = pl.concat([says, launches]).unique()
    is_loud = keys.select(thread).join(
        loud.with_columns(is_loud=True), on=thread, how="left", nulls_equal=True, maintain_order="left"
    )
    return (is_loud["is_loud"].is_null() & (keys["tid"] != keys["pid"]).fill_null(value=True)).alias("is_quiet")


def _timed(shapes: pl.DataFrame, begin_ns: int, close_ns: int) -> pl.DataFrame:
    """From the begin of the trace; what has no end and is no mark is open until the end of the trace."""
    is_mark = _col("form") == "mark"
    end = pl.when(is_mark).then("start_ns").otherwise(_col("end_ns").fill_null(close_ns))
    form = (
        pl.when(_col("end_ns").is_null() & ~is_mark)
        .then(pl.lit("open", FORM))
        .when(end < _col("start_ns"))
        .then(pl.lit("backwards", FORM))
        .otherwise("form")
    )
    begin = pl.lit(begin_ns, pl.Int64)
    return shapes.select(
        "table",
        "row",
        "lane",
        difference(begin, _col("start_ns")).alias("start_ns"),
        difference(_col("start_ns"), end).clip(lower_bound=0).alias("length_ns"),
        "name",
        "kind",
        form.alias("form"),
    )
