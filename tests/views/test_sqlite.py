"""The analysis database against the frames it is made of, asked in SQL."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import opspan
from opspan.analysis import analyse, averages
from opspan.tables import TABLES
from opspan.trace import Trace
from views.sources import HOSTILE, capture, nsys

REAL = ["nsys/train_fsdp_2gpu.sqlite", "nsys/pyprof_2024.sqlite", "nvprof/lm_emit_nvtx.sql"]
SOURCES = ["nsys", "capture", *REAL]


@pytest.fixture(params=SOURCES)
def trace(request: pytest.FixtureRequest, tmp_path: Path) -> Trace:
    if request.param in ("nsys", "capture"):
        return opspan.load({"nsys": nsys, "capture": capture}[request.param](tmp_path / "source"))
    return opspan.load(request.getfixturevalue("traces_dir") / request.param)


@pytest.fixture
def database(trace: Trace, tmp_path: Path) -> Iterator[sqlite3.Connection]:
    trace.export(tmp_path / "out.sqlite")
    with closing(sqlite3.connect(f"file:{tmp_path / 'out.sqlite'}?mode=ro", uri=True)) as connection:
        yield connection


@pytest.mark.slow
def test_rows_and_sums_are_those_of_the_trace(trace: Trace, database: sqlite3.Connection) -> None:
    for name in TABLES:
        frame = trace.frames[name]
        assert one(database, f"SELECT count(*) FROM {name}") == (frame.height,)
        for column in columns_of(database, name) & {name for name, dtype in frame.schema.items() if dtype.is_integer()}:
            # The database's parent is the one that the analysis found.
            stored = "stated_parent_id" if (name, column) == ("ranges", "parent_id") else column
            found = [value for (value,) in database.execute(f"SELECT [{stored}] FROM {name}") if value is not None]
            # SQLite's integers are signed; bits are bits.
            assert sum(map(int, found)) % 2**64 == sum(frame[column].drop_nulls().to_list()) % 2**64, (name, column)
            assert len(found) == frame[column].count(), (name, column)


@pytest.mark.slow
def test_it_is_whole_and_every_view_can_be_read(database: sqlite3.Connection) -> None:
    assert database.execute("PRAGMA foreign_key_check").fetchall() == []
    assert one(database, "PRAGMA integrity_check") == ("ok",)
    views = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'view'")]
    assert "op_summary" in views
    for view in views:
        database.execute(f"SELECT * FROM {view}").fetchall()
    described = {name for (name,) in database.execute("SELECT DISTINCT [table] FROM about")}
    tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type IN ('table', 'view')")}
    assert tables - {"sqlite_stat1", "about"} <= described


def test_the_summary_of_ops_is_that_of_the_analysis(trace: Trace, database: sqlite3.Connection) -> None:
    analysed = analyse(trace)
    columns = ["count", "cpu_ns", "self_cpu_ns", "device_ns", "self_device_ns"]
    expected = {
        name: tuple(row)
        for name, *row in averages(analysed.ranges, analysed.work, "name").select("name", *columns).rows()
    }
    rows = database.execute(f"SELECT name, {', '.join(columns)} FROM op_summary").fetchall()
    assert {name: tuple(value or 0 for value in row) for name, *row in rows} == expected


def test_kernels_lie_in_the_ops_that_the_analysis_names(trace: Trace, database: sqlite3.Connection) -> None:
    analysed = analyse(trace)
    names = analysed.ranges["name"].cast(pl.String)
    expected = analysed.work.filter(pl.col("range").is_not_null()).select("id", "range").rows()
    found = database.execute(
        "SELECT work.id, ranges.name FROM work JOIN ranges ON ranges.id = work.range_id"
    ).fetchall()
    assert sorted(found) == sorted((number, names[place]) for number, place in expected)


def test_texts_are_as_they_were(tmp_path: Path) -> None:
    opspan.load(nsys(tmp_path / "run.sqlite")).export(tmp_path / "out.db")
    with closing(sqlite3.connect(tmp_path / "out.db")) as database:
        assert one(database, "SELECT count(*) FROM ranges WHERE name = ?", HOSTILE) == (1,)


def one(database: sqlite3.Connection, sql: str, *values: Any) -> tuple[Any, ...]:
    row: tuple[Any, ...] = database.execute(sql, values).fetchone()
    return row


def columns_of(database: sqlite3.Connection, table: str) -> set[str]:
    return {row[1] for row in database.execute(f"PRAGMA table_info({table})")}
