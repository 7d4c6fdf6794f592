"""Adds to ranges the memory that was allocated while they lasted, minus what was freed.

    memory(ranges, events) -> ranges with:
        cpu_memory, device_memory (Int64): the change in bytes while the range lasted, on all threads of the process.
        self_cpu_memory, self_device_memory (Int64): the range's change in bytes, minus the changes of its children.

This is how torch.profiler counts. If two ranges of a process are open at the same time, both count the memory that is
allocated during that time. Ranges must be nested (`nest`) first.
"""

from __future__ import annotations

import polars as pl

from opspan.analysis.spans import PROCESS, number_groups
from opspan.row_numbers import ROW_NUMBER

_col = pl.col
TOTALS = ("cpu_memory", "device_memory")
SELF = tuple(f"self_{name}" for name in TOTALS)


def changes(events: pl.DataFrame) -> pl.DataFrame:
    """Returns the bytes that were allocated (+) or freed (-) on the host and on devices, in order of time."""
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


def during(changed: pl.DataFrame, start_ns: pl.Series, end_ns: pl.Series, of: pl.Series | None = None) -> pl.DataFrame:
    """Returns the sums of the changes in each stretch of time, from start to end (inclusive); 0 if the end is null.
    `of` identifies the process of each stretch, as the column `of` of `changed` does for changes. `of` is None if there
    is only one process."""
    if of is None:
        of = pl.zeros(len(start_ns), dtype=ROW_NUMBER, eager=True)
        changed = changed.with_columns(of=pl.lit(0, ROW_NUMBER))
    spans = pl.DataFrame({"of": of, "start_ns": start_ns.fill_null(0), "end_ns": end_ns.fill_null(-1)})
    spans = spans.with_columns(_col("end_ns").clip(lower_bound=_col("start_ns") - 1))
    # The sum over a stretch is the sum up to its end minus the sum before its start.
    sums = changed.sort("of", "time_ns", maintain_order=True).with_columns(_col(TOTALS).cum_sum().over("of"))
    sums = sums.unique(("of", "time_ns"), keep="last", maintain_order=True).sort("time_ns")
    sums = sums.select("of", "time_ns", *TOTALS)

    def until(time: pl.Expr) -> pl.DataFrame:
        rows = spans.select("of", time_ns=time).with_row_index("row").sort("time_ns")
        rows = rows.join_asof(sums, on="time_ns", by="of", check_sortedness=False).sort("row")
        return rows.select(_col(TOTALS).fill_null(0))

    ends, begins = until(_col("end_ns")), until(_col("start_ns") - 1)
    return pl.DataFrame({name: ends[name] - begins[name] for name in TOTALS})


def without_children(totals: pl.DataFrame, parent: pl.Series, is_child: pl.Series) -> pl.DataFrame:
    """Returns the totals of each row minus those of its children, as columns self_*."""
    inside = summed(totals, parent, is_child)
    return totals.select((_col(name) - inside[name]).alias(f"self_{name}") for name in TOTALS)


def summed(values: pl.DataFrame, row: pl.Series, chosen: pl.Series) -> pl.DataFrame:
    """Adds each `chosen` row of `values` to another row, whose number is in `row`. Returns these sums for all rows. If
    `row` is the parent of each range, for example, these are the sums over the children of each range."""
    sums = values.with_columns(row.alias("row")).filter(chosen).drop_nulls("row").group_by("row").agg(pl.all().sum())
    rows = pl.DataFrame({"row": pl.int_range(values.height, dtype=ROW_NUMBER, eager=True)})
    return rows.join(sums, on="row", how="left", maintain_order="left").drop("row").fill_null(0)


def memory(ranges: pl.DataFrame, events: pl.DataFrame) -> pl.DataFrame:
    (of_ranges, changed) = number_groups(PROCESS, ranges.select(*PROCESS, "start_ns", "end_ns"), changes(events))
    totals = during(changed, of_ranges["start_ns"], of_ranges["end_ns"], of_ranges["of"])
    apart = (ranges["is_async"] | ranges["is_mark"].fill_null(value=False)).fill_null(value=False)
    own = without_children(totals, ranges["parent"], ~apart)
    return ranges.with_columns(
        *totals, *(pl.when(~pl.lit(apart)).then(own[name]).otherwise(0).alias(name) for name in SELF)
    )
