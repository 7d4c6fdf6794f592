"""A trace, and what was read of its Chrome trace: the same, but for samples and rows without a time."""

from __future__ import annotations

from pathlib import Path

import polars as pl

import opspan
from opspan.analysis import ops
from opspan.tables import schema
from opspan.trace import Trace

TIMES = {"ranges": "start_ns", "calls": "start_ns", "work": "start_ns", "functions": "start_ns"}
TIMES |= {"memory": "time_ns", "counters": "time_ns"}


def there_and_back(trace: Trace, folder: Path, name: str = "back.json") -> Trace:
    trace.export(folder / name)
    return opspan.load(folder / name)


def held(trace: Trace, table: str) -> pl.DataFrame:
    """Returns a table as an analysis sees it: labels are read, and flags that nobody set are not set."""
    frame = trace.frames[table].select(list(schema.TABLES[table].schema))
    if table in TIMES:
        frame = frame.filter(pl.col(TIMES[table]).is_not_null())
    flags = [pl.col(name).fill_null(value=False) for name, dtype in frame.schema.items() if dtype == pl.Boolean]
    frame = frame.with_columns(flags)
    return frame.sort(frame.columns) if table == "counters" else frame


def assert_same(trace: Trace, back: Trace) -> None:
    one, other = (each.replace(ranges=ops(each.ranges)) for each in (trace, back))
    for table in schema.TABLES:
        if table != "samples":
            there, here = held(one, table), held(other, table)
            assert here.height == there.height, table
            for column in there.columns:
                assert here[column].equals(there[column]), (table, column)
    assert back.coverage == trace.coverage
    assert [(rank.source, rank.tool, rank.host, rank.origin_utc_ns, rank.options) for rank in back.ranks] == [
        (rank.source, rank.tool, rank.host, rank.origin_utc_ns, rank.options) for rank in trace.ranks
    ]
    if one.ranges.height:
        assert back.events().key_averages().table() == trace.events().key_averages().table()
