"""Computes the memory in use over time; finds the ranges that allocated it, and the blocks that existed at the peak.

    curve(events, counters) -> a row for each allocation and each free, in order of time. For each rank, process and
        device there is one more row, before its first event. Columns:
        rank, pid, device_id, time_ns.
        row (UInt32): row of the event in the table memory; null for the row before the first event.
        allocated_bytes (Int64): bytes of the blocks that existed after the event.
        total_bytes (Int64): bytes in use after the event, as recorded by the tool.
        reserved_bytes (Int64): bytes that torch's allocator held, by the last record of the tool.

    peaks(events, counters) -> for each rank, process and device, the row of the curve with the most allocated bytes;
        the first if there are several.

    operators(ranges, events) -> a row for each rank, device and name of a range; the name is null outside of ranges:
        rank, device_id, name.
        calls: how many ranges of the rank have this name; the same number for each device.
        size_increase (allocated minus freed bytes), allocation_count, allocation_bytes: in these ranges and all ranges
            inside them.
        self_size_increase, self_allocation_count, self_allocation_bytes: in the ranges themselves.

    at_peak(ranges, events) -> the blocks that existed at the peaks, for each device the largest first:
        rank, pid, device_id.
        peak_ns, peak_bytes: the time of the peak, and the allocated bytes then.
        address, bytes: of the block.
        alloc_row, alloc_ns, tid: row (in the table memory), time and thread of the block's allocation.
        range (UInt32): the innermost range that was open on the thread when it allocated the block.
        name, module, phase: those of the range, if `ranges` has these columns.

The rules are in docs/analysis.md, "Memory in use". Ranges must be nested (`nest`) first.
"""

from __future__ import annotations

import polars as pl

from opspan import native
from opspan.analysis.allocations import allocations, in_order
from opspan.analysis.nest import innermost
from opspan.analysis.spans import DEVICE

SUMS = ("size_increase", "allocation_count", "allocation_bytes")
COUNTED = ("event_count", "freed_bytes", "allocation_count", "allocation_bytes")
SELF_SUMS, SELF_COUNTED = (tuple(f"self_{name}" for name in names) for names in (SUMS, COUNTED))
# Events are numbered from 0, in order of time. A block that was allocated before the first event counts as allocated at
# _BEFORE. A block that is never freed counts as freed at _NEVER.
_BEFORE, _NEVER = -1, 2**32
_col = pl.col


def curve(
    events: pl.DataFrame, counters: pl.DataFrame | None = None, blocks: pl.DataFrame | None = None
) -> pl.DataFrame:
    """Returns the curve. `events` is the table memory. `counters` is the table counters, which has the reserved bytes.
    `blocks` is the result of `allocations`; pass it to save computing it again."""
    return _curve(events, allocations(events) if blocks is None else blocks, counters)


def peaks(events: pl.DataFrame, counters: pl.DataFrame | None = None) -> pl.DataFrame:
    return highest(curve(events, counters))


def of_peaks(blocks: pl.DataFrame) -> pl.DataFrame:
    """Keeps the blocks of the highest peak of each process and device (the first of equal peaks). `blocks` are results
    of `at_peak` for several stretches of time."""
    blocks = blocks.filter(_col("peak_bytes") == _col("peak_bytes").max().over(DEVICE))
    return blocks.filter(_col("peak_ns") == _col("peak_ns").min().over(DEVICE))


def highest(rows: pl.DataFrame) -> pl.DataFrame:
    most = rows.filter(_col("allocated_bytes") == _col("allocated_bytes").max().over(DEVICE))
    return most.unique(DEVICE, keep="first", maintain_order=True).sort(DEVICE)


def _curve(events: pl.DataFrame, blocks: pl.DataFrame, counters: pl.DataFrame | None) -> pl.DataFrame:
    rows = in_order(events).drop_nulls("time_ns").select(*DEVICE, "row", "time_ns", "total_bytes")
    rows = rows.join(_changes(blocks), on="row", how="left", maintain_order="left")
    rows = pl.concat([_begins(rows, blocks), rows], how="diagonal").sort("time_ns", maintain_order=True)
    if counters is None:
        rows = rows.with_columns(pl.lit(None, dtype=pl.Int64).alias("reserved_bytes"))
    else:
        rows = _with_reserved(rows, counters)
    allocated = (_col("known") + _col("unpaired")).cum_sum().over(DEVICE)
    return rows.select(*DEVICE, "time_ns", "row", allocated.alias("allocated_bytes"), "total_bytes", "reserved_bytes")


def _changes(blocks: pl.DataFrame) -> pl.DataFrame:
    """Returns by how many bytes each event changed the memory in use. The column `unpaired` has the bytes of events
    without an address, whose allocation and free cannot be paired. The column `known` has the bytes of all other
    events."""
    known, unpaired = (blocks.filter(_col("address").is_null() == is_null) for is_null in (False, True))
    changes = pl.concat(
        [
            known.select(row="alloc_row", known="bytes"),
            known.select(row=pl.coalesce("free_row", "replaced_row"), known=-_col("bytes")),
            unpaired.select(row="alloc_row", unpaired="bytes"),
            unpaired.select(row=pl.when(_col("alloc_row").is_null()).then("free_row"), unpaired=-_col("bytes")),
        ],
        how="diagonal",
    )
    return changes.drop_nulls("row").group_by("row").agg(_col("known", "unpaired").sum())


