"""Any database, whatever is in it and however it came to be, is read from its pages as SQLite reads it."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from opspan.formats.sqlite import ROWID, SqliteFile
from opspan.formats.sqlite_cells import Type
from readers.sqlite_twice import KINDS, PAGES, BySqlite, reserve, told
from tiers import RELEASE

CELLS = st.one_of(
    st.none(),
    st.integers(-(2**63), 2**63 - 1),
    st.sampled_from([0, 1, -1, 127, 128, -129, 2**15, 2**23, 2**31 - 1, -(2**31), 2**47, 2**63 - 1]),
    st.floats(),
    st.text(max_size=30),
    st.integers(0, 4000).map(lambda count: "wörter " * (count // 7)),
    st.binary(max_size=40),
)
TYPED = {
    "INTEGER": st.none() | st.integers(-(2**63), 2**63 - 1),
    "REAL": st.none() | st.floats(allow_nan=True) | st.integers(-(2**50), 2**50),
    "TEXT": st.none() | st.text(max_size=40) | st.integers(0, 3000).map(lambda count: "ä" * count),
    "BLOB": st.none() | st.binary(max_size=60),
}


Script = list[str | tuple[str, list[Any]]]


@st.composite
def databases(draw: st.DrawFn) -> tuple[int, Script, dict[str, Type]]:
    """Bytes that are reserved in pages, statements that make a database, and columns to be asked for."""
    reserved = draw(st.sampled_from([0, 0, 8, 32]))
    script: Script = [f"PRAGMA page_size = {draw(st.sampled_from(PAGES[:3]))}"]
    script.append(f"PRAGMA auto_vacuum = {draw(st.sampled_from(['NONE', 'FULL', 'INCREMENTAL']))}")
    types = draw(st.lists(st.sampled_from([*TYPED, "", "NUMERIC", "INTEGER PRIMARY KEY"]), min_size=1, max_size=5))
    while types.count("INTEGER PRIMARY KEY") > 1:
        types.remove("INTEGER PRIMARY KEY")
    names = [f"c{number}" for number in range(len(types))]
    script.append(f"CREATE TABLE t ({', '.join(map(' '.join, zip(names, types, strict=True)))})")
    is_odd = draw(st.booleans())

    def values() -> list[Any]:
        count = draw(st.integers(0, 12)) * draw(st.sampled_from([1, 1, 40]))
        rows = draw(st.lists(st.tuples(*(_cells(kind, is_odd) for kind in types)), min_size=1, max_size=6))
        return [rows[n % len(rows)] for n in range(count)]

    for _ in range(draw(st.integers(1, 3))):
        marks = ", ".join("NULL" if kind.endswith("KEY") else "?" for kind in types)
        script.append((f"INSERT INTO t ({', '.join(names)}) VALUES ({marks})", values()))
        match draw(st.sampled_from(["delete", "vacuum", "column", "far", "nothing"])):
            case "delete":
                script.append(f"DELETE FROM t WHERE rowid % {draw(st.integers(2, 9))} = 0")
            case "vacuum":
                script.append("VACUUM")
            case "column":
                names.append(f"c{len(names)}")
                types.append(
                    draw(st.sampled_from(["INTEGER DEFAULT 12", "TEXT DEFAULT 'so'", "REAL", "REAL DEFAULT 1"]))
                )
                script.append(f"ALTER TABLE t ADD COLUMN {names[-1]} {types[-1]}")
            case "far":
                script.append(f"INSERT INTO t (rowid) VALUES ({draw(st.sampled_from([-(2**63), -5, 0, 2**40]))})")
    fitting: dict[str, Type] = {"INTEGER": "int", "REAL": "float", "TEXT": "text", "BLOB": "bytes"}
    columns = {
        name: draw(st.sampled_from(KINDS)) if is_odd else fitting.get(kind.split(" ")[0], "bytes")
        for name, kind in zip(names, types, strict=True)
    }
    return reserved, script, {**columns, ROWID: "int"}


def _cells(kind: str, is_odd: bool) -> st.SearchStrategy[Any]:
    return CELLS if is_odd else TYPED.get(kind.split(" ")[0], CELLS)


def _run(path: Path, script: Sequence[str | tuple[str, list[Any]]]) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute("PRAGMA synchronous = OFF")  # or most of the time goes into waiting for the disk
        for statement in script:
            try:
                if isinstance(statement, str):
                    database.execute(statement)
                else:
                    text, rows = statement
                    count = text.count("?")
                    keys = [at for at, mark in enumerate(text.partition("VALUES (")[2].split(", ")) if "?" not in mark]
                    fitted = [[cell for at, cell in enumerate(row) if at not in keys][:count] for row in rows]
                    fitted = [row + [None] * (count - len(row)) for row in fitted]
                    database.execute("BEGIN")
                    database.executemany(text, fitted)
                    database.execute("COMMIT")
            except sqlite3.Error:  # a text that SQLite does not take: what is there by then is as good a case
                if database.in_transaction:
                    database.execute("COMMIT")


@pytest.mark.parametrize("examples", [pytest.param(100, marks=pytest.mark.slow), pytest.param(2_000, marks=RELEASE)])
def test_any_database_is_read_as_sqlite_reads_it(tmp_path: Path, examples: int) -> None:
    path = tmp_path / "x.sqlite"

    @settings(max_examples=examples, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(databases())
    def check(case: tuple[int, Script, dict[str, Type]]) -> None:
        reserved, script, columns = case
        path.unlink(missing_ok=True)
        if reserved:
            reserve(path, reserved, *(statement for statement in script[:2] if isinstance(statement, str)))
        _run(path, script)
        if path.exists() and path.stat().st_size:
            assert told(SqliteFile, path, columns) == told(BySqlite, path, columns)

    check()
