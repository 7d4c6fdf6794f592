"""Reads CSVs of intervals, which VTune imports as tasks and frames. opspan writes such files.

    out-hostname-node7.csv:  name,start_tsc.UTC,end_tsc,pid,tid
                             aten::mm,2026-01-02 03:04:05.000000678,2026-01-02 03:04:05.000001678,812,815

A row with a tid is a task, and a row without a tid is a frame. Times are UTC or ns of CLOCK_MONOTONIC_RAW. Any other
clock is an error, because the file does not give the length of its ticks.
"""

from __future__ import annotations

import re
from pathlib import Path

import polars as pl
from polars.exceptions import PolarsError

from opspan.errors import NotReadable, ReadError
from opspan.files import named_file, open_file
from opspan.formats.columns import first_ns, in_time
from opspan.readers.vtune import ranges
from opspan.readers.vtune.database import EPOCH_NS, MONOTONIC
from opspan.tables import Issues, Metadata, Tables

HEADER = re.compile(rb"(?:\xef\xbb\xbf)?name,start_tsc\.(?P<clock>\w+),end_tsc(?:,pid,tid)?\s*(?:\n|$)")
HOST = re.compile(r"-hostname-(?P<host>.+)\.csv", re.IGNORECASE)
UTC = "UTC"
COLUMNS = ("label", "start", "end", "pid", "tid")


def is_intervals(head: bytes) -> bool:
    return HEADER.match(head) is not None


def read(path: Path, issues: Issues) -> Tables:
    try:
        with open_file(path) as stream:
            header = HEADER.match(stream.read(4096))
        clock = header["clock"].decode() if header else UTC
        if clock not in (UTC, MONOTONIC):
            raise NotReadable(
                f"{path} has times in ticks of {clock}, and does not say how long one is; expected {UTC} or {MONOTONIC}"
            )
        with named_file(path) as open_path:
            raw = pl.read_csv(open_path, has_header=False, skip_rows=1, infer_schema=False, truncate_ragged_lines=True)
    except OSError as error:
        raise NotReadable(f"cannot read {path}: {error.strerror or error}") from error
    except PolarsError as error:
        if isinstance(error, pl.exceptions.NoDataError):
            raw = pl.DataFrame(schema=dict.fromkeys(COLUMNS, pl.String))
        else:
            raise ReadError(f"{path} is a damaged CSV file ({' '.join(str(error).split())[:120]})") from error
    return _trace(path, raw, clock, issues)


def _trace(path: Path, raw: pl.DataFrame, clock: str, issues: Issues) -> Tables:
    frame = raw.rename(dict(zip(raw.columns, COLUMNS, strict=False))).select(
        pl.col(name) if place < raw.width else pl.lit(None, dtype=pl.String).alias(name)
        for place, name in enumerate(COLUMNS)
    )
    numbers = ["pid", "tid"] + (["start", "end"] if clock == MONOTONIC else [])
    times = [] if clock == MONOTONIC else [_utc_ns(name) for name in ("start", "end")]
    read = frame.with_columns(pl.col(numbers).cast(pl.Int64, strict=False), *times)
    odd = sum(read[name].null_count() - frame[name].null_count() for name in COLUMNS[1:])
    issues.add("odd_cells", odd, path.name)
    read = in_time(read, path.name, issues)
    nothing = {"domain": pl.Categorical, "category": pl.Categorical, "parameter": pl.String, "payload_json": pl.String}
    frame = read.with_columns(
        *(pl.lit(None, dtype=dtype).alias(name) for name, dtype in nothing.items()),
        is_async=pl.col("tid").is_null(),
        is_mark=pl.lit(value=False),
    )
    table = ranges.ranges(frame)
    zero_ns = 0 if clock == MONOTONIC else first_ns([table], EPOCH_NS)
    host = HOST.search(path.name)
    metadata = Metadata(
        source="vtune",
        paths=(str(path),),
        tool="VTune interval import",
        host=host["host"] if host else None,
        clock=MONOTONIC if clock == MONOTONIC else None,
        origin_utc_ns=None if clock == MONOTONIC else zero_ns,
    )
    table = table.with_columns(pl.col("start_ns", "end_ns") - zero_ns)
    places = table.select("rank", "pid", "tid").unique(maintain_order=True)
    return Tables(
        (metadata,),
        ranges=table,
        threads=places.drop_nulls("tid"),
        processes=places.drop_nulls("pid").select("rank", "pid").unique(maintain_order=True),
        issues=issues.frame(),
    )


def _utc_ns(column: str) -> pl.Expr:
    text = pl.col(column).str.strip_chars()
    return text.str.to_datetime("%Y-%m-%d %H:%M:%S%.f", time_unit="ns", strict=False).dt.epoch("ns").alias(column)