def _begins(rows: pl.DataFrame, blocks: pl.DataFrame) -> pl.DataFrame:
    """Returns a row before the first event of each device, with the bytes that must have been in use then. `known`: the
    bytes of blocks whose free is in the trace, but whose allocation is not. `unpaired`: the fewest bytes at the start
    with which the running sum of unpaired bytes never gets negative."""
    lowest = _col("unpaired").cum_sum().min()
    first = rows.group_by(DEVICE, maintain_order=True).agg(
        _col("time_ns").first(), unpaired=-pl.min_horizontal(lowest, pl.lit(0))
    )
    was_there = _col("alloc_row").is_null() & _col("address").is_not_null() & _col("free_ns").is_not_null()
    before = blocks.filter(was_there).group_by(DEVICE).agg(known=_col("bytes").sum())
    rows_before = first.join(before, on=DEVICE, how="left", nulls_equal=True, maintain_order="left")
    return rows_before.with_columns(_col("known").fill_null(0))


def _with_reserved(rows: pl.DataFrame, counters: pl.DataFrame) -> pl.DataFrame:
    is_reserved = (_col("name") == "reserved bytes") & (_col("domain") == "torch allocator")
    values = counters.filter(is_reserved, _col("time_ns").is_not_null())
    values = values.select(*DEVICE, "time_ns", reserved_bytes=_col("value").cast(pl.Int64, strict=False))
    # If a counter has the same time as an event, its value is the state after the event.
    both = pl.concat([values.with_columns(is_counter=True), rows], how="diagonal").sort("time_ns", maintain_order=True)
    return both.with_columns(_col("reserved_bytes").forward_fill().over(DEVICE)).filter(_col("is_counter").is_null())


def operators(ranges: pl.DataFrame, events: pl.DataFrame) -> pl.DataFrame:
    keys = ("rank", "device_id")
    own = changes_in(ranges, events).group_by(*keys, "range").agg(_col(COUNTED).sum())
    rows = by_name(ranges, own, keys)
    is_call = ~_col("is_mark").fill_null(value=False)
    calls = ranges.filter(is_call).group_by("rank", "name").agg(calls=pl.len().cast(pl.Int64))
    rows = rows.join(calls, on=["rank", "name"], how="left", nulls_equal=True)
    rows = rows.with_columns(
        _col("calls").fill_null(0),
        size_increase=_col("allocation_bytes") - _col("freed_bytes"),
        self_size_increase=_col("self_allocation_bytes") - _col("self_freed_bytes"),
    )
    rows = rows.select(*keys, "name", "calls", *SUMS, *SELF_SUMS)
    order = ("self_allocation_bytes", "allocation_bytes", "calls")
    return rows.sort(*order, *keys, "name", descending=[True] * len(order) + [False] * (len(keys) + 1))


def changes_in(ranges: pl.DataFrame, events: pl.DataFrame) -> pl.DataFrame:
    """Returns a row for each allocation and free, in order of time. `range` is the innermost range around the event.
    The columns COUNTED have the event's bytes and counts, ready to be summed."""
    rows = in_order(events)
    is_alloc = _col("event") == "alloc"
    return rows.select(
        *DEVICE,
        "time_ns",
        innermost(ranges, rows).alias("range"),
        event_count=pl.lit(1, dtype=pl.Int64),
        freed_bytes=pl.when(~is_alloc).then("bytes"),
        allocation_count=is_alloc.cast(pl.Int64),
        allocation_bytes=pl.when(is_alloc).then("bytes"),
    )


def by_name(ranges: pl.DataFrame, own: pl.DataFrame, keys: tuple[str, ...]) -> pl.DataFrame:
    """Returns sums of the columns COUNTED for each name of a range, separately for each value of `keys`. The columns
    self_* are sums over the ranges themselves; the columns without self_ include all ranges inside. Memory of a range
    inside another range of the same name counts once. `own` has the columns `keys`, `range` and COUNTED. Outside of
    ranges, `range` and the name are null."""
    parts = [
        _add_name(own, ranges).rename({name: f"self_{name}" for name in COUNTED}),
        _add_name(own.filter(_col("range").is_null()), ranges),
        _add_name(_around(ranges, own.drop_nulls("range"), keys), ranges),
    ]
    return pl.concat(parts, how="diagonal").group_by(*keys, "name").agg(_col(*COUNTED, *SELF_COUNTED).sum())


def _add_name(rows: pl.DataFrame, ranges: pl.DataFrame) -> pl.DataFrame:
    return rows.with_columns(ranges["name"].gather(rows["range"]).alias("name")).drop("range")


