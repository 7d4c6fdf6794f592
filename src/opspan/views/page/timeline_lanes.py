"""The lanes of the timeline, and the shapes on each. Ranges, calls and functions are on lanes of their thread, kernels
and copies are on lanes of their stream, and gaps are on lanes of their device. Samples of a thread are on a lane below
its other lanes.

    lanes_of(analysis) -> TimelineLanes
        shapes   for each row of TABLES with a start: table, row, lane, start_ns (from the begin of the trace),
                 length_ns, name
        samples  for each row of the table samples with a time: row, lane, start_ns (from the begin of the trace)
        lanes    for each lane: lane, group, table, rank, title, `shows` (the kind of shapes in words), ...
        groups   for each process, for its quiet threads (see _is_quiet), and for each device: group, title, ...

timeline_looks.py has the kinds (colours) and forms of the shapes.
"""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from opspan.analysis import Analysis
from opspan.analysis.nest import count_timeless, trace_end_ns
from opspan.analysis.spans import distinct, length, look_up, only, sum_by
from opspan.row_numbers import ROW_NUMBER
from opspan.tables import Tables
from opspan.tables.same import is_one
from opspan.tables.tables import own
from opspan.views.names import device_name, device_names, process_names, stream_name, thread_names

_col = pl.col
TABLES = ("functions", "ranges", "calls", "gaps", "work")  # whose rows are shapes
SAMPLES = "samples"
_OF_THREADS = ("functions", "ranges", "calls", SAMPLES)
TABLE = pl.Enum((*_OF_THREADS, "gaps", "work"))  # in the order of their lanes, from top to bottom
_SHOWS = {
    "functions": "Python functions",
    "ranges": "ops and ranges",
    "calls": "API calls",
    "gaps": "idle",
    "work": "work",
}
IDLE = {
    "host": "idle: the host launches late",
    "launch": "idle: the launch takes long",
    "queued": "idle: waits for another stream or rank",
    "unknown": "idle: no launch is known",
}
MOST_LANES = 1_000
_LANE = ("rank", "pid", "tid", "device_id", "context_id", "stream_id")
_GROUP = ("rank", "is_host", "whose", "is_quiet")


@dataclass(frozen=True)
class TimelineLanes:
    begin_ns: int
    length_ns: int
    shapes: pl.DataFrame
    samples: pl.DataFrame
    lanes: pl.DataFrame
    groups: pl.DataFrame
    notes: list[str]


def lanes_of(analysis: Analysis) -> TimelineLanes | None:
    """Returns the lanes with their shapes, or None if the trace has no times at all."""
    trace = analysis.complete
    replayed = count_timeless(trace.ranges)
    names_of_gaps = analysis.gaps["why"].replace_strict(IDLE, return_dtype=pl.String).cast(pl.Categorical)
    all_frames = {
        "functions": _spans(trace.functions),
        "ranges": _spans(trace.ranges, "is_mark"),
        "calls": _spans(trace.calls),
        "gaps": _spans(analysis.gaps.drop("tid").with_columns(name=names_of_gaps)),
        "work": _spans(trace.work, "is_overhead"),
        SAMPLES: _spans(_as_spans(trace.samples)),
    }
    starts = [own(frame)["start_ns"].min() for frame in all_frames.values()]
    begin_ns = min((start for start in starts if isinstance(start, int)), default=None)
    if begin_ns is None:
        return None
    notes = [
        f"{count:,} {name} are not drawn, for they have no {'time' if name == SAMPLES else 'start'}"
        for name, frame in all_frames.items()
        # The ops of a replayed graph do not count: they have no start, because they did not run on the host.
        if (count := frame["start_ns"].null_count() - (replayed if name == "ranges" else 0))
    ]
    close_ns = max(trace_end_ns(*all_frames.values()), begin_ns)
    frames = {name: only(frame, frame["start_ns"].is_not_null()) for name, frame in all_frames.items()}
    frames["work"], outside = _inside(frames["work"], begin_ns, close_ns)
    if outside:
        notes.append(f"{outside:,} pieces of the profiler's own work, before and after the run, are not drawn")
    keys = _keys(frames)
    lanes, groups = _named(keys, trace)
    if (more := lanes.height - MOST_LANES) > 0:
        by_count = lanes.sort("count", descending=True, maintain_order=True)
        left_out = by_count[MOST_LANES:]
        which = "ranges and samples" if (left_out["table"] == SAMPLES).any() else "ranges"
        of = f"{left_out['count'].sum():,} {which} together"
        notes.append(f"{more:,} more lanes, of {of}, are not drawn: those of the fewest")
        lanes = lanes.filter(_col("key").is_in(by_count["key"].head(MOST_LANES).implode()))
    lanes = lanes.with_row_index("lane")
    keys = look_up(keys, lanes.select("key", "lane"), ("key",))
    parts = {table: _shapes(table, frame, keys, begin_ns, close_ns) for table, frame in frames.items()}
    samples = parts.pop(SAMPLES).select("row", "lane", "start_ns")
    return TimelineLanes(begin_ns, close_ns - begin_ns, pl.concat(parts.values()), samples, lanes, groups, notes)


