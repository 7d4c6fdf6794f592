"""Sums the bytes of copies and computes their speed, by direction.

    copies(work) -> a row for each direction:
        rank, device_id, peer_device_id: peer_device_id is the other device of a copy between two devices.
        copy_from, copy_to: kind of the memory that is read, and of the memory that is written.
        count (Int64): number of copies.
        bytes (Int64): bytes that they copied.
        ns (Int64): sum of their durations.
        bytes_per_s (Float64): bytes per second.

A copy does not count if its size or its duration is unknown or 0.
"""

from __future__ import annotations

import polars as pl

from opspan.analysis.averages import on_device
from opspan.analysis.spans import bounded, length

_col = pl.col
DIRECTION = ("rank", "device_id", "peer_device_id", "copy_from", "copy_to")


def copies(work: pl.DataFrame) -> pl.DataFrame:
    took = length()
    rows = on_device(work.select(*DIRECTION, "kind", "is_overhead", "bytes", ns=took)).filter(kind="memcpy")
    grouped = rows.filter(_col("bytes") > 0, _col("ns") > 0).group_by(DIRECTION)
    sums = grouped.agg(pl.len().cast(pl.Int64).alias("count"), _col("bytes", "ns").cast(pl.Int128).sum())
    rows_by_direction = sums.with_columns(
        bytes_per_s=_col("bytes").cast(pl.Float64) / _col("ns").cast(pl.Float64) * 1e9,
        bytes=bounded(_col("bytes")),
        ns=bounded(_col("ns")),
    )
    # Sort by text, because the order of categoricals depends on which name was seen first.
    return rows_by_direction.sort(*DIRECTION[:3], *(_col(name).cast(pl.String) for name in DIRECTION[3:]))
