"""Declares the analysis database: its tables, columns, indexes, foreign keys and ready-made views.

docs/sqlite.md and the table `about` of the database are made from these declarations. sqlite.py writes the database.
"""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from opspan.tables import TABLES
from opspan.tables.schema import I32, I64, RANK, U32, Column
from opspan.views.summaries import SUMMARIES

_DURATION = Column("duration_ns", I64, "end_ns less start_ns, at least 0.", "ns")
_RANGE_ID = Column("range_id", I64, "The range it belongs to.", refers="ranges.id")

# Columns that the analysis adds (docs/analysis.md). They refer to rows by id, not by row number.
_ADDED: dict[str, tuple[Column, ...]] = {
    "ranges": (
        _DURATION,
        Column("parent_id", I64, "The innermost range around it on its thread.", refers="ranges.id"),
        Column("depth", U32, "How many ranges are around it."),
        Column("self_ns", I64, "Its time less that of the ranges directly inside it.", "ns"),
        Column("is_open", pl.Boolean, "Its end was not in the trace."),
        Column("overlaps", pl.Boolean, "It is outside the tree, for it only overlaps a range of its thread."),
        Column("device_ns", I64, "Device time of the work of this range and of all inside it.", "ns"),
        Column("self_device_ns", I64, "Device time of the work of this range itself.", "ns"),
        Column("forward_id", I64, "For a backward range, the op whose gradient it computes.", refers="ranges.id"),
        Column("link", pl.String, "How sure forward_id is, or why there is none."),
        Column("function_id", I64, "The innermost function of the program that it runs in.", refers="functions.id"),
        Column("module", pl.String, "The innermost module around it; for a backward range, that of its forward op."),
        Column("step", pl.String, "The step in which it began."),
        Column(
            "phase",
            pl.String,
            "forward, backward, optimizer, data; in steps of serving engines prefill, decode, mixed, diffusion.",
        ),
    ),
    "functions": (_DURATION,),
    "calls": (_DURATION, _RANGE_ID._replace(sentence="The innermost range on its thread when it began.")),
    "work": (
        _DURATION,
        Column("call_id", I64, "The call that launched it.", refers="calls.id"),
        Column("is_ambiguous", pl.Boolean, "Several calls have its correlation id; the last one before it was taken."),
        Column("launch_range_id", I64, "The range of the call.", refers="ranges.id"),
        _RANGE_ID._replace(
            sentence="The range it belongs to: that of the call, or the one in which its graph node was made.",
        ),
    ),
}
_RENAMED = {("ranges", "parent_id"): "stated_parent_id"}

_RANK = Column("rank", I32, RANK)


@dataclass(frozen=True)
class DatabaseTable:
    name: str
    sentence: str
    columns: tuple[Column, ...]
    key: str | None = None
    indexes: tuple[tuple[str, ...], ...] = ()


RANKS = DatabaseTable(
    "ranks",
    "Where the trace came from: one row a file, or folder, that was loaded.",
    (
        _RANK,
        Column("rank_by", pl.String, "What says so: the name of what the trace holds, `name` or `order`."),
        Column("told_rank", I32, "The rank that the trace itself says."),
        Column("world_size", I32, "How many ranks the program has."),
        Column("local_rank", I32, "Rank among those of its host."),
        Column("run", pl.String, "Who started the run, and a name that all its ranks share."),
        Column("source", pl.String, "Name of the reader."),
        Column("paths", pl.String, "The files, as a JSON list."),
        Column("tool", pl.String, "The tool that recorded it."),
        Column("tool_version", pl.String, "And its version."),
        Column("host", pl.String, "Machine that it ran on."),
        Column("clock", pl.String, "What the times are readings of."),
        Column("origin_utc_ns", I64, "UTC time, since 1970, of the clock's zero.", "ns"),
        Column("options_json", pl.String, "How it was captured, as a JSON object."),
    ),
    key="rank",
)
COVERAGE = DatabaseTable(
    "coverage",
    "How much could be attributed: figures, by count and by time.",
    (
        Column("figure", pl.String, "What is counted."),
        Column("count", I64, "How many."),
        Column("of", I64, "Of how many."),
        Column("ns", I64, "How long they took.", "ns"),
        Column("of_ns", I64, "How long all of them took.", "ns"),
    ),
    key="figure",
)
ABOUT = DatabaseTable(
    "about",
    "What every table, view and column means: this page.",
    (
        Column("table", pl.String, "Name of the table or view."),
        Column("column", pl.String, "Name of the column; empty for the table itself."),
        Column("unit", pl.String, "What its values are counted in."),
        Column("meaning", pl.String, "What it is."),
    ),
)

_INDEXES: dict[str, tuple[tuple[str, ...], ...]] = {
    "ranges": (
        ("name",),
        ("parent_id",),
        ("forward_id",),
        ("module",),
        ("function_id",),
        ("rank", "pid", "tid", "start_ns"),
    ),
    "relations": (("range_id",), ("other_id",)),
    "calls": (("name",), ("range_id",), ("rank", "pid", "tid", "start_ns")),
    "work": (("name",), ("call_id",), ("range_id",), ("rank", "device_id", "stream_id", "start_ns")),
    "functions": (("name",), ("parent_id",)),
    "threads": (("rank", "pid", "tid"),),
    "samples": (("rank", "pid", "tid", "time_ns"),),
    "counters": (("name", "time_ns"),),
}


def _table(name: str) -> DatabaseTable:
    table = TABLES[name]
    columns = [
        column._replace(
            name=_RENAMED.get((name, column.name), column.name),
            refers="ranks.rank" if column.name == "rank" else column.refers,
        )
        for column in table.columns
    ]
    key = "id" if columns[0].name == "id" else None
    return DatabaseTable(name, table.sentence, (*columns, *_ADDED.get(name, ())), key, _INDEXES.get(name, ()))


# In this order, each table comes after the tables that it refers to.
TABLES_IN_ORDER = (RANKS, *(_table(name) for name in dict.fromkeys(("functions", *TABLES))), COVERAGE)
VIEWS = SUMMARIES