def _as_spans(samples: pl.DataFrame) -> pl.DataFrame:
    """Samples are points in time: each ends when it begins."""
    name = pl.lit(None, dtype=pl.Categorical)
    return samples.select("rank", "pid", "tid", start_ns="time_ns", end_ns="time_ns", name=name)


def _inside(work: pl.DataFrame, begin_ns: int, close_ns: int) -> tuple[pl.DataFrame, int]:
    """Drops the profiler's own work before and after the run. Returns the other rows, and how many rows were
    dropped."""
    is_inside = (_col("end_ns").fill_null(close_ns) >= begin_ns) & (_col("start_ns") <= close_ns)
    inside = work.filter(is_inside) if work.height > own(work).height else work
    return inside, work.height - inside.height


def _spans(frame: pl.DataFrame, *more: str) -> pl.DataFrame:
    return frame.select(
        *_key_of(frame), "start_ns", "end_ns", "name", *more, row=pl.int_range(pl.len(), dtype=ROW_NUMBER)
    )


def _keys(frames: dict[str, pl.DataFrame]) -> pl.DataFrame:
    """Returns a row for each lane: its table, its key columns (such as pid and tid), and `count`, the number of its
    shapes."""
    keys = [
        sum_by(frame, _key_of(frame), count=pl.len()).with_columns(table=pl.lit(table, TABLE))
        for table, frame in frames.items()
    ]
    rows = pl.concat(keys, how="diagonal").with_row_index("key")
    return rows.with_columns(pl.lit(None, dtype=pl.Int64).alias(name) for name in _LANE if name not in rows.columns)


def _key_of(frame: pl.DataFrame) -> list[str]:
    return [name for name in _LANE if name in frame.columns]


def _shapes(table: str, frame: pl.DataFrame, keys: pl.DataFrame, begin_ns: int, close_ns: int) -> pl.DataFrame:
    """Returns what the timeline draws for the rows of a table, with times since the start of the run. A row without an
    end lasts until the end of the run, unless it is a mark."""
    key = _key_of(frame)
    frame = look_up(frame, keys.filter(_col("table") == table).select(*key, "lane"), key)
    frame = only(frame, frame["lane"].is_not_null())
    end = _col("end_ns").fill_null(close_ns)
    if "is_mark" in frame.columns:
        end = pl.when("is_mark").then("start_ns").otherwise(end)
    return frame.select(
        "row",
        "lane",
        length(pl.lit(begin_ns, pl.Int64), _col("start_ns")).alias("start_ns"),
        length(_col("start_ns").clip(begin_ns), end.clip(upper_bound=close_ns)).alias("length_ns"),
        "name",
        table=pl.lit(table, TABLE),
    )


def _named(keys: pl.DataFrame, trace: Tables) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Returns the lanes in the order in which they are drawn, and the groups of lanes. In each rank, the threads come
    before the devices."""
    is_host = _col("table").is_in(_OF_THREADS) | (_col("device_id").is_null() & _col("tid").is_not_null())
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
        # Processes are sorted by pid, and devices by device_id.
        whose=pl.when("is_host").then("pid").otherwise("device_id"),
    )
    order = "rank is_host whose is_quiet is_main tid pid table context_id stream_id".split()
    down = [name in ("is_host", "is_main") for name in order]
    rows = rows.sort(order, descending=down, nulls_last=True, maintain_order=True)
    is_first = pl.any_horizontal(_col(name).ne_missing(_col(name).shift(1)) for name in _GROUP)
    rows = rows.with_columns(group=(is_first | (pl.int_range(pl.len()) == 0)).cast(ROW_NUMBER).cum_sum() - 1)
    columns = (_col("group_title").alias("title"), _col("rank", "device_id", "is_host", "is_quiet"))
    groups = rows.select("group", *columns).unique("group", keep="first", maintain_order=True)
    return rows.select("key", "group", "table", *_LANE, "title", "shows", "count"), groups


def _is_quiet(keys: pl.DataFrame, trace: Tables) -> pl.Series:
    """Returns whether the thread of each lane is quiet: it has no ranges, functions or launches, and is not the main
    thread. A process may have dozens of such threads, which only wait."""
    thread = ["rank", "pid", "tid"]
    with_ranges = keys.filter(_col("table").is_in(["functions", "ranges"])).select(thread)
    threads, launching_calls = trace.calls.select(thread), trace.work["call"].drop_nulls()
    is_same = len(launching_calls) > 0 and is_one(threads, *thread)
    launches = distinct(threads if is_same else threads[launching_calls], thread)
    loud = pl.concat([with_ranges, launches]).unique()
    is_loud = keys.select(thread).join(
        loud.with_columns(is_loud=True), on=thread, how="left", nulls_equal=True, maintain_order="left"
    )
    is_quiet = is_loud["is_loud"].is_null() & (keys["tid"] != keys["pid"]).fill_null(value=True)
    if is_quiet.all() and (keys["table"] == SAMPLES).all():
        is_quiet = ~is_quiet  # nothing else is known of the program, so it is not folded away
    return is_quiet.alias("is_quiet")
