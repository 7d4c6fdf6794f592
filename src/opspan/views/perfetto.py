"""A trace in Perfetto's own format: TrackEvents, as Protocol Buffers (gzipped if the name ends with .gz).

    TracePacket {timestamp: 12345, track_event {type: SLICE_BEGIN, track_uuid: 4, name_iid: 9, debug_annotations ...}}

Names, categories and keys of args are mostly those of our Chrome traces (views/chrome.py). Times are in nanoseconds of
the trace's own clock. On the track of a thread, slices nest. Slices that overlap others, and async slices, are on extra
tracks beside the thread's track. perfetto_tracks.py makes the tracks, and native/columns/timeline.cpp sorts the events.

The file is made in batches of events, in order of time. Events refer to texts by number. Each batch numbers its texts
anew, so that batches can be made in parallel and only a few batches are in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import polars as pl

from opspan import native
from opspan.analysis import Analysis
from opspan.analysis.autograd import BY_NESTING
from opspan.analysis.nest import trace_end_ns
from opspan.tables import Tables
from opspan.tables import chrome_keys as keys
from opspan.tables.schema import KIND, NAME
from opspan.views import drawn, perfetto_points, perfetto_tracks, pieces
from opspan.views.perfetto_annotations import FLAGS, PACKET, SEQUENCE, InternedTexts
from opspan.views.perfetto_tracks import PerfettoTracks
from opspan.views.pieces import Bytes, Piece

_BATCH = 100_000  # number of events (begins and ends of slices) in a batch
_BEGIN, _END, _INSTANT = 1, 2, 3  # types of a TrackEvent
_TIME, _EVENT = "8", "11"  # field numbers in TracePacket
_TYPE, _TRACK, _NAME, _NAME_TEXT, _CATEGORY = "9", "11", "10", "23", "3"  # field numbers in TrackEvent
_FLOWS, _ENDED_FLOW = "47", "48"
_CLOCKS, _BOOTTIME, _REALTIME = "6", 6, 1
_col = pl.col


@dataclass(frozen=True)
class _Kind:
    """A table of slices or marks, with their names, categories and args."""

    rows: pl.DataFrame  # columns include track, start_ns, until_ns (end_ns, never null), is_mark, is_apart (async)
    name: pl.Expr
    category: pl.Expr
    args: Mapping[str, pl.Expr]


def write(analysis: Analysis, path: Path) -> list[str]:
    trace = drawn.drawn(analysis)
    arrows = _Arrows(trace)
    pieces.write(path, _pieces(analysis, trace, arrows))
    backwards = f"{arrows.backwards:,} arrows are not in it, for they end before they begin"
    notes = [backwards] if arrows.backwards else []
    return drawn.left_out(trace) + perfetto_points.left_out(trace) + notes


def _pieces(analysis: Analysis, trace: Tables, arrows: _Arrows) -> Iterator[Callable[[], Piece]]:
    shift = -min(drawn.zero_ns(trace), 0)  # Perfetto has no negative times
    tracks = perfetto_tracks.tracks_of(trace)
    yield lambda: b"".join((_clocks(trace, shift), perfetto_tracks.descriptors(tracks)))
    kinds = _kinds(trace, tracks, arrows)
    slices = pl.concat(
        kind.rows.select(_col("track").cast(pl.UInt32), "start_ns", "until_ns", "is_mark", "is_apart") for kind in kinds
    )
    slices = slices.rename({"until_ns": "end_ns"})
    events = native.timeline(slices)
    lanes = _lanes(slices, events, tracks.first_free)
    yield partial(perfetto_tracks.beside, lanes)
    first_free = tracks.first_free + lanes.height
    first = lanes.group_by("parent").agg(_col("track").min().alias("first")).rename({"parent": "track"})
    for start in range(0, events.height, _BATCH):
        yield partial(_batch, kinds, slices, events.slice(start, _BATCH), first, shift)
    yield from perfetto_points.pieces(analysis, trace, tracks, first_free, shift)


def _clocks(trace: Tables, shift: int) -> Bytes:
    """Returns a packet with the UTC time of time 0 of the trace's clock."""
    if trace.origin_utc_ns is None or trace.origin_utc_ns < 0:
        return b""
    clocks = {
        f"1:{clock}": pl.struct(pl.lit(clock).alias("1"), pl.lit(time, pl.Int64).alias("2"))
        for clock, time in ((_BOOTTIME, shift), (_REALTIME, trace.origin_utc_ns))
    }
    row = pl.select(pl.struct(value.alias(name) for name, value in clocks.items()).alias(_CLOCKS))
    return native.protobuf(row, PACKET)


