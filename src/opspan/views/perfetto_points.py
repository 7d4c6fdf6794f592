"""The events of a Perfetto trace that have no duration: values of counters, and memory that is allocated or freed.

There are three kinds of counters: those of the trace, the memory in use (if events have it), and the length of each
stream's queue of launches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import polars as pl

from opspan import native
from opspan.analysis import Analysis
from opspan.tables import Tables
from opspan.tables import chrome_keys as keys
from opspan.tables.schema import NAME
from opspan.views import drawn, perfetto_tracks
from opspan.views.chrome_tracks import PROCESS, STREAM
from opspan.views.perfetto_annotations import FLAGS, PACKET, SEQUENCE, InternedTexts
from opspan.views.perfetto_tracks import SERIES, PerfettoTracks
from opspan.views.pieces import Piece

_BATCH = 200_000
_INSTANT, _COUNTER = 3, 4  # values of `type` in TrackEvent
_IN_USE, _WAITING, _EVENTS = "bytes in use", "launches waiting", "memory"
_col = pl.col
Makers = Iterator[Callable[[], Piece]]


def pieces(analysis: Analysis, trace: Tables, tracks: PerfettoTracks, first_free: int, shift: int) -> Makers:
    counters = pl.concat(
        [
            _with_tracks(_counter_rows(trace), SERIES, _title(), tracks.of_owner),
            _with_tracks(_memory_rows(trace), [*PROCESS, "device_id"], pl.lit(_IN_USE), tracks.of_owner),
            _with_tracks(_queue_rows(analysis), ["pid", *STREAM], pl.lit(_WAITING), tracks.of_work),
        ]
    )
    titles = ["parent", "title", "series"]
    known = counters.select(titles).unique(maintain_order=True)
    known = known.with_columns(track=pl.int_range(pl.len(), dtype=pl.UInt32) + first_free)
    yield partial(perfetto_tracks.series, known)
    rows = counters.join(known, on=titles, how="left", nulls_equal=True, maintain_order="left")
    rows = rows.select(_col("time_ns") + shift, "track", "value")
    for start in range(0, rows.height, _BATCH):
        yield partial(_values, rows.slice(start, _BATCH))
    yield from _memory(trace, tracks, first_free + known.height, shift)


def left_out(trace: Tables) -> list[str]:
    is_number = _col("value").is_finite().fill_null(value=False)
    count = trace.counters.filter(_col("time_ns").is_not_null(), ~is_number).height
    return [f"{count:,} values of counters are not in it, for they are no numbers"] if count else []


def _with_tracks(
    rows: pl.DataFrame, key: list[str], title: pl.Expr, owner: Callable[[pl.DataFrame], pl.Series]
) -> pl.DataFrame:
    """Returns the columns time_ns, value, parent (the track of the owner), title, and series. The number `series` tells
    apart counters with the same title."""
    rows = rows.with_columns(owner(rows).alias("parent"), title=title)
    series = pl.struct(key).rank("dense") if rows.height else pl.lit(None)
    return rows.select("time_ns", "value", "parent", "title", series=series.cast(pl.UInt32))


def _counter_rows(trace: Tables) -> pl.DataFrame:
    rows = trace.counters.filter(_col("time_ns").is_not_null(), _col("value").is_finite())
    # A counter of a device is on the track of the device, no matter which thread reported it.
    return rows.with_columns(tid=pl.when(_col("device_id").is_null()).then("tid"))


def _title() -> pl.Expr:
    domain = pl.format(" ({})", _col("domain").cast(pl.String)).fill_null("")
    return pl.concat_str(drawn.name("name").cast(pl.String), domain)


def _memory_rows(trace: Tables) -> pl.DataFrame:
    rows = trace.memory.filter(_col("time_ns").is_not_null(), _col("total_bytes").is_not_null())
    return rows.with_columns(tid=pl.lit(None, pl.Int64), value=_col("total_bytes").cast(pl.Float64))


def _queue_rows(analysis: Analysis) -> pl.DataFrame:
    return analysis.queues.with_columns(tid=pl.lit(None, pl.Int64), value=_col("queued").cast(pl.Float64))


def _values(rows: pl.DataFrame) -> memoryview:
    event = pl.struct(pl.lit(_COUNTER).alias("9"), _col("track").alias("11"), _col("value").alias("44"))
    return native.protobuf(rows.select(_col("time_ns").alias("8"), pl.lit(SEQUENCE).alias("10"), event.alias("11")), 1)


def _memory(trace: Tables, tracks: PerfettoTracks, first_free: int, shift: int) -> Makers:
    rows = trace.memory.with_row_index("row").filter(_col("time_ns").is_not_null())
    rows = rows.with_columns(tracks.of_owner(rows.with_columns(tid=pl.lit(None, pl.Int64))).alias("parent"))
    known = rows.select("parent").unique(maintain_order=True)
    known = known.with_columns(track=pl.int_range(pl.len(), dtype=pl.UInt32) + first_free, title=pl.lit(_EVENTS))
    yield partial(perfetto_tracks.beside, known)
    rows = rows.join(known, on="parent", how="left", nulls_equal=True, maintain_order="left")
    args = drawn.args(rows, keys.EVENTS["memory"])
    for start in range(0, rows.height, _BATCH):
        yield partial(_instants, rows.slice(start, _BATCH), args, shift)


def _instants(rows: pl.DataFrame, args: dict[str, pl.Expr], shift: int) -> Piece:
    strings = InternedTexts()
    names = rows.select(name=drawn.memory_name().cast(NAME), category=pl.lit("cpu_instant_event").cast(NAME))
    event = pl.DataFrame(
        [
            pl.repeat(_INSTANT, rows.height, eager=True).alias("9"),
            rows["track"].alias("11"),
            strings.names(names["name"]).alias("10"),
            strings.categories(names["category"]).alias("3"),
            *strings.annotations(rows.select(value.alias(key) for key, value in args.items())),
        ]
    )
    packets = pl.select(
        (rows["time_ns"] + shift).alias("8"), pl.lit(SEQUENCE).alias("10"), FLAGS, event.to_struct("11")
    )
    return b"".join((strings.packets(), native.protobuf(packets, PACKET)))