def _around(ranges: pl.DataFrame, own: pl.DataFrame, keys: tuple[str, ...]) -> pl.DataFrame:
    """Returns rows like those of `own`, for the `outermost` ranges. Each row has the sums of its range and of all
    ranges inside it.

    In each round, every row moves up the tree to the next range around it that is `outermost`. Rows that reach the same
    range are added up, so few rows remain after a few rounds, even with many devices. The code uses numpy because a
    tree may be thousands of ranges deep.
    """
    import numpy as np  # imported here: importing numpy takes longer than all findings of a small trace

    marked = outermost(ranges).alias("marked").to_frame()
    nearest = native.nearest(pl.concat([ranges.select("parent"), marked], how="horizontal")).cast(pl.Int64)
    above = nearest.gather(ranges["parent"]).fill_null(-1).to_numpy()
    places = own.select(keys).unique(maintain_order=True).with_row_index("place")
    rows = own.join(places, on=keys, how="left", nulls_equal=True, maintain_order="left")
    rows = rows.with_columns(nearest.gather(rows["range"]).alias("row")).drop_nulls("row")
    # Each number stands for a pair: a row of `places`, and a range.
    at = rows["place"].cast(pl.Int64).to_numpy() * ranges.height + rows["row"].to_numpy()
    sums = rows.select(COUNTED).to_numpy()
    levels = []
    while at.size:
        order = np.argsort(at, kind="stable")
        at = at[order]
        first = np.flatnonzero(np.diff(at, prepend=-1))
        at, sums = at[first], np.add.reduceat(sums[order], first)
        levels.append((at, sums))
        up = above[at % ranges.height]
        at, sums = (at - at % ranges.height + up)[up >= 0], sums[up >= 0]
    if not levels:
        return own.clear()
    at, sums = (np.concatenate(parts) for parts in zip(*levels, strict=True))
    return places[at // ranges.height].select(
        *keys,
        pl.Series("range", at % ranges.height, dtype=own.schema["range"]),
        *(pl.Series(name, sums[:, number]) for number, name in enumerate(COUNTED)),
    )


def outermost(ranges: pl.DataFrame) -> pl.Series:
    """Returns, for each range, whether no other range of its name on its thread contains it."""
    same = ("rank", "pid", "tid", "name")
    in_tree = ~(_col("is_async") | _col("is_mark")).fill_null(value=False)
    rows = ranges.select(*same, "start_ns", "end_ns", in_tree.alias("in_tree")).with_row_index("row")
    rows = rows.drop_nulls(["tid", "start_ns", "end_ns"])
    rows = rows.sort("start_ns", "end_ns", "row", descending=[False, True, False])
    longest = pl.when("in_tree").then("end_ns").cum_max().forward_fill().shift().over(same)
    inside = rows.filter(longest >= _col("end_ns"))["row"]
    return pl.Series([True]).new_from_index(0, ranges.height).scatter(inside, False)


def at_peak(ranges: pl.DataFrame, events: pl.DataFrame, blocks: pl.DataFrame | None = None) -> pl.DataFrame:
    """Returns the blocks. `events` is the table memory. `blocks` is the result of `allocations`; pass it to save
    computing it again."""
    blocks = allocations(events) if blocks is None else blocks
    rows = in_order(events)["row"]
    # Several events may have the same time, so events are compared by their positions in order of time.
    order = pl.Series([None], dtype=pl.Int64).new_from_index(0, events.height)
    order = order.scatter(rows, pl.int_range(len(rows), eager=True))
    tops = highest(_curve(events, blocks, None))
    tops = tops.select(
        *DEVICE,
        order.gather(tops["row"]).fill_null(_BEFORE).alias("peak_at"),
        peak_ns="time_ns",
        peak_bytes="allocated_bytes",
    )
    known = blocks.filter(_col("address").is_not_null(), pl.coalesce("alloc_ns", "free_ns").is_not_null())
    gone = known.select(pl.coalesce("free_row", "replaced_row")).to_series()
    known = known.with_columns(
        order.gather(known["alloc_row"]).fill_null(_BEFORE).alias("taken_at"),
        order.gather(gone).fill_null(_NEVER).alias("gone_at"),
    ).join(tops, on=DEVICE, how="left", nulls_equal=True, maintain_order="left")
    alive = known.filter(_col("taken_at") <= _col("peak_at"), _col("peak_at") < _col("gone_at"))
    alive = alive.sort(*DEVICE, "bytes", descending=[False, False, False, True], nulls_last=True, maintain_order=True)
    taken_in = innermost(ranges, alive.rename({"alloc_ns": "time_ns"}))
    facts = [name for name in ("name", "module", "phase") if name in ranges.columns]
    return alive.select(
        *DEVICE,
        "peak_ns",
        "peak_bytes",
        "address",
        "bytes",
        "alloc_row",
        "alloc_ns",
        "tid",
        taken_in.alias("range"),
        *(ranges[name].gather(taken_in).alias(name) for name in facts),
    )