class _Arrows:
    """Holds, for each row, the ids of the flows (arrows) that begin or end there. A flow leads from a call to the
    kernel or copy that it launched, or from an op to its backward op."""

    def __init__(self, trace: Tables) -> None:
        work = trace.work.select("call", "start_ns").with_row_index("to")
        self.backwards = 0
        launches = self._forward_arrows(work.rename({"call": "from"}), trace.calls["start_ns"], 1)
        linked = trace.ranges.with_row_index("to").filter(_col("link").ne_missing(BY_NESTING))
        linked = linked.select("to", "start_ns", _col("forward").alias("from"))
        links = self._forward_arrows(linked, trace.ranges["start_ns"], 1 + trace.work.height)
        self.of_calls = self._begin_flows(launches, trace.calls.height)
        self.of_work = self._end_flows(launches, trace.work.height)
        self.of_forward = self._begin_flows(links, trace.ranges.height)
        self.of_backward = self._end_flows(links, trace.ranges.height)

    def _forward_arrows(self, arrows: pl.DataFrame, starts: pl.Series, first: int) -> pl.DataFrame:
        arrows = arrows.drop_nulls()
        arrows = arrows.with_columns(begin_ns=starts.gather(arrows["from"])).drop_nulls()
        forwards = arrows.filter(_col("begin_ns") <= _col("start_ns"))
        self.backwards += arrows.height - forwards.height
        return forwards.select("from", "to", flow=_col("to").cast(pl.UInt64) + first)

    @staticmethod
    def _begin_flows(arrows: pl.DataFrame, rows: int) -> pl.Series:
        lists = arrows.group_by("from").agg("flow")
        all_rows = pl.select(pl.int_range(rows, dtype=pl.UInt32).alias("from"))
        return all_rows.join(lists, on="from", how="left", maintain_order="left")["flow"]

    @staticmethod
    def _end_flows(arrows: pl.DataFrame, rows: int) -> pl.Series:
        all_rows = pl.select(pl.int_range(rows, dtype=pl.UInt32).alias("to"))
        return all_rows.join(arrows.select("to", "flow"), on="to", how="left", maintain_order="left")["flow"]


def _kinds(trace: Tables, tracks: PerfettoTracks, arrows: _Arrows) -> list[_Kind]:
    """Returns the tables of slices. If slices of several tables have equal times, the slice of the earlier table is the
    outer one."""
    last_ns = trace_end_ns(*(trace.frames[name] for name in drawn.SPANS))
    functions, calls, work = trace.functions, trace.calls, trace.work
    ranges = drawn.with_lists(trace.ranges)
    ranges = ranges.with_columns(arrows.of_forward.alias(_FLOWS), arrows.of_backward.alias(_ENDED_FLOW))
    of_ranges = drawn.args(ranges, keys.EVENTS["ranges"])
    if "modules" in ranges.columns:
        of_ranges["Module Hierarchy"] = _col("modules")
    calls = calls.with_columns(arrows.of_calls.alias(_FLOWS))
    work = work.with_columns(arrows.of_work.alias(_ENDED_FLOW))
    of_work = drawn.args(work, keys.EVENTS["work"]) | {key: drawn.sizes(of) for of, key in keys.SIZES.items()}
    of_work |= drawn.replayed_args(work)

    def placed(rows: pl.DataFrame, track: pl.Series) -> pl.DataFrame:
        rows = rows.with_columns(
            track.alias("track"),
            until_ns=_col("end_ns").fill_null(last_ns),
            **{
                to: _col(name).fill_null(value=False) if name in rows.columns else pl.lit(value=False)
                for to, name in (("is_mark", "is_mark"), ("is_apart", "is_async"))
            },
        )
        return rows.filter(_col("start_ns").is_not_null()) if rows["start_ns"].null_count() else rows

    name, full_name = _col("name"), pl.coalesce("full_name", "name")
    return [
        _Kind(
            placed(functions, tracks.of_thread(functions)),
            name,
            pl.lit("python_function"),
            drawn.args(functions, keys.EVENTS["functions"]),
        ),
        _Kind(placed(ranges, tracks.of_thread(ranges)), name, drawn.category(KIND, "user"), of_ranges),
        _Kind(
            placed(calls, tracks.of_thread(calls)),
            name,
            drawn.call_category(),
            drawn.args(calls, keys.EVENTS["calls"]),
        ),
        _Kind(placed(work, tracks.of_work(work)), full_name, drawn.work_category(), of_work),
    ]


