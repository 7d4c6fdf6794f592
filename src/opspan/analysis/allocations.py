"""Pairs allocations with frees: an allocation and its free are one block of memory.

    allocations(events) -> a row for each block, in order of time, with:
        rank, pid, device_id, address, bytes: where the block is, and its size.
        alloc_row (UInt32): row of its allocation in the table memory; null if the block is older than the trace.
        free_row (UInt32): row of its free; null if the free is not in the trace.
        alloc_ns, free_ns: the times of its allocation and its free.
        tid (Int64): the thread that allocated it.
        replaced_row (UInt32): row of the next allocation at its address, if the free in between was lost.

An event without an address or a time cannot be paired, so it gets a block of its own. docs/analysis.md, "Allocations",
has the rules.
"""

from __future__ import annotations

import polars as pl

from opspan.analysis.spans import DEVICE

_col = pl.col


def in_order(events: pl.DataFrame) -> pl.DataFrame:
    """Returns allocations and frees in order of time; events without a time come last. `row` is the row in `events`."""
    size = _col("bytes").clip(lower_bound=0)  # only damaged files have a negative size
    rows = events.with_row_index("row").filter(_col("event").is_in(["alloc", "free"])).with_columns(size)
    return rows.sort("time_ns", nulls_last=True, maintain_order=True)


def allocations(events: pl.DataFrame) -> pl.DataFrame:
    is_apart = _col("address").is_null() | _col("time_ns").is_null()
    same = (*DEVICE, "address", "apart")
    rows = in_order(events).with_columns(pl.when(is_apart).then("row").alias("apart")).with_row_index("place")
    # Sorting by address once is much faster than a window function for each address.
    rows = rows.sort(same, maintain_order=True)
    is_next = pl.all_horizontal(_col(name).eq_missing(_col(name).shift(-1)) for name in same)
    is_next &= _col("place").shift(-1).is_not_null()
    rows = rows.with_columns(is_next.alias("is_next"))
    names = ("event", "row", "time_ns", "bytes")
    is_after = _col("is_next").shift(1, fill_value=False)
    rows = rows.with_columns(
        *(pl.when("is_next").then(_col(name).shift(-1)).alias(f"next_{name}") for name in names),
        is_given_back=is_after & (_col("event").shift() == "alloc").fill_null(value=False),
    ).sort("place")
    is_alloc = _col("event") == "alloc"
    next_is_free = is_alloc & (_col("next_event") == "free")
    blocks = rows.filter(is_alloc | ~_col("is_given_back"))
    return blocks.select(
        *DEVICE,
        "address",
        # The size of the free counts only if the allocation has no size.
        pl.when(next_is_free).then(pl.coalesce("bytes", "next_bytes")).otherwise("bytes").alias("bytes"),
        pl.when(is_alloc).then("row").alias("alloc_row"),
        pl.when(next_is_free).then("next_row").when(~is_alloc).then("row").alias("free_row"),
        pl.when(is_alloc).then("time_ns").alias("alloc_ns"),
        pl.when(next_is_free).then("next_time_ns").when(~is_alloc).then("time_ns").alias("free_ns"),
        pl.when(is_alloc).then("tid").alias("tid"),
        pl.when(is_alloc & (_col("next_event") == "alloc")).then("next_row").alias("replaced_row"),
    )
