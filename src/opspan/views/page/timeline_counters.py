"""Values over time that are drawn as lanes: how busy each device is, how long its queues are, memory, and the program's
own counters.

A lane has only as many points as a screen can show. So the trace is divided into short periods of equal length. A lane
with many values gets two points for each period: the highest value, so that peaks are shown, and the last value.
"""

from __future__ import annotations

from typing import Any

import polars as pl

from opspan.analysis import Analysis
from opspan.analysis.averages import on_device
from opspan.analysis.launched import STREAM
from opspan.analysis.spans import DEVICE, distinct, time_in
from opspan.tables.same import unlike
from opspan.views.page.columns import text, values
from opspan.views.page.timeline_columns import deltas

_col = pl.col
_STRETCHES = 1_000
_MOST_LANES = 24  # maximum number of lanes of each kind
_DEVICE = ("rank", "device_id")
_NAMES = ("rank", "pid", "name", "domain", "device_id")


def counters(analysis: Analysis, begin_ns: int, length_ns: int) -> tuple[list[dict[str, Any]], list[str]]:
    """Returns the lanes, and sentences on those that are left out."""
    kinds = {
        "utilisation": _utilisation(analysis, begin_ns, length_ns),
        "queue": _series_by(analysis.queues.rename({"queued": "value"}), STREAM),
        "memory": _series_by(analysis.memory_curve.rename({"allocated_bytes": "value"}), DEVICE),
        "counter": _series_by(analysis.tables.counters, _NAMES),
    }
    lanes, notes = [], []
    for kind, (shown, more) in kinds.items():
        if more:
            which = "of the highest numbers" if kind == "utilisation" else "of the fewest values"
            notes.append(f"{more:,} more lanes of {_PLURAL[kind]} are not drawn, those {which}")
        lanes += [_lane(kind, rows, begin_ns, length_ns) for rows in shown]
    return lanes, notes


_TITLES = {"utilisation": "busy", "queue": "queue", "memory": "memory in use"}
_PLURAL = {"utilisation": "utilisation", "queue": "queues", "memory": "memory", "counter": "counters"}
_UNITS = {"utilisation": "share", "queue": "count", "memory": "bytes", "counter": "number"}


def _series_by(rows: pl.DataFrame, keys: tuple[str, ...]) -> tuple[list[pl.DataFrame], int]:
    """Splits the rows by `keys` into series. Returns the series with the most values, the longest first, and the number
    of series that are left out."""
    rows = rows.select("time_ns", "value", *keys).drop_nulls(("time_ns", "value"))
    if rows.schema["value"].is_float():
        rows = rows.filter(_col("value").is_finite())
    if not (keys := tuple(unlike(keys, rows))):
        return [rows] if rows.height else [], 0
    counts = rows.group_by(keys, maintain_order=True).agg(count=pl.len())
    counts = counts.sort("count", descending=True, maintain_order=True)
    most = counts.head(_MOST_LANES).with_row_index("lane")
    shown = rows.join(most, on=keys, nulls_equal=True, maintain_order="left")
    parts = shown.sort("lane", maintain_order=True).partition_by("lane", maintain_order=True)
    return [part.drop("lane", "count") for part in parts], counts.height - most.height


def _utilisation(analysis: Analysis, begin_ns: int, length_ns: int) -> tuple[list[pl.DataFrame], int]:
    """Returns how busy each device was in each period, as a share of the period. Also returns how many devices are left
    out."""
    work = on_device(analysis.complete.work.select(*_DEVICE, "start_ns", "end_ns", "kind", "is_overhead"))
    all_devices = distinct(work, _DEVICE).sort(_DEVICE)
    devices = all_devices.head(_MOST_LANES)
    edges = pl.DataFrame({"edge": [begin_ns + length_ns * at // _STRETCHES for at in range(_STRETCHES + 1)]})
    stretches = edges.select(start_ns="edge", end_ns=_col("edge").shift(-1)).filter(_col("end_ns") > _col("start_ns"))
    pairs = devices.join(stretches, how="cross")
    if not pairs.height:
        return [], 0
    busy = time_in(work.select(*_DEVICE, "start_ns", "end_ns"), pairs, _DEVICE)
    share = (busy / (pairs["end_ns"] - pairs["start_ns"])).round(4)
    lanes = pairs.select(*_DEVICE, time_ns="start_ns", value=share).partition_by(_DEVICE, maintain_order=True)
    return lanes, all_devices.height - devices.height


def _lane(kind: str, rows: pl.DataFrame, begin_ns: int, length_ns: int) -> dict[str, Any]:
    key = rows.row(0, named=True)
    title = _TITLES.get(kind) or ": ".join(text(key[name]) for name in ("domain", "name") if key.get(name))
    if kind == "queue":
        title = f"{title} of stream {'of unknown number' if key['stream_id'] is None else key['stream_id']}"
    points = rows if kind == "utilisation" else _sampled(rows, begin_ns, length_ns)
    return {
        "kind": kind,
        "title": title or "counter",
        "unit": _UNITS[kind],
        "rank": key["rank"] or 0,
        "pid": key.get("pid"),
        "device": key.get("device_id"),
        "at": deltas((points["time_ns"] - begin_ns).clip(lower_bound=0)),
        "values": values(points["value"]),
    }


def _sampled(rows: pl.DataFrame, begin_ns: int, length_ns: int) -> pl.DataFrame:
    rows = rows.select("time_ns", "value").sort("time_ns", maintain_order=True)
    if rows.height <= 2 * _STRETCHES:
        return rows
    stretch = ((_col("time_ns") - begin_ns) // max(1, length_ns // _STRETCHES)).alias("stretch")
    times, numbers = _col("time_ns"), _col("value")
    ends = rows.group_by(stretch, maintain_order=True).agg(
        first=times.first(), most=numbers.max(), last=times.last(), then=numbers.last()
    )
    pairs = (("first", "most"), ("last", "then"))
    parts = [ends.select("stretch", time_ns=time, value=number) for time, number in pairs]
    return pl.concat(parts).sort("stretch", "time_ns", maintain_order=True).drop("stretch")
