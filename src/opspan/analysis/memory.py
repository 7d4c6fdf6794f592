"""Memory that was allocated while a range lasted, minus what was freed.

    memory(ranges, events) -> ranges with
        cpu_memory, device_memory            Int64  bytes: the change while the range lasted, on any thread
        self_cpu_memory, self_device_memory  Int64  the same minus that of its children

This is how torch.profiler counts: two ranges of a process that are open at the same time both have what was allocated
then. Ranges must be nested (`nest`) first.
"""

from __future__ import annotations

import polars as pl

_col = pl.col
TOTALS = ("cpu_memory", "device_memory")
SELF = tuple(f"self_{name}" for name in TOTALS)


def changes(events: pl.DataFrame) -> pl.DataFrame:
    """What was allocated (+) and freed (-), in order of time: bytes of the host and of devices."""
    signed = _col("bytes") * pl.when(_col("event") == "free").then(-1).otherwise(1)
    on_device = _col("device_id").is_not_null()
    rows = events.filter(_col("event").is_in(["alloc", "free"]), _col("time_ns").is_not_null())
    return rows.select(
        "rank",
        "pid",
        "tid",
        "time_ns",
        cpu_memory=pl.when(on_device).then(0).otherwise(signed),
        device_memory=pl.when(on_device).then(signed).otherwise(0),
    ).sort("time_ns", maintain_order=True)


def during(changed: pl.DataFrame, start_ns: pl.Series, end_ns: pl.Series) -> pl.DataFrame:
    """For each stretch of time the sums over what happened in it, both ends included. If its begin or its end is null,
    they are 0."""
    times = changed["time_ns"]
    first = times.search_sorted(start_ns.fill_null(0), side="left")
    past = times.search_sorted(end_ns.fill_null(-1), side="right")
    past = past.zip_with(past > first, first)
    until = {name: pl.concat([pl.Series([0], dtype=pl.Int64), changed[name].cum_sum()]) for name in TOTALS}
    return pl.DataFrame({name: sums.gather(past) - sums.gather(first) for name, sums in until.items()})


def without_children(totals: pl.DataFrame, parent: pl.Series, is_child: pl.Series) -> pl.DataFrame:
    """For each row its totals minus those of its children, as columns self_*."""
    inside = summed(totals, parent, is_child)
    return totals.select((_col(name) - inside[name]).alias(f"self_{name}") for name in TOTALS)


def summed(values: pl.DataFrame, row: pl.Series, chosen: pl.Series) -> pl.DataFrame:
    """For each row the sums over the chosen rows that refer to it; `row`: which row each refers to."""
    sums = values.with_columns(row.alias("row")).filter(chosen).drop_nulls("row").group_by("row").agg(pl.all().sum())
    rows = pl.DataFrame({"row": pl.int_range(values.height, dtype=pl.UInt32, eager=True)})
    return rows.join(sums, on="row", how="left", maintain_order="left").drop("row").fill_null(0)


def memory(ranges: pl.DataFrame, events: pl.DataFrame) -> pl.DataFrame:
    """`events`: the table memory."""
    rows = ranges.select("rank", "pid", "start_ns", "end_ns").with_row_index("row")
    parts = [pl.DataFrame(schema={"row": pl.UInt32, **dict.fromkeys(TOTALS, pl.Int64)})]
    for process, changed in changes(events).partition_by("rank", "pid", as_dict=True).items():
        rank, pid = (pl.lit(number) for number in process)
        some = rows.filter(_col("rank").eq_missing(rank) & _col("pid").eq_missing(pid))
        parts.append(some.select("row").hstack(during(changed, some["start_ns"], some["end_ns"])))
    totals = rows.select("row").join(pl.concat(parts), on="row", how="left", maintain_order="left")
    totals = totals.select(TOTALS).fill_null(0)
    apart = (ranges["is_async"] | ranges["is_mark"].fill_null(value=False)).fill_null(value=False)
    own = without_children(totals, ranges["parent"], ~apart)
    return ranges.with_columns(
        *totals, *(pl.when(~pl.lit(apart)).then(own[name]).otherwise(0).alias(name) for name in SELF)
    )
