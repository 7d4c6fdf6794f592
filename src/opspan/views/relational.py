"""An analysed trace as tables of a relational database. Row numbers are replaced by ids, and durations are added.

    relational(analysis) -> frames by name: ranks, the tables of the trace, coverage

database.py says what each column means.
"""

from __future__ import annotations

import dataclasses
import json

import polars as pl

from opspan.analysis import Analysis, Coverage
from opspan.analysis.averages import DURATION
from opspan.analysis.coverage import Share
from opspan.tables import TABLES, Tables
from opspan.tables.tables import ids_of
from opspan.views.database import COVERAGE, RANKS

# Table -> its columns of row numbers -> the table that they refer to, and the name of the new column with ids.
_ROWS = {
    "ranges": {
        "parent": ("ranges", "parent_id"),
        "forward": ("ranges", "forward_id"),
        "function": ("functions", "function_id"),
    },
    "calls": {"range": ("ranges", "range_id")},
    "work": {
        "call": ("calls", "call_id"),
        "range": ("ranges", "range_id"),
        "launch_range": ("ranges", "launch_range_id"),
    },
    "functions": {},
}
_RENAMED = {
    "ranges": {"parent_id": "stated_parent_id"},  # parent_id is now the parent that the analysis found
    "work": {"ambiguous": "is_ambiguous"},
}


def relational(analysis: Analysis) -> dict[str, pl.DataFrame]:
    trace = analysis.complete
    ids = {name: ids_of(trace.frames[name]) for name in _ROWS}
    frames = {"ranks": _ranks(trace)}
    for name in TABLES:
        frame = trace.frames[name].rename(_RENAMED.get(name, {}))
        if name in _ROWS:
            rows = {new: ids[table].gather(frame[old]).alias(new) for old, (table, new) in _ROWS[name].items()}
            frame = frame.drop(_ROWS[name]).with_columns(id=ids[name], duration_ns=DURATION, **rows)
        frames[name] = frame
    frames["coverage"] = _coverage(analysis.coverage)
    return frames


def _ranks(trace: Tables) -> pl.DataFrame:
    rows = [
        {
            "rank": metadata.rank,
            "rank_by": metadata.rank_by,
            "told_rank": metadata.told.rank,
            "world_size": metadata.told.world_size,
            "local_rank": metadata.told.local_rank,
            "run": metadata.told.run,
            "source": metadata.source,
            "paths": json.dumps(metadata.paths),
            "tool": metadata.tool,
            "tool_version": metadata.tool_version,
            "host": metadata.host,
            "clock": metadata.clock,
            "origin_utc_ns": metadata.origin_utc_ns,
            "options_json": json.dumps(dict(metadata.options)),
        }
        for metadata in trace.ranks
    ]
    return pl.DataFrame(rows, schema={column.name: column.dtype for column in RANKS.columns})


def _coverage(coverage: Coverage) -> pl.DataFrame:
    """Returns a row for each figure. Only shares have times."""
    rows: list[tuple[str, int, int | None, int | None, int | None]] = []
    for field in dataclasses.fields(coverage):
        value = getattr(coverage, field.name)
        if isinstance(value, Share):
            rows.append((field.name, value.count, value.of, value.ns, value.of_ns))
        elif isinstance(value, int):
            rows.append((field.name, value, None, None, None))
    rows += [(f"backward ranges: {how}", count, coverage.backward, None, None) for how, count in coverage.links.items()]
    return pl.DataFrame(rows, schema={column.name: column.dtype for column in COVERAGE.columns}, orient="row")