def _lanes(slices: pl.DataFrame, events: pl.DataFrame, first_free: int) -> pl.DataFrame:
    """Returns the extra tracks, for slices that overlap others and for async slices. An extra track is beside its
    `parent`. The extra tracks of one parent have consecutive numbers."""
    beside = events.filter(_col("lane") > 0, ~_col("is_end"))
    lanes = pl.DataFrame({"parent": slices["track"].gather(beside["row"]), "lane": beside["lane"]})
    lanes = lanes.unique().sort("parent", "lane")
    track = pl.int_range(pl.len(), dtype=pl.UInt32) + first_free
    return lanes.select("parent", track=track, title=pl.lit("beside it"))


def _batch(
    kinds: list[_Kind], slices: pl.DataFrame, events: pl.DataFrame, first: pl.DataFrame, shift: int
) -> memoryview:
    events = events.with_row_index("at").with_columns(slices["track"].gather(events["row"]).alias("track"))
    events = events.join(first, on="track", how="left", maintain_order="left")
    track = pl.when(_col("lane") > 0).then(_col("first") + _col("lane") - 1).otherwise("track")
    events = events.with_columns(track.alias(_TRACK))
    ends = events.filter("is_end")
    until = slices["end_ns"].gather(ends["row"]), slices["start_ns"].gather(ends["row"])
    parts = [ends.select("at", _TRACK, pl.max_horizontal(*until).alias(_TIME), pl.lit(_END).alias(_TYPE))]
    strings = InternedTexts()
    before = 0
    for kind in kinds:
        own = events.filter(~_col("is_end"), _col("row").is_between(before, before + kind.rows.height, closed="left"))
        if own.height:
            parts.append(_begins(kind, own, own["row"] - before, strings))
        before += kind.rows.height
    rows = pl.concat(parts, how="diagonal_relaxed").sort("at").drop("at")
    event = pl.struct(pl.exclude(_TIME))
    packets = rows.select(_col(_TIME) + shift, pl.lit(SEQUENCE).alias("10"), FLAGS, event.alias(_EVENT))
    return memoryview(b"".join((strings.packets(), native.protobuf(packets, PACKET))))


def _begins(kind: _Kind, events: pl.DataFrame, rows: pl.Series, strings: InternedTexts) -> pl.DataFrame:
    begun = kind.rows[rows]
    values = begun.select(value.alias(key) for key, value in kind.args.items())
    names = begun.select(name=kind.name.cast(NAME), category=kind.category.cast(NAME))
    fields = [
        events["at"],
        events[_TRACK],
        begun["start_ns"].alias(_TIME),
        begun.select(pl.when("is_mark").then(_INSTANT).otherwise(_BEGIN)).to_series().alias(_TYPE),
        strings.names(names["name"]).alias(_NAME),
        names.select(pl.when(_col("name").is_null()).then(pl.lit("(no name)"))).to_series().alias(_NAME_TEXT),
        strings.categories(names["category"]).alias(_CATEGORY),
        *(begun[field] for field in (_FLOWS, _ENDED_FLOW) if field in begun.columns),
        *strings.annotations(values),
    ]
    return pl.DataFrame(fields)
