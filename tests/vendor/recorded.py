"""The contents of opspan's own recordings, in the shape that nsys.nested takes."""

from __future__ import annotations

from pathlib import Path

import polars as pl

import opspan

Row = tuple[tuple[int, int], int, int | None, tuple[str, int | None, str | None]]


def recorded_ranges(folder: Path, *, sizes: bool = True, source: tuple[str, ...] = ("torch", "user")) -> list[Row]:
    """((process, thread), start, end, (name, seq, sizes)) of every nested range in a capture."""
    # oneDNN sends ITT tasks of its own, in domains of its own.
    ours = pl.col("domain").cast(pl.String).is_in(["opspan", "PyTorch"]) | pl.col("domain").is_null()
    nested = ~pl.col("is_mark") & ~pl.col("is_async")
    frame = opspan.load(folder).ranges.filter(pl.col("source").cast(pl.String).is_in(source) & nested & ours)
    columns = ["pid", "tid", "start_ns", "end_ns", "name", "seq", "sizes"]
    return [
        ((pid, tid), start, end, (name or "", seq, text if sizes else None))
        for pid, tid, start, end, name, seq, text in frame.select(columns).iter_rows()
    ]
